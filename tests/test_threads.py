"""Small systems are solved on one BLAS thread, and the process gets its threads back."""

import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from soubayes import SoULinearRegression, SoULogisticRegression, threads
from soubayes.datasets import experiment1
from soubayes.sparse.least_squares import family, fitting
from soubayes.sparse.rows import family as rows_family


def _blas_threads():
    return {
        lib.num_threads for lib in ThreadpoolController().select(user_api="blas").lib_controllers
    }


@pytest.mark.parametrize(("small", "want"), [(2000, 1), (10, 2)])
def test_threads_while_and_after_solving(small, want, monkeypatch):
    data = experiment1(60, 30, 3, random_state=0)
    seen = []
    for module, name in ((fitting, "solve_path"), (rows_family, "solve_rows")):
        solve = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *a, solve=solve, **k: seen.append(_blas_threads()) or solve(*a, **k),
        )
    monkeypatch.setattr(threads, "SMALL", small)
    with threadpool_limits(2):
        before = _blas_threads()
        SoULinearRegression(choice="path").fit(data.X, data.y)
        SoULogisticRegression(confidence_coef=1.0).fit(data.X, data.y > 0)
        assert _blas_threads() == before
    assert seen == [{min(want, *before)}] * 2  # a machine may have no second thread


def test_folds_in_two_threads_share_the_cores(monkeypatch):
    """Systems too large for one thread: each of two jobs gets half of the cores."""
    data = experiment1(60, 30, 3, random_state=0)
    seen = []
    solve = family.path_fit
    monkeypatch.setattr(
        family,
        "path_fit",
        lambda *a, **k: seen.append(_blas_threads()) or solve(*a, **k),
    )
    monkeypatch.setattr(threads, "SMALL", 10)
    monkeypatch.setattr(threads, "effective_n_jobs", lambda _: 2)
    with threadpool_limits(2):
        SoULinearRegression(cv=3, n_jobs=2).fit(data.X, data.y)
    assert seen
    assert all(found == {1} for found in seen)


def test_fits_that_overlap_give_the_threads_back():
    with threadpool_limits(2):
        before = _blas_threads()
        one, two = threads.solver_threads(10), threads.solver_threads(10)
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)  # began first, ends first
        assert _blas_threads() == {1}
        two.__exit__(None, None, None)
        assert _blas_threads() == before
