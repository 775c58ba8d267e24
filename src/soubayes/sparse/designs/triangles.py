"""Cholesky factors and their inverses: what all solvers of the sparse estimators lean on."""

import numpy as np
from scipy.linalg import blas, lapack

Array = np.ndarray

JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)  # Gram matrices of float32 data round at 1e-7


def cholesky(matrix: Array, diagonal: Array | float = 0.0) -> Array:
    """The lower factor of matrix + diag(diagonal), with a hint of jitter if rounding demands."""
    if not len(matrix):
        return matrix
    for jitter in JITTERS:
        full = matrix.T.copy(order="F")  # symmetric, and so a plain copy of C-ordered memory
        points = full.reshape(-1, order="F")[:: len(full) + 1]
        points += diagonal
        if jitter:
            points *= 1.0 + jitter
        lower, info = lapack.dpotrf(full, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return lower
    raise np.linalg.LinAlgError(f"the matrix of size {len(matrix)} is not positive definite")


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
    right = blas.dtrmm(1.0, top, corner, lower=1, side=1)
    corner[:] = blas.dtrmm(-1.0, bottom, right, lower=1, overwrite_b=1)
    return lower


def squared_norm(lower: Array) -> float:
    """The sum of squares of the entries of LL' (and of L'L), L a lower triangle."""
    if not len(lower):
        return 0.0
    product = np.tril(lapack.dlauum(lower, lower=1)[0])  # the lower half of L'L
    return 2.0 * float(np.vdot(product, product)) - float(np.sum(np.diag(product) ** 2))


def invert(lower: Array) -> Array:
    """The whole inverse of A from its lower Cholesky factor, which is left as it is."""
    if not len(lower):
        return lower
    half, _ = lapack.dpotri(lower, lower=1)  # above the diagonal are the zeros of ``lower``
    full = half + half.T
    full.flat[:: len(full) + 1] = half.diagonal()
    return full
