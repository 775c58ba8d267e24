"""The page of a family of confidences in a real browser: its numbers are those of the family."""

import re
from dataclasses import dataclass

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

from scenarios import two_level_normal
from soubayes import reweight_family, solve_gaussian
from soubayes.families import ConfidenceFamily, Look
from soubayes.pages.confidences import Z, smooth_quantiles

SCORES = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
READ = """(id) => Object.fromEntries([...document.querySelectorAll(`#${id} tbody tr`)].map(
  (row) => [
    row.querySelector("th").textContent,
    [...row.querySelectorAll("td")].map((cell) => cell.textContent),
  ]))"""
SET = """([i, value]) => { const slider = document.getElementById(`slider-${i}`);
    slider.value = value; slider.dispatchEvent(new Event("input", { bubbles: true })); }"""


@dataclass(frozen=True, repr=False)
class GaussianFamily(ConfidenceFamily):
    """Two normal levels by the exact engine."""

    def at(self, gammas):
        scenario = two_level_normal(gammas["mu"], gammas["effect"])
        return solve_gaussian(scenario.gaussian, scenario.confidence)

    def _look(self, gammas):
        found = self.at(gammas)
        return Look(found, found.value, found.kl, "rough" if gammas["mu"] > 5 else "trusted")

    def _weighted(self, posterior, name):
        values = posterior.mean(name) + posterior.sd(name) * SCORES
        return values, np.full(len(values), 1 / len(values))

    def _shapes(self):
        return {"mu": (), "effect": ()}


@pytest.fixture(scope="module")
def family():
    ranges = {"mu": (0.1, 10.0), "effect": (0.3, 3.0)}
    return GaussianFamily(ranges, {"mu": 1.0, "effect": 1.0})


@pytest.fixture(scope="module")
def draws_family():
    def model(y):
        mu = numpyro.sample("mu<b>", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 0.5), obs=y)

    mu = np.random.default_rng(0).normal(4.8, np.sqrt(0.2), 4000)
    return reweight_family({"mu<b>": mu}, model, 6.0, confidence={"mu<b>": (0.5, 30.0)})


def value(text):
    return float(text.replace("−", "-"))


def test_the_numbers_are_those_of_the_family_at_every_stop(tmp_path, family, visit):
    family.to_html(tmp_path / "page.html", title="Two levels")
    tab = visit(tmp_path / "page.html")
    tab.focus("#slider-0")
    tab.keyboard.press("Home")
    seen = []
    while not seen or seen[-1] < 10.0:
        gamma = value(re.search(r'"mu": ([\d.]+)', tab.inner_text("#code")).group(1))
        seen.append(gamma)
        exact, shown = family.at({"mu": gamma, "effect": 1.0}), tab.evaluate(READ, "table")
        for name in ("mu", "effect"):
            mean, sd, low, high = map(value, shown[name][:4])
            assert mean == pytest.approx(exact.mean(name), abs=0.01 * exact.sd(name))
            assert sd == pytest.approx(exact.sd(name), rel=0.02)
            assert low == pytest.approx(exact.quantile(name, 0.05), abs=0.03 * exact.sd(name))
            assert high == pytest.approx(exact.quantile(name, 0.95), abs=0.03 * exact.sd(name))
        costs = tab.evaluate(READ, "blocks")
        assert value(costs["mu"][1]) == pytest.approx(exact.kl["mu"], rel=0.02, abs=2e-3)
        assert value(costs["V"][1]) == pytest.approx(exact.value, abs=0.03)
        assert ("rough" if gamma > 10.0 / 1.6 else "") in tab.inner_text("#verdict")
        tab.keyboard.press("ArrowRight")
    assert seen[0] == 0.1
    assert 1.0 in seen
    assert len(seen) > 50


def test_it_says_in_words_what_moved(tmp_path, family, visit):
    family.to_html(tmp_path / "page.html", quantities=["effect"])
    tab = visit(tmp_path / "page.html")
    assert "this is Bayes' posterior" in tab.inner_text("#says")
    assert list(tab.evaluate(READ, "table")) == ["effect"]
    tab.evaluate(SET, [1, 0])
    before, after = (family.at({"mu": 1.0, "effect": gamma}) for gamma in (1.0, 0.3))
    text = tab.inner_text("#says")
    assert text.startswith("Lowering the confidence in effect to 0.3 moves effect from ")
    found = re.search(r"from ([\d.]+) to ([\d.]+) \(sd ([\d.]+) to ([\d.]+)\)", text).groups()
    both = (before, after)
    moments = [p.mean("effect") for p in both] + [p.sd("effect") for p in both]
    expected = [float(x) for x in moments]
    assert [float(x) for x in found] == pytest.approx(expected, rel=0.01)
    tab.evaluate(SET, [0, 0])
    assert "and lowering that in effect" in tab.inner_text("#says")
    tab.click("#back")
    assert "this is Bayes' posterior" in tab.inner_text("#says")


def test_readable_without_network_and_with_its_error(tmp_path, family, draws_family, check_page):
    for name, each in (("fit", family), ("draws", draws_family)):
        page = tmp_path / f"{name}.html"
        each.to_html(page)
        check_page(page)
        text = page.read_text()
        assert "http" not in text.replace("http-equiv", "")
        assert re.search(r"At \d places in between, posteriors that were computed there", text)
        assert len(text.encode()) < 2e6


def test_draws_grey_out_where_their_weights_do_not_hold(tmp_path, draws_family, visit):
    draws_family.to_html(tmp_path / "page.html")
    tab = visit(tmp_path / "page.html")
    assert tab.evaluate(READ, "table")["mu<b>"]
    assert tab.get_attribute("body", "class") in (None, "")
    tab.focus("#slider-0")
    tab.keyboard.press("End")
    assert tab.get_attribute("body", "class") == "out"
    assert "do not reach" in tab.inner_text("#verdict")
    assert tab.evaluate(READ, "table")["mu<b>"][:4] == ["–"] * 4
    assert tab.locator("svg path.now").count() == 0
    grey = tab.evaluate("document.getElementById('reach-0').style.background")
    assert "var(--line)" in grey
    assert "var(--three)" in grey
    with pytest.raises(ValueError, match="the draws do not reach the confidences"):
        draws_family.at({"mu<b>": 30.0})


def test_a_page_that_cannot_be_made_says_why(tmp_path, family):
    page = tmp_path / "page.html"
    with pytest.raises(ValueError, match="no quantity 'nu'; there are"):
        family.to_html(page, quantities=["nu"])
    with pytest.raises(ValueError, match="quantities is empty"):
        family.to_html(page, quantities=[])
    wide = GaussianFamily(dict.fromkeys("abcde", (0.5, 2.0)), dict.fromkeys("abcde", 1.0))
    with pytest.raises(ValueError, match="room for 4 sliders"):
        wide.to_html(page)
    assert not page.exists()


def test_smooth_quantiles_of_weighted_draws():
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    log_w = 0.5 * x  # N(0.5, 1)
    weights = np.exp(log_w) / np.exp(log_w).sum()
    middle = abs(Z) < 2
    np.testing.assert_allclose(smooth_quantiles(x, weights)[middle], 0.5 + Z[middle], atol=0.12)
