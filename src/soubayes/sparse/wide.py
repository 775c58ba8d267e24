"""The logistic model with more columns than a k x k matrix can hold, through n x n systems.

With P = 1/(gamma d) and B = 2 Lambda, A^-1 = P - P X' B^1/2 K^-1 B^1/2 X P for the n x n matrix
K = I + B^1/2 X P X' B^1/2 (Woodbury). Each step moves every log d to its own stationary point with
the others held (at most 3, less where it overshoots), so columns without signal leave within a
few steps; J is evaluated after each one and never rises.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from soubayes.sparse.columns import (
    Columns,
    Fit,
    State,
    dropped_terms,
    make_state,
    refresh_scales,
    scales_value,
    split_scales,
)
from soubayes.sparse.dropped import best_dropped_precision, runs_away
from soubayes.sparse.jaakkola import Pass, RowTerms, row_terms
from soubayes.sparse.scales import Scale, kl_slope
from soubayes.sparse.triangles import cholesky
from soubayes.sparse.wide_columns import WideColumns

Array = np.ndarray
MOST = 2_000  # active columns whose k x k matrices are still formed; or as many as rows


class _Wide(NamedTuple):
    """q of all factors, the covariance of the coefficients implied by ``bound``."""

    active: Array  # (k,) ascending, the intercept last
    theta: Array  # (p,) log d of all columns
    mean: Array  # (k,)
    variance: Array  # (k,) diagonal of S
    local: Scale
    global_: Scale
    rest: Array  # (p,) see `dropped_terms`
    bound: Array  # (n,) weighted 2 lambda(xi) from which the covariance follows
    terms: RowTerms  # the rows at this state
    s: Array  # (k,) leave-one-out information and score
    q: Array
    value: float


def solve_wide(
    Z: WideColumns,
    y: Array,
    weight: Array,
    model: Columns,
    precision: Array,
    *,
    few: int,
    max_iter: int,
    tol: float,
    report: Callable[[int, float, int], None] = lambda *_: None,
) -> Fit:
    """Steps from the prior precisions until at most ``few`` columns are active, or converged.

    ``Z`` holds the standardised columns, with the ones of the intercept last.
    """
    rows = row_terms(np.zeros(len(y)), np.ones(len(y)), y)
    p, flat = Z.shape[1], np.zeros(len(y))
    held = split_scales(model, precision)
    state = _posterior(
        Z, y, weight, model, np.arange(p), np.log(precision), np.zeros(p), rows, flat, 1.0, held
    )
    history, converged, interrupted = [state.value], False, False
    reach, last = np.full(p, 1.5), np.zeros(p)
    try:
        for iteration in range(max_iter):
            step = _own_steps(model, state)
            turned = step * last < 0.0
            reach, last = np.where(turned, 0.5 * reach, np.minimum(1.5 * reach, 3.0)), step
            step = np.clip(step, -reach, reach)
            trial = _backtrack(Z, y, weight, model, state, step)
            if trial is None:
                converged = True
                break
            moved = np.max(np.abs(_shrinkage(model, trial) - _shrinkage(model, state)), initial=0.0)
            gain = state.value - trial.value
            state = _drop(Z, y, weight, model, trial)
            history.append(min(state.value, history[-1]))
            report(iteration, state.value, len(state.active))
            if len(state.active) <= few:
                break
            if gain <= tol * abs(state.value) and moved < 1e-4:
                converged = True
                break
    except KeyboardInterrupt:
        interrupted = True
    return _fit(Z, weight, model, state, history, converged, interrupted)


def _fit(
    Z: WideColumns,
    weight: Array,
    model: Columns,
    state: _Wide,
    history: list[float],
    converged: bool,
    interrupted: bool,
) -> Fit:
    """With k x k matrices if columns were dropped, else with what they would follow from."""
    d, empty = np.exp(state.theta), np.zeros((0, 0))
    loss = float(weight @ state.terms.loss)
    if len(state.active) == len(d):
        local, global_ = split_scales(model, d)
        whole = State(state.active, state.mean, empty, d, local, global_, state.rest)
        data = Pass(loss, np.zeros(0), empty, empty)
        return Fit(whole, data, history, converged, interrupted, state.bound)
    if len(state.active) > max(MOST, len(weight)):
        state, history = _fewest(Z, model, state), []
        d = np.exp(state.theta)
    part = Z.take(state.active).dense()
    H = part.T @ (state.bound[:, None] * part)
    start = make_state(model, state.active, state.mean, H, d, state.rest)
    return Fit(start, Pass(loss, np.zeros(len(H)), H, H), history, converged, interrupted)


def _fewest(Z: WideColumns, model: Columns, state: _Wide) -> _Wide:
    """As many columns as rows, those that explain most; the others return one look at a time.

    Copies of a column share its coefficient in any proportions at the same J, so no step removes
    them. One of them takes it over, with the sum of their prior variances.
    """
    spread = np.exp(-state.theta[state.active])
    explains = np.maximum(1.0 - _shrinkage(model, state), 0.0)
    free = model.selects[state.active]
    first = np.where(free, Z.take(state.active).first_copies(), np.arange(len(free)))
    k = len(free)
    explains, mean, spread = (np.bincount(first, x, k) for x in (explains, state.mean, spread))
    alone = first == np.arange(k)
    rank = np.where(alone, np.where(free, explains, np.inf), -1.0)
    stay = np.zeros(k, bool)
    stay[np.argsort(-rank, kind="stable")[: len(state.bound)]] = True
    stay = (stay & alone) | ~free
    theta, rest = state.theta.copy(), state.rest.copy()
    theta[state.active[stay]] = -np.log(spread[stay])
    j, s = state.active[~stay], state.s[~stay]
    d = best_dropped_precision(model, state.local, state.global_, j, s, 0.0 * s)
    theta[j], rest[j] = np.log(d), dropped_terms(model, j, s, 0.0 * s, d)
    return state._replace(active=state.active[stay], mean=mean[stay], theta=theta, rest=rest)


def _own_steps(model: Columns, state: _Wide) -> Array:
    """From every theta_j to its own stationary point, all following nu.

    With h_j the curvature of J in theta_j and t_j the part of it that KL_tau brings, the own
    point moves with log(rho) of nu by -t_j/h_j, and log(rho) with the theta by -t_j/sum(t).
    """
    here = model.sparse[state.active]
    columns, s, q = state.active[here], state.s[here], state.q[here]
    step = np.zeros(len(state.theta))
    if not len(columns):
        return step
    best = best_dropped_precision(model, state.local, state.global_, columns, s, q)
    own = np.log(best) - state.theta[columns]
    gamma = model.confidence[columns]
    w = gamma * best
    inside = np.isin(np.flatnonzero(model.sparse), columns)
    t = (model.local_confidence[model.sparse] * kl_slope(model.local_prior, state.local)[1])[inside]
    f = np.maximum(w / (s + w) ** 2 * (gamma * s + q**2 * (s - w) / (s + w)) / 2.0, 0.0)
    nu = model.global_confidence * kl_slope(model.global_prior, state.global_)[1]
    log_rho = -np.sum(t * own) / (nu + np.sum(t * f / (f + t)))
    step[columns] = own - t / (f + t) * log_rho
    return step


def _backtrack(
    Z: WideColumns, y: Array, weight: Array, model: Columns, state: _Wide, step: Array
) -> _Wide | None:
    """The state after as much of the step as lowers J; None when rounding allows none."""
    for halvings in range(12):
        trial = _posterior(
            Z,
            y,
            weight,
            model,
            state.active,
            state.theta + step / 2.0**halvings,
            state.rest,
            state.terms,
            Z.take(state.active).times(state.mean),
            float(halvings > 0),
            (state.local, state.global_),
        )
        if trial.value < state.value:
            return trial
    return None


def _drop(Z: WideColumns, y: Array, weight: Array, model: Columns, state: _Wide) -> _Wide:
    """Without the columns whose precision runs away."""
    w = model.confidence[state.active] * np.exp(state.theta[state.active])
    gone = runs_away(model, state.active, state.s, state.q) & (w > 50.0 * state.s)
    if not gone.any():
        return state
    j, s, q = state.active[gone], state.s[gone], state.q[gone]
    theta, rest = state.theta.copy(), state.rest.copy()
    d = best_dropped_precision(model, state.local, state.global_, j, s, q)
    theta[j], rest[j] = np.log(d), dropped_terms(model, j, s, q, d)
    eta = Z.take(state.active).times(state.mean)
    held = state.local, state.global_
    return _posterior(
        Z, y, weight, model, state.active[~gone], theta, rest, state.terms, eta, 1.0, held
    )


def _posterior(
    Z: WideColumns,
    y: Array,
    weight: Array,
    model: Columns,
    active: Array,
    theta: Array,
    rest: Array,
    rows: RowTerms,
    eta: Array,
    blend: float,
    held: tuple[Scale, Scale],
) -> _Wide:
    """The best mean, covariance and scales for theta, the rows' quadratic terms held; then J."""
    part, gamma = Z.take(active), model.confidence[active]
    w = gamma * np.exp(theta[active])
    bound = weight * rows.bound
    curve = (1.0 - blend) * weight * rows.curvature + blend * bound
    k = len(active) - model.intercept
    variance, rows_variance, entropy, _ = source_spread(
        part.take(np.arange(k)), w[:k], gamma[:k], bound
    )
    if model.intercept:
        own = gamma[-1] / (bound.sum() + w[-1])
        variance, rows_variance = np.append(variance, own), rows_variance + own
        entropy += 0.5 * gamma[-1] * np.log(gamma[-1] / own)
    kernel = Kernel.of(part, w, curve)
    linear = curve * eta + weight * rows.score
    mean = kernel.solve(part, w, linear)
    new_eta = part.times(mean)
    terms = row_terms(new_eta, rows_variance, y)
    local, global_ = refresh_scales(model, np.exp(theta), held)
    d = np.exp(theta[active])
    gain = np.where(model.sparse[active], 0.0, np.log(d))
    value = weight @ terms.loss + entropy + rest.sum() + scales_value(model, local, global_)
    value += np.sum(gamma * (d * (variance + mean**2) - 1.0 - np.log(gamma) - gain)) / 2.0
    s = np.maximum(gamma / variance - w, 0.0)
    q = mean / kernel.diagonal(w)
    return _Wide(
        active, theta, mean, variance, local, global_, rest, bound, terms, s, q, float(value)
    )


