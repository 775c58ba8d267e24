"""Folds that are known by their moments: the same numbers as from their rows."""

from types import SimpleNamespace

import numpy as np
import pytest

from many_rows import set_large
from soubayes import SoULinearRegression
from soubayes.sparse.choice.race import Fits
from soubayes.sparse.choice.scoring import FOLD_MOMENTS, HeldOut
from soubayes.sparse.designs.moments import folded_moments
from soubayes.sparse.least_squares.fold_moments import FoldMoments, mean_variance, residual_products
from soubayes.sparse.posterior import Component, Mixture, Posterior

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(43, 3)) + 5.0, rng.normal(size=(43, 1)) + 2.0
X_MEAN = np.array([4.8, 5.1, 5.0])


def component(seed, weight=1.0, intercept=True):
    own = np.random.default_rng(seed)
    root = own.normal(size=(3, 3))
    q = Posterior(own.normal(size=3), np.diag(root @ root.T), np.arange(3), root @ root.T)
    return Component(q.joined(1.7, 0.3) if intercept else q, 0.5, 9.0, weight)


def rows_of(X, intercept):
    return np.hstack([X - X_MEAN, np.ones((len(X), 1))]) if intercept else X - X_MEAN


@pytest.mark.parametrize("intercept", [True, False])
def test_residuals_and_variances_from_moments(intercept):
    fold = folded_moments(X, Y, None, 1).total()
    parts = component(1, 0.3, intercept), component(2, 0.7, intercept)
    rows = rows_of(X, intercept)
    mixture = Mixture(parts)
    expected = np.mean(mixture.predict(rows)[1])
    assert mean_variance(fold, parts, X_MEAN) == pytest.approx(expected, rel=1e-10)
    means = np.array([part.posterior.mean for part in parts])
    off = Y - rows @ means.T
    np.testing.assert_allclose(residual_products(fold, 0, means, X_MEAN), off.T @ off, rtol=1e-10)


def test_scores_and_errors_of_a_fold_are_those_of_its_rows():
    """Also of a mixture of the candidates, with weights of the rows."""
    weight = rng.integers(1, 4, size=43).astype(float)
    folds = folded_moments(X, Y, weight, 4)
    task = FoldMoments(folds, SimpleNamespace(candidates=("one", "two", "three")))
    one, two = component(1), component(2)
    fits = Fits([{"one": (one,), "two": (two,)}], [{}], X_MEAN)
    (found,) = task.predict(fits, task.splits[1][1])
    test = np.arange(1, 43, 4)
    rows = rows_of(X[test], True)
    y, w = Y[test, 0], weight[test]
    assert task.weight[task.splits[1][1]].sum() == pytest.approx(w.sum())
    both = HeldOut(*map(np.column_stack, zip(found["one"], found["two"], strict=True)))
    mean = both.mean
    np.testing.assert_array_equal(both.noise, 0.5)
    counts = task.weight[task.splits[1][1]]
    scored = FOLD_MOMENTS.score(np.zeros(3), both, counts, 1.0)
    for k, part in enumerate((one, two)):
        off = y - rows @ part.posterior.mean
        assert counts @ mean[:, k] ** 2 == pytest.approx(w @ off**2)
        v = np.average(part.posterior.spread(rows), weights=w) + part.noise
        v *= max(1.0, w @ off**2 / w.sum() / v)
        expected = -0.5 * (w.sum() * np.log(2 * np.pi * v) + w @ off**2 / v)
        assert scored.scores[:, k].sum() == pytest.approx(expected)
    off = y - rows @ (0.4 * one.posterior.mean + 0.6 * two.posterior.mean)
    assert counts @ (mean @ [0.4, 0.6]) ** 2 == pytest.approx(w @ off**2)


def simulated(n, seed=1):
    own = np.random.default_rng(seed)
    X = own.normal(size=(n, 12)) @ own.normal(size=(12, 12))
    return X, X @ (own.normal(size=12) * (np.arange(12) < 4)) + 3.0 * own.normal(size=n)


def test_a_stream_is_fitted_as_the_same_rows_in_memory(monkeypatch):
    set_large(monkeypatch, 200)
    set_large(monkeypatch, 200)
    for n in (120, 300):  # gathered, and known by their moments
        X, y = simulated(n)
        memory = SoULinearRegression().fit(X, y)
        blocks = [(X[i : i + 37], y[i : i + 37]) for i in range(0, n, 37)]
        stream = SoULinearRegression().fit(blocks)
        np.testing.assert_allclose(stream.coef_, memory.coef_, rtol=1e-8)
        np.testing.assert_allclose(
            stream.candidates_["weight"], memory.candidates_["weight"], atol=1e-8
        )
        assert hasattr(stream, "out_of_fold_") == (n == 120)
        _, sd = stream.predict(X[:5], return_std=True)
        np.testing.assert_allclose(sd, memory.predict(X[:5], return_std=True)[1], rtol=1e-8)


def test_chunks_of_partial_fit_keep_the_folds():
    X, y = simulated(150)
    one = SoULinearRegression().partial_fit(X, y)
    many = SoULinearRegression()
    for rows in np.split(np.arange(150), [7, 20, 81]):
        many.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(many.coef_, one.coef_, rtol=1e-8)
    assert one.candidates_["weight"].sum() == pytest.approx(1.0)
    whole = SoULinearRegression().fit(X, y)  # other folds, and scores by row
    np.testing.assert_allclose(one.predict(X), whole.predict(X), atol=0.1 * y.std())
    np.testing.assert_array_equal(many.selected_, whole.selected_)  # the same sparse point
    np.testing.assert_allclose(many.sparse_.coef_, whole.sparse_.coef_, rtol=1e-8)
    assert many.sparse_.confidence_coef_ == pytest.approx(whole.sparse_.confidence_coef_)


def test_many_rows_in_chunks_are_fitted_as_in_one_call(monkeypatch):
    set_large(monkeypatch, 200)
    X, y = simulated(300)
    whole, chunks = SoULinearRegression().fit(X, y), SoULinearRegression()
    for rows in np.split(np.arange(300), [60, 151]):
        chunks.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(chunks.coef_, whole.coef_, rtol=1e-8)
    np.testing.assert_allclose(chunks.candidates_["weight"], whole.candidates_["weight"], atol=1e-8)
    _, sd = chunks.predict(X[:5], return_std=True)
    np.testing.assert_allclose(sd, whole.predict(X[:5], return_std=True)[1], rtol=1e-8)


def test_a_splitter_needs_rows():
    X, y = simulated(150)
    with pytest.raises(TypeError, match="split by their numbers"):
        SoULinearRegression(cv=[(np.arange(100), np.arange(100, 150))]).partial_fit(X, y)
    assert SoULinearRegression(cv=3).partial_fit(X, y).candidates_["weight"].max() > 0.0
