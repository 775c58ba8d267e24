"""Which support of a path "auto" reports, and what the search costs."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, gammaln

from soubayes.sparse.constants import LEAST_SPREAD, PRICE, SUPPORT_OF_FEW
from soubayes.sparse.dial import few_rows
from soubayes.sparse.least_squares.designs import LeastSquares
from soubayes.sparse.least_squares.group_evidence import group_evidence

Array = np.ndarray


def choose_support(
    design: LeastSquares,
    supports: list[Array],
    sparse: Array,
    free: Array,
    intercept: bool,
    places: float | None = None,
    groups: Array | None = None,
    price: float = PRICE,
) -> tuple[int, float]:
    """The point whose support has the least score, and the z^2 a further column would need.

    The score is minus twice the log marginal likelihood of a support S of k columns, and a price
    for having searched p columns::

        (n - k) log(pi RSS) - 2 log Gamma((n - k)/2) + log|X_S'X_S + D| - 2 sum_j log f(b_j)
            + 3/2 log C(p, k) + few rows

    RSS and b are least squares on S. f is the density of the signals: log|b_j| ~ N(m, v) with the
    mean of the support's own coefficients and their variance, or 1 if that is less. Where all
    signals are large a column at the threshold is almost surely a null; where their sizes run
    down to zero it is not. D_j = sigma^2/b_j^2 matters only where columns are collinear. Units of
    y add the same to every score. Columns with a plain prior are in every support; f is flat
    there. A b_j counts as no smaller than its standard error. The last term is `few_rows`.

    ``free`` says how much each column counts in k, and ``places`` is p: their sum, or less where
    almost equal columns are one place to search. ``groups`` number the columns that share a scale,
    -1 for a column of its own. A group is one place, and takes no degree of freedom but its
    effective ones in the last term (`group_evidence`). ``price`` is 3/2 but for `trimmed`.
    """
    known: dict[bytes, _Score] = {}
    for support in supports:
        if support.tobytes() not in known:
            rest = intercept, places, groups, price
            known[support.tobytes()] = _score(design, support, sparse, free, *rest)
    scores = [known[support.tobytes()] for support in supports]
    values = [score.value + SUPPORT_OF_FEW * few_rows(score.left) for score in scores]
    best = int(np.argmin(values))
    if not np.isfinite(values[best]):
        best = int(np.argmin([len(support) for support in supports]))
    k, p = _counts(free, supports[best], places)
    return best, _threshold(scores[best], price * np.log(max(p - k, 1) / (k + 1.0)))


def support_evidence(
    design: LeastSquares,
    support: Array,
    sparse: Array,
    free: Array,
    intercept: bool,
    groups: Array | None = None,
) -> float:
    """The log marginal likelihood of a support, less the price of the search (`choose_support`)."""
    return -0.5 * _score(design, support, sparse, free, intercept, groups=groups).value


def dense_evidence(n: float, quadratic: float, log_det: float) -> float:
    """The log marginal likelihood of ridge regression on the same scale, sigma under 1/sigma^2.

    ``quadratic`` is y'K^-1 y and ``log_det`` log|K| with K = I + X P X', n less the intercept.
    """
    return -0.5 * (n * np.log(np.pi * quadratic) - 2.0 * float(gammaln(n / 2.0)) + log_det)


def search_degrees(threshold: float, n_nulls: float, size: float = 1.0) -> float:
    """Degrees of freedom that choosing among ``n_nulls`` null columns takes from the noise.

    A null passes the threshold t with probability P(chi2_1 > t) and then explains
    E[z^2; z^2 > t] = P(chi2_3 > t) of RSS, where counting it in k allows for 1. Without this the
    noise is too small and intervals too short. A group of m columns passes where the mean of its
    z^2 exceeds t, and explains m P(chi2_(m+2) > m t).

    >>> round(search_degrees(8.0, 90), 1)
    3.7
    """
    passed = chdtrc(size + 2.0, size * threshold) - chdtrc(size, size * threshold)
    return n_nulls * size * float(passed)


class _Score(NamedTuple):
    value: float  # infinite if k leaves no degrees of freedom
    square: Array  # b^2 of the sparse columns, tau^2 of groups
    spread: float  # variance of the estimate of one column, the median
    left: float  # degrees of freedom of the noise


def _counts(free: Array, support: Array, places: float | None) -> tuple[float, float]:
    """k and p."""
    k = float(free[support].sum())
    return k, float(free.sum()) if places is None else max(places, k)


def _score(
    design: LeastSquares,
    support: Array,
    sparse: Array,
    free: Array,
    intercept: bool,
    places: float | None = None,
    groups: Array | None = None,
    price: float = PRICE,
) -> _Score:
    n, (k, p) = design.n, _counts(free, support, places)
    group = np.full(len(support), -1) if groups is None else groups[support]
    left = n - intercept - float((group < 0).sum())
    if left <= 2:
        return _Score(np.inf, np.zeros(0), 1.0, left)
    if not len(support):
        evidence = _Part(design.yy, 0.0, 0.0, np.zeros(0), float(np.median(design.norms)), 0.0)
    elif (group < 0).all():
        evidence = _alone(design.take(support), sparse[support], 1e-10 * n, left, design.yy)
    else:
        evidence = _with_groups(design.take(support), sparse[support], 1e-10 * n, left, group)
    # sigma^2 integrated out under 1/sigma^2: Gamma(m/2) (pi RSS)^(-m/2) with m = n - k
    value = (
        left * np.log(np.pi * max(evidence.rss, _TINY))
        - 2.0 * gammaln(left / 2.0)
        + evidence.log_det
    )
    # log of the number of supports of this size, binomial(p, k)
    value += (
        price * (gammaln(p + 1) - gammaln(k + 1) - gammaln(p - k + 1)) - 2.0 * evidence.log_slab
    )
    spread = max(evidence.rss / left / max(evidence.information, _TINY), _TINY)
    return _Score(float(value), evidence.square, spread, left - evidence.used)


class _Part(NamedTuple):
    """What the columns of a support say in its score."""

    rss: float
    log_det: float  # of X'X + D, less that of the priors of groups
    log_slab: float
    square: Array  # b^2 of the sparse columns, tau^2 of groups
    information: float  # about one column, the median
    used: float  # degrees of freedom of groups


def _alone(part: LeastSquares, kept: Array, own: float, left: float, yy: float) -> _Part:
    """Of columns that are alone."""
    w = np.full(len(kept), own)
    fit = part.ridge(w)  # as good as least squares, and collinear columns are allowed
    rss = max(fit.rss, 1e-12 * yy, _TINY)
    # a signal is not taken to be smaller than the error of its estimate
    square = np.maximum(np.maximum(fit.mean**2, fit.variance * rss / left), _TINY)[kept]
    # the prior precision of the Laplace approximation, 1/b^2 in units of the noise
    w[kept] = rss / left / square
    information = float(np.median(1.0 / fit.variance))
    return _Part(rss, part.log_det(w), _log_slab(square), square, information, 0.0)


def _with_groups(part: LeastSquares, kept: Array, own: float, left: float, group: Array) -> _Part:
    """Of columns some of which share a scale; one slab has the sizes of columns and groups."""
    kept = kept & (group < 0)
    evidence = group_evidence(part, group, kept, own, left, LEAST_SPREAD)
    square, alone = np.exp(2.0 * evidence.log_size), int(kept.sum())
    every, w = evidence.log_size, evidence.w.copy()
    w[kept] = evidence.rss / left / square[:alone]
    # log f of |b| ~ log-normal, with the variance of all sizes about their mean
    off = float(((every[:alone] - every.mean()) ** 2).sum())
    v = max(float(every.var()), LEAST_SPREAD)
    log_slab = evidence.log_integral - 0.5 * off / v - float(every[:alone].sum())
    log_slab -= alone * (math.log(2.0) + 0.5 * math.log(2.0 * math.pi * v))
    log_det = part.log_det(w) - float(np.log(w[group >= 0]).sum())
    information = float(np.median(1.0 / evidence.variance))
    return _Part(evidence.rss, log_det, log_slab, square, information, evidence.used)


def _log_slab(square: Array) -> float:
    """sum_j log f(b_j) for log|b_j| ~ N(m, v) and either sign, from b_j^2."""
    if not len(square):
        return 0.0
    size = 0.5 * np.log(square)
    total = float(size.sum())
    return _log_slab_of(len(size), total, float(((size - total / len(size)) ** 2).sum()))


def _log_slab_of(k: int, total: float, squares: float) -> float:
    """`_log_slab` from the sum of log|b_j| and the sum of squares about their mean."""
    if not k:
        return 0.0
    # the slab's own variance at its maximum likelihood
    v = max(squares / k, LEAST_SPREAD)
    return -(
        total + k * math.log(2.0) + 0.5 * k * math.log(2.0 * math.pi * v) + squares / (2.0 * v)
    )


def _threshold(score: _Score, step: float) -> float:
    """The z^2 of a further column at which the score would not change.

    z^2 = step - log(2 pi e) - 2 log(f of all with it / f of all before) with e the variance of
    its estimate and e z^2 its square, for a column orthogonal to the others; ``step`` is the
    rise of the price.
    """
    size = 0.5 * np.log(score.square)
    k, mean, spread = len(size), float(size.mean()) if len(size) else 0.0, 0.0
    spread = float(((size - mean) ** 2).sum())
    # a fixed point in t, damped by half: the slab with the new column depends on it
    before, t, base = _log_slab_of(k, k * mean, spread), 4.0, math.log(score.spread)
    for _ in range(40):
        off = 0.5 * (math.log(t) + base) - mean  # of the further column
        wider = spread + off * off * k / (k + 1.0)
        more = _log_slab_of(k + 1, (k + 1) * mean + off, wider) - before
        goal = step - math.log(2.0 * math.pi) - base - 2.0 * more
        t = 0.5 * (t + max(goal, 1.0))
    return t


_TINY = 1e-300  # in place of 0, whose logarithm is infinite
