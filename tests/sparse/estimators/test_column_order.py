"""Where a column stands in X must not matter: the path, the chosen columns and the predictions."""

import numpy as np
import pytest

from soubayes import (
    SoUGammaRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNegativeBinomialRegression,
    SoUPoissonRegression,
)


def wide():
    """More columns than rows; some classes are separated at a low confidence."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 500)) + 0.5 * rng.normal(size=(60, 1))
    return X, X @ rng.normal(size=500) * 0.05


def tall():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(120, 25)) @ (np.eye(25) + 0.3 * rng.normal(size=(25, 25)))
    return X, X[:, :4] @ np.array([0.3, -0.3, 0.2, 0.2])


def separated():
    X = np.random.default_rng(7).normal(size=(60, 20))
    return X, 8.0 * (X[:, 0] - X[:, 1])


def copied():
    """A third of the columns are copies of others, some with the other sign."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(70, 20))
    return np.hstack([X, X[:, :6], -X[:, 3:8]]), X[:, :4] @ np.array([1.0, -1.0, 0.5, 0.5])


def response(kind, eta):
    rng = np.random.default_rng(2)
    eta = np.clip(eta, -2.5, 2.5) if kind is not SoULogisticRegression else eta
    noise = rng.normal(size=len(eta))
    if kind is SoULinearRegression:
        return eta + noise
    if kind is SoULogisticRegression:
        return (eta + 0.6 * noise > np.median(eta)).astype(int)
    mean = np.exp(eta) * (
        rng.gamma(3.0, 1 / 3, len(eta)) if kind is not SoUPoissonRegression else 1
    )
    return mean + 0.01 if kind is SoUGammaRegression else rng.poisson(mean)


def said(model, X):
    return model.predict_proba(X)[:, 1] if hasattr(model, "classes_") else model.predict(X)


TABLES = {"wide": wide, "tall": tall, "separated": separated, "copied": copied}
KINDS = (SoULogisticRegression, SoUPoissonRegression, SoULinearRegression)
MORE = (SoUNegativeBinomialRegression, SoUGammaRegression)
CASES = [(kind, name) for kind in KINDS for name in TABLES] + [(kind, "tall") for kind in MORE]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_permuted_columns_give_the_same_path(kind, name):
    X, eta = TABLES[name]()
    y, order = response(kind, eta), np.random.default_rng(0).permutation(X.shape[1])
    ours = kind(choice="path").fit(X, y)
    moved = kind(choice="path").fit(X[:, order], y)
    at, then = ours.path_, moved.path_
    np.testing.assert_array_equal(at["n_selected"], then["n_selected"])
    np.testing.assert_allclose(then["value"], at["value"], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(said(moved, X[:, order]), said(ours, X), rtol=1e-6, atol=1e-8)
    if name != "copied":  # of equal columns the first one stands for all
        kept, coef = np.ravel(moved.selected_), np.ravel(moved.coef_)
        assert set(order[kept]) == set(np.flatnonzero(ours.selected_))
        scale = np.abs(ours.coef_).max()
        np.testing.assert_allclose(coef, np.ravel(ours.coef_)[order], rtol=1e-6, atol=1e-8 * scale)


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (SoULogisticRegression, "wide"),
        (SoULogisticRegression, "copied"),
        (SoUPoissonRegression, "tall"),
    ],
)
def test_permuted_columns_give_the_same_default_predictions(kind, name):
    X, eta = TABLES[name]()
    y, order = response(kind, eta), np.random.default_rng(0).permutation(X.shape[1])
    ours, moved = kind().fit(X, y), kind().fit(X[:, order], y)
    np.testing.assert_allclose(said(moved, X[:, order]), said(ours, X), rtol=1e-6)
