"""Columns that look alike move one at a time.

Given the others, each of several look-alikes seems superfluous, so that a simultaneous step would
drop them all; and when none of them is active each asks to return, though one would do.
"""

import numpy as np

from soubayes.sparse.designs.base import LeastSquares
from soubayes.sparse.solvers.least_squares_state import OUT, PathState
from soubayes.sparse.solvers.objective import LeastSquaresModel

Array = np.ndarray

ALIKE = 0.8  # correlation, its sign apart, from which one of two columns can stand in for the other
SAME = 0.99  # from which J hardly depends on how two columns share a coefficient
RETURNS = 1.05  # z^2/gamma_b at which a dropped column returns
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

    How almost equal columns share a coefficient hardly changes J, so that steps come to rest with
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
    spread = 1.0 / state.w[active]
    first = leaders(spread, r, SAME)
    owner = np.where(first, np.arange(len(r)), np.argmax(np.where(first, r, 0.0), axis=1))
    w, out = state.w.copy(), active[~first]
    w[active[first]] = 1.0 / np.bincount(owner, spread, len(r))[first]
    stay = np.setdiff1d(state.active, out)
    s, q = design.outside(stay, w[stay], out)
    signal = q * q / (state.noise * model.confidence[out] * s)
    gone = signal < RETURNS
    if not gone.any():
        return None
    w[out] = np.where(gone, OUT * s, state.w[out])
    return state._replace(w=w, active=np.sort(np.append(stay, out[~gone])))


def swap(
    design: LeastSquares, model: LeastSquaresModel, state: PathState, signal: Array
) -> PathState | None:
    """The state with stronger columns in the places of active ones that they look like.

    ``signal`` is z^2/gamma_b of the dropped columns. It exceeds 1 where a column explains more than
    the active one that it resembles, but seldom by enough to return beside it.
    """
    near = signal > 1.0 + 1e-9
    if model.copies is not None:
        near &= ~model.copies[state.dropped]
    near = state.dropped[near]
    active, w, changed = state.active, state.w.copy(), False
    for a, others in _partners(design, active[model.sparse[active]], near):
        stay, some = active[active != a], np.append(a, others)
        s, q = design.outside(stay, w[stay], some)
        strength = q * q / (state.noise * model.confidence[some] * s)
        best = int(np.argmax(strength))
        if strength[best] > max(1.0, strength[0] * (1.0 + 1e-9)):
            active = np.sort(np.append(stay, some[best]))
            w[a], w[some[best]] = OUT * s[0], s[best] / (strength[best] - 1.0)
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
