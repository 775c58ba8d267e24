"""Converge the precisions of the columns at fixed confidences, by simultaneous exact steps.

Every coordinate has its minimum of J in closed form (docs/development/solver.md); all go there at
once, with steps that are halved where they overshoot. Columns whose precision runs off leave, and
come back when the others make their z^2 exceed gamma_b. Of columns that look alike one moves at a
time (`look_alikes.py`).
"""

import math

import numpy as np

from soubayes.sparse.designs.base import LeastSquares, Ridge
from soubayes.sparse.solvers import ordered
from soubayes.sparse.solvers.least_squares_state import DROPPED, PathState, goal_of
from soubayes.sparse.solvers.look_alikes import (
    ALIKE,
    RETURNS,
    leaders,
    merge,
    strongest_leavers,
    swap,
)
from soubayes.sparse.solvers.objective import LeastSquaresModel

Array = np.ndarray

ROUNDS = 3  # of taking dropped columns back at one point


def descend(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    tol: float,
    budget: int,
    hold_noise: bool = False,
) -> tuple[PathState, int, bool, tuple[Array, Array, Array] | None]:
    """Converge w (and the noise) at fixed confidences; columns may leave and come back.

    Also returns what `dropped_columns` would, if it was computed for the final state.
    """
    alike = model.groups.alone and design.closest > ALIKE
    spent = 0
    for _ in range(ROUNDS):
        state, n_iter, done = _iterate(design, model, state, tol, budget - spent, hold_noise)
        spent += n_iter
        if alike and (merged := merge(design, model, state)) is not None:
            state, n_iter, done = _iterate(design, model, merged, tol, budget - spent, hold_noise)
            spent += n_iter
        dropped = state.dropped
        if state.refit or not len(dropped) or spent >= budget:
            break
        s, q = design.outside(state.active, state.w[state.active], dropped)
        own, signal = s, q * q / (state.noise * model.confidence[dropped])
        if not model.groups.alone:
            there = model.take(dropped)
            own, signal = there.group_mean(s), there.group_mean(signal)
        signal = signal / own
        back = signal > max(RETURNS, 0.5 * float(signal.max()))
        if model.copies is not None:
            back &= ~model.copies[dropped]
        chosen = False  # one of several look-alikes
        if alike and back.sum() > 1:
            first = leaders(signal[back], design.correlations(dropped[back]))
            back[back], chosen = first, not first.all()
        if back.any():
            w = state.w.copy()
            w[dropped[back]] = own[back] / (signal[back] - 1.0)
            active = np.sort(np.concatenate([state.active, dropped[back]]))
            state = state._replace(w=w, active=active)
        elif alike and (other := swap(design, model, state, signal)) is not None:
            state, chosen = other, True
        else:
            return state, spent, done, (dropped, s, q)
    else:
        if chosen:  # what came last has not moved yet
            state, n_iter, done = _iterate(design, model, state, tol, budget - spent, hold_noise)
            spent += n_iter
    return state, spent, done, None


def _iterate(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    tol: float,
    budget: int,
    hold_noise: bool,
) -> tuple[PathState, int, bool]:
    """Simultaneous steps to each coordinate's exact minimum, halved where they overshoot."""
    w, active, noise = state.w.copy(), state.active, state.noise
    part, here = design.take(active), model.take(active)
    gain, last, reach = np.ones(len(active)), np.zeros(len(active)), 1.5
    mixed = ordered.mixed(model, model.sparse)
    alike = model.groups.alone and design.closest > ALIKE
    old, shape, top = w[active], state.shape[active], state.nu.mean_inverse
    for n_iter in range(1, max(budget, 1) + 1):
        if not len(active):
            noise = noise if hold_noise else model.noise_estimate(design.n, design.yy, 0.0)
            return state._replace(w=w, active=active, noise=noise), n_iter, True
        ridge = part.ridge(old)
        moved = noise
        if not hold_noise:
            k = len(old) - float(old @ ridge.variance)
            noise = model.noise_estimate(design.n, ridge.rss, k)
        s, q = ridge.s, ridge.q
        if mixed:
            s, q = left_out(part, here, old, ridge, design.n)
        goal = goal_of(here, s, q, noise, top, shape)
        step = np.log(goal / old)
        turned = step * last < 0
        gain = np.where(turned, 0.5 * np.minimum(gain, 1.0), np.minimum(1.3 * gain, 4.0))
        last = step
        new = old * np.exp(np.minimum(np.maximum(gain * step, -reach), reach))
        reach = 3.0
        change = np.abs(new / (s + new) - old / (s + old)).max()
        w[active] = old = new
        far = here.group_most(s)
        settled = change < tol and abs(math.log(noise / moved)) < tol
        # steps that keep turning, as those of look-alikes do, come to rest halfway
        leave = (goal > DROPPED * far) & ((new > 50.0 * far) | alike & settled & (new < 9.0 * s))
        leave &= here.sparse
        if leave.any():
            if alike and leave.sum() > 1:
                best, at = strongest_leavers(
                    part, here, old, noise, leave & (s < 0.25 * part.norms)
                )
                leave[best], last[best], gain[best] = False, 0.0, 1.0
                w[active[best]] = old[best] = at
            w[active[leave]] = goal[leave]
            keep = np.flatnonzero(~leave)
            active, part, here = active[keep], part.take(keep), here.take(keep)
            gain, last, old, shape = gain[keep], last[keep], old[keep], shape[keep]
        elif settled:
            return state._replace(w=w, active=active, noise=noise), n_iter, True
    return state._replace(w=w, active=active, noise=noise), n_iter, False


def left_out(
    design: LeastSquares, model: LeastSquaresModel, w: Array, ridge: Ridge, n: float
) -> tuple[Array, Array]:
    """s and q under the ordered sources."""
    parts = ordered.nested(model, ordered.restricted(design, w, ridge))
    variance = ordered.variances(model, parts) / model.confidence
    return np.maximum(1.0 / variance - w, 1e-12 * n), ridge.mean / variance
