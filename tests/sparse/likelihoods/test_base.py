"""Weights, overflow and large counts in likelihoods of one's own."""

import numpy as np
import pytest

from soubayes import RowLikelihood, SoUGeneralizedRegression
from soubayes.sparse.likelihoods.base import weighted_terms


class Counts(RowLikelihood):
    """y is Poisson with mean exp(eta)."""

    def derivatives(self, eta, y):
        mean = np.exp(eta)
        return mean - y * eta, mean - y, mean

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


def test_terms_are_weighted_and_infinite_where_they_overflow():
    mean, variance, y = np.array([0.0, 1.0, 800.0]), np.full(3, 0.5), np.array([1.0, 0.0, 2.0])
    terms = weighted_terms(Counts(), mean, variance, y, np.array([2.0, 3.0, 1.0]))
    expected = np.exp(mean[:2] + 0.25)
    np.testing.assert_allclose(terms.information[:2], [2.0, 3.0] * expected, rtol=1e-10)
    np.testing.assert_allclose(terms.score[:2], [2.0, 3.0] * (y[:2] - expected), rtol=1e-10)
    assert terms.curvature is terms.information
    assert np.isinf(terms.loss[2])


@pytest.mark.parametrize(("n", "p"), [(40, 300), (100, 20)])
@pytest.mark.parametrize("top", [2.0, 12.0])
def test_large_counts_have_a_finite_minimum(n, p, top):
    """Newton's first step from 0 overflows exp(eta) by far."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    eta = top * X[:, 0] / np.abs(X[:, 0]).max()
    y = rng.poisson(np.exp(eta)).astype(float)
    model = SoUGeneralizedRegression(Counts(), confidence_coef=4.0).fit(X, y)
    assert model.converged_
    assert np.all(np.diff(model.objective_) <= 0.0)
    empty = np.sum(y.mean() - y * np.log(y.mean()))  # the loss of a constant
    assert model.objective_[-1] < empty
    if top > 10.0:
        assert model.coef_[0] == pytest.approx(top / np.abs(X[:, 0]).max(), rel=0.01)
