"""Least squares with more columns than rows: nothing p x p is ever formed but by ``inverse``."""

import numpy as np
from scipy.linalg import solve_triangular

from soubayes.sparse.designs.base import LeastSquares, Ridge
from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.designs.copies import first_in_columns
from soubayes.sparse.designs.gram import FLOOR, Gram
from soubayes.sparse.designs.triangles import cholesky
from soubayes.sparse.designs.woodbury import Woodbury, diagonal

Array = np.ndarray


class Wide:
    """X and y themselves; a `LeastSquares` for p > n."""

    def __init__(self, columns: StandardColumns, y: Array, n: float) -> None:
        self.columns, self.y, self.n = columns, y, n
        self.yy = float(y @ y)
        self.norms = columns.norms()
        self.scores = columns.left(y)

    def take(self, index: Array) -> LeastSquares:
        part = self.columns.take(index)
        if len(index) > len(self.y):
            return Wide(part, self.y, self.n)
        X = part.dense()
        return Gram(X.T @ X, self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        kernel = Woodbury.of(self.columns, w)
        t, score = kernel.projected(self.columns, self.y)
        left = np.maximum(1.0 - t / w, 1e-12)
        mean = score / w
        return Ridge(
            mean,
            diagonal(t, w),
            np.maximum(t / left, FLOOR * self.n),
            score / left,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            kernel.log_det(w),
            kernel.inverse,
        )

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        active = self.columns.take(index)
        if len(index) > len(self.y):
            kernel = Woodbury.of(active, w)
            t, score = kernel.projected(self.columns, self.y)
            return np.maximum(t[others], FLOOR * self.n), score[others]
        X = active.dense()
        lower = cholesky(X.T @ X, w)
        half = solve_triangular(lower, X.T, lower=True, check_finite=False)
        explained, fitted = self.columns.projected(half, half @ self.y)
        s = (self.norms - explained)[others]
        return np.maximum(s, FLOOR * self.n), (self.scores - fitted)[others]

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
        M = ridge.triangle @ ridge.triangle.T  # the eigenvalues below 1 are those of K^-1
        inside = ridge.triangle @ self.columns.times(ridge.mean)
        pull = float(ridge.mean @ (w * ridge.mean)) - float(inside @ inside)
        return float(np.trace(M)), float(np.vdot(M, M)), pull

    def spectrum(self) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(self.columns.gram(np.ones(self.columns.shape[1])))
        return np.maximum(values, 0.0), (self.y @ vectors) ** 2

    def low_rank(self, w: Array) -> tuple[Array, Array]:
        return Woodbury.of(self.columns, w).inverse, self.columns.dense()
