"""The first block's ratio from crossed draws, against closed forms."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from soubayes.draws.crossed import Crossed, crossed_ratios
from soubayes.draws.known import Draws
from soubayes.draws.ratios import _density, ratios
from soubayes.draws.sensitivity import known_draws


def test_the_average_by_hand():
    """r_1 = log mean of pi(theta_2 | theta_1) / pi(theta_2), without a draw's own column."""
    posterior = np.array([[1.0, 2, 3, 1], [3, 4, 2, 2], [5, 6, 1, 4], [2, 2, 6, 8]])
    prior = np.array([[2.0, 3, 1, 4], [4, 9, 3, 4]])
    crossed = Crossed(np.log(posterior), np.log(prior), np.arange(4))
    shares = posterior / prior.mean(axis=0)
    halves = np.array([True, True, False, False])
    every, first, second, fewer = (np.exp(r) for r in crossed_ratios(crossed, halves))
    np.testing.assert_allclose(every, (shares.sum(axis=1) - np.diag(shares)) / 3)
    np.testing.assert_allclose(first[2:], shares[2:, :2].mean(axis=1))
    np.testing.assert_allclose(second[:2], shares[:2, 2:].mean(axis=1))
    np.testing.assert_allclose(first[:2], [shares[0, 1], shares[1, 0]])
    np.testing.assert_allclose(fewer[0], (posterior / prior[0])[0, 1:].mean())


def levels(y, direct=0.0, wide=False):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
    if wide:
        numpyro.sample("others", dist.Normal(mu, 1.0).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(effect + direct * mu, 0.5), obs=y)


def bounded(y):
    top = numpyro.sample("top", dist.LogNormal(0.0, 1.0))
    effect = numpyro.sample("effect", dist.Uniform(0.0, top))
    numpyro.sample("y", dist.Normal(effect, 0.5), obs=y)


def component(y):
    kind = numpyro.sample("kind", dist.Bernoulli(0.3))
    mu = numpyro.sample("mu", dist.Normal(2.0 * kind, 1.0))
    numpyro.sample("y", dist.Normal(mu, 0.7), obs=y)


def draws_of_levels(seed, n=4000):
    rng = np.random.default_rng(seed)
    variance = 1 / (1 / 4 + 1 / 1.25)
    mu = rng.normal(variance * 3.0 / 1.25, np.sqrt(variance), n)
    effect = rng.normal(mu + 0.8 * (3.0 - mu), np.sqrt(0.2))
    exact = stats.norm(variance * 3.0 / 1.25, np.sqrt(variance)).logpdf(mu)
    return {"mu": mu, "effect": effect}, exact - stats.norm(0, 2).logpdf(mu)


def test_two_normal_levels():
    values, exact = draws_of_levels(0)
    known = known_draws(values, levels, (3.0,), {}, None, None)
    found = ratios(known)
    error = np.std(found.best["mu"] - exact)
    half = np.arange(4000) < 2000
    density = _density(known, "mu", half).best - known.log_prior["mu"]
    assert error < 0.5 * np.std(density - exact)
    # halves and the smaller prior sample say how far it can be off
    parts = [found.others[kind]["mu"] for kind in ("first half", "second half", "simple")]
    spread = np.hypot(np.std(parts[0] - parts[1]) / 2, np.std(parts[2] - found.best["mu"]))
    assert error < 3 * spread
    assert abs(np.mean(found.best["mu"] - exact)) < 0.1


def test_a_discrete_first_block():
    rng = np.random.default_rng(1)
    share = np.array([0.7, 0.3]) * stats.norm([0.0, 2.0], np.sqrt(1.49)).pdf(1.2)
    share /= share.sum()
    kind = rng.choice(2, size=4000, p=share)
    mu = rng.normal((2.0 * kind + 1.2 / 0.49) / (1 + 1 / 0.49), np.sqrt(1 / (1 + 1 / 0.49)))
    known = known_draws({"kind": kind, "mu": mu}, component, (1.2,), {}, None, None)
    assert known.crossed is not None
    crossed = crossed_ratios(known.crossed, np.arange(4000) < 2000)[0]
    np.testing.assert_allclose(crossed, np.log(share / [0.7, 0.3])[kind], atol=0.05)


@pytest.mark.parametrize(
    ("model", "settings"),
    [(levels, {"direct": 0.1}), (levels, {"wide": True}), (bounded, {})],
    ids=["the data see it", "too many coordinates", "its bounds move"],
)
def test_where_it_is_not_known(model, settings):
    rng = np.random.default_rng(2)
    values = {"mu": rng.normal(size=400), "effect": rng.uniform(0, 1, 400)}
    if settings.get("wide"):
        values["others"] = rng.normal(size=(400, 3))
    if model is bounded:
        values = {"top": 1 + rng.uniform(size=400), "effect": values["effect"]}
    assert known_draws(values, model, (1.0,), settings, None, None).crossed is None


def test_draws_of_other_libraries_have_none():
    assert Draws.__dataclass_fields__["crossed"].default is None
