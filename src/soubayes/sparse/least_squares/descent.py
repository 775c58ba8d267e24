"""Converge the precisions of the columns at fixed confidences, by simultaneous exact steps.

Every coordinate has its minimum of J in closed form (docs/development/solver.md); all go there at
once, with steps that are halved where they overshoot. Columns whose precision runs off leave, and
come back when the others make their z^2 exceed gamma_b. Of columns that look alike one moves at a
time (`leaders`, `merge`, `swap`).
"""

import math

import numpy as np

from soubayes.sparse.constants import ALIKE, RETURNS, SAME
from soubayes.sparse.least_squares.designs import LeastSquares, Ridge
from soubayes.sparse.least_squares.state import (
    DROPPED,
    OUT,
    LeastSquaresModel,
    PathState,
    goal_of,
    restricted,
)
from soubayes.sparse.scales.base import LAST_STEP

Array = np.ndarray

RETURN_ROUNDS = 3  # of taking dropped columns back at one point


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
    for _ in range(RETURN_ROUNDS):
        state, n_iter, done = _iterate(design, model, state, tol, budget - spent, hold_noise)
        spent += n_iter
        if alike and (merged := merge(design, model, state)) is not None:
            state, n_iter, done = _iterate(design, model, merged, tol, budget - spent, hold_noise)
            spent += n_iter
        dropped = state.dropped
        if state.refit or not len(dropped) or spent >= budget:
            break
        # s_j and q_j of dropped columns, the active ones adjusted: z^2 = q^2/(sigma^2 s)
        s, q = design.outside(state.active, state.w[state.active], dropped)
        information, signal = s, q * q / (state.noise * model.confidence[dropped])
        if not model.groups.alone:
            there = model.take(dropped)
            information, signal = there.group_mean(s), there.group_mean(signal)
        signal = signal / information
        # at most those half as strong as the strongest: when it is in, others may not ask any more
        back = signal > max(RETURNS, 0.5 * float(signal.max()))
        if model.copies is not None:
            back &= ~model.copies[dropped]
        chosen = False  # one of several look-alikes
        if alike and back.sum() > 1:
            first = leaders(signal[back], design.correlations(dropped[back]))
            back[back], chosen = first, not first.all()
        if back.any():
            w = state.w.copy()
            # the stationary w of a column alone, s/(z^2/gamma - 1)
            w[dropped[back]] = information[back] / (signal[back] - 1.0)
            active = np.sort(np.concatenate([state.active, dropped[back]]))
            state = state._replace(w=w, active=active)
        elif alike and (other := swap(design, model, state, signal)) is not None:
            state, chosen = other, True
        elif model.copies is not None and (
            other := swap(design, model, state, signal, copies=True)
        ):
            return other, spent, done, None
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
    subset, here = design.take(active), model.take(active)
    gain, last, reach = np.ones(len(active)), np.zeros(len(active)), 1.5
    mixed = model.mixed(model.sparse)
    alike = model.groups.alone and design.closest > ALIKE
    old, shape, top = w[active], state.shape[active], state.nu.mean_inverse
    near = max(LAST_STEP, 0.005 * tol)
    for n_iter in range(1, max(budget, 1) + 1):
        if not len(active):
            noise = noise if hold_noise else model.noise_estimate(design.n, design.yy, 0.0)
            return state._replace(w=w, active=active, noise=noise), n_iter, True
        ridge = subset.ridge(old)
        moved = noise
        if not hold_noise:
            # k = sum_j (1 - kappa_j), the degrees of freedom that the columns use
            k = len(old) - float(old @ ridge.variance)
            noise = model.noise_estimate(design.n, ridge.rss, k)
        s, q = ridge.s, ridge.q
        if mixed:
            s, q = left_out(subset, here, old, ridge, design.n)
        # each coordinate's own minimum, the others held (docs/development/solver.md)
        goal = goal_of(here, s, q, noise, top, shape, near)
        step = np.log(goal / old)
        # a step that changes its sign went too far: halve; else grow, as in Rprop
        turned = step * last < 0
        gain = np.where(turned, 0.5 * np.minimum(gain, 1.0), np.minimum(1.3 * gain, 4.0))
        last = step
        new = old * np.exp(np.minimum(np.maximum(gain * step, -reach), reach))
        reach = 3.0
        # kappa_j = w/(s + w) is what predictions depend on; w itself may run off to infinity
        change = np.abs(new / (s + new) - old / (s + old)).max()
        w[active] = old = new
        far = here.group_most(s)
        settled = change < tol and abs(math.log(noise / moved)) < tol
        # steps that keep turning, as those of look-alikes do, come to rest halfway
        leave = goal > DROPPED * far
        if leave.any():
            leave &= (new > 50.0 * far) | (alike & settled & (new < 9.0 * s))
            leave &= here.sparse
        if leave.any():
            if alike and leave.sum() > 1:
                best, at = strongest_leavers(
                    subset, here, old, noise, leave & (s < 0.25 * subset.norms)
                )
                leave[best], last[best], gain[best] = False, 0.0, 1.0
                w[active[best]] = old[best] = at
            w[active[leave]] = goal[leave]
            keep = np.flatnonzero(~leave)
            active, subset, here = active[keep], subset.take(keep), here.take(keep)
            gain, last, old, shape = gain[keep], last[keep], old[keep], shape[keep]
        elif settled:
            return state._replace(w=w, active=active, noise=noise), n_iter, True
    return state._replace(w=w, active=active, noise=noise), n_iter, False


