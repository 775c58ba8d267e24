"""Offsets: a likelihood whose predictors are shifted by known amounts.

Solvers slice y by rows and hand it to the likelihood, and do nothing else with it. So an offset
stands beside y, in a second column that only `Shifted` reads. Another shift, the same for all rows,
puts the prior of the intercept about the predictor of the mean of y: with a logarithmic link the
fit then does not depend on the units of y. It is taken off again where a fit is reported.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array

from soubayes.sparse.likelihoods.base import Array, RowLikelihood, RowTerms, offset_apart


class Shifted(RowLikelihood):
    """``base`` with predictors eta + ``shift`` + the offset of the row.

    >>> from soubayes.sparse.likelihoods.poisson import Poisson
    >>> y = np.array([[3.0, np.log(2.0)]])  # 3 events in an exposure of 2
    >>> Shifted(Poisson(), 0.5).terms(np.zeros(1), np.zeros(1), y).score.round(3)  # 3 - 2 exp(.5)
    array([-0.297])
    """

    def __init__(self, base: RowLikelihood, shift: float, start_curvature: float = 1.0) -> None:
        self.base, self.shift, self.start_curvature = base, shift, start_curvature
        self.majorises, self.intercept = base.majorises, base.intercept
        self.nuisance, self.confidence = base.nuisance, base.confidence

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """Those of ``base`` at the shifted predictors."""
        y, offset = self._apart(y)
        return self.base.derivatives(eta + offset, y)

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """Those of ``base`` at the shifted predictors."""
        y, offset = self._apart(y)
        return self.base.terms(mean + offset, variance, y)

    def predict(self, mean: Array, variance: Array) -> Array:
        """That of ``base``; offsets of new rows are added by the caller."""
        return self.base.predict(mean, variance)

    @property
    def plain(self) -> RowLikelihood:
        return self.base

    @property
    def residual_variance(self) -> float:
        return self.base.residual_variance

    @property
    def kl(self) -> float:
        return self.base.kl

    def statistics(self, mean: Array, variance: Array, y: Array) -> tuple[Array, ...]:
        y, offset = self._apart(y)
        return self.base.statistics(mean + offset, variance, y)

    def updated(self, totals: tuple[float, ...]) -> Self:
        return type(self)(self.base.updated(totals), self.shift, self.start_curvature)

    def _apart(self, y: Array) -> tuple[Array, Array | float]:
        y, offset = offset_apart(y)
        return y, offset + self.shift


def beside(y: Array, offset: Array | None) -> Array:
    """The targets with their offsets in a second column."""
    return y if offset is None else np.column_stack([y, offset])


def shifted(base: RowLikelihood, y: Array, weight: Array, intercept: bool) -> RowLikelihood:
    """``base`` about its centre in these rows (y as `beside` makes it)."""
    total = float(weight.sum())
    means = weight @ (y if y.ndim == 2 else y[:, None]) / total
    return about(base, total, means, intercept)


def about(base: RowLikelihood, rows: float, means: Array, intercept: bool) -> RowLikelihood:
    """The same from the means of the columns of y: of the targets and, if any, the offsets."""
    offset = float(means[1]) if len(means) > 1 else 0.0
    shift = base.centre(float(means[0]), rows) - offset if intercept and base.intercept else 0.0
    if shift == 0.0 and len(means) == 1:
        return base
    at = np.array([shift + offset]), means[:1]
    with np.errstate(over="ignore"):
        typical = float(base.derivatives(*at)[2][0])
    return Shifted(base, shift, float(np.clip(np.nan_to_num(typical), 1e-3, 1e9)))


def row_offsets(offset: ArrayLike | None, rows: int, name: str = "offset") -> Array | None:
    """One finite number for each row; a single number is that of every row.

    >>> row_offsets(0.5, 2)
    array([0.5, 0.5])
    """
    if offset is None:
        return None
    numbers: Any = np.asarray(offset)
    if numbers.ndim == 0:
        numbers = np.full(rows, numbers)
    try:
        numbers = numbers.astype(float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} has entries such as {str(numbers.flat[0])!r}: give one number for each row."
        ) from None
    numbers = check_array(numbers, ensure_2d=False, dtype=np.float64, input_name=name)
    if numbers.shape != (rows,):
        raise ValueError(
            f"{name} has the shape {numbers.shape}, but there are {rows} rows: give one number for "
            "each row."
        )
    return numbers


def with_exposure(
    offset: ArrayLike | None, exposure: ArrayLike | None, rows: int
) -> ArrayLike | None:
    """The offset plus the logarithm of the exposure.

    >>> with_exposure(None, [1.0, np.e], 2)
    array([0., 1.])
    """
    if exposure is None:
        return offset
    exposures = row_offsets(exposure, rows, "exposure")
    assert exposures is not None
    if (exposures <= 0.0).any():
        raise ValueError(
            f"exposure has entries of 0 or less, the least {exposures.min():.3g}, but a row needs "
            "a positive exposure: leave out the rows that were not observed."
        )
    log = np.log(exposures)
    return log if offset is None else log + row_offsets(offset, rows)
