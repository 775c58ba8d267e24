"""Ordered classes: the loss, the cuts' factor, their moments, probabilities."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.likelihoods.checking import check_derivatives
from soubayes.sparse.likelihoods.ordinal import Cuts, Ordinal

RNG = np.random.default_rng(0)
ROOT = 0.2 * RNG.normal(size=(3, 3))
CUTS = Cuts(np.array([-1.0, 0.2, -0.3]), ROOT @ ROOT.T + 0.01 * np.eye(3), 10.0)
THETA = RNG.multivariate_normal(CUTS.mean, CUTS.covariance, 200_000)
DRAWS = np.cumsum(np.column_stack([THETA[:, 0], np.exp(THETA[:, 1:])]), axis=1)


# the same parts, with the gap below the anchor taken off
ANCHORED = np.column_stack([DRAWS[:, 0] - np.exp(THETA[:, 1]), DRAWS[:, 0]])
ANCHORED = np.column_stack([ANCHORED, DRAWS[:, 0] + np.exp(THETA[:, 2])])


def probability(cut, eta, k):
    ends = np.column_stack([np.full(len(cut), -np.inf), cut, np.full(len(cut), np.inf)])
    return expit(ends[:, k + 1] - eta) - expit(ends[:, k] - eta)


@pytest.mark.parametrize(("anchor", "draws"), [(0, DRAWS), (1, ANCHORED)])
def test_moments_of_the_cuts_are_those_of_draws(anchor, draws):
    mean, variance = replace(CUTS, anchor=anchor).moments()
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(variance, draws.var(axis=0), rtol=0.03)


@pytest.mark.parametrize("k", range(4))
def test_the_loss_is_minus_the_log_probability_averaged_over_cuts_and_predictor(k):
    eta = RNG.normal(0.4, 0.5, len(DRAWS))
    each = -np.log(probability(DRAWS, eta, k))
    one = np.ones(1)
    found = Ordinal(CUTS).terms(0.4 * one, 0.25 * one, k * one).loss[0]
    assert found == pytest.approx(each.mean(), abs=0.01)  # a cut is normal to second order
    chance = Ordinal(CUTS).probabilities(0.4 * one, 0.25 * one)[0, k]
    assert chance == pytest.approx(probability(DRAWS, eta, k).mean(), abs=0.003)


def test_slopes_are_those_of_the_loss():
    check_derivatives(Ordinal(CUTS), np.repeat(np.arange(4.0), 5))
    values = Ordinal(CUTS).derivatives(np.zeros((3, 2)), np.arange(3.0)[:, None])
    assert values[0].shape == (3, 2)
    assert Ordinal(CUTS).cdf(np.array([-1.0, 3.0]), np.zeros(2)).tolist() == [0.0, 1.0]


def test_two_classes_are_bernoulli():
    q = Cuts(np.array([0.7]), np.array([[0.3]]), 10.0)
    mean, variance, y = RNG.normal(size=6), RNG.uniform(0.1, 1.0, 6), np.array([0.0, 1, 0, 1, 1, 0])
    ours = Ordinal(q).terms(mean, variance, y)
    theirs = Bernoulli().terms(mean - 0.7, variance + 0.3, y)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("anchor", [0, 1])
def test_updates_find_the_least_objective(anchor):
    eta = RNG.normal(size=300)
    y = np.digitize(eta + RNG.logistic(size=300), [-1.0, 0.5, 1.0]).astype(float)
    variance = np.full(300, 0.05)

    def objective(likelihood):
        return likelihood.terms(eta, variance, y).loss.sum() + 2.0 * likelihood.kl

    best = Ordinal(Cuts.of(np.arange(4) >= anchor, 10.0), 2.0)
    assert best.cuts.anchor == anchor
    values = [objective(best)]
    for _ in range(12):
        totals = tuple(float(part.sum()) for part in best.statistics(eta, variance, y))
        best = best.updated(totals)
        values.append(objective(best))
    assert values[-1] < values[0]
    assert abs(values[-1] - values[-2]) < 1e-6
    np.testing.assert_allclose(best.cut_mean, [-1.0, 0.5, 1.0], atol=0.5)
    for j in range(3):
        for sign in (-0.03, 0.03):
            other = best.cuts.mean.copy()
            other[j] += sign
            assert objective(Ordinal(replace(best.cuts, mean=other), 2.0)) > values[-1]
    for factor in (0.8, 1.25):
        other = replace(best.cuts, covariance=factor * best.cuts.covariance)
        assert objective(Ordinal(other, 2.0)) > values[-1]


def test_kl_is_that_of_normal_distributions():
    q = Cuts(np.zeros(2), np.diag([10.0, 4.0]), 10.0)
    assert q.kl == pytest.approx(0.0, abs=1e-12)
    assert replace(q, mean=np.array([1.0, 2.0])).kl == pytest.approx(0.05 + 0.5)
