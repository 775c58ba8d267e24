"""A path of confidences in one training, dropped inputs and convolutions, as a user meets them."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import make_friedman1

from soubayes import Conv, Pool, Residual, SoUNetClassifier, SoUNetRegressor
from soubayes.networks import path, state, storage, training
from soubayes.networks.removal import all_kept
from soubayes.networks.state import PathStage
from soubayes.networks.structure import Spec

# trainings of a few epochs learn little
pytestmark = pytest.mark.filterwarnings("ignore::soubayes.networks.held_out.LittleLearntWarning")
SETTINGS = {"hidden": (6, 5), "epochs": 12, "batch_size": 25, "random_state": 0, "skip": False}
PATH = {**SETTINGS, "confidence_weights": (0.1, 1.0), "prune_inputs": True}


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X[:, 0] + np.abs(X[:, 1]) + 0.1 * rng.normal(size=n)


def images(n=60, seed=0):
    """Two classes: a bright square in the upper or the lower half."""
    rng = np.random.default_rng(seed)
    X, y = rng.random((n, 6, 5, 2)), np.arange(n) % 2
    for i, label in enumerate(y):
        X[i, 3 * label : 3 * label + 2, 1:3] += 2.0
    return X, y


def fit_table():
    X, y = table()
    return SoUNetRegressor(**PATH).fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])


def fit_pictures():
    layers = (Conv(4, 2, confidence=2.0), Pool(2), 5)
    settings = {"epochs": 8, "batch_size": 20, "learning_rate": 0.02, "random_state": 0}
    return SoUNetClassifier(layers, confidence_weights=(0.1, 1.0), **settings).fit(*images())


@pytest.fixture(scope="module")
def net():
    return fit_table()


@pytest.fixture(scope="module")
def pictures():
    return fit_pictures()


def test_the_table_of_a_path(net):
    names = ["confidence", "inputs", "units_1", "units_2", "multiply_adds", "parameters", "value"]
    assert list(net.path_)[:7] == names
    assert {"validation_rmse", "validation_loss", "validation_error"} < set(net.path_)
    np.testing.assert_array_equal(net.path_["confidence"], [0.1, 1.0])
    np.testing.assert_array_equal(
        net.path_["value"], net.history_["objective"][[11, 17]]
    )  # a later stage takes half of the first one's epochs
    X, y = table()
    for row, confidence in enumerate((0.1, 1.0)):
        there = net.at(confidence)
        error = np.sqrt(np.mean((there.predict(X[100:], mode="mean") - y[100:]) ** 2))
        assert net.path_["validation_rmse"][row] == pytest.approx(error, rel=1e-5)
        loss = -there.log_density(X[100:], y[100:])
        assert net.path_["validation_loss"][row] == pytest.approx(loss.mean())
        assert net.path_["validation_error"][row] == pytest.approx(loss.std() / np.sqrt(20))
        assert net.path_["multiply_adds"][row] == there.architecture_.multiply_adds[1]
        assert there.value_ == net.path_["value"][row]
    with pytest.raises(ValueError, match=r"no network at confidence 0.5; it has \[0.1, 1.0\]"):
        net.at(0.5)


def test_objective_of_a_stage_has_its_own_confidence(net):
    history = net.history_
    weights = np.where(np.arange(18) < 12, 0.1, 1.0)
    parts = history["kl_global"] + history["kl_noise"] + 1e-9 * history["kl_local"]
    np.testing.assert_allclose(
        history["objective"],
        history["loss"] + weights * history["kl_weights"] + parts,
        rtol=1e-5,
    )


def test_a_convolution_may_have_a_confidence_of_its_own(pictures):
    history = pictures.history_
    weights = np.where(np.arange(12) < 8, 0.1, 1.0)
    parts = history["kl_global"] + 1e-9 * history["kl_local"]
    blocks = weights * (history["kl_weights"] + 2.0 * history["kl_conv_1"])
    np.testing.assert_allclose(history["objective"], history["loss"] + blocks + parts, rtol=1e-5)
    assert pictures.kl_["conv_1"] == history["kl_conv_1"].iloc[-1]


def test_the_first_stage_is_a_training_of_its_own(monkeypatch):
    monkeypatch.setattr(state, "BLOCK_STEPS", 24)  # six epochs a call, so that all share one
    X, y = table()
    alone = SoUNetRegressor(**{**PATH, "confidence_weights": 0.1}).fit(X[:100], y[:100])
    first = SoUNetRegressor(**PATH).fit(X[:100], y[:100]).at(0.1)
    np.testing.assert_allclose(first.predict(X), alone.predict(X), rtol=1e-4, atol=1e-5)


def test_confidence_rises_gradually_within_a_stage():
    stages = path.stages([0.1, 1.0], 12)
    assert stages == (PathStage(0, 12, 0.1), PathStage(12, 18, 1.0))
    schedule = state.Schedule(stages, 100, 25, True, None)
    problem = state.TrainingProblem(1.0, {"weights": 9.0}, None, 1.0, 1.0, 0.2)
    spec = Spec(((6, 1), Conv(3, 2, confidence=4.0), 2, 1))
    plan = state.TrainingPlan(spec, problem, schedule, None, None)
    first, later = (state.stage_problem(plan, epoch) for epoch in (11, 12))
    assert first.confidence["conv_1"] == pytest.approx(0.4)
    assert later.confidence["conv_1"] == 4.0
    assert (first.confidence["weights"], first.rise, first.warmup) == (np.float32(0.1), 1.0, 0.2)
    assert later.confidence["weights"] * later.rise == pytest.approx(0.1, rel=1e-6)
    assert later.warmup < 1e-6


def test_every_stage_may_have_its_own_number_of_epochs(tmp_path):
    X, y = table()
    numbers = {"confidence_weights": np.array([0.1, 1.0]), "epochs": (4, np.int64(8))}
    net = SoUNetRegressor(**{**PATH, **numbers}).fit(X[:100], y[:100])
    assert net.n_iter_ == 12
    net.save(tmp_path / "net")  # numbers of NumPy too
    again = SoUNetRegressor.load(tmp_path / "net")
    assert (again.confidence_weights, again.epochs) == ((0.1, 1.0), (4, 8))
    assert len(net.history_["epoch"]) == 12
    with pytest.raises(ValueError, match=r"epochs has 2 numbers and confidence_weights 4"):
        net.set_params(confidence_weights="auto").fit(X, y)


def test_a_stage_starts_afresh_when_the_network_before_memorises(net):
    """17 weights; loss 10 and 20 nats of weights: J at the next confidence, 1, is 30."""
    spec = Spec((2, 4, 1))  # 3 x 4 + 5 weights
    problem = state.TrainingProblem(1.0, {"weights": 9.0}, None, 1.0, 1.0, 0.2)
    end = state.StageEnd({}, all_kept(spec), 12)
    row = {"loss": 10.0, "kl_weights": 20.0}
    stages = path.stages([0.1, 1.0], 12)
    for rows, constant, afresh in ((16, 29.0, True), (16, 31.0, False), (17, 29.0, False)):
        schedule = state.Schedule(stages, rows, 25, True, None, constant_loss=constant)
        run = state.Run({}, None, end.kept, 12, [row] * 12, [end])
        plan = state.TrainingPlan(spec, problem, schedule, run, None)
        assert state.starts_afresh(plan, run) is afresh
        assert not state.starts_afresh(plan, run._replace(epoch=11))
        later = state.stage_problem(plan, 12, afresh=afresh)
        assert (later.rise, later.warmup) == (
            (1.0, 0.2) if afresh else (pytest.approx(0.1), pytest.approx(0.0, abs=1e-6))
        )
    assert net._constant_loss() == pytest.approx(-stats.norm.logpdf([-1.0, 1.0]).mean())


@pytest.mark.slow
def test_the_end_of_a_path_is_as_good_as_a_training_of_its_own():
    """At 0.03 the network memorises: a noise of 0.2 where the truth is 1. From there J ends 417."""
    X, y = make_friedman1(120, 5, noise=1.0, random_state=1)
    settings = {"hidden": (30,), "epochs": 800, "learning_rate": 0.02, "random_state": 1}
    alone, end = (
        SoUNetRegressor(**settings, confidence_weights=c).fit(X, y) for c in (1.0, (0.03, 1.0))
    )
    assert end.at(0.03).uncertainty(X[:1]).aleatoric[0] < 0.4
    assert end.value_ < alone.value_ + 40


def test_the_smallest_network_within_one_standard_error_is_chosen(net):
    rng = np.random.default_rng(0)
    losses = [1.0 + rng.normal(size=400), 1.04 + rng.normal(size=400), 2 + rng.normal(size=400)]
    losses = [values - values.mean() + m for values, m in zip(losses, (1, 1.04, 2), strict=True)]
    ones = np.ones(400)
    assert path.smallest_good(losses, [300, 200, 100], ones) == 1
    assert path.smallest_good(losses, [100, 200, 300], ones) == 0
    assert path.smallest_good([losses[0], losses[2]], [300, 100], ones) == 0
    chosen = net.at(net.path_["confidence"][net._chosen])
    assert net.architecture_ == chosen.architecture_
    assert np.flatnonzero(net.path_["chosen"]).tolist() == [net._chosen]


def test_auto_holds_rows_out_and_a_path_without_them_ends_at_its_last_confidence():
    X, y = table()
    auto = SoUNetRegressor(**{**PATH, "confidence_weights": "auto"}).fit(X[:111], y[:111])
    assert auto.path_["confidence"].tolist() == list(path.DIAL_CONFIDENCES)
    assert "validation_loss" in auto.path_
    last = SoUNetRegressor(**{**PATH, "confidence_weights": [1.0, 0.3]}).fit(X[:100], y[:100])
    assert last._chosen == 1
    assert "validation_loss" not in last.path_
    assert last.path_["confidence"].tolist() == [1.0, 0.3]  # in the order given
    assert (np.diff(last.path_["multiply_adds"]) <= 0).all()  # what is removed stays removed


@pytest.mark.slow
def test_what_a_high_confidence_removes_a_low_one_does_not_bring_back(monkeypatch):
    shapes, original = [], training.scan_chunk

    def seen(spec, mesh, params, *rest):
        shapes.append(params["layers"][0]["mean"].shape)
        return original(spec, mesh, params, *rest)

    monkeypatch.setattr(training, "scan_chunk", seen)
    settings = {**PATH, "epochs": 160, "confidence_weights": (2.0, 0.01), "learning_rate": 0.03}
    net = SoUNetRegressor(**settings).fit(*table(100))
    high, low = net.at(2.0), net.at(0.01)
    inputs, units = high.architecture_.final[:2]
    assert (inputs, units) < (4, 6)
    assert list(dict.fromkeys(shapes)) == [(5, 6), (inputs + 1, units)]
    assert low.expected_loss_ < high.expected_loss_


@pytest.fixture(scope="module")
def pruned():
    """Two of four columns matter; enough training for the others to go."""
    X, y = table(300)
    net = SoUNetRegressor((8,), prune_inputs=True, epochs=600, learning_rate=0.02, random_state=0)
    return net.fit(X, y)


def test_inputs_that_do_not_matter_are_dropped(pruned):
    X, y = table(50, seed=1)
    assert pruned.selected_inputs_.tolist() == [0, 1]
    assert pruned.get_support().tolist() == [True, True, False, False]
    np.testing.assert_array_equal(pruned.transform(X), X[:, :2])
    assert pruned.get_feature_names_out(["a", "b", "c", "d"]).tolist() == ["a", "b"]
    assert pruned.score(X, y) > 0.8
    changed = X.copy()
    changed[:, 2:] = 1e3
    np.testing.assert_array_equal(pruned.predict(changed), pruned.predict(X))
    sizes = pruned.architecture_
    assert (sizes.initial[0], sizes.final[0]) == (4, 2)


def test_a_path_and_its_files(net, pictures, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    for model, X in ((net, table(20)[0]), (pictures, images(20)[0])):
        model.save(tmp_path / "net.safetensors")
        again = type(model).load(tmp_path / "net.safetensors")
        for confidence in (0.1, 1.0):
            first, second = model.at(confidence), again.at(confidence)
            np.testing.assert_array_equal(first.predict(X), second.predict(X))
            assert first.architecture_ == second.architecture_
            assert first.kl_ == second.kl_
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.hidden == model.hidden
        for mode in ("mean", "draws"):
            model.export_onnx(tmp_path / "net.onnx", mode=mode, n_draws=3)
            session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"))
            found = session.run(None, {"X": X.astype(np.float32)})[0]
            classifier = isinstance(model, SoUNetClassifier)
            predict = model.predict_proba if classifier else model.predict
            expected = np.reshape(predict(X, mode=mode, n_draws=3), (20, -1))
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_images_come_as_images_or_flat(pictures):
    X, y = images()
    flat = X.reshape(len(X), -1)
    assert pictures.score(X, y) > 0.9
    np.testing.assert_array_equal(pictures.predict(flat), pictures.predict(X))
    again = SoUNetClassifier(**{**pictures.get_params(), "input_shape": (6, 5, 2)}).fit(flat, y)
    np.testing.assert_array_equal(again.predict_proba(X), pictures.predict_proba(X))
    assert pictures.architecture_.initial == (60, 4, 16, 5, 2)
    places = pictures.architecture_.multiply_adds[0]
    assert places == 20 * 4 * (2 * 2 * 2 + 1) + (16 + 1) * 5 + (5 + 1) * 2
    with pytest.raises(ValueError, match=r"shape \(5, 6, 2\), but the network"):
        pictures.predict(X.transpose(0, 2, 1, 3))


def test_signals_are_convolved_along_their_length():
    X, y = images()
    X = X.reshape(60, 30, 2)
    # with most of XLA's optimisations off, other rates end in NaN on some machines
    fixed = {"epochs": 2, "confidence_weights": 1.0, "learning_rate": 0.002, "random_state": 0}
    net = SoUNetClassifier((Conv(3, 4), Pool(3), 4), **fixed).fit([(X, y)])
    assert net.architecture_.initial == (60, 3, 27, 4, 2)
    assert net.predict(X).shape == (60,)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hidden": (Conv(3, 2),)}, "a Conv reads"),
        ({"hidden": (5, Conv(3, 2)), "input_shape": (2, 2)}, "a Conv reads"),
        ({"hidden": (Conv(3, 5),), "input_shape": (2, 2)}, "kernel is larger"),
        ({"hidden": (Pool(2), 3), "input_shape": (2, 2)}, "a Pool must follow"),
        ({"hidden": (Conv(0, 2),)}, "Conv, Pool or Residual"),
        ({"hidden": (Conv(3, 2, confidence=0.0),)}, "Conv, Pool or Residual"),
        ({"hidden": (Residual(), 3)}, "after the inputs, but it adds to a dense"),
        ({"hidden": (Conv(3, 2), Residual()), "input_shape": (4, 1)}, "after a Conv, but it adds"),
        ({"input_shape": (3, 2)}, "makes 6 numbers in a row, but X has 4"),
        ({"hidden": (Conv(3, 2),), "input_shape": (4, 1), "prune_inputs": True}, "dense first"),
        ({"prior": "normal", "prune_inputs": True}, "prior='horseshoe'"),
    ],
)
def test_structures_that_do_not_fit_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        SoUNetRegressor(**{**SETTINGS, **settings}).fit(*table())


def test_plots_of_a_path_and_of_inputs(net, pruned, pictures):
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = net.plot_path()
    assert [text.get_text() for text in ax.texts] == ["0.1", "1"]
    assert "held-out" in ax.get_ylabel()
    assert pruned.plot_inputs().get_title() == "2 of 4 inputs are read"
    assert any("2 of 4" in text.get_text() for text in pruned.plot_architecture().texts)
    pictures.plot_architecture()
    pictures.plot_history()
    with pytest.raises(ValueError, match="not of a convolution"):
        pictures.plot_inputs()
    plt.close("all")


_ON_DEVICES = """
import json, runpy, sys
from soubayes.networks import training
seen = set()
original = training.scan_chunk
def scan_chunk(spec, mesh, *rest):
    out = original(spec, mesh, *rest)
    seen.add((mesh.size, len(out[0]["layers"][0]["mean"].sharding.device_set)))
    return out
