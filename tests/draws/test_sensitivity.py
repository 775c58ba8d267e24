"""Sensitivity and reweighting from draws, against the exact engine at the other confidences."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from scenarios import two_level_normal
from soubayes import Block, Discrete, Model, Sensitivity, reweight, sensitivity, solve_exact
from soubayes.draws.ratios import ratios
from soubayes.draws.sensitivity import known_draws

reweight_module = importlib.import_module("soubayes.draws.reweight")
weights_module = importlib.import_module("soubayes.draws.weights")
sensitivity_module = importlib.import_module("soubayes.draws.sensitivity")

PYMC = Path(__file__).parents[1] / "data" / "eight_schools_pymc.nc"
SEEDS = range(20)
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


class Group(dict):
    """A group of an ArviZ object: variables with ``values``, and nothing else of xarray."""

    def __init__(self, variables, chains=4):
        def shaped(x):
            return Variable(np.reshape(x, (chains, -1, *np.shape(x)[1:])))

        super().__init__({name: shaped(np.asarray(x)) for name, x in variables.items()})
        self.data_vars = self


class Variable(NamedTuple):
    values: np.ndarray


@pytest.fixture(autouse=True, scope="module")
def _estimate_once():
    """Several tests look at the same draws: their ratios are estimated once."""
    found = {}

    def once(draws):
        values = draws.values[draws.names[-1]]
        prior = tuple(each.tobytes() for each in draws.log_prior.values())
        key = draws.names, draws.log_likelihood.tobytes(), values.tobytes(), prior
        if key not in found:
            found[key] = ratios(draws)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reweight_module, "ratios", once)
        patch.setattr(sensitivity_module, "ratios", once)
        yield


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


class Tree:
    """What `sensitivity` needs of an ArviZ object."""

    def __init__(self, posterior, log_prior, log_likelihood, chains=4):
        self.posterior = Group(posterior, chains)
        self.log_prior = Group(log_prior, chains)
        self.log_likelihood = Group({"y": log_likelihood}, chains)
        self.order = list(log_prior)


def of_tree(tree, **settings):
    return sensitivity(tree, **{"order": tree.order, **settings})


def weighted(tree, confidence):
    return reweight(tree, confidence=confidence, order=tree.order)


class Case(NamedTuple):
    draw: object  # seed -> Tree
    exact: object  # confidence -> {quantity: (mean, sd)}
    blocks: tuple[str, ...]


def gaussian(seed, n=4000):
    """mu ~ N(0, 2^2), effect | mu ~ N(mu, 1), y = 3 with sd 0.5: independent draws."""
    rng = np.random.default_rng(seed)
    variance = 1 / (1 / 4 + 1 / 1.25)
    mu = rng.normal(variance * 3.0 / 1.25, np.sqrt(variance), n)
    effect = rng.normal(mu + 0.8 * (3.0 - mu), np.sqrt(0.2))
    log_prior = {"mu": stats.norm(0, 2).logpdf(mu), "effect": stats.norm(mu, 1).logpdf(effect)}
    return Tree({"mu": mu, "effect": effect}, log_prior, stats.norm(effect, 0.5).logpdf(3.0))


def gaussian_exact(confidence):
    known = two_level_normal(confidence.get("mu", 1.0), confidence.get("effect", 1.0))
    return {name: (known.mean[name], known.sd[name]) for name in ("mu", "effect")}


def schools(seed, n=4000):
    """tau, mu, theta of eight schools: tau from a fine grid of its marginal, the rest is normal."""
    rng = np.random.default_rng(seed)
    tau = np.linspace(1e-3, 60, 6001)
    variance = tau[:, None] ** 2 + ERROR**2
    precision = (1 / variance).sum(axis=1) + 1 / 400
    centre = (EFFECT / variance).sum(axis=1) / precision
    log_p = (
        stats.halfnorm(scale=10).logpdf(tau)
        - 0.5 * np.log(precision)
        + 0.5 * (precision * centre**2 - (EFFECT**2 / variance + np.log(variance)).sum(axis=1))
    )
    share = np.exp(log_p - log_p.max())
    at = np.interp(rng.uniform(size=n), np.cumsum(share) / share.sum(), tau)
    precision = (1 / (at[:, None] ** 2 + ERROR**2)).sum(axis=1) + 1 / 400
    centre = (EFFECT / (at[:, None] ** 2 + ERROR**2)).sum(axis=1) / precision
    mu = rng.normal(centre, 1 / np.sqrt(precision))
    pull = 1 / (1 / at[:, None] ** 2 + 1 / ERROR**2)
    theta = rng.normal(pull * (EFFECT / ERROR**2 + (mu / at**2)[:, None]), np.sqrt(pull))
    log_prior = {
        "tau": stats.halfnorm(scale=10).logpdf(at),
        "mu": stats.norm(0, 20).logpdf(mu),
        "theta": stats.norm(mu[:, None], at[:, None]).logpdf(theta),
    }
    posterior = {"tau": at, "mu": mu, "theta": theta}
    return Tree(posterior, log_prior, stats.norm(theta, ERROR).logpdf(EFFECT))


def schools_exact(confidence):
    answer = solved_schools(confidence)
    return {name: (float(answer.mean(name)), float(answer.sd(name))) for name in ("tau", "mu")}


def schools_value(confidence):
    return solved_schools(confidence).value


def solved_schools(confidence):
    """theta integrated out by hand at its confidence; tau and mu by the exact engine."""
    gamma = confidence.get("theta", 1.0)

    def loss(tau, mu):
        noise = gamma * ERROR**2
        variance = tau[..., None] ** 2 + noise
        log_z = 0.5 * np.log(noise / variance) - (EFFECT - mu[..., None]) ** 2 / (2 * variance)
        return -gamma * log_z.sum(axis=-1)

    model = Model([Block("tau", stats.halfnorm(scale=10)), Block("mu", stats.norm(0, 20))], loss)
    outer = {name: confidence.get(name, 1.0) for name in ("tau", "mu")}
    return solve_exact(model, outer)


PLACES, SHARES = np.array([-2.0, 0.5, 3.0]), np.array([0.5, 0.3, 0.2])


def mixture(seed, n=4000):
    """A component and a location around it, observed with noise."""
    rng = np.random.default_rng(seed)
    share = SHARES * stats.norm(PLACES, np.sqrt(1 + 0.49)).pdf(1.2)
    component = rng.choice(3, size=n, p=share / share.sum())
    place = PLACES[component]
    mu = rng.normal((place + 1.2 / 0.49) / (1 + 1 / 0.49), np.sqrt(1 / (1 + 1 / 0.49)))
    log_prior = {"component": np.log(SHARES)[component], "mu": stats.norm(place, 1).logpdf(mu)}
    return Tree({"component": component, "mu": mu}, log_prior, stats.norm(mu, 0.7).logpdf(1.2))


def mixture_exact(confidence):
    model = Model(
        [
            Block("component", Discrete(np.arange(3.0), SHARES)),
            Block("mu", lambda c: stats.norm(PLACES[np.asarray(c, int)], 1)),
        ],
        lambda component, mu: (mu - 1.2) ** 2 / (2 * 0.49),
    )
    answer = solve_exact(model, {name: confidence.get(name, 1.0) for name in ("component", "mu")})
    return {n: (float(answer.mean(n)), float(answer.sd(n))) for n in ("component", "mu")}


CASES = {
    "gaussian": Case(gaussian, gaussian_exact, ("mu", "effect")),
    "schools": Case(schools, schools_exact, ("tau", "mu", "theta")),
    "mixture": Case(mixture, mixture_exact, ("component", "mu")),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_within_three_standard_errors_for_twenty_seeds(name):
    draw, exact, blocks = CASES[name]
    at_one = exact({})
    slopes = {}
    for block in blocks:
        up, down = exact({block: 1.01}), exact({block: 0.99})
        for q, (_, sd) in at_one.items():
            change = [(up[q][i] - down[q][i]) / 0.02 / sd for i in (0, 1)]
            slopes[q, block] = change
    for q in at_one:  # J, all confidences and the loss times a number, has the same minimum
        slopes[q, "likelihood"] = -np.sum([slopes[q, block] for block in blocks], axis=0)
    errors = []
    for seed in SEEDS:
        found = of_tree(draw(seed), quantities=list(at_one)).derivatives
        for i, key in enumerate(zip(found["quantity"], found["block"], strict=True)):
            for j, title in enumerate(("mean", "sd")):
                errors.append((found[title][i] - slopes[key][j]) / found[f"{title}_se"][i])
    assert np.max(np.abs(errors)) < 3
    assert 0.4 < np.std(errors) < 1.3  # errors that are neither too small nor a mile wide


WITHIN = {  # confidences that the weights can reach
    "gaussian": [{"mu": 0.5}, {"effect": 0.6}, {"mu": 1.3, "effect": 1.3}, {"effect": 1.5}],
    "schools": [{"tau": 0.5}, {"mu": 1.5}, {"theta": 0.7}, {"tau": 2.0, "theta": 1.5}],
    "mixture": [{"component": 0.5}, {"mu": 0.6}, {"mu": 1.5}],
}


@pytest.mark.parametrize("name", CASES)
def test_reweighted_means_within_three_standard_errors_for_twenty_seeds(name):
    draw, exact, _ = CASES[name]
    answers = [exact(confidence) for confidence in WITHIN[name]]
    errors = []
    for seed in SEEDS:
        confidence = WITHIN[name][seed % len(answers)]
        found = weighted(draw(seed), confidence)
        for q, (mean, sd) in answers[seed % len(answers)].items():
            errors.append((found.mean(q) - mean) / found.mean_se(q))
            assert found.sd(q) == pytest.approx(sd, rel=0.15)
    assert np.max(np.abs(errors)) < 3


BEYOND = {  # and some that they cannot
    "gaussian": [{"mu": 6.0}, {"effect": 0.1}, {"mu": 0.02}],
    "schools": [{"theta": 0.05}, {"tau": 30.0}, {"theta": 6.0}],
    "mixture": [{"mu": 0.05}, {"mu": 8.0}],
}


def test_weights_that_fail_are_refused():
    """The first 20 cases in which the exact mean shows that the weights fail, by a quarter sd."""
    refused = []
    answers = {name: [case.exact(c) for c in BEYOND[name]] for name, case in CASES.items()}
    for seed in SEEDS:
        for name, case in CASES.items():
            for confidence, answer in zip(BEYOND[name], answers[name], strict=True):
                tree = case.draw(100 + seed)
                weights = unchecked(tree, confidence)
                misses = [
                    abs(weights @ np.ravel(tree.posterior[q].values) - mean) / sd
                    for q, (mean, sd) in answer.items()
                ]
                if max(misses) > 0.25 and len(refused) < 20:
                    refused.append(refuses(tree, confidence))
        if len(refused) == 20:
            break
    assert len(refused) == 20
    assert sum(refused) >= 18


def unchecked(tree, confidence):
    known = known_draws(tree, None, (), {}, tree.order, None)
    gammas = {name: confidence.get(name, 1.0) for name in known.names}
    best = reweight_module.ratios(known).best
    log_weight = weights_module.log_weights(known, gammas, best).log_weight
    return weights_module.normalised_weights(log_weight)


def refuses(tree, confidence):
    try:
        weighted(tree, confidence)
    except ValueError as error:
        return "Fit it with soubayes.fit" in str(error)
    return False


def test_at_confidence_one_nothing_changes():
    tree = gaussian(0)
    same = weighted(tree, {})
    np.testing.assert_array_equal(same.weights, np.full(4000, 1 / 4000))
    assert same.effective == pytest.approx(4000)
    assert same.mean("mu") == pytest.approx(tree.posterior["mu"].values.mean())
    assert sorted(same.sample(4000)["mu"]) == sorted(tree.posterior["mu"].values.ravel())
    tempered = weighted(tree, {"mu": 1.25, "effect": 1.25})  # one tempered block: no C anywhere
    log_likelihood = tree.log_likelihood["y"].values.ravel()
    by_hand = np.exp((1 / 1.25 - 1) * log_likelihood)
    np.testing.assert_allclose(tempered.weights, by_hand / by_hand.sum(), rtol=1e-10)
    table = tempered.summary()
    assert list(table["quantity"]) == ["mu", "effect"]
    assert np.all(table["lower"] < table["mean"])
    assert np.all(table["mean"] < table["upper"])
    assert tempered.to_arviz(50).posterior["mu"].shape == (1, 50)


def test_blocks_add_up_to_the_power_of_the_likelihood():
    """ArviZ's power scaling by alpha: d E[f] / d alpha = Cov(f, log likelihood)."""
    tree = schools(3)
    found = of_tree(tree, quantities=["tau", "mu"]).derivatives
    total = np.ravel(tree.log_likelihood["y"].values.sum(axis=2))
    for q in ("tau", "mu"):
        x = tree.posterior[q].values.ravel()
        rows = (found["quantity"] == q) & (found["block"] != "likelihood")
        summed = found["mean"][rows].sum()
        assert -summed == pytest.approx(np.cov(x, total, ddof=0)[0, 1] / x.std())
        means = []  # ArviZ smooths the largest weights, so this agrees to a few per cent
        for alpha in (0.999, 1.001):
            weights = np.exp(array_stats.power_scale_lw(total, alpha=alpha))
            means.append(weights @ x / weights.sum())
        assert -summed == pytest.approx((means[1] - means[0]) / 0.002 / x.std(), rel=0.1)


