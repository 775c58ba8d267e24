"""Scores of counts, and how predictive distributions are recalibrated."""

import numpy as np
import pytest
from scipy.stats import gamma, norm, poisson
from sklearn.metrics import mean_poisson_deviance

from soubayes.sparse.choice.scoring import (
    COUNTS,
    HeldOut,
    poisson_deviance,
    score_densities,
    spread_density,
    spread_of,
)


def test_counts_are_judged_by_their_deviance_over_its_mean():
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(1.0, 0.5, 400))
    y = rng.poisson(mean * rng.gamma(1.0, 1.0, 400)).astype(float)  # dispersion 1
    both = np.stack([mean, np.full(400, mean.mean())], axis=1)
    chance = poisson(both)
    density, below = chance.logpmf(y[:, None]), chance.cdf(y[:, None])
    said = HeldOut(density, both, both, np.zeros_like(both), density, below)
    found = COUNTS.score(np.column_stack([y, np.zeros(400)]), said, np.ones(400), 1.0)
    each = [mean_poisson_deviance(y, both[:, k]) for k in range(2)]
    np.testing.assert_allclose(poisson_deviance(y, both).mean(axis=0), each)
    np.testing.assert_allclose(found.scores.sum(axis=0), -200.0 * np.array(each) / min(each))
    mixed = both @ found.weights
    between = (both - mixed[:, None]) ** 2 @ found.weights
    pearson = np.mean((y - mixed) ** 2 / (mixed + between))
    assert found.recalibration.spread == pytest.approx(pearson, rel=0.35)
    assert found.recalibration.spread > 2.0


def test_probabilities_of_spread_counts_are_differences_of_the_spread_distribution():
    counts = np.arange(60.0)
    log_p, below = poisson(8.0).logpmf(counts), poisson(8.0).cdf(counts)
    for spread in (0.7, 1.6):
        found = np.exp(spread_density(log_p, below, spread, True))
        assert found.sum() == pytest.approx(1.0, abs=5e-6)
        np.testing.assert_allclose(
            np.cumsum(found), norm.cdf(norm.ppf(below) / spread), atol=5e-6
        )  # far tails are rough
    assert np.isfinite(spread_density(np.array([-400.0]), np.ones(1), 1.6, True)).all()
    # the last class: its distribution function is 1 but for rounding
    for one in (1.0, np.nextafter(1.0, 2.0)):
        found = spread_density(np.log([0.3]), np.array([one]), 1.6, True)
        assert found[0] == pytest.approx(norm.logsf(norm.isf(0.3) / 1.6))


def test_the_spread_of_held_out_numbers_is_found():
    rng = np.random.default_rng(0)
    y = rng.gamma(4.0, size=2000)
    right, narrow = gamma(4.0), gamma(16.0, scale=0.25)
    for said, least, most in ((right, 0.95, 1.05), (narrow, 1.7, 2.3)):
        density, below = said.logpdf(y), said.cdf(y)
        spread, _ = spread_of(density, below, np.ones(2000), False)
        assert least < spread < most
        assert spread_density(density, below, spread, False).mean() >= density.mean() - 1e-9
    assert spread_of(density, below + np.nan, np.ones(2000), False)[0] == 1.0


def test_the_spread_of_classes_does_not_hang_on_the_rounding_of_their_sums():
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(3), size=60)
    y = rng.integers(0, 3, size=60)
    density = np.log(share[np.arange(60), y])
    below = np.take_along_axis(np.cumsum(share, axis=1), y[:, None], axis=1)[:, 0]
    exact = np.where(y == 2, 1.0, below)
    wanted, _ = spread_of(density, exact, np.ones(60), True)
    for off in (-2e-16, 2e-16):
        found, _ = spread_of(density, np.where(y == 2, 1.0 + off, below), np.ones(60), True)
        assert found == pytest.approx(wanted, rel=1e-7)
    # by hand: every class has the probability between its scaled normal scores
    low = norm.cdf(norm.ppf(np.clip(exact - share[np.arange(60), y], 0, 1)) / 2.0)
    high = norm.cdf(norm.ppf(exact) / 2.0)
    np.testing.assert_allclose(
        spread_density(density, exact, 2.0, True), np.log(high - low), rtol=1e-9
    )


@pytest.mark.parametrize("far", [7.0, 20.0])
def test_one_row_does_not_decide_about_the_spread(far):
    z = norm.ppf((np.arange(40) + 0.5) / 40)
    alone, rows = spread_of(norm.logpdf(z), norm.cdf(z), np.ones(40), False)
    assert rows.all()
    z = np.append(z, far)
    found, rows = spread_of(norm.logpdf(z), norm.cdf(z), np.ones(41), False)
    np.testing.assert_array_equal(rows, np.arange(41) < 40)
    assert found == alone


def test_a_tail_that_many_rows_have_is_in_the_spread():
    z = norm.ppf((np.arange(400) + 0.5) / 400) * np.where(np.arange(400) % 10 == 3, 3.0, 1.0)
    found, rows = spread_of(norm.logpdf(z), norm.cdf(z), np.ones(400), False)
    assert rows.all()
    np.testing.assert_allclose(found, np.sqrt(np.mean(z**2)), rtol=0.01)


def test_a_row_that_nothing_foresaw_says_nothing_about_the_candidates():
    z = np.append(norm.ppf((np.arange(40) + 0.5) / 40), 20.0)
    scales = np.array([1.0, 2.0])
    density = norm.logpdf(z[:, None], scale=scales)
    below = norm.cdf(z[:, None], scale=scales)
    zero = np.zeros_like(density)
    said = HeldOut(density, zero, zero + scales**2, zero, density, below)
    with_it, without = (
        score_densities(z, said.take(rows), np.ones(len(rows)))
        for rows in (np.arange(41), np.arange(40))
    )
    np.testing.assert_allclose(with_it.weights, without.weights)
    assert with_it.weights[0] > 0.5
    assert with_it.recalibration == pytest.approx(without.recalibration)
