"""Dropped columns of a row-wise model: what they know now, and which must return."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.designs.standardise import BLOCK_ROWS
from soubayes.sparse.likelihoods.base import weighted_terms
from soubayes.sparse.rows.passes import Pass, RowProblem
from soubayes.sparse.rows.state import (
    LEAST_INFORMATION,
    RowFit,
    RowModel,
    RowState,
    dropped_terms,
    make_state,
    prior_value,
    tau_precision,
)
from soubayes.sparse.scales.base import Scale

Array = np.ndarray

_BYTES = 2**27  # of what is made of a block of rows
RETURNS_PER_ROW = 1.0  # columns that return at a time, at most, for every row
FAR = 1e3  # a column is dropped when its prior precision w exceeds this many times s


class Check(NamedTuple):
    """The state after a look at the dropped columns."""

    state: RowState
    data: Pass
    value: float
    shift: float  # by how much J changed only because dropped columns were brought up to date
    returned: int
    waiting: bool = False  # more columns than may return at once ask to


def check_dropped(
    problem: RowProblem, model: RowModel, state: RowState, data: Pass, value: float, readmit: bool
) -> Check:
    """Bring s_j, q_j and d_j of dropped columns up to date; re-admit where z_j^2 > gamma_b.

    At d_j = infinity J changes by (gamma_b s_j - q_j^2)/(2 w_j) to first order, with q_j the
    exact score: the test is exact. Returning columns start at their own stationary precision,
    and farther out if together they would raise J.
    """
    dropped = np.setdiff1d(np.arange(problem.n_columns), state.active)
    if not len(dropped):
        return Check(state, data, value, 0.0, 0)
    s, q = leave_one_out(problem, model, state, dropped)
    best, back = state.precision[dropped], np.zeros(len(dropped), bool)
    waiting = False
    if readmit:
        best = own_precision(model, state.local, state.top, dropped, s, q)
        back = ~runs_away(model, dropped, s, q, far=0.5 * FAR)
        if model.copies is not None:  # they too are as far out as without a score
            away = own_precision(model, state.local, state.top, dropped, s, 0.0 * q)
            best = np.where(model.copies[dropped], away, best)
            back &= ~model.copies[dropped]
        if back.sum() > RETURNS_PER_ROW * problem.design.n_rows:
            chosen = _most_gain(problem, model, dropped, s, q, back)
            # those that wait are as far out as without a score
            away = own_precision(model, state.local, state.top, dropped, s, 0.0 * q)
            best = np.where(back & ~chosen, away, best)
            back, waiting = chosen, True
    state, shift = _settle(model, state, dropped[~back], s[~back], q[~back], best[~back])
    value += shift
    j = dropped[back]
    for farther in (1.0, 30.0, 1e3) if len(j) else ():
        precision, rest = state.precision.copy(), state.rest.copy()
        precision[j], rest[j] = best[back] * farther, 0.0
        trial, new_data = _admit(problem, model, state, j, precision, rest)
        new_value = new_data.loss + prior_value(model, trial)
        if new_value < value:
            return Check(trial, new_data, new_value, shift, len(j), waiting)
    if len(j):  # none may return: they too are as far out as without a score
        away = own_precision(model, state.local, state.top, j, s[back], 0.0 * q[back])
        state, more = _settle(model, state, j, s[back], q[back], away)
        shift, value = shift + more, value + more
    return Check(state, data, value, shift, 0)


def _settle(
    model: RowModel, state: RowState, columns: Array, s: Array, q: Array, best: Array
) -> tuple[RowState, float]:
    """The state with dropped columns at these prior precisions, and by how much J changed."""
    precision, rest = state.precision.copy(), state.rest.copy()
    precision[columns] = best
    rest[columns] = dropped_terms(model, columns, s, q, best)
    # J changes by the dropped columns' own share alone: the active ones stay
    before = prior_value(model, state)
    scales = model.scales.refresh(tau_precision(model, precision), (state.local, state.top))
    state = state._replace(precision=precision, local=scales[0], top=scales[1], rest=rest)
    return state, prior_value(model, state) - before


def _most_gain(
    problem: RowProblem,
    model: RowModel,
    dropped: Array,
    s: Array,
    q: Array,
    back: Array,
) -> Array:
    """Of more returning columns than rows, as many as rows: those that lower J most alone.

    That is by (z^2 - gamma - gamma log(z^2/gamma))/2.
    """
    here = model.take(dropped)
    gamma = here.confidence
    square = here.group_mean(q**2)
    ratio = square / np.maximum(gamma * here.group_mean(s), 1e-100 * square + 1e-300)
    ratio = np.where(back, ratio, 1.0)
    # J of one column at its best w minus at w = infinity, with ratio = z^2/gamma
    # 0 at the threshold z^2 = gamma and convex beyond
    gain = np.where(ratio > 1.0 + 1e-4, gamma * (ratio - 1.0 - np.log(ratio)) / 2.0, 0.0)
    # only sparse columns are ever dropped, so the groups are those of all dropped ones
    return here.groups.largest(gain, int(RETURNS_PER_ROW * problem.design.n_rows))


def runs_away(model: RowModel, columns: Array, s: Array, q: Array, far: float = FAR) -> Array:
    """Where the stationary w, (gamma_b s - q^2)/(2 gamma_t) for a small gamma_t, is beyond far * s.

    That is z^2 = q^2/s < gamma_b (1 - 2 gamma_t/gamma_b far): the confidence in the coefficients
    is a threshold on z^2, as in linear regression. Columns that share a tau go together, by the
    sums of their s and q^2.
    """
    gamma, gamma_t = model.confidence[columns], model.local_confidence[columns]
    square, least = q**2, s
    if not model.groups.alone:
        here = model.take(columns)
        s, square, least = here.group_total(s), here.group_total(square), here.group_most(s)
    return model.selects[columns] & (gamma * s - square >= 2.0 * gamma_t * far * least)


def own_precision(
    model: RowModel, local: Scale, top: Scale, columns: Array, s: Array, q: Array
) -> Array:
    """The stationary d of sparse columns (whole groups) with all others held."""
    gamma, shape = model.confidence[columns], model.each_tau(local.shape)[columns]
    here = model.take(columns)
    s = np.maximum(s, LEAST_INFORMATION)
    return here.stationary(s, q**2 / gamma, gamma / top.ratio, shape) / gamma


def leave_one_out(
    problem: RowProblem, model: RowModel, state: RowState, columns: Array
) -> tuple[Array, Array]:
    """s_j and q_j of dropped columns: information and score with the active columns adjusted.

    With B the information of the rows, s_j = x_j' B x_j - x_j' B X (H + gamma_b D)^-1 X' B x_j over
    the columns of beta, and q_j = x_j' score.
    """
    X = problem.by_products() or problem.by_columns()
    if X is not None:
        s, q = _left_out_by_columns(X, problem, model, state)
        return s[columns], q[columns]
    # what is made of a block of rows stays below _BYTES, however many columns are dropped
    step = max(1, _BYTES // (8 * min(BLOCK_ROWS, max(problem.design.n_rows, 1))))
    parts = [
        _some_left_out(problem, model, state, columns[i : i + step])
        for i in range(0, len(columns), step)
    ]
    s, q = zip(*parts, strict=True)
    return np.concatenate(s), np.concatenate(q)


def _left_out_by_columns(
    X: StandardColumns, problem: RowProblem, model: RowModel, state: RowState
) -> tuple[Array, Array]:
    """The same of all columns of wide data, sparse ones from their nonzeros alone."""
    Z = X.take(state.active).dense()
    spread = Z @ state.mean, np.square(Z @ state.root).sum(axis=1)
    terms = weighted_terms(problem.likelihood, *spread, problem.y, problem.weight)
    information = terms.information
    # the factor of alpha is its own (mean field): it takes nothing from the other columns
    cross = (Z * information[:, None]).T
    if model.intercept:
        cross[-1] = 0.0
    T = (state.root.T / np.sqrt(model.confidence[state.active])[:, None]) @ cross
    # x_j'BX (X'BX + gamma D)^-1 X'B x_j, by the root of the covariance
    explained, _ = X.projected(T, np.zeros(len(T)))
    return np.maximum(X.norms(information) - explained, 0.0), X.left(terms.score)


def _some_left_out(
    problem: RowProblem, model: RowModel, state: RowState, columns: Array
) -> tuple[Array, Array]:
    active = state.active
    cross, information, q = problem.one_out(active, columns, state.mean, state.root)
    if model.intercept:
        cross[-1] = 0.0
    # the same, a block of rows at a time
    half = (state.root.T / np.sqrt(model.confidence[active])[:, None]) @ cross
    return np.maximum(information - np.einsum("ij,ij->j", half, half), 0.0), q


def _admit(
    problem: RowProblem,
    model: RowModel,
    state: RowState,
    columns: Array,
    precision: Array,
    rest: Array,
) -> tuple[RowState, Pass]:
    """The state with more active columns, after a Newton step of the mean."""
    active = np.sort(np.concatenate([state.active, columns]))
    inside = np.searchsorted(active, state.active)
    mean, root = np.zeros(len(active)), np.zeros((len(active), len(active)))
    mean[inside], root[np.ix_(inside, inside)] = state.mean, state.root
    subset = problem.take(active)
    data = subset.sweep(mean, root)
    pull = model.confidence[active] * precision[active]
    # Newton in the mean at the new precisions; the covariance follows from H
    # (W + gamma D)^-1 (score - gamma D m)
    step = lapack.dposv(data.curvature + np.diag(pull), data.score - pull * mean)[1]
    near = state.local, state.top
    trial = make_state(model, active, mean + step, data.information, precision, rest, near)
    return trial, subset.sweep(trial.mean, trial.root)


def without(model: RowModel, fit: RowFit, gone: Array) -> RowFit:
    """A start from a fit without some of its columns, to second order in the loss."""
    state, data = fit.state, fit.data
    S = state.root @ state.root.T
    # the mean given that the columns are 0
    mean = state.mean - S[:, gone] @ np.linalg.solve(S[np.ix_(gone, gone)], state.mean[gone])
    # the score follows the mean to first order
    score = data.score - data.curvature @ (mean - state.mean)
    stay, j = np.delete(np.arange(len(mean)), gone), state.active[gone]
    precision, rest = state.precision.copy(), state.rest.copy()
    # 1/S_jj = s_j + d_j at confidence 1, so s_j without another pass
    s = np.maximum(1.0 / S[gone, gone] - precision[j], 0.0)
    precision[j] = own_precision(model, state.local, state.top, j, s, 0.0 * s)
    rest[j] = dropped_terms(model, j, s, 0.0 * s, precision[j])
    square = np.ix_(stay, stay)
    known = Pass(data.loss, score[stay], data.information[square], data.curvature[square])
    near = state.local, state.top
    new = make_state(
        model, state.active[stay], mean[stay], known.information, precision, rest, near
    )
    return fit._replace(state=new, data=known)
