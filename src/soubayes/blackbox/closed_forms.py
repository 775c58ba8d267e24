"""KLs in closed form that NumPyro lacks, registered beside its own.

They serve the scale mixtures of the paper (supplement A.2): inverse-gamma guides for variances, and
a correlated normal guide for coefficients that are independent given their scales. Registered with
NumPyro, they serve its ``TraceMeanField_ELBO`` as well.
"""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import digamma, gammaln
from numpyro.distributions import kl as numpyro_kl


def _entropy_term(q: Any) -> tuple[Array, Array]:
    """E_q[log q] and E_q[log x] of an inverse gamma."""
    a, b = q.concentration, q.rate
    log_mean = jnp.log(b) - digamma(a)
    return a * jnp.log(b) - gammaln(a) - (a + 1.0) * log_mean - a, log_mean


def _inverse_gamma_exponential(q: Any, p: Any) -> Array:
    own, _ = _entropy_term(q)
    mean = jnp.where(q.concentration > 1, q.rate / (q.concentration - 1.0), jnp.inf)
    return own - jnp.log(p.rate) + p.rate * mean


def _inverse_gammas(q: Any, p: Any) -> Array:
    own, log_mean = _entropy_term(q)
    a, b = p.concentration, p.rate
    prior = a * jnp.log(b) - gammaln(a) - (a + 1.0) * log_mean - b * q.concentration / q.rate
    return own - prior


def _vector_independent(q: Any, p: Any) -> Array:
    base = p.base_dist.base_dist if _expanded(p.base_dist) else p.base_dist
    if not isinstance(base, dist.Normal) or p.reinterpreted_batch_ndims != 1:
        raise NotImplementedError
    variance = jnp.sum(q.scale_tril**2, axis=-1)
    ratio = (variance + (q.loc - base.loc) ** 2) / base.scale**2
    own = jnp.log(jnp.diagonal(q.scale_tril, axis1=-2, axis2=-1))
    return jnp.sum(0.5 * (ratio - 1.0) + jnp.log(base.scale) - own, axis=-1)


def _expanded(fn: Any) -> bool:
    return isinstance(fn, dist.ExpandedDistribution)


numpyro_kl.kl_divergence.add((dist.InverseGamma, dist.Exponential), _inverse_gamma_exponential)
numpyro_kl.kl_divergence.add((dist.InverseGamma, dist.InverseGamma), _inverse_gammas)
numpyro_kl.kl_divergence.add((dist.MultivariateNormal, dist.Independent), _vector_independent)
