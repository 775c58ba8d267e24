"""What can be said from draws of a posterior that exist already: sensitivity and reweighting.

| to change | look in |
| --- | --- |
| the form of draws: pandas, ArviZ, NumPyro, PyMC, Stan | frames.py, known.py, model_draws.py |
| the order of the blocks, and its check | order.py, parents.py |
| densities from draws | ratios.py, kernels.py, crossed.py |
| `sensitivity` | sensitivity.py |
| `reweight` and its weights | reweight.py, weights.py |
"""