def test_the_table_of_blocks():
    blocks = of_tree(gaussian(1)).blocks
    known = two_level_normal(1.0, 1.0).kl
    for block, kl, error in zip(blocks["block"], blocks["kl"], blocks["kl_se"], strict=True):
        assert abs(kl - known[block]) < 4 * error
    assert list(blocks["diagnosis"]) == ["informed by prior and data"] * 2  # y is 1.3 sds out


@pytest.mark.parametrize(
    ("prior_sd", "y", "words"),
    [(0.1, 1.0, "strong prior or weak likelihood"), (0.5, 6.0, "prior-data conflict"),
     (50.0, 1.0, "informed by the data"), (1.0, 0.0, "prior and data agree")],
)  # fmt: skip
def test_diagnoses(prior_sd, y, words):
    """One mean, observed with sd 1 (0.1 for the wide prior)."""
    noise = 0.1 if prior_sd > 1 else 1.0
    noise = 5.0 if prior_sd < 0.2 else noise
    variance = 1 / (1 / prior_sd**2 + 1 / noise**2)
    mu = np.random.default_rng(0).normal(variance * y / noise**2, np.sqrt(variance), 4000)
    log_prior = {"mu": stats.norm(0, prior_sd).logpdf(mu)}
    found = of_tree(Tree({"mu": mu}, log_prior, stats.norm(mu, noise).logpdf(y)))
    assert found.blocks["diagnosis"][0] == words


