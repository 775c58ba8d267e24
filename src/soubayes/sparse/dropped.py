"""Dropped columns of the logistic model: what they know now, and which must return."""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.columns import (
    Columns,
    State,
    dropped_terms,
    make_state,
    prior_value,
    refresh_scales,
)
from soubayes.sparse.jaakkola import ROWS, Design, Pass, block_terms, sweep
from soubayes.sparse.scales import Scale, stationary_precision

Array = np.ndarray
_BYTES = 2**27
RETURNS = 1.0  # columns that return at a time, at most, for every row
FAR = 1e3  # a column is dropped when its prior precision w exceeds this many times s


class Check(NamedTuple):
    """The state after a look at the dropped columns."""

    state: State
    data: Pass
    value: float
    shift: float  # by how much J changed only because dropped columns were brought up to date
    returned: int
    waiting: bool = False  # more columns than may return at once ask to


def check_dropped(
    design: Design,
    y: Array,
    weight: Array,
    model: Columns,
    state: State,
    data: Pass,
    value: float,
    readmit: bool,
) -> Check:
    """Bring s_j, q_j and d_j of dropped columns up to date; re-admit where z_j^2 > gamma_b.

    At d_j = infinity J changes by (gamma_b s_j - q_j^2)/(2 w_j) to first order, with q_j the
    exact score: the test is exact. Returning columns start at their own stationary precision,
    and farther out if together they would raise J.
    """
    dropped = np.setdiff1d(np.arange(design.n_columns), state.active)
    if not len(dropped):
        return Check(state, data, value, 0.0, 0)
    s, q = leave_one_out(design, y, weight, model, state, dropped)
    precision, rest = state.precision.copy(), state.rest.copy()
    best, back = precision[dropped], np.zeros(len(dropped), bool)
    waiting = False
    if readmit:
        best = best_dropped_precision(model, state.local, state.global_, dropped, s, q)
        back = ~runs_away(model, dropped, s, q, far=0.5 * FAR)
        if back.sum() > RETURNS * design.n_rows:
            chosen = _most_gain(design, model, state.active, dropped, s, q, back)
            wait = back & ~chosen
            far = s[wait], 0.0 * q[wait]  # as far out as without a score
            best[wait] = best_dropped_precision(
                model, state.local, state.global_, dropped[wait], *far
            )
            back, waiting = chosen, True
    out = dropped[~back]
    precision[out] = best[~back]
    rest[out] = dropped_terms(model, out, s[~back], q[~back], best[~back])
    before = prior_value(model, state)
    local, global_ = refresh_scales(model, precision, (state.local, state.global_))
    state = state._replace(precision=precision, local=local, global_=global_, rest=rest)
    shift = prior_value(model, state) - before
    value += shift
    for farther in (1.0, 30.0, 1e3):
        if not back.any():
            break
        j = dropped[back]
        precision, rest = precision.copy(), state.rest.copy()
        precision[j], rest[j] = best[back] * farther, 0.0
        trial, new_data = _admit(design, y, weight, model, state, j, precision, rest)
        new_value = new_data.loss + prior_value(model, trial)
        if new_value < value:
            return Check(trial, new_data, new_value, shift, len(j), waiting)
    return Check(state, data, value, shift, 0)


def _most_gain(
    design: Design,
    model: Columns,
    active: Array,
    dropped: Array,
    s: Array,
    q: Array,
    back: Array,
) -> Array:
    """Of more returning columns than rows, as many as rows: those that lower J most alone.

    That is by (z^2 - gamma - gamma log(z^2/gamma))/2. Splitting a coefficient between copies of
    a column changes nothing (a copy of an active column has z^2 = gamma), so they stay out, and
    of copies that are all out one returns.
    """
    gamma = model.confidence[dropped]
    ratio = np.where(back, q**2 / np.maximum(gamma * s, 1e-300), 1.0)
    gain = np.where(ratio > 1.0 + 1e-4, gamma * (ratio - 1.0 - np.log(ratio)) / 2.0, 0.0)
    if isinstance(design, Design) and design.n_columns > design.n_rows:
        first = design.wide().first_copies()
        taken = np.zeros(len(first), bool)
        taken[first[active]] = True
        gain[taken[first[dropped]] | (first[dropped] != dropped)] = 0.0
    best = np.argsort(-gain, kind="stable")[: int(RETURNS * design.n_rows)]
    chosen = np.zeros(len(dropped), bool)
    chosen[best] = gain[best] > 0.0
    return chosen


def runs_away(model: Columns, columns: Array, s: Array, q: Array, far: float = FAR) -> Array:
    """Where the stationary w, (gamma_b s - q^2)/(2 gamma_t) for a small gamma_t, is beyond far * s.

    That is z^2 = q^2/s < gamma_b (1 - 2 gamma_t/gamma_b far): the confidence in the coefficients
    is a threshold on z^2, as in linear regression.
    """
    gamma, gamma_t = model.confidence[columns], model.local_confidence[columns]
    return model.selects[columns] & (gamma * s - q**2 >= 2.0 * gamma_t * far * s)


