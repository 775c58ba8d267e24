"""Where X lives: one protocol for least squares, one for passes over rows.

| to change | look in |
| --- | --- |
| means, scales and blocks of rows in their units | standardise.py |
| standardised columns, dense or scipy-sparse | columns.py |
| sufficient statistics, in chunks | moments.py |
| factorisations | linalg.py |
| columns of many units, and rows that stay sparse | units.py |
"""
