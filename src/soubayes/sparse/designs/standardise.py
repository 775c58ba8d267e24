"""Mean and scale of the columns, and blocks of rows in their units."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from soubayes.sparse.designs.columns import EQUAL, weighted_moments
from soubayes.sparse.designs.moments import Moments

Array = np.ndarray
BLOCK_ROWS = 4096  # rows of a block: the working memory of a pass


class ColumnUnits(NamedTuple):
    """Mean and scale of the columns, and which are constant."""

    mean: Array
    scale: Array  # 1 where constant
    constant: Array

    @property
    def divisor(self) -> Array:
        """The scale, infinite where constant: such a column becomes exactly 0."""
        return np.where(self.constant, np.inf, self.scale)

    @classmethod
    def of(cls, mean: Array, square: Array, n: float, shared: Array | None = None) -> "ColumnUnits":
        """From means and mean squares about them; for ``shared`` see `column_scales`."""
        check_squares(mean, square)
        return cls(mean, *column_scales(mean, square, n, shared))

    @classmethod
    def of_moments(cls, moments: Moments, shared: Array | None = None) -> "ColumnUnits":
        """From sufficient statistics."""
        return cls.of(moments.x_mean, np.diag(moments.xx) / moments.n, moments.n, shared)


def column_units(X: Any, weight: Array, centre: bool, shared: Array | None = None) -> ColumnUnits:
    """Weighted mean and standard deviation of every column, a block of rows at a time.

    Without an intercept (``centre`` False) the columns are only scaled, to mean square 1. For
    ``shared`` see `column_scales`.
    """
    n = float(weight.sum())
    share = weight / n
    if sp.issparse(X):
        return ColumnUnits.of(*weighted_moments(X, share, centre), n, shared)
    mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    few = X.shape[0] <= BLOCK_ROWS
    for rows in row_blocks(X.shape[0]) if centre else []:
        mean += _total(share[rows], X[rows], few)
    for rows in row_blocks(X.shape[0]):
        square += _total(share[rows], np.square(np.asarray(X[rows], float) - mean), few)
    return ColumnUnits.of(mean, square, n, shared)


def _total(share: Array, X: Array, few: bool) -> Array:
    """share @ X; of few rows with a rounding that does not depend on where a column stands."""
    return np.multiply(share[:, None], X, order="C").sum(axis=0) if few else share @ X


def column_marks(X: Any, units: ColumnUnits, weight: Array) -> Array | None:
    """Numbers that order the columns of a few rows whatever their places, units and signs.

    A mark is the absolute correlation of a column with the squared lengths of the standardised
    rows. J may have many minima and be flat between them: steps that depend on the order of the
    columns then end in different places. None: there are many rows, of which the loss is nearly
    quadratic.
    """
    if X.shape[0] > BLOCK_ROWS:
        return None
    divisor, share = units.divisor, weight / weight.sum()
    if sp.issparse(X):
        pull = units.mean / divisor**2
        length = X.power(2) @ (1.0 / divisor**2) - 2.0 * (X @ pull) + units.mean @ pull
    else:
        length = np.square(standardise_block(X, units.mean, divisor, ones=False)).sum(axis=1)
    length = length - share @ length
    size = np.sqrt(share @ length**2)
    # equal columns keep their order, so rounding must not tell them apart
    return np.abs((share * length) @ X / divisor / (size or 1.0)).round(8)


def row_blocks(n: int) -> list[slice]:
    """The rows in blocks of at most ``BLOCK_ROWS``."""
    return [slice(begin, min(begin + BLOCK_ROWS, n)) for begin in range(0, n, BLOCK_ROWS)]


def standardise_block(
    X: Any, mean: Array, divisor: Array, *, ones: bool, dtype: np.dtype | None = None
) -> Array:
    """(X - mean)/divisor of a block of dense or sparse rows, then a column of ones if asked.

    >>> standardise_block(np.eye(2), np.ones(2), np.array([1.0, np.inf]), ones=True)
    array([[ 0., -0.,  1.],
           [-1.,  0.,  1.]])
    """
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    out = np.empty((dense.shape[0], dense.shape[1] + ones), dtype or float)
    out[:, dense.shape[1] :] = 1.0
    scaled = np.subtract(dense, mean, dtype=float)
    scaled /= divisor
    out[:, : dense.shape[1]] = scaled
    return out


def column_scales(
    mean: ArrayLike, variance: ArrayLike, n: float, shared: Array | None = None
) -> tuple[Array, Array]:
    """Standard deviations with 1 for constant columns, and which columns are constant.

    A variance that rounding alone explains counts as none. Columns with the same number in
    ``shared`` are one term: they have one unit, in which their variances sum to 1.

    >>> column_scales([1e8, 0.0], [1e-15, 4.0], 10)
    (array([1., 2.]), array([ True, False]))
    """
    mean, variance = np.asarray(mean, float), np.asarray(variance, float)
    eps = np.finfo(float).eps
    # rounding of a mean of n rows is at most n eps |mean|
    rows = np.clip(n, 100.0, 1e6)  # n is a sum of weights; longer sums are made in parts
    with np.errstate(over="ignore"):
        constant = variance <= (rows * mean * eps) ** 2 + np.finfo(float).tiny
    constant &= np.isfinite(variance)
    if shared is not None:
        total = np.bincount(shared, np.where(constant, 0.0, variance))[shared]
        return np.sqrt(np.where(total > 0.0, total, 1.0)), constant
    return np.sqrt(np.where(constant, 1.0, variance)), constant


def in_range(X: Any) -> tuple[Any, Array]:
    """X with columns of extreme size divided by a power of two, and these powers (1: as it was).

    >>> X, unit = in_range(np.array([[1.0, 2.0**900], [3.0, 0.0]]))
    >>> X.tolist(), np.log2(unit).tolist()
    ([[1.0, 1.0], [3.0, 0.0]], [0.0, 900.0])
    """
    largest = abs(X).max(axis=0).toarray().ravel() if sp.issparse(X) else np.abs(_ends(X)).max(0)
    largest = largest.astype(float)
    extreme = (largest > 0.0) & ((largest > LARGEST) | (largest < 1.0 / LARGEST))
    unit = np.ones(X.shape[1])
    if not extreme.any():
        return X, unit
    unit[extreme] = np.ldexp(1.0, np.frexp(largest[extreme])[1] - 1)
    if not sp.issparse(X):
        return X / unit, unit
    X = sp.csr_array(X, dtype=float, copy=True)
    X.data /= unit[X.indices]
    return X, unit


def _ends(X: Array) -> Array:
    return np.array([X.min(axis=0), X.max(axis=0)])


def check_squares(mean: Array, variance: Array) -> None:
    """Refuse statistics of columns that were too large or too small to square."""
    with np.errstate(invalid="ignore"):
        size = np.abs(mean) + np.sqrt(variance)
    if not (size < 1e150).all() or ((size > 0.0) & (size < 1.0 / LARGEST)).any():
        raise ValueError(
            "X or y holds values too large or too small to square in float64; divide the columns "
            "by a constant."
        )


def check_units(x_scale: Array, y_scale: Array | None = None) -> None:
    """Refuse units in which what is reported is not a float64 number."""
    if y_scale is not None and ((y_scale > LARGEST) | (y_scale < 1.0 / LARGEST)).any():
        worst = y_scale[np.argmax(np.abs(np.log(y_scale)))]
        raise ValueError(
            f"y has a standard deviation of {worst:.2g}, whose square, the unit of the noise "
            "variance, is not a float64 number; divide y by a constant."
        )
    one = np.ones(1) if y_scale is None else y_scale
    size = np.log(one)[:, None] - np.log(x_scale)
    if np.max(np.abs(size)) > _MOST_LOG:
        j = int(np.argmax(np.max(np.abs(size), axis=0)))
        raise ValueError(
            f"column {j} of X has a standard deviation of {x_scale[j]:.2g}, so its "
            "coefficient is not a float64 number; divide the column by a constant."
        )


LARGEST = 2.0**400  # its square, and the sum of as many squares as there are rows, are finite
_MOST_LOG = 650.0  # of the size of a coefficient: about 1e282


def row_slices(X: Any) -> list[slice]:
    """Rows of X in blocks that stay small when they are made dense, however many columns."""
    step = max(1, min(BLOCK_ROWS, 2**19 // max(X.shape[1], 1)))
    return [slice(begin, begin + step) for begin in range(0, X.shape[0], step)]


def blocks_of_rows(X: Any, sparse: bool) -> Iterator[tuple[slice, Any]]:
    """The rows in blocks: dense ones, or ``sparse`` as they are."""
    for rows in row_blocks(X.shape[0]) if sparse else row_slices(X):
        yield rows, X[rows] if sparse else as_dense(X[rows])


def as_dense(X: Any) -> Array:
    """A float64 array of the rows, also of a scipy-sparse X."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, float)


def first_in_gram(gram: Array, equal: float = EQUAL) -> Array:
    """For every column the first that it is a copy of, from X'X; a column of zeros has none.

    >>> X = np.array([[0.0, 1.0, 2.0, -3.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    >>> first_in_gram(X.T @ X)
    array([0, 1, 2, 1, 4])
    """
    root = np.sqrt(np.diag(gram))
    # Cauchy and Schwarz: equality holds for multiples of a column, and for columns of zeros
    same = np.abs(gram) >= (1.0 - equal) * root[:, None] * root
    same &= root[:, None] > 0.0
    first = np.argmax(same, axis=0)
    return np.where(root > 0.0, first, np.arange(len(root)))
