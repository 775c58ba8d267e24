"""The losses: categorical outputs, and Gaussian ones with unknown noise precision.

Precision phi of every output has the prior Gamma(a0, b0) and the posterior Gamma(a, b) with
a = a0 + n / (2 gamma_phi), the optimum of the tempered conjugate update; only log b is trained.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import digamma, gammaln


class PrecisionPrior(NamedTuple):
    """Constants of the Gaussian likelihood, computed once in float64 and kept as float32."""

    rate: np.ndarray  # b0 of every output, in units of the scaled target
    prior_shape: np.ndarray  # a0
    shape: np.ndarray  # a
    digamma_shape: np.ndarray
    kl_constant: np.ndarray  # what KL(Gamma(a, b) || Gamma(a0, b0)) holds besides b


def noise_prior(a0: float, b0: np.ndarray, n: float, confidence: float) -> PrecisionPrior:
    """The constants for n rows (their total weight) under the confidence gamma_phi."""
    b0 = np.asarray(b0, float)
    a = a0 + n / (2 * confidence)
    constant = (a - a0) * digamma(a) - gammaln(a) + gammaln(a0) - a0 * np.log(b0) - a
    parts = (b0, a0, a, digamma(a), constant)
    return PrecisionPrior(*(np.asarray(part, np.float32) for part in parts))


def init_noise(prior: PrecisionPrior) -> dict[str, np.ndarray]:
    """q(phi) with mean 1: what a network that predicts nothing finds in scaled units."""
    return {"log_rate": np.full(prior.rate.shape, np.log(prior.shape), np.float32)}


def gaussian_loss(
    outputs: jax.Array, y: jax.Array, noise: dict[str, jax.Array], prior: PrecisionPrior
) -> jax.Array:
    """E_q[-log N(y | outputs, 1/phi)] of every row; both arrays have shape (rows, outputs)."""
    log_rate = noise["log_rate"]
    expected_precision = prior.shape * jnp.exp(-log_rate)
    constant = np.float32(np.log(2 * np.pi)) - prior.digamma_shape + log_rate
    return (constant + expected_precision * (y - outputs) ** 2).sum(axis=-1) / 2


def gaussian_kl(noise: dict[str, jax.Array], prior: PrecisionPrior) -> jax.Array:
    """KL(Gamma(a, b) || Gamma(a0, b0)) in nats, summed over outputs."""
    log_rate = noise["log_rate"]
    curved = prior.prior_shape * log_rate + prior.shape * prior.rate * jnp.exp(-log_rate)
    return (prior.kl_constant + curved).sum()


def categorical_loss(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """-log softmax(outputs)[y] of every row; y holds class numbers."""
    picked = jnp.take_along_axis(outputs, y[:, None].astype(jnp.int32), axis=1)[:, 0]
    return jax.nn.logsumexp(outputs, axis=1) - picked
