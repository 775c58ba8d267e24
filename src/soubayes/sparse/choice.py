"""Where the path goes, which of its points "auto" reports, and what the search costs."""

from typing import NamedTuple

import numpy as np
from scipy import stats

from soubayes.sparse.designs import Design

Array = np.ndarray

N_POINTS = 22


def confidence_grid(p: int, confidence: float | None, n: float = np.inf) -> Array:
    """Where the path stops: from 1 to max(2, 3 log p), or to the number asked for.

    With p > n the minimiser at confidence 1 interpolates, for a third of the null columns pass;
    the path then begins where those that pass leave half of the observations to the noise, and
    is continued downwards from there while it keeps fewer than n/3 columns.

    >>> confidence_grid(50, 1.5).round(2)
    array([1.  , 1.11, 1.22, 1.36, 1.5 ])
    """
    end, begin = max(2.0, 3.0 * np.log(max(p, 1))), 1.0
    step = np.log(end) / (N_POINTS - 1)
    if p > n:
        begin = float(stats.chi2.isf(0.5 * n / p, 3))
        end = max(end, 2.0 * begin)
    end = end if confidence is None else confidence
    n_points = int(np.ceil(abs(np.log(end / begin)) / step - 1e-9)) + 1
    return np.geomspace(begin, end, n_points) if n_points > 1 else np.array([end])


def choose(
    design: Design, supports: list[Array], free: Array, intercept: bool
) -> tuple[int, float]:
    """The point of least n log(RSS/n) + n (n + k)/(n - k - 2) + price k, and the price.

    RSS is that of least squares on the support and k its size: the corrected Akaike risk plus a
    price for having searched p columns for each one kept. The price is 3/2 log(p/e) to begin
    with, and then 3/2 log(p/e) + log(z^2) - 4 with z^2 the lower quartile of the squared
    t-statistics of the columns which that keeps. It comes from the odds of a two-group model,
    where a column at the threshold is a signal the more rarely the larger signals are:
    z^2 > 2 log(nulls/signals) + log(1 + variance of the signals' z).
    """
    fits = [_least_squares(design, support, free, intercept) for support in supports]
    start = 1.5 * max(np.log(max(int(free.sum()), 1)) - 1.0, 0.0)

    def best(price: float) -> int:
        scores = [fit.risk + price * fit.k for fit in fits]
        return int(np.argmin(scores)) if np.isfinite(scores).any() else len(scores) - 1

    quartile = fits[best(start)].quartile
    price = max(start + np.clip(np.log(quartile), 0.0, 12.0) - 4.0, 0.0)
    return best(price), float(price)


class _LeastSquares(NamedTuple):
    k: int  # columns, with the intercept
    risk: float  # corrected Akaike, infinite if k leaves no degrees of freedom
    quartile: float  # lower quartile of z^2, e^4 (a price of start) if there is no column


def _least_squares(design: Design, support: Array, free: Array, intercept: bool) -> _LeastSquares:
    n, k = design.n, len(support) + int(intercept)
    if n - k - 2 <= 0:
        return _LeastSquares(k, np.inf, np.exp(4.0))
    if not len(support):
        return _LeastSquares(k, _risk(n, k, design.yy, design.yy), np.exp(4.0))
    part = design.take(support)
    fit = part.ridge(1e-10 * n * np.ones(len(support)))  # collinear columns are allowed
    rss = max(fit.rss, 1e-12 * design.yy)
    z2 = fit.mean**2 / (fit.variance * max(rss, 1e-300) / (n - k))
    kept = z2[free[support]]
    quartile = float(np.quantile(kept, 0.25)) if len(kept) else np.exp(4.0)
    return _LeastSquares(k, _risk(n, k, rss, design.yy), max(quartile, 1.0))


def _risk(n: float, k: int, rss: float, yy: float) -> float:
    return float(n * np.log(max(rss, 1e-12 * yy, 1e-300) / n) + n * (n + k) / (n - k - 2))


def search_degrees(n: float, k: int, price: float, n_nulls: int) -> float:
    """Degrees of freedom that choosing among ``n_nulls`` null columns takes from the noise.

    `choose` keeps a column whose z^2 exceeds about t, the slope of its score in k. A null passes
    with probability P(chi2_1 > t) and then explains E[z^2; z^2 > t] = P(chi2_3 > t) of RSS, where
    counting it in k allows for 1. Without this the noise is too small and intervals too short.

    >>> round(search_degrees(55, 20, 4.4, 30), 1)
    2.6
    """
    left = n - k - 2.0
    if left <= 0.0:
        return 0.0
    t = (price + n * (2.0 * n - 2.0) / left**2) * (n - k) / n
    return n_nulls * float(stats.chi2.sf(t, 3) - stats.chi2.sf(t, 1))