def left_out(
    design: LeastSquares, model: LeastSquaresModel, w: Array, ridge: Ridge, n: float
) -> tuple[Array, Array]:
    """s and q under the ordered sources."""
    # the conditional variance gives s + w, and the mean q/(s + w)
    parts = model.nested(restricted(design, w, ridge))
    variance = model.variances(parts) / model.confidence
    return np.maximum(1.0 / variance - w, 1e-12 * n), ridge.mean / variance


_NEAR = 1e6  # precision, in units of what the data give, below which s/w counts in J
_NONE = np.zeros(0, int), np.zeros(0)


def leaders(strength: Array, correlations: Array, least: float = ALIKE) -> Array:
    """A mask of the strongest of every cluster of look-alikes; of equally strong ones the first.

    >>> leaders(np.array([1.0, 3.0, 2.0]), np.array([[1, -0.9, 0], [-0.9, 1, 0], [0, 0, 1]]))
    array([False,  True,  True])
    """
    alike = np.abs(correlations) > least
    chosen, taken = np.zeros(len(strength), bool), np.zeros(len(strength), bool)
    for i in np.argsort(-strength, kind="stable"):
        if not taken[i]:
            chosen[i] = True
            taken |= alike[i]
    return chosen


def strongest_leavers(
    design: LeastSquares, model: LeastSquaresModel, w: Array, noise: float, leave: Array
) -> tuple[Array, Array]:
    """Of look-alikes among the columns that ``leave``: which must stay, and at which precisions.

    Those that would be asked back if all of them left; the strongest of every cluster of two or
    more.
    """
    # look-alikes that leave together would each be asked back by the absence of the others
    risky = np.flatnonzero(leave)
    if 1 < len(risky) <= design.n:  # from more columns than rows X'X would be dear
        risky = risky[_in_company(design.correlations(risky))]
    if len(risky) < 2:
        return _NONE
    stay = np.flatnonzero(~leave)
    s, q = design.outside(stay, w[stay], risky)
    signal = q * q / (noise * model.confidence[risky] * s)
    asks = signal > RETURNS
    risky, s, signal = risky[asks], s[asks], signal[asks]
    if len(risky) < 2:
        return _NONE
    r = design.correlations(risky)
    best = leaders(signal, r) & _in_company(r)
    return risky[best], s[best] / (signal[best] - 1.0)


