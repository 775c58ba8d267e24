"""Positive numbers with mean exp(eta) and a shape: waiting times, costs."""

from typing import Self

import numpy as np
from scipy.special import gammainc, gammaln, logsumexp, polygamma

from soubayes.sparse.constants import SHAPE_SD
from soubayes.sparse.likelihoods.base import Array, RowLikelihood, RowTerms
from soubayes.sparse.likelihoods.lognormal import LogNormal


class Gamma(RowLikelihood):
    """y > 0 is gamma with mean exp(eta) and shape k; shape 1 is the exponential distribution.

    The loss, k (eta + y exp(-eta) - log y) + log Gamma(k) - k log k, is linear in E[k], and
    E[exp(-eta)] = exp(-m + v/2) for eta ~ N(m, v). log k ~ N(0, 2^2) a priori. It is minus the log
    density of log y, so J does not depend on the units of y.
    """

    lowest = 0.0
    log_link = True

    def __init__(self, shape: LogNormal, confidence: float = 1.0) -> None:
        self.shape, self.confidence = shape, confidence
        self.nuisance = "shape" if shape.sd else None

    @classmethod
    def of(cls, shape: float | None, confidence: float = 1.0) -> Self:
        """With a known shape, or with one that is estimated (None)."""
        if shape is None:
            return cls(LogNormal.prior(0.0, SHAPE_SD), confidence)
        return cls(LogNormal.known(float(np.log(shape))), confidence)

    def check(self, y: Array) -> Array:
        """Numbers above 0."""
        y = super().check(y)
        if (y <= 0.0).any():
            raise ValueError(
                f"y has values of 0 or less, the least {y.min():.6g}, but a gamma distribution has "
                "positive values only: remove these rows, or use SoULinearRegression."
            )
        return y

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The loss averaged over the shape, and its derivatives in eta."""
        return self._terms(eta, y * np.exp(-eta), y)

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """The exact expectation."""
        loss, slope, curvature = self._terms(mean, y * np.exp(-mean + variance / 2.0), y)
        return RowTerms(loss, -slope, curvature, curvature)

    def _terms(self, mean: Array, ratio: Array, y: Array) -> tuple[Array, Array, Array]:
        k, rest = self.shape.moment(1.0), self.shape.nodes[1] @ _rest(self.shape.nodes[0])
        # y^(k-1) dy = y^k dlog y: the term log y makes it a density of log y, free of units
        loss = k * (mean + ratio - np.log(y)) + rest
        return loss, k * (1.0 - ratio), k * ratio

    def predict(self, mean: Array, variance: Array) -> Array:
        """E[exp(eta)]."""
        return np.exp(mean + variance / 2.0)

    def noise(self, eta: Array) -> Array:
        """exp(2 eta) E[1/k]."""
        return np.exp(2.0 * eta) * self.shape.moment(-1.0)

    @property
    def residual_variance(self) -> float:
        """2 + 6/k - 4/k (see `Poisson`), less what follows the shape if it is fitted too."""
        k = float(np.exp(self.shape.mean))
        learnt = 1.0 / (k * k * (float(polygamma(1, k)) - 1.0 / k)) if self.nuisance else 0.0
        return 2.0 + 2.0 / k - learnt

    def cdf(self, y: Array, eta: Array) -> Array:
        """P(Y <= y), averaged over the shape."""
        with np.errstate(over="ignore"):  # P is 1 there
            at = np.maximum(y, 0.0) * np.exp(-eta)
        t, weights = self.shape.nodes
        return np.sum([w * gammainc(k, k * at) for k, w in zip(np.exp(t), weights, strict=True)], 0)

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """Of y itself, averaged over the shape too."""
        t, weights = self.shape.nodes
        known = [Gamma(LogNormal.known(float(log_density))) for log_density in t]
        log_density = [super(Gamma, one).log_density(mean, variance, y) for one in known]
        return logsumexp(np.stack(log_density), b=weights[:, None], axis=0) - np.log(y)

    def deviance(self, y: Array, mean: Array) -> Array:
        """2 [(y - mean)/mean - log(y/mean)]."""
        return 2.0 * ((y - mean) / mean - np.log(y / mean))

    def centre(self, mean: float, rows: float) -> float:
        """The logarithm of the mean."""
        return float(np.log(mean))

    @property
    def kl(self) -> float:
        return self.shape.kl

    def statistics(self, mean: Array, variance: Array, y: Array) -> tuple[Array, ...]:
        """What the shape multiplies, and the rows."""
        return mean + y * np.exp(-mean + variance / 2.0) - np.log(y), np.ones_like(y)

    def updated(self, totals: tuple[float, ...]) -> Self:
        """With the best q of the shape."""
        fit, n = totals
        best = self.shape.best(lambda t: np.exp(t) * fit + n * _rest(t), self.confidence)
        return type(self)(best, self.confidence)


def _rest(t: Array) -> Array:
    """log Gamma(k) - k log k at k = exp(t)."""
    k = np.exp(t)
    return gammaln(k) - k * t
