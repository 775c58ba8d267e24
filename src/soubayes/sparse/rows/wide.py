"""Row-wise models with more columns than a k x k matrix can hold, through n x n systems.

With P = 1/(gamma d) and B the information of the rows, A^-1 = P - P X' B^1/2 K^-1 B^1/2 X P for the
n x n matrix K = I + B^1/2 X P X' B^1/2 (`designs/linalg.py`). Each step moves every log d to its
own stationary point with the others held (at most 3, less where it overshoots), so columns without
signal leave within a few steps; J is evaluated after each one and never rises.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.designs.linalg import Woodbury
from soubayes.sparse.likelihoods.base import RowTerms, weighted_terms
from soubayes.sparse.rows.dropped import own_precision, runs_away
from soubayes.sparse.rows.passes import Pass, RowProblem
from soubayes.sparse.rows.state import (
    RowFit,
    RowModel,
    RowState,
    active_value,
    copies_out,
    dropped_terms,
    make_state,
    tau_precision,
)
from soubayes.sparse.scales.base import Scale

Array = np.ndarray

MOST_ACTIVE = 2_000  # active columns whose k x k matrices are still formed; or as many as rows


class _Wide(NamedTuple):
    """q of all factors, the covariance of the coefficients implied by ``information``."""

    active: Array  # (k,) ascending, the intercept last
    theta: Array  # (p,) log d of all columns
    mean: Array  # (k,)
    variance: Array  # (k,) diagonal of S
    local: Scale
    top: Scale
    rest: Array  # (p,) see `dropped_terms`
    information: Array  # (n,) weighted, from which the covariance follows
    eta: Array  # (n,) the rows' predictors at the mean
    terms: RowTerms  # the rows at this state, weighted
    s: Array  # (k,) leave-one-out information and score
    q: Array
    value: float


class _Columns(NamedTuple):
    """A row-wise problem read by columns."""

    X: StandardColumns  # standardised, with the ones of the intercept last
    problem: RowProblem
    model: RowModel

    def terms(self, mean: Array, variance: Array) -> RowTerms:
        """With information and curvature at least 0: n x n systems are made of their roots."""
        rows = self.problem
        terms = weighted_terms(rows.likelihood, mean, variance, rows.y, rows.weight)
        if not (terms.curvature < 0.0).any():
            return terms
        bent = (np.maximum(values, 0.0) for values in (terms.information, terms.curvature))
        return RowTerms(terms.loss, terms.score, *bent)

    def loss(self, terms: RowTerms) -> float:
        """With J's share of the nuisance parameters."""
        likelihood = self.problem.likelihood
        return float(terms.loss.sum()) + likelihood.confidence * likelihood.kl


def solve_wide(
    X: StandardColumns,
    problem: RowProblem,
    model: RowModel,
    precision: Array,
    *,
    few: int,
    max_iter: int,
    tol: float,
    report: Callable[[int, float, int], None] = lambda *_: None,
) -> RowFit:
    """Steps from the prior precisions until at most ``few`` columns are active, or converged."""
    data = _Columns(X, problem, model)
    n, p = X.shape
    rows = data.terms(np.zeros(n), np.ones(n))
    precision, rest = copies_out(model, precision, X.norms(rows.information))
    blank = _blank(model, rows, precision, rest, n)
    state = _first(data, blank)
    history, converged = [state.value], False
    reach, last = np.full(p, 1.5), np.zeros(p)
    for iteration in range(max_iter):
        step = _own_steps(model, state)
        # Rprop: a coordinate that turns went too far
        turned = step * last < 0.0
        reach, last = np.where(turned, 0.5 * reach, np.minimum(1.5 * reach, 3.0)), step
        step = np.clip(step, -reach, reach)
        trial = _backtrack(data, state, step)
        if trial is None:
            converged = True
            break
        moved = np.max(np.abs(_shrinkage(trial) - _shrinkage(state)), initial=0.0)
        gain = state.value - trial.value
        state = _drop(data, trial)
        history.append(min(state.value, history[-1]))
        report(iteration, state.value, len(state.active))
        if len(state.active) <= few:
            break
        if gain <= tol * abs(state.value) and moved < 1e-4:
            converged = True
            break
    return _fit(data, state, history, converged)


def _first(data: _Columns, blank: _Wide) -> _Wide:
    """The first step, or as much of it as lowers the loss, which may grow exponentially."""
    most = data.loss(blank.terms)
    # a quadratic form that majorises the loss cannot run away from it
    for halvings in range(1 if data.problem.likelihood.majorises else 40):
        share = 0.5**halvings
        state = _posterior(data, blank, blank.active, blank.theta, blank.rest, part=share)
        if data.loss(state.terms) <= most:
            break
    return state


