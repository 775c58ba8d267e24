"""The logistic function averaged over a Gaussian linear predictor, in closed form."""

import numpy as np
from scipy.special import log_ndtr, logsumexp, ndtr

Array = np.ndarray

# Monahan and Stefanski (1992): sigma(x) = sum_k p_k Phi(s_k x), with an error below 3e-9
WEIGHTS = np.array(
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
SCALES = np.array(
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
    return ndtr(_arguments(mean, variance)) @ WEIGHTS


def log_mean_probability(mean: Array, variance: Array) -> Array:
    """log E[sigma(eta)], also far out, where the probits' tails are too thin.

    There sigma(eta) = exp(eta) up to exp(mean + 3/2 variance) relative, and its mean is
    exp(mean + variance/2).

    >>> log_mean_probability(np.array([-40.0]), np.array([2.0]))
    array([-39.])
    """
    near = logsumexp(log_ndtr(_arguments(mean, variance)), b=WEIGHTS, axis=-1)
    return np.where(mean + 1.5 * variance < -14.0, mean + 0.5 * variance, near)


def probability_sd(mean: Array, variance: Array) -> Array:
    """The standard deviation of sigma(eta) for eta ~ N(mean, variance).

    From sigma^2 = sigma - sigma' and E[sigma'] = dE[sigma]/dmean.
    """
    scale = SCALES / np.sqrt(1.0 + np.multiply.outer(variance, SCALES**2))
    density = np.exp(-0.5 * _arguments(mean, variance) ** 2) / np.sqrt(2.0 * np.pi)
    p = mean_probability(mean, variance)
    return np.sqrt(np.maximum(p * (1.0 - p) - (scale * density) @ WEIGHTS, 0.0))


def _arguments(mean: Array, variance: Array) -> Array:
    """s_k mean / sqrt(1 + s_k^2 variance), with k as the last axis."""
    mean, variance = np.asarray(mean, float)[..., None], np.asarray(variance, float)[..., None]
    return mean * SCALES / np.sqrt(1.0 + variance * SCALES**2)
