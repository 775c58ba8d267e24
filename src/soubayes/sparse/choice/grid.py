"""Where a path in the confidence of the coefficients stops."""

import numpy as np
from scipy import stats

Array = np.ndarray

N_POINTS = 22


def confidence_grid(p: int, confidence: float | None, n: float = np.inf) -> Array:
    """Where the path stops: from 1 to max(2, 3 log p), or to the number asked for.

    With p >= n the minimiser at confidence 1 interpolates, for a third of the null columns pass;
    the path then begins where those that pass leave half of the observations to the noise, and
    is continued downwards from there while it keeps fewer than n/3 columns.

    >>> confidence_grid(50, 1.5).round(2)
    array([1.  , 1.11, 1.22, 1.36, 1.5 ])
    """
    end, begin = max(2.0, 3.0 * np.log(max(p, 1))), 1.0
    step = np.log(end) / (N_POINTS - 1)
    if p >= n:
        begin = float(stats.chi2.isf(0.5 * n / p, 3))
        end = max(end, 2.0 * begin)
    end = end if confidence is None else confidence
    n_points = int(np.ceil(abs(np.log(end / begin)) / step - 1e-9)) + 1
    return np.geomspace(begin, end, n_points) if n_points > 1 else np.array([end])
