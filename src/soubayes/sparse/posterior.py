"""The Gaussian q(beta) of a fitted model, without a p x p matrix unless one is asked for."""

import numpy as np
from scipy.linalg import solve_triangular

Array = np.ndarray


class Posterior:
    """N(mean, S): a dense covariance on the active columns, the others independent.

    The others are the dropped columns: they keep their own tiny variances, while their
    covariances, smaller still by the order of s_j/w_j, are left out.

    >>> q = Posterior(np.array([1.0, 0.0]), np.array([4.0, 1e-8]), np.array([0]), np.eye(1) * 4)
    >>> q.full()
    array([[4.e+00, 0.e+00],
           [0.e+00, 1.e-08]])
    """

    def __init__(self, mean: Array, variance: Array, active: Array, covariance: Array) -> None:
        self.mean, self.variance, self.active, self.covariance = mean, variance, active, covariance

    @property
    def sd(self) -> Array:
        """Standard deviations of all columns."""
        return np.sqrt(self.variance)

    def spread(self, X: Array) -> Array:
        """x' S x for every row of X."""
        inside = X[:, self.active]
        own = np.delete(self.variance, self.active)
        total = (np.delete(X, self.active, axis=1) ** 2) @ own
        return total + np.einsum("ij,ij->i", inside @ self.covariance, inside)

    def moved(self, order: Array, scale: Array) -> "Posterior":
        """Of the same coefficients in another order, each times its scale (in the new order)."""
        place = np.argsort(order)[self.active]
        inside = np.argsort(place)
        square = self.covariance[np.ix_(inside, inside)]
        place = place[inside]
        return Posterior(
            self.mean[order] * scale,
            self.variance[order] * scale**2,
            place,
            square * np.outer(scale[place], scale[place]),
        )

    def full(self) -> Array:
        """S as a p x p matrix."""
        S = np.diag(self.variance)
        S[np.ix_(self.active, self.active)] = self.covariance
        return S

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of shape (n, p)."""
        draws = rng.standard_normal((n, len(self.mean)))
        jitter = 1e-14 * np.diag(np.diag(self.covariance))
        inside = draws[:, self.active] @ np.linalg.cholesky(self.covariance + jitter).T
        draws *= self.sd
        draws[:, self.active] = inside
        return self.mean + draws


class LowRankPosterior(Posterior):
    """N(mean, D - half' half) for p > n with every column in: half = L^-1 X D, LL' = I + X D X'."""

    def __init__(self, mean: Array, diagonal: Array, half: Array, lower: Array) -> None:
        variance = diagonal - np.einsum("ij,ij->j", half, half)
        self.mean, self.variance = mean, np.maximum(variance, 1e-12 * diagonal)
        self.diagonal, self.half, self.lower = diagonal, half, lower

    def spread(self, X: Array) -> Array:
        inside = X @ self.half.T
        return np.maximum((X**2) @ self.diagonal - np.einsum("ij,ij->i", inside, inside), 0.0)

    def moved(self, order: Array, scale: Array) -> "Posterior":
        half = self.half[:, order] * scale
        diagonal = self.diagonal[order] * scale**2
        return LowRankPosterior(self.mean[order] * scale, diagonal, half, self.lower)

    def full(self) -> Array:
        return np.diag(self.diagonal) - self.half.T @ self.half

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        # u ~ N(0, D), e ~ N(0, I): u - D X' K^-1 (X u + e) ~ N(0, S), in O(n p) a draw
        u = rng.standard_normal((n, len(self.mean))) * np.sqrt(self.diagonal)
        e = rng.standard_normal((n, len(self.lower)))
        v = self.half @ (u / self.diagonal).T + solve_triangular(self.lower, e.T, lower=True)
        return self.mean + u - v.T @ self.half
