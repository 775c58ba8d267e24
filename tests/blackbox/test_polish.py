"""The last phase without noise: Newton's method, mirrored draws, and when it is refused."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, trace
from sklearn.exceptions import ConvergenceWarning

from soubayes import fit
from soubayes.blackbox.polish import Polished, mirrored, newton

descent = importlib.import_module("soubayes.blackbox.descent")
Y = np.array([1.0, 2.0, -0.5])


def minimise(function, start, tol=1e-8):
    steps = []
    with jax.enable_x64(True):
        start = {"x": jnp.asarray(start, float)}
        end = newton(
            jax.jit(jax.value_and_grad(lambda p: function(p["x"]))),
            jax.jit(lambda p: jax.hessian(function)(p["x"])),
            start,
            {"x": 1.0},
            tol,
            lambda step, value, gain: steps.append(value),
        )
    assert np.all(np.diff(steps) <= 0)
    return end, np.asarray(end.params["x"]), steps


def test_newton_crosses_a_bent_valley():
    end, x, _ = minimise(lambda x: 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2, [-1.2, 1.0])
    assert end.converged
    np.testing.assert_allclose(x, 1.0, atol=1e-3)


def test_newton_follows_a_slope_that_fades_beside_a_stiff_direction():
    """exp(x) falls for ever and ever less, as J does in the log scale of what vanishes."""
    end, x, steps = minimise(lambda x: jnp.exp(x[0]) + 5e7 * (x[1] - 3 - x[0]) ** 2, [0.0, 0.0])
    assert end.converged
    assert np.exp(x[0]) < 1e-7
    assert len(steps) < 60
    assert x[1] == pytest.approx(3 + x[0], abs=1e-6)


def test_newton_leaves_alone_what_makes_no_difference():
    _, x, _ = minimise(lambda x: (x[0] - 2) ** 2 + 1e-12 * jnp.exp(-x[1]), [0.0, 0.0])
    np.testing.assert_allclose(x, [2.0, 0.0], atol=1e-3)


def test_mirrored_draws_average_to_the_location():
    def guide():
        numpyro.sample("a", dist.Normal(1.0, 2.0).expand([3]).to_event(1))
        positive = dist.transforms.ExpTransform()
        numpyro.sample("b", dist.TransformedDistribution(dist.Normal(0.5, 1.0), positive))
        numpyro.sample("c", dist.MultivariateNormal(jnp.ones(2), 2 * jnp.eye(2)))
        numpyro.sample("d", dist.Delta(0.25))

    one, two = (
        trace(mirrored(seed(guide, 0), sign, frozenset())).get_trace() for sign in (1.0, -1.0)
    )
    mean = {name: (one[name]["value"] + two[name]["value"]) / 2 for name in "acd"}
    np.testing.assert_allclose(mean["a"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(mean["c"], 1.0, rtol=1e-6)
    assert mean["d"] == 0.25
    assert np.log(one["b"]["value"] * two["b"]["value"]) == pytest.approx(1.0, rel=1e-5)
    assert one["a"]["value"][0] != two["a"]["value"][0]


def location(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    numpyro.sample("y", dist.Normal(mu, 1.0).expand([3]).to_event(1), obs=y)


def location_of(posterior):
    """The location of mu, from the coordinates of its frame."""
    origin, unit, loc = (posterior.params[f"mu:{part}"] for part in ("origin", "unit", "loc"))
    return origin + unit * loc


def test_a_polished_mean_has_no_monte_carlo_error(monkeypatch):
    settings = {"confidence": {"mu": 0.5}, "restarts": 1, "polish": 256}
    rows = []
    posterior = fit(location, Y, **settings, progress=rows.append)
    assert posterior.converged
    assert "newton_step" in rows[-1]
    exact = Y.sum() / (3 + 0.5 / 9)
    assert location_of(posterior) == pytest.approx(exact, abs=1e-5)

    def stop(row):
        if "newton_step" in row:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(location, Y, **settings, progress=stop)

    def overfit(value_and_gradient, hessian, params, units, tol, report):
        return Polished({**params, "mu:loc": params["mu:loc"] + 1.0}, True)

    monkeypatch.setattr(descent, "newton", overfit)
    with pytest.warns(ConvergenceWarning, match="raised it on others.*more draws"):
        kept = fit(location, Y, **settings)
    assert location_of(kept) == pytest.approx(exact, abs=0.05)
    assert not kept.converged


def subsampled(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", 3, subsample_size=2):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=numpyro.subsample(y, event_dim=0))


def positive(y):
    variance = numpyro.sample("variance", dist.InverseGamma(3.0, 2.0))
    numpyro.sample("y", dist.Normal(0.0, jnp.sqrt(variance)).expand([3]).to_event(1), obs=y)


def inverse_gamma(y):
    numpyro.sample("variance", dist.InverseGamma(jnp.exp(numpyro.param("a", 1.0)), 2.0))


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (location, {"polish": -1}, "polish is -1"),
        (location, {"polish": True}, "polish is True, but it must be 'auto', a number of draws"),
        (subsampled, {"polish": 256}, "all rows of every plate"),
        (
            positive,
            {"polish": 256, "guide": inverse_gamma},
            "'variance' is drawn from Inv",
        ),
    ],
)
def test_errors_say_what_to_do(model, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(model, Y, restarts=1, **settings)


def test_a_hessian_that_would_be_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(descent, "MOST_PARAMETERS", 1)
    with pytest.raises(ValueError, match="the guide has 2, more than 1"):
        fit(location, Y, restarts=1, confidence={"mu": 0.5}, polish=256)


def bent(y):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(z - x**2, 0.2), obs=y)


@pytest.mark.parametrize(("trouble", "times"), [("J still fell.", 1), ("", 0)])
def test_a_fit_is_polished_by_itself_only_if_it_has_not_converged(trouble, times, monkeypatch):
    calls = []

    def polished(self, params, key, num_draws):
        calls.append(num_draws)
        return params, ""

    monkeypatch.setattr(descent.Descent, "polished", polished)
    monkeypatch.setattr(
        descent.Descent, "to_convergence", lambda self, params, key: (params, trouble)
    )
    posterior = fit(bent, 1.0, guide="conditional", restarts=1, num_draws=512)
    assert posterior.verdict != "trusted"
    assert posterior.converged
    assert posterior.polished == bool(times)
    assert calls == [1024] * times
