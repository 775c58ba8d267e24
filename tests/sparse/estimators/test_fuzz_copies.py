"""Fits of random tables in which a strong column has copies and look-alikes.

The signal is kept by at least one of them, new rows are predicted as well as with one of them
alone, and what is selected is the chosen row of the path. Of exact copies the first is kept.
"""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

from soubayes import SoUGeneralizedRegression, SoULinearRegression, SoULogisticRegression
from soubayes.sparse.likelihoods.base import RowLikelihood

NEW = 1000  # rows on which predictions are compared


class Waiting(RowLikelihood):
    """Waiting times with mean exp(eta)."""

    def derivatives(self, eta, y):
        ratio = y * np.exp(-eta)
        return eta + ratio, 1.0 - ratio, ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


MODELS = {
    "linear": lambda: SoULinearRegression(choice="path"),
    "logistic": lambda: SoULogisticRegression(choice="path"),
    "own": lambda: SoUGeneralizedRegression(Waiting(), choice="path"),
}
EXACT = ("equal", "negated", "affine", "complement")
CORRELATIONS = (1 - 1e-9, 1 - 1e-6, 0.9999, 0.99, 0.95)
FORMS = ("dense", "fortran", "csr", "blocks", "partial_fit")


class Case(NamedTuple):
    kind: str
    n: int
    p: int
    k: int
    copy: str | float  # how a column is copied, or its correlation with the copies
    form: str
    X: np.ndarray
    y: np.ndarray
    cluster: np.ndarray  # ascending
    first: int  # the column that carries the signal (of exact copies the first)
    new: tuple[np.ndarray, np.ndarray]


def test_fuzz():
    for seed in range(40):
        check(make(seed))


@pytest.mark.parametrize("seed", [4054, 6080, 9020, 11071, 19080, 53032, 58026, 62074])
def test_almost_equal_columns(seed):
    """Tables on which a count of near copies as columns that were searched changed the fit."""
    check(make(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_long_fuzz(seed):
    for i in range(100):
        check(make(1000 * seed + i))


def make(seed):
    rng = np.random.default_rng(seed)
    kind = {0: "logistic", 1: "own"}.get(seed % 20, "linear")
    shapes, sizes = [(80, 25), (40, 104)], (2, 3, 5, 8, 20)
    if kind != "linear":
        shapes, sizes = [(100, 12), (90, 96)], (2, 3, 5, 8)
    n, p = shapes[int(rng.integers(2))]
    sizes += (100,) if p > 100 else ()
    k = int(rng.choice(sizes))
    copy = (EXACT + CORRELATIONS)[int(rng.integers(len(EXACT + CORRELATIONS)))]
    cluster = np.sort(rng.permutation(p)[:k])
    first = int(cluster[0] if isinstance(copy, str) else rng.choice(cluster))
    forms = FORMS if kind == "linear" and n > p else FORMS[:3]
    form = str(rng.choice(forms))
    X, eta = _rows(rng, n, p, copy, cluster, first)
    new, new_eta = _rows(rng, NEW, p, copy, cluster, first)
    y, new_y = _targets(rng, kind, eta), _targets(rng, kind, new_eta)
    return Case(kind, n, p, k, copy, form, X, y, cluster, first, (new, new_y))


def _rows(rng, n, p, copy, cluster, first):
    X = rng.normal(size=(n, p))
    x = X[:, first].copy()
    if copy == "complement":
        x = X[:, first] = np.where(rng.random(n) < 0.5, 1.0, 0.0)
    for j in cluster[cluster != first]:
        if isinstance(copy, str):
            X[:, j] = {"equal": x, "negated": -x, "affine": 32.0 + 1.8 * x}.get(copy, 1.0 - x)
        else:
            X[:, j] = copy * x + np.sqrt(1.0 - copy**2) * X[:, j]
    return X, (x - x.mean()) / x.std()


def _targets(rng, kind, eta):
    if kind == "linear":
        return 1.5 * eta + rng.normal(size=len(eta))
    if kind == "logistic":
        return (2.0 * eta + rng.logistic(size=len(eta)) > 0).astype(int)
    return rng.exponential(np.exp(1.5 * eta))


def fit(case, X):
    model = MODELS[case.kind]()
    if case.form == "blocks":
        return model.fit([(X[i : i + 60], case.y[i : i + 60]) for i in range(0, case.n, 60)])
    if case.form == "partial_fit":
        for i in range(0, case.n, 80):
            model.partial_fit(X[i : i + 80], case.y[i : i + 80])
        return model
    form = {"csr": sp.csr_array, "fortran": np.asfortranarray}.get(case.form, np.asarray)
    return model.fit(form(X), case.y)


def check(case):
    model = fit(case, case.X)
    what = case._replace(X=None, y=None, new=None)
    selected = np.ravel(model.selected_)
    assert selected[case.cluster].any(), what
    if isinstance(case.copy, str):
        assert np.flatnonzero(selected[case.cluster]).tolist() == [0], what
    point = model.sparse_
    chosen = point.path_["chosen"].to_numpy()
    row = point.path_coef_.to_numpy()[chosen][0] != 0.0
    if case.kind != "linear":  # the refit of a row-wise model may leave weak columns out
        refit = point.path_refit_coef_.to_numpy()[chosen][0] != 0.0
        assert not (refit & ~row).any(), what
        row = refit
    if not isinstance(case.copy, str):
        # a second look-alike of the path's point may leave when the point is refitted
        row = np.where(np.isin(np.arange(case.p), case.cluster) & row, selected, row)
    np.testing.assert_array_equal(row, selected, str(what))
    # which of several noisy copies is best is for the data to say, so the one that was found
    kept = case.cluster[np.argmax(np.abs(np.ravel(model.coef_)[case.cluster]))]
    rest = np.setdiff1d(case.cluster, [kept])
    others = np.setdiff1d(np.arange(case.p), rest)
    single = fit(case, case.X[:, others])
    new, y = case.new
    worse = explained(case, single, new[:, others], y) - explained(case, model, new, y)
    # of noisy copies (0.99 and below) a second one may have the better score and predict worse: how
    # many are kept is then the choice of the path's point, which is not looked at here
    noisy = not isinstance(case.copy, str) and case.copy < 0.999
    assert noisy or worse < 0.01, (what, worse)
    if isinstance(case.copy, str):  # copies are not places to search: the fit is that without them
        np.testing.assert_array_equal(selected[others], np.ravel(single.selected_), str(what))
        near = np.ravel(single.coef_)
        np.testing.assert_allclose(
            np.ravel(model.coef_)[others], near, atol=1e-3 * np.abs(near).max(), err_msg=str(what)
        )


def explained(case, model, X, y):
    """R^2, or its like for a likelihood: the share of the loss of a constant that is explained."""
    if case.kind == "linear":
        return 1.0 - np.mean((y - model.predict(X)) ** 2) / np.var(y)
    if case.kind == "logistic":
        p = model.predict_proba(X)[:, 1]
        loss = -np.mean(np.log(np.where(y == 1, p, 1.0 - p)))
        return 1.0 - loss / np.log(2.0)
    eta = X @ model.coef_ + model.intercept_
    constant = 1.0 + np.log(y.mean())
    return 1.0 - np.mean(eta + y * np.exp(-eta)) / constant
