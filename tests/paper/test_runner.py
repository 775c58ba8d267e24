"""Grids, rows and resuming: whatever happens to a run, its rows are those of a quiet one."""

import multiprocessing
import random
import sqlite3
import time

import pytest
from joblib.externals.loky import get_reusable_executor

import small_experiment
from damage import KINDS, damaged
from paper.runner import WorkerDied, compute_row, run
from paper.storage import FILE, Outcome, RowsError, Store, Task

SMALL = small_experiment.experiment()


def content(folder):
    return [(r.seed, r.parameters, r.result, r.error) for r in Store(folder).rows("small")]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The rows of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("quiet")
    assert run(SMALL, "quick", Store(folder)) == (0, 60, 0)
    return content(folder)


def test_rows_carry_seed_settings_versions_and_commit(tmp_path):
    store = Store(tmp_path)
    run(SMALL, "toy", store)
    row = next(r for r in store.rows("small") if r.parameters["n"] == 5)
    assert row.seed == 0
    assert row.versions["numpy"]
    assert row.commit
    assert row.finished.endswith("+00:00")
    assert row.seconds >= small_experiment.WAIT


def test_larger_runs_reuse_rows_and_fresh_ones_do_not(tmp_path):
    store = Store(tmp_path)
    assert run(SMALL, "toy", store) == (0, 8, 0)
    assert run(SMALL, "toy", store) == (8, 0, 0)
    assert run(SMALL, "quick", store) == (8, 52, 0)
    store.remove("small", small_experiment.grid("toy"))
    assert len(store.rows("small")) == 52
    assert run(SMALL, "quick", store) == (52, 8, 0)


def test_workers_do_not_change_a_digit(tmp_path, quiet):
    assert run(SMALL, "quick", Store(tmp_path), jobs=2) == (0, 60, 0)
    assert content(tmp_path) == quiet


def test_an_error_is_kept_with_its_traceback_and_tried_again(tmp_path):
    store = Store(tmp_path)
    failing = small_experiment.experiment(small_experiment.compute_or_fail)
    assert run(failing, "toy", store) == (0, 8, 2)
    (row, _) = [r for r in store.rows("small") if r.error]
    assert row.seed == 2
    assert 'raise ZeroDivisionError("seed two")' in row.error
    assert run(SMALL, "toy", store) == (6, 2, 0)
    assert not any(r.error for r in store.rows("small"))


def test_warnings_are_kept_with_the_row():
    import warnings

    def warn(seed, parameters):
        warnings.warn("did not converge", stacklevel=1)
        return {}

    _, outcome = compute_row(warn, Task(0, {}))
    assert outcome.warnings == "UserWarning: did not converge"


def test_killed_ten_times_at_random_moments(tmp_path, quiet):
    """kill -9 a run at random, ten times: no row is lost or torn, and the end is the same."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["small_experiment"])
    moments = random.Random(0)
    store = Store(tmp_path)
    before, killed_early = 0, 0
    for _ in range(10):
        process = context.Process(target=small_experiment.run_into, args=(tmp_path, "quick"))
        process.start()
        started = time.monotonic()
        while len(store.rows("small")) == before and time.monotonic() - started < 20:
            time.sleep(0.002)  # until it is computing: imports are not what we test
        time.sleep(moments.uniform(0, 0.02))
        process.kill()
        process.join()
        killed_early += process.exitcode == -9
        rows = content(tmp_path)
        assert len(rows) >= before
        assert all(row in quiet for row in rows)
        before = len(rows)
    assert killed_early >= 9
    assert before < len(quiet)
    run(SMALL, "quick", store)
    assert content(tmp_path) == quiet
    with sqlite3.connect(tmp_path / FILE) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_dask_finishes_when_a_worker_is_killed(tmp_path, quiet, monkeypatch):
    """A real cluster of two processes; a row kills its own worker the first time it runs."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("SOUBAYES_TEST_MARK", str(tmp_path / "killed"))
    deadly = small_experiment.experiment(small_experiment.compute_once_deadly)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        store = Store(tmp_path)
        done = run(deadly, "quick", store, backend="dask", scheduler=cluster.scheduler_address)
    assert (tmp_path / "killed").exists()
    assert done == (0, 60, 0)
    assert content(tmp_path) == quiet


def test_a_killed_worker_of_joblib_loses_its_row_only(tmp_path, quiet, monkeypatch):
    monkeypatch.setenv("SOUBAYES_TEST_MARK", str(tmp_path / "killed"))
    get_reusable_executor().shutdown(wait=True)  # workers of an earlier test lack the variable
    deadly = small_experiment.experiment(small_experiment.compute_once_deadly)
    store = Store(tmp_path)
    with pytest.raises(WorkerDied, match="Finished rows are kept"):
        run(deadly, "quick", store, jobs=2)
    assert 0 < len(store.rows("small")) < 60
    run(deadly, "quick", store, jobs=2)
    assert content(tmp_path) == quiet


def test_wrong_backends():
    for wrong, message in [
        ({"backend": "spark"}, "must be 'joblib' or 'dask'"),
        ({"scheduler": "tcp://x:1"}, "only backend='dask'"),
    ]:
        with pytest.raises(ValueError, match=message):
            run(SMALL, "toy", _NoRows(), **wrong)


class _NoRows:
    def pending(self, experiment, tasks):
        return tasks


def test_a_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / FILE).write_text("not a database, but long enough to be read as one" * 50)
    with pytest.raises(OSError, match=r"rows\.sqlite cannot be used"):
        Store(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_damaged_files_are_refused_or_equal(kind, tmp_path):
    store = Store(tmp_path)
    for seed in range(12):
        store.add("small", Task(seed, {"n": "x" * 99}), Outcome({"r": [0.1] * 99}, "", "w", 0.1))
    rows = store.rows("small")
    for data in damaged(store.path.read_bytes(), kind, 200):
        store.path.write_bytes(data)
        try:
            found = Store(tmp_path).rows("small")
        except RowsError as error:
            assert str(store.path) in str(error)  # noqa: PT017
        else:
            assert found == rows


def test_values_that_no_row_can_hold(tmp_path):
    with pytest.raises(TypeError, match="numbers, strings, lists and arrays"):
        Store(tmp_path).add("x", Task(0, {}), Outcome({"a": object()}, "", "", 0.0))
