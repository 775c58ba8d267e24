"""The scikit-learn estimators, a file each.

| to change | look in |
| --- | --- |
| what all have: the intake of rows, a fit's end, attributes, targets | base.py |
| parameters: defaults, descriptions, checks | parameters.py |
| summaries, draws, exports | reports.py |
| one response with a likelihood: fit, predict, score | response.py |
| `terms=` | terms.py, term_reports.py |
| one kind of response | the file of its name |
"""
