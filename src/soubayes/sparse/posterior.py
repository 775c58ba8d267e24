"""q of a fit: normal coefficients with the noise, mixtures of such fits, and a sparse point."""

from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from soubayes.sparse.designs.units import CentredRows

Array = np.ndarray

HALVINGS = 60  # of the bracket of a quantile: to the last digits of float64


class Posterior:
    """N(mean, S): a dense covariance on the active columns, the others independent.

    The others are the dropped columns: they keep their own tiny variances, while their
    covariances, smaller still by the order of s_j/w_j, are left out. Variances and covariances are
    in units of ``scale`` (1 if None) squared, so extreme units of X do not overflow.

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.mean)} coefficients)"

    @property
    def sd(self) -> Array:
        """Standard deviations of all columns."""
        return np.sqrt(self.variance) * self.scale

    def spread(self, X: Any) -> Array:
        """x' S x for every row of X."""
        X = X * self.scale
        inside = X[:, self.active]
        variance = np.delete(self.variance, self.active)
        total = (np.delete(X, self.active, axis=1) ** 2) @ variance
        return total + np.einsum("ij,ij->i", inside @ self.covariance, inside)

    def times(self, X: Array) -> Array:
        """S x for every row of X."""
        product = X * self.sd**2
        inside = (X * self.scale)[:, self.active] @ self.covariance
        product[:, self.active] = inside * self.scale[self.active]
        return product

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

    def placed(self, place: Array, size: int) -> "Posterior":
        """As one of ``size`` coefficients, these at ``place`` (ascending), the others exactly 0."""
        return Posterior(
            spread_out(self.mean, place, size),
            spread_out(self.variance, place, size),
            place[self.active],
            self.covariance,
            spread_out(self.scale, place, size, 1.0),
        )

    def widened(self, factor: float) -> "Posterior":
        """With variances times a factor."""
        wide = copy(self)
        wide.scale = self.scale * np.sqrt(factor)
        return wide

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
        # at the size of rounding: copies of columns make the covariance singular
        jitter = 1e-14 * np.diag(np.diag(self.covariance))
        inside = draws[:, self.active] @ np.linalg.cholesky(self.covariance + jitter).T
        draws *= self.sd
        draws[:, self.active] = inside * self.scale[self.active]
        return self.mean + draws


class LowRankPosterior(Posterior):
    """N(mean, D - half' half) for p > n with every column in: half = T X diag(d), LL' = I + X D X'.

    Fits of the same rows share X, so each of them keeps T (None: the identity), L^-1 and d alone.
    X may be scipy-sparse. Coefficients beyond the columns of X are independent of the others.
    """

    def __init__(
        self,
        mean: Array,
        diagonal: Array,
        X: Any,
        d: Array,
        T: Array | None,
        inverse: Array,  # L^-1
        scale: Array | None = None,
        variance: Array | None = None,  # the diagonal of S, if it is known
    ) -> None:
        self.mean, self.diagonal = mean, diagonal
        self.X, self.d, self.T, self.inverse = X, d, T, inverse
        if variance is None:
            half = self.half
            variance = diagonal - np.einsum("ij,ij->j", half, half)
        self.variance = np.maximum(variance, 1e-12 * diagonal)
        self.scale = np.ones(len(mean)) if scale is None else scale

    @property
    def half(self) -> Array:
        """As a matrix with a column for every coefficient."""
        half = self.X * self.d
        return self._padded(half if self.T is None else self.T @ half)

    def _padded(self, X: Array) -> Array:
        """With zeros for the coefficients beyond the columns of X."""
        more = len(self.mean) - X.shape[1]
        return np.pad(X, ((0, 0), (0, more))) if more else X

    def _outside(self, v: Array) -> Array:
        """v half."""
        return self._padded((v if self.T is None else v @ self.T) @ self.X * self.d)

    def _inside(self, X: Array) -> Array:
        """X half'."""
        inside = (X[:, : len(self.d)] * self.d) @ self.X.T
        return inside if self.T is None else inside @ self.T.T

    def spread(self, X: Array) -> Array:
        X = X * self.scale
        inside = self._inside(X)
        return np.maximum((X**2) @ self.diagonal - np.einsum("ij,ij->i", inside, inside), 0.0)

    def times(self, X: Array) -> Array:
        X = X * self.scale
        return (X * self.diagonal - self._outside(self._inside(X))) * self.scale

    def moved(self, order: Array, scale: Array) -> "Posterior":
        same = np.array_equal(order, np.arange(len(self.d)))
        more = len(self.mean) - len(self.d)
        return LowRankPosterior(
            self.mean[order] * scale,
            self.diagonal[order],
            self.X if same else np.pad(self.X, ((0, 0), (0, more)))[:, order],
            self.d if same else np.pad(self.d, (0, more))[order],
            self.T,
            self.inverse,
            self.scale[order] * scale,
            self.variance[order],
        )

    def placed(self, place: Array, size: int) -> "Posterior":
        inside = place[: len(self.d)]  # columns of X; the intercept has none
        p = size - (len(place) - len(inside))
        return LowRankPosterior(
            spread_out(self.mean, place, size),
            spread_out(self.diagonal, place, size),
            spread_out(np.asarray(self.X), inside, p),
            spread_out(self.d, inside, p),
            self.T,
            self.inverse,
            spread_out(self.scale, place, size, 1.0),
            spread_out(self.variance, place, size),
        )

    def joined(self, mean: float, variance: float) -> "Posterior":
        return LowRankPosterior(
            np.append(self.mean, mean),
            np.append(self.diagonal, variance),
            self.X,
            self.d,
            self.T,
            self.inverse,
            np.append(self.scale, 1.0),
            np.append(self.variance, variance),
        )

    def full(self) -> Array:
        half = self.half
        return (np.diag(self.diagonal) - half.T @ half) * self.scale * self.scale[:, None]

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        # u ~ N(0, D), e ~ N(0, I): u - D X' K^-1 (X u + e) ~ N(0, S), in O(n p) a draw
        u = rng.standard_normal((n, len(self.mean))) * np.sqrt(self.diagonal)
        e = rng.standard_normal((n, len(self.inverse)))
        # a coefficient that is 0 (`placed`) has no variance
        ratio = np.divide(u, self.diagonal, out=np.zeros_like(u), where=self.diagonal > 0.0)
        v = self._inside(ratio) + e @ self.inverse.T
        return self.mean + (u - self._outside(v)) * self.scale


