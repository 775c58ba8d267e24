"""Which columns carry an effect: a posterior over supports as a product of single effects."""
