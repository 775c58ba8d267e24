"""The posterior over supports of any likelihood of rows, from quadratic forms of its loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from soubayes.sparse.blocks import GroupLabels
from soubayes.sparse.constants import WIDEST_SLAB
from soubayes.sparse.designs.columns import StandardColumns, standard_columns
from soubayes.sparse.designs.standardise import ColumnUnits
from soubayes.sparse.inclusion.field import ColumnQuadratic
from soubayes.sparse.inclusion.grouped import GroupProduct, fit_groups
from soubayes.sparse.inclusion.product import MOST_SWEEPS, Product, fit_product
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.likelihoods.base import RowLikelihood, times_rows
from soubayes.sparse.likelihoods.softmax import class_basis
from soubayes.sparse.rows.passes import RowProblem

Array = np.ndarray

QUADRATIC_ROUNDS = 30  # of quadratic forms at most
SETTLED_PREDICTOR = 1e-3  # change of a linear predictor at which the quadratic form is found
ROUGH_CHANGE = 0.1  # above it the next form is another one, so a product needs only a few sweeps
ROUGH_SWEEPS = 8  # these few
# products with effects for half of the rows, as an outlier asks for, or that all sweeps left
# unsettled, after which no further form is tried
UNSETTLED = 3
CERTAIN_CLASS = 1e-9  # of a row in a coordinate: a class that is certain


class SupportRows(NamedTuple):
    """X, dense or scipy-sparse, its units, the numbers y and the weights of the rows."""

    X: Any
    units: ColumnUnits
    y: Array
    weight: Array
    intercept: bool


def row_supports(
    likelihood: RowLikelihood,
    rows: SupportRows,
    coef: Array,
    alpha: float,
    always: Array,
    x_scale: Array,
    groups: GroupLabels | None = None,
) -> SupportPosterior:
    """The product for the quadratic form of the loss at the mean predictor of that product.

    ``coef`` (standardised) and ``alpha`` (at the mean of X) are where to start.
    """
    columns = standard_columns(rows.X, rows.units.mean, rows.units.divisor)

    def at(eta: Array) -> tuple[ColumnQuadratic, Callable[[Array], Array]]:
        data, centre, middle = _quadratic(likelihood, rows, columns, eta)
        return data, lambda mean: middle + columns.times(mean) - float(centre @ mean)

    begin = np.flatnonzero(coef), coef[coef != 0.0] ** 2
    product = settle(at, alpha + columns.times(coef), begin, always, groups=groups)
    return SupportPosterior.of(product, 1.0 / x_scale, x_scale)


def settle(
    at: Callable[[Array], tuple[Any, Callable[[Array], Array]]],
    place: Array,
    start: tuple[Array, Array],
    always: Array,
    predictor: Callable[[Array], Array] = lambda move: move,
    groups: GroupLabels | None = None,
) -> Product | GroupProduct:
    """Products and quadratic forms in turn, until the ``predictor`` stays.

    ``at`` gives the quadratic form about a place, and the place of other mean coefficients.
    """
    last, step, change, unsettled = np.zeros_like(place), 1.0, np.inf, 0
    for _ in range(QUADRATIC_ROUNDS):
        data, place_of = at(place)
        product: Product | GroupProduct
        rough = change > ROUGH_CHANGE or unsettled >= UNSETTLED
        sweeps = ROUGH_SWEEPS if rough else MOST_SWEEPS
        if groups is None or groups.single:
            product = fit_product(data, start, always=always, widest=WIDEST_SLAB, sweeps=sweeps)
        else:
            product = fit_groups(data, groups.number, start, always=always, widest=WIDEST_SLAB)
        move = np.clip(place_of(averaged(product)) - place, -5.0, 5.0)
        change = float(np.abs(predictor(move)).max())
        if change < SETTLED_PREDICTOR and (product.converged or sweeps == MOST_SWEEPS):
            break
        if unsettled >= UNSETTLED:  # the product of a few sweeps, before effects multiply
            break
        crowded = isinstance(product, Product) and 2 * len(product.effects) > len(place)
        unsettled += (crowded or sweeps == MOST_SWEEPS) and not product.converged
        if move @ last < 0.0:  # it went too far: without shorter steps it can go to and fro
            step = max(step / 2.0, 0.1)
        place, last = place + step * move, move
        start = _start_again(product)
    return product._replace(converged=product.converged and change < SETTLED_PREDICTOR)


def averaged(found: Product | GroupProduct) -> Array:
    """The standardised coefficients averaged over supports."""
    if isinstance(found, GroupProduct):
        return found.average
    total = np.zeros(len(found.faint.alpha))
    for effect in (*found.effects, found.faint):
        total += effect.alpha * effect.columns.evidence.q * effect.columns.spread
    return total


def _quadratic(
    likelihood: RowLikelihood, rows: SupportRows, columns: StandardColumns, eta: Array
) -> tuple[ColumnQuadratic, Array, float]:
    """Weighted least squares with the loss's slope and curvature at eta.

    An intercept is taken out: columns and response are centred at their weighted means, which
    are returned too, the columns' in standardised units.
    """
    _, slope, curvature = likelihood.derivatives(eta, rows.y)
    # a row of no curvature still has a working response
    information = np.maximum(rows.weight * curvature, 1e-12 * rows.weight)
    # the working response of iteratively reweighted least squares
    response = eta - rows.weight * slope / information
    total = float(information.sum())
    share = information / total
    centre, middle = np.zeros(columns.shape[1]), 0.0
    if rows.intercept:
        # the best intercept is the weighted mean of the response less that of the columns
        centre, middle = columns.left(share), float(share @ response)
    root = np.sqrt(information)
    if columns.mean is None or columns.scale is None:
        weighted = StandardColumns(
            (columns.raw - centre) * root[:, None], None, None, np.ones(len(root))
        )
    else:
        shift = np.where(np.isfinite(columns.scale), columns.scale, 0.0) * centre
        weighted = columns._replace(mean=columns.mean + shift, root=root)
    data = ColumnQuadratic(weighted, root * (response - middle), total)
    return data, centre, middle


def _start_again(found: Product | GroupProduct) -> tuple[Array, Array]:
    """The likeliest column of every effect, and its variance."""
    if isinstance(found, GroupProduct):
        return found.start
    tops = np.array([int(np.argmax(effect.alpha)) for effect in found.effects], int)
    if not len(tops):
        return tops, np.zeros(0)
    tops, first = np.unique(tops, return_index=True)
    inside = np.stack(
        [found.effects[i].columns.inside[j] for i, j in zip(first, tops, strict=True)]
    )
    return tops, inside @ found.slab.variance


def class_supports(
    problem: RowProblem,
    X: Array,
    start: tuple[Array, Array],
    always: Array,
    scale: Array,
    groups: GroupLabels | None,
    intercept: bool,
) -> list[SupportPosterior]:
    """What is known about every class; which columns carry an effect is the same for all.

    The product is over groups of coordinates, for the quadratic form of the loss at its own mean
    predictors. ``start`` are predictors (n, d) and coefficients (p, d).
    """
    eta, coef = start
    d = eta.shape[1]

    def at(place: Array) -> tuple[Any, Callable[[Array], Array]]:
        return class_quadratic(problem, X, place.reshape(-1, d), intercept)

    number = np.arange(len(coef)) if groups is None else groups.number
    names = [str(g) for g in range(int(number.max()) + 1)]
    flat = coef.ravel()
    begin = np.flatnonzero(flat), flat[flat != 0.0] ** 2
    kept, labels = np.repeat(always, d), GroupLabels(np.repeat(number, d), names)
    product = settle(at, eta.ravel(), begin, kept, groups=labels)
    assert isinstance(product, GroupProduct)
    return [
        SupportPosterior.of(product.turned(contrast), 1.0 / scale, scale)
        for contrast in class_basis(d + 1)
    ]


def class_quadratic(
    problem: RowProblem, X: Array, eta: Array, intercept: bool
) -> tuple[ColumnQuadratic, Callable[[Array], Array]]:
    """The loss to second order about predictors (n, d), and where other coefficients place them.

    With B = LL' the information of a row, its predictors count as d rows L'u of noise 1: least
    squares of the working response L'eta + L^-1 score on the columns x_j L'. The intercepts are
    projected out.
    """
    d, p = eta.shape[1], X.shape[1]
    terms = problem.likelihood.terms(eta, np.zeros_like(eta), problem.y)
    B = times_rows(problem.weight, terms.curvature + CERTAIN_CLASS * np.eye(d))
    root = np.linalg.cholesky(B)  # (n, d, d)
    score = (problem.weight[:, None] * terms.score)[:, :, None]
    turned = root.transpose(0, 2, 1)
    response = (turned @ eta[:, :, None] + np.linalg.solve(root, score)).ravel()
    columns = np.einsum("nj,nba->nbja", X, turned, optimize=True).reshape(-1, p * d)
    ones = turned.reshape(-1, d)
    centred, y = columns, response
    if intercept:
        basis = np.linalg.qr(ones)[0]
        centred, y = columns - basis @ (basis.T @ columns), response - basis @ (basis.T @ response)

    def place(mean: Array) -> Array:
        """The predictors of these coefficients, with the intercepts that are best there."""
        best = np.zeros(d)
        if intercept:
            best = np.linalg.lstsq(ones, response - columns @ mean, rcond=None)[0]
        return (X @ mean.reshape(p, d) + best).ravel()

    weighted = StandardColumns(centred, None, None, np.ones(len(y)))
    return ColumnQuadratic(weighted, y, float(np.einsum("naa->", B)) / d), place
