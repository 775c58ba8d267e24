"""row_supports: the quadratic form of a likelihood of rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from enumeration import exact_inclusion
from soubayes.sparse.designs.standardise import column_units
from soubayes.sparse.inclusion import priors
from soubayes.sparse.inclusion.priors import SizePrior
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.rows.supports import SupportRows, row_supports


class UnitNormal(RowLikelihood):
    """Squared loss, whose quadratic form is exact."""

    def derivatives(self, eta, y):
        return (y - eta) ** 2 / 2, eta - y, np.ones_like(eta)

    def predict(self, mean, variance):
        return mean


def found(likelihood, X, y, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    units = column_units(X, weight, True)
    rows = SupportRows(X, units, y, weight, True)
    p = X.shape[1]
    return row_supports(likelihood, rows, np.zeros(p), 0.0, np.zeros(p), units.scale)


def data(n=150, p=6):
    rng = np.random.default_rng(5)
    X = rng.poisson(1.0, size=(n, p)).astype(float)
    return X, X @ np.array([0.5, 0, 0, -0.4, 0, 0.15]), rng


def test_squared_loss_agrees_with_enumeration(monkeypatch):
    monkeypatch.setattr(priors, "SLAB_GRID", np.array([64.0]))
    X, eta, rng = data()
    y = eta + rng.normal(size=len(eta))
    posterior = found(UnitNormal(), X, y)
    assert posterior.converged
    Z, r = (X - X.mean(axis=0)) / X.std(axis=0), y - y.mean()
    exact, mean = exact_inclusion(Z, r, [64 / 150], [1.0], SizePrior().weight, noise=1.0)
    np.testing.assert_allclose(posterior.probability, exact, atol=0.1)
    np.testing.assert_allclose(posterior.mean * X.std(axis=0), mean, atol=0.03)


@pytest.mark.parametrize("kind", ["sparse", "repeated", "units"])
def test_containers_weights_and_units(kind):
    X, eta, rng = data()
    y = (rng.random(len(eta)) < 1 / (1 + np.exp(-1.5 * eta))).astype(float)
    plain = found(Bernoulli(), X, y)
    assert plain.probability[0] > 0.9
    if kind == "sparse":
        other = found(Bernoulli(), sp.csr_array(X), y)
    elif kind == "repeated":
        many = np.repeat(np.arange(len(y)), 2)
        twice = found(Bernoulli(), X[many], y[many])
        other, plain = found(Bernoulli(), X, y, np.full(len(y), 2.0)), twice
    else:
        other = found(Bernoulli(), 3.0 * X + 7.0, y)
        np.testing.assert_allclose(other.mean * 3.0, plain.mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(other.probability, plain.probability, atol=1e-4)


def test_rounds_that_go_to_and_fro_take_shorter_steps():
    rng = np.random.default_rng([5, 41])
    n, p = int(rng.choice([80, 200, 500])), int(rng.choice([10, 40]))
    X = (rng.random((n, p)) < rng.choice([0.03, 0.08, 0.3], p)).astype(float)  # rare columns
    coef = np.zeros(p)
    coef[:3] = rng.normal(size=3) * rng.choice([1, 3])
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ coef))).astype(float)
    assert found(Bernoulli(), X, y).converged
