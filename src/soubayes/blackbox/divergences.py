"""Divergences that may take the place of a block's KL (generalised variational inference)."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from numpyro.distributions.kl import kl_divergence

from soubayes._docstrings import fill_docstrings


@fill_docstrings()
@dataclass(frozen=True)
class Renyi:
    r"""Rényi's divergence of a block's guide from its prior.

    Parameters
    ----------
    alpha : float
        The order, above 0 and not 1. As it goes to 1 the divergence becomes the KL.
    num_samples : int, default=64
        Draws of q where there is no closed form. Few draws bias the estimate towards 0.

    Notes
    -----
    .. math::

        D_\alpha(q \,\|\, \pi) = \frac{1}{\alpha - 1} \log \int q^\alpha \pi^{1 - \alpha}

    replaces the KL of eq. 5 of [1]_, as in [2]_. Closed forms are used between normals,
    multivariate normals and gammas. Give it as ``divergence`` to :func:`fit` or :class:`SoUELBO`.

    References
    ----------
    .. [2] J. Knoblauch, J. Jewson and T. Damoulas (2022), "An optimization-centric view on Bayes'
       rule", Journal of Machine Learning Research 23.

    Examples
    --------
    >>> import jax, numpyro.distributions as dist
    >>> q, prior = dist.Normal(1.0, 1.0), dist.Normal(0.0, 1.0)
    >>> print(Renyi(0.5)(q, prior, jax.random.key(0)))  # alpha (difference)^2 / 2
    0.25
    """

    alpha: float
    num_samples: int = 64

    def __post_init__(self) -> None:
        if not self.alpha > 0 or self.alpha == 1:
            raise ValueError(
                f"alpha is {self.alpha}, but it must be greater than 0 and not 1 (1 is KL: leave "
                "the block out of divergence)."
            )

    def __call__(self, q: Any, prior: Any, key: jax.Array) -> jax.Array:
        """The divergence for each batch element, estimated with ``key`` where no form is known."""
        try:
            return _renyi(q, prior, self.alpha)
        except NotImplementedError:
            draws = q.sample(key, (self.num_samples,))
            log_ratio = q.log_prob(draws) - prior.log_prob(draws)
            power = self.alpha - 1.0
            return (logsumexp(power * log_ratio, axis=0) - jnp.log(self.num_samples)) / power


@fill_docstrings()
@dataclass(frozen=True)
class ForwardKL:
    r"""The KL divergence with its arguments exchanged, which makes a guide cover its prior.

    Parameters
    ----------
    num_samples : int, default=64
        Draws of the prior where NumPyro knows no closed form.

    Notes
    -----
    :math:`\mathrm{KL}(\pi \| q)` in the place of :math:`\mathrm{KL}(q \| \pi)` in eq. 5 of [1]_.
    Give it as ``divergence`` to :func:`fit` or :class:`SoUELBO`.

    Examples
    --------
    >>> import jax, numpyro.distributions as dist
    >>> q, prior = dist.Normal(1.0, 1.0), dist.Normal(0.0, 1.0)
    >>> print(ForwardKL()(q, prior, jax.random.key(0)))
    0.5
    """

    num_samples: int = 64

    def __call__(self, q: Any, prior: Any, key: jax.Array) -> jax.Array:
        """The divergence for each batch element, estimated with ``key`` where no form is known."""
        try:
            return kl_divergence(prior, q)
        except NotImplementedError:
            draws = prior.sample(key, (self.num_samples,))
            return jnp.mean(prior.log_prob(draws) - q.log_prob(draws), axis=0)


def _renyi(q: Any, p: Any, alpha: float) -> jax.Array:
    """Closed forms (Gil, Alajaji and Linder 2013); inf where the integral diverges."""
    if isinstance(q, dist.ExpandedDistribution) or isinstance(p, dist.ExpandedDistribution):
        shape = jnp.broadcast_shapes(q.batch_shape, p.batch_shape)
        return jnp.broadcast_to(_renyi(_unexpanded(q), _unexpanded(p), alpha), shape)
    if isinstance(q, dist.Independent) and isinstance(p, dist.Independent):
        if q.reinterpreted_batch_ndims != p.reinterpreted_batch_ndims:
            raise NotImplementedError
        each = _renyi(q.base_dist, p.base_dist, alpha)
        return jnp.sum(each, axis=tuple(range(-q.reinterpreted_batch_ndims, 0)))
    if isinstance(q, dist.Normal) and isinstance(p, dist.Normal):
        mixed = alpha * p.scale**2 + (1 - alpha) * q.scale**2
        safe = jnp.where(mixed > 0, mixed, 1.0)
        logs = jnp.log(p.scale / q.scale) + jnp.log(p.scale**2 / safe) / (2 * (alpha - 1))
        return jnp.where(mixed > 0, logs + alpha * (q.loc - p.loc) ** 2 / (2 * safe), jnp.inf)
    if isinstance(q, dist.MultivariateNormal) and isinstance(p, dist.MultivariateNormal):
        mixed = alpha * p.covariance_matrix + (1 - alpha) * q.covariance_matrix
        root = jnp.linalg.cholesky(mixed)  # NaN where the mixture is not positive definite
        white = jax.scipy.linalg.solve_triangular(root, (q.loc - p.loc)[..., None], lower=True)
        half = _half_log_det(root)
        parts = (1 - alpha) * _half_log_det(q.scale_tril) + alpha * _half_log_det(p.scale_tril)
        value = alpha / 2 * jnp.sum(white**2, axis=(-2, -1)) - (half - parts) / (alpha - 1)
        return jnp.where(jnp.isnan(half), jnp.inf, value)
    if isinstance(q, dist.Gamma) and isinstance(p, dist.Gamma):
        a = alpha * q.concentration + (1 - alpha) * p.concentration
        b = alpha * q.rate + (1 - alpha) * p.rate
        fine = (a > 0) & (b > 0)
        a, b = jnp.where(fine, a, 1.0), jnp.where(fine, b, 1.0)
        logs = alpha * _log_gamma_constant(q) + (1 - alpha) * _log_gamma_constant(p)
        return jnp.where(fine, (logs + gammaln(a) - a * jnp.log(b)) / (alpha - 1), jnp.inf)
    raise NotImplementedError


def _unexpanded(fn: Any) -> Any:
    return fn.base_dist if isinstance(fn, dist.ExpandedDistribution) else fn


def _half_log_det(root: jax.Array) -> jax.Array:
    return jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)


def _log_gamma_constant(fn: Any) -> jax.Array:
    return fn.concentration * jnp.log(fn.rate) - gammaln(fn.concentration)