def spread_out(values: Array, place: Array, size: int, other: float = 0.0) -> Array:
    """Values of the last axis at ``place``, another value elsewhere.

    >>> spread_out(np.array([1.0, 2.0]), np.array([0, 2]), 4)
    array([1., 0., 2., 0.])
    """
    whole = np.full((*values.shape[:-1], size), other)
    whole[..., place] = values
    return whole


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
    view: Any = None  # the `ClassView` that ``posterior`` is, of several classes in one model
    dispersion: float = 1.0  # of the residuals; the posterior's variances are multiplied with it

    @property
    def predictive_degrees(self) -> float:
        """Degrees of freedom of a new row, the estimate of the noise included.

        Exact for normal noise. For Student's t reciprocals add up, as excess kurtoses do.
        """
        inverse = 1.0 / self.noise_degrees + 0.5 / self.noise_shape
        return 1.0 / inverse if inverse else np.inf


@dataclass(frozen=True)
class Mixture:
    """Components whose weights sum to 1, one mixture a target or class.

    >>> one = Posterior(np.array([1.0]), np.array([1.0]), np.array([0]), np.eye(1))
    >>> two = Posterior(np.array([3.0]), np.array([1.0]), np.array([0]), np.eye(1))
    >>> both = Mixture((Component(one, weight=0.5), Component(two, weight=0.5)))
    >>> both.mean, both.covariance()
    (array([2.]), array([[2.]]))
    """

    components: tuple[Component, ...]
    power: float = 1.0  # of the odds: recalibration of probabilities
    widen: float = 1.0  # of the predictive variance of likelihoods of rows: recalibration

    @property
    def weights(self) -> Array:
        """They sum to 1."""
        return np.array([component.weight for component in self.components])

    @property
    def noise(self) -> float:
        """The noise variance of a row, averaged over the components."""
        return float(sum(component.weight * component.noise for component in self.components))

    @property
    def noise_degrees(self) -> float:
        """Degrees of freedom of the noise: the harmonic mean of those of the components."""
        inverse = float(
            sum(component.weight / component.noise_degrees for component in self.components)
        )
        return 1.0 / inverse if inverse else np.inf

    @property
    def inflation(self) -> float:
        """The factor of the predictive variance, averaged over the components."""
        # an average of ones is 1 to the last digit, whatever the weights sum to
        return float(
            np.average([component.inflation for component in self.components], weights=self.weights)
        )

    @property
    def mean(self) -> Array:
        """The posterior mean of the coefficients (and of the predictor at the mean of X)."""
        return np.asarray(
            sum(component.weight * component.posterior.mean for component in self.components)
        )

    @property
    def sd(self) -> Array:
        """Standard deviations of the coefficients: within plus between components.

        Squares are taken in units of the largest part, so extreme units do not overflow.
        """
        if len(self.components) == 1:
            return self.components[0].posterior.sd
        mean = self.mean
        inside = np.stack([component.posterior.sd for component in self.components])
        between = np.stack([component.posterior.mean - mean for component in self.components])
        unit = np.maximum(np.maximum(inside, np.abs(between)).max(axis=0), np.finfo(float).tiny)
        square = self.weights @ ((inside / unit) ** 2 + (between / unit) ** 2)
        return np.sqrt(square) * unit

    def covariance(self) -> Array:
        """Within plus between components."""
        mean = self.mean
        total = np.zeros((len(mean), len(mean)))
        for component in self.components:
            off = component.posterior.mean - mean
            # law of total variance: within plus between components
            total += component.weight * (component.posterior.full() + np.outer(off, off))
        return total

    def spread(self, rows: Array) -> Array:
        """Posterior variances of linear combinations, within plus between components."""
        means, spreads = self.predictors(rows)
        return self.weights @ (spreads + (means - self.weights @ means) ** 2)

    def predictors(self, rows: Array | CentredRows) -> tuple[Array, Array]:
        """(components, rows) means and posterior variances of linear combinations."""
        each = np.array([component.posterior.mean for component in self.components])
        means = rows.times(each) if isinstance(rows, CentredRows) else each @ rows.T
        spreads: dict[int, Array] = {}  # components along a path share their covariance
        for component in self.components:
            key = id(component.posterior.variance)
            spreads[key] = spreads[key] if key in spreads else component.posterior.spread(rows)
        return means, np.array(
            [spreads[id(component.posterior.variance)] for component in self.components]
        )

    def predict_each(self, rows: Array | CentredRows) -> tuple[Array, Array]:
        """(components, rows) means and recalibrated variances at rows (x - mean of X, 1)."""
        means, spreads = self.predictors(rows)
        noise = np.array([[component.noise] for component in self.components])
        return means, np.array([[component.inflation] for component in self.components]) * (
            spreads + noise
        )

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of the mixture at rows (x - mean of X, 1)."""
        means, variances = self.predict_each(rows)
        mean = self.weights @ means
        return mean, self.weights @ (variances + (means - mean) ** 2)

    def quantiles(self, rows: Array, levels: Array) -> Array:
        """(rows, levels) quantiles of the predictive mixture of normals or Student's t.

        A t component has the variance of its predictor and noise together, and the degrees of
        freedom of the noise. Those of the estimate of its variance come in as in any t-interval.
        """
        means, variances = self.predict_each(rows)
        degrees = np.array([[component.noise_degrees] for component in self.components])
        sds = np.sqrt(variances * scale_share(degrees))
        predictive = np.array([[component.predictive_degrees] for component in self.components])
        return _quantiles(levels, means, sds, self.weights, predictive).T

    def predictor_quantiles(
        self, rows: Array, levels: Array, more: tuple[Array, Array] | None = None
    ) -> Array:
        """(rows, levels) quantiles of linear combinations of the coefficients, without noise.

        ``more`` is added to the means and variances, (components, rows).
        """
        means, variances = self.predictors(rows)
        if more is not None:
            means, variances = means + more[0], variances + more[1]
        degrees = np.array([[2.0 * component.noise_shape] for component in self.components])
        return _quantiles(levels, means, np.sqrt(variances), self.weights, degrees).T

    def coefficient_quantiles(self, levels: Array, p: int) -> Array:
        """(levels, p) quantiles of the first p coefficients.

        In a component a coefficient is Student's t with the degrees of freedom of its noise.
        """
        parts = self.components
        means = np.stack([component.posterior.mean[:p] for component in parts])
        sds = np.stack([component.posterior.sd[:p] for component in parts])
        degrees = np.array([[2.0 * component.noise_shape] for component in parts])
        return _quantiles(levels, means, sds, self.weights, degrees)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of the coefficients, (n, p), and of the noise variance: a component, then its q."""
        which = rng.choice(len(self.components), n, p=self.weights)
        # a component by its weight, then its coefficients, then its noise ~ scaled inverse gamma
        draws, noise = np.empty((n, len(self.mean))), np.zeros(n)
        for k, component in enumerate(self.components):
            mine = which == k
            count = int(mine.sum())
            draws[mine] = component.posterior.sample(count, rng)
            if component.noise:
                a = component.noise_shape
                spread = a / rng.gamma(a, size=count) if np.isfinite(a) else np.ones(count)
                noise[mine] = component.noise * spread
        return draws, noise


