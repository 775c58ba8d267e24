"""ColumnEstimates of all columns that no prior pulls to 0: least squares, debiased ridge, one step.

With more rows than columns they are least squares. Otherwise column j is estimated by generalised
least squares with the other coefficients random, b_k ~ N(0, d sigma^2) for a standardised column:

    b_j = x_j'K^-1 y / x_j'K^-1 x_j,  var b_j = sigma^2 / x_j'K^-1 x_j,  K = I + d sum_k x_k x_k'

with k over the other columns. The direction K^-1 x_j is the residual of a nodewise ridge regression
(Buhlmann 2013), and the variance counts the bias that the other columns leave. A likelihood of rows
is a quadratic one about a fitted predictor, so its estimates are one Newton step from there.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from soubayes.sparse.constants import LEAN, MOST_WORK
from soubayes.sparse.designs.columns import standard_columns, weighted_moments
from soubayes.sparse.designs.moments import Moments, moments
from soubayes.sparse.designs.standardise import in_range

Array = np.ndarray

RANK = 1e-12  # eigenvalues of a correlation matrix below this share of its size are rounding
UNDETERMINED = 1e-8  # squared length in the null space from which a column has no estimate
CONSTANT = 1e-10  # standard deviation beside the size of the values: below it is rounding
EXPLAINED = (np.arange(200) + 0.5) / 200.0  # share of y's variance that the columns explain

FLATTEST_ROW = 1e-10  # curvature of a row beside the largest: less cannot be divided by

EXACT_KIND = "frequentist: exact for normal noise"
LARGE_SAMPLE_KIND = "frequentist: for large samples"
EMPIRICAL_KIND = "frequentist: coverage is empirical (p >= n)"


@dataclass(frozen=True)
class ColumnEstimates:
    """Estimates of all columns, normal about their coefficients.

    ``correlation`` is that of the estimates; None: they count as independent. ``degrees`` are those
    of the noise in ``se``; infinite: it is known. Columns that are not estimable have infinite
    ``se``. ``lean`` multiplies the log odds by which the regions lean to 0, which costs coverage
    where the estimates are only nearly unbiased.
    """

    kind: str  # for the header of a table
    value: Array
    se: Array
    degrees: float = np.inf
    correlation: Array | None = None
    lean: float = 1.0


def least_squares(
    given: Moments, intercept: bool, noise: float | None = None, kind: str = EXACT_KIND
) -> list[ColumnEstimates]:
    """Of every target; ``noise`` is the variance of a row of weight 1, None: it is estimated.

    A column that is constant, or a sum of others, has no estimate and an infinite ``se``. Where no
    degree of freedom is left to the noise the estimates are those of `debiased_ridge`.
    """
    use = given if intercept else given.about_zero()
    p, length = len(use.xx), np.sqrt(np.diag(use.xx))
    live = np.flatnonzero(length > CONSTANT * np.sqrt(np.diag(given.about_zero().xx)))
    length = length[live]
    gram = use.xx[np.ix_(live, live)] / np.outer(length, length)
    values, vectors = np.linalg.eigh(gram)
    inside = values > RANK * len(values)
    values, vectors, outside = values[inside], vectors[:, inside], vectors[:, ~inside]
    scores = (vectors / np.sqrt(values)).T @ (
        use.xy[live] / length[:, None]
    )  # of y, (rank, targets)
    rss = np.maximum(use.yy - np.sum(scores**2, axis=0), 0.0)
    degrees = use.n - len(values) - intercept
    if noise is None and degrees < 1.0:
        scale = np.sqrt(use.n)
        turned = (vectors * np.sqrt(values)).T * scale

        def project(T: Array, v: Array) -> tuple[Array, Array]:
            X = T[:, None] * turned
            return np.sum(X**2, axis=0), v @ X

        estimates = [
            _ridge(values * use.n, scores[:, t], rss[t], use.n - intercept, project, None)
            for t in range(len(rss))
        ]
        result = []
        for one in estimates:
            value, se = np.full(p, np.nan), np.full(p, np.inf)
            value[live], se[live] = one.value * scale / length, one.se * scale / length
            result.append(replace(one, value=value, se=se))
        return result
    half = vectors / np.sqrt(values)
    V = half @ half.T
    estimable = np.sum(outside**2, axis=1) < UNDETERMINED
    kept, root = live[estimable], np.sqrt(np.diag(V)[estimable])
    R = np.eye(p)
    R[np.ix_(kept, kept)] = V[np.ix_(estimable, estimable)] / np.outer(root, root)
    R[np.diag_indices(p)] = 1.0
    variance = rss / degrees if noise is None else np.full(len(rss), noise)
    result = []
    for t, v in enumerate(variance):
        value, se = np.full(p, np.nan), np.full(p, np.inf)
        value[kept] = (half @ scores[:, t])[estimable] / length[estimable]
        se[kept] = root * np.sqrt(v) / length[estimable]
        result.append(ColumnEstimates(kind, value, se, degrees if noise is None else np.inf, R))
    return result


def debiased_ridge(
    X: Any,
    y: Array,
    weight: Array,
    intercept: bool,
    noise: float | None = None,
    degrees: float | None = None,
) -> ColumnEstimates:
    """From rows, by one eigendecomposition of X X'; ``degrees`` of freedom of y, None: as weighed.

    A constant column has no estimate.
    """
    X, x_unit = in_range(X)
    Y, y_unit = in_range(y[:, None])
    share = weight / weight.sum()
    mean, square = weighted_moments(X, share, intercept)
    size = weighted_moments(X, share, False)[1]
    constant = square <= CONSTANT**2 * size
    scale = np.where(constant, np.inf, np.sqrt(square))
    root = np.sqrt(weight)
    columns = standard_columns(X, mean, scale, root)
    centred = (Y[:, 0] - share @ Y[:, 0] * intercept) * root
    values, vectors = np.linalg.eigh(columns.gram(np.ones(len(scale))))

    def project(T: Array, v: Array) -> tuple[Array, Array]:
        return columns.projected(T[:, None] * vectors.T, v)

    degrees = float(weight.sum()) - intercept if degrees is None else degrees
    known = np.maximum(values, 0.0), centred @ vectors, 0.0, degrees
    ridge = _ridge(*known, project, noise)
    unit = np.where(constant, 1.0, scale) * x_unit / float(np.asarray(y_unit).ravel()[0])
    return replace(ridge, value=ridge.value / unit, se=ridge.se / unit)


def _ridge(
    values: Array,
    scores: Array,
    rest: float,
    degrees: float,
    project: Callable[[Array, Array], tuple[Array, Array]],
    noise: float | None,
) -> ColumnEstimates:
    """From the eigenvalues of X X' and y along its eigenvectors; ``rest`` of |y|^2 is elsewhere.

    ``project`` gives squared lengths of the columns, and products with v, of T times X along the
    eigenvectors.
    """
    mean = max(float(values.sum()) / degrees, 1e-300)  # no column varies: there is nothing to ask
    d = _spread(values, scores, rest, degrees, noise) / mean
    root = 1.0 / np.sqrt(1.0 + d * values)
    # sigma^2 and K^-1 with every column in, then without column j (Sherman and Morrison)
    variance = (np.sum((root * scores) ** 2) + rest) / degrees if noise is None else noise
    s, q = project(root, root * scores)
    s = np.maximum(s, 0.0)
    left = np.maximum(1.0 - d * s, 1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        value, se = q / s, np.sqrt(variance * left / s)
    flat = s <= 1e-9 * mean * degrees / max(len(s), 1)
    value, se = np.where(flat, np.nan, value), np.where(flat, np.inf, se)
    degrees = degrees if noise is None else np.inf
    return ColumnEstimates(EMPIRICAL_KIND, value, se, degrees, None, LEAN)


def _spread(
    values: Array, scores: Array, rest: float, degrees: float, noise: float | None
) -> float:
    """d times the mean eigenvalue, from the posterior mean of the explained share of variance.

    The share has a uniform prior, and the likelihood is restricted (the mean is integrated out).
    """
    ratio = EXPLAINED / (1.0 - EXPLAINED)
    spread = 1.0 + np.multiply.outer(ratio, values * degrees / max(values.sum(), 1e-300))
    square = np.sum(scores**2 / spread, axis=1) + rest
    fit = -0.5 * np.log(spread).sum(axis=1)
    if noise is None:
        fit -= 0.5 * degrees * np.log(np.maximum(square, 1e-300))
    else:
        fit -= 0.5 * square / noise
    weight = np.exp(fit - fit.max())
    share = float(weight @ EXPLAINED / weight.sum())
    return share / (1.0 - share)


def one_step(
    X: Any, eta: Array, slope: Array, curvature: Array, weight: Array, intercept: bool, noise: float
) -> ColumnEstimates | None:
    """Of a loss of rows with these derivatives at the predictors eta; ``noise`` is its dispersion.

    None where the loss of a row is not convex, or where the work would be out of proportion.
    """
    (n, p), largest = X.shape, float(np.max(curvature, initial=0.0))
    if not (curvature >= 0.0).all() or not 0.0 < largest < np.inf or n * p * min(n, p) > MOST_WORK:
        return None
    curvature = np.maximum(curvature, FLATTEST_ROW * largest)
    working, weight = eta - slope / curvature, weight * curvature
    if n > p + 1:
        given = moments(X, working[:, None], weight)
        step = least_squares(given, intercept, noise, LARGE_SAMPLE_KIND)[0]
        return replace(step, correlation=None)  # p x p, and nothing is exact here
    return debiased_ridge(X, working, weight, intercept, noise, float(n - intercept))