class Kernel(NamedTuple):
    """(X' B X + diag(w))^-1 through K = I + B^1/2 X diag(1/w) X' B^1/2 = L L'."""

    root: Array  # (n,) B^1/2
    gram: Array  # (n, n) X diag(1/w) X'
    lower: Array  # L
    explained: Array  # (k,) squared length of the columns of L^-1 B^1/2 X

    @classmethod
    def of(cls, X: WideColumns, w: Array, bound: Array) -> "Kernel":
        root = np.sqrt(bound)
        gram = X.gram(w)
        lower = cholesky(root[:, None] * gram * root, 1.0)
        return cls(root, gram, lower, X.projected(_through(lower, root), root)[0])

    def half(self, X: WideColumns) -> Array:
        """L^-1 B^1/2 X, (n, k)."""
        return _through(self.lower, self.root) @ X.dense()

    def diagonal(self, w: Array) -> Array:
        """The diagonal of the inverse."""
        return np.maximum(1.0 - self.explained / w, 1e-12) / w

    def row_variance(self) -> Array:
        """x_i' (.)^-1 x_i for the rows of X."""
        inside = solve_triangular(
            self.lower, self.root[:, None] * self.gram, lower=True, check_finite=False
        )
        return np.maximum(np.diag(self.gram) - np.einsum("ij,ij->j", inside, inside), 0.0)

    def solve(self, X: WideColumns, w: Array, linear: Array) -> Array:
        """(.)^-1 X' linear."""
        inside = cho_solve((self.lower, True), self.root * (self.gram @ linear))
        return X.left(linear - self.root * inside) / w

    def log_det(self, w: Array) -> float:
        """log|X' B X + diag(w)|."""
        return float(np.log(w).sum() + 2.0 * np.log(np.diag(self.lower)).sum())


