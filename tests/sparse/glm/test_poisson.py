"""Poisson counts: the expected loss, its derivatives, the distribution."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mean_poisson_deviance

from soubayes.sparse.glm.checking import check_derivatives
from soubayes.sparse.glm.likelihood import RowLikelihood
from soubayes.sparse.glm.poisson import Poisson

Y = np.array([0.0, 1.0, 4.0, 30.0])


def test_the_closed_form_is_the_quadrature_and_has_the_right_slopes():
    mean, variance = np.array([0.3, -1.0, 1.0, 3.0]), np.array([0.1, 0.5, 1.0, 0.2])
    ours = Poisson().terms(mean, variance, Y)
    theirs = RowLikelihood.terms(Poisson(), mean, variance, Y)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    check_derivatives(Poisson(), Y, np.ones(4))


def test_the_loss_is_minus_the_log_probability():
    eta = np.array([0.3, -1.0, 1.0, 3.0])
    np.testing.assert_allclose(
        -Poisson().derivatives(eta, Y)[0], stats.poisson.logpmf(Y, np.exp(eta))
    )
    np.testing.assert_allclose(Poisson().cdf(Y, eta), stats.poisson.cdf(Y, np.exp(eta)))
    assert Poisson().cdf(np.array([-1.0]), np.zeros(1))[0] == 0.0
    assert Poisson().deviance(Y, np.exp(eta)).mean() == pytest.approx(
        mean_poisson_deviance(Y, np.exp(eta))
    )


def test_the_centre_of_counts_that_are_all_0_is_finite():
    assert np.isfinite(Poisson().centre(0.0, 10.0))
