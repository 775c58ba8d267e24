"""The Bernoulli likelihood: the exact expectation, and the paper's bound on it."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit

from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.bernoulli import Bernoulli, JaakkolaBernoulli, jj_lambda

MEAN = np.array([0.0, 0.7, -3.0, 6.0, -25.0, 0.1])
VARIANCE = np.array([0.3, 1.0, 2.0, 1e-8, 4.0, 40.0])


def row_terms(eta, variance, y):
    return JaakkolaBernoulli().terms(eta, variance, y)


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_exact_expectation_against_integration(y):
    terms = Bernoulli().terms(MEAN, VARIANCE, np.full(6, y))
    for i, (m, v) in enumerate(zip(MEAN, VARIANCE, strict=True)):
        sd = np.sqrt(v)

        def mean(f, m=m, sd=sd):
            inside = lambda z: f(m + sd * z) * stats.norm.pdf(z)  # noqa: E731
            points = [np.clip(-m / sd, -11.0, 11.0)]
            return integrate.quad(inside, -12, 12, points=points, epsabs=1e-12, limit=300)[0]

        assert terms.loss[i] == pytest.approx(
            mean(lambda x: np.logaddexp(0.0, x) - y * x), abs=3e-8
        )
        assert terms.score[i] == pytest.approx(y - mean(expit), abs=1e-8)
        curvature = mean(lambda x: expit(x) * expit(-x))
        assert terms.curvature[i] == pytest.approx(curvature, abs=3e-8)
    np.testing.assert_array_equal(terms.information, terms.curvature)


@pytest.mark.parametrize("likelihood", [Bernoulli(), JaakkolaBernoulli()], ids=["exact", "bound"])
def test_terms_are_derivatives_of_the_loss(likelihood):
    y, h = np.tile([0.0, 1.0], 3), 1e-4
    variance = VARIANCE + 0.1

    def loss(shift=0.0, more=0.0):
        return likelihood.terms(MEAN + shift, variance + more, y).loss

    terms = likelihood.terms(MEAN, variance, y)
    np.testing.assert_allclose(-(loss(h) - loss(-h)) / (2 * h), terms.score, atol=1e-7)
    second = (loss(h) - 2 * loss() + loss(-h)) / h**2
    np.testing.assert_allclose(second, terms.curvature, atol=1e-6)
    slope = (loss(more=h) - loss(more=-h)) / h  # twice the slope in the variance
    np.testing.assert_allclose(slope, terms.information, atol=1e-6)


def test_general_quadrature_is_the_closed_form():
    y = np.tile([0.0, 1.0], 3)
    variance = np.minimum(VARIANCE, 4.0)
    closed = Bernoulli().terms(MEAN, variance, y)
    general = RowLikelihood.terms(Bernoulli(), MEAN, variance, y)
    for one, two in zip(closed, general, strict=True):
        np.testing.assert_allclose(one, two, atol=2e-6)
    log_p = RowLikelihood.log_density(Bernoulli(), MEAN, variance, y)
    ours = Bernoulli().log_density(MEAN, variance, y)
    np.testing.assert_allclose(ours, log_p, rtol=1e-5, atol=1e-9)


def test_bound_lies_above_the_exact_expectation_and_overstates_information():
    y = np.ones(6)
    exact, bound = Bernoulli().terms(MEAN, VARIANCE, y), row_terms(MEAN, VARIANCE, y)
    assert np.all(bound.loss >= exact.loss - 1e-8)
    assert np.all(bound.information >= exact.information - 1e-8)


def test_lambda_is_smooth_through_zero():
    np.testing.assert_allclose(jj_lambda(np.array([0.0, 9.9e-5, 1.01e-4])), 0.125, rtol=1e-8)


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_bound_holds_touches_and_is_stationary_in_xi_for_both_classes(y):
    eta, variance = np.array([0.0, 0.7, -3.0, 6.0]), np.array([0.3, 1.0, 2.0, 1e-8])
    terms = row_terms(eta, variance, np.full(4, y))
    draws = eta + np.sqrt(variance) * np.random.default_rng(0).normal(size=(200_000, 4))
    exact = np.logaddexp(0.0, -(2 * y - 1) * draws)
    error = 4.0 * exact.std(0) / np.sqrt(len(exact))
    assert np.all(terms.loss >= exact.mean(0) - error - 1e-9)
    # no variance: the bound touches the loss
    np.testing.assert_allclose(terms.loss[3], np.logaddexp(0.0, -(2 * y - 1) * 6.0), atol=1e-7)

    def printed(xi):
        lam = (expit(xi) - 0.5) / (2.0 * xi)
        inside = (y - 0.5) * eta - lam * (eta**2 + variance - xi**2) - xi / 2.0
        return -(inside + np.log(expit(xi)))

    xi = np.sqrt(eta**2 + variance)
    np.testing.assert_allclose(printed(xi), terms.loss, rtol=1e-12)
    slope = (printed(xi * (1 + 1e-5)) - printed(xi * (1 - 1e-5))) / 2e-5
    np.testing.assert_allclose(slope, 0.0, atol=1e-8)

    def loss(shift):
        return row_terms(eta + shift, variance, np.full(4, y)).loss

    h = 1e-4
    np.testing.assert_allclose(-(loss(h) - loss(-h)) / (2 * h), terms.score, atol=1e-7)
    curvature = (loss(h) - 2 * loss(0.0) + loss(-h)) / h**2
    np.testing.assert_allclose(curvature, terms.curvature, atol=1e-6)
    assert np.all(terms.curvature <= terms.information + 1e-15)
