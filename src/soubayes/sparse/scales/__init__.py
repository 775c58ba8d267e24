"""Scale priors: q(tau^2), q(nu^2), and which columns share a tau.

| to change | look in |
| --- | --- |
| a prior of scales of one's own; special functions and roots | base.py |
| the priors that there are | priors.py |
| columns that share a tau; the balance of tau and nu | balance.py |
"""
