"""Which columns carry an effect: a posterior over supports as a product of single effects.

| to change | look in |
| --- | --- |
| what is asked of the data | field.py |
| priors of the number and size of effects; columns without look-alikes | priors.py |
| the sweeps over effects; over groups of columns | product.py, grouped.py |
| credible sets, intervals, discoveries | supports.py |
| what a user sees | view.py |
"""
