"""q of a fit: normal coefficients, with the noise, and a whole point in the user's units."""

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray


class Posterior:
    """N(mean, S): a dense covariance on the active columns, the others independent.

    The others are the dropped columns: they keep their own tiny variances, while their
    covariances, smaller still by the order of s_j/w_j, are left out. Variances and covariances are
    in units of ``scale`` (1 if None) squared, so that extreme units of X do not overflow.

    >>> q = Posterior(np.array([1.0, 0.0]), np.array([4.0, 1e-8]), np.array([0]), np.eye(1) * 4)
    >>> q.full()
    array([[4.e+00, 0.e+00],
           [0.e+00, 1.e-08]])
    """

    def __init__(
        self,
        mean: Array,
        variance: Array,
        active: Array,
        covariance: Array,
        scale: Array | None = None,
    ) -> None:
        self.mean, self.variance, self.active, self.covariance = mean, variance, active, covariance
        self.scale = np.ones(len(mean)) if scale is None else scale

    @property
    def sd(self) -> Array:
        """Standard deviations of all columns."""
        return np.sqrt(self.variance) * self.scale

    def spread(self, X: Array) -> Array:
        """x' S x for every row of X."""
        X = X * self.scale
        inside = X[:, self.active]
        own = np.delete(self.variance, self.active)
        total = (np.delete(X, self.active, axis=1) ** 2) @ own
        return total + np.einsum("ij,ij->i", inside @ self.covariance, inside)

    def times(self, X: Array) -> Array:
        """S x for every row of X."""
        found = X * self.sd**2
        inside = (X * self.scale)[:, self.active] @ self.covariance
        found[:, self.active] = inside * self.scale[self.active]
        return found

    def moved(self, order: Array, scale: Array) -> "Posterior":
        """Of the same coefficients in another order, each times its scale (in the new order)."""
        place = np.argsort(order)[self.active]
        inside = np.argsort(place)
        square = self.covariance[np.ix_(inside, inside)]
        place = place[inside]
        return Posterior(
            self.mean[order] * scale,
            self.variance[order],
            place,
            square,
            self.scale[order] * scale,
        )

    def joined(self, mean: float, variance: float) -> "Posterior":
        """With one more coefficient, independent of the others, at the end."""
        return Posterior(
            np.append(self.mean, mean),
            np.append(self.variance, variance),
            self.active,
            self.covariance,
            np.append(self.scale, 1.0),
        )

    def at(self, mean: Array) -> "Posterior":
        """The same covariance about another mean."""
        moved = copy(self)
        moved.mean = mean
        return moved

    def full(self) -> Array:
        """S as a p x p matrix."""
        S = np.diag(self.variance)
        S[np.ix_(self.active, self.active)] = self.covariance
        return S * self.scale * self.scale[:, None]

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of shape (n, p)."""
        draws = rng.standard_normal((n, len(self.mean)))
        jitter = 1e-14 * np.diag(np.diag(self.covariance))
        inside = draws[:, self.active] @ np.linalg.cholesky(self.covariance + jitter).T
        draws *= self.sd
        draws[:, self.active] = inside * self.scale[self.active]
        return self.mean + draws


class LowRankPosterior(Posterior):
    """N(mean, D - half' half) for p > n with every column in: half = L^-1 X D, LL' = I + X D X'."""

    def __init__(
        self,
        mean: Array,
        diagonal: Array,
        half: Array,
        inverse: Array,
        scale: Array | None = None,
        variance: Array | None = None,  # the diagonal of S, if it is known
    ) -> None:
        if variance is None:
            variance = diagonal - np.einsum("ij,ij->j", half, half)
        self.mean, self.variance = mean, np.maximum(variance, 1e-12 * diagonal)
        self.diagonal, self.half, self.inverse = diagonal, half, inverse
        self.scale = np.ones(len(mean)) if scale is None else scale

    def spread(self, X: Array) -> Array:
        X = X * self.scale
        inside = X @ self.half.T
        return np.maximum((X**2) @ self.diagonal - np.einsum("ij,ij->i", inside, inside), 0.0)

    def times(self, X: Array) -> Array:
        X = X * self.scale
        return (X * self.diagonal - (X @ self.half.T) @ self.half) * self.scale

    def moved(self, order: Array, scale: Array) -> "Posterior":
        return LowRankPosterior(
            self.mean[order] * scale,
            self.diagonal[order],
            self.half[:, order],
            self.inverse,
            self.scale[order] * scale,
            self.variance[order],
        )

    def joined(self, mean: float, variance: float) -> "Posterior":
        return LowRankPosterior(
            np.append(self.mean, mean),
            np.append(self.diagonal, variance),
            np.pad(self.half, ((0, 0), (0, 1))),
            self.inverse,
            np.append(self.scale, 1.0),
            np.append(self.variance, variance),
        )

    def full(self) -> Array:
        S = np.diag(self.diagonal) - self.half.T @ self.half
        return S * self.scale * self.scale[:, None]

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        # u ~ N(0, D), e ~ N(0, I): u - D X' K^-1 (X u + e) ~ N(0, S), in O(n p) a draw
        u = rng.standard_normal((n, len(self.mean))) * np.sqrt(self.diagonal)
        e = rng.standard_normal((n, len(self.inverse)))
        v = self.half @ (u / self.diagonal).T + self.inverse @ e.T
        return self.mean + (u - v.T @ self.half) * self.scale


@dataclass(frozen=True)
class Component:
    """One fit: its q(beta, alpha), the noise of a row, and its place in a mixture.

    ``posterior`` is of the coefficients in the user's units and, last, of the predictor at the mean
    of X (without an intercept: of the coefficients alone).
    """

    posterior: Posterior
    noise: float = 0.0  # variance of a row about its predictor; 0 where the likelihood says it
    noise_shape: float = np.inf  # of q(sigma^2)
    weight: float = 1.0
    # of the predictive variance, not part of the posterior: recalibration, or a sure point's share
    inflation: float = 1.0
    candidate: str = ""  # its label, if confidences were chosen by prediction
    likelihood: Any = None  # with its nuisance parameters as fitted; None: it has none
    noise_degrees: float = np.inf  # of freedom of a row about its predictor; infinite: normal


class PathPoints(NamedTuple):
    """The path of one target in the user's units, a row for each point."""

    columns: dict[str, Any]  # name -> a number for each point
    coef: Array  # (points, p) 0 where dropped
    coef_sd: Array  # (points, p) NaN where dropped or not known
    refit_coef: Array | None = None  # (points, p) at confidence 1, if the path chose its point


@dataclass(frozen=True)
class SparsePoint:
    """One target, or one class against the rest, at the point that its path reports."""

    component: Component  # q of the coefficients and the predictor at the mean of X; the noise
    units: Array  # (p,) of a standardised coefficient
    selected: Array  # (p,) bool
    shrinkage: Array  # (p,) kappa_j, 1 where dropped
    local_scale: Array  # (p,) NaN where the prior is normal
    global_scale: float
    kl: dict[str, float]  # nats of every block
    confidence: float  # gamma_b of the reported point
    objective: Array  # J after every step
    n_iter: int
    converged: bool
    solver: str  # that ran
    path: PathPoints

    @property
    def effective(self) -> float:
        """sum_j (1 - kappa_j)."""
        return float(np.sum(1.0 - self.shrinkage))


def chosen_row(gamma: ArrayLike, reported: float) -> Array:
    """Which row of a path is the reported one.

    >>> chosen_row([1.0, 1.5, 2.0], 1.5)
    array([False,  True, False])
    """
    distance = np.abs(np.asarray(gamma, float) - reported)
    return np.arange(len(distance)) == np.argmin(distance)
