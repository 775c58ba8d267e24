"""The exact engine: Theorem 1 on nodes or in closed form, the oracle of the other engines.

Imports go in one direction, from the bottom of this table to its top.

| file | idea |
| --- | --- |
| model.py | blocks, discrete priors and models as data |
| tree.py | the backward recursion on a tree of nodes |
| quadrature.py | nodes for many one-dimensional integrals at once |
| stages.py | a model as one-dimensional stages |
| nodes.py | nodes for every stage |
| posterior.py | what the engines return |
| solve.py | `solve_exact` |
| gaussian.py | `solve_gaussian`: linear-Gaussian blocks with a quadratic loss |
| conjugate.py | tempered conjugate updates |
| objective.py | J(q) of any q |
| paths.py | many confidences: paths, and confidences that meet KL radii |
| decision.py | multiplier preferences and event trees |
"""
