"""Rows from somewhere else give the fit of the same rows in memory.

Covers streams, gather, streamed and classes.
"""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

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
    expected = SoULinearRegression(choice="path").fit(X, y)
    found = SoULinearRegression(choice="path").fit(*_sources(kind, X, y, tmp_path))
    _assert_same(expected, found)
    assert found.n_features_in_ == P
    assert hasattr(found, "feature_names_in_") == (kind in ("dask dataframe", "parquet"))


@pytest.mark.parametrize("kind", KINDS)
def test_logistic_from_any_source_equals_memory(kind, tmp_path):
    X, _, labels, _ = _table()
    labels = (labels == "top").astype(int)
    expected = SoULogisticRegression(confidence_coef=1.0).fit(X, labels)
    found = SoULogisticRegression(confidence_coef=1.0).fit(*_sources(kind, X, labels, tmp_path))
    _assert_same(expected, found)
    assert found.converged_


@pytest.mark.parametrize(
    "options",
    [
        {"confidence_coef": "auto"},
        {"fit_intercept": False},
        {"solver": "coordinate", "bound": "jaakkola", "tol": 1e-4},
        {"feature_blocks": {"kept": {"columns": [3, 1], "prior": "normal", "variance": 10.0}}},
    ],
)
def test_streamed_logistic_takes_the_options(options):
    X, _, labels, weight = _table(1)
    settings = {"choice": "path", "confidence_coef": 1.0, "multi_class": "ovr"} | options
    expected = SoULogisticRegression(**settings).fit(X, labels, weight)
    found = SoULogisticRegression(**settings).fit(_cut(X, labels, weight, step=250))
    assert list(found.classes_) == ["low", "middle", "top"]
    _assert_same(expected, found)


def test_weights_and_several_targets_of_a_stream():
    X, y, _, weight = _table(2)
    Y = np.column_stack([y, X[:, 2] - y])
    _assert_same(
        SoULinearRegression(choice="path").fit(X, Y, weight),
        SoULinearRegression(choice="path").fit(_cut(X, Y, weight)),
    )
    arrays = [da.from_array(a, chunks=200) for a in (X, Y, weight)]
    _assert_same(
        SoULinearRegression(choice="path").fit(X, Y, weight),
        SoULinearRegression(choice="path").fit(*arrays),
    )


def test_fewer_rows_than_columns_are_fitted_in_memory():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 60))
    y = 3 * X[:, 0] + rng.normal(size=40)
    _assert_same(
        SoULinearRegression(choice="path").fit(X, y),
        SoULinearRegression(choice="path").fit(_cut(X, y, step=7)),
    )
    expected = SoULogisticRegression(confidence_coef=1.0).fit(X, y > 0)
    _assert_same(expected, SoULogisticRegression(confidence_coef=1.0).fit(_cut(X, y > 0, step=7)))


def test_float32_blocks_stay_float32():
    X, _, labels, _ = _table(4)
    single = X.astype(np.float32)
    model = SoULogisticRegression(confidence_coef=1.0, multi_class="ovr")
    expected = clone(model).fit(single, labels)
    # Gram matrices of float32 rows are summed in float32 within a block
    _assert_same(expected, model.fit(_cut(single, labels)), tolerance=1e-4)


def test_one_shot_iterators():
    X, y, labels, _ = _table()
    _assert_same(
        SoULinearRegression(choice="path").fit(X, y),
        SoULinearRegression(choice="path").fit(iter(_cut(X, y))),
    )
    with pytest.raises(TypeError, match="iterated only once"):
        SoULogisticRegression(confidence_coef=1.0).fit(iter(_cut(X, labels)))


def test_blocks_that_change_between_passes_are_an_error():
    X, _, labels, _ = _table()
    walks = []

    def blocks():
        walks.append(None)
        return _cut(X, labels)[: 8 if len(walks) > 4 else None]

    with pytest.raises(RuntimeError, match="same every time"):
        SoULogisticRegression(confidence_coef=1.0, multi_class="ovr").fit(blocks)


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
        SoULinearRegression(choice="path").fit(*arguments)


