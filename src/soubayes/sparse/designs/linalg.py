"""Cholesky factors, their inverses, and inverses through an n x n matrix."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack

from soubayes.sparse.designs.columns import StandardColumns

Array = np.ndarray

JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)  # Gram matrices of float32 data round at 1e-7


def cholesky(matrix: Array, diagonal: Array | float = 0.0) -> Array:
    """The lower factor of matrix + diag(diagonal); jitter is added only if rounding demands it."""
    if not len(matrix):
        return matrix
    # a relative jitter leaves the units of the columns alone
    for jitter in JITTERS:
        full = matrix.T.copy(order="F")  # symmetric, and so a plain copy of C-ordered memory
        points = full.reshape(-1, order="F")[:: len(full) + 1]
        points += diagonal
        if jitter:
            points *= 1.0 + jitter
        lower, info = lapack.dpotrf(full, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return lower
    raise np.linalg.LinAlgError(
        f"A matrix of size {len(matrix)} is not positive definite to the digits of float64: the "
        "rows weigh too much beside the prior. Give sample weights with a mean near 1."
    )


def log_determinant(lower: Array) -> float:
    """log|A| from its lower Cholesky factor."""
    return 2.0 * float(np.log(lower.diagonal()).sum())


def invert_triangle(lower: Array) -> Array:
    """The inverse of a lower triangle, in its place.

    By halves: at p = 400 half the time of LAPACK's dtrtri.
    """
    half = len(lower) // 2
    if half < 25:
        lower[:] = lapack.dtrtri(lower, lower=1)[0] if len(lower) else lower
        return lower
    top, corner, bottom = lower[:half, :half], lower[half:, :half], lower[half:, half:]
    invert_triangle(top)
    invert_triangle(bottom)
    # [[A, 0], [C, B]]^-1 = [[A^-1, 0], [-B^-1 C A^-1, B^-1]]
    right = blas.dtrmm(1.0, top, corner, lower=1, side=1)
    corner[:] = blas.dtrmm(-1.0, bottom, right, lower=1, overwrite_b=1)
    return lower


def eigenvalue_sums(lower: Array) -> tuple[float, float]:
    """Sum and sum of squares of the eigenvalues of LL' (and of L'L), L a lower triangle."""
    if not len(lower):
        return 0.0, 0.0
    product = lapack.dlauum(lower, lower=1)[0]  # the lower half of L'L, zeros above
    diagonal, flat = product.diagonal(), product.ravel(order="K")
    return float(diagonal.sum()), 2.0 * float(flat @ flat) - float(diagonal @ diagonal)


def invert(lower: Array) -> Array:
    """The whole inverse of A from its lower Cholesky factor, which is left as it is."""
    if not len(lower):
        return lower
    half, _ = lapack.dpotri(lower, lower=1)  # above the diagonal are the zeros of ``lower``
    full = half + half.T
    full.flat[:: len(full) + 1] = half.diagonal()
    return full


class Woodbury(NamedTuple):
    """With K = I + B^1/2 X W^-1 X' B^1/2 = LL', (.)^-1 = W^-1 - W^-1 X' B^1/2 K^-1 B^1/2 X W^-1.

    B = diag(b) are weights of the rows and W = diag(w) prior precisions.
    """

    root: Array  # (n,) B^1/2
    inverse: Array  # (n, n) L^-1
    kernel_log_det: float  # log|K|

    @classmethod
    def of(cls, X: StandardColumns, w: Array, b: Array | None = None) -> "Woodbury":
        """Factorise K; ``b`` None: all weights are 1."""
        return cls.of_gram(X.gram(w), b)

    @classmethod
    def of_gram(cls, gram: Array, b: Array | None = None) -> "Woodbury":
        """The same from X W^-1 X'."""
        root = np.ones(len(gram)) if b is None else np.sqrt(b)
        lower = cholesky(gram if b is None else root[:, None] * gram * root, 1.0)
        log_det = log_determinant(lower)
        return cls(root, invert_triangle(lower), log_det)

    @property
    def half(self) -> Array:
        """T = L^-1 B^1/2, so (.)^-1 = W^-1 - W^-1 X' T'T X W^-1."""
        return self.inverse * self.root

    def projected(self, X: StandardColumns, v: Array) -> tuple[Array, Array]:
        """t_j = |T x_j|^2 and x_j' B^1/2 K^-1 v for every column."""
        return X.projected(self.half, self.inverse @ v, lower=True)

    def log_det(self, w: Array) -> float:
        """log|X' B X + W|."""
        return self.kernel_log_det + float(np.log(w).sum())


def diagonal(explained: Array, w: Array) -> Array:
    """The diagonal of the inverse from t_j = |T x_j|^2."""
    return np.maximum(1.0 - explained / w, 1e-12) / w
