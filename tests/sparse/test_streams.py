"""Rows from somewhere else give the fit of the same rows in memory."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from soubayes import SoULinearRegression, SoULogisticRegression

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N, P = 600, 9


def _table(seed=0):
    """Columns far from zero and of unequal size, numbers and three labels to predict."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, P)) * np.arange(1, P + 1) + 50.0
    signal = X[:, 0] - X[:, 1] / 2.0 - 25.0
    labels = np.array(["low", "middle", "top"])[
        np.digitize(signal + rng.logistic(size=N) / 2, [-1.0, 1.0])
    ]
    return X, signal + rng.normal(size=N), labels, rng.integers(0, 4, N).astype(float)


def _cut(*arrays, step=70):
    return [tuple(a[i : i + step] for a in arrays) for i in range(0, len(arrays[0]), step)]


def _assert_same(a, b, tolerance=1e-8):
    for name in ("coef_", "coef_sd_", "intercept_", "intercept_sd_", "covariance_"):
        expected = np.asarray(getattr(a, name))
        np.testing.assert_allclose(
            getattr(b, name), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max()
        )
    np.testing.assert_array_equal(a.selected_, b.selected_)


def _sources(kind, X, y, tmp_path):
    """The same rows, as arguments of fit."""
    if kind == "list":
        return (_cut(X, y),)
    if kind == "function":
        return (lambda: iter(_cut(X, y)),)
    if kind == "sparse blocks":
        return ([(sp.csr_array(x), t) for x, t in _cut(X, y)],)
    if kind == "dask array":
        return da.from_array(X, chunks=(110, 4)), da.from_array(y, chunks=83)
    if kind == "dask array, y in memory":
        return da.from_array(X, chunks=(110, 4)), y
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(P)])
    if kind == "dask dataframe":
        both = dd.from_pandas(frame.assign(y=y), npartitions=3)
        return both[list(frame.columns)], both["y"]
    if kind == "parquet":
        folder = tmp_path / "table"
        folder.mkdir()
        for i, part in enumerate(_cut(frame.assign(target=y), step=250)):
            part[0].to_parquet(folder / f"part{i}.parquet")
        return folder, "target"
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    if kind == "npy":
        return str(tmp_path / "X.npy"), str(tmp_path / "y.npy")
    return np.load(tmp_path / "X.npy", mmap_mode="r"), y


KINDS = [
    "list",
    "function",
    "sparse blocks",
    "dask array",
    "dask array, y in memory",
    "dask dataframe",
    "parquet",
    "npy",
    "memmap",
]


@pytest.mark.parametrize("kind", KINDS)
def test_linear_from_any_source_equals_memory(kind, tmp_path):
    X, y, _, _ = _table()
    expected = SoULinearRegression().fit(X, y)
    found = SoULinearRegression().fit(*_sources(kind, X, y, tmp_path))
    _assert_same(expected, found)
    assert found.n_features_in_ == P
    assert hasattr(found, "feature_names_in_") == (kind in ("dask dataframe", "parquet"))


@pytest.mark.parametrize("kind", KINDS)
def test_logistic_from_any_source_equals_memory(kind, tmp_path):
    X, _, labels, _ = _table()
    labels = (labels == "top").astype(int)
    expected = SoULogisticRegression().fit(X, labels)
    found = SoULogisticRegression().fit(*_sources(kind, X, labels, tmp_path))
    _assert_same(expected, found)
    assert found.converged_


@pytest.mark.parametrize(
    "options",
    [
        {"confidence_coef": "auto"},
        {"class_weight": "balanced"},
        {"class_weight": {"top": 3.0}, "fit_intercept": False},
        {"solver": "coordinate", "tol": 1e-4},
        {"feature_blocks": {"kept": {"columns": [3, 1], "prior": "normal", "variance": 10.0}}},
    ],
)
def test_streamed_logistic_takes_the_options(options):
    X, _, labels, weight = _table(1)
    expected = SoULogisticRegression(**options).fit(X, labels, weight)
    found = SoULogisticRegression(**options).fit(_cut(X, labels, weight, step=250))
    assert list(found.classes_) == ["low", "middle", "top"]
    _assert_same(expected, found)


