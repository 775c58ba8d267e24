"""Negative binomial counts: the expected loss, the dispersion, the limit of none."""

import numpy as np
import pytest
from scipy import stats

from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.checking import check_derivatives
from soubayes.sparse.likelihoods.lognormal import LogNormal
from soubayes.sparse.likelihoods.negative_binomial import NegativeBinomial
from soubayes.sparse.likelihoods.poisson import Poisson

Y = np.array([0.0, 1.0, 4.0, 30.0])
MEAN, VARIANCE = np.array([0.3, -1.0, 1.0, 3.0]), np.array([0.1, 0.5, 1.0, 0.2])


def log_pmf(y, eta, a):
    return stats.nbinom.logpmf(y, 1.0 / a, 1.0 / (1.0 + a * np.exp(eta)))


def test_the_loss_is_the_average_of_minus_the_log_probability_over_the_dispersion():
    q = LogNormal(-0.7, 0.3, -1.0, 2.0)
    a = np.exp(np.random.default_rng(0).normal(q.mean, q.sd, 100_000))
    each = log_pmf(Y, MEAN, a[:, None])
    error = 5.0 * each.std(axis=0) / np.sqrt(len(a))
    found = NegativeBinomial(q).derivatives(MEAN, Y)[0]
    assert (np.abs(found + each.mean(axis=0)) < error).all()


def test_terms_are_those_of_finer_quadrature_and_have_the_right_slopes():
    likelihood = NegativeBinomial(LogNormal(-0.7, 0.3, -1.0, 2.0))
    ours = likelihood.terms(MEAN, VARIANCE, Y)
    theirs = RowLikelihood.terms(likelihood, MEAN, VARIANCE, Y)  # 40 nodes
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    check_derivatives(likelihood, Y)


def test_no_dispersion_is_poisson():
    known = NegativeBinomial.of(1e-7)
    for one, other in zip(
        known.terms(MEAN, VARIANCE, Y), Poisson().terms(MEAN, VARIANCE, Y), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    np.testing.assert_allclose(known.cdf(Y, MEAN), Poisson().cdf(Y, MEAN), atol=1e-5)
    np.testing.assert_allclose(
        known.deviance(Y, np.exp(MEAN)), Poisson().deviance(Y, np.exp(MEAN)), rtol=1e-4
    )
    far = known.derivatives(np.array([800.0]), np.ones(1))  # a trial step of a solver
    assert np.isfinite(far).all()


def test_far_out_the_loss_rises_by_the_inverse_of_the_dispersion():
    """A candidate that runs off must not win: (y + r) log(1 + exp(u)) - y u is r u there."""
    for likelihood in (NegativeBinomial.of(0.5), NegativeBinomial(LogNormal(-0.7, 0.3, -1.0, 2.0))):
        near, far = likelihood.derivatives(np.array([900.0, 1e9]), np.full(2, 1e6))[0]
        assert far - near == pytest.approx(likelihood.dispersion.moment(-1.0) * (1e9 - 900.0))


def test_the_best_dispersion_minimises_its_share_of_the_objective():
    rng = np.random.default_rng(0)
    y = rng.poisson(4.0 * rng.gamma(2.0, 0.5, 500)).astype(float)
    mean, variance = np.full(500, np.log(4.0)), np.full(500, 0.01)

    def objective(likelihood):
        return likelihood.terms(mean, variance, y).loss.sum() + likelihood.kl

    best = NegativeBinomial.of(None)
    values = [objective(best)]
    for _ in range(6):
        each = best.statistics(mean, variance, y)
        best = best.updated(tuple(part.sum() for part in each))
        values.append(objective(best))
    assert np.diff(values[-3:]) == pytest.approx(0.0, abs=1e-3)
    assert best.dispersion.moment(1.0) == pytest.approx(0.5, rel=0.2)
    q = best.dispersion
    for change in ({"mean": q.mean + 0.03}, {"mean": q.mean - 0.03}, {"sd": q.sd * 1.15}):
        other = NegativeBinomial(LogNormal(**{**vars(q), **change}))
        assert objective(other) > objective(best)


def test_the_predictive_distribution_is_that_of_draws():
    likelihood = NegativeBinomial(LogNormal(-0.7, 0.3, -1.0, 2.0))
    rng = np.random.default_rng(0)
    a, eta = np.exp(rng.normal(-0.7, 0.3, 300_000)), rng.normal(0.5, 0.4, 300_000)
    y = rng.poisson(np.exp(eta) * rng.gamma(1.0 / a, a))
    one = np.ones(1)
    at = 0.5 * one, 0.16 * one
    assert likelihood.predict_variance(*at)[0] == pytest.approx(y.var(), rel=0.03)
    for value in (0.0, 3.0):
        assert np.exp(likelihood.log_density(*at, value * one))[0] == pytest.approx(
            np.mean(y == value), abs=0.004
        )
        assert likelihood.predict_cdf(value * one, *at)[0] == pytest.approx(
            np.mean(y <= value), abs=0.004
        )
