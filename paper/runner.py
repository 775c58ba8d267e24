"""Run a grid of (seed, parameters) and keep every row: in one process, with joblib or on Dask."""

import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from paper.storage import Outcome, Row, Store, Task
from soubayes._optional import require

SIZES = ("toy", "quick", "full")


@dataclass(frozen=True)
class Experiment:
    """A parameter grid, a function of (seed, parameters) giving a row, a report of the rows.

    ``grid(size)`` lists the tasks of "toy" (seconds, for the tests), "quick" (minutes) and "full"
    (the paper's size). ``row`` must be a function of a module, so workers can import it, and
    must depend on nothing but its arguments. ``rows_of`` names the experiment whose rows these
    are, where two share them. ``minutes`` is what one core of the reference machine took.
    """

    name: str
    shows: str
    where: str
    grid: Callable[[str], list[Task]]
    row: Callable[[int, Mapping[str, Any]], Mapping[str, Any]]
    report: Callable[[list[Row]], Any]
    minutes: Mapping[str, float]
    rows_of: str = ""

    @property
    def source(self) -> str:
        """The name under which the rows are stored."""
        return self.rows_of or self.name


class WorkerDied(RuntimeError):
    """A process of the pool ended in the middle of a row."""


class Summary(NamedTuple):
    """What a run did: rows found from before, rows computed now, and how many of these failed."""

    found: int
    computed: int
    failed: int


def run(
    experiment: Experiment,
    size: str,
    store: Store,
    *,
    jobs: int = 1,
    backend: str = "joblib",
    scheduler: str | None = None,
    on_row: Callable[[Task, Outcome], None] | None = None,
) -> Summary:
    """Compute the rows of ``experiment`` that ``store`` lacks, each written when it is finished.

    A row that raises is stored with its traceback and tried again by the next run. Interrupted or
    killed, a run loses the rows in flight and nothing else. Seeds decide rows: every row runs on
    one thread, so ``jobs`` and ``backend`` ("joblib" or "dask") do not change a digit.
    """
    tasks = experiment.grid(size)
    pending = store.pending(experiment.source, tasks)
    compute = partial(compute_row, experiment.row)
    failed = 0
    for task, outcome in _backend(backend, jobs, scheduler)(compute, pending):
        store.add(experiment.source, task, outcome)
        failed += bool(outcome.error)
        if on_row is not None:
            on_row(task, outcome)
    return Summary(len(tasks) - len(pending), len(pending), failed)


def compute_row(row: Callable, task: Task) -> tuple[Task, Outcome]:
    """One row on one thread, its warnings collected, its error kept instead of raised."""
    started = time.perf_counter()
    result: Mapping[str, Any] = {}
    error = ""
    with one_thread(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = row(task.seed, task.parameters)
        except Exception:  # a method of any kind: its row keeps the traceback, the run goes on
            error = traceback.format_exc()
    said = sorted({f"{w.category.__name__}: {w.message}" for w in caught})
    return task, Outcome(result, error, "\n".join(said), time.perf_counter() - started)


@contextmanager
def one_thread() -> Iterator[None]:
    """Numerical libraries on one thread; JAX reads its flags when it is first used."""
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("XLA_FLAGS", flags)
    with threadpool_limits(1):
        yield


Results = Iterator[tuple[Task, Outcome]]


def _backend(name: str, jobs: int, scheduler: str | None) -> Callable[..., Results]:
    if name == "dask":
        return partial(_on_dask, jobs=jobs, scheduler=scheduler)
    if name != "joblib":
        raise ValueError(f"backend is {name!r}, but it must be 'joblib' or 'dask'.")
    if scheduler is not None:
        raise ValueError("a scheduler address was given, but only backend='dask' has a scheduler.")
    return _in_this_process if jobs == 1 else partial(_on_joblib, jobs=jobs)


def _in_this_process(compute: Callable, tasks: list[Task]) -> Results:
    yield from map(compute, tasks)


def _on_joblib(compute: Callable, tasks: list[Task], *, jobs: int) -> Results:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    # a worker that holds more memory than before, as after MNIST, is replaced between rows
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
    # a run that stops early says so itself
    warnings.filterwarnings(
        "ignore", message=r"\d+ tasks (have been successfully|which were still)"
    )
    # one task a message: a kill loses what is in flight, never a batch of finished rows
    pool = Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")
    try:
        yield from pool(delayed(compute)(task) for task in tasks)
    except BrokenProcessPool as error:
        raise WorkerDied(
            "a worker process was killed, perhaps for want of memory. Finished rows are kept: "
            "run the same command again, with fewer jobs if it happens again."
        ) from error


def _on_dask(compute: Callable, tasks: list[Task], *, jobs: int, scheduler: str | None) -> Results:
    """On the cluster at ``scheduler``, or on ``jobs`` processes of this machine.

    Dask runs the rows of a worker that died on another one.
    """
    distributed = require("distributed", "backend='dask'")
    where: dict[str, Any] = {"address": scheduler}
    if scheduler is None:
        where = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**where) as client:
        futures = dict(zip(client.map(compute, tasks, pure=False), tasks, strict=True))
        for future in distributed.as_completed(futures):
            try:
                yield future.result()
            except distributed.KilledWorker:  # this row has ended several workers: record that
                yield futures[future], Outcome({}, traceback.format_exc(), "", 0.0)


def slowness() -> float:
    """How many times longer this machine takes than the one that ``minutes`` were measured on."""
    import numpy as np
    from scipy.linalg import cholesky

    matrix = np.eye(400) + 0.001
    with one_thread():
        best = float("inf")
        for _ in range(12):
            started = time.perf_counter()
            cholesky(matrix)
            best = min(best, time.perf_counter() - started)
    return best / _REFERENCE_SECONDS


_REFERENCE_SECONDS = 1.0e-3
