"""Several classes at once: the softmax likelihood, its path, dial and predictions."""
