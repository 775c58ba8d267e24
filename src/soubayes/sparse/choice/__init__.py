"""How confidences are chosen: rows are held out, and candidates judged by what they say of them.

| to change | look in |
| --- | --- |
| which rows are held out | folds.py |
| who is fitted to which fold, when folds end, the mixture, `sparsity_` | race.py |
| scores, weights and recalibration | scoring.py |
"""