def centred(X: Any, x_mean: Array, mixture: Mixture) -> Any:
    """Rows as a mixture takes them: x - mean of X and, with an intercept, 1."""
    ones = len(mixture.components[0].posterior.mean) > X.shape[1]
    if sp.issparse(X):
        return CentredRows(X, x_mean, ones)
    off = X - x_mean
    if not ones:
        return off
    return np.hstack([off, np.ones((len(X), 1))])


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


def scale_share(degrees: Array) -> Array:
    """The squared scale of Student's t as a share of its variance.

    >>> scale_share(np.array([4.0, np.inf]))
    array([0.5, 1. ])
    """
    return 1.0 - 2.0 / degrees


def _quantiles(levels: Array, means: Array, sds: Array, weights: Array, degrees: Array) -> Array:
    """(levels, columns) quantiles of mixtures of Student's t, (components, columns), by bisection.

    Infinite ``degrees`` of freedom are those of a normal distribution.
    """
    normal, values = np.isinf(degrees), []
    finite = np.where(normal, 1.0, degrees)
    unit = np.where(sds > 0.0, sds, 1.0)
    for level in levels:
        # the quantile of a mixture lies between those of its components
        ends = means + sds * np.where(normal, ndtri(level), stdtrit(finite, level))
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(HALVINGS if len(weights) > 1 else 0):
            middle = 0.5 * (low + high)
            z = (middle - means) / unit
            below = weights @ (
                ndtr(z) if normal.all() else np.where(normal, ndtr(z), stdtr(finite, z))
            )
            low, high = np.where(below < level, middle, low), np.where(below < level, high, middle)
        values.append(0.5 * (low + high))
    return np.stack(values)
