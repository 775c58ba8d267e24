"""The fast solver of the sparse logistic model: J and fixed points of Algorithm 1, in seconds.

Each outer step makes one pass over the rows for H (the curvature of the Jaakkola-Jordan bound at
fixed xi, which the covariance needs) and W (the curvature with xi following the mean, which the
mean needs), then minimises J's quadratic model over theta = log d, the log prior precisions, with
mean, covariance and scales profiled out (`improve`). If the true J rises, W is blended with H: at
blend 1 the model majorises J and cannot rise. Columns whose precision runs away are dropped, and
at convergence re-admitted where q_j^2 > gamma_b s_j (`dropped.py`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.columns import (
    Columns,
    Fit,
    State,
    apart,
    dropped_terms,
    make_state,
    prior_value,
    scales_value,
    split_scales,
)
from soubayes.sparse.dropped import FAR, best_dropped_precision, check_dropped, runs_away
from soubayes.sparse.jaakkola import Design, Pass, sweep
from soubayes.sparse.scales import Scale, kl_slope
from soubayes.sparse.triangles import cholesky, invert, invert_triangle

Array = np.ndarray


def solve(
    design: Design,
    y: Array,
    weight: Array,
    model: Columns,
    start: State,
    *,
    max_iter: int = 200,
    tol: float = 1e-7,
    readmit: bool = True,
    report: Callable[[int, float, int], None] = lambda *_: None,
) -> Fit:
    """Minimise J from ``start`` until a step lowers it by less than ``tol`` times its size.

    J never rises. A dropped column's own share of J, of order gamma_tau, enters the history at
    its latest value. Ctrl-C returns the last state, not converged. Without ``readmit`` dropped
    columns stay where they are.
    """
    state = start
    data, value = evaluate(design, y, weight, model, state)
    history, converged, interrupted = [value], False, False
    coarse = max(tol, 1e-5) if readmit else tol
    try:
        for iteration in range(max_iter):
            step = _descend(design, y, weight, model, state, data, value, tol)
            if step is not None:
                state, data, value = step
                history.append(value)
            report(iteration, value, len(state.active))
            if step is not None and history[-2] - value > coarse * abs(value):
                continue
            settled = step is None or history[-2] - value <= tol * abs(value)
            # dropped columns are looked at early, so that they return before the last digits
            check = check_dropped(design, y, weight, model, state, data, value, readmit)
            history = [past + check.shift for past in history]
            state, data, value = check.state, check.data, check.value
            if check.returned:
                history.append(value)
            elif settled:
                converged = True
                break
            coarse = coarse if check.waiting else tol
    except KeyboardInterrupt:
        interrupted = True
    return Fit(state, data, history, converged, interrupted)


def evaluate(
    design: Design, y: Array, weight: Array, model: Columns, state: State
) -> tuple[Pass, float]:
    """A pass over the rows at this state, and J."""
    data = sweep(design.take(state.active), y, weight, state.mean, state.root)
    return data, data.loss + prior_value(model, state)


def _descend(
    design: Design,
    y: Array,
    weight: Array,
    model: Columns,
    state: State,
    data: Pass,
    value: float,
    tol: float,
) -> tuple[State, Pass, float] | None:
    """One outer step that lowers J, or None when rounding allows none."""
    for blend in (0.0, 0.5, 1.0):
        trial = improve(model, state, data, blend, enough=0.1 * tol * abs(value))
        new_data, new_value = evaluate(design, y, weight, model, trial)
        if new_value < value:
            return trial, new_data, new_value
    return None


class _Quadratic(NamedTuple):
    """J's model on some columns: H (the intercept apart), W and the mean's linear term."""

    columns: Array
    H: Array
    W: Array
    linear: Array

    def keep(self, stay: Array) -> "_Quadratic":
        square = np.ix_(stay, stay)
        return _Quadratic(self.columns[stay], self.H[square], self.W[square], self.linear[stay])


class _Point(NamedTuple):
    """The model at one theta = log d, with mean, covariance and scales profiled out."""

    theta: Array  # (p,) of all columns, dropped ones too
    value: float
    C: Array  # (H + gamma D)^-1
    B: Array  # (W + gamma D)^-1
    mean: Array
    variance: Array  # diagonal of S
    w: Array  # gamma d
    local: Scale
    global_: Scale


def improve(model: Columns, state: State, data: Pass, blend: float, enough: float) -> State:
    """Damped Newton steps in theta = log d on

        gamma_b/2 log|H + gamma_b D| - 1/2 g'(W + gamma_b D)^-1 g + (J of the scales at d),

    dropping columns on the way, until a step gains less than ``enough``.
    """
    W = (1.0 - blend) * data.curvature + blend * data.bound
    quadratic = _Quadratic(
        state.active,
        apart(model, data.bound),
        W,
        data.score + W @ state.mean,
    )
    rest, held = state.rest.copy(), (state.local, state.global_)
    point = _profile(model, quadratic, np.log(state.precision), held)
    for _ in range(10):
        move, gain = _newton_move(model, quadratic, point)
        if not gain > enough:
            break
        point = _line_search(model, quadratic, point, move)
        columns = quadratic.columns
        gamma = model.confidence[columns]
        s, q = _leave_one_out(point, gamma)
        gone = runs_away(model, columns, s, q) & (point.w > FAR * s)
        if gone.any():
            j, s, q = columns[gone], s[gone], q[gone]
            d = best_dropped_precision(model, point.local, point.global_, j, s, q)
            theta = point.theta.copy()
            theta[j], rest[j] = np.log(d), dropped_terms(model, j, s, q, d)
            quadratic = quadratic.keep(~gone)
            point = _profile(model, quadratic, theta, held)
    precision = np.where(model.sparse, np.exp(point.theta), model.precision)
    near = point.local, point.global_
    return make_state(model, quadratic.columns, point.mean, quadratic.H, precision, rest, near)


def _profile(
    model: Columns, quadratic: _Quadratic, theta: Array, held: tuple[Scale, Scale]
) -> _Point:
    gamma = model.confidence[quadratic.columns]
    w = gamma * np.exp(theta[quadratic.columns])
    factor = cholesky(quadratic.H, w)
    log_det = gamma @ np.log(np.diag(factor))
    C, B = invert(factor), invert(cholesky(quadratic.W, w))
    variance = gamma * np.diag(C)
    if len(set(gamma[: len(gamma) - model.intercept])) > 1:  # sources of unequal confidence
        root = invert_triangle(factor).T * np.sqrt(gamma)
        variance = np.einsum("ij,ij->i", root, root)
    mean = B @ quadratic.linear
    local, global_ = split_scales(model, np.exp(theta), held)
    value = log_det - quadratic.linear @ mean / 2.0
    value += scales_value(model, local, global_)
    return _Point(theta, float(value), C, B, mean, variance, w, local, global_)


def _newton_move(model: Columns, quadratic: _Quadratic, point: _Point) -> tuple[Array, float]:
    """The step in theta of the sparse columns, at most 3 each, and the gain it promises."""
    sparse = model.sparse[quadratic.columns]
    columns = quadratic.columns[sparse]
    if not len(columns):
        return np.zeros(0), 0.0
    C, B = point.C[np.ix_(sparse, sparse)], point.B[np.ix_(sparse, sparse)]
    gamma, w, m = model.confidence[columns], point.w[sparse], point.mean[sparse]
    # J of the scales at d with nu profiled out; the shapes, which vary little, are held
    one, two = kl_slope(model.local_prior, point.local)
    all_two = model.local_confidence[model.sparse] * two
    here = np.isin(np.flatnonzero(model.sparse), columns)
    one, two = (model.local_confidence[model.sparse] * one)[here], all_two[here]
    nu_two = model.global_confidence * kl_slope(model.global_prior, point.global_)[1]
    half = w * (point.variance[sparse] + m * m) / 2.0
    slope = half - gamma / 2.0 - one
    hessian = -(
        np.outer(np.sqrt(gamma) * w, np.sqrt(gamma) * w) / 2.0 * C * C + np.outer(w * m, w * m) * B
    )
    hessian -= np.outer(two, two) / (all_two.sum() + nu_two)
    hessian[np.diag_indices_from(hessian)] += half + two
    damping = 0.0
    while True:
        factor, info = lapack.dpotrf(hessian + np.diag(damping * (half + two)), lower=1)
        if info == 0:
            break
        damping = max(2.0 * damping, 0.05)
    move = -lapack.dpotrs(factor, slope, lower=1)[0]
    gain = float(-slope @ move) / 2.0
    # Newton follows the exponential tail of a column on its way out by 1 a step
    s, q = (x[sparse] for x in _leave_one_out(point, model.confidence[quadratic.columns]))
    leaving = runs_away(model, columns, s, q) & (w > 3.0 * s)
    return np.where(leaving, 3.0, np.clip(move, -3.0, 3.0)), gain


def _line_search(model: Columns, quadratic: _Quadratic, point: _Point, move: Array) -> _Point:
    columns = quadratic.columns[model.sparse[quadratic.columns]]
    for halvings in range(12):
        theta = point.theta.copy()
        theta[columns] += move / 2.0**halvings
        trial = _profile(model, quadratic, theta, (point.local, point.global_))
        if trial.value <= point.value:
            return trial
    return point


def _leave_one_out(point: _Point, gamma: Array) -> tuple[Array, Array]:
    """s_j and q_j: information and score of each column with the other columns adjusted."""
    return np.maximum(gamma / point.variance - point.w, 0.0), point.mean / np.diag(point.B)