def test_predictions_of_dask_collections_are_lazy():
    X, y, labels, _ = _table()
    array = da.from_array(X, chunks=(110, 4))
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(P)])
    linear = SoULinearRegression(choice="path").fit(frame, y)
    mean, std = linear.predict(dd.from_pandas(frame, npartitions=3), return_std=True)
    assert dask.is_dask_collection(mean)
    np.testing.assert_allclose(mean.compute(), linear.predict(frame))
    np.testing.assert_allclose(std.compute(), linear.predict(frame, return_std=True)[1])
    model = SoULogisticRegression(confidence_coef=1.0).fit(X, labels)
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
        linear = SoULinearRegression(choice="path").fit(blocks())
        logistic = SoULogisticRegression(confidence_coef=1.0, max_iter=1, tol=1.0).fit(blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert linear.selected_[0]
    assert logistic.selected_[0, 0]
    assert peak < 4 * base.nbytes  # the rows are 20 times that


def _frames(X, y, kind, order):
    """Blocks with names, the second and later ones with their columns in another order."""
    names = [f"c{i}" for i in range(P)]
    frame = pd.DataFrame(X, columns=names)
    parts = [frame[:200], frame[200:400][order], frame[400:][order[::-1]]]
    targets = [y[:200], y[200:400], y[400:]]
    if kind == "polars":
        parts = [pytest.importorskip("polars").from_pandas(part) for part in parts]
    if kind == "dask":
        meta = dd.from_map(lambda i: parts[i], range(3), meta=frame[:0])
        return meta, da.concatenate([da.from_array(part) for part in targets])
    blocks = list(zip(parts, targets, strict=True))
    return {"once": iter(blocks), "function": lambda: iter(blocks)}.get(kind, blocks), None


@pytest.mark.parametrize("kind", ["pandas", "polars", "once", "function", "dask", "parquet"])
def test_columns_of_blocks_are_matched_by_name(kind, tmp_path):
    X, y, labels, _ = _table()
    order = [f"c{i}" for i in np.random.default_rng(1).permutation(P)]
    for model, target in (
        (SoULinearRegression(choice="path"), y),
        (SoULogisticRegression(confidence_coef=1.0), labels == "top"),
    ):
        if kind == "parquet":
            for i, (part, values) in enumerate(_frames(X, target, "pandas", order)[0]):
                part.assign(y=values).to_parquet(tmp_path / f"{i}.parquet")
            source = tmp_path, "y"
        else:
            source = _frames(X, target, kind, order)
        if kind == "once" and target is not y:
            return
        expected = clone(model).fit(X, target)
        _assert_same(expected, model.fit(*source))


def test_columns_of_several_targets_are_matched_by_name():
    X, y, _, _ = _table()
    Y = pd.DataFrame({"a": y, "b": -2.0 * y})
    blocks = [(X[:300], Y[:300]), (X[300:], Y[300:][["b", "a"]])]
    _assert_same(
        SoULinearRegression(choice="path").fit(X, Y.to_numpy()),
        SoULinearRegression(choice="path").fit(blocks),
    )


@pytest.mark.parametrize("kind", ["another name", "no names", "first has none", "parquet"])
def test_blocks_with_other_columns_are_refused(kind, tmp_path):
    X, y, _, _ = _table()
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(P)])
    first, second = frame[:300], frame[300:]
    if kind == "parquet":
        first.assign(y=y[:300]).to_parquet(tmp_path / "1.parquet")
        second.rename(columns={"c3": "d"}).assign(y=y[300:]).to_parquet(tmp_path / "2.parquet")
        with pytest.raises(ValueError, match=r"2\.parquet.*the same columns.*'c3'"):
            SoULinearRegression(choice="path").fit(tmp_path, "y")
        return
    first, second, message = {
        "another name": (first, second.rename(columns={"c3": "d"}), "first block has the columns"),
        "no names": (first, second.to_numpy(), "no column names"),
        "first has none": (first.to_numpy(), second, "first block has no column names"),
    }[kind]
    with pytest.raises(ValueError, match=message):
        SoULinearRegression(choice="path").fit([(first, y[:300]), (second, y[300:])])


def test_a_block_without_weight_or_rows_changes_nothing():
    X, y, labels, _ = _table()
    for model, target in (
        (SoULinearRegression(choice="path"), y),
        (SoULogisticRegression(confidence_coef=1.0, multi_class="ovr"), labels),
    ):
        some, none = np.ones(300), np.zeros(300)
        blocks = [(X[:300], target[:300], some), (X[300:], target[300:], none)]
        empty = (X[:0], target[:0], none[:0])
        expected = clone(model).fit(X[:300], target[:300])
        _assert_same(expected, model.fit([*blocks, empty]))
        _assert_same(expected, model.fit([empty, *blocks[::-1]]))
    with pytest.raises(ValueError, match="0 rows of positive weight"):
        SoULinearRegression(choice="path").fit([(X[:5], y[:5], np.zeros(5))])