@pytest.mark.parametrize(
    ("change", "error", "unclear"),
    [([0.02], [0.2], True), ([0.02], [0.05], False), ([1.6, 0.0], [0.12, 0.12], False),
     ([0.3, 0.0], [0.15, 0.02], True)],
)  # fmt: skip
def test_errors_matter_where_they_can_hide_a_large_change(change, error, unclear):
    assert sensitivity_module._unclear(np.array(change), np.array(error)) is unclear


def test_groups_quantities_quantiles_and_the_plot():
    tree = gaussian(2)
    mu, effect = (tree.posterior[n].values for n in ("mu", "effect"))
    found = of_tree(
        tree,
        order=["both"],
        groups={"both": ["mu", "effect"]},
        quantities={"gap": effect - mu},
        quantiles=0.5,
    )
    assert found.derivatives["block"].tolist() == ["both", "likelihood"]
    assert list(found.derivatives)[-2:] == ["q50", "q50_se"]
    total = tree.log_likelihood["y"].values.ravel()
    gap = (effect - mu).ravel()
    by_hand = -np.cov(gap, total, ddof=0)[0, 1] / gap.std()
    assert found.derivatives["mean"][0] == pytest.approx(by_hand)
    # normal draws: the median moves as the mean does, up to noise
    assert abs(found.derivatives["q50"][0] - by_hand) < 4 * found.derivatives["q50_se"][0]
    assert "both" in repr(found)
    axes = found.plot()
    assert axes.get_yticklabels()[0].get_text() == "gap"


