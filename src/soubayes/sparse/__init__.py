"""Sparse global-local estimators: one way from rows to what is reported, for every response.

| to change | look in |
| --- | --- |
| a parameter, a check of input, what a fit reports | estimators/ |
| the way from rows to a mixture of candidates | shell.py; with terms levels.py |
| a response: its loss and what is predicted from it | likelihoods/ |
| solvers: normal noise, likelihoods of rows, Cox regression | least_squares/, rows/, survival/ |
| which rows are held out, and how candidates are judged | choice/ |
| a number that decides a result | constants.py |
| which columns carry an effect; intervals that cover everywhere | inclusion/, intervals/ |
| the priors of columns and of their scales | model.py, scales/ |
| points between dense and sparse; the grid of a path, and the share of few rows | dial.py |
| q, mixtures, what a fit at one point is | posterior.py; of many units unit_posterior.py |
| where X lives | designs/ |
| `feature_blocks` and `feature_groups` | blocks.py |
"""
