"""Files: save and load, damaged and crafted files, ONNX against onnxruntime."""

import copy
import random

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from damage import KINDS, damaged
from soubayes import (
    Conv,
    Pool,
    Residual,
    SoUNetClassifier,
    SoUNetRegressor,
    load_model,
    save_model,
)
from soubayes.networks.layers import mean_weights
from soubayes.networks.storage import read, write

# trainings of a few epochs learn little
pytestmark = pytest.mark.filterwarnings("ignore::soubayes.networks.held_out.LittleLearntWarning")
PAPER = {"confidence_weights": 1.0, "skip": False, "prune_inputs": False}
SMALL = {"hidden": (9, 6), "epochs": 5, "batch_size": 30, "random_state": 0, **PAPER}


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
    np.testing.assert_array_equal(again.weight_sparsity(), net.weight_sparsity())
    mine, theirs = again.get_params(), net.get_params()
    assert {k: v for k, v in mine.items() if k != "random_state"} == {
        k: v for k, v in theirs.items() if k != "random_state"
    }
    other = SoUNetClassifier if isinstance(net, SoUNetRegressor) else SoUNetRegressor
    with pytest.raises(ValueError, match=f"use {type(net).__name__}.load"):
        other.load(path)


def test_save_model_takes_networks(data, tmp_path):
    X, Y = data
    net = SoUNetRegressor(**SMALL).fit(X, Y[:, 0])
    save_model(net, tmp_path / "net")
    np.testing.assert_array_equal(load_model(tmp_path / "net").predict(X), net.predict(X))
    write(tmp_path / "other", {"a": np.zeros(2)}, {"class": "Other"})
    with pytest.raises(ValueError, match="holds a Other, which is not a network"):
        load_model(tmp_path / "other")


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