def test_weights_and_several_targets_of_a_stream():
    X, y, _, weight = _table(2)
    Y = np.column_stack([y, X[:, 2] - y])
    _assert_same(
        SoULinearRegression().fit(X, Y, weight), SoULinearRegression().fit(_cut(X, Y, weight))
    )
    arrays = [da.from_array(a, chunks=200) for a in (X, Y, weight)]
    _assert_same(SoULinearRegression().fit(X, Y, weight), SoULinearRegression().fit(*arrays))


def test_fewer_rows_than_columns_are_fitted_in_memory():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 60))
    y = 3 * X[:, 0] + rng.normal(size=40)
    _assert_same(SoULinearRegression().fit(X, y), SoULinearRegression().fit(_cut(X, y, step=7)))
    expected = SoULogisticRegression().fit(X, y > 0)
    _assert_same(expected, SoULogisticRegression().fit(_cut(X, y > 0, step=7)))


def test_float32_blocks_stay_float32():
    X, _, labels, _ = _table(4)
    single = X.astype(np.float32)
    expected = SoULogisticRegression().fit(single, labels)
    # Gram matrices of float32 rows are summed in float32 within a block
    _assert_same(expected, SoULogisticRegression().fit(_cut(single, labels)), tolerance=1e-4)


def test_one_shot_iterators():
    X, y, labels, _ = _table()
    _assert_same(SoULinearRegression().fit(X, y), SoULinearRegression().fit(iter(_cut(X, y))))
    with pytest.raises(TypeError, match="walked only once"):
        SoULogisticRegression().fit(iter(_cut(X, labels)))


def test_blocks_that_change_between_passes_are_an_error():
    X, _, labels, _ = _table()
    walks = []

    def blocks():
        walks.append(None)
        return _cut(X, labels)[: 8 if len(walks) > 4 else None]

    with pytest.raises(RuntimeError, match="same every time"):
        SoULogisticRegression().fit(blocks)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), ValueError, "no rows"),
        (([(np.ones((3, 2)), np.ones(3)), (np.ones((3, 4)), np.ones(3))],), ValueError, "follows"),
        (([np.ones((3, 2))],), TypeError, r"\(X, y\)"),
        (([(np.ones((3, 2)), np.ones(4))],), ValueError, "inconsistent"),
        (([(np.full((3, 2), np.nan), np.ones(3))],), ValueError, "NaN"),
        (([(np.ones((3, 2)), np.array([1.0, np.nan, 2.0]))],), ValueError, "NaN"),
        (("nowhere.parquet", "y"), FileNotFoundError, "does not exist"),
        (("nowhere.parquet", np.ones(3)), ValueError, "name of the target"),
        ((da.ones((4, 2)), None), ValueError, "y is None"),
        ((da.ones((4, 2)), da.ones(5)), ValueError, "inconsistent"),
    ],
)
def test_bad_sources_are_explained(arguments, error, message):
    with pytest.raises(error, match=message):
        SoULinearRegression().fit(*arguments)


def test_predictions_of_dask_collections_are_lazy():
    X, y, labels, _ = _table()
    array = da.from_array(X, chunks=(110, 4))
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(P)])
    linear = SoULinearRegression().fit(frame, y)
    mean, std = linear.predict(dd.from_pandas(frame, npartitions=3), return_std=True)
    assert dask.is_dask_collection(mean)
    np.testing.assert_allclose(mean.compute(), linear.predict(frame))
    np.testing.assert_allclose(std.compute(), linear.predict(frame, return_std=True)[1])
    model = SoULogisticRegression().fit(X, labels)
    for name in ("predict_proba", "decision_function", "predict_log_proba", "predict"):
        found = getattr(model, name)(array)
        assert dask.is_dask_collection(found)
        expected = getattr(model, name)(X)
        assert found.shape == expected.shape
        if name == "predict":
            np.testing.assert_array_equal(found.compute(), expected)
        else:
            np.testing.assert_allclose(found.compute(), expected)


def test_a_stream_needs_the_memory_of_a_block_not_of_the_data():
    rng = np.random.default_rng(0)
    base = rng.standard_normal((25_000, 20))
    label = base[:, 0] + rng.logistic(size=len(base)) > 0

    def blocks():
        for i in range(20):
            yield base * (1.0 + i / 100.0), label

    tracemalloc.start()
    try:
        linear = SoULinearRegression().fit(blocks())
        logistic = SoULogisticRegression(max_iter=1, tol=1.0).fit(blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert linear.selected_[0]
    assert logistic.selected_[0, 0]
    assert peak < 4 * base.nbytes  # the rows are 20 times that
