"""Algorithm 1 for the logistic model: the paper's coordinate updates, corrected.

Each sweep takes, in the paper's order (supplement C.4.3), xi, m_alpha and s_alpha^2, m and S,
then b and a of q(tau^2) and of q(nu^2); each step minimises J with the rest held, so J never
rises. It is slow: a_tau grows by about 1/2 a sweep towards gamma_b/(2 gamma_t), so the paper's
"largest change below eps" does not trigger; it stops on J.
"""

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from soubayes.sparse.columns import Columns, Fit, State, covariance_root, make_state, prior_value
from soubayes.sparse.jaakkola import Design, sweep
from soubayes.sparse.scales import Scale, algorithm_1_step

Array = np.ndarray


def coordinate(
    design: Design,
    y: Array,
    weight: Array,
    model: Columns,
    start: State,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[int, float, int], None] = lambda *_: None,
) -> Fit:
    """Sweeps from ``start`` until one lowers J by less than ``tol`` times its size."""
    state, history, converged, interrupted = start, [], False, False
    data = sweep(design, y, weight, state.mean, state.root, curvature=False)
    history.append(data.loss + prior_value(model, state))
    try:
        for iteration in range(max_iter):
            state = _update(model, state, data.bound, data.score)
            data = sweep(design, y, weight, state.mean, state.root, curvature=False)
            history.append(data.loss + prior_value(model, state))
            report(iteration, history[-1], len(state.active))
            if history[-2] - history[-1] <= tol * abs(history[-1]):
                converged = True
                break
    except KeyboardInterrupt:
        interrupted = True
    return Fit(state, data, history, converged, interrupted)


def _update(model: Columns, state: State, bound: Array, score: Array) -> State:
    """All factors but xi, which the pass over the rows has brought up to date."""
    d, mean = state.precision, state.mean.copy()
    pull = model.confidence * d
    linear = score + bound @ mean  # X'(y - 1/2)
    last = len(mean) - model.intercept
    for own in (slice(last, None), slice(0, last)):  # alpha, then beta
        A = bound[own, own] + np.diag(pull[own])
        rest = bound[own] @ mean - bound[own, own] @ mean[own]
        if len(A):
            mean[own] = lapack.dposv(A, linear[own] - rest)[1]
    root = covariance_root(model, np.arange(len(d)), bound, d)
    moment = (np.einsum("ij,ij->i", root, root) + mean**2)[model.sparse]
    gamma, gamma_t = model.confidence[model.sparse], model.local_confidence[model.sparse]
    local, global_ = state.local, state.global_
    if len(gamma):
        half = gamma / 2.0
        pull_tau = half * moment / global_.ratio
        local = algorithm_1_step(model.local_prior, local, half, pull_tau, gamma_t)
        pull_nu = np.sum(half * moment / local.ratio)
        global_ = algorithm_1_step(
            model.global_prior, global_, half.sum(), pull_nu, model.global_confidence
        )
        d = d.copy()
        d[model.sparse] = 1.0 / (local.ratio * global_.ratio)
    return State(state.active, mean, root, d, local, global_, state.rest)


def prior_start(model: Columns, bound: Array, precision: Array) -> State:
    """Coefficients 0, E[1/tau^2] E[1/nu^2] = ``precision``, a = 2, covariance from ``bound``."""
    everything, zeros = np.arange(len(precision)), np.zeros(len(precision))
    state = make_state(model, everything, zeros, bound, precision, zeros)
    local, global_ = (
        Scale(np.full_like(q.shape, 2.0), q.ratio) for q in (state.local, state.global_)
    )
    return state._replace(local=local, global_=global_)
