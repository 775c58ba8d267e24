"""What can be said from draws of a posterior that exist already: sensitivity and reweighting.

| to change | look in |
| --- | --- |
| the forms of draws: files, pandas, ArviZ, dictionaries | forms.py, known.py |
| models: NumPyro; PyMC and Bambi; Stan programs | model_draws.py, pymc_model.py, stan.py |
| the check of the order of the blocks | parents.py, functions.py |
| conflicts of prior and data | scores.py |
| densities from draws | ratios.py, kernels.py, crossed.py |
| `sensitivity` | sensitivity.py |
| `reweight` and its weights | reweight.py, weights.py |
"""