def _blank(model: RowModel, rows: RowTerms, precision: Array, rest: Array, n: int) -> _Wide:
    """Before the first step: predictors 0 of variance 1, scales that fit the precisions."""
    none = np.zeros(0)
    return _Wide(
        active=model.distinct,
        theta=np.log(precision),
        mean=np.zeros(len(model.distinct)),
        variance=none,
        local=(scales := model.scales.split(tau_precision(model, precision)))[0],
        top=scales[1],
        rest=rest,
        information=rows.information,
        eta=np.zeros(n),
        terms=rows,
        s=none,
        q=none,
        value=np.inf,
    )


def wide_predictors(X: StandardColumns, model: RowModel, fit: RowFit) -> tuple[Array, Array]:
    """Mean and variance of the predictors of a fit in which nothing was dropped."""
    information, k = fit.rows, model.coefficients
    assert information is not None
    w = model.confidence * fit.state.precision
    here, columns = model.take(np.arange(k)), X.take(np.arange(k))
    variance = source_spread(here, columns, w[:k], information)[1]
    if model.intercept:
        # the intercept has a factor of its own, so its variance adds
        variance = variance + model.confidence[-1] / (information.sum() + w[-1])
    return X.times(fit.state.mean), variance


def _fit(data: _Columns, state: _Wide, history: list[float], converged: bool) -> RowFit:
    """With k x k matrices if columns were dropped, else with what they would follow from."""
    model, d, empty = data.model, np.exp(state.theta), np.zeros((0, 0))
    loss = data.loss(state.terms)
    if len(state.active) == len(d):
        scales = model.scales.split(tau_precision(model, d))
        whole = RowState(state.active, state.mean, empty, d, *scales, state.rest)
        return RowFit(
            whole, Pass(loss, np.zeros(0), empty, empty), history, converged, state.information
        )
    if len(state.active) > max(MOST_ACTIVE, data.X.shape[0]):
        state, history = _fewest(data, state), []
        d = np.exp(state.theta)
    active_columns = data.X.take(state.active).dense()
    # few columns are left: X'BX is small enough to be formed
    H = active_columns.T @ (state.information[:, None] * active_columns)
    start = make_state(model, state.active, state.mean, H, d, state.rest)
    return RowFit(start, Pass(loss, np.zeros(len(H)), H, H), history, converged)


def _fewest(data: _Columns, state: _Wide) -> _Wide:
    """As many columns as rows, those that explain most; the others return one look at a time."""
    model = data.model
    here = model.take(state.active)
    explains = here.group_total(np.maximum(1.0 - _shrinkage(state), 0.0))
    stay = ~here.selects
    room = len(state.information) - int(stay.sum())
    stay[here.sparse] |= here.groups.largest(explains[here.sparse], room)
    theta, rest = state.theta.copy(), state.rest.copy()
    j, s = state.active[~stay], state.s[~stay]
    d = own_precision(model, state.local, state.top, j, s, 0.0 * s)
    theta[j], rest[j] = np.log(d), dropped_terms(model, j, s, 0.0 * s, d)
    return state._replace(active=state.active[stay], mean=state.mean[stay], theta=theta, rest=rest)


def _own_steps(model: RowModel, state: _Wide) -> Array:
    """From every theta_j to its own stationary point, all following nu.

    With h_g the curvature of J in the theta of a tau and t_g the part of it that KL_tau brings, the
    own point moves with log(rho) of nu by -t_g/h_g, and log(rho) with the theta by -t_g/sum(t).
    """
    inside = model.sparse[state.active]
    columns, s, q = state.active[inside], state.s[inside], state.q[inside]
    step = np.zeros(len(state.theta))
    if not len(columns):
        return step
    best = own_precision(model, state.local, state.top, columns, s, q)
    steps = np.log(best) - state.theta[columns]
    gamma, groups, scales = model.confidence[columns], model.take(columns).groups, model.scales
    w = gamma * best
    two = scales.local_confidence * scales.local_prior.kl_slope(state.local)[1]
    t = two[model.taus_of(columns)]
    # d2/dtheta2 of gamma/2 log(1 + s/w) - q^2/(2 (s + w)) at w = gamma e^theta
    f = w / (s + w) ** 2 * (gamma * s + q**2 * (s - w) / (s + w)) / 2.0
    f = np.maximum(groups.total(f), 0.0)
    nu = scales.global_confidence * scales.global_prior.kl_slope(state.top)[1]
    # the common move of nu, solved with that of all theta
    log_rho = -np.sum(t * groups.first(steps)) / (nu + np.sum(t * f / (f + t)))
    step[columns] = steps - groups.each(t / (f + t)) * log_rho
    return step


