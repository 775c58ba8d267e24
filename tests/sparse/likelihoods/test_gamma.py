"""Gamma responses: the expected loss, the shape's factor, the distribution.

Covers lognormal.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from sklearn.metrics import mean_gamma_deviance

from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.checking import check_derivatives
from soubayes.sparse.likelihoods.gamma import Gamma
from soubayes.sparse.likelihoods.lognormal import LogNormal

Y = np.array([0.1, 1.0, 4.0, 30.0])
MEAN, VARIANCE = np.array([0.3, -1.0, 1.0, 3.0]), np.array([0.1, 0.5, 1.0, 0.2])


def test_the_loss_is_minus_the_log_density_of_log_y_averaged_over_the_shape():
    q = LogNormal(0.7, 0.3, 0.0, 2.0)
    t = np.random.default_rng(0).normal(q.mean, q.sd, 100_000)
    each = stats.gamma.logpdf(Y, np.exp(t)[:, None], scale=np.exp(MEAN - t[:, None])) + np.log(Y)
    error = 5.0 * each.std(axis=0) / np.sqrt(len(t))
    assert (np.abs(Gamma(q).derivatives(MEAN, Y)[0] + each.mean(axis=0)) < error).all()


def test_the_closed_form_is_the_quadrature_and_has_the_right_slopes():
    likelihood = Gamma(LogNormal(0.7, 0.3, 0.0, 2.0))
    ours = likelihood.terms(MEAN, VARIANCE, Y)
    theirs = RowLikelihood.terms(likelihood, MEAN, VARIANCE, Y)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
    check_derivatives(likelihood, Y)


def test_the_best_shape_minimises_its_share_of_the_objective():
    rng = np.random.default_rng(0)
    y = rng.gamma(5.0, 1.0 / 5.0, 400)
    zero = np.zeros(400)

    def objective(likelihood):
        return likelihood.terms(zero, zero, y).loss.sum() + 3.0 * likelihood.kl

    start = Gamma.of(None, 3.0)
    best = start.updated(tuple(part.sum() for part in start.statistics(zero, zero, y)))
    assert best.shape.moment(1.0) == pytest.approx(5.0, rel=0.1)
    q = best.shape
    for change in ({"mean": q.mean + 0.02}, {"mean": q.mean - 0.02}, {"sd": q.sd * 1.1}):
        other = LogNormal(**{**vars(q), **change})
        assert objective(Gamma(other, 3.0)) > objective(best)
    assert objective(best) < objective(start)


def test_kl_of_the_factor_by_draws():
    q = LogNormal(0.7, 0.3, 0.0, 2.0)
    t = np.random.default_rng(0).normal(q.mean, q.sd, 100_000)
    draws = stats.norm.logpdf(t, q.mean, q.sd) - stats.norm.logpdf(t, 0.0, 2.0)
    assert q.kl == pytest.approx(draws.mean(), abs=0.01)
    assert q.moment(-1.0) == pytest.approx(np.exp(-t).mean(), rel=0.01)


def test_a_known_shape_of_1_is_the_exponential_distribution():
    known = Gamma.of(1.0)
    assert known.nuisance is None
    assert known.kl == 0.0
    np.testing.assert_allclose(
        -known.derivatives(MEAN, Y)[0] - np.log(Y), stats.expon.logpdf(Y, scale=np.exp(MEAN))
    )
    np.testing.assert_allclose(known.cdf(Y, MEAN), stats.expon.cdf(Y, scale=np.exp(MEAN)))
    assert known.deviance(Y, np.exp(MEAN)).mean() == pytest.approx(
        mean_gamma_deviance(Y, np.exp(MEAN))
    )


def test_the_predictive_density_averages_over_shape_and_predictor():
    likelihood = Gamma(LogNormal(0.7, 0.3, 0.0, 2.0))
    rng = np.random.default_rng(0)
    t, eta = rng.normal(0.7, 0.3, 200_000), rng.normal(0.5, 0.6, 200_000)
    y = rng.gamma(np.exp(t), np.exp(eta - t))
    one = np.ones(1)
    at = stats.gamma.pdf(2.0, np.exp(t), scale=np.exp(eta - t)).mean()
    assert likelihood.log_density(0.5 * one, 0.36 * one, 2.0 * one)[0] == pytest.approx(
        np.log(at), abs=0.01
    )
    assert likelihood.predict_variance(0.5 * one, 0.36 * one)[0] == pytest.approx(y.var(), rel=0.05)
    assert likelihood.predict_cdf(2.0 * one, 0.5 * one, 0.36 * one)[0] == pytest.approx(
        np.mean(y <= 2.0), abs=0.01
    )


@pytest.mark.parametrize("rows", [100.0, 10_000.0])
def test_rounding_of_the_loss_hardly_moves_the_shape(rows):
    # near the minimum the objective is flat: its rounding is worth 1e-7 standard deviations
    def best(change):
        def loss(t):
            return rows * (np.exp(t) * 1.1 * (1.0 + change) + gammaln(np.exp(t)) - np.exp(t) * t)

        return LogNormal.prior(0.0, 2.0).best(loss, 1.0)

    one, other = best(0.0), best(2e-15)
    assert other.mean == pytest.approx(one.mean, abs=1e-10 * one.sd)
    assert other.sd == pytest.approx(one.sd, rel=1e-10)
