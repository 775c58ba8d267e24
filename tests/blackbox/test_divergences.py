"""Divergences against quadrature, and their estimators against their closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import random
from scipy import integrate

from soubayes import ForwardKL, Renyi
from soubayes.blackbox.program import numerics

PAIRS = {
    "normal": (dist.Normal(0.5, 0.7), dist.Normal(0.0, 1.2), -np.inf),
    "gamma": (dist.Gamma(3.0, 2.0), dist.Gamma(2.0, 1.5), 0.0),
}


@pytest.mark.parametrize("family", PAIRS)
@pytest.mark.parametrize("alpha", [0.4, 1.3])
def test_renyi_against_quadrature(family, alpha):
    q, p, low = PAIRS[family]
    with numerics():
        log_mix = jax.jit(lambda x: jnp.exp(alpha * q.log_prob(x) + (1 - alpha) * p.log_prob(x)))
        integral = integrate.quad(lambda x: float(log_mix(x)), low, np.inf, epsabs=1e-10)[0]
        closed = Renyi(alpha)(q, p, random.key(0))
    np.testing.assert_allclose(closed, np.log(integral) / (alpha - 1), rtol=1e-5)


def test_renyi_of_products_and_vectors():
    loc, scale = jnp.array([0.5, -0.2]), jnp.array([0.7, 0.9])
    each = Renyi(0.5)(dist.Normal(loc, scale), dist.Normal(0.0, 1.2).expand([2]), None)
    product = Renyi(0.5)(
        dist.Normal(loc, scale).to_event(1), dist.Normal(jnp.zeros(2), 1.2).to_event(1), None
    )
    vector = Renyi(0.5)(
        dist.MultivariateNormal(loc, scale_tril=jnp.diag(scale)),
        dist.MultivariateNormal(jnp.zeros(2), scale_tril=1.2 * jnp.eye(2)),
        None,
    )
    np.testing.assert_allclose(product, each.sum(), rtol=1e-5)
    np.testing.assert_allclose(vector, each.sum(), rtol=1e-5)
    assert Renyi(5.0)(dist.Normal(0.0, 2.0), dist.Normal(0.0, 1.0), None) == np.inf


def test_renyi_tends_to_kl():
    q, p, _ = PAIRS["normal"]
    with numerics():
        kl = dist.kl_divergence(q, p)
        np.testing.assert_allclose(Renyi(1 + 1e-6)(q, p, None), kl, rtol=1e-4)


@pytest.mark.parametrize("divergence", [Renyi(0.6, num_samples=4000), ForwardKL(num_samples=4000)])
def test_estimators_agree_with_closed_forms(divergence):
    q, p, _ = PAIRS["normal"]
    hidden = dist.TransformedDistribution(q, dist.transforms.AffineTransform(0.0, 1.0))
    closed = divergence(q, p, None)
    run = jax.jit(jax.vmap(lambda key: divergence(hidden, p, key)))
    estimates = np.asarray(run(random.split(random.key(1), 64)))
    error = estimates.std() / np.sqrt(len(estimates))
    assert abs(estimates.mean() - closed) < 4 * error + 1e-3  # 1e-3: log-mean-exp is biased


def test_bad_alpha():
    for alpha in (0.0, 1.0, -2.0):
        with pytest.raises(ValueError, match="must be greater than 0 and not 1"):
            Renyi(alpha)
