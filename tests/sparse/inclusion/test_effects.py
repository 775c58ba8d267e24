"""effects: Bayes factors of single columns, and who may take a column's place."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from test_product import quadratic

from soubayes.sparse.inclusion.field import ColumnEvidence, Field
from soubayes.sparse.inclusion.priors import Slab, anchored_effect, look_at


def test_bayes_factors_are_ratios_of_marginal_likelihoods():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    slab = Slab(np.array([0.5, 4.0]), np.array([0.3, 0.7]))
    found = look_at(Field(quadratic(X, y, np.inf)).evidence, slab, np.inf)
    for j in range(2):
        parts = [
            np.log(w) + multivariate_normal(np.zeros(12), np.eye(12) + V * X[:, [j]] @ X[:, [j]].T)
            .logpdf(y) for V, w in zip(slab.variance, slab.weight, strict=True)
        ]  # fmt: skip
        expected = logsumexp(parts) - norm.logpdf(y).sum()
        assert found.log_bayes[j] == pytest.approx(expected, abs=1e-10)


def test_an_unknown_noise_is_integrated_out():
    s, q, rest, V = 10.0, 6.0, 9.0, 0.8
    grid = np.linspace(-12, 8, 20001)  # log sigma^2; y | sigma has 11 dimensions

    def log_marginal(quadratic_form, log_det):
        return logsumexp(-0.5 * 11 * grid - 0.5 * quadratic_form * np.exp(-grid)) - 0.5 * log_det

    with_effect = log_marginal(rest - V * q * q / (1 + V * s), np.log1p(V * s))
    slab = Slab(np.array([V]), np.ones(1))
    found = look_at(ColumnEvidence(np.array([s]), np.array([q]), rest), slab, 11.0).log_bayes[0]
    assert found == pytest.approx(with_effect - log_marginal(rest, 0.0), abs=1e-8)


def test_a_column_that_adds_to_the_first_does_not_take_its_place():
    log_odds, given = np.log([30.0, 20.0, 20.0]), np.log([30.0, 20.0, 1e-9])
    found = anchored_effect(log_odds, given, 0, None)
    np.testing.assert_allclose(found.alpha, [30 / 51, 0.0, 20 / 51], atol=1e-8)
