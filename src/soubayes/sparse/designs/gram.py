"""Least squares from X'X and X'y: for n >= p, and for every active set that fits."""

from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.designs.base import Ridge
from soubayes.sparse.designs.copies import EQUAL, first_in_gram
from soubayes.sparse.designs.triangles import (
    cholesky,
    invert_triangle,
    log_determinant,
    squared_norm,
)

Array = np.ndarray

FLOOR = 1e-12  # of n: a constant column, or one that the others explain, still has s > 0


class Gram:
    """X'X, X'y, y'y and n; a `LeastSquares`."""

    def __init__(self, gram: Array, scores: Array, yy: float, n: float) -> None:
        self.gram, self.scores, self.yy, self.n = gram, scores, yy, n
        self.norms = np.diag(gram).copy()

    def take(self, index: Array) -> "Gram":
        return Gram(self.gram[index[:, None], index], self.scores[index], self.yy, self.n)

    def ridge(self, w: Array) -> Ridge:
        lower = cholesky(self.gram, w)
        log_det = log_determinant(lower)
        inverse = invert_triangle(lower)
        variance = np.einsum("ij,ij->j", inverse, inverse)
        mean = inverse.T @ (inverse @ self.scores)
        return Ridge(
            mean,
            variance,
            np.maximum(1.0 / variance - w, FLOOR * self.n),
            mean / variance,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            log_det,
            inverse,
        )

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        rows = self.gram[index]
        lower = cholesky(rows[:, index], w)
        cross = np.empty((len(index), len(others) + 1), order="F")
        cross[:, :-1], cross[:, -1] = rows[:, others], self.scores[index]
        half = lapack.dtrtrs(lower, cross, lower=1, overwrite_b=1)[0] if len(index) else cross
        half, fitted = half[:, :-1], half[:, -1]
        s = self.norms[others] - np.einsum("ij,ij->j", half, half)
        return np.maximum(s, FLOOR * self.n), self.scores[others] - fitted @ half

    @cached_property
    def closest(self) -> float:
        r = np.abs(self.correlations(np.arange(len(self.norms))))
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
        scaled = ridge.triangle * np.sqrt(w)
        inside = ridge.triangle @ (w * ridge.mean)
        return float(np.vdot(scaled, scaled)), squared_norm(scaled), float(inside @ inside)

    def spectrum(self) -> None:
        return None

    def low_rank(self, w: Array) -> None:
        return None
