"""Nested Monte Carlo against the quadrature and Gaussian engines."""

import importlib
import signal

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from scenarios import two_level_normal
from soubayes import (
    Block,
    GaussianBlock,
    GaussianModel,
    Model,
    QuadraticLoss,
    sample_sou,
    solve_exact,
    solve_gaussian,
)


def pair(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
    numpyro.sample("y", dist.Normal(effect, 0.5), obs=y)


def agrees(posterior, exact, names, slack=0.0):
    assert abs(posterior.value - exact.value) < 3 * posterior.value_se
    assert posterior.error["rhat"][0] < 1.1
    for name in names:
        draws = posterior.draws[name]
        error = exact.sd(name) / np.sqrt(min(posterior.error["ess"][0], len(draws)))
        assert abs(draws.mean() - exact.mean(name)) < 4 * error + slack
        assert draws.std() == pytest.approx(exact.sd(name), rel=0.2)
        assert posterior.kl[name] == pytest.approx(exact.kl[name], rel=0.25, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("gammas", [(1.0, 1.0), (0.3, 1.0), (3.0, 0.5)], ids=str)
def test_two_gaussian_blocks(gammas):
    scenario = two_level_normal(*gammas)
    posterior = sample_sou(pair, 3.0, confidence=scenario.confidence, random_state=1)
    agrees(posterior, solve_gaussian(scenario.gaussian, scenario.confidence), ("mu", "effect"))
    bias = posterior.error["value_bias"][1]
    assert (bias == 0) == (gammas[0] == gammas[1])  # pseudo-marginal: exact for equal confidences


@pytest.mark.slow
def test_a_scale_and_a_location_against_quadrature():
    y = np.array([0.3, 1.9, 1.1])

    def model(y):
        scale = numpyro.sample("scale", dist.Gamma(2.0, 1.0))
        x = numpyro.sample("x", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(x, 1.0).expand([3]).to_event(1), obs=y)

    blocks = [Block("scale", stats.gamma(2)), Block("x", lambda scale: stats.norm(0, scale))]
    loss = lambda scale, x: -stats.norm(x[..., None], 1).logpdf(y).sum(axis=-1)  # noqa: E731
    confidence = {"scale": 0.5, "x": 2.0}
    exact = solve_exact(Model(blocks, loss), confidence)
    agrees(sample_sou(model, y, confidence=confidence, random_state=2), exact, ("scale", "x"))


@pytest.mark.slow
def test_three_blocks_against_the_gaussian_engine():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        c = numpyro.sample("c", dist.Normal(b, 1.0))
        numpyro.sample("y", dist.Normal(c, 1.0), obs=y)

    gaussian = GaussianModel(
        [
            GaussianBlock("a", [0.0], 1.0),
            GaussianBlock("b", [0.0], 1.0, coef=[[1.0]]),
            GaussianBlock("c", [0.0], 1.0, coef=[[0.0, 1.0]]),
        ],
        QuadraticLoss.least_squares([[0.0, 0.0, 1.0]], [2.0], 1.0),
    )
    confidence = {"a": 1.0, "b": 0.7, "c": 1.5}
    posterior = sample_sou(
        model, 2.0, confidence=confidence, particles=64, inner_particles=16, temperatures=3, moves=1
    )
    agrees(posterior, solve_gaussian(gaussian, confidence), ("a", "b", "c"), slack=0.1)


def many(y):
    for name in "abcd":
        numpyro.sample(name, dist.Normal(0.0, 1.0))


def coin(y):
    numpyro.sample("z", dist.Bernoulli(0.5))


@pytest.mark.parametrize(
    ("model", "confidence", "message"),
    [
        (pair, {"mu": 0.0}, "'mu' is 0.0, but sampling needs"),
        (pair, {"effect": float("inf")}, "'effect' is inf, but sampling needs"),
        (pair, {"nu": 1.0}, "'nu', but the model's blocks are"),
        (many, {}, "4 blocks.*up to 3"),
        (coin, {}, "discrete"),
    ],
)
def test_errors_say_what_to_do(model, confidence, message):
    with pytest.raises(ValueError, match=message):
        sample_sou(model, 1.0, confidence=confidence)


def test_an_interrupt_is_raised(monkeypatch):
    stop = lambda self, u: signal.raise_signal(signal.SIGINT)  # noqa: E731
    monkeypatch.setattr(importlib.import_module("soubayes.blackbox.outer").Outer, "_see", stop)
    with pytest.raises(KeyboardInterrupt):
        sample_sou(pair, 3.0, confidence={})


@pytest.mark.parametrize("name", ["replicates", "particles", "inner_particles"])
def test_one_is_too_few_for_a_standard_error(name):
    with pytest.raises(ValueError, match=f"{name} is 1, but it must be at least 2"):
        sample_sou(pair, 3.0, confidence={}, **{name: 1})


def test_a_run_that_would_take_too_long_is_refused_before_it_begins():
    def three(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        c = numpyro.sample("c", dist.Normal(b, 1.0))
        numpyro.sample("y", dist.Normal(c, 1.0), obs=y)

    with pytest.raises(ValueError, match=r"more than budget=1\. Raise budget=, .*soubayes.fit"):
        sample_sou(three, 2.0, confidence={"a": 0.5}, budget=1.0)


def test_flat_priors_have_no_draws_to_start_from():
    def flat(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(ValueError, match=r"priors of \['mu'\] are flat"):
        sample_sou(flat, 2.0, confidence={})
