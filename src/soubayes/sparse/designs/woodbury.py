"""(X' B X + diag(w))^-1 through an n x n matrix, for more columns than rows."""

from typing import NamedTuple

import numpy as np

from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.designs.triangles import cholesky, invert_triangle, log_determinant

Array = np.ndarray


class Woodbury(NamedTuple):
    """With K = I + B^1/2 X W^-1 X' B^1/2 = LL', (.)^-1 = W^-1 - W^-1 X' B^1/2 K^-1 B^1/2 X W^-1.

    B = diag(b) are weights of the rows and W = diag(w) prior precisions.
    """

    root: Array  # (n,) B^1/2
    gram: Array  # (n, n) X W^-1 X'
    inverse: Array  # (n, n) L^-1
    kernel_log_det: float  # log|K|

    @classmethod
    def of(cls, X: StandardColumns, w: Array, b: Array | None = None) -> "Woodbury":
        """Factorise K; ``b`` None: all weights are 1."""
        gram = X.gram(w)
        root = np.ones(len(gram)) if b is None else np.sqrt(b)
        lower = cholesky(gram if b is None else root[:, None] * gram * root, 1.0)
        log_det = log_determinant(lower)
        return cls(root, gram, invert_triangle(lower), log_det)

    @property
    def half(self) -> Array:
        """T = L^-1 B^1/2, so that (.)^-1 = W^-1 - W^-1 X' T'T X W^-1."""
        return self.inverse * self.root

    def projected(self, X: StandardColumns, v: Array) -> tuple[Array, Array]:
        """t_j = |T x_j|^2 and x_j' B^1/2 K^-1 v for every column."""
        return X.projected(self.half, self.inverse @ v)

    def diagonal(self, X: StandardColumns, w: Array) -> Array:
        """The diagonal of the inverse, (1 - t_j/w_j)/w_j."""
        return diagonal(self.projected(X, self.root)[0], w)

    def row_variance(self) -> Array:
        """x_i' (.)^-1 x_i for the rows of X."""
        inside = self.half @ self.gram
        return np.maximum(np.diag(self.gram) - np.einsum("ij,ij->j", inside, inside), 0.0)

    def solve(self, X: StandardColumns, w: Array, linear: Array) -> Array:
        """(.)^-1 X' linear."""
        half = self.half
        return X.left(linear - half.T @ (half @ (self.gram @ linear))) / w

    def log_det(self, w: Array) -> float:
        """log|X' B X + W|."""
        return self.kernel_log_det + float(np.log(w).sum())


def diagonal(explained: Array, w: Array) -> Array:
    """The diagonal of the inverse from t_j = |T x_j|^2."""
    return np.maximum(1.0 - explained / w, 1e-12) / w
