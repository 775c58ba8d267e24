"""A real cluster of processes, and what happens when one of them dies in the middle of a fit."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from soubayes import SoULinearRegression, SoULogisticRegression

cloudpickle = pytest.importorskip("cloudpickle")
da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

N, P, BLOCKS = 1200, 6, 8


@pytest.fixture(scope="module")
def client():
    """Workers are spawned with this process's path, on which Dask would take tests/sparse for the
    library of that name; so it leaves the path, and this module's functions travel by value."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    tests = str(Path(__file__).parents[1])
    patch = pytest.MonkeyPatch()
    patch.setattr(sys, "path", [place for place in sys.path if place != tests])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client
    patch.undo()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def _rows(block):
    rng = np.random.default_rng(block)
    X = rng.normal(size=(N // BLOCKS, P))
    return X, X[:, 0] - X[:, 1] + rng.logistic(size=len(X)) / 2


def _memory():
    X, y = (np.concatenate(parts) for parts in zip(*map(_rows, range(BLOCKS)), strict=True))
    return X, y


def _visit(block, folder, deaths):
    """Rows of a block; from its second visit on block 5 kills its process, ``deaths`` times."""
    if block == 5:
        visits = len(os.listdir(folder))
        (folder / f"visit{visits}").touch()
        if 1 <= visits < 1 + deaths:
            os.kill(os.getpid(), signal.SIGKILL)
    return _rows(block)


def _collections(folder, deaths, label):
    """Dask arrays whose blocks are made anew at every pass."""
    # a lambda cannot be named, so Dask sends it and what it calls by value
    visit = dask.delayed(lambda block: _visit(block, folder, deaths), nout=2)
    pairs = [visit(i) for i in range(BLOCKS)]
    size = N // BLOCKS
    X = da.concatenate([da.from_delayed(X, (size, P), float) for X, _ in pairs])
    y = da.concatenate([da.from_delayed(y, (size,), float) for _, y in pairs])
    return X, (y > 0).astype(int) if label else y


def _assert_same(a, b):
    for name in ("coef_", "coef_sd_", "intercept_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-8, atol=1e-12)


def test_linear_on_a_cluster_equals_memory(client, tmp_path):
    X, y = _memory()
    _assert_same(
        SoULinearRegression(choice="path").fit(X, y),
        SoULinearRegression(choice="path").fit(*_collections(tmp_path, 0, False)),
    )


def test_a_worker_that_dies_in_the_middle_of_a_pass_changes_nothing(client, tmp_path):
    X, y = _memory()
    found = SoULogisticRegression(confidence_coef=1.0, multi_class="ovr").fit(
        *_collections(tmp_path, 1, True)
    )
    assert len(list(tmp_path.iterdir())) > 3  # it died, and was asked again
    _assert_same(
        SoULogisticRegression(confidence_coef=1.0, multi_class="ovr").fit(X, (y > 0).astype(int)),
        found,
    )


def test_a_worker_that_dies_with_the_data_changes_nothing(client, tmp_path):
    """Persisted blocks of a killed worker are made again."""
    X, y = (part.persist() for part in _collections(tmp_path, 0, True))
    distributed.wait([X, y])

    class Killing(SoULogisticRegression):
        def _reporter(self, label):
            def report(step, value, active):
                if step == 1:
                    os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)

            return report

    found = Killing(confidence_coef=1.0, multi_class="ovr").fit(X, y)
    X, y = _memory()
    _assert_same(
        SoULogisticRegression(confidence_coef=1.0, multi_class="ovr").fit(X, (y > 0).astype(int)),
        found,
    )


def test_a_block_that_always_kills_its_worker_is_an_error(client, tmp_path):
    with pytest.raises(distributed.KilledWorker):
        SoULogisticRegression(confidence_coef=1.0, multi_class="ovr").fit(
            *_collections(tmp_path, 99, True)
        )