def merge(design: LeastSquares, model: LeastSquaresModel, state: PathState) -> PathState | None:
    """The state with one of every cluster of almost equal columns, if others can go.

    How almost equal columns share a coefficient hardly changes J, so steps come to rest with
    all of them. The strongest takes over, with the sum of their prior variances; columns that
    would be asked back stay.
    """
    active = state.active[model.sparse[state.active]]
    if not 1 < len(active) <= design.n:
        return None
    r = np.abs(design.correlations(active))
    np.fill_diagonal(r, 0.0)
    if r.max() < SAME:
        return None
    # prior variances; the sum of those of equal columns is that of one of them
    spread = 1.0 / state.w[active]
    first = leaders(spread, r, SAME)
    owner = np.where(first, np.arange(len(r)), np.argmax(np.where(first, r, 0.0), axis=1))
    w, out = state.w.copy(), active[~first]
    # prior variances of equal columns add up
    w[active[first]] = 1.0 / np.bincount(owner, spread, len(r))[first]
    stay = np.setdiff1d(state.active, out)
    s, q = design.outside(stay, w[stay], out)
    # z^2/gamma_b of the columns that left, with the strongest in their place
    signal = q * q / (state.noise * model.confidence[out] * s)
    gone = signal < RETURNS
    if not gone.any():
        return None
    w[out] = np.where(gone, OUT * s, state.w[out])
    return state._replace(w=w, active=np.sort(np.append(stay, out[~gone])))


def swap(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    signal: Array,
    copies: bool = False,
) -> PathState | None:
    """The state with stronger columns in the places of active ones that they look like.

    ``signal`` is z^2/gamma_b of the dropped columns. It exceeds 1 where a column explains more than
    the active one that it resembles, but seldom by enough to return beside it. A copy (``copies``)
    takes over the precision, since nothing else changes; equal ones are not stronger.
    """
    near = signal > 1.0 + 1e-9
    if model.copies is not None:
        near &= model.copies[state.dropped] == copies
    near = state.dropped[near]
    active, w, changed = state.active, state.w.copy(), False
    for a, others in _partners(design, active[model.sparse[active]], near):
        # the place of a, given all other active columns, is offered to each of its look-alikes
        stay, some = active[active != a], np.append(a, others)
        s, q = design.outside(stay, w[stay], some)
        strength = q * q / (state.noise * model.confidence[some] * s)
        best = int(np.argmax(strength))
        if strength[best] > max(1.0, strength[0] * (1.0 + 1e-9)):
            active = np.sort(np.append(stay, some[best]))
            precision = w[a] if copies else s[best] / (strength[best] - 1.0)
            w[a], w[some[best]] = OUT * s[0], precision
            changed = True
    return state._replace(active=active, w=w) if changed else None


def put_out(design: LeastSquares, state: PathState) -> PathState:
    """The state with dropped look-alikes of active columns at an infinite precision.

    They have z^2 near gamma_b, and so a stationary precision at which a dropped column's share of
    J, exact up to s/w, would count.
    """
    near = state.dropped[state.w[state.dropped] < _NEAR * design.norms[state.dropped]]
    w = state.w.copy()
    for _, others in _partners(design, state.active, near):
        w[others] = OUT * design.norms[others]
    return state._replace(w=w)


def _partners(design: LeastSquares, active: Array, dropped: Array) -> list[tuple[int, Array]]:
    """Active columns, and the dropped ones that look most like each."""
    if not len(active) or not len(dropped):
        return []
    both = np.sort(np.append(active, dropped))
    r = np.abs(design.correlations(both))
    r = r[np.searchsorted(both, dropped)][:, np.searchsorted(both, active)]
    most = np.where(r.max(axis=1) > ALIKE, np.argmax(r, axis=1), -1)
    return [(int(active[i]), dropped[most == i]) for i in np.unique(most[most >= 0])]


def _in_company(correlations: Array) -> Array:
    """Which columns look like another one."""
    return (np.abs(correlations) > ALIKE).sum(axis=1) > 1
