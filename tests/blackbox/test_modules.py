"""Feedback between the modules of NumPyro models, against the exact engine."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from soubayes import Block, Model, sample_sou, solve_exact
from soubayes.blackbox.modules import check_modules
from soubayes.blackbox.program import abstract_trace, checked_confidence

X, Y = 1.0, 2.5
GAMMA = {"a": 0.7, "b": 1.4}
CASES = [(0.0, "power"), (0.3, "power"), (0.3, "smi"), (1.0, "power")]
FAST = [(0.3, "smi")]


def pair(x, y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.sample("x", dist.Normal(a, 1.0), obs=x)
    b = numpyro.sample("b", dist.Normal(0.0, 0.8))
    numpyro.sample("y", dist.Normal(a + b, 0.7), obs=y)


EXACT = Model(
    [Block("a", stats.norm(0, 1)), Block("b", stats.norm(0, 0.8))],
    {
        "a": lambda a: -stats.norm(a, 1).logpdf(X),
        "b": lambda a, b: -stats.norm(a + b, 0.7).logpdf(Y),
    },
)


def each(cases, fast):
    return [pytest.param(*c, marks=[] if c in fast else pytest.mark.slow) for c in cases]


@pytest.mark.parametrize(("eta", "kind"), each(CASES, FAST))
def test_nested_sampling_against_the_exact_engine(eta, kind):
    settings = {"eta": {"b": eta}, "feedback": kind}
    exact = solve_exact(EXACT, GAMMA, **settings)
    found = sample_sou(
        pair,
        X,
        Y,
        confidence=GAMMA,
        num_draws=4000,
        particles=160,
        inner_particles=48,
        temperatures=5,
        **settings,
    )
    for name in ("a", "b"):
        assert abs(found.mean(name) - exact.mean(name)) < 0.1 * exact.sd(name)
        assert found.sd(name) == pytest.approx(exact.sd(name), rel=0.1)
        assert found.kl[name] == pytest.approx(exact.kl[name], abs=0.1)
    assert abs(found.value - exact.value) < 4 * found.value_se
    assert found.expected_loss == pytest.approx(exact.expected_loss, abs=0.15)


@pytest.mark.slow
def test_three_blocks_by_nested_sampling():
    def model(x, y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        numpyro.sample("x", dist.Normal(b, 1.0), obs=x)
        c = numpyro.sample("c", dist.Normal(b, 1.0))
        numpyro.sample("y", dist.Normal(c + a, 1.0), obs=y)

    exact = Model(
        [
            Block("a", stats.norm(0, 1)),
            Block("b", lambda a: stats.norm(a, 1)),
            Block("c", lambda a, b: stats.norm(b, 1)),
        ],
        {
            "b": lambda a, b: -stats.norm(b, 1).logpdf(1.0),
            "c": lambda a, b, c: -stats.norm(c + a, 1).logpdf(2.0),
        },
    )
    small = {"particles": 96, "inner_particles": 24, "temperatures": 3, "moves": 1, "budget": 600.0}
    for kind in ("power", "smi"):
        settings = {"eta": {"b": 0.6, "c": 0.4}, "feedback": kind}
        wanted = solve_exact(exact, tolerance=1e-4, **settings)
        found = sample_sou(model, 1.0, 2.0, confidence={}, num_draws=3000, **small, **settings)
        for name in ("a", "b", "c"):
            assert abs(found.mean(name) - wanted.mean(name)) < 0.15 * wanted.sd(name)
            assert found.kl[name] == pytest.approx(wanted.kl[name], abs=0.15)


def modules_of(model, *args, given=None, eta=None):
    sites = abstract_trace(model, args, {})
    owner = checked_confidence({}, {}, sites)[1]
    return check_modules(model, sites, owner, args, {}, given, eta)


def test_an_observed_site_belongs_to_the_last_block_it_depends_on():
    def model(x, y, z):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", 3):
            b = numpyro.sample("b", dist.Normal(a, 1.0))
            numpyro.sample("x", dist.Normal(b, 1.0), obs=x)
        numpyro.sample("y", dist.Normal(a, 1.0), obs=y)
        c = numpyro.sample("c", dist.HalfNormal(1.0))
        numpyro.factor("z", -c * z * a)
        numpyro.factor("fixed", 3.0)

    found = modules_of(model, np.zeros(3), 1.0, 2.0, eta={"b": 0.5})
    assert found.sites == {"a": ("y", "fixed"), "b": ("x",), "c": ("z",)}
    plain = modules_of(model, np.zeros(3), 1.0, 2.0)
    assert plain.is_plain
    assert plain.sites["c"] == ("x", "y", "z", "fixed")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modules": {"a": ["x"]}, "eta": {"b": 0.5}}, "observed site 'y' is in no module"),
        ({"modules": {"a": ["x"], "b": ["x", "y"]}}, "'x' is in several modules"),
        ({"modules": {"a": ["x", "y"]}}, "'y' into the module of 'a', but it depends on 'b'"),
        ({"modules": {"q": ["x"], "b": "y"}}, r"modules names the blocks \['q'\]"),
        ({"modules": {"a": ["x"], "b": ["y", "w"]}}, r"modules names \['w'\], but the observed"),
        ({"eta": {"b": 1.2}}, "eta of 'b' is 1.2"),
        ({"eta": {"y": 0.2}}, "eta names 'y', but the model's blocks are 'a', 'b'"),
        ({"eta": {"b": 0.2}, "feedback": "cut"}, "feedback is 'cut'"),
    ],
)
def test_bad_modules(settings, message):
    with pytest.raises(ValueError, match=message):
        sample_sou(pair, X, Y, confidence={}, **settings)


def test_the_result_says_what_was_cut():
    small = {"num_draws": 50, "particles": 8, "inner_particles": 8, "temperatures": 2, "moves": 1}
    found = sample_sou(pair, X, Y, confidence={}, eta={"b": 0.0}, **small)
    assert found.eta == {"a": 1.0, "b": 0.0}
    assert "feedback {'b': 0.0}" in repr(found)
    with pytest.raises(ValueError, match="does not minimise J"):
        found.sensitivity()
