"""Feedback between the modules of NumPyro models, against the exact engine."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, init_to_value
from scipy import stats

from soubayes import Block, Model, diagnose, fit, sample_sou, solve_exact
from soubayes.blackbox.modules import check_modules
from soubayes.blackbox.program import abstract_trace, checked_confidence

X, Y = 1.0, 2.5
GAMMA = {"a": 0.7, "b": 1.4}
CASES = [(0.0, "power"), (0.3, "power"), (0.3, "smi"), (1.0, "power")]


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


LARGE = {"num_draws": 4000, "particles": 160, "inner_particles": 48, "temperatures": 5}
SMALL = {"num_draws": 800, "particles": 64, "inner_particles": 16, "temperatures": 4, "moves": 1}


@pytest.mark.parametrize(
    ("eta", "kind", "sizes", "within"),
    [
        *(pytest.param(*case, LARGE, 0.1, marks=pytest.mark.slow) for case in CASES),
        (0.3, "power", SMALL, 0.3),
    ],
)
def test_nested_sampling_against_the_exact_engine(eta, kind, sizes, within):
    settings = {"eta": {"b": eta}, "feedback": kind}
    exact = solve_exact(EXACT, GAMMA, **settings)
    found = sample_sou(pair, X, Y, confidence=GAMMA, **sizes, **settings)
    for name in ("a", "b"):
        assert abs(found.mean(name) - exact.mean(name)) < within * exact.sd(name)
        assert found.sd(name) == pytest.approx(exact.sd(name), rel=within)
        assert found.kl[name] == pytest.approx(exact.kl[name], abs=within)
    assert abs(found.value - exact.value) < 4 * found.value_se
    assert found.expected_loss == pytest.approx(exact.expected_loss, abs=2 * within)


@pytest.mark.parametrize(
    ("eta", "kind", "guide"),
    [
        (0.0, "power", "conditional"),
        pytest.param(0.0, "power", "auto", marks=pytest.mark.slow),
        (0.3, "power", "auto"),
        pytest.param(0.3, "smi", "auto", marks=pytest.mark.slow),
        (1.0, "smi", "auto"),
    ],
)
def test_fits_against_the_exact_engine(eta, kind, guide):
    settings = {"eta": {"b": eta}, "feedback": kind}
    exact = solve_exact(EXACT, GAMMA, **settings)
    found = fit(pair, X, Y, confidence=GAMMA, guide=guide, **settings)
    for name in ("a", "b"):
        assert abs(found.mean(name) - exact.mean(name)) < 0.1 * exact.sd(name)
        assert found.sd(name) == pytest.approx(exact.sd(name), rel=0.07)
        assert found.kl[name] == pytest.approx(exact.kl[name], abs=0.05)
    assert abs(found.value - exact.value) < 4 * found.value_se + 1e-6
    assert found.verdict == "trusted"
    assert set(found.stages["verdict"]) == {"trusted"}
    assert ", ".join(found.stages["blocks"]) == "a, b"
    drawn = found.sample(2000, random_state=1)
    assert abs(drawn["b"].mean() - exact.mean("b")) < 0.15 * exact.sd("b")
    shape = found.log_likelihood(X, Y)
    np.testing.assert_allclose(shape["x"], stats.norm(found.draws["a"], 1).logpdf(X), rtol=1e-6)


def test_a_weight_of_a_module_in_a_fit():
    found = fit(pair, X, Y, weight={"b": 0.25})
    exact = solve_exact(EXACT, weight={"b": 0.25})
    for name in ("a", "b"):
        assert abs(found.mean(name) - exact.mean(name)) < 0.1 * exact.sd(name)
    assert found.expected_loss == pytest.approx(exact.expected_loss, abs=0.05)
    assert found.sensitivity() == found.kl  # J is still minimised


def test_what_a_sequence_of_fits_cannot_do():
    def point(x, y):
        numpyro.sample("a", dist.Delta(0.0))

    cut = {"eta": {"b": 0.0}}
    with pytest.raises(ValueError, match="start= is for a single fit"):
        fit(pair, X, Y, start={"a:loc": 0.0}, **cut)
    with pytest.raises(ValueError, match="a guide of your own draws them together"):
        fit(pair, X, Y, guide=point, **cut)
    with pytest.raises(ValueError, match=r"\['a'\] must be blocks with a finite confidence"):
        fit(pair, X, Y, confidence={"a": 0.0}, **cut)
    with pytest.raises(ValueError, match="check='nuts' samples Bayes' posterior"):
        fit(pair, X, Y, check="nuts", **cut)
    with pytest.raises(ValueError, match="the observed site 'y' is in no module"):
        fit(pair, X, Y, modules={"a": ["x"]}, **cut)


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
    small = {"particles": 64, "inner_particles": 16, "temperatures": 3, "moves": 1}
    for kind in ("power", "smi"):
        settings = {"eta": {"b": 0.6, "c": 0.4}, "feedback": kind}
        grid = dict.fromkeys("abc", np.linspace(-6.0, 7.0, 66))
        wanted = solve_exact(exact, grid=grid, tolerance=0.1, **settings)
        found = sample_sou(model, 1.0, 2.0, confidence={}, budget=3600.0, **small, **settings)
        for name in ("a", "b", "c"):
            assert abs(found.mean(name) - wanted.mean(name)) < 0.2 * wanted.sd(name)
            assert found.kl[name] == pytest.approx(wanted.kl[name], abs=0.2)


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
        ({"modules": ["a"], "eta": {"b": 0.5}}, r"modules is \['a'\], but it must be a mapping"),
    ],
)
def test_bad_modules(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        sample_sou(pair, X, Y, confidence={}, **settings)


def test_the_result_says_what_was_cut():
    small = {"num_draws": 50, "particles": 8, "inner_particles": 8, "temperatures": 2, "moves": 1}
    found = sample_sou(pair, X, Y, confidence={}, eta={"b": 0.0}, **small)
    assert found.eta == {"a": 1.0, "b": 0.0}
    assert "feedback {'b': 0.0}" in repr(found)
    with pytest.raises(ValueError, match="does not minimise J"):
        found.sensitivity()


def test_a_reduced_fit_is_not_diagnosed_as_a_minimum():
    found = fit(pair, X, Y, eta={"b": 0.5}, num_draws=512)
    with pytest.raises(ValueError, match=r"posterior.stages has the verdict"):
        diagnose(found)


HPV = np.array([7, 6, 10, 10, 1, 1, 10, 4, 35, 0, 10, 8, 4])
WOMEN = np.array([111, 71, 162, 188, 145, 215, 166, 37, 173, 143, 229, 696, 93])
CASES_OF_CANCER = np.array([16, 215, 362, 97, 76, 62, 710, 56, 133, 28, 62, 413, 194])
YEARS = np.concatenate(
    [
        [26983, 250930, 829348, 157775, 150467, 352445, 553066],
        [26751, 75815, 150302, 354993, 3683043, 507218],
    ]
)
WIDE = dist.Normal(0.0, np.sqrt(1000.0)).expand([2]).to_event(1)


def cancer(hpv, cases):
    with numpyro.plate("regions", 13):
        phi = numpyro.sample("phi", dist.Uniform(0.0, 1.0))
        numpyro.sample("hpv", dist.Binomial(WOMEN, phi), obs=hpv)
    theta = numpyro.sample("theta", WIDE)
    with numpyro.plate("registries", 13):
        rate = jnp.exp(theta[0] + theta[1] * phi) * YEARS / 1000
        numpyro.sample("cases", dist.Poisson(rate), obs=cases)


def registry(phi, cases):
    """Module 2 at many draws of phi, (draw, region), side by side."""
    with numpyro.plate("draws", len(phi)):
        theta = numpyro.sample("theta", WIDE)
    rate = jnp.exp(theta[:, :1] + theta[:, 1:] * phi) * YEARS / 1000
    numpyro.sample("cases", dist.Poisson(rate).to_event(2), obs=jnp.broadcast_to(cases, phi.shape))


@pytest.mark.slow
@pytest.mark.parametrize(("eta", "least_sd"), [(1.0, 0.8), (0.0, 0.9)], ids=["full", "cut"])
def test_hpv_and_cervical_cancer_against_nuts(eta, least_sd):
    """The full posterior by NUTS; the cut one by NUTS of module 2 nested in draws of module 1."""
    with jax.enable_x64(True):
        if eta:
            sampler = MCMC(NUTS(cancer), num_warmup=1000, num_samples=4000, progress_bar=False)
            sampler.run(jax.random.key(0), HPV, CASES_OF_CANCER)
            error = 1 / np.sqrt(400)  # NUTS has about 500 effective draws of theta
        else:
            rng = np.random.default_rng(0)
            phi = rng.beta(1 + HPV, 1 + WOMEN - HPV, size=(400, 13))
            start = init_to_value(values={"theta": np.tile([-1.7, 13.7], (400, 1))})
            kernel = NUTS(registry, init_strategy=start)
            sampler = MCMC(kernel, num_warmup=500, num_samples=100, progress_bar=False)
            sampler.run(jax.random.key(0), phi, CASES_OF_CANCER)
            error = 1 / np.sqrt(400)
        wanted = np.asarray(sampler.get_samples()["theta"]).reshape(-1, 2)
    found = fit(cancer, HPV, CASES_OF_CANCER, eta={"theta": eta})
    for j in range(2):
        mean, sd = wanted[:, j].mean(), wanted[:, j].std()
        assert abs(found.mean("theta")[j] - mean) < (0.1 + 3 * error) * sd
        assert least_sd < found.sd("theta")[j] / sd < 1.1
    assert found.verdict in ("trusted", "rough")