def change(**parts):
    tree = gaussian(0)
    for name, value in parts.items():
        setattr(tree, name, value)
    return tree


def stuck():
    tree = gaussian(0)
    tree.posterior["mu"].values[0] += 5.0
    return tree


def constant():
    tree = gaussian(0)
    tree.posterior["mu"].values[:] = 2.0
    return tree


def uneven():
    tree = gaussian(0)
    tree.log_prior = Group({name: x.values.ravel() for name, x in tree.log_prior.items()}, chains=2)
    return tree


def diverged():
    tree = gaussian(0)
    tree.sample_stats = Group({"diverging": np.arange(4000) % 20 == 0})
    return tree


def of_top_level_only():
    """As `pm.compute_log_prior(data, var_names=["tau", "mu"])` leaves it."""
    tree = schools(0)
    del tree.log_prior["theta"]
    tree.order = ["tau", "mu"]
    return tree


@pytest.mark.parametrize(
    ("tree", "settings", "message"),
    [
        (change(log_prior=None), {}, "no group 'log_prior'.*Pass the model as well"),
        (change(log_likelihood=None), {}, "no group 'log_likelihood'"),
        (change(log_prior=Group({})), {}, "no group 'log_prior', or nothing in it"),
        (change(log_likelihood=Group({})), {}, "no group 'log_likelihood', or nothing in it"),
        (change(posterior=None), {}, "a Tree without the group 'posterior'"),
        (
            of_top_level_only(),
            {},
            r"not follow from \['tau', 'mu'\].*\['theta'\].*log_prior of all",
        ),
        (gaussian(0), {"quantity": "mu"}, r"a model were given \(quantity\), but no model"),
        (gaussian(0), {"groups": {"a": ["mu"], "b": ["mu"]}}, "'mu' in both 'a' and 'b'"),
        (gaussian(0), {"groups": {"mu": ["effect"]}}, "a block 'mu', which is a latent site outs"),
        (gaussian(0), {"quantiles": [1.5]}, "each must lie between 0 and 1"),
        (gaussian(0), {"groups": {"a": ["nu"]}}, r"groups puts 'nu' in 'a'.*\['mu', 'effect'\]"),
        (gaussian(0), {"quantities": ["nu"]}, "no 'nu' in the draws"),
        (gaussian(0), {"quantities": {"x": np.zeros(7)}}, "'x' has 7 draws, and there are 4000"),
        (gaussian(0, 200), {}, "there are 200 draws"),
        (constant(), {}, "the draws of 'mu' are constant"),
        (stuck(), {}, "the chains do not agree about 'mu'"),
        (diverged(), {}, "5.0% of the transitions diverged"),
        (gaussian(0), {"order": None}, r"\['effect', 'mu'\] in no particular order.*order="),
        (
            uneven(),
            {},
            r"'mu' in 'log_prior' begins with the shape \(2, 2000\).*same \(chain, draw\)",
        ),
        (gaussian(0), {"order": "mu"}, r"order is \['mu'\]"),
        (gaussian(0), {"quantities": []}, "quantities is empty"),
        (gaussian(0), {"order": ["mu"]}, r"order is \['mu'\], but the blocks are"),
    ],
)
def test_errors_say_what_to_do(tree, settings, message):
    with pytest.raises(ValueError, match=message):
        of_tree(tree, **settings)


