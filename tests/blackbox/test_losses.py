"""Robust losses against quadrature, their limits, and what they do to a fit."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize

from soubayes import beta_loss, gamma_loss, hinge_loss, huber_loss, quantile_loss
from soubayes.blackbox.losses import _log_power_integral
from soubayes.blackbox.program import numerics

CONTINUOUS = {
    "normal": (dist.Normal, {"loc": 0.3, "scale": 1.7}, (-np.inf, np.inf)),
    "student": (dist.StudentT, {"df": 4.0, "loc": 0.3, "scale": 1.7}, (-np.inf, np.inf)),
    "laplace": (dist.Laplace, {"loc": 0.3, "scale": 1.7}, (-np.inf, np.inf)),
    "exponential": (dist.Exponential, {"rate": 1.7}, (0, np.inf)),
    "gamma": (dist.Gamma, {"concentration": 2.5, "rate": 1.7}, (0, np.inf)),
}


@pytest.mark.parametrize("family", CONTINUOUS)
def test_power_integrals_against_quadrature(family):
    kind, parameters, limits = CONTINUOUS[family]
    with numerics():
        fn = kind(**parameters)
        density = jax.jit(lambda y: jnp.exp(1.4 * fn.log_prob(y)))
        exact = integrate.quad(lambda y: float(density(y)), *limits, epsabs=1e-9)[0]
        np.testing.assert_allclose(np.exp(_log_power_integral(fn, 1.4)), exact, rtol=1e-6)


def test_power_integrals_of_products_and_finite_supports():
    with numerics():
        scale = jnp.array([0.5, 1.0, 2.0])
        single = _log_power_integral(dist.Normal(0.0, scale), 1.4)
        vector = dist.MultivariateNormal(jnp.zeros(3), scale_tril=jnp.diag(scale))
        product = dist.Normal(jnp.zeros(3), scale).to_event(1)
        for fn in (vector, product):
            np.testing.assert_allclose(_log_power_integral(fn, 1.4), single.sum(), rtol=1e-12)
        expanded = _log_power_integral(dist.Normal(0.0, 2.0).expand([4]), 1.4)
        np.testing.assert_allclose(expanded, np.full(4, single[2]), rtol=1e-12)
        coin = _log_power_integral(dist.Bernoulli(0.3), 1.4)
        np.testing.assert_allclose(np.exp(coin), 0.3**1.4 + 0.7**1.4, rtol=1e-12)
    with pytest.raises(NotImplementedError, match="Weibull"):
        beta_loss(dist.Weibull(1.0, 2.0), 1.0)


@pytest.mark.parametrize("score", [partial(beta_loss, beta=1e-6), partial(gamma_loss, gamma=1e-6)])
def test_scores_tend_to_the_log_likelihood(score):
    with numerics():
        y = jnp.array([-2.0, 0.1, 3.0])
        fn = dist.Normal(0.3, 1.7)
        np.testing.assert_allclose(score(fn, y), -fn.log_prob(y), atol=1e-4)


@pytest.mark.parametrize("score", [partial(beta_loss, beta=0.5), partial(gamma_loss, gamma=0.5)])
def test_scores_are_proper_and_robust(score):
    """The expected score under N(1, 1) is least at (1, 1); an outlier moves the estimate little."""
    with numerics():
        y, weight = np.polynomial.hermite_e.hermegauss(80)
        expected = jax.jit(
            lambda p: jnp.sum(weight * score(dist.Normal(p[0], jnp.exp(p[1])), y + 1.0))
        )
        least = optimize.minimize(expected, [0.5, 0.4], jac=jax.jit(jax.grad(expected)), tol=1e-9)
        np.testing.assert_allclose(least.x, [1.0, 0.0], atol=1e-4)
        clean = jnp.linspace(-1.0, 1.0, 21)
        dirty = jnp.append(clean, 50.0)
        centre = jax.jit(lambda m: jnp.sum(score(dist.Normal(m, 1.0), dirty)))
        assert abs(optimize.minimize_scalar(centre, (-1.0, 1.0)).x) < 1e-3


def test_losses_of_predictions():
    y = np.random.default_rng(0).normal(size=2001)
    at = np.linspace(-2, 2, 401)
    losses = np.asarray(quantile_loss(at[:, None], y, level=0.8).mean(axis=1))
    assert abs(at[losses.argmin()] - np.quantile(y, 0.8)) < 0.011
    error = np.array([-3.0, -0.5, 0.0, 2.0, 2.5])
    by_hand = np.where(abs(error) <= 2, error**2 / 2, 2 * (abs(error) - 1))
    np.testing.assert_allclose(huber_loss(0.0, error, threshold=2.0), by_hand, rtol=1e-6)
    margin = np.array([2.0, 0.5, -1.0])
    np.testing.assert_allclose(hinge_loss(margin, np.array([1, -1, -1])), [0.0, 1.5, 0.0])
    np.testing.assert_allclose(hinge_loss(margin, np.array([True, False, False])), [0, 1.5, 0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: beta_loss(dist.Normal(), 0.0, beta=0.0),
        lambda: gamma_loss(dist.Normal(), 0.0, gamma=-1.0),
        lambda: huber_loss(0.0, 0.0, threshold=0.0),
        lambda: quantile_loss(0.0, 0.0, level=1.0),
    ],
)
def test_bad_settings(call):
    with pytest.raises(ValueError, match="but it must"):
        call()
