"""Columns a chunk at a time: the same numbers as the matrix they stand for, in less memory."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from soubayes import SoULinearRegression, SoULogisticRegression
from soubayes.datasets import wide_design
from soubayes.sparse.designs import columns as module
from soubayes.sparse.designs.columns import StandardColumns, standard_columns, weighted_moments
from soubayes.sparse.least_squares import designs
from soubayes.sparse.rows import dropped

N, P = 15, 40


def _matrix(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, P)) * (rng.random((N, P)) < 0.3) + 5.0 * (kind != "sparse")
    X[:, 3] = X[0, 3]
    return X, rng.uniform(0.5, 2.0, N), rng


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    monkeypatch.setattr(module, "CHUNK_BYTES", 8 * 7 * N)  # 7 columns


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("ones", [False, True])
def test_chunks_are_the_matrix(kind, ones, small_chunks):
    X, counts, rng = _matrix(kind)
    mean, square = weighted_moments(
        sp.csr_array(X) if kind == "sparse" else X, counts / counts.sum(), True
    )
    np.testing.assert_allclose(mean, np.average(X, axis=0, weights=counts))
    np.testing.assert_allclose(
        square, np.average((X - mean) ** 2, axis=0, weights=counts), atol=1e-14
    )
    scale = np.where(square > 1e-12, np.sqrt(square), np.inf)  # constant columns
    full = (X - mean) / scale * np.sqrt(counts)[:, None]
    full = np.column_stack([full, np.sqrt(counts)]) if ones else full
    columns = standard_columns(
        sp.csr_array(X) if kind == "sparse" else X, mean, scale, np.sqrt(counts), ones
    )
    index = np.array([1, 5, 20, full.shape[1] - 1])
    for view, want in ((columns, full), (columns.take(index), full[:, index])):
        w, T, v = rng.uniform(1, 3, want.shape[1]), rng.normal(size=(4, N)), rng.normal(size=N)
        close = {"rtol": 1e-12, "atol": 1e-12}
        np.testing.assert_allclose(view.dense(), want, **close)
        np.testing.assert_allclose(view.gram(w), (want / w) @ want.T, **close)
        np.testing.assert_allclose(view.norms(), np.sum(want**2, axis=0), **close)
        np.testing.assert_allclose(view.left(v), v @ want, **close)
        np.testing.assert_allclose(view.times(w), want @ w, **close)
        squares, products = view.projected(T, T @ v)
        np.testing.assert_allclose(squares, np.sum((T @ want) ** 2, axis=0), **close)
        np.testing.assert_allclose(products, (T @ v) @ (T @ want), **close)


def _text(n, p, seed=0):
    """Counts of words: sparse, most columns with a handful of rows."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, p), density=0.02, format="csc", rng=rng)
    X.data = 1.0 + rng.poisson(1.0, X.nnz)
    dense = X[:, :8].toarray()
    dense[rng.random((n, 8)) < 0.4] += 1.0
    X = sp.csc_array(sp.hstack([dense, X[:, 8:]]))
    return X, dense @ np.array([3.0, -3.0, 2.0, -2.0, 3.0, -3.0, 2.0, -2.0]), rng


def _same(a, b):
    # L-BFGS steps on separated classes end where J is flat to rounding
    digits = 1e-6 if isinstance(a, SoULogisticRegression) else 1e-8
    np.testing.assert_array_equal(a.selected_, b.selected_)
    for name in ("coef_", "coef_sd_", "intercept_"):
        want = np.asarray(getattr(a, name))
        np.testing.assert_allclose(
            getattr(b, name), want, rtol=digits, atol=digits * np.abs(want).max()
        )


@pytest.mark.parametrize("layout", [sp.csr_array, sp.csc_array])
def test_sparse_wide_data_give_the_fit_of_dense_ones(layout):
    X, signal, rng = _text(80, 400)
    y = signal + rng.normal(size=80)
    _same(
        SoULinearRegression(choice="path").fit(X.toarray(), y),
        SoULinearRegression(choice="path").fit(layout(X), y),
    )
    label = signal + 2 * rng.logistic(size=80) > np.median(signal)
    expected = SoULogisticRegression(confidence_coef=1.0).fit(X.toarray(), label)
    _same(expected, SoULogisticRegression(confidence_coef=1.0).fit(layout(X), label))


def test_chunked_dense_wide_data_give_the_same_fit(monkeypatch):
    data = wide_design(60, 300, 8, random_state=1)
    X, label = data.X + 100.0, data.X[:, 0] - data.X[:, 1] > 0.3
    fits = [
        (
            SoULinearRegression(choice="path").fit(X, data.y),
            SoULogisticRegression(confidence_coef=1.0).fit(X, label),
        ),
    ]
    monkeypatch.setattr(module, "HELD_BYTES", 0)
    monkeypatch.setattr(module, "CHUNK_BYTES", 8 * 60 * 7)
    monkeypatch.setattr("soubayes.sparse.rows.dropped._BYTES", 8 * 60 * 7)
    fits.append(
        (
            SoULinearRegression(choice="path").fit(X, data.y),
            SoULogisticRegression(confidence_coef=1.0).fit(X, label),
        )
    )
    for one, two in zip(*fits, strict=True):
        _same(one, two)


