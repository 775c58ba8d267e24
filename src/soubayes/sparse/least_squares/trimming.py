"""A support with groups, without the places that do not pay.

Along the path a group leaves where the mean z^2 of its columns is below gamma_b, a column of its
own where its z^2 is. So a column of noise may stay as long as a group of eight of which one column
matters. From the chosen point on places are taken out one by one while the score falls.
"""

from collections.abc import Callable

import numpy as np

from soubayes.sparse.least_squares.designs import LeastSquares
from soubayes.sparse.least_squares.group_evidence import GroupPosterior, at_least
from soubayes.sparse.least_squares.unit_gram import UnitGram

Array = np.ndarray

TRIED = 2  # of the weakest places, at every step

Choose = Callable[[list[Array]], tuple[int, float]]


def trimmed(design: LeastSquares, support: Array, w: Array, places: Array, choose: Choose) -> Array:
    """The support without places whose absence lowers the score.

    ``w`` are precisions of all columns, and ``places`` number the places, -1 of columns that stay.
    ``choose`` finds the support of least score.
    """
    while True:
        weak = _weakest(design, support, w, places)
        trials = [support[places[support] != place] for place in weak]
        best = choose([support, *trials])[0] if trials else 0
        if best == 0:
            return support
        support = trials[best - 1]


def _weakest(design: LeastSquares, support: Array, w: Array, places: Array) -> list[int]:
    """The places of which the least would be lost: |y - Xb|^2 + b'Wb rises by b'(A^-1)_gg^-1 b."""
    numbers = places[support]
    several = np.unique(numbers[numbers >= 0])
    if not len(several):
        return []
    at = GroupPosterior.of(design.take(support), w[support], design.n)
    lost = []
    for place in several:
        columns = np.flatnonzero(numbers == place)
        effective = float(np.sum(1.0 - at.w[columns] * at.variance[columns]))
        lost.append(_rise(at, columns) / at.noise - 2.0 * effective)
    return [int(several[k]) for k in np.argsort(lost, kind="stable")[:TRIED]]


def _rise(at: GroupPosterior, columns: Array) -> float:
    """By how much |y - Xb|^2 + b'Wb rises without these columns."""
    part = at.part
    if isinstance(part, UnitGram) and part.has_units(columns):
        rest = np.setdiff1d(np.arange(len(at.w)), columns)
        if not len(rest):
            return part.yy - at.rss
        without = part.take(rest)
        return at_least(without, without.ridge(at.w[rest]).mean) - at.rss
    b = at.mean[columns]
    return float(b @ np.linalg.solve(at.block(columns), b))