@pytest.mark.parametrize(
    ("confidence", "message"),
    [({"nu": 1.0}, "nu"), ({"mu": np.inf}, "finite confidences"), ({"mu": -1.0}, "mu")],
)
def test_confidences_are_checked(confidence, message):
    with pytest.raises(ValueError, match=message):
        weighted(gaussian(0), confidence)


def test_a_confidence_is_a_mapping():
    with pytest.raises(TypeError, match=r"confidence is 0.5, but it must be a mapping"):
        weighted(gaussian(0), 0.5)


def test_a_real_tree_with_odd_names_in_another_order_of_axes():
    from_dict = pytest.importorskip("arviz_base").from_dict
    names = {"mu": "µ [the mean]", "effect": "values"}
    tree = gaussian(0)
    groups = {
        group: {names[name]: x.values for name, x in getattr(tree, group).items()}
        for group in ("posterior", "log_prior")
    }
    log_likelihood = {"y": tree.log_likelihood["y"].values}
    twice = {"twice": 2 * tree.posterior["mu"].values}  # without a prior, but no latent variable
    groups = {"posterior": groups["posterior"] | twice, "log_prior": groups["log_prior"]}
    real = from_dict({**groups, "log_likelihood": log_likelihood})
    expected = of_tree(tree, quantities=["effect"]).derivatives
    turned = real.map_over_datasets(lambda g: g.transpose("draw", "chain", missing_dims="ignore"))
    for data in (real, turned):
        found = sensitivity(data, order=list(names.values()), quantities="values")
        assert found.derivatives["block"].tolist() == [*names.values(), "likelihood"]
        np.testing.assert_array_equal(found.derivatives["mean_se"], expected["mean_se"])
    again = reweight(real, confidence={"values": 0.8}, order=list(names.values()))
    assert again.mean("twice") == pytest.approx(2 * weighted(tree, {"effect": 0.8}).mean("mu"))
    assert repr(again).startswith("Reweighted(confidence {'µ [the mean]': 1.0, 'values': 0.8}")
    assert len(repr(again).splitlines()) == 1 + 1 + 3


