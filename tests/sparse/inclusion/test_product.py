"""product: inclusion probabilities against the enumeration of every support."""

import numpy as np
import pytest

from enumeration import exact_inclusion
from soubayes.sparse.inclusion import priors
from soubayes.sparse.inclusion.field import GramQuadratic
from soubayes.sparse.inclusion.priors import SizePrior
from soubayes.sparse.inclusion.product import fit_product
from soubayes.sparse.rows.supports import averaged


def standard(X, y):
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def quadratic(X, y, degrees=None):
    n = len(y)
    return GramQuadratic(X.T @ X, X.T @ y, float(y @ y), n, n - 1 if degrees is None else degrees)


def autoregressive(rng, n, p, rho):
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.97])
def test_inclusion_against_enumeration(rho, monkeypatch):
    monkeypatch.setattr(priors, "SLAB_GRID", np.array([16.0, 256.0]))
    off, coefficients = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        p, k = 6, seed % 3 + 1
        coef = np.zeros(p)
        coef[rng.choice(p, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(0.3, 0.8, k)
        X = autoregressive(rng, 60, p, rho)
        X, y = standard(X, X @ coef + rng.normal(size=60))
        found = fit_product(quadratic(X, y), (np.arange(p), np.full(p, 0.5)))
        assert found.converged
        share = SizePrior().weight
        exact, mean = exact_inclusion(X, y, found.slab.variance, found.slab.weight, share)
        off.append(np.abs(found.probability - exact))
        coefficients.append(np.abs(averaged(found) - mean))
    mean, largest, of_coef = (0.02, 0.12, 0.01) if rho < 0.6 else (0.1, 0.31, 0.09)
    assert np.mean(off) < mean
    assert np.max(off) < largest
    assert np.mean(coefficients) < of_coef


def test_equal_columns_share_one_effect():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(100, 12))
    X[:, 5] = -X[:, 2]
    X[:, 9] = X[:, 2]
    X, y = standard(X, X[:, 2] + rng.normal(size=100))
    found = fit_product(quadratic(X, y))
    assert len(found.effects) == 1
    np.testing.assert_allclose(found.effects[0].alpha[[2, 5, 9]], 1 / 3, atol=0.01)


def test_starts_agree_and_columns_may_come_in_any_order():
    rng = np.random.default_rng(2)
    X = autoregressive(rng, 120, 30, 0.8)
    X, y = standard(X, X[:, 3] - X[:, 17] + rng.normal(size=120))
    found = fit_product(quadratic(X, y)).probability
    wrong = fit_product(quadratic(X, y), (np.array([0, 4, 28]), np.ones(3))).probability
    np.testing.assert_allclose(found, wrong, atol=0.01)
    order = rng.permutation(30)
    moved = fit_product(quadratic(X[:, order], y)).probability
    np.testing.assert_allclose(moved, found[order], atol=1e-6)


def test_columns_that_are_always_in_are_no_candidates():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 5))
    X[:, 1] = X[:, 0] + 0.1 * rng.normal(size=80)
    X, y = standard(X, 2 * X[:, 0] + rng.normal(size=80))
    always = np.zeros(5)
    always[0] = 10.0
    found = fit_product(quadratic(X, y), always=always).probability
    assert found[0] == 0.0
    assert found[1:].max() < 0.3


def test_effects_that_multiply_are_not_called_settled():
    """Faint effects in all columns of wide data: any number of effects would explain them."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 300))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X @ rng.normal(size=300) * 3.0 / np.sqrt(300) + rng.normal(size=80)
    assert not fit_product(quadratic(X, y, np.inf)).converged
