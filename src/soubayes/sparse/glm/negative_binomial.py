"""Counts that vary more than Poisson counts: negative binomial with mean exp(eta)."""

from typing import Self

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import betainc, gammaln, logsumexp, xlogy

from soubayes.sparse.glm.likelihood import Array, RowTerms
from soubayes.sparse.glm.lognormal import LogNormal
from soubayes.sparse.glm.poisson import Counts

PRIOR = -1.0, 2.0  # mean and sd of the logarithm of the dispersion: about 0.007 to 20
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
GRID = np.linspace(-4.0, 4.0, 17)  # standard deviations of q(log dispersion) in an update
LEAST = 0.02  # of such a standard deviation: the spacing of the grid stays above rounding


class NegativeBinomial(Counts):
    """y has mean mu = exp(eta) and variance mu + a mu^2, with the dispersion a.

    With r = 1/a and t = log r the loss of a row is

        log y! + log Gamma(r) - log Gamma(y + r) + (y + r) log(1 + exp(eta - t)) - y (eta - t).

    It is averaged over eta by 20 nodes, and over log a, whose prior is N(-1, 2^2), by 5. Where a
    goes to 0 the counts are Poisson.
    """

    def __init__(self, dispersion: LogNormal, confidence: float = 1.0) -> None:
        self.dispersion, self.confidence = dispersion, confidence
        self.nuisance = "dispersion" if dispersion.sd else None

    @classmethod
    def of(cls, dispersion: float | None, confidence: float = 1.0) -> Self:
        """With a known dispersion, or with one that is estimated (None)."""
        if dispersion is None:
            return cls(LogNormal.prior(*PRIOR), confidence)
        return cls(LogNormal.known(float(np.log(dispersion))), confidence)

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The loss averaged over the dispersion, and its derivatives in eta."""
        log_a, weights = self.dispersion.nodes
        parts = [_derivatives(eta, y, float(np.exp(-s)), -float(s)) for s in log_a]
        loss, slope, curvature = (
            sum(w * part[i] for w, part in zip(weights, parts, strict=True)) for i in range(3)
        )
        return loss, slope, curvature

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """By quadrature over eta and the dispersion."""
        eta = mean[:, None] + np.sqrt(variance)[:, None] * NODES
        parts = self.derivatives(eta, y[:, None])
        loss, slope, curvature = (part @ WEIGHTS for part in parts)
        return RowTerms(loss, -slope, curvature, curvature)

    def noise(self, eta: Array) -> Array:
        """mu + E[a] mu^2."""
        return np.exp(eta) + self.dispersion.moment(1.0) * np.exp(2.0 * eta)

    def cdf(self, y: Array, eta: Array) -> Array:
        """P(Y <= y), averaged over the dispersion."""
        log_a, weights = self.dispersion.nodes
        count, total = np.floor(np.maximum(y, 0.0)), 0.0
        for s, w in zip(log_a, weights, strict=True):
            r = np.exp(-s)
            total = total + w * betainc(r, count + 1.0, r / (r + np.exp(eta)))
        return np.where(y < 0.0, 0.0, total)

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """Averaged over the dispersion too."""
        log_a, weights = self.dispersion.nodes
        known = [NegativeBinomial(LogNormal.known(float(s))) for s in log_a]
        each = [super(NegativeBinomial, one).log_density(mean, variance, y) for one in known]
        return logsumexp(np.stack(each), b=weights[:, None], axis=0)

    def deviance(self, y: Array, mean: Array) -> Array:
        """2 [y log(y/mean) - (y + r) log((y + r)/(mean + r))] at the median dispersion 1/r."""
        r, mean = np.exp(-self.dispersion.mean), np.maximum(mean, 1e-300)
        return 2.0 * (xlogy(y, y / mean) - (y + r) * np.log((y + r) / (mean + r)))

    @property
    def kl(self) -> float:
        return self.dispersion.kl

    def statistics(self, mean: Array, variance: Array, y: Array) -> tuple[Array, ...]:
        """The expected loss at every dispersion of a grid about the present q."""
        eta = mean[:, None] + np.sqrt(variance)[:, None] * NODES
        return tuple(
            _derivatives(eta, y[:, None], float(np.exp(-s)), -float(s))[0] @ WEIGHTS
            for s in self._grid
        )

    def updated(self, totals: tuple[float, ...]) -> Self:
        """With the best q of the dispersion; the loss between the grid's points is a spline."""
        grid = self._grid
        between = CubicSpline(grid, np.array(totals))

        def loss(s: Array) -> Array:
            return between(np.clip(s, grid[0], grid[-1]))

        return type(self)(self.dispersion.best(loss, self.confidence), self.confidence)

    @property
    def _grid(self) -> Array:
        q = self.dispersion
        return q.mean + max(q.sd, LEAST) * GRID


def _derivatives(eta: Array, y: Array, r: float, t: float) -> tuple[Array, Array, Array]:
    """The loss at a known dispersion, and its derivatives in eta."""
    odds = np.exp(np.minimum(eta - t, 700.0))
    share = odds / (1.0 + odds)
    own = gammaln(y + 1.0) + gammaln(r) - gammaln(y + r)
    loss = own + (y + r) * np.log1p(odds) - y * (eta - t)
    return loss, (y + r) * share - y, (y + r) * share / (1.0 + odds)
