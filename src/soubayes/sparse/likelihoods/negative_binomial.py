"""Counts that vary more than Poisson counts: negative binomial with mean exp(eta)."""

from functools import lru_cache
from typing import Self

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import betainc, gammaln, logsumexp, xlogy

from soubayes.sparse.constants import DISPERSION_PRIOR
from soubayes.sparse.likelihoods.base import Array, RowTerms, normal_rule
from soubayes.sparse.likelihoods.lognormal import LogNormal
from soubayes.sparse.likelihoods.poisson import Counts

UPDATE_GRID = np.linspace(-4.0, 4.0, 9)  # standard deviations of q(log dispersion) in an update
LEAST_SD = 0.02  # of such a standard deviation: the spacing of the grid stays above rounding
# how many nodes average log(1 + exp(u)) over a normal u with at most this variance, to 1e-9
NODE_COUNTS = (
    (1e-12, 1), (2e-4, 2), (4.7e-3, 3), (0.0197, 4), (0.049, 5), (0.09, 6), (0.13, 7), (0.25, 9),
    (0.5, 14), (1.0, 20), (np.inf, 24),
)  # fmt: skip
LARGEST_U = 700.0  # of u: exp(u) is a number
MOST = 2**14  # counts up to which log Gamma is looked up


class NegativeBinomial(Counts):
    """y has mean mu = exp(eta) and variance mu + a mu^2, with the dispersion a.

    With r = 1/a and t = log r the loss of a row is

        log y! + log Gamma(r) - log Gamma(y + r) + (y + r) log(1 + exp(eta - t)) - y (eta - t).

    q(t) is normal, t ~ N(c, s^2), so u = eta - t is, with the variance V = v + s^2, and

        E[(y + r) log(1 + exp(u))] = y E[f(u)] + E[r] E[f(u - s^2)],   f(u) = log(1 + exp(u)),

    because r = exp(t) tilts the normal distribution of t by s^2: averages of one variable. The
    prior is log a ~ N(-1, 2^2). Where a goes to 0 the counts are Poisson.
    """

    def __init__(self, dispersion: LogNormal, confidence: float = 1.0) -> None:
        self.dispersion, self.confidence = dispersion, confidence
        self.nuisance = "dispersion" if dispersion.sd else None

    @classmethod
    def of(cls, dispersion: float | None, confidence: float = 1.0) -> Self:
        """With a known dispersion, or with one that is estimated (None)."""
        if dispersion is None:
            return cls(LogNormal.prior(*DISPERSION_PRIOR), confidence)
        return cls(LogNormal.known(float(np.log(dispersion))), confidence)

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The loss averaged over the dispersion, and its derivatives in eta."""
        return self._averaged(eta, np.zeros(()), y)

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """By quadrature over u."""
        loss, slope, curvature = self._averaged(mean, variance, y)
        return RowTerms(loss, -slope, curvature, curvature)

    def _averaged(self, mean: Array, variance: Array, y: Array) -> tuple[Array, Array, Array]:
        u, odds, weights, over = self._odds(mean, variance)
        q, less = self.dispersion, self.dispersion.sd**2
        r = q.moment(-1.0)
        if less > 0.0:
            parts = r * _averages(odds * np.exp(-less), weights)
            counts = np.broadcast_to(y, u.shape)
            seen = counts > 0.0  # most counts of many tables are 0
            parts[:, seen] += counts[seen] * _averages(odds[seen], weights)
        else:
            parts = (y + r) * _averages(odds, weights)
        loss, slope, curvature = parts
        return loss + (y + r) * over - y * u + _own(y, *q.nodes), slope - y, curvature

    def _odds(self, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """The mean of u, exp(u) at the nodes of a rule that averages over u, and its weights.

        exp(u) ends at exp(`LARGEST_U`); the last part is the average of what u has beyond it, which
        log(1 + exp(u)) lacks.
        """
        u, wide = mean + self.dispersion.mean, variance + self.dispersion.sd**2  # t = -log a
        most = float(np.max(wide, initial=0.0))
        nodes, weights = normal_rule(next(count for bound, count in NODE_COUNTS if most <= bound))
        at = u[..., None] + np.sqrt(wide)[..., None] * nodes
        over = np.maximum(at - LARGEST_U, 0.0) @ weights
        return u, np.exp(np.minimum(at, LARGEST_U)), weights, over

    def noise(self, eta: Array) -> Array:
        """mu + E[a] mu^2."""
        return np.exp(eta) + self.dispersion.moment(1.0) * np.exp(2.0 * eta)

    @property
    def residual_variance(self) -> float:
        """2 + 6 a - 4 a, as of a known dispersion; less where it is fitted."""
        return 2.0 + 2.0 * float(np.exp(self.dispersion.mean))

    def cdf(self, y: Array, eta: Array) -> Array:
        """P(Y <= y), averaged over the dispersion."""
        log_a, weights = self.dispersion.nodes
        count, total = np.floor(np.maximum(y, 0.0)), 0.0
        for s, w in zip(log_a, weights, strict=True):
            r = np.exp(-s)
            total = total + w * betainc(r, count + 1.0, r / (r + np.exp(eta)))
        return np.where(y < 0.0, 0.0, total)

    def _rough_cdf(self, y: Array, mean: Array, variance: Array) -> Array:
        """At the median dispersion."""
        known = NegativeBinomial(LogNormal.known(self.dispersion.mean))
        return super(NegativeBinomial, known)._rough_cdf(y, mean, variance)

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """Averaged over the dispersion too."""
        log_a, weights = self.dispersion.nodes
        known = [NegativeBinomial(LogNormal.known(float(s))) for s in log_a]
        log_density = [super(NegativeBinomial, one).log_density(mean, variance, y) for one in known]
        return logsumexp(np.stack(log_density), b=weights[:, None], axis=0)

    def deviance(self, y: Array, mean: Array) -> Array:
        """2 [y log(y/mean) - (y + r) log((y + r)/(mean + r))] at the median dispersion 1/r."""
        r, mean = np.exp(-self.dispersion.mean), np.maximum(mean, 1e-300)
        return 2.0 * (xlogy(y, y / mean) - (y + r) * np.log((y + r) / (mean + r)))

    @property
    def kl(self) -> float:
        return self.dispersion.kl

    def statistics(self, mean: Array, variance: Array, y: Array) -> tuple[Array, ...]:
        """The expected loss at every dispersion of a grid about the present q."""
        known = [NegativeBinomial(LogNormal.known(float(log_a))) for log_a in self._grid]
        return tuple(one._known_loss(mean, variance, y) for one in known)

    def _known_loss(self, mean: Array, variance: Array, y: Array) -> Array:
        """The expected loss at a dispersion that is known, without its derivatives."""
        u, odds, weights, over = self._odds(mean, variance)
        soft = np.log(1.0 + odds) @ weights + over
        r = self.dispersion.moment(-1.0)
        return (y + r) * soft - y * u + _own(y, *self.dispersion.nodes)

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
        return q.mean + max(q.sd, LEAST_SD) * UPDATE_GRID


def _averages(odds: Array, weights: Array) -> Array:
    """(3, rows): averages of log(1 + exp(u)) and of two derivatives, from exp(u) at nodes."""
    rest = 1.0 / (1.0 + odds)
    share = odds * rest
    return np.stack([-np.log(rest) @ weights, share @ weights, (share * rest) @ weights])


def _own(y: Array, log_a: Array, weights: Array) -> Array:
    """log y! + E[log Gamma(r) - log Gamma(y + r)]."""
    top = int(np.max(y, initial=0.0))
    if top > MOST:
        return _constants(y, log_a, weights)
    table = _table(1 << top.bit_length(), tuple(log_a.tolist()), tuple(weights.tolist()))
    return table[y.astype(int)]


@lru_cache(maxsize=64)
def _table(top: int, log_a: tuple[float, ...], weights: tuple[float, ...]) -> Array:
    """`_own` of the counts up to ``top``: it is asked for in every pass."""
    return _constants(np.arange(top + 1.0), np.array(log_a), np.array(weights))


def _constants(y: Array, log_a: Array, weights: Array) -> Array:
    r = np.exp(-log_a)
    return gammaln(y + 1.0) + (gammaln(r) - gammaln(y[..., None] + r)) @ weights
