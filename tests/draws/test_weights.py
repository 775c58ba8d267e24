"""Standard errors of reweighted means and sds: against fresh draws, and against a jackknife."""

import contextlib
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

from scenarios import two_level_normal
from soubayes import reweight, reweight_family, solve_gaussian

N = 2000
CONFIDENCES = [{"mu": 0.5}, {"effect": 0.6}, {"mu": 1.3, "effect": 1.3}]


class Group(dict):
    @property
    def data_vars(self):
        return self


def draw(seed, n=N):
    """mu ~ N(0, 2^2), effect | mu ~ N(mu, 1), y = 3 with sd 0.5: independent draws."""
    rng = np.random.default_rng(seed)
    variance = 1 / (1 / 4 + 1 / 1.25)
    mu = rng.normal(variance * 3.0 / 1.25, np.sqrt(variance), n)
    effect = rng.normal(mu + 0.8 * (3.0 - mu), np.sqrt(0.2))
    return {"mu": mu, "effect": effect}


def as_tree(draws):
    mu, effect = draws["mu"], draws["effect"]
    log_prior = {"mu": stats.norm(0, 2).logpdf(mu), "effect": stats.norm(mu, 1).logpdf(effect)}
    group = lambda x: Group({k: SimpleNamespace(values=v[None]) for k, v in x.items()})  # noqa: E731
    likelihood = group({"y": stats.norm(effect, 0.5).logpdf(3.0)})
    return SimpleNamespace(
        posterior=group(draws), log_prior=group(log_prior), log_likelihood=likelihood
    )


def weighted(draws, confidence):
    return reweight(as_tree(draws), confidence=confidence, order=["mu", "effect"])


@pytest.mark.parametrize("confidence", CONFIDENCES, ids=str)
def test_errors_of_means_and_sds_over_fresh_draws(confidence):
    exact = two_level_normal(confidence.get("mu", 1.0), confidence.get("effect", 1.0))
    mean_z, sd_z = [], []
    for seed in range(30):
        found = weighted(draw(seed), confidence)
        for name in ("mu", "effect"):
            mean_z.append((found.mean(name) - exact.mean[name]) / found.mean_se(name))
            sd_z.append((found.sd(name) - exact.sd[name]) / found.sd_se(name))
    # the mean of 60 squares, two of each seed correlated, has a standard error of up to 0.26
    assert 0.6 < np.sqrt(np.mean(np.square(mean_z))) < 1.35
    assert 0.5 < np.sqrt(np.mean(np.square(sd_z))) < 1.5


def test_the_error_is_that_of_a_jackknife_of_the_whole_computation():
    """Twenty groups left out in turn, with ratios and weights estimated again each time."""
    draws, groups = draw(3, 4000), 20
    confidence = {"mu": 0.6, "effect": 1.2}
    keep = [np.arange(4000) % groups != g for g in range(groups)]
    parts = [weighted({k: v[rows] for k, v in draws.items()}, confidence) for rows in keep]
    found = weighted(draws, confidence)
    for name in ("mu", "effect"):
        means = np.array([part.mean(name) for part in parts])
        jackknife = np.sqrt((groups - 1) / groups * np.sum((means - means.mean()) ** 2))
        assert found.mean_se(name) == pytest.approx(jackknife, rel=0.5)  # 19 degrees of freedom


def test_the_error_of_an_sd_grows_where_its_tail_is_not_reached():
    """At confidence 3 most estimates are too low, and so is the variance of the draws."""
    exact, near = two_level_normal(3.0, 3.0), weighted(draw(0), {"mu": 0.8})
    z = []
    for seed in range(12):
        with contextlib.suppress(ValueError):  # draws whose weights are refused
            found = weighted(draw(seed), {"mu": 3.0, "effect": 3.0})
            z.append((found.sd("mu") - exact.sd["mu"]) / found.sd_se("mu"))
            assert found.sd_se("mu") / found.sd("mu") > 1.5 * near.sd_se("mu") / near.sd("mu")
    assert len(z) >= 8
    assert np.mean(np.abs(z) < 2) > 0.9
    assert "sd_se" in found.summary().columns


