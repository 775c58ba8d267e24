"""LR-L1 against scikit-learn's solvers."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from paper.l1 import fit_l1, fit_l1_cv, l1_objective, zero


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 30)) + rng.normal(size=(300, 1))  # correlated columns
    X = (X - X.mean(0)) / X.std(0)
    beta = np.zeros(30)
    beta[:4] = [1.5, -1.0, 1.0, -0.5]
    return X, (X @ beta - 0.7 + rng.logistic(size=300) > 0).astype(int)


def peer(X, y, C):
    # saga leaves the intercept unpenalised
    model = LogisticRegression(C=C, l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=20_000)
    return model.fit(X, y)


def test_same_minimum_as_scikit_learn(problem):
    X, y = problem
    fit = zero(X)
    for C in (0.02, 0.1, 0.5, 5.0):
        fit = fit_l1(X, y, C, fit, tol=1e-8)
        other = peer(X, y, C)
        np.testing.assert_allclose(fit.coef, other.coef_[0], atol=2e-6)
        np.testing.assert_allclose(fit.intercept, other.intercept_[0], atol=2e-6)
        np.testing.assert_array_equal(fit.coef == 0, np.abs(other.coef_[0]) < 1e-9)


def test_default_tolerance_and_float32_cost_little(problem):
    X, y = problem
    for C in (0.1, 1.0):
        other = peer(X, y, C)
        best = l1_objective(other.decision_function(X), y, other.coef_, 1.0 / C)
        fit = fit_l1(X.astype(np.float32), y, C, zero(X))
        assert l1_objective(fit.decision_function(X), y, fit.coef, 1.0 / C) < best * (1.0 + 1e-5)


def test_cross_validation_chooses_the_same_penalty(problem):
    X, y = problem
    grid = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    losses = [
        np.mean(
            [
                log_loss(y[held], expit(peer(X[rows], y[rows], C).decision_function(X[held])))
                for rows, held in StratifiedKFold(3, shuffle=True, random_state=0).split(X, y)
            ]
        )
        for C in grid
    ]
    best = grid[int(np.argmin(losses))]
    assert grid[0] < best < grid[-2]  # so that the early stop is used
    fit = fit_l1_cv(X, y, 3, grid)
    assert best == fit.C
    np.testing.assert_allclose(fit.coef, peer(X, y, best).coef_[0], atol=2e-3)
