"""Least squares from X'X, with more columns than rows, and with orthogonal columns."""

from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack, solve_triangular

from soubayes.sparse.designs.columns import EQUAL, SPARSE_BYTES, StandardColumns, first_in_columns
from soubayes.sparse.designs.linalg import (
    Woodbury,
    cholesky,
    diagonal,
    eigenvalue_sums,
    invert_triangle,
    log_determinant,
)
from soubayes.sparse.designs.standardise import first_in_gram

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

    def log_det(self, w: Array) -> float:
        """log |A|."""

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        """s and q of the columns ``others`` when the columns ``index`` have precisions w."""

    @property
    def closest(self) -> float:
        """The largest absolute correlation of two columns, or 1 where it is dear to know."""

    def correlations(self, columns: Array) -> Array:
        """Of some columns (ascending) with each other; 0 with a column of zeros."""

    def first_copies(self) -> Array:
        """For every column the first that it is a copy of, its sign apart."""

    def inverse(self, w: Array) -> Array:
        """A^-1."""

    def shrinkage_sums(self, w: Array, ridge: Ridge) -> tuple[float, float, float]:
        """Sum and sum of squares of the eigenvalues of W^1/2 A^-1 W^1/2, and m'W A^-1 W m."""

    def spectrum(self) -> tuple[Array, Array] | None:
        """Eigenvalues of X X' and the squared components of y, if X X' is smaller than X'X."""

    def rows(self) -> tuple[Any, Array | None] | None:
        """X, if X X' is smaller than A; or X + v m' and below it m', and v."""


LEAST_INFORMATION = 1e-12  # of n: a column that is constant, or explained, still has s > 0