training.scan_chunk = scan_chunk
here = runpy.run_path(sys.argv[1])
m, n = here["fit_table"](), here["fit_pictures"]()
X, Z = here["table"]()[0], here["images"]()[0]
found = [
    [m.at(c).predict(X, mode="mean").tolist(), n.at(c).predict_proba(Z, mode="mean").tolist()]
    for c in (0.1, 1.0)
]
print(json.dumps([sorted(seen), found]))
"""


@pytest.mark.slow
def test_several_devices_give_the_path_and_the_convolutions_of_one(net, pictures):
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}
    env = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **flags}
    done = subprocess.run(
        [sys.executable, "-c", _ON_DEVICES, __file__], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    seen, found = json.loads(done.stdout)
    assert seen == [[5, 5]]  # minibatches of 25 and 20 rows on five devices
    for confidence, (values, probabilities) in zip((0.1, 1.0), found, strict=True):
        alone = net.at(confidence).predict(table()[0], mode="mean")
        np.testing.assert_allclose(values, alone, rtol=1e-3, atol=1e-4)
        alone = pictures.at(confidence).predict_proba(images()[0], mode="mean")
        np.testing.assert_allclose(probabilities, alone, rtol=1e-3, atol=1e-4)


_VICTIM = """
import sys, time
import numpy as np
from soubayes import SoUNetRegressor
from soubayes.networks import progress, state, training
progress.CHECKPOINT_SECONDS = 0.0
state.BLOCK_STEPS = 1
original = training.scan_chunk
def scan_chunk(*arguments):
    time.sleep(0.3)
    return original(*arguments)