def test_a_quantity_that_does_not_vary_has_no_error():
    tree = as_tree(draw(0))
    tree.posterior["one"] = SimpleNamespace(values=np.ones((1, N)))
    found = reweight(tree, confidence={"mu": 0.8}, order=["mu", "effect"])
    assert found.mean_se("one") == pytest.approx(0.0, abs=1e-12)
    assert found.sd_se("one") == pytest.approx(0.0, abs=1e-12)


def test_a_family_of_draws_has_the_costs_of_the_closed_form():
    """Two normal levels: KLs and the change of V, beside the exact engine."""
    places = [(1.0, 1.0), (0.5, 1.0), (1.5, 0.7)]
    exact = {}
    for place in places:
        scenario = two_level_normal(*place)
        exact[place] = solve_gaussian(scenario.gaussian, scenario.confidence)
    data = as_tree(draw(5, 4000))
    settings = {"order": ["mu", "effect"]}
    ranges = {"mu": (0.5, 1.5), "effect": (0.7, 1.3)}
    family = reweight_family(data, confidence=ranges, **settings)
    for (mu, effect), answer in exact.items():
        found = family.at({"mu": mu, "effect": effect})
        assert found.value_change == pytest.approx(answer.value - exact[1.0, 1.0].value, abs=0.05)
        for name in ("mu", "effect"):
            assert found.kl[name] == pytest.approx(answer.kl[name], abs=0.1)
            assert abs(found.mean(name) - answer.mean(name)) < 0.1 * answer.sd(name)
    table = family.path("mu", 3)
    assert table["confidence"].tolist() == pytest.approx([0.5, np.sqrt(0.75), 1.5])
    assert np.all(np.diff(table["kl_mu"]) < 0)
    with pytest.raises(ValueError, match=r"confidence of .mu. is 9\.0, but the family covers"):
        family.at({"mu": 9.0})
    with pytest.raises(ValueError, match=r"range of 'mu' is \(0, 1\), but it must be"):
        reweight_family(data, confidence={"mu": (0, 1)}, **settings)
    with pytest.raises(ValueError, match=r"For single numbers use soubayes.reweight"):
        reweight_family(data, confidence={"mu": 0.5}, **settings)


def test_a_curve_from_draws_is_joined_with_refits_beyond_them():
    """mu ~ N(0, 1), y = 2 ~ N(mu, 1): the mean at confidence gamma is 2 / (1 + gamma)."""
    mu = np.random.default_rng(0).normal(1.0, np.sqrt(0.5), 4000)
    given = {
        "posterior": {"mu": mu},
        "log_prior": {"mu": stats.norm.logpdf(mu)},
        "log_likelihood": {"y": stats.norm(mu).logpdf(2.0)},
    }
    family = reweight_family(given, order=["mu"], confidence={"mu": (0.5, 1e4)})
    asked = []

    class Exact:
        def __init__(self, confidence):
            asked.append(confidence["mu"])

        def mean(self, name):
            return 2 / (1 + asked[-1])

        def sd(self, name):
            return np.sqrt(asked[-1] / (1 + asked[-1]))

    alone = family.curve("mu", "mu", 12)
    assert list(alone["source"])[-1] == "not reached"
    assert np.isnan(alone["mean"].iloc[-1])
    table = family.curve("mu", "mu", 12, refit=Exact)
    assert asked == [pytest.approx(1e4)]
    exact = 2 / (1 + table["confidence"])
    reached = table["source"] == "draws"
    assert reached.sum() >= 4
    assert np.all(abs(table["mean"] - exact)[reached] < 4 * table["mean_se"][reached])
    assert table["mean"].iloc[-1] == pytest.approx(exact.iloc[-1])
    joined = table["source"] == "joined"
    assert joined.any()
    assert np.all(abs(table["mean"] - exact)[joined] < 0.5)
    ax = family.plot_curve("mu", "mu", 12, refit=Exact)
    assert ax.get_xscale() == "log"
    plt.close(ax.figure)
    with pytest.raises(ValueError, match=r"no quantity 'tau'; there are \['mu'\]"):
        family.curve("mu", "tau")
