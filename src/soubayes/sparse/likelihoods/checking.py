"""Finite differences of a likelihood before it is fitted: are its derivatives those of its loss?"""

from collections.abc import Callable

import numpy as np

from soubayes.sparse.likelihoods.base import RowLikelihood, RowTerms

Array = np.ndarray

STEP = 1e-4  # of a central difference: truncation 1e-8, rounding 1e-12 of the loss
TOLERANCE = 0.02  # relative: a wrong formula is off by more, a steep loss by less
ROUNDING = 1e-10  # of the loss: what its last digits leave of a difference
KINKS = 0.1  # share of the places that may disagree: a loss may have kinks
DIFFERENCED_ROWS = 40  # read alone, from the smallest y to the largest
PREDICTORS = (-0.5, 0.1, 0.8)  # predictors, in no special position
VARIANCE = 0.3  # of the predictors, where `terms` is checked


@np.errstate(all="ignore")  # places where a loss is not finite are left out
def check_derivatives(likelihood: RowLikelihood, y: Array) -> None:
    """Raise an error that names the derivative which is not that of the loss."""
    some = np.sort(y)[np.linspace(0, len(y) - 1, min(len(y), DIFFERENCED_ROWS)).astype(int)]
    y, eta = np.tile(some, len(PREDICTORS)), np.repeat(PREDICTORS, len(some))
    name = f"{type(likelihood).__name__}.derivatives"

    def part(index: int) -> Callable[[Array], Array]:
        return lambda at: np.broadcast_to(likelihood.derivatives(at, y)[index], at.shape)

    loss = part(0)(eta)
    _compare(name, "slope", "loss", part(1)(eta), _difference(part(0), eta), loss, y)
    _compare(name, "curvature", "slope", part(2)(eta), _difference(part(1), eta), loss, y)
    if type(likelihood).terms is not RowLikelihood.terms:
        _check_terms(likelihood, eta, y)


def _check_terms(likelihood: RowLikelihood, mean: Array, y: Array) -> None:
    """The closed form of an expected loss, in the mean and in the variance."""
    method, variance = f"{type(likelihood).__name__}.terms", np.full(mean.shape, VARIANCE)

    def at(m: Array, v: Array) -> RowTerms:
        return RowTerms(*(np.broadcast_to(x, m.shape) for x in likelihood.terms(m, v, y)))

    given = at(mean, variance)
    slope = _difference(lambda m: at(m, variance).loss, mean)
    _compare(method, "score", "-loss", given.score, -slope, given.loss, y)
    bend = _difference(lambda m: -at(m, variance).score, mean)
    _compare(method, "curvature", "-score", given.curvature, bend, given.loss, y)
    widen = 2.0 * _difference(lambda v: at(mean, v).loss, variance)
    name = "2 loss in the variance"
    _compare(method, "information", name, given.information, widen, given.loss, y)


def _difference(of: Callable[[Array], Array], at: Array) -> Array:
    return (of(at + STEP) - of(at - STEP)) / (2.0 * STEP)


def _compare(
    where: str, what: str, source: str, given: Array, found: Array, loss: Array, y: Array
) -> None:
    """``found`` are differences of ``source``; kinks at a few places are allowed."""
    seen = np.isfinite(found) & np.isfinite(loss)
    bound = TOLERANCE * np.maximum(np.abs(given), np.abs(found)) + ROUNDING * np.abs(loss) + 1e-7
    off = seen & ~(np.abs(given - found) <= bound)
    if off.sum() <= KINKS * seen.sum():
        return
    worst = int(np.argmax(np.where(off, np.abs(given - found) / bound, 0.0)))
    raise ValueError(
        f"{where} gives {what} = {given[worst]:.4g} (y = {y[worst]:.4g}), but finite differences "
        f"of {source} give {found[worst]:.4g}. Correct the formula of the {what} or of the loss."
    )