def _through(lower: Array, root: Array) -> Array:
    """L^-1 B^1/2."""
    return solve_triangular(lower, np.diag(root), lower=True, check_finite=False)


def source_spread(
    X: WideColumns, w: Array, gamma: Array, bound: Array
) -> tuple[Array, Array, float, Array]:
    """diag(S), x_i' S x_i, sum_k gamma_k/2 log|precision of source k|, and log|S| by column.

    S is the sum over the ordered sources, the last columns first, of (gamma_k - gamma_before)
    times the inverse of A restricted to that source and the columns before it. The last array
    sums over a source to log|its conditional covariance|.
    """
    total, rows, entropy, before = np.zeros(len(w)), np.zeros(X.shape[0]), 0.0, 0.0
    log_det, begin, last = np.log(gamma), 0, 0.0
    kernels = []
    for end in [*(np.flatnonzero(np.diff(gamma)) + 1), len(w)] if len(w) else []:
        kernels.append((end, Kernel.of(X.take(np.arange(end)), w[:end], bound)))
        here = kernels[-1][1].log_det(w[:end])
        log_det[begin:end] -= (here - last) / (end - begin)
        begin, last = end, here
    for end, kernel in reversed(kernels):
        share, before = gamma[end - 1] - before, gamma[end - 1]
        total[:end] += share * kernel.diagonal(w[:end])
        rows += share * kernel.row_variance()
        entropy += 0.5 * share * kernel.log_det(w[:end])
    return total, rows, entropy, log_det


def _shrinkage(model: Columns, state: _Wide) -> Array:
    """kappa_j = d_j S_jj of the active columns."""
    return np.exp(state.theta[state.active]) * state.variance