def test_an_object_written_by_pymc_needs_no_numpyro():
    """Eight schools in PyMC (tests/data), in a process of its own."""
    script = f"""
import sys
import numpy as np, xarray
from scipy import stats
from soubayes import reweight, sensitivity
data = xarray.open_datatree({str(PYMC)!r}, engine="h5netcdf")
tau = data.posterior["tau"].values
by_hand = stats.halfnorm(scale=10).logpdf(tau)  # the density that PyMC means is that of tau
assert np.allclose(data.log_prior["tau"].values, by_hand, atol=1e-3)
order = ["tau", "mu", "z"]
found = sensitivity(data, order=order, quantities=["tau", "mu"])
row = (found.derivatives["quantity"] == "tau") & (found.derivatives["block"] == "tau")
print(found.derivatives["mean"][row][0], found.derivatives["mean_se"][row][0])
weighted = reweight(data, confidence={{"tau": 0.7}}, order=order)
print(weighted.mean("tau"), weighted.mean_se("tau"))
assert not {{"jax", "numpyro"}} & set(sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (slope, slope_se), (mean, mean_se) = (
        map(float, line.split()) for line in run.stdout.split("\n")[:2]
    )
    at = schools_exact({})["tau"]
    exact = (schools_exact({"tau": 1.01})["tau"][0] - schools_exact({"tau": 0.99})["tau"][0]) / 0.02
    assert abs(slope - exact / at[1]) < 4 * slope_se
    assert abs(mean - schools_exact({"tau": 0.7})["tau"][0]) < 4 * mean_se


def test_a_numpyro_model_says_the_same():
    """Priors, likelihood and coordinates from the model: the same draws, the same answer."""
    numpyro = pytest.importorskip("numpyro")
    dist = pytest.importorskip("numpyro.distributions")

    def model(effect, error):
        tau = numpyro.sample("tau", dist.HalfNormal(10.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 20.0))
        with numpyro.plate("schools", 8):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("effect", dist.Normal(theta, error), obs=effect)

    tree = schools(0)
    expected = of_tree(tree, quantities=["tau"])
    draws = {name: variable.values for name, variable in tree.posterior.items()}
    found = sensitivity(draws, model, EFFECT, ERROR, quantities=["tau"])
    for title in ("mean", "mean_se", "sd", "q5"):
        np.testing.assert_allclose(
            found.derivatives[title], expected.derivatives[title], rtol=1e-5, atol=1e-6
        )
    np.testing.assert_allclose(found.blocks["kl"][:2], expected.blocks["kl"][:2], rtol=1e-5)
    # without the model the funnel of theta has no density that is good enough, and its KL none
    assert np.isnan(expected.blocks["kl"][2])
    for block, kl, error in zip(*(found.blocks[t] for t in ("block", "kl", "kl_se")), strict=True):
        exact = (schools_value({block: 1.01}) - schools_value({block: 0.99})) / 0.02
        assert abs(kl - exact) < 3 * error
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in draws.items()}

    class Sampler:
        """The part of numpyro's MCMC that is used."""

        def __init__(self, diverging):
            self.diverging = diverging

        def get_samples(self, group_by_chain):
            return draws

        def get_extra_fields(self):
            return {"diverging": self.diverging}

    again = reweight(Sampler(np.zeros(4000)), model, EFFECT, ERROR, confidence={"tau": 0.7})
    assert again.mean("tau") == pytest.approx(weighted(tree, {"tau": 0.7}).mean("tau"), rel=1e-5)
    with pytest.raises(ValueError, match="order is for draws without a model"):
        sensitivity(draws, model, EFFECT, ERROR, order=["tau", "mu", "theta"])
    with pytest.raises(ValueError, match="say nothing of priors"):
        sensitivity(draws)
    with pytest.raises(ValueError, match="transitions diverged"):
        sensitivity(Sampler(np.ones(4000)), model, EFFECT, ERROR)
    with pytest.raises(ValueError, match=r"the draws lack \['mu'\]"):
        sensitivity({"tau": flat["tau"], "theta": flat["theta"]}, model, EFFECT, ERROR)
    arviz = Tree(flat, {"tau": flat["tau"]}, flat["tau"])  # the model knows the densities
    again = sensitivity(arviz, model, EFFECT, ERROR, quantities=["tau"])
    np.testing.assert_array_equal(again.derivatives["mean"], found.derivatives["mean"])
    with pytest.raises(ValueError, match="there are 3999 draws of 'mu' and 4000 of 'tau'"):
        sensitivity({**flat, "mu": flat["mu"][1:]}, model, EFFECT, ERROR)
    with pytest.raises(ValueError, match=r"draws of 'theta' are constant \(0\)"):
        sensitivity({**flat, "theta": 0 * flat["theta"]}, model, EFFECT, ERROR)
    with pytest.raises(ValueError, match=r"cannot be run with these arguments \(.*\). Pass those"):
        sensitivity(flat, model, EFFECT)
    with pytest.raises(ValueError, match="model is a str, but it must be a model of PyMC"):
        sensitivity(flat, "model", EFFECT, ERROR)
    with pytest.raises(ValueError, match="draws of 'theta' have shape"):
        sensitivity({**flat, "theta": flat["theta"][:, :3]}, model, EFFECT, ERROR)


