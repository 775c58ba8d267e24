"""A weighted mixture of fits: what an estimator predicts from."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from soubayes.sparse.posterior import Component

Array = np.ndarray

BISECTIONS = 60  # halvings of a bracket: to the last digits of float64


@dataclass(frozen=True)
class Mixture:
    """Components whose weights sum to 1, one mixture a target or class.

    >>> from soubayes.sparse.posterior import Posterior
    >>> one = Posterior(np.array([1.0]), np.array([1.0]), np.array([0]), np.eye(1))
    >>> two = Posterior(np.array([3.0]), np.array([1.0]), np.array([0]), np.eye(1))
    >>> both = Mixture((Component(one, weight=0.5), Component(two, weight=0.5)))
    >>> both.mean, both.covariance()
    (array([2.]), array([[2.]]))
    """

    components: tuple[Component, ...]
    power: float = 1.0  # of the odds: recalibration of probabilities
    widen: float = 1.0  # of the predictive variance of counts: their dispersion

    @property
    def weights(self) -> Array:
        """They sum to 1."""
        return np.array([part.weight for part in self.components])

    @property
    def noise(self) -> float:
        """The noise variance of a row, averaged over the components."""
        return float(sum(part.weight * part.noise for part in self.components))

    @property
    def noise_degrees(self) -> float:
        """Degrees of freedom of the noise: the harmonic mean of those of the components."""
        inverse = float(sum(part.weight / part.noise_degrees for part in self.components))
        return 1.0 / inverse if inverse else np.inf

    @property
    def inflation(self) -> float:
        """The factor of the predictive variance, averaged over the components."""
        return float(sum(part.weight * part.inflation for part in self.components))

    @property
    def mean(self) -> Array:
        """The posterior mean of the coefficients (and of the predictor at the mean of X)."""
        return np.asarray(sum(part.weight * part.posterior.mean for part in self.components))

    @property
    def sd(self) -> Array:
        """Standard deviations of the coefficients: within plus between components.

        Squares are taken in units of the largest part, so that extreme units do not overflow.
        """
        if len(self.components) == 1:
            return self.components[0].posterior.sd
        mean = self.mean
        inside = np.stack([part.posterior.sd for part in self.components])
        between = np.stack([part.posterior.mean - mean for part in self.components])
        unit = np.maximum(np.maximum(inside, np.abs(between)).max(axis=0), np.finfo(float).tiny)
        square = self.weights @ ((inside / unit) ** 2 + (between / unit) ** 2)
        return np.sqrt(square) * unit

    def covariance(self) -> Array:
        """Within plus between components."""
        mean = self.mean
        total = np.zeros((len(mean), len(mean)))
        for part in self.components:
            off = part.posterior.mean - mean
            total += part.weight * (part.posterior.full() + np.outer(off, off))
        return total

    def spread(self, rows: Array) -> Array:
        """Posterior variances of linear combinations, within plus between components."""
        means, spreads = self.predictors(rows)
        return self.weights @ (spreads + (means - self.weights @ means) ** 2)

    def predictors(self, rows: Array) -> tuple[Array, Array]:
        """(components, rows) means and posterior variances of linear combinations."""
        means = np.array([part.posterior.mean for part in self.components]) @ rows.T
        spreads: dict[int, Array] = {}  # components along a path share their covariance
        for part in self.components:
            key = id(part.posterior.variance)
            spreads[key] = spreads[key] if key in spreads else part.posterior.spread(rows)
        return means, np.array([spreads[id(part.posterior.variance)] for part in self.components])

    def predict_each(self, rows: Array) -> tuple[Array, Array]:
        """(components, rows) means and recalibrated variances at rows (x - mean of X, 1)."""
        means, spreads = self.predictors(rows)
        noise = np.array([[part.noise] for part in self.components])
        return means, np.array([[part.inflation] for part in self.components]) * (spreads + noise)

    def predict(self, rows: Array) -> tuple[Array, Array]:
        """Mean and variance of the mixture at rows (x - mean of X, 1)."""
        means, variances = self.predict_each(rows)
        mean = self.weights @ means
        return mean, self.weights @ (variances + (means - mean) ** 2)

    def quantiles(self, rows: Array, levels: Array) -> Array:
        """(rows, levels) quantiles of the predictive mixture of normals or Student's t.

        A t component has the variance of its predictor and noise together, and the degrees of
        freedom of the noise.
        """
        means, variances = self.predict_each(rows)
        degrees = np.array([[part.noise_degrees] for part in self.components])
        sds = np.sqrt(variances * scale_share(degrees))
        return _quantiles(levels, means, sds, self.weights, degrees).T

    def predictor_quantiles(self, rows: Array, levels: Array) -> Array:
        """(rows, levels) quantiles of linear combinations of the coefficients, without noise."""
        means, variances = self.predictors(rows)
        degrees = np.array([[2.0 * part.noise_shape] for part in self.components])
        return _quantiles(levels, means, np.sqrt(variances), self.weights, degrees).T

    def coefficient_quantiles(self, levels: Array, p: int) -> Array:
        """(levels, p) quantiles of the first p coefficients.

        In a component a coefficient is Student's t with the degrees of freedom of its noise.
        """
        parts = self.components
        means = np.stack([part.posterior.mean[:p] for part in parts])
        sds = np.stack([part.posterior.sd[:p] for part in parts])
        degrees = np.array([[2.0 * part.noise_shape] for part in parts])
        return _quantiles(levels, means, sds, self.weights, degrees)

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws of the coefficients, (n, p), and of the noise variance: a component, then its q."""
        which = rng.choice(len(self.components), n, p=self.weights)
        draws, noise = np.empty((n, len(self.mean))), np.zeros(n)
        for k, part in enumerate(self.components):
            mine = which == k
            count = int(mine.sum())
            draws[mine] = part.posterior.sample(count, rng)
            if part.noise:
                a = part.noise_shape
                spread = a / rng.gamma(a, size=count) if np.isfinite(a) else np.ones(count)
                noise[mine] = part.noise * spread
        return draws, noise


def centred(X: Array, x_mean: Array, mixture: Mixture) -> Array:
    """Rows as a mixture takes them: x - mean of X and, with an intercept, 1."""
    off = X - x_mean
    if len(mixture.components[0].posterior.mean) == X.shape[1]:
        return off
    return np.hstack([off, np.ones((len(X), 1))])


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
    normal, found = np.isinf(degrees), []
    finite = np.where(normal, 1.0, degrees)
    unit = np.where(sds > 0.0, sds, 1.0)
    for level in levels:
        # the quantile of a mixture lies between those of its components
        ends = means + sds * np.where(normal, ndtri(level), stdtrit(finite, level))
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(BISECTIONS if len(weights) > 1 else 0):
            middle = 0.5 * (low + high)
            z = (middle - means) / unit
            below = weights @ (
                ndtr(z) if normal.all() else np.where(normal, ndtr(z), stdtr(finite, z))
            )
            low, high = np.where(below < level, middle, low), np.where(below < level, high, middle)
        found.append(0.5 * (low + high))
    return np.stack(found)
