"""What a column, a factor, a curve, a unit and a pair are: their columns, scales and names.

| to change | look in |
| --- | --- |
| what a user may write, with defaults; formulas | parsing.py, formula.py |
| a kind of term, as data | kinds.py |
| the columns of a curve | basis.py |
| the columns of a pair, and how pairs are ranked | pairs.py |
| how rows become the columns of all terms | expansion.py, table.py |
| which terms a candidate has, and which may form pairs | levels.py |
"""
