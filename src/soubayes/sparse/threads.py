"""How many threads linear algebra gets while a solver runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

SMALL = 2_000  # up to this side of its systems a solver is faster on one thread


@contextmanager
def solver_threads(size: int, jobs: int = 1) -> Iterator[None]:
    """Limit BLAS while ``jobs`` solvers at a time solve systems of at most ``size`` x ``size``.

    One thread for small systems: a path solves hundreds of them, and handing out parts takes
    longer than solving them (with two threads 1.2 to 4 times as long). Otherwise the cores are
    shared by the jobs.
    """
    if size > SMALL and jobs == 1:
        yield
        return
    threads = 1 if size <= SMALL else max(1, effective_n_jobs(-1) // jobs)
    with _libraries().limit(limits=threads, user_api="blas"):
        yield


@cache
def _libraries() -> ThreadpoolController:
    """The loaded libraries; looking them up takes milliseconds."""
    return ThreadpoolController()
