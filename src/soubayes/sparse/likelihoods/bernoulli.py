"""The logistic function averaged over a Gaussian linear predictor, in closed form.

Two classes: the logistic loss, averaged exactly or by the bound of Jaakkola and Jordan.
"""

import numpy as np
from scipy.special import expit, log_ndtr, logsumexp, ndtr

from soubayes.sparse.likelihoods.base import RowLikelihood, RowTerms

Array = np.ndarray

# Monahan and Stefanski (1992): sigma(x) = sum_k p_k Phi(s_k x), with an error below 3e-9
PROBIT_WEIGHTS = np.array(
    [
        0.003246343272134,
        0.051517477033972,
        0.195077912673858,
        0.315569823632818,
        0.274149576158423,
        0.13107688069547,
        0.027912418727972,
        0.001449567805354,
    ]
)
PROBIT_SCALES = np.array(
    [
        1.365340806296348,
        1.059523971016916,
        0.830791313765644,
        0.650732166639391,
        0.508135425366489,
        0.396313345166341,
        0.308904252267995,
        0.238212616409306,
    ]
)


def mean_probability(mean: Array, variance: Array) -> Array:
    """E[sigma(eta)] for eta ~ N(mean, variance), elementwise, for any variance.

    A mixture of eight probits, each of which averages exactly:
    E[Phi(s eta)] = Phi(s mean / sqrt(1 + s^2 variance)).

    >>> mean_probability(np.array([0.0, 2.0]), np.array([9.0, 0.0])).round(6)
    array([0.5     , 0.880797])
    """
    return ndtr(_arguments(mean, variance)) @ PROBIT_WEIGHTS


def log_mean_probability(mean: Array, variance: Array) -> Array:
    """log E[sigma(eta)], also far out, where the probits' tails are too thin.

    There sigma(eta) = exp(eta) up to exp(mean + 3/2 variance) relative, and its mean is
    exp(mean + variance/2).

    >>> log_mean_probability(np.array([-40.0]), np.array([2.0]))
    array([-39.])
    """
    near = logsumexp(log_ndtr(_arguments(mean, variance)), b=PROBIT_WEIGHTS, axis=-1)
    return np.where(mean + 1.5 * variance < -14.0, mean + 0.5 * variance, near)


def average_log_odds(means: Array, variances: Array, weights: Array) -> Array:
    """Log odds of the probability averaged over predictors N(mean, variance), (components, n)."""
    if len(weights) == 1:
        mean, variance = means[0], variances[0]
        return log_mean_probability(mean, variance) - log_mean_probability(-mean, variance)
    up = logsumexp(log_mean_probability(means, variances), b=weights[:, None], axis=0)
    return up - logsumexp(log_mean_probability(-means, variances), b=weights[:, None], axis=0)


def probability_sd(mean: Array, variance: Array) -> Array:
    """The standard deviation of sigma(eta) for eta ~ N(mean, variance).

    From sigma^2 = sigma - sigma' and E[sigma'] = dE[sigma]/dmean.
    """
    scale = PROBIT_SCALES / np.sqrt(1.0 + np.multiply.outer(variance, PROBIT_SCALES**2))
    density = np.exp(-0.5 * _arguments(mean, variance) ** 2) / np.sqrt(2.0 * np.pi)
    p = mean_probability(mean, variance)
    return np.sqrt(np.maximum(p * (1.0 - p) - (scale * density) @ PROBIT_WEIGHTS, 0.0))


def _arguments(mean: Array, variance: Array) -> Array:
    """s_k mean / sqrt(1 + s_k^2 variance), with k as the last axis."""
    mean, variance = np.asarray(mean, float)[..., None], np.asarray(variance, float)[..., None]
    return mean * PROBIT_SCALES / np.sqrt(1.0 + variance * PROBIT_SCALES**2)


class Bernoulli(RowLikelihood):
    """y in {0, 1} with log odds eta; E_q[log(1 + exp(eta))] in closed form.

    The logistic function is a mixture of eight probits (error below 3e-9), each of which averages
    exactly over eta ~ N(m, v): with a = s/sqrt(1 + s^2 v),

        E[log(1 + exp(eta))] = sum_k p_k [ m Phi(a_k m) + phi(a_k m)/a_k ],

    whose derivatives in m are E[sigma(eta)] and E[sigma'(eta)]; in v it is half the second one.
    """

    start_curvature = 0.25  # the largest that the loss has

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """log(1 + exp(eta)) - y eta, sigma(eta) - y, sigma'(eta)."""
        p = expit(eta)
        return np.logaddexp(0.0, eta) - y * eta, p - y, p * expit(-eta)

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """The exact expectation.

        >>> Bernoulli().terms(np.zeros(1), np.zeros(1), np.ones(1)).information.round(6)
        array([0.25])
        """
        a = PROBIT_SCALES / np.sqrt(1.0 + np.multiply.outer(variance, PROBIT_SCALES**2))
        at = a * mean[:, None]
        density = np.exp(-0.5 * at * at) * _ROOT
        below = ndtr(at)
        p = below @ PROBIT_WEIGHTS
        # the formula of the class; p - y and the curvature are its derivatives in m
        loss = mean * (p - y) + (density / a) @ PROBIT_WEIGHTS
        curvature = (density * a) @ PROBIT_WEIGHTS
        return RowTerms(loss, y - p, curvature, curvature)

    def predict(self, mean: Array, variance: Array) -> Array:
        """E[sigma(eta)]."""
        return mean_probability(mean, variance)

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """The log of the averaged probability of y."""
        return log_mean_probability(np.where(y > 0.5, mean, -mean), variance)


class JaakkolaBernoulli(Bernoulli):
    """The bound of the paper: at xi^2 = m^2 + v (the best xi, supplement A.3) the loss is at most

        log(2 cosh(xi/2)) - (y - 1/2) m.

    It is minus the paper's (y - 1/2) m - xi/2 + log sigma(xi) at that xi. The printed objective of
    supplement C.4.3 has +xi/2 and (1 - y) log(1 - sigma(xi)), which is wrong for y = 1. The bound
    overstates the information of a row, so q is too narrow.
    """

    majorises = True

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """The bound at the best xi.

        With f = m^2/xi^2 its second derivative in m is 2 lambda(xi) (1 - f) + sigma'(xi) f.

        >>> JaakkolaBernoulli().terms(np.zeros(1), np.zeros(1), np.ones(1)).information
        array([0.25])
        """
        xi = np.hypot(mean, np.sqrt(variance))
        information = 2.0 * jj_lambda(xi)
        sign = y - 0.5
        loss = 0.5 * xi + np.log1p(np.exp(-xi)) - sign * mean
        share = np.divide(mean * mean, xi * xi, out=np.zeros_like(xi), where=xi > 0)
        p = expit(-xi)
        curvature = information + share * (p * (1.0 - p) - information)
        return RowTerms(loss, sign - information * mean, information, curvature)


def jj_lambda(xi: Array) -> Array:
    """lambda(xi) = (sigma(xi) - 1/2) / (2 xi) = tanh(xi/2) / (4 xi) for xi >= 0, 1/8 at 0."""
    small = xi < 1e-4  # where the series' next term is below 1e-18
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi * xi / 96.0, np.tanh(safe / 2.0) / (4.0 * safe))


_ROOT = 1.0 / np.sqrt(2.0 * np.pi)  # of the normal density