training.scan_chunk = scan_chunk
rng = np.random.default_rng(0)
X = rng.normal(size=(120, 4))
y = X[:, 0] + np.abs(X[:, 1]) + 0.1 * rng.normal(size=120)
SoUNetRegressor((6, 5), epochs=4, batch_size=25, random_state=0, confidence_weights=(0.1, 0.3, 1.0),
                skip=False, prune_inputs=True, checkpoint=sys.argv[1]).fit(X, y)
"""


def test_a_killed_path_resumes_in_a_later_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "BLOCK_STEPS", 1)
    folder = tmp_path / "run"
    env = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    victim = subprocess.Popen([sys.executable, "-c", _VICTIM, str(folder)], env=env)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        found = storage.read_checkpoint(folder)
        if found is not None and found[0].epoch >= 5:  # in the second stage, which ends at 6
            break
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    left = storage.read_checkpoint(folder)[0]
    settings = {**PATH, "epochs": 4, "confidence_weights": (0.1, 0.3, 1.0)}
    resumed = SoUNetRegressor(**settings, checkpoint=folder).fit(*table())
    whole = SoUNetRegressor(**settings).fit(*table())
    assert 5 <= left.epoch < 8
    assert len(left.ends) == 1 + (left.epoch >= 6)
    for confidence in (0.1, 0.3, 1.0):
        X, _ = table()
        np.testing.assert_array_equal(
            resumed.at(confidence).predict(X), whole.at(confidence).predict(X)
        )
    np.testing.assert_array_equal(resumed.history_["objective"], whole.history_["objective"])
    files = sorted(file.name for file in folder.iterdir())
    assert files == ["fitted.safetensors", "training.safetensors"]
