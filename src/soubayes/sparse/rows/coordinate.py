"""Algorithm 1 for row-wise models: the paper's coordinate updates, corrected.

Each sweep takes, in the paper's order (supplement C.4.3), xi, m_alpha and s_alpha^2, m and S,
then b and a of q(tau^2) and of q(nu^2). Under a likelihood that majorises, such as the paper's
bound, each step minimises J with the rest held, so J never rises. It is slow: a_tau grows by about
1/2 a sweep towards gamma_b/(2 gamma_t), so the paper's "largest change below eps" does not trigger;
it stops on J.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.rows.passes import RowProblem
from soubayes.sparse.rows.state import (
    RowFit,
    RowModel,
    RowState,
    covariance_root,
    make_state,
    prior_value,
)
from soubayes.sparse.scales.base import Scale

Array = np.ndarray


def solve_sweeps(
    problem: RowProblem,
    model: RowModel,
    start: RowState,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[int, float, int], None] = lambda *_: None,
) -> RowFit:
    """Sweeps from ``start`` until one lowers J by less than ``tol`` times its size."""
    state, converged = start, False
    data = problem.sweep(state.mean, state.root, curvature=False)
    history = [data.loss + prior_value(model, state)]
    for iteration in range(max_iter):
        state = _update(model, state, data.information, data.score)
        data = problem.sweep(state.mean, state.root, curvature=False)
        history.append(data.loss + prior_value(model, state))
        report(iteration, history[-1], len(state.active))
        if history[-2] - history[-1] <= tol * abs(history[-1]):
            converged = True
            break
    return RowFit(state, data, history, converged)


def _update(model: RowModel, state: RowState, information: Array, score: Array) -> RowState:
    """All factors but xi, which the pass over the rows has brought up to date."""
    d, mean = state.precision, state.mean.copy()
    pull = model.confidence * d
    linear = score + information @ mean
    last = model.coefficients
    # m_alpha, then m, each with the other held: the mean-field updates of supplement C.4.3
    for factor in (slice(last, None), slice(0, last)):  # alpha, then beta
        A = information[factor, factor] + np.diag(pull[factor])
        rest = information[factor] @ mean - information[factor, factor] @ mean[factor]
        if len(A):
            mean[factor] = lapack.dposv(A, linear[factor] - rest)[1]
    root = covariance_root(model, np.arange(len(d)), information, d)
    moment = (np.einsum("ij,ij->i", root, root) + mean**2)[model.sparse]
    energy = model.groups.total(model.confidence[model.sparse] * moment)
    local, top = model.scales.coordinate_step(state.local, state.top, energy)
    if len(energy):
        d = model.precisions(model.each_tau(1.0 / (local.ratio * top.ratio)))
    return RowState(state.active, mean, root, d, local, top, state.rest)


def prior_start(model: RowModel, information: Array, precision: Array) -> RowState:
    """Coefficients 0, E[1/tau^2] E[1/nu^2] = ``precision``, a = 2, covariance from H."""
    everything, zeros = np.arange(len(precision)), np.zeros(len(precision))
    state = make_state(model, everything, zeros, information, precision, zeros)
    local, top = (Scale(np.full_like(q.shape, 2.0), q.ratio) for q in (state.local, state.top))
    return state._replace(local=local, top=top)
