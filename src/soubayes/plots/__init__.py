"""Figures; each function returns the matplotlib Axes (extra ``plot``).

| to change | look in |
| --- | --- |
| paths, coefficients, credible sets, hazards of an estimator | estimators.py |
| curves, categories, units and pairs | terms.py |
| posteriors of the other engines | posteriors.py |
"""