def best_dropped_precision(
    model: Columns, local: Scale, global_: Scale, columns: Array, s: Array, q: Array
) -> Array:
    """The stationary d of columns taken one at a time, from their s_j and q_j."""
    gamma = model.confidence[columns]
    shape = np.full(len(model.sparse), np.nan)
    shape[model.sparse] = local.shape
    w = stationary_precision(
        model.local_prior,
        np.maximum(s, 1e-12),  # a column without information: its prior, and s/s stays finite
        q**2 / gamma,
        model.local_confidence[columns] / gamma,
        gamma / global_.ratio,
        shape[columns],
    )
    return w / gamma


def leave_one_out(
    design: Design, y: Array, weight: Array, model: Columns, state: State, columns: Array
) -> tuple[Array, Array]:
    """s_j and q_j of dropped columns: information and score with the active columns adjusted.

    With L = 2 Lambda, s_j = x_j' L x_j - x_j' L X (H + gamma_b D)^-1 X' L x_j over the columns of
    beta, and q_j = x_j'(y - 1/2 - L eta).
    """
    if isinstance(design, Design) and design.n_columns > design.n_rows:
        s, q = _left_out_by_columns(design, y, weight, model, state)
        return s[columns], q[columns]
    # what is made of a block of rows stays below _BYTES, however many columns are dropped
    step = max(1, _BYTES // (8 * min(ROWS, max(design.n_rows, 1))))
    parts = [
        _some_left_out(design, y, weight, model, state, columns[i : i + step])
        for i in range(0, len(columns), step)
    ]
    s, q = zip(*parts, strict=True)
    return np.concatenate(s), np.concatenate(q)


def _left_out_by_columns(
    design: Design, y: Array, weight: Array, model: Columns, state: State
) -> tuple[Array, Array]:
    """The same of all columns of wide data, sparse ones from their nonzeros alone."""
    X = design.wide()
    Z = X.take(state.active).dense()
    terms = block_terms(Z, y, state.mean, np.asfortranarray(state.root))
    bound = weight * terms.bound
    cross = (Z * bound[:, None]).T
    if model.intercept:
        cross[-1] = 0.0
    T = (state.root.T / np.sqrt(model.confidence[state.active])[:, None]) @ cross
    explained, _ = X.projected(T, np.zeros(len(T)))
    return np.maximum(X.norms(bound) - explained, 0.0), X.left(weight * terms.score)


def _some_left_out(
    design: Design, y: Array, weight: Array, model: Columns, state: State, columns: Array
) -> tuple[Array, Array]:
    active = state.active
    both = np.union1d(active, columns)
    work = partial(
        _one_out_block,
        inside=np.searchsorted(both, active),
        outside=np.searchsorted(both, columns),
        mean=state.mean,
        root=np.asfortranarray(state.root, dtype=design.dtype),
    )
    cross, own, q = design.take(both).total(work, y, weight)
    if model.intercept:
        cross[-1] = 0.0
    half = (state.root.T / np.sqrt(model.confidence[active])[:, None]) @ cross
    return np.maximum(own - np.einsum("ij,ij->j", half, half), 0.0), q


def _one_out_block(
    Z: Array, y: Array, weight: Array, inside: Array, outside: Array, mean: Array, root: Array
) -> tuple[Array, Array, Array]:
    active, others = Z[:, inside], Z[:, outside]
    terms = block_terms(active, y, mean, root)
    bound = (weight * terms.bound).astype(Z.dtype)
    cross = (active * bound[:, None]).T @ others
    own = np.square(others).T @ bound
    score = others.T @ (weight * terms.score)
    return cross.astype(float, copy=False), own.astype(float, copy=False), score


def _admit(
    design: Design,
    y: Array,
    weight: Array,
    model: Columns,
    state: State,
    columns: Array,
    precision: Array,
    rest: Array,
) -> tuple[State, Pass]:
    """The state with more active columns, after a Newton step of the mean."""
    active = np.sort(np.concatenate([state.active, columns]))
    inside = np.searchsorted(active, state.active)
    mean, root = np.zeros(len(active)), np.zeros((len(active), len(active)))
    mean[inside], root[np.ix_(inside, inside)] = state.mean, state.root
    view = design.take(active)
    data = sweep(view, y, weight, mean, root)
    pull = model.confidence[active] * precision[active]
    step = lapack.dposv(data.curvature + np.diag(pull), data.score - pull * mean)[1]
    trial = make_state(
        model,
        active,
        mean + step,
        data.bound,
        precision,
        rest,
        (state.local, state.global_),
    )
    return trial, sweep(view, y, weight, trial.mean, trial.root)
