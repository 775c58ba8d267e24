"""Survival times: risk sets, the partial likelihood, and the baseline hazard.

| to change | look in |
| --- | --- |
| what the shell asks for: candidates, held-out subjects | family.py |
| what is accepted as y | responses.py |
| who is at risk when, how ties count, the loss with its derivatives | risk_sets.py |
| the loss as least squares, expanded again | rows.py |
| hazards of held-out subjects, survival curves | hazard.py |
| concordance, Brier score, residuals | measures.py |
"""
