"""Threads and processes: how many linear algebra gets while a solver runs, and who runs jobs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import ThreadpoolController

SLOW = 2.0  # seconds of a call from which processes are worth their start
SMALL = 2_000  # up to this side of its systems a solver is faster on one thread
_lock = Lock()
_holders: list[Any] = []  # one entry for every fit inside; the first knows what there was before


@contextmanager
def solver_threads(size: int, jobs: int = 1) -> Iterator[None]:
    """Limit BLAS while ``jobs`` solvers at a time solve systems of at most ``size`` x ``size``.

    One thread for small systems: a path solves hundreds of them, and handing out parts takes
    longer than solving them (with two threads 1.2 to 4 times as long). Otherwise the cores are
    shared by the jobs. The limit is the process's: of fits in several threads the first sets it
    and the last one to end takes it back.
    """
    if size > SMALL and jobs == 1:
        yield
        return
    with _lock:
        threads = 1 if size <= SMALL else max(1, effective_n_jobs(-1) // jobs)
        first = not _holders
        _holders.append(_libraries().limit(limits=threads, user_api="blas") if first else None)
    try:
        yield
    finally:
        with _lock:
            if len(_holders) == 1:
                _holders[0].restore_original_limits()
                _holders.clear()
            else:
                _holders.pop()


def run_jobs(
    work: Callable[..., Any], items: Iterable[tuple[Any, ...]], jobs: int, slow: bool = False
) -> list[Any]:
    """work(*item) of every item, ``jobs`` at a time.

    In threads, or in processes where calls are ``slow``: SciPy's LAPACK holds Python's lock, so
    threads hardly save time there. A ``joblib.parallel_config`` around the fit decides instead.
    """
    prefer = "processes" if slow else "threads"
    return Parallel(n_jobs=jobs, prefer=prefer)(delayed(work)(*item) for item in items)


@cache
def _libraries() -> ThreadpoolController:
    """The loaded libraries; looking them up takes milliseconds."""
    return ThreadpoolController()
