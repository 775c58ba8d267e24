"""Intervals that cover at every size of the coefficient, and the statistics that they need.

| to change | look in |
| --- | --- |
| estimates that no prior pulls to 0 | estimates.py |
| the intervals | fab.py |
"""
