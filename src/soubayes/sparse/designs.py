"""One least-squares problem in three forms: Gram matrix, wide matrix, diagonal.

Solvers see the data only through ``ridge`` and ``outside``: for prior precisions w (in units of
the noise) and A = X'X + diag(w), the posterior mean m = A^-1 X'y and, for every column, the
leave-one-out quantities of note 2, s_j = 1/(A^-1)_jj - w_j and q_j = m_j/(A^-1)_jj.
"""

from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from soubayes.sparse.triangles import cholesky, invert_triangle, log_determinant
from soubayes.sparse.wide_columns import WideColumns

Array = np.ndarray


class Ridge(NamedTuple):
    """The Gaussian posterior for given prior precisions, in units where the noise is 1."""

    mean: Array  # m
    variance: Array  # diagonal of A^-1
    s: Array  # precision that the data give to each column, the others integrated out
    q: Array  # s + w times the mean
    rss: float  # |y - X m|^2
    log_det: float  # log |A|


class Design(Protocol):
    """What a solver may ask of the data."""

    n: float
    yy: float
    norms: Array  # squared length of every column, X'y beside it
    scores: Array

    def take(self, index: Array) -> "Design": ...
    def ridge(self, w: Array) -> Ridge: ...
    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]: ...
    def inverse(self, w: Array) -> Array: ...
    def multiply(self, coef: Array) -> Array: ...


class Gram:
    """X'X, X'y, y'y and n: for n >= p, and for every active set that fits."""

    def __init__(self, gram: Array, scores: Array, yy: float, n: float) -> None:
        self.gram, self.scores, self.yy, self.n = gram, scores, yy, n
        self.norms = np.diag(gram).copy()

    def take(self, index: Array) -> "Gram":
        return Gram(self.gram[np.ix_(index, index)], self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        inverse, log_det = _inverse_triangle(self.gram, w)
        variance = np.einsum("ij,ij->j", inverse, inverse)
        mean = inverse.T @ (inverse @ self.scores)
        return Ridge(
            mean,
            variance,
            np.maximum(1.0 / variance - w, _FLOOR * self.n),
            mean / variance,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            log_det,
        )

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        cross = self.gram[np.ix_(index, others)]
        lower = cholesky(self.gram[np.ix_(index, index)], w)
        return _residual(
            lower, cross, self.scores[index], self.norms[others], self.scores[others], self.n
        )

    def inverse(self, w: Array) -> Array:
        inverse, _ = _inverse_triangle(self.gram, w)
        return inverse.T @ inverse

    def multiply(self, coef: Array) -> Array:
        return self.gram @ coef


class Wide:
    """X and y themselves, for p > n: nothing p x p is ever formed but by ``inverse``."""

    def __init__(self, columns: WideColumns, y: Array, n: float) -> None:
        self.columns, self.y, self.n = columns, y, n
        self.yy = float(y @ y)
        self.norms = columns.norms()
        self.scores = columns.left(y)

    @property
    def X(self) -> Array:
        """All columns in one array."""
        return self.columns.dense()

    def take(self, index: Array) -> "Design":
        part = self.columns.take(index)
        if len(index) > len(self.y):
            return Wide(part, self.y, self.n)
        X = part.dense()
        return Gram(X.T @ X, self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        inverse, log_det = self._kernel(self.columns, w)
        # t_j = x_j' K^-1 x_j with K = I + X W^-1 X', so that (A^-1)_jj = (1 - t_j/w_j)/w_j
        t, score = self.columns.projected(inverse, inverse @ self.y)
        left = np.maximum(1.0 - t / w, 1e-12)
        mean = score / w
        return Ridge(
            mean,
            left / w,
            np.maximum(t / left, _FLOOR * self.n),
            score / left,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            log_det + float(np.log(w).sum()),
        )

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        active = self.columns.take(index)
        if len(index) > len(self.y):
            inverse, _ = self._kernel(active, w)
            t, score = self.columns.projected(inverse, inverse @ self.y)
            return np.maximum(t[others], _FLOOR * self.n), score[others]
        X = active.dense()
        lower = cholesky(X.T @ X, w)
        half = solve_triangular(lower, X.T, lower=True, check_finite=False)
        explained, fitted = self.columns.projected(half, half @ self.y)
        s = (self.norms - explained)[others]
        return np.maximum(s, _FLOOR * self.n), (self.scores - fitted)[others]

    def inverse(self, w: Array) -> Array:
        X = self.X
        half = self._kernel(self.columns, w)[0] @ (X / w)
        full = -half.T @ half
        full[np.diag_indices_from(full)] += 1.0 / w
        return full

    def multiply(self, coef: Array) -> Array:
        return self.columns.left(self.columns.times(coef))

    def _kernel(self, columns: WideColumns, w: Array) -> tuple[Array, float]:
        """L^-1 and log|K| for K = LL' = I + X W^-1 X'."""
        return _inverse_triangle(columns.gram(w), np.ones(len(self.y)))


class Diagonal:
    """Orthogonal columns, as in the normal means model: X'X = diag(norms)."""

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

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        return self.norms[others], self.scores[others]

    def inverse(self, w: Array) -> Array:
        return np.diag(1.0 / (self.norms + w))

    def multiply(self, coef: Array) -> Array:
        return self.norms * coef


_FLOOR = 1e-12  # of n: a constant column, or one that the others explain, still has s > 0


def _inverse_triangle(matrix: Array, diagonal: Array) -> tuple[Array, float]:
    """L^-1 and log|A| for A = LL' = matrix + diag(diagonal)."""
    lower = cholesky(matrix, diagonal)
    log_det = log_determinant(lower)
    return invert_triangle(lower), log_det


def _residual(
    lower: Array, cross: Array, scores: Array, norms: Array, other_scores: Array, n: float
) -> tuple[Array, Array]:
    """s and q of columns outside the active set whose Cholesky factor is ``lower``."""
    half = solve_triangular(lower, cross, lower=True, check_finite=False)
    fitted = solve_triangular(lower, scores, lower=True, check_finite=False)
    s = norms - np.einsum("ij,ij->j", half, half)
    return np.maximum(s, _FLOOR * n), other_scores - fitted @ half
