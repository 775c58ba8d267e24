"""From the end of a logistic fit to what is reported, in the user's column order and units."""

from typing import NamedTuple

import numpy as np

from soubayes.results import Table
from soubayes.sparse.columns import Columns
from soubayes.sparse.logistic_path import Outcome, Problem
from soubayes.sparse.posterior import LowRankPosterior, Posterior
from soubayes.sparse.scales import kl
from soubayes.sparse.streamed import Units
from soubayes.sparse.triangles import cholesky, invert_triangle
from soubayes.sparse.wide import Kernel, source_spread

Array = np.ndarray


class Report(NamedTuple):
    """One class."""

    posterior: Posterior  # of the coefficients
    intercept: float  # at the mean of X
    intercept_variance: float
    selected: Array
    shrinkage: Array
    local_scale: Array  # NaN where the prior is normal
    global_scale: float
    kl: dict[str, float]


class _Spread(NamedTuple):
    """The covariance of all columns, the intercept last."""

    variance: Array  # (p,)
    log_det: Array  # (p,) summed over a source: log|S| of it given the earlier sources
    posterior: Posterior  # standardised, internal order, without the intercept


def report_on(
    problem: Problem, outcome: Outcome, groups: dict[str, Array], back: Array, scale: Array
) -> Report:
    """``back`` undoes the solver's order of columns, ``scale`` holds their standard deviations."""
    model, state, p = outcome.model, outcome.fit.state, len(back)
    mean = np.zeros(p + model.intercept)
    mean[state.active] = state.mean
    spread = _wide(problem, outcome) if outcome.fit.rows is not None else _dense(outcome, p)
    selected = np.zeros(p, bool)
    selected[state.active[state.active < p]] = True
    local = np.full(p + model.intercept, np.nan)
    local[model.sparse] = np.sqrt(state.local.ratio)
    shrinkage = np.minimum(state.precision * spread.variance, 1.0)
    return Report(
        posterior=spread.posterior.moved(back, 1.0 / scale),
        intercept=float(mean[p]) if model.intercept else 0.0,
        intercept_variance=float(spread.variance[p]) if model.intercept else 0.0,
        selected=selected[back],
        shrinkage=np.where(selected, shrinkage[:p], 1.0)[back],
        local_scale=local[:p][back],
        global_scale=float(np.sqrt(state.global_.ratio)),
        kl=_costs(outcome, groups, back, mean, spread),
    )


def path_table(outcome: Outcome, units: Units, back: Array) -> Table:
    """The path in the user's units and column order."""
    p = len(back)

    def coefficients(means: list[Array]) -> tuple[Array, Array]:
        coef = np.array(means)[:, :p][:, back] / units.scale
        alpha = np.array([mean[p] if len(mean) > p else 0.0 for mean in means])
        return coef, alpha - coef @ units.mean

    coef, intercept = coefficients([point.mean for point in outcome.points])
    selected = np.zeros((len(outcome.points), p), bool)
    for row, point in zip(selected, outcome.points, strict=True):
        row[point.active[point.active < p]] = True
    columns = {
        "gamma": [point.gamma for point in outcome.points],
        "n_selected": selected.sum(axis=1),
        "value": [point.value for point in outcome.points],
        "score": [point.score for point in outcome.points],
        "intercept": intercept,
        "selected": selected[:, back],
        "coef": coef,
    }
    if np.isfinite(columns["score"]).any():
        refit = coefficients([point.refit for point in outcome.points])
        columns["refit_coef"], columns["refit_intercept"] = refit
    return Table(**columns)


def _dense(outcome: Outcome, p: int) -> _Spread:
    state, model = outcome.fit.state, outcome.model
    # a dropped column: gamma/(s + w), where s < w/1000
    variance, log_det = 1.0 / state.precision, -np.log(state.precision)
    covariance = state.root @ state.root.T
    variance[state.active] = np.diag(covariance)
    log_det[state.active] = 2.0 * np.log(np.diag(state.root))
    k = len(state.active) - model.intercept
    mean = np.zeros(p)
    mean[state.active[:k]] = state.mean[:k]
    inside = Posterior(mean, variance[:p], state.active[:k], covariance[:k, :k])
    return _Spread(variance, log_det, inside)


def _wide(problem: Problem, outcome: Outcome) -> _Spread:
    state, model, bound = outcome.fit.state, outcome.model, outcome.fit.rows
    assert bound is not None
    p = problem.design.n_columns - model.intercept
    X, gamma = problem.design.wide().take(np.arange(p)), model.confidence[:p]
    w = gamma * state.precision[:p]
    variance, _, _, log_det = source_spread(X, w, gamma, bound)
    if np.ptp(gamma) == 0.0:
        kernel = Kernel.of(X, w, bound)
        diagonal, half = gamma / w, kernel.half(X) * np.sqrt(gamma) / w
        inside: Posterior = LowRankPosterior(state.mean[:p], diagonal, half, kernel.lower)
    else:
        # the first p columns of a p x p matrix: ordered sources have no low-rank form
        dense = X.dense()
        lower = cholesky(dense.T @ (bound[:, None] * dense), w)
        root = invert_triangle(lower).T * np.sqrt(gamma)
        inside = Posterior(state.mean[:p], variance, np.arange(p), root @ root.T)
    if model.intercept:
        own = model.confidence[-1] / (bound.sum() + model.confidence[-1] * state.precision[-1])
        variance, log_det = np.append(variance, own), np.append(log_det, np.log(own))
    return _Spread(variance, log_det, inside)


def _costs(
    outcome: Outcome, groups: dict[str, Array], back: Array, mean: Array, spread: _Spread
) -> dict[str, float]:
    """KL of every source in nats; J is the expected loss plus gamma times each."""
    model: Columns = outcome.model
    state = outcome.fit.state
    log_prior = -np.log(state.precision)  # of normal columns: the log variance
    log_prior[model.sparse] = state.local.mean_log + state.global_.mean_log
    own = state.precision * (spread.variance + mean**2) - 1.0 + log_prior - spread.log_det
    costs = {name: 0.5 * float(own[: len(back)][back][columns].sum())
             for name, columns in groups.items() if len(columns)}  # fmt: skip
    if model.sparse.any():
        costs["local"] = float(np.sum(kl(model.local_prior, state.local)))
        costs["global"] = float(kl(model.global_prior, state.global_))
    if model.intercept:
        costs["intercept"] = 0.5 * float(own[-1])
    return costs
