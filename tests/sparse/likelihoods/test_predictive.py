"""Predictive distributions of mixtures, against simulation."""

import numpy as np
import pytest

from soubayes.sparse.likelihoods.poisson import Poisson
from soubayes.sparse.likelihoods.predictive import Predictive

WEIGHTS, MEANS, VARIANCES = np.array([0.3, 0.7]), np.array([[0.5], [1.5]]), np.array([[0.4], [0.1]])


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(0)
    which = (rng.random(400_000) < WEIGHTS[1]).astype(int)
    eta = rng.normal(MEANS[which, 0], np.sqrt(VARIANCES[which, 0]))
    return rng.poisson(np.exp(eta))


def test_mean_variance_and_probabilities_are_those_of_draws(draws):
    said = Predictive([Poisson()] * 2, WEIGHTS, MEANS, VARIANCES)
    assert said.mean()[0] == pytest.approx(draws.mean(), abs=0.02)
    assert said.variance()[0] == pytest.approx(draws.var(), rel=0.02)
    for y in (0.0, 3.0, 8.0):
        assert np.exp(said.log_density(np.array([y])))[0] == pytest.approx(
            np.mean(draws == y), abs=0.003
        )
        assert said.cdf(np.array([y]))[0] == pytest.approx(np.mean(draws <= y), abs=0.003)


@pytest.mark.parametrize("level", [0.001, 0.05, 0.5, 0.9, 0.999])
def test_quantiles_of_counts_are_the_least_whole_number_that_reaches_the_level(level):
    said = Predictive([Poisson()] * 2, WEIGHTS, MEANS, VARIANCES)
    found = said.quantile(level)
    assert found[0] == np.floor(found[0]) >= 0
    assert said.cdf(found)[0] >= level
    assert said.cdf(found - 1.0)[0] < level


def test_recalibration_widens_about_the_median():
    said = Predictive([Poisson()] * 2, WEIGHTS, MEANS, VARIANCES)
    wide = said._replace(widen=4.0)
    assert wide.variance()[0] == pytest.approx(4.0 * said.variance()[0])
    assert wide.quantile(0.5)[0] == said.quantile(0.5)[0]
    for level in (0.2, 0.95):
        reach = wide.quantile(level)
        total = np.exp([wide.log_density(np.array([k]))[0] for k in np.arange(reach[0] + 1.0)])
        assert total.sum() >= level > total.sum() - total[-1]
    assert wide.quantile(0.001)[0] == 0.0


def test_the_rough_distribution_function_is_close_on_rows_far_apart():
    rng = np.random.default_rng(0)
    means, y = rng.normal(1.0, 1.0, (2, 2500)), rng.poisson(4.0, 2500).astype(float)
    said = Predictive([Poisson()] * 2, WEIGHTS, means, np.full((2, 2500), 0.1))
    rough = said.rough_cdf(y)
    known = np.flatnonzero(np.isfinite(rough))
    assert len(known) == 834
    assert known[-1] > 2490
    np.testing.assert_allclose(rough[known], said.cdf(y)[known], atol=0.02)
