"""Least squares with orthogonal columns, as in the normal means model: X'X = diag(norms)."""

import numpy as np

from soubayes.sparse.designs.base import Ridge

Array = np.ndarray


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

    def low_rank(self, w: Array) -> None:
        return None