class Gram:
    """X'X, X'y, y'y and n; a `LeastSquares`."""

    def __init__(self, gram: Array, scores: Array, yy: float, n: float) -> None:
        self.gram, self.scores, self.yy, self.n = gram, scores, yy, n
        self.norms = gram.diagonal().copy()

    def take(self, index: Array) -> "Gram":
        return Gram(self.gram[index[:, None], index], self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        lower = cholesky(self.gram, w)
        log_det = log_determinant(lower)
        inverse = invert_triangle(lower)
        # A = LL': the diagonal of A^-1 is that of L^-T L^-1
        variance = np.einsum("ij,ij->j", inverse, inverse)
        mean = inverse.T @ (inverse @ self.scores)
        return Ridge(
            mean,
            variance,
            np.maximum(1.0 / variance - w, LEAST_INFORMATION * self.n),
            mean / variance,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            log_det,
            inverse,
        )

    def log_det(self, w: Array) -> float:
        return log_determinant(cholesky(self.gram, w))

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        rows = self.gram[index]
        lower = cholesky(rows[:, index], w)
        cross = np.empty((len(index), len(others) + 1), order="F")
        cross[:, :-1], cross[:, -1] = rows[:, others], self.scores[index]
        # s_j = x_j'x_j - x_j'X_A A^-1 X_A'x_j, q_j likewise with y in the place of the second x_j
        half = lapack.dtrtrs(lower, cross, lower=1, overwrite_b=1)[0] if len(index) else cross
        half, fitted = half[:, :-1], half[:, -1]
        s = self.norms[others] - np.einsum("ij,ij->j", half, half)
        return np.maximum(s, LEAST_INFORMATION * self.n), self.scores[others] - fitted @ half

    @cached_property
    def closest(self) -> float:
        root = np.sqrt(np.maximum(self.norms, 1e-300))
        r = np.abs(self.gram / root[:, None] / root)
        np.fill_diagonal(r, 0.0)
        return float(r.max(initial=0.0))

    def correlations(self, columns: Array) -> Array:
        root = np.sqrt(np.maximum(self.norms[columns], 1e-300))
        return self.gram[columns[:, None], columns] / root[:, None] / root

    def first_copies(self) -> Array:
        if self.closest < 1.0 - EQUAL:
            return np.arange(len(self.norms))
        return first_in_gram(self.gram)

    def inverse(self, w: Array) -> Array:
        inverse = invert_triangle(cholesky(self.gram, w))
        return inverse.T @ inverse

    def shrinkage_sums(self, w: Array, ridge: Ridge) -> tuple[float, float, float]:
        assert ridge.triangle is not None
        inside = ridge.triangle @ (w * ridge.mean)
        return *eigenvalue_sums(ridge.triangle * np.sqrt(w)), float(inside @ inside)

    def spectrum(self) -> None:
        return None

    def rows(self) -> None:
        return None


class Wide:
    """X and y themselves; a `LeastSquares` for p > n."""

    def __init__(self, columns: StandardColumns, y: Array, n: float) -> None:
        self.columns, self.y, self.n = columns, y, n
        self.yy = float(y @ y)
        self.norms = columns.norms()
        self.scores = columns.left(y)

    def take(self, index: Array) -> LeastSquares:
        columns = self.columns.take(index)
        if len(index) > len(self.y):
            return Wide(columns, self.y, self.n)
        X = columns.dense()
        return Gram(X.T @ X, self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        kernel = Woodbury.of(self.columns, w)
        t, score = kernel.projected(self.columns, self.y)
        # s = t/(1 - t/w) and q = score/(1 - t/w): 1/(A^-1)_jj - w_j by Sherman and Morrison
        left = np.maximum(1.0 - t / w, 1e-12)
        mean = score / w
        return Ridge(
            mean,
            diagonal(t, w),
            np.maximum(t / left, LEAST_INFORMATION * self.n),
            score / left,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            kernel.log_det(w),
            kernel.inverse,
        )

    def log_det(self, w: Array) -> float:
        return Woodbury.of(self.columns, w).log_det(w)

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        active = self.columns.take(index)
        if len(index) > len(self.y):
            kernel = Woodbury.of(active, w)
            t, score = kernel.projected(self.columns, self.y)
            return np.maximum(t[others], LEAST_INFORMATION * self.n), score[others]
        X = active.dense()
        lower = cholesky(X.T @ X, w)
        half = solve_triangular(lower, X.T, lower=True, check_finite=False)
        explained, fitted = self.columns.projected(half, half @ self.y)
        s = (self.norms - explained)[others]
        return np.maximum(s, LEAST_INFORMATION * self.n), (self.scores - fitted)[others]

    closest = 1.0

    def correlations(self, columns: Array) -> Array:
        X = self.columns.take(columns).dense()
        X = X / np.sqrt(np.maximum(self.norms[columns], 1e-300))
        return X.T @ X

    def first_copies(self) -> Array:
        return first_in_columns(self.columns)

    def inverse(self, w: Array) -> Array:
        half = Woodbury.of(self.columns, w).inverse @ (self.columns.dense() / w)
        full = -half.T @ half
        full[np.diag_indices_from(full)] += 1.0 / w
        return full

    def shrinkage_sums(self, w: Array, ridge: Ridge) -> tuple[float, float, float]:
        assert ridge.triangle is not None
        inside = ridge.triangle @ self.columns.times(ridge.mean)
        pull = float(ridge.mean @ (w * ridge.mean)) - float(inside @ inside)
        # the eigenvalues below 1 are those of K^-1
        return *eigenvalue_sums(ridge.triangle), pull

    def spectrum(self) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(self.columns.gram(np.ones(self.columns.shape[1])))
        return np.maximum(values, 0.0), (self.y @ vectors) ** 2

    def rows(self) -> tuple[Any, Array | None]:
        return self._rows

    @cached_property
    def _rows(self) -> tuple[Any, Array | None]:
        columns, (n, p) = self.columns, self.columns.shape
        if not sp.issparse(columns.raw) or 8 * n * p <= SPARSE_BYTES:
            return columns.dense(), None
        # never dense: the mean that is subtracted from the rows is one more row
        mean, scale = columns.units()
        scaled = sp.diags_array(columns.root) @ columns.raw @ sp.diags_array(1.0 / scale)
        return sp.csr_array(sp.vstack([scaled, (mean / scale)[None]])), columns.root


class Diagonal:
    """The squared lengths of the columns and X'y; a `LeastSquares`."""

    def __init__(self, norms: Array, scores: Array, yy: float, n: float) -> None:
        self.norms, self.scores, self.yy, self.n = norms, scores, yy, n

    def take(self, index: Array) -> "Diagonal":
        return Diagonal(self.norms[index], self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        variance = 1.0 / (self.norms + w)
        mean = variance * self.scores
        rss = max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0)
        log_det = -float(np.log(variance).sum())
        return Ridge(mean, variance, self.norms, self.scores, rss, log_det)

    def log_det(self, w: Array) -> float:
        return float(np.log(self.norms + w).sum())

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        return self.norms[others], self.scores[others]

    closest = 0.0

    def correlations(self, columns: Array) -> Array:
        return np.eye(len(columns))

    def first_copies(self) -> Array:
        return np.arange(len(self.norms))

    def inverse(self, w: Array) -> Array:
        return np.diag(1.0 / (self.norms + w))

    def shrinkage_sums(self, w: Array, ridge: Ridge) -> tuple[float, float, float]:
        kappa = w * ridge.variance
        return float(kappa.sum()), float(kappa @ kappa), float(kappa @ (w * ridge.mean**2))

    def spectrum(self) -> None:
        return None

    def rows(self) -> None:
        return None