def test_a_model_that_nuts_ran_in_single_precision_runs_in_double():
    # with JAX from 0.9.2 on integers that a model closes over keep their first type
    jax = pytest.importorskip("jax")
    numpyro = pytest.importorskip("numpyro")
    dist = pytest.importorskip("numpyro.distributions")
    group, y = np.arange(12) % 3, np.linspace(-1.0, 1.0, 12)

    def given(y, group):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("groups", 3):
            level = numpyro.sample("level", dist.Normal(mu, 1.0))
        numpyro.sample("y", dist.Normal(level[group], 1.0), obs=y)

    def closed(y):
        given(y, group)

    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(closed), num_warmup=100, num_samples=1000, progress_bar=False
    )
    sampler.run(jax.random.key(0), y)
    draws = sampler.get_samples()
    found = sensitivity(draws, closed, y)
    expected = sensitivity(draws, given, y, group)
    np.testing.assert_allclose(found.blocks["kl"], expected.blocks["kl"], rtol=1e-10)


def test_priors_that_a_confidence_cannot_mean_are_refused():
    numpyro = pytest.importorskip("numpyro")
    dist = pytest.importorskip("numpyro.distributions")

    def flat(y):
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    def chain(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        c = numpyro.sample("c", dist.Normal(b, 1.0))
        numpyro.sample("y", dist.Normal(c, 1.0), obs=y)

    rng = np.random.default_rng(0)
    draws = {name: rng.normal(size=4000) for name in ("mu", "a", "b", "c")}
    found = sensitivity({"mu": draws["mu"] / 4 + 1.0}, flat, 1.0)
    # E log q of N(1, 1 / 16): minus its entropy, known up to the constant of the flat prior
    assert found.blocks["kl"][0] == pytest.approx(-stats.norm(0, 0.25).entropy(), abs=0.1)
    assert "prior of 'mu' is flat: its KL is known up to a constant" in repr(found)
    assert found.blocks["diagnosis"][0] != "prior-data conflict"
    with pytest.raises(ValueError, match=r"'c' in 'ac', which comes before 'b', but the prior of"):
        sensitivity(draws, chain, 1.0, groups={"ac": ["a", "c"]})
    with pytest.raises(ValueError, match=r"calls a block 'b', which is a latent site outside"):
        sensitivity(draws, chain, 1.0, groups={"b": ["a"]})


@pytest.mark.parametrize("block", ["mu", "effect"])
@pytest.mark.parametrize("constant", [-8.0, 8.0])
def test_no_kl_is_negative_where_a_log_prior_lacks_a_constant(block, constant):
    """Stan drops constants: no derivative changes, and a KL below 0 is not printed."""
    tree = gaussian(0)
    log_prior = {name: x.values.ravel() for name, x in tree.log_prior.items()}
    log_prior[block] = log_prior[block] + constant
    posterior = {name: x.values.ravel() for name, x in tree.posterior.items()}
    moved = Tree(posterior, log_prior, tree.log_likelihood["y"].values.ravel())
    expected, found = of_tree(tree), of_tree(moved)
    np.testing.assert_allclose(found.derivatives["mean"], expected.derivatives["mean"], atol=1e-9)
    kl = dict(zip(found.blocks["block"], found.blocks["kl"], strict=True))
    if constant > 0:  # the KL would be about -7
        assert np.isnan(kl[block])
        assert f"log prior of {block!r} is not that of a normalised density" in repr(found)
    else:
        assert kl[block] > 8
        assert found.notes == ()
    assert expected.notes == ()


def test_the_likelihood_row_is_minus_the_sum_of_the_blocks():
    found = of_tree(gaussian(1)).derivatives
    totals = found[found["block"] != "likelihood"].groupby("quantity")[["mean", "sd"]].sum()
    rows = found[found["block"] == "likelihood"].set_index("quantity")
    np.testing.assert_allclose(rows["mean"], -totals["mean"][rows.index], atol=1e-9)
    np.testing.assert_allclose(rows["sd"], -totals["sd"][rows.index], atol=1e-9)


def test_the_sentence_names_conflicts_and_the_largest_certain_change():
    blocks = pd.DataFrame({"block": ["mu", "x"], "diagnosis": ["prior-data conflict", "no"]})
    numbers = {"mean": [0.3, -0.9, 5.0], "mean_se": [0.01, 0.02, 3.0]}
    rows = pd.DataFrame({"quantity": "q", "block": ["mu", "x", "likelihood"], **numbers})
    words = Sensitivity(rows, blocks).sentence()
    assert words == (
        "The data are in conflict with the prior of mu. Conclusions depend most on the prior of x: "
        "more confidence in it lowers the mean of q, by 0.90 ± 0.02 posterior sds for a unit."
    )
    still = Sensitivity(rows.assign(mean=0.01), blocks.assign(diagnosis="no")).sentence()
    assert still == "No confidence moves a mean by more than 0.1 posterior sds."
    blocks["diagnosis"] = ["too uncertain: draw more", "no"]
    assert "For mu the draws are too few" in Sensitivity(rows, blocks).sentence()


def test_the_page_has_the_sentence_the_tables_and_the_figure(tmp_path):
    found = of_tree(gaussian(1))
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert found.sentence() in page
    assert "data:image/png;base64," in page
    assert page.count("<tr") >= len(found.blocks) + len(found.derivatives)
    assert "http://" not in page.replace("http://www.w3.org", "")
