"""Where X lives: what solvers may ask of the data, whoever holds them.

`LeastSquares` is a quadratic loss: its rows were read once, and solvers ask for the posterior at
given prior precisions. `RowDesign` serves every other likelihood: solvers ask for one pass over the
rows. Both take subsets of the columns, because solvers work on the active ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from soubayes.sparse.designs.columns import StandardColumns

Array = np.ndarray


class Ridge(NamedTuple):
    """The Gaussian posterior for given prior precisions, in units where the noise is 1."""

    mean: Array  # m
    variance: Array  # diagonal of A^-1
    s: Array  # precision that the data give to each column, the others integrated out
    q: Array  # s + w times the mean
    rss: float  # |y - X m|^2
    log_det: float  # log |A|
    triangle: Array | None = None  # L^-1 of the matrix that was factorised


class LeastSquares(Protocol):
    """One least-squares problem, for prior precisions w in units of the noise.

    With A = X'X + diag(w) the posterior mean is m = A^-1 X'y, and every column has the
    leave-one-out quantities s_j = 1/(A^-1)_jj - w_j and q_j = m_j/(A^-1)_jj.
    """

    n: float
    yy: float
    norms: Array  # squared length of every column
    scores: Array  # X'y

    def take(self, index: Array) -> "LeastSquares":
        """The same problem with some columns."""

    def ridge(self, w: Array) -> Ridge:
        """The posterior at these precisions."""

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        """s and q of the columns ``others`` when the columns ``index`` have precisions w."""

    @property
    def closest(self) -> float:
        """The largest absolute correlation of two columns, or 1 where it is dear to know."""

    def correlations(self, columns: Array) -> Array:
        """Of some columns (ascending) with each other; 0 with a column of zeros."""

    def first_copies(self) -> Array:
        """For every column the first that equals it, its sign apart."""

    def inverse(self, w: Array) -> Array:
        """A^-1."""

    def shrinkage_sums(self, w: Array, ridge: Ridge) -> tuple[float, float, float]:
        """Sum and sum of squares of the eigenvalues of W^1/2 A^-1 W^1/2, and m'W A^-1 W m."""

    def spectrum(self) -> tuple[Array, Array] | None:
        """Eigenvalues of X X' and the squared components of y, if X X' is smaller than X'X."""

    def low_rank(self, w: Array) -> tuple[Array, Array] | None:
        """L^-1 and X with A^-1 = W^-1 - W^-1 X' L^-T L^-1 X W^-1, if that is smaller than A."""


class RowDesign(Protocol):
    """Standardised columns, then a column of ones if there is an intercept, read row by row."""

    @property
    def n_rows(self) -> int:
        """n."""

    @property
    def n_columns(self) -> int:
        """The columns in use, with the intercept."""

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64, in which Gram matrices of a block of rows are formed."""

    def take(self, columns: Array) -> "RowDesign":
        """Some columns (ascending)."""

    def total(self, work: Callable[..., tuple[Any, ...]], y: Any, weight: Any) -> Any:
        """One pass over the rows: work(Z, y, weight) of every block, summed entry by entry.

        Solvers see the rows through this alone, so that they may be anywhere.
        """

    def by_columns(self) -> StandardColumns | None:
        """The same data read column by column, where they are in memory and wide; else None."""