@pytest.mark.parametrize(
    "model",
    [SoULinearRegression(cv=2), SoULogisticRegression(confidence_coef=1.0)],
)
def test_sparse_wide_data_are_never_made_dense(model, monkeypatch):
    n, p = 400, 15_000
    X, signal, _ = _text(n, p)
    monkeypatch.setattr(module, "CHUNK_BYTES", 2**20)
    monkeypatch.setattr(designs, "SPARSE_BYTES", 0)  # a fold is below it
    y = signal if isinstance(model, SoULinearRegression) else signal > 0
    tracemalloc.start()
    try:
        model.fit(X, y).predict(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * n * p  # one dense copy


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_columns_that_return_one_at_a_time_reach_about_the_same_objective(seed, monkeypatch):
    X, label = _words(80, 400, seed)
    monkeypatch.setattr("soubayes.sparse.rows.path.FEW_COLUMNS", 2)  # the others must return
    together = SoULogisticRegression(confidence_coef=1.0, tol=1e-10, bound="jaakkola").fit(X, label)
    looks = []
    choose = dropped._most_gain
    monkeypatch.setattr(dropped, "RETURNS_PER_ROW", 0.02)
    monkeypatch.setattr(
        dropped, "_most_gain", lambda *given: looks.append(choose(*given)) or looks[-1]
    )
    one = SoULogisticRegression(confidence_coef=1.0, tol=1e-10, bound="jaakkola").fit(X, label)
    assert looks
    assert all(chosen.sum() <= 1 for chosen in looks)
    assert np.all(np.diff(one.objective_) <= 0.0)
    # other columns are in on the way, so it may be another of the near minima
    np.testing.assert_allclose(one.objective_[-1], together.objective_[-1], rtol=0.1)


def _words(n, p, seed):
    """Six common words that decide, and rare ones."""
    rng = np.random.default_rng(seed)
    common = rng.poisson(0.5, (n, 6)).astype(float)
    rare = sp.random_array((n, p - 6), density=0.05, format="csc", rng=rng)
    rare.data = 1.0 + rng.poisson(0.5, rare.nnz)
    signal = common @ np.array([4.0, -4.0, 3.0, -3.0, 2.0, -2.0])
    label = signal + 0.5 * signal.std() * rng.logistic(size=n) > 0
    return sp.csc_array(sp.hstack([common, rare])), label


def test_of_copies_the_first_is_kept_and_the_fit_is_that_of_distinct_columns(monkeypatch):
    rng = np.random.default_rng(0)
    n, copies = 40, 20
    base = rng.normal(size=(n, 6))
    score = base[:, :4] @ [1.0, -1.0, 1.0, -1.0]
    X, label = np.repeat(base, copies, axis=1), score + 0.1 * rng.logistic(size=n) > 0
    model = SoULogisticRegression(confidence_coef=1.0, tol=1e-10, bound="jaakkola")
    distinct = clone(model).fit(base, label)
    for most in (150, 4):
        monkeypatch.setattr("soubayes.sparse.rows.path.FEW_COLUMNS", most)
        found = clone(model).fit(X, label)
        np.testing.assert_array_equal(
            np.flatnonzero(found.selected_), copies * np.flatnonzero(distinct.selected_)
        )
        np.testing.assert_allclose(
            found.decision_function(X), distinct.decision_function(base), rtol=1e-3
        )


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_with_a_triangle(order):
    rng = np.random.default_rng(8)
    X = np.asarray(rng.normal(size=(40, 2000)), order=order)
    columns, v = StandardColumns(X, None, None, np.ones(40)), rng.normal(size=40)
    T = np.tril(rng.normal(size=(40, 40)))
    squares, products = columns.projected(T, v, lower=True)
    np.testing.assert_allclose(squares, np.square(T @ X).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(products, v @ T @ X, rtol=1e-12, atol=1e-10)


def test_a_mixture_of_wide_data_does_not_depend_on_the_order_of_columns():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 1500))
    y = 0.05 * X @ rng.normal(size=1500) + rng.normal(size=60)
    order = rng.permutation(1500)
    model, other = SoULinearRegression().fit(X, y), SoULinearRegression().fit(X[:, order], y)
    assert (model.candidates_["weight"] > 0).sum() > 3
    np.testing.assert_allclose(other.predict(X[:, order]), model.predict(X), rtol=1e-8)
