"""Files: save and load, damaged files, ONNX against onnxruntime."""

import numpy as np
import pytest

from damage import KINDS, damaged
from soubayes import SoUNetClassifier, SoUNetRegressor
from soubayes.networks.storage import read, write

SMALL = {"hidden": (9, 6), "epochs": 5, "batch_size": 30, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = 5 + 3 * rng.normal(size=(90, 4))
    return X, np.column_stack([X[:, 0], 100 * X[:, 1] + rng.normal(size=90)])


@pytest.fixture(scope="module", params=["regressor", "several outputs", "text", "integers"])
def net(request, data):
    X, Y = data
    if request.param == "regressor":
        return SoUNetRegressor(**SMALL, noise_prior=(6, 6)).fit(X, Y[:, 0])
    if request.param == "several outputs":
        return SoUNetRegressor(**SMALL, activation="elu").fit(X, Y)
    kind = np.digitize(X[:, 0], [4, 6])
    labels = np.array(["low", "middle", "high"])[kind] if request.param == "text" else 3 + kind
    return SoUNetClassifier(**SMALL, activation="tanh").fit(X, labels)


def test_load_returns_what_was_saved(net, data, tmp_path):
    path = tmp_path / "net.safetensors"
    net.save(path)
    again = type(net).load(path)
    X, _ = data
    np.testing.assert_array_equal(again.predict(X), net.predict(X))
    assert again.architecture_ == net.architecture_
    assert again.kl_ == net.kl_
    np.testing.assert_array_equal(again.history_["objective"], net.history_["objective"])
    np.testing.assert_array_equal(again.weight_sparsity_(), net.weight_sparsity_())
    mine, theirs = again.get_params(), net.get_params()
    assert {k: v for k, v in mine.items() if k != "random_state"} == {
        k: v for k, v in theirs.items() if k != "random_state"
    }
    other = SoUNetClassifier if isinstance(net, SoUNetRegressor) else SoUNetRegressor
    with pytest.raises(ValueError, match=f"use {type(net).__name__}.load"):
        other.load(path)


def test_damaged_and_missing_files_are_named(tmp_path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(FileNotFoundError, match="no saved network"):
        SoUNetRegressor.load(path)
    path.write_bytes(b"not a network")
    with pytest.raises(ValueError, match="damaged"):
        SoUNetRegressor.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_damaged_files_are_refused_or_equal(kind, tmp_path):
    tree = {"layers": [{"mu": np.arange(6.0).reshape(2, 3), "on": np.array([True, False])}]}
    path = tmp_path / "net.safetensors"
    write(path, tree, {"kind": "SoUNetRegressor", "classes": ["ü", "b"]})
    whole = read(path)
    equal = 0
    for data in damaged(path.read_bytes(), kind, 200):
        path.write_bytes(data)
        try:
            again, info = read(path)
        except ValueError as error:
            assert path.name in str(error)  # noqa: PT017
        else:
            equal += 1
            assert info == whole[1]
            np.testing.assert_equal(again, whole[0])
    assert equal <= 10


@pytest.mark.parametrize("mode", ["mean", "draws"])
def test_onnx_agrees_with_predict(net, data, mode, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    net.export_onnx(path, mode=mode, n_draws=7)
    X, _ = data
    session = onnxruntime.InferenceSession(str(path))
    found = session.run(None, {"X": X.astype(np.float32)})
    if isinstance(net, SoUNetClassifier):
        expected = net.predict_proba(X, mode=mode, n_draws=7)
        np.testing.assert_array_equal(found[1], net.predict(X, mode=mode, n_draws=7))
    else:
        expected = net.predict(X, mode=mode, n_draws=7).reshape(len(X), -1)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
