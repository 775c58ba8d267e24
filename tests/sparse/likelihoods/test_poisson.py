"""Poisson counts: the expected loss, its derivatives, the distribution."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

from soubayes import SoUPoissonRegression
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.checking import check_derivatives
from soubayes.sparse.likelihoods.poisson import Poisson

Y = np.array([0.0, 1.0, 4.0, 30.0])


def test_the_closed_form_is_the_quadrature_and_has_the_right_slopes():
    mean, variance = np.array([0.3, -1.0, 1.0, 3.0]), np.array([0.1, 0.5, 1.0, 0.2])
    ours = Poisson().terms(mean, variance, Y)
    theirs = RowLikelihood.terms(Poisson(), mean, variance, Y)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    check_derivatives(Poisson(), Y)


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


def criterion(X, y, support):
    """Twice the loss, the corrected Akaike risk and the price of the search."""
    (n, p), k = X.shape, len(support)
    Z = X[:, support]
    mean = PoissonRegressor(alpha=0.0, tol=1e-8, max_iter=500).fit(Z, y).predict(Z)
    loss = -stats.poisson.logpmf(y, mean).sum()
    return 2.0 * (loss + (k + 1) * n / (n - k - 2) + k * (np.log(p) - 1.0))


@pytest.mark.parametrize("seed", [5, 7])
def test_no_column_of_the_sparse_point_costs_more_than_it_explains(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100, 300))
    y = rng.poisson(np.exp(0.5 + X[:, :6] @ rng.uniform(0.3, 0.6, 6)))
    support = np.flatnonzero(SoUPoissonRegression(choice="path").fit(X, y).selected_)
    assert np.isin(np.arange(6), support).all()
    one = criterion(X, y, support)
    assert min(criterion(X, y, np.setdiff1d(support, j)) for j in support) > one
