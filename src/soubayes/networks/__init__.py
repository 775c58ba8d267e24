"""Bayesian neural networks that prune themselves (paper, section 4.4 and supplement A.4).

| file | idea |
| --- | --- |
| layers.py | the model: priors, variational family, forward passes, KL terms |
| likelihoods.py | Gaussian noise with unknown precision, categorical outputs |
| training.py | one compiled epoch; the loop around it |
| compaction.py | which units are dead, and cutting them out of a training state |
| feeding.py | arrays, memory maps and iterables of batches as chunks; scaling; devices |
| storage.py | safetensors + JSON: save, load, checkpoints |
| prediction.py | posterior draws of the network's function |
| settings.py | checks of what the user set |
| base.py, estimators.py | fitting and files; the two scikit-learn estimators |
| export.py, plots.py, progress.py | ONNX, figures, the progress bar |
"""