def _backtrack(data: _Columns, state: _Wide, step: Array) -> _Wide | None:
    """The state after as much of the step as lowers J; None when rounding allows none.

    Where the information majorises the loss, the first shorter step already cannot raise J but for
    theta's own share; otherwise mean and covariance go a part of the way as well.
    """
    majorises = data.problem.likelihood.majorises
    for halvings in range(12 if majorises else 30):
        share = 0.5**halvings
        trial = _posterior(
            data,
            state,
            state.active,
            state.theta + share * step,
            state.rest,
            majorise=halvings > 0 and majorises,
            part=1.0 if majorises else share,
        )
        if trial.value < state.value:
            return trial
    return None


def _drop(data: _Columns, state: _Wide) -> _Wide:
    """Without the columns whose precision runs away."""
    model, active = data.model, state.active
    w = model.confidence[active] * np.exp(state.theta[active])
    most = state.s if model.groups.alone else model.take(active).group_most(state.s)
    # dropped well before s/w is rounding, but late enough that J hardly moves
    gone = runs_away(model, active, state.s, state.q) & (w > 50.0 * most)
    if not gone.any():
        return state
    j, s, q = active[gone], state.s[gone], state.q[gone]
    theta, rest = state.theta.copy(), state.rest.copy()
    d = own_precision(model, state.local, state.top, j, s, q)
    theta[j], rest[j] = np.log(d), dropped_terms(model, j, s, q, d)
    stay = active[~gone]
    for halvings in range(1 if data.problem.likelihood.majorises else 6):
        trial = _posterior(data, state, stay, theta, rest, part=0.5**halvings)
        if trial.value <= state.value or data.problem.likelihood.majorises:
            return trial
    return state


def _posterior(
    data: _Columns,
    before: _Wide,
    active: Array,
    theta: Array,
    rest: Array,
    majorise: bool = True,
    part: float = 1.0,
) -> _Wide:
    """The best mean, covariance and scales for theta, the rows' quadratic terms held; then J.

    ``majorise`` takes the information of the rows for their curvature. ``part`` is how far mean
    and covariance go from ``before``.
    """
    model, rows = data.model, before.terms
    X, gamma = data.X.take(active), model.confidence[active]
    w = gamma * np.exp(theta[active])
    information = (1.0 - part) * before.information + part * rows.information
    curve = rows.information if majorise else rows.curvature
    k = len(active) - model.intercept
    # the covariance follows from the information, the mean from the curvature (Newton's step)
    spread = source_spread(model.take(active[:k]), X.take(np.arange(k)), w[:k], information)
    variance, rows_variance, log_variance = spread
    if model.intercept:
        own = gamma[-1] / (information.sum() + w[-1])
        variance, rows_variance = np.append(variance, own), rows_variance + own
        log_variance = np.append(log_variance, np.log(own))
    kernel = Woodbury.of(X, w, curve)
    # one Newton step of the mean: (X'BX + W)^-1 X'(B eta + score)
    mean = kernel.solve(X, w, curve * before.eta + rows.score)
    if part < 1.0:
        mean = (1.0 - part) * before.mean[np.isin(before.active, active)] + part * mean
    eta = X.times(mean)
    terms = data.terms(eta, rows_variance)
    d = np.exp(theta)
    local, top = model.scales.refresh(tau_precision(model, d), (before.local, before.top))
    value = data.loss(terms) + rest.sum() + model.scales.value(local, top)
    value += active_value(model, active, d[active], variance + mean**2, log_variance)
    # s_j = gamma/S_jj - w_j; q_j from the curvature's inverse, which gave the mean
    s = np.maximum(gamma / variance - w, 0.0)
    q = mean / kernel.diagonal(X, w)
    return _Wide(
        active, theta, mean, variance, local, top, rest, information, eta, terms, s, q, float(value)
    )


class _Kernel(NamedTuple):
    """(X'BX + diag(w))^-1 of some columns, as `ColumnModel.nested` asks for it."""

    woodbury: Woodbury
    variance: Array
    log_det: float


def source_spread(
    model: RowModel, X: StandardColumns, w: Array, information: Array
) -> tuple[Array, Array, Array]:
    """diag(S), x_i' S x_i, and log variances that sum over a source to log|its covariance|."""

    def restrict(columns: Array) -> _Kernel:
        subset = X.take(columns)
        kernel = Woodbury.of(subset, w[columns], information)
        diagonal = kernel.diagonal(subset, w[columns])
        return _Kernel(kernel, diagonal, kernel.log_det(w[columns]))

    parts = model.nested(restrict)
    rows = np.zeros(X.shape[0])
    for source in parts:
        if source.share:
            rows += source.share * source.inverse.woodbury.row_variance()
    return model.variances(parts), rows, model.log_variances(parts)


def _shrinkage(state: _Wide) -> Array:
    """kappa_j = d_j S_jj of the active columns."""
    return np.exp(state.theta[state.active]) * state.variance
