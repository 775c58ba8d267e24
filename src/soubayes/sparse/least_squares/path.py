"""The path solver: from the dense solution along rising confidence in the coefficients.

At every point it minimises J over beta, tau and nu by simultaneous exact coordinate steps in
log w (docs/development/solver.md), with the noise at its unit-confidence estimate

    sigma^2 = (2 noise_scale + RSS) / (2 noise_shape + n - k),   k = sum_j (1 - kappa_j).

This is not the joint minimiser of J, whose noise has n - gamma_b k there and which collapses in
dense designs. A column whose precision runs off is dropped, and taken back when the rest of the
path makes its z^2 exceed gamma_b again.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from soubayes.sparse.constants import (
    FOLD_CHANGE,
    FOLD_STRIDE,
    GUARD,
    PATH_CHANGE,
    TRIM_PRICE,
    WIDE_RATIO,
)
from soubayes.sparse.dial import confidence_grid
from soubayes.sparse.least_squares.criterion import choose_support, search_degrees
from soubayes.sparse.least_squares.descent import descend, left_out, put_out
from soubayes.sparse.least_squares.designs import LeastSquares
from soubayes.sparse.least_squares.state import (
    DROPPED,
    OUT,
    Filled,
    LeastSquaresFit,
    LeastSquaresModel,
    LeastSquaresSolution,
    PathState,
    assemble,
    dropped_columns,
    expand,
    fill,
    goal_of,
    settle_together,
    with_scales,
)
from soubayes.sparse.least_squares.trimming import trimmed
from soubayes.sparse.scales.base import Scale

Array = np.ndarray

RIGID = 1e-8  # confidence in tau, relative to that in beta, below which nu cannot move precisions


@dataclass(frozen=True)
class PathPoint:
    """One point of the path."""

    gamma: float
    state: PathState
    coef: Array | None  # (p,) standardised, dropped ones exactly 0; None without values
    value: float  # J at this point's noise; NaN where not asked for
    n_iter: int
    converged: bool
    guarded: bool  # the noise was held because it jumped
    sd: Array | None = None  # (p,) of q(beta_j), NaN where dropped; None without values
    degrees: float = np.nan  # of freedom of the noise
    filled: Filled | None = None  # what J will be computed from


def solve_path(
    design: LeastSquares,
    model: LeastSquaresModel,
    free: Array,
    confidence: float | None,
    *,
    tol: float,
    max_iter: int,
    report: Callable[[str], None] = lambda text: None,
) -> tuple[list[PathPoint], int | None, LeastSquaresSolution]:
    """The path, the chosen point (None: a number was asked for) and the solution there.

    ``free`` marks the sparse columns whose confidence moves along the path. With ``confidence``
    None the rule of `choose` picks a point whose support is refitted at confidence 1.
    """
    model = model.barring(design.first_copies())
    end = _follow(design, model, free, confidence, max_iter=max_iter, report=report)
    budget = max(max_iter - end.spent, 50)
    state, n_iter, _, _ = descend(design, end.model, end.state, tol, budget)
    state, history, done = _polish(design, end.model, state, tol, budget)
    spent = end.spent + n_iter + len(history)
    converged = done and all(point.converged for point in end.points)
    solution = assemble(design, end.model, state, np.array(history), spent, converged)
    return end.points, end.chosen, solution


def path_fit(
    design: LeastSquares, model: LeastSquaresModel, free: Array, *, max_iter: int
) -> tuple[list[PathState], LeastSquaresFit]:
    """The states along the path and the fit at the chosen point, for a prediction.

    A rougher `solve_path` without J, for a fold of the data. It visits every third point, except in
    wide data, where a point that is left out changes which columns are found.
    """
    model = model.barring(design.first_copies())
    stride = 1 if len(model.distinct) > WIDE_RATIO * design.n else FOLD_STRIDE
    end = _follow(
        design, model, free, None, max_iter=max_iter, tol=FOLD_CHANGE, values=False, stride=stride
    )
    state, _, _, _ = descend(design, end.model, end.state, 0.1 * PATH_CHANGE, max_iter)
    filled = fill(design, end.model, state, dropped_columns(design, state))
    selected = np.zeros(len(filled.w), bool)
    selected[state.active] = True
    coef, variance = np.where(selected, filled.ridge.mean, 0.0), filled.ridge.variance
    states = [point.state for point in end.points]
    return states, LeastSquaresFit(filled.w, coef, variance, selected, filled.noise, end.model)


def coefficients_at(design: LeastSquares, state: PathState) -> Array:
    """The posterior means at a state, 0 where columns are dropped."""
    coef, active = np.zeros(len(state.w)), state.active
    if len(active):
        coef[active] = design.take(active).ridge(state.w[active]).mean
    return coef


class _End(NamedTuple):
    """Where a path ended: its points, and the state and model from which the rest follows."""

    points: list[PathPoint]
    chosen: int | None
    state: PathState
    model: LeastSquaresModel
    spent: int


def _follow(
    design: LeastSquares,
    model: LeastSquaresModel,
    free: Array,
    confidence: float | None,
    *,
    max_iter: int,
    tol: float = PATH_CHANGE,
    report: Callable[[str], None] = lambda text: None,
    values: bool = True,
    stride: int = 1,
) -> _End:
    """Every ``stride``-th point, and the choice among them."""
    points: list[PathPoint] = []
    state, here, chosen, spent = dense_start(design, model), model, None, 0
    counted = model.searched_among(free)
    grid = confidence_grid(int(counted.sum()), confidence, design.n)[::stride]
    for gamma in grid:
        here = _at(model, free, design.n, gamma)
        left = max_iter - spent
        most = GUARD**stride if points else np.inf
        points.append(_reach(design, here, gamma, state, most, left, tol, values))
        state, spent = points[-1].state, spent + points[-1].n_iter
        if confidence is None and not free[state.active].any():
            break
    # n/3 columns leave two thirds of the rows to the noise: below that the estimate collapses
    while confidence is None and points[0].gamma > 1.0:  # wide data: back towards 1
        gamma = max(points[0].gamma * grid[0] / grid[1], 1.0)
        there = _at(model, free, design.n, gamma)
        point = _reach(design, there, gamma, points[0].state, np.inf, max_iter, tol, values)
        spent += point.n_iter
        if free[point.state.active].sum() > design.n / 3.0:
            break
        points.insert(0, point)
    if confidence is None:
        intercept = model.intercept_variance is not None
        places_of_columns = free / model.group_size  # a group is one place for a signal
        places = float(places_of_columns[counted].sum())
        choose = partial(
            choose_support,
            design,
            sparse=model.sparse,
            free=places_of_columns,
            intercept=intercept,
            places=places,
            groups=model.tau_numbers,
        )
        # a support of the path is judged by least squares on it, so its confidence does not matter
        supports = [point.state.active for point in points]
        none = supports[-1][~free[supports[-1]]]
        # whether no column at all would score best
        empty = choose([*supports, none])[0] == len(points)
        while empty and free[state.active].any():  # on to where no column is left
            gamma = 2.0 * points[-1].gamma
            here = _at(model, free, design.n, gamma)
            points.append(_reach(design, here, gamma, state, np.inf, max_iter, tol, values))
            state, spent = points[-1].state, spent + points[-1].n_iter
            supports.append(state.active)
        chosen, threshold = choose(supports)
    points = _with_values(design, model, free, points)
    for point in points:
        report(_line(point))
    if chosen is not None:
        state = points[chosen].state
        if not model.groups.alone:
            places_of = np.where(free, model.places, -1)
            w = np.where(free, state.w / points[chosen].gamma, state.w)
            strict = partial(choose, price=TRIM_PRICE)
            kept = trimmed(design, state.active, w, places_of, strict)
            if len(kept) < len(state.active):
                state, threshold = state._replace(active=kept), choose([kept])[1]
        left_out = counted.copy()
        left_out[state.active] = False
        if model.copies is not None:  # each stands for the first one: the number is what counts
            left_out[np.flatnonzero(left_out)[: model.copies[state.active].sum()]] = False
        # where no column is left RSS is that of all rows: the search has taken nothing from it
        any_left = free[state.active].any()
        searched = _search_degrees(model, left_out, threshold) if any_left else 0.0
        here = replace(model.at(1.0, free), searched=searched)
        # w = gamma_b u: the prior precisions u stay, the confidence becomes 1
        w = np.where(free, state.w / points[chosen].gamma, state.w)
        state = state._replace(w=w, refit=True)
        state = put_out(design, state) if model.groups.alone else state
    return _End(points, chosen, state, here, spent)


def _at(model: LeastSquaresModel, free: Array, n: float, gamma: float) -> LeastSquaresModel:
    """The model at a point of the path.

    With p >= n nulls above the threshold take degrees of freedom from the noise (`search_degrees`).
    """
    counted = model.searched_among(free)
    searched = _search_degrees(model, counted, gamma) if counted.sum() >= n else 0.0
    return replace(model, confidence=np.where(free, gamma, model.confidence), searched=searched)


def _search_degrees(model: LeastSquaresModel, nulls: Array, threshold: float) -> float:
    """`search_degrees` of columns that may be in groups."""
    if model.groups.alone:
        return search_degrees(threshold, int(nulls.sum()))
    sizes, count = np.unique(model.group_size[nulls], return_counts=True)
    counts = zip(sizes, count, strict=True)
    return sum(search_degrees(threshold, float(c / size), float(size)) for size, c in counts)


def _with_values(
    design: LeastSquares, model: LeastSquaresModel, free: Array, points: list[PathPoint]
) -> list[PathPoint]:
    """The points with the scales and J that were left out on the way."""
    later = [point for point in points if point.filled is not None]
    if not later:
        return points
    models = [_at(model, free, design.n, point.gamma) for point in later]
    filled = [point.filled for point in later if point.filled is not None]
    states, costs = settle_together(models, [point.state for point in later], filled)
    settled = {
        point.gamma: replace(
            point, state=state, value=whole.evaluate(here, design.n, cost).value, filled=None
        )
        for point, state, whole, here, cost in zip(
            later, states, filled, models, costs, strict=True
        )
    }
    return [settled.get(point.gamma, point) for point in points]


def _line(point: PathPoint) -> str:
    """What verbose=1 prints."""
    return (
        f"confidence {point.gamma:.3f}: {len(point.state.active)} of {len(point.state.w)} columns, "
        f"noise variance {point.state.noise:.4g}, J = {point.value:.6g}"
    )


def dense_start(design: LeastSquares, model: LeastSquaresModel) -> PathState:
    """The dense start: every column in, at the precision of one observation (wide data: p)."""
    p = len(model.distinct)
    # wide data: so large a prior precision that the first fit does not interpolate
    scale = float(p) if p >= design.n else 1.0
    norm = np.maximum(design.norms, 1e-300) / design.n
    w = model.group_mean(scale * np.maximum(norm, 1e-12))
    if model.copies is not None:
        w[model.copies] = OUT * design.norms[model.copies]
    state = PathState(
        w=w,
        active=model.distinct,
        noise=max(design.yy / design.n, 1e-300),
        shape=np.maximum(model.confidence / (2.0 * model.local_confidence), 2.0),
        nu=Scale(
            np.asarray(max(0.5 * model.confidence.sum() / model.global_confidence, 2.0)),
            np.asarray(0.1),
        ),
    )
    return state._replace(
        w=np.where(model.sparse, state.w, model.confidence * state.noise / model.variance)
    )


def _reach(
    design: LeastSquares,
    model: LeastSquaresModel,
    gamma: float,
    state: PathState,
    most: float,
    budget: int,
    tol: float,
    values: bool,
) -> PathPoint:
    """One point of the path; a noise that rises more than ``most`` times is held where it was.

    Scales that cannot move the precisions are left out, and J is computed for all points at once.
    Without ``values`` it is left out.
    """
    old, guarded = state, False
    state, spent, done, outside = descend(design, model, old, tol, budget)
    if state.noise > most * old.noise:
        state, n_iter, done, outside = descend(design, model, old, tol, budget, hold_noise=True)
        spent, guarded = spent + n_iter, True
    # nu moves the precisions only by the order of the confidence in tau
    reach = np.max(model.local_confidence / model.confidence)
    if reach < RIGID and not values:
        return PathPoint(gamma, state, None, np.nan, spent, done, guarded)
    if reach < RIGID and most < np.inf:  # the first point has no scales yet
        filled = fill(design, model, state, outside or dropped_columns(design, state))
        coef, sd = filled.kept(model, state.active)
        state, degrees = state._replace(w=filled.w), 2.0 * filled.noise.shape
        return PathPoint(gamma, state, coef, np.nan, spent, done, guarded, sd, degrees, filled)
    for _ in range(20):
        whole = expand(design, model, state, outside or dropped_columns(design, state))
        before, state = state.nu.ratio, with_scales(state, model, whole)
        if reach * abs(np.log(state.nu.ratio / before)) < 0.1 * tol:
            break
        state, n_iter, done, outside = descend(design, model, state, tol, budget, guarded)
        spent += n_iter
    value = whole.evaluate(model, design.n).value
    coef, sd = whole.filled.kept(model, state.active)
    degrees = 2.0 * whole.filled.noise.shape
    return PathPoint(gamma, state, coef, value, spent, done, guarded, sd, degrees)


def _polish(
    design: LeastSquares, model: LeastSquaresModel, state: PathState, tol: float, budget: int
) -> tuple[PathState, list[float], bool]:
    """Lower J with noise and support held until no kappa_j moves; J never rises."""
    outside = dropped_columns(design, state)
    active = state.active
    subset, here = design.take(active), model.take(active)
    # q of the scales belongs to every w: J is compared with both at their best
    whole = expand(design, model, state, outside)
    state = with_scales(state, model, whole)
    history = [whole.evaluate(model, design.n).value]
    for _ in range(budget):
        if not len(active):
            return state, history, True
        old = state.w[active]
        ridge = subset.ridge(old)
        s, q = left_out(subset, here, old, ridge, design.n)
        goal = goal_of(here, s, q, state.noise, state.nu.mean_inverse, state.shape[active])
        # columns that are reported as kept stay finite
        goal = np.minimum(goal, DROPPED * here.group_most(s))
        if np.max(np.abs(goal / (s + goal) - old / (s + old))) < tol:
            return state, history, True
        # the step that each coordinate asks for; half of it until J falls
        # in log w, where the stationary points of columns lie apart by orders of magnitude
        step, best = np.log(goal / old), history[-1]
        for shrink in 0.5 ** np.arange(30):
            w = state.w.copy()
            w[active] = old * np.exp(shrink * step)
            whole = expand(design, model, state._replace(w=w), outside)
            value = whole.evaluate(model, design.n).value
            if value <= best:
                break
        else:
            return state, history, True  # at the floor of rounding
        state = with_scales(state, model, whole)
        if value == best:
            return state, history, True
        history.append(value)
    return state, history, False
