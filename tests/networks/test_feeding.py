"""Arrays, memory maps and iterables of batches give the same data to the same training."""

import os
import subprocess
import sys

import numpy as np
import pytest

from soubayes import SoUNetClassifier, SoUNetRegressor
from soubayes.networks import feeding
from soubayes.networks.feeding import ArraySource, Moments, minibatches

SETTINGS = {"hidden": (4,), "epochs": 3, "batch_size": 10, "random_state": 0}


def data(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + 0.1 * rng.normal(size=n)


def test_moments_merge_to_those_of_all_rows():
    X = 1e6 + np.random.default_rng(0).normal(size=(100, 3)) * [1e-2, 1.0, 50.0]
    X[:, 1] = 0.1
    moments = Moments()
    for part in np.split(X, [1, 40, 97]):
        moments.add(part)
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.sd[[0, 2]], X.std(axis=0)[[0, 2]], rtol=1e-8)
    assert moments.sd[1] == 1.0
    np.testing.assert_array_equal(moments.low, X.min(axis=0))


def test_minibatches_lose_fewer_rows_than_steps():
    for n in (1, 7, 99, 100, 101, 12_345):
        steps, batch = minibatches(n, 100)
        assert 0 <= n - steps * batch < steps


def test_a_streamed_epoch_shows_every_row_once(monkeypatch):
    monkeypatch.setattr(feeding, "CHUNK_BYTES", 4 * 3 * 16)
    X, y = data()
    source = ArraySource(X, y, streamed=True)
    chunks = list(
        source.chunks(lambda v: v, lambda v: v, np.random.default_rng(0), lambda *pair: pair)
    )
    assert [len(part) for part, _ in chunks].count(16) == 3
    seen = np.concatenate([part for part, _ in chunks])
    np.testing.assert_array_equal(np.sort(seen[:, 0]), np.sort(X[:, 0]))
    assert not np.array_equal(seen, X)


def test_batches_and_one_chunk_memory_maps_equal_arrays(tmp_path):
    X, y = data()
    whole = SoUNetRegressor(**SETTINGS).fit(X, y)
    batches = SoUNetRegressor(**SETTINGS).fit([(X, y)])
    mapped = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=X.shape)
    mapped[:] = X
    from_disk = SoUNetRegressor(**SETTINGS).fit(mapped, y)
    np.testing.assert_array_equal(batches.predict(X), whole.predict(X))
    np.testing.assert_array_equal(from_disk.predict(X), whole.predict(X))


def test_many_batches_are_surveyed_whole():
    X, y = data()
    labels = np.where(y > 0, "up", "down")
    labels[-1] = "rare"  # only in the last batch
    batches = [(X[i : i + 20], labels[i : i + 20]) for i in range(0, 60, 20)]
    net = SoUNetClassifier(**SETTINGS).fit(batches)
    assert net.classes_.tolist() == ["down", "rare", "up"]
    np.testing.assert_allclose(net._x_scaler.shift, X.mean(axis=0), rtol=1e-12)
    assert net.history_.n_rows == 3


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
    with pytest.raises(ValueError, match="cannot be split"):
        SoUNetRegressor(**SETTINGS, validation_fraction=0.1).fit([(X, y)])


_MAPPED = """
import re, sys
import numpy as np
from soubayes import SoUNetRegressor
def anonymous():
    status = open("/proc/self/status").read()
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", status).group(1)) / 1024
X = np.memmap(sys.argv[1], dtype=np.float64, mode="r", shape=(400_000, 500))
y = np.sin(np.arange(400_000.0))
settings = dict(hidden=(2,), epochs=1, batch_size=5000, random_state=0, scale_inputs=None)
SoUNetRegressor(**settings).fit(np.asarray(X[:20_000]), y[:20_000])
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
def test_a_memory_map_is_not_copied(tmp_path):
    """1.6 GB on disk (a sparse file), 0.8 GB as float32, read in chunks of 32 MB."""
    path = tmp_path / "X"
    with open(path, "wb") as file:
        file.truncate(400_000 * 500 * 8)
    done = subprocess.run(
        [sys.executable, "-c", _MAPPED, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 400
