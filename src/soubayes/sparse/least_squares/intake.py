"""Standardised designs of linear regression: from rows in memory, or from their moments."""

from typing import Any, NamedTuple

import numpy as np

from soubayes.sparse.designs.columns import standard_columns, weighted_moments
from soubayes.sparse.designs.moments import FoldedMoments, Moments, folded_moments
from soubayes.sparse.designs.standardise import check_squares, column_scales, in_range
from soubayes.sparse.least_squares.designs import Gram, LeastSquares, Wide
from soubayes.sparse.least_squares.student import RowUnits, StudentNoise

Array = np.ndarray


class TargetUnits(NamedTuple):
    """Where the standardised units came from."""

    x_mean: Array
    x_scale: Array
    y_mean: Array  # one entry for each target
    y_scale: Array
    plain: bool = True  # whether no unit had to be taken out before squaring
    students: tuple[StudentNoise, ...] = ()  # one for each target; empty: the noise is normal

    def of(self, t: int) -> RowUnits:
        """Of one target."""
        return RowUnits(self.x_mean, self.x_scale, float(self.y_mean[t]), float(self.y_scale[t]))


class LinearIntake(NamedTuple):
    """What linear regression is fitted to: one standardised design for each target."""

    designs: list[LeastSquares]
    units: TargetUnits
    moments: FoldedMoments | None = None  # None: fewer rows than columns

    def with_noise(self, students: tuple[StudentNoise, ...]) -> "LinearIntake":
        """The same designs, of pseudo-observations for this noise."""
        return self._replace(units=self.units._replace(students=students))


def rows_intake(
    X: Any, Y: Array, weight: Array | None, intercept: bool, folds: int = 1, square: bool = False
) -> LinearIntake:
    """From rows in memory.

    ``square``: cross-products also with up to twice as many columns as rows, where p x p systems,
    which need no product with X, are solved faster than n x n ones.
    """
    X, x_unit = in_range(X)
    Y, y_unit = in_range(Y)
    if X.shape[0] * (1 + square) < X.shape[1]:
        return _wide(X, Y, weight, intercept, x_unit, y_unit)
    found = folded_moments(X, Y, weight, folds)
    return moments_intake(found.total(), intercept, x_unit, y_unit)._replace(moments=found)


def moments_intake(
    raw: Moments, intercept: bool, x_unit: Array | float = 1.0, y_unit: Array | float = 1.0
) -> LinearIntake:
    """From the moments of X/x_unit and y/y_unit."""
    use = raw if intercept else raw.about_zero()
    n = use.n
    x_scale, constant = column_scales(raw.x_mean * intercept, np.diag(use.xx) / n, n)
    y_scale, _ = column_scales(raw.y_mean * intercept, use.yy / n, n)
    check_squares(raw.x_mean, np.diag(use.xx) / n)
    check_squares(raw.y_mean, use.yy / n)
    xx = use.xx / np.outer(x_scale, x_scale)
    xx[constant], xx[:, constant] = 0.0, 0.0
    xy = use.xy / np.outer(x_scale, y_scale)
    xy[constant] = 0.0
    yy = use.yy / y_scale**2
    designs: list[LeastSquares] = [Gram(xx, xy[:, t], float(yy[t]), n) for t in range(len(y_scale))]
    plain = bool(np.all(x_unit == 1.0) and np.all(y_unit == 1.0))
    units = use.x_mean * x_unit, x_scale * x_unit, use.y_mean * y_unit, y_scale * y_unit
    return LinearIntake(designs, TargetUnits(*units, plain))


def _wide(
    X: Any,
    Y: Array,
    weight: Array | None,
    intercept: bool,
    x_unit: Array | float,
    y_unit: Array | float,
) -> LinearIntake:
    counts = np.ones(len(Y)) if weight is None else weight
    n = float(counts.sum())
    share = counts / n
    x_mean, x_square = weighted_moments(X, share, intercept)
    y_mean, y_square = weighted_moments(Y, share, intercept)
    x_scale, constant = column_scales(x_mean, x_square, n)
    y_scale, _ = column_scales(y_mean, y_square, n)
    root = np.sqrt(counts)
    columns = standard_columns(X, x_mean, np.where(constant, np.inf, x_scale), root)
    Y = (Y - y_mean) * root[:, None] / y_scale
    designs: list[LeastSquares] = [Wide(columns, Y[:, t], n) for t in range(Y.shape[1])]
    units = x_mean * x_unit, x_scale * x_unit, y_mean * y_unit, y_scale * y_unit
    return LinearIntake(designs, TargetUnits(*units))
