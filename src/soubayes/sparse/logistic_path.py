"""One class of the logistic model: from a start, along the confidence path, to a solution."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from soubayes.sparse.columns import Columns, Fit, State, make_state
from soubayes.sparse.jaakkola import Design
from soubayes.sparse.logistic_coordinate import coordinate, prior_start
from soubayes.sparse.newton import solve
from soubayes.sparse.path import confidence_grid
from soubayes.sparse.scales import Exponential
from soubayes.sparse.start import quarter_gram, ridge_start
from soubayes.sparse.wide import solve_wide

Array = np.ndarray
Report = Callable[[int, float, int], None]
_FEW = 150  # columns at which n x n systems hand over to Newton steps
_LOOSE = 1e-5  # relative change of J at which a point on the way counts as reached


class Problem(NamedTuple):
    """What the one-vs-rest problems of a fit share."""

    design: Design
    weight: Any  # (n,); None: known to the design
    gram: Array | None  # X'X/4; None: more columns than rows, never formed
    n: float  # sum of the weights


class Point(NamedTuple):
    """One point of the path."""

    gamma: float
    active: Array  # columns, the intercept too
    mean: Array  # (p,) exactly 0 where dropped
    value: float  # J
    score: float  # what `solve_class` minimises along the path; NaN where not asked for
    refit: Array  # (p,) the mean of the support refitted at confidence 1; NaN likewise
    converged: bool


class Outcome(NamedTuple):
    """Where a class ended: the fit at the reported confidence, and the way there."""

    model: Columns
    fit: Fit
    history: Array
    n_iter: int
    points: list[Point]
    gamma: float  # confidence in the coefficients of the reported point


def make_problem(design: Design, weight: Array, solver: str) -> Problem:
    """Decide whether k x k or n x n matrices are formed, and form what all classes share."""
    wide = design.n_columns > max(design.n_rows, 2 * _FEW) and solver == "newton"
    gram = None if wide else quarter_gram(design, weight)
    return Problem(design, weight, gram, float(weight.sum()))


def solve_class(
    problem: Problem,
    y: Array,
    model: Columns,
    free: Array,
    confidence: float | None,
    *,
    solver: str,
    max_iter: int,
    tol: float,
    report: Report,
) -> Outcome:
    """Minimise J at this confidence in the ``free`` coefficients, or choose it (None).

    The path raises the confidence gamma_b, the threshold of z_j^2, from 1. A number is reached
    by it and reported there. None goes to the end of the path and reports the point of least

        2 sum(loss) + 2 k n/(n - k - 1) + 2 k log(p/e),

    the corrected Akaike risk plus the price of having searched p columns for each one kept, with
    k the support and the loss at its refit at confidence 1; that refit is what is reported. A lower
    price does not do: wide data can be separated by a few wrong columns.
    """

    def at(gamma: float) -> Columns:
        return model._replace(confidence=np.where(free, gamma, model.confidence))

    selects = bool(np.any(free & model.selects))
    auto = confidence is None and selects and solver == "newton"
    asked = 1.0 if confidence is None else confidence
    if solver == "coordinate":
        assert problem.gram is not None
        start = prior_start(at(asked), problem.gram, _start_precision(model))
        limits: Any = {"max_iter": max_iter, "tol": tol, "report": report}
        fit = coordinate(problem.design, y, problem.weight, at(asked), start, **limits)
        return _outcome(at(asked), fit, [_point(problem, y, fit, asked, free, None)], asked)
    run = partial(_minimise, problem, y, max_iter=max_iter, report=report)
    grid = confidence_grid(int(free.sum()), None if auto else asked) if selects else [asked]
    points: list[Point] = []
    refits: list[Fit] = []
    way: Fit | None = None
    for gamma in map(float, grid):
        last = not auto and gamma == grid[-1]
        fit = way = run(at(gamma), way, tol=tol if last else _LOOSE)
        if auto:
            same = refits and np.array_equal(refits[-1].state.active, fit.state.active)
            refits.append(refits[-1] if same else run(at(1.0), fit, tol=_LOOSE, readmit=False))
        points.append(_point(problem, y, fit, gamma, free, refits[-1] if auto else None))
        if fit.interrupted or (auto and not free[fit.state.active].any()):
            break
    if not auto:
        return _outcome(at(points[-1].gamma), fit, points, points[-1].gamma)
    chosen = int(np.argmin([point.score for point in points]))
    stop = fit.interrupted
    fit = refits[chosen] if stop else run(at(1.0), refits[chosen], tol=tol, readmit=False)
    fit = fit._replace(
        interrupted=stop or fit.interrupted,
        converged=fit.converged and not stop and all(point.converged for point in points),
    )
    return _outcome(at(1.0), fit, points, points[chosen].gamma)


def _minimise(
    problem: Problem,
    y: Array,
    model: Columns,
    warm: Fit | None,
    *,
    max_iter: int,
    tol: float,
    report: Report,
    readmit: bool = True,
) -> Fit:
    """From the state of another confidence, or from the start."""
    design, weight = problem.design, problem.weight
    before: list[float] = []
    if warm is not None:
        old = warm.state
        near = old.local, old.global_
        start = make_state(
            model, old.active, old.mean, warm.data.bound, old.precision, old.rest, near
        )
    elif problem.gram is not None:
        start = ridge_start(design, y, weight, model, _start_precision(model), problem.gram)
    else:
        Z = design.wide()
        few = _FEW if model.selects.any() else 0
        limits: Any = {"max_iter": max_iter, "tol": tol, "report": report}
        fit = solve_wide(Z, y, weight, model, _start_precision(model), few=few, **limits)
        if fit.rows is not None or fit.interrupted:
            return fit
        before, start = fit.history, fit.state
    fit = solve(
        design,
        y,
        weight,
        model,
        start,
        max_iter=max_iter,
        tol=tol,
        readmit=readmit,
        report=report,
    )
    if before:
        # the dropped columns' shares of J, brought up to date since
        shift = fit.history[0] - before[-1]
        fit = fit._replace(history=[past + shift for past in before[:-1]] + fit.history)
    return fit


def _start_precision(model: Columns) -> Array:
    """The prior precision with tau^2 and nu^2 at their prior means (half-Cauchy: as Exp(10))."""
    rates = [
        prior.rate if isinstance(prior, Exponential) else 10.0
        for prior in (model.local_prior, model.global_prior)
    ]
    return np.where(model.sparse, rates[0] * rates[1], model.precision)


def _point(
    problem: Problem, y: Array, fit: Fit, gamma: float, free: Array, refit: Fit | None
) -> Point:
    p, active = problem.design.n_columns, fit.state.active
    mean, again, score = np.zeros(p), np.full(p, np.nan), np.nan
    mean[active] = fit.state.mean
    if refit is not None:
        again = np.zeros(p)
        again[refit.state.active] = refit.state.mean
        n, k = problem.n, len(active)
        price = 2.0 * max(np.log(max(int(free.sum()), 1)) - 1.0, 0.0) * int(free[active].sum())
        risk = 2.0 * k * n / (n - k - 1.0) if n > k + 1 else np.inf
        score = 2.0 * plug_in_loss(problem, y, refit.state) + risk + price
    return Point(gamma, active, mean, fit.history[-1], score, again, fit.converged)


def plug_in_loss(problem: Problem, y: Array, state: State) -> float:
    """The weighted logistic loss at the posterior mean."""
    work = partial(_plug_in_block, mean=state.mean)
    return problem.design.take(state.active).total(work, y, problem.weight)[0]


def _plug_in_block(Z: Array, y: Array, weight: Array, mean: Array) -> tuple[float]:
    eta = Z.astype(float, copy=False) @ mean
    return (float(weight @ (np.logaddexp(0.0, eta) - y * eta)),)


def _outcome(model: Columns, fit: Fit, points: list[Point], gamma: float) -> Outcome:
    history = np.minimum.accumulate(fit.history)  # equal up to the rounding of an update
    n_iter = len(fit.history) - 1
    return Outcome(model, fit, history, n_iter, points, gamma)