@pytest.mark.parametrize("mode", ["mean", "draws", "calibrated"])
def test_onnx_agrees_with_predict(net, data, mode, tmp_path, monkeypatch):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    if mode == "calibrated":
        if not isinstance(net, SoUNetClassifier):
            with pytest.raises(ValueError, match="mode is 'calibrated'"):
                net.export_onnx(path, mode=mode)
            return
        monkeypatch.setattr(net, "temperature_", 0.7)
    net.export_onnx(path, mode=mode, n_draws=7)
    X, _ = data
    session = onnxruntime.InferenceSession(str(path))
    found = session.run(None, {"X": X.astype(np.float32)})
    if isinstance(net, SoUNetClassifier):
        expected = net.predict_proba(X, mode=mode, n_draws=7)
        np.testing.assert_array_equal(found[1], net.predict(X, mode=mode, n_draws=7))
    else:
        mean, sd = net.predict(X, mode=mode, n_draws=7, return_std=True)
        expected = mean.reshape(len(X), -1)
        np.testing.assert_allclose(found[1], sd.reshape(len(X), -1), rtol=1e-5)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_onnx_is_by_default_what_predict_gives(net, data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, _ = data
    net.export_onnx(tmp_path / "net.onnx")
    found = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
    found = found.run(None, {"X": X.astype(np.float32)})
    if isinstance(net, SoUNetClassifier):
        np.testing.assert_allclose(found[0], net.predict_proba(X), atol=1e-5)
        return
    for value, known in zip(found, net.predict(X, return_std=True), strict=True):
        known = known.reshape(len(X), -1)
        np.testing.assert_allclose(value, known, rtol=1e-5, atol=1e-5 * np.abs(known).max())


def test_a_graph_that_predicts_otherwise_is_not_written(net, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from soubayes.networks import export

    def wrong(net, n_draws, right=export.network_weights):
        return [1.5 * weight for weight in right(net, n_draws)]

    monkeypatch.setattr(export, "network_weights", wrong)
    with pytest.raises(RuntimeError, match="does not predict what the network predicts"):
        net.export_onnx(tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


@pytest.mark.parametrize("mean", [1e2, 1e4, 1e5, 1e6])
def test_onnx_agrees_with_predict_far_from_zero(mean, tmp_path):
    """Columns whose means are up to a million standard deviations."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = (mean + rng.normal(size=(90, 4))).astype(np.float32)
    net = SoUNetRegressor(**SMALL, learning_rate=0.02).fit(X, X[:, 0] - mean)
    for mode in ("mean", "draws"):
        net.export_onnx(tmp_path / "net.onnx", mode=mode, n_draws=7)
        session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
        expected = net.predict(X, mode=mode, n_draws=7)
        found = session.run(None, {"X": X})[0][:, 0]
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_skip_connection_is_saved_and_exported(data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, Y = data
    for pruned in (False, True):
        settings = SMALL | {"skip": True, "prune_inputs": pruned, "epochs": 400}
        net = SoUNetRegressor(**settings, learning_rate=0.02).fit(X, Y[:, 0])
        assert len(net.selected_inputs_) < 4 or not pruned
        net.save(tmp_path / "net")
        again = SoUNetRegressor.load(tmp_path / "net")
        np.testing.assert_array_equal(again.predict(X), net.predict(X))
        again.export_onnx(tmp_path / "net.onnx", mode="draws", n_draws=5)
        session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
        found = session.run(None, {"X": X.astype(np.float32)})[0][:, 0]
        np.testing.assert_allclose(found, net.predict(X, n_draws=5), rtol=1e-4)


@pytest.mark.slow
def test_residual_layers_are_pruned_saved_and_exported(data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, Y = data
    layers = (8, Residual(), 5, Residual())
    net = SoUNetRegressor(**SMALL | {"hidden": layers, "epochs": 200}, learning_rate=0.02)
    net.fit(X, Y[:, 0])
    units = net.architecture_.final[1:-1]
    assert units[0] == units[1] < 8
    assert units[2] == units[3]
    assert net.architecture_.parameters[1] == sum(w.size for w in mean_weights(net._network.layers))
    net.save(tmp_path / "net")
    again = SoUNetRegressor.load(tmp_path / "net")
    assert again.hidden == layers
    np.testing.assert_array_equal(again.predict(X), net.predict(X))
    for mode in ("mean", "draws"):
        again.export_onnx(tmp_path / "net.onnx", mode=mode, n_draws=5)
        session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
        found = session.run(None, {"X": X.astype(np.float32)})[0][:, 0]
        np.testing.assert_allclose(found, net.predict(X, mode=mode, n_draws=5), rtol=1e-4)
    net._ends[-1].kept.units[1] = net._ends[-1].kept.units[1][1:]  # the file no longer fits
    net.save(tmp_path / "net")
    with pytest.raises(ValueError, match="does not hold a network"):
        SoUNetRegressor.load(tmp_path / "net")


def test_onnx_takes_images_in_the_shape_that_fit_took(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 6, 5, 2)).astype(np.float32), np.arange(40) % 2
    convolutions = (Conv(3, 2, padding="same"), Pool(2), Conv(3, 2, stride=2), 4)
    layers = {"hidden": convolutions, "epochs": 2, "random_state": 0}
    for settings, rows in (({}, X), ({"input_shape": (6, 5, 2)}, X.reshape(40, -1))):
        net = SoUNetClassifier(**layers, **settings).fit(rows, y)
        net.save(tmp_path / "net")
        SoUNetClassifier.load(tmp_path / "net").export_onnx(tmp_path / "net.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
        found = session.run(None, {"X": rows})[0]
        np.testing.assert_allclose(found, net.predict_proba(rows), atol=1e-5)


def test_a_network_that_diverged_in_its_first_epoch_is_saved_and_loaded(data, tmp_path):
    X, Y = data
    net = SoUNetRegressor(**SMALL | {"learning_rate": 1e30})
    with pytest.warns(ConvergenceWarning, match="training stopped at epoch 0"):
        net.fit(X, Y[:, 0])
    assert (net.finished_, net.n_iter_, net.kl_) == (False, 0, {})
    assert np.isnan(net.value_)
    net.save(tmp_path / "net")
    again = SoUNetRegressor.load(tmp_path / "net")
    np.testing.assert_array_equal(again.predict(X), net.predict(X))
    assert not again.finished_


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["2024-01-01", "2024-02-01"], "datetime64[D]"),
        np.array([3, 5], "timedelta64[s]"),
        np.array([False, True]),
        np.array([1.0, 2.0], np.float32),
        np.array(["no", "yes"], dtype=object),
    ],
    ids=lambda labels: labels.dtype.str,
)
def test_labels_of_every_kind_come_back(labels, data, tmp_path):
    X, _ = data
    net = SoUNetClassifier(**SMALL | {"epochs": 1}).fit(X, labels[np.arange(90) % 2])
    net.save(tmp_path / "net")
    again = SoUNetClassifier.load(tmp_path / "net")
    np.testing.assert_array_equal(again.classes_, labels)
    np.testing.assert_array_equal(again.predict(X), net.predict(X))


def test_labels_that_a_file_cannot_hold_are_named(data, tmp_path):
    X, _ = data
    net = SoUNetClassifier(**SMALL | {"epochs": 1}).fit(X, np.arange(90) % 2)
    net.classes_ = np.array([1 + 2j, 3 + 4j], dtype=object)
    with pytest.raises(TypeError, match=r"label \(1\+2j\) is a complex"):
        net.save(tmp_path / "net")
    labels = np.array([(1, 2), (3, 4)], dtype="i,i").astype(object)[np.arange(90) % 2]
    with pytest.raises(TypeError, match="which a file cannot hold"):  # before the training
        SoUNetClassifier(checkpoint=tmp_path / "folder")._survey_y([(labels, np.ones(90))])


ODD = [-1, 0, 1, 3, 10**9, 2.5, None, "x", [], {}, [0, 0], True, "|V8", float("nan")]


def mutated(tree, info, draw):
    """One field of the file replaced, removed, or one array of another shape, kind or content."""
    tree, info = copy.deepcopy(tree), copy.deepcopy(info)
    node = root = draw.choice([tree, info])
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = draw.choice(list(keys))
        inner = node[key]
        if isinstance(inner, dict | list) and len(inner) and draw.random() < 0.8:
            node = inner
            continue
        if isinstance(inner, np.ndarray) and draw.random() < 0.8:
            changes = [
                np.empty(0, inner.dtype),
                inner[None],
                inner.astype("f8"),
                inner + 7,
                -1 - inner,
            ]
            node[key] = draw.choice(changes) if inner.dtype != bool else ~inner
        elif isinstance(node, dict) and draw.random() < 0.3:
            del node[key]
        else:
            node[key] = draw.choice(ODD) if root is info else np.arange(3)
        return tree, info


def test_crafted_files_are_refused_or_work(net, data, tmp_path):
    """Mutations with a valid checksum end in a ValueError that names the file, or predict."""
    path = tmp_path / "net.safetensors"
    net.save(path)
    whole = read(path)
    draw, X, refused = random.Random(0), data[0], 0
    for _ in range(150):
        tree, info = mutated(*whole, draw)
        write(path, tree, info)
        try:
            again = type(net).load(path)
        except ValueError as error:
            refused += 1
            assert path.name in str(error)  # noqa: PT017
        else:
            assert len(again.predict(X, n_draws=2)) == len(X)
            again.weight_sparsity()
    assert 50 < refused < 150
