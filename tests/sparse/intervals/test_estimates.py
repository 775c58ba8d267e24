"""ColumnEstimates of all columns: least squares, debiased ridge and one Newton step."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from soubayes import (
    SoUCoxRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUOrdinalRegression,
    SoUPoissonRegression,
    load_model,
    save_model,
)
from soubayes.datasets import experiment1
from soubayes.sparse.designs.moments import moments
from soubayes.sparse.intervals.estimates import debiased_ridge, least_squares, one_step
from soubayes.sparse.intervals.fab import fab_intervals


def table(seed=0, n=60, p=8):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.3) + 5.0
    return X, X[:, 0] - 0.3 * X[:, 1] + rng.normal(size=n)


@pytest.mark.parametrize("intercept", [True, False])
def test_least_squares_agrees_with_scikit_learn(intercept):
    X, y = table()
    found = least_squares(moments(X, y[:, None]), intercept)[0]
    fit = LinearRegression(fit_intercept=intercept).fit(X, y)
    np.testing.assert_allclose(found.value, fit.coef_)
    degrees = len(y) - X.shape[1] - intercept
    design = np.column_stack([X, np.ones(len(y))]) if intercept else X
    V = np.linalg.inv(design.T @ design)[: X.shape[1], : X.shape[1]]
    variance = np.sum((y - fit.predict(X)) ** 2) / degrees
    np.testing.assert_allclose(found.se, np.sqrt(variance * np.diag(V)))
    root = np.sqrt(np.diag(V))
    np.testing.assert_allclose(found.correlation, V / np.outer(root, root), atol=1e-10)
    assert found.degrees == degrees


def test_columns_that_others_determine_have_no_estimate_and_leave_the_rest_alone():
    X, y = table()
    more = np.column_stack([X, X[:, 2] + X[:, 3], np.full(len(X), 7.0)])
    found = least_squares(moments(more, y[:, None]), True)[0]
    plain = least_squares(moments(X, y[:, None]), True)[0]
    rest = [0, 1, 4, 5, 6, 7]
    np.testing.assert_allclose(found.value[rest], plain.value[rest])
    np.testing.assert_allclose(found.se[rest], plain.se[rest])
    assert np.isinf(found.se[[2, 3, 8, 9]]).all()


def test_debiased_ridge_is_generalised_least_squares_without_the_column():
    rng = np.random.default_rng(3)
    n, p, d = 30, 50, None
    X = rng.normal(size=(n, p))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X[:, 0] - X[:, 1] + rng.normal(size=n)
    y -= y.mean()
    found = debiased_ridge(X, y, np.ones(n), True)
    # d from the marginal likelihood of the share of variance, on its grid, by densities
    share = (np.arange(200) + 0.5) / 200.0
    basis = np.linalg.svd(np.eye(n) - 1.0 / n)[0][:, : n - 1]  # contrasts: the mean is gone
    inside, K = basis.T @ y, basis.T @ X @ X.T @ basis
    fit = []
    for one in share / (1.0 - share) / (np.trace(K) / (n - 1.0)):
        omega = np.eye(n - 1) + one * K
        square = inside @ np.linalg.solve(omega, inside)
        fit.append(-0.5 * np.linalg.slogdet(omega)[1] - 0.5 * (n - 1) * np.log(square))
    weight = np.exp(np.array(fit) - max(fit))
    mean = weight @ share / weight.sum()
    d = mean / (1.0 - mean) / (np.trace(K) / (n - 1.0))
    variance = inside @ np.linalg.solve(np.eye(n - 1) + d * K, inside) / (n - 1.0)
    for j in (0, 1, 7):
        others = np.delete(X, j, axis=1)
        direction = np.linalg.solve(np.eye(n) + d * others @ others.T, X[:, j])
        information = direction @ X[:, j]
        np.testing.assert_allclose(found.value[j], direction @ y / information, rtol=1e-8)
        np.testing.assert_allclose(found.se[j], np.sqrt(variance / information), rtol=1e-8)


def test_cross_products_with_too_few_rows_give_the_ridge_of_the_rows():
    X, y = table(n=9, p=8)
    found = least_squares(moments(X, y[:, None]), True)[0]
    given = debiased_ridge(X, y, np.ones(9), True)
    np.testing.assert_allclose(found.value, given.value)
    np.testing.assert_allclose(found.se, given.se)


def test_one_step_stays_at_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 5))
    y = (rng.random(300) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(float)
    fit = LogisticRegression(C=1e12, tol=1e-12, max_iter=1000).fit(X, y)
    eta = fit.decision_function(X)
    mean = 1.0 / (1.0 + np.exp(-eta))
    found = one_step(X, eta, mean - y, mean * (1.0 - mean), np.ones(300), True, 1.0)
    np.testing.assert_allclose(found.value, fit.coef_[0], rtol=1e-5)
    design = np.column_stack([X, np.ones(300)])
    V = np.linalg.inv(design.T @ (design * (mean * (1.0 - mean))[:, None]))
    np.testing.assert_allclose(found.se, np.sqrt(np.diag(V))[:5])


def test_intervals_cover_in_repeated_samples_at_every_size():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(50, 12)) @ (np.eye(12) + 0.5)
    coef = np.array([0.6, 0.3, 0.15, 0.05] + [0.0] * 8)
    inside = []
    for _ in range(400):
        y = X @ coef + rng.normal(size=50)
        low, high = fab_intervals(least_squares(moments(X, y[:, None]), True)[0], 0.9)
        inside.append((low <= coef) & (coef <= high))
    share = np.mean(inside, axis=0)
    assert (np.abs(share - 0.9) < 4.0 * np.sqrt(0.09 / 400)).all()


def test_the_table_survives_files_streams_and_units(tmp_path):
    X, y = table()
    model = SoULinearRegression(choice="path").fit(X, y)
    rows = model.summary(level=0.8, intervals="frequentist")
    assert list(rows) == ["estimate", "se", "lower", "upper", "selected"]
    assert rows.columns.name == "frequentist: exact for normal noise"
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").summary(0.8, intervals="frequentist").equals(rows)
    chunks = SoULinearRegression(choice="path")
    for i in range(0, 60, 20):
        chunks.partial_fit(X[i : i + 20], y[i : i + 20])
    again = chunks.summary(level=0.8, intervals="frequentist")
    np.testing.assert_allclose(again.to_numpy(float), rows.to_numpy(float), rtol=1e-8)
    scaled = SoULinearRegression(choice="path").fit(X * 100.0, y * 7.0)
    moved = scaled.summary(level=0.8, intervals="frequentist")
    np.testing.assert_allclose(moved["lower"], rows["lower"] * 0.07, rtol=1e-7)
    both = SoULinearRegression(choice="path").fit(X, np.column_stack([y, -y]))
    lower = both.summary(level=0.8, intervals="frequentist")["lower"]
    np.testing.assert_allclose(lower.loc[1], -rows["upper"], rtol=1e-8)


@pytest.mark.parametrize("kind", ["wide", "logistic", "poisson"])
def test_other_fits_keep_their_estimates(kind, tmp_path):
    rng = np.random.default_rng(6)
    if kind == "wide":
        data = experiment1(55, 80, 10)
        model = SoULinearRegression(choice="path").fit(data.X[:55], data.y)
    else:
        X = rng.normal(size=(200, 6))
        eta = 0.8 * X[:, 0]
        logistic = kind == "logistic"
        y = rng.random(200) < 1.0 / (1.0 + np.exp(-eta)) if logistic else rng.poisson(np.exp(eta))
        cls = SoULogisticRegression if logistic else SoUPoissonRegression
        model = cls(choice="path").fit(X, y)
    rows = model.summary(intervals="frequentist")
    assert ((rows["lower"] < rows["estimate"]) & (rows["estimate"] < rows["upper"])).all()
    assert rows["lower"].iloc[0] > 0.0 or kind == "wide"
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").summary(intervals="frequentist").equals(rows)


def test_poisson_estimates_know_the_exposure():
    rng = np.random.default_rng(7)
    X, exposure = rng.normal(size=(400, 3)), rng.uniform(0.5, 4.0, 400)
    y = rng.poisson(exposure * np.exp(0.5 * X[:, 0] + 1.0))
    model = SoUPoissonRegression(choice="path").fit(X, y, exposure=exposure)
    rows = model.summary(intervals="frequentist")
    assert np.all(np.abs(rows["estimate"] - [0.5, 0.0, 0.0]) < 4.0 * rows["se"])
    assert (rows["se"] < 2.0 / np.sqrt(y.sum())).all()


def test_cuts_of_ordered_classes_are_free_to_move():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(600, 2)) + 3.0  # far from zero: a shift of the cuts looks like an effect
    latent = X[:, 0] + rng.logistic(size=600)
    y = np.digitize(latent, np.quantile(latent, [0.3, 0.7]))
    rows = SoUOrdinalRegression(choice="path").fit(X, y).summary(intervals="frequentist")
    assert np.all(np.abs(rows["estimate"] - [1.0, 0.0]) < 4.0 * rows["se"])
    # the information of a location alone, about the mean of X, is at most 1/3 for a row
    least = np.sqrt(3.0 / np.sum((X - X.mean(axis=0)) ** 2, axis=0))
    assert (rows["se"] > 0.95 * least).all()


def test_fits_without_such_intervals_say_why():
    X, y = table()
    with pytest.raises(ValueError, match="noise='student'"):
        SoULinearRegression(noise="student").fit(X, y).summary(intervals="frequentist")
    with pytest.raises(ValueError, match="fit itself"):
        SoULinearRegression().fit(X, y).sparse_.summary(intervals="frequentist")
    with pytest.raises(ValueError, match="intervals is 'both'"):
        SoULinearRegression(choice="path").fit(X, y).summary(intervals="both")
    cox = SoUCoxRegression(choice="path").fit(X, (np.ones(len(y), bool), np.exp(y)))
    with pytest.raises(ValueError, match="likelihood of rows"):
        cox.summary(intervals="frequentist")
