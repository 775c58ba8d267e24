"""Normal noise: X enters through its cross-products alone.

| to change | look in |
| --- | --- |
| what the shell asks for: candidates, held-out rows | family.py; of moments fold_moments.py |
| designs in standardised units, and fits in the user's | fitting.py |
| X'X, wide and diagonal designs; with many units | designs.py; unit_gram.py |
| the path, and the step at one point of it | path.py, descent.py |
| which point is reported | criterion.py, group_evidence.py, trimming.py |
| a candidate between dense and sparse | dial.py |
| J, and q on the way | state.py |
| Algorithm 1 of the paper | coordinate.py |
| Student's t noise | student_noise.py |
| scales of units, integrated over | integrated.py |
"""
