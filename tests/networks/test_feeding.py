"""Arrays, memory maps and iterables of batches give the same data to the same training."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from soubayes import SoUNetClassifier, SoUNetEnsemble, SoUNetRegressor
from soubayes.networks import feeding, state
from soubayes.networks.feeding import ArraySource, BatchSource, ColumnMoments, minibatches

# trainings of a few epochs learn little
pytestmark = pytest.mark.filterwarnings("ignore::soubayes.networks.held_out.LittleLearntWarning")
PAPER = {"confidence_weights": 1.0, "skip": False, "prune_inputs": False}
SETTINGS = {"hidden": (4,), "epochs": 3, "batch_size": 10, "random_state": 0, **PAPER}


def data(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + 0.1 * rng.normal(size=n)


def test_moments_merge_to_those_of_all_rows():
    X = 1e6 + np.random.default_rng(0).normal(size=(100, 3)) * [1e-2, 1.0, 50.0]
    X[:, 1] = 0.1
    moments = ColumnMoments()
    for part in np.split(X, [1, 40, 97]):
        moments.add(part, np.ones(len(part)))
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.sd[[0, 2]], X.std(axis=0)[[0, 2]], rtol=1e-8)
    assert moments.sd[1] == pytest.approx(0.1)  # the constant itself
    np.testing.assert_array_equal(moments.low, X.min(axis=0))


def test_weighted_moments_are_those_of_repeated_rows():
    rng = np.random.default_rng(0)
    X, counts = rng.normal(size=(30, 2)), rng.integers(1, 4, size=30)
    moments = ColumnMoments()
    for rows in np.split(np.arange(30), [7, 19]):
        moments.add(X[rows], 1e200 * counts[rows])
    repeated = np.repeat(X, counts, axis=0)
    np.testing.assert_allclose(moments.mean, repeated.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(moments.sd, repeated.std(axis=0), rtol=1e-10)
    assert moments.weight == pytest.approx(1e200 * counts.sum())
    assert moments.rows == 30


def test_minibatches_lose_fewer_rows_than_steps():
    for n in (1, 7, 99, 100, 101, 12_345):
        steps, batch = minibatches(n, 100)
        assert 0 <= n - steps * batch < steps


def test_a_streamed_epoch_shows_every_row_once(monkeypatch):
    monkeypatch.setattr(feeding, "CHUNK_BYTES", 4 * 3 * 16)
    X, y = data()
    source = ArraySource(X, y, np.ones(len(X)), streamed=True)
    chunks = list(source.chunks(lambda rows: rows, np.random.default_rng(0)))
    assert [len(chunk.X) for chunk in chunks].count(16) == 3
    seen = np.concatenate([chunk.X for chunk in chunks])
    np.testing.assert_array_equal(np.sort(seen[:, 0]), np.sort(X[:, 0]))
    assert not np.array_equal(seen, X)


@pytest.fixture
def epoch_by_epoch(monkeypatch):
    """Arrays take one epoch a call, as batches do: all share one compiled program."""
    monkeypatch.setattr(state, "BLOCK_STEPS", 1)


def test_batches_and_one_chunk_memory_maps_equal_arrays(tmp_path, epoch_by_epoch):
    X, y = data()
    whole = SoUNetRegressor(**SETTINGS).fit(X, y)
    batches = SoUNetRegressor(**SETTINGS).fit([(X, y)])
    mapped = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
    mapped[:] = X
    from_disk = SoUNetRegressor(**SETTINGS).fit(mapped, y)
    np.testing.assert_array_equal(batches.predict(X), whole.predict(X))
    np.testing.assert_array_equal(from_disk.predict(X), whole.predict(X))


def test_weights_reach_the_training_from_arrays_and_from_batches(epoch_by_epoch):
    """Equal weights w are a sum of w losses: the network of confidences divided by w."""
    X, y = data(75)  # of which 60 count
    weight = np.full(75, 4.0)
    weight[::5] = 0.0
    counted = weight > 0
    arrays = SoUNetRegressor(**SETTINGS).fit(X, y, weight)
    batches = SoUNetRegressor(**SETTINGS).fit([(X, y, weight)])
    quarter = {f"confidence_{k}": 0.25 for k in ("weights", "global", "noise")}
    divided = SoUNetRegressor(**{**SETTINGS, **quarter}, confidence_local=0.25e-9)
    divided.fit(X[counted], y[counted])
    np.testing.assert_allclose(batches.predict(X), arrays.predict(X), rtol=1e-5)
    np.testing.assert_allclose(arrays.predict(X), divided.predict(X), rtol=1e-4, atol=1e-5)
    assert arrays.expected_loss_ == pytest.approx(4 * divided.expected_loss_, rel=1e-3)


@pytest.mark.parametrize(
    ("weight", "said"),
    [(np.full(60, -1.0), "[Nn]egative"), (np.eye(1, 60)[0], "1 rows have"), (np.ones(59), "59")],
)
def test_wrong_weights_are_refused(weight, said):
    with pytest.raises(ValueError, match=said):
        SoUNetRegressor(**SETTINGS).fit(*data(), weight)
    with pytest.raises(ValueError, match="let every batch be"):
        SoUNetRegressor(**SETTINGS).fit([data()], sample_weight=weight)


def test_many_batches_are_surveyed_whole():
    X, y = data()
    labels = np.where(y > 0, "up", "down")
    labels[-1] = "rare"  # only in the last batch
    batches = [(X[i : i + 20], labels[i : i + 20]) for i in range(0, 60, 20)]
    net = SoUNetClassifier(**SETTINGS).fit(batches)
    assert net.classes_.tolist() == ["down", "rare", "up"]
    np.testing.assert_allclose(net._x_scaler.shift, X.mean(axis=0), rtol=1e-12)
    assert len(net.history_) == 3


def test_wrong_batches_are_named():
    X, y = data()
    with pytest.raises(TypeError, match="only once"):
        SoUNetRegressor(**SETTINGS).fit(pair for pair in [(X, y)])
    with pytest.raises(ValueError, match="3 and 2 features"):
        SoUNetRegressor(**SETTINGS).fit([(X, y), (X[:, :2], y)])
    with pytest.raises(ValueError, match="60 rows of X but 59"):
        SoUNetRegressor(**SETTINGS).fit([(X, y[:-1])])
    with pytest.raises(ValueError, match="NaN"):
        SoUNetRegressor(**SETTINGS).fit([(np.full_like(X, np.nan), y)])


def test_batches_hold_out_every_so_many_rows():
    X, y = data()
    whole = BatchSource([(X[:25], y[:25]), (X[25:], y[25:], np.ones(35))])
    rest = replace(whole, every=7)
    held = np.arange(60) % 7 == 0
    np.testing.assert_array_equal(rest.held_out().X, X[held])
    np.testing.assert_array_equal(np.concatenate([c.y for c in rest.raw()]), y[~held])
    auto = {**SETTINGS, "confidence_weights": "auto"}
    net = SoUNetRegressor(**auto).fit([(X[:30], y[:30]), (X[30:], y[30:])])
    assert "validation_loss" in net.path_
    assert len(net.history_) == 3 + 3 * 1 + 2  # the path, then half of the epochs on all rows


_MAPPED = """
import re, sys
import numpy as np
from soubayes import SoUNetRegressor
def anonymous():
    status = open("/proc/self/status").read()
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", status).group(1)) / 1024
X = np.memmap(sys.argv[1], dtype=np.float64, mode="r", shape=(150_000, 500))
y = np.sin(np.arange(150_000.0))
settings = dict(hidden=(2,), epochs=1, batch_size=5000, random_state=0, scale_inputs=None,
                confidence_weights=1.0)
SoUNetRegressor(**settings).fit(np.asarray(X[:16_777]), y[:16_777])
before = anonymous()
import soubayes.networks.feeding as feeding
peak = [0.0]
original = feeding.Scaler.__call__
def watched(self, values):
    peak[0] = max(peak[0], anonymous())
    return original(self, values)
feeding.Scaler.__call__ = watched
SoUNetRegressor(**settings).fit(X, y)
print(peak[0] - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
@pytest.mark.slow
def test_a_memory_map_is_not_copied(tmp_path):
    """0.6 GB on disk (a sparse file), 0.3 GB as float32, read in chunks of 32 MB."""
    path = tmp_path / "X"
    with open(path, "wb") as file:
        file.truncate(150_000 * 500 * 8)
    done = subprocess.run(
        [sys.executable, "-c", _MAPPED, str(path)],
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 260  # MB; several chunks are on their way on a busy machine


def test_masked_values_are_refused():
    X, y = np.ma.array(np.zeros((20, 2))), np.zeros(20)
    X[3, 1] = np.ma.masked
    for model in (SoUNetRegressor(), SoUNetEnsemble(SoUNetRegressor())):
        with pytest.raises(ValueError, match="X is a masked array with 1 masked"):
            model.fit(X, y)
