"""levels: candidates of different columns in one race, embedded in the columns of the largest."""

import numpy as np
import pytest

from soubayes import (
    SoUCoxRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUPoissonRegression,
)
from soubayes.sparse.levels import placed_component
from soubayes.sparse.posterior import Component, LowRankPosterior, Posterior


def data(n=250, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 4))
    return rng, X, np.sin(2 * X[:, 0]) + 0.7 * X[:, 1]


def by_terms(model):
    table = model.candidates_
    table = table[0] if isinstance(table, list) else table
    return table.groupby("terms")["weight"].sum()


def test_a_placed_posterior_is_the_same_with_zeros():
    S = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.0], [0.1, 0.0, 1.0]])
    q = Posterior(np.array([1.0, 2.0, 3.0]), np.diag(S).copy(), np.arange(3), S)
    wide = placed_component(Component(q), np.array([1, 3]), 5).posterior
    expected = np.zeros((6, 6))
    expected[np.ix_([1, 3, 5], [1, 3, 5])] = S
    np.testing.assert_array_equal(wide.full(), expected)
    np.testing.assert_array_equal(wide.mean, [0, 1, 0, 2, 0, 3])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2, 3))
    inverse = np.linalg.inv(np.linalg.cholesky(np.eye(2) + X @ X.T))
    low = LowRankPosterior(np.arange(3.0), np.ones(3), X, np.ones(3), inverse, inverse)
    placed = low.placed(np.array([0, 2, 3]), 5)
    rows = rng.normal(size=(4, 5))
    np.testing.assert_allclose(placed.spread(rows), low.spread(rows[:, [0, 2, 3]]))
    draws = placed.sample(50_000, np.random.default_rng(1))  # NaN before, for 0/0 of the zeros
    np.testing.assert_array_equal(draws[:, [1, 4]], 0.0)
    np.testing.assert_allclose(np.cov(draws.T), placed.full(), atol=0.03)


@pytest.mark.parametrize("kind", ["linear", "classes", "three classes", "counts", "survival"])
def test_a_curve_that_is_there_takes_the_weight(kind):
    rng, X, eta = data()
    if kind == "linear":
        model, y = SoULinearRegression(terms="curves"), eta + 0.3 * rng.normal(size=len(X))
    elif kind == "classes":
        model, y = SoULogisticRegression(terms="curves"), 4 * eta + rng.logistic(size=len(X)) > 0
    elif kind == "three classes":
        model = SoULogisticRegression(terms="curves")
        y = np.digitize(3 * eta + rng.logistic(size=len(X)), [-2, 2])
    elif kind == "counts":
        model, y = SoUPoissonRegression(terms="curves"), rng.poisson(np.exp(eta))
    else:
        time = rng.exponential(np.exp(-1.5 * eta))
        model, y = SoUCoxRegression(terms="curves"), (time < 3.0, np.minimum(time, 3.0))
    model.fit(X, y)
    assert by_terms(model)["curves"] > 0.9
    summary = model.summary()
    summary = summary.loc[summary.index[0][0]] if summary.index.nlevels > 1 else summary
    if kind != "three classes":
        assert summary["kind"]["s(x0)"] == "curved"
    assert model.sparse_.predict(X).shape == (len(X),)
    assert "x0 curved" in str(model.sparsity_) or kind == "three classes"


def test_a_straight_truth_is_not_called_curved():
    curved = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 3))
        y = X[:, 0] + rng.normal(size=200)
        model = SoULinearRegression(terms="curves").fit(X, y)
        assert model.summary()["kind"]["s(x0)"] != "absent"
        curved += (model.summary()["kind"] == "curved").any()
    assert curved <= 1  # one table of 30 in a longer run


def test_a_product_is_found_and_predicts():
    rng, X, _ = data(400)
    y = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=400)
    model = SoULinearRegression(terms="pairs").fit(X[:300], y[:300])
    off = y[300:] - model.predict(X[300:])
    assert np.sqrt(np.mean(off**2)) < 0.4  # the noise is 0.3; without pairs it is 1.4
    assert model.summary()["kind"]["s(x0):s(x1)"] == "pair"
    grid = model.terms_["s(x0):s(x1)"]
    truth = grid["x0"] * grid["x1"]
    assert np.corrcoef(truth, grid["estimate"])[0, 1] > 0.98


def test_bands_cover_the_curve():
    rng, X, _ = data(400, seed=5)
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=400)
    model = SoULinearRegression(terms="curves").fit(X, y)
    band = model.terms_["s(x0)"]
    truth = np.sin(2 * band["x0"]) - np.mean(np.sin(2 * X[:, 0]))
    inside = (band["lower"] < truth) & (truth < band["upper"])
    assert inside.mean() > 0.7


def test_results_do_not_depend_on_the_unit_of_x_or_jobs():
    rng, X, eta = data(150)
    y = eta + 0.3 * rng.normal(size=150)
    model = SoULinearRegression(terms="curves").fit(X, y)
    other = SoULinearRegression(terms="curves", n_jobs=2).fit(3.0 - 10.0 * X, y)
    np.testing.assert_allclose(model.predict(X), other.predict(3.0 - 10.0 * X), atol=1e-5)
