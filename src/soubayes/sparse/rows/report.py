"""From the end of a row-wise fit to what is reported, in the user's column order and units."""

from typing import Any, NamedTuple

import numpy as np

from soubayes.sparse.designs.standardise import ColumnUnits
from soubayes.sparse.likelihoods.base import Likelihood
from soubayes.sparse.likelihoods.softmax import class_basis
from soubayes.sparse.model import coefficient_kl, log_prior_variance, source_costs
from soubayes.sparse.posterior import (
    Component,
    PathPoints,
    Posterior,
    SparsePoint,
    chosen_row,
)
from soubayes.sparse.rows.classes import ClassView, JointClasses
from soubayes.sparse.rows.coordinates import columns_of
from soubayes.sparse.rows.path import RowOutcome
from soubayes.sparse.rows.state import RowModel

Array = np.ndarray


class _Spread(NamedTuple):
    """The covariance of all columns, the intercept last."""

    variance: Array  # (p,)
    log_variance: Array  # (p,) summed over a source: log|S| of it given the earlier sources
    posterior: Posterior  # standardised, internal order, without the intercept


def row_sparse_point(
    outcome: RowOutcome, units: ColumnUnits, back: Array, solver: str
) -> SparsePoint:
    """The end of a fit in the user's units; ``back`` undoes the solver's order of columns."""
    model, p = outcome.model, len(back)
    spread = dense_spread(outcome, p)
    mean = np.zeros(p + model.intercept)
    mean[outcome.fit.state.active] = outcome.fit.state.mean
    q = spread.posterior.moved(back, 1.0 / units.scale)
    if model.intercept:
        q = q.joined(float(mean[p]) + _shift(outcome), float(spread.variance[p]))
    component = Component(
        q.widened(outcome.dispersion),
        likelihood=fitted_nuisance(outcome.fit.likelihood),
        dispersion=outcome.dispersion,
    )
    return _reported(outcome, spread, units, back, [(component, np.ones(1))], solver)[0]


def class_points(
    outcome: RowOutcome, component: Component, units: ColumnUnits, back: Array, d: int
) -> list[SparsePoint]:
    """What every class reports, in the order of the basis: columns are selected for all of them."""
    joint: Any = component.posterior
    views, basis = [ClassView(joint, k) for k in range(d + 1)], class_basis(d + 1)
    components = [(Component(view.posterior, view=view), basis[view.place]) for view in views]
    spread = dense_spread(outcome, len(outcome.fit.state.precision))
    return _reported(outcome, spread, units, back, components, "newton")


def _reported(
    outcome: RowOutcome,
    spread: _Spread,
    units: ColumnUnits,
    back: Array,
    components: list[tuple[Component, Array]],
    solver: str,
) -> list[SparsePoint]:
    """A point for each component, whose coefficients are a combination of those of a column."""
    model, state, p, d = outcome.model, outcome.fit.state, len(back), len(components[0][1])
    mean = np.zeros(len(spread.variance))
    mean[state.active] = state.mean
    selected, columns = np.zeros(p, bool), state.active[::d] // d  # d coordinates of each
    selected[columns[columns < p]] = True
    selected &= _selectable(model, units, back, d)
    # the shrinkage kappa = d_j S_jj of a coefficient, averaged over those of a column
    kappa = np.minimum(state.precision * spread.variance, 1.0).reshape(-1, d).mean(axis=1)[:p]
    return [
        SparsePoint(
            component=component,
            units=1.0 / units.scale,
            selected=selected[back],
            shrinkage=np.where(selected, kappa, 1.0)[back],
            local_scale=np.sqrt(model.each_tau(state.local.ratio))[::d][:p][back],
            global_scale=float(np.sqrt(state.top.ratio)),
            kl=source_nats(outcome, mean, spread),
            confidence=outcome.gamma,
            objective=outcome.history,
            n_iter=outcome.n_iter,
            converged=outcome.fit.converged,
            solver=solver,
            path=_path(outcome, units, back, contrast),
        )
        for component, contrast in components
    ]


def joint_posterior(outcome: RowOutcome, to_user: tuple[Array, Array], d: int) -> JointClasses:
    """q of d coefficients for each column in the user's order and units."""
    state = outcome.fit.state
    p = len(state.precision) // d
    columns, mean = columns_of(state.active, d), np.zeros((p, d))
    mean[columns] = state.mean.reshape(-1, d)
    square = (state.root @ state.root.T).reshape(len(columns), d, len(columns), d)
    variance = (1.0 / state.precision).reshape(p, d)
    variance[columns] = np.einsum("iaia->ia", square)
    return JointClasses(mean, variance, columns, square, np.ones(p)).moved(*to_user)


def _selectable(model: RowModel, units: ColumnUnits, back: Array, d: int) -> Array:
    """Not the constant columns that may be dropped: in the solver nothing tells them to leave."""
    return ~(units.constant[np.argsort(back)] & model.sparse[::d][: len(back)])


def _shift(outcome: RowOutcome) -> float:
    """What the solver's predictors leave out of the intercept, see `shifted.py`."""
    return 0.0 if outcome.fit.likelihood is None else outcome.fit.likelihood.shift


def fitted_nuisance(likelihood: Likelihood | None) -> Likelihood | None:
    """The likelihood if it has nuisance parameters; without, the estimator's own serves."""
    return None if likelihood is None or likelihood.nuisance is None else likelihood


def _path(outcome: RowOutcome, units: ColumnUnits, back: Array, contrast: Array) -> PathPoints:
    """The path in the user's units; coefficients are those of a column times the ``contrast``."""
    p, d, points = len(back), len(contrast), outcome.points

    def coefficients(means: list[Array]) -> tuple[Array, Array]:
        combined = np.array(means).reshape(len(means), -1, d) @ contrast
        coef = combined[:, :p][:, back] / units.scale
        alpha = (
            combined[:, p] + _shift(outcome) if combined.shape[1] > p else np.zeros(len(combined))
        )
        return coef, alpha - coef @ units.mean

    may = _selectable(outcome.model, units, back, d)
    kept = [point.active[::d] // d for point in points]
    square = np.array([point.spread[:p] for point in points])
    sd = np.sqrt(np.einsum("kjab,a,b->kj", square, contrast, contrast, optimize=True))
    coef, intercept = coefficients([point.mean for point in points])
    columns: dict[str, Any] = {
        "gamma": [point.gamma for point in points],
        "chosen": chosen_row([point.gamma for point in points], outcome.gamma),
        "n_selected": [int(may[some[some < p]].sum()) for some in kept],
        "value": [point.value for point in points],
        "score": [point.score for point in points],
        "intercept": intercept,
    }
    refit = None
    if np.isfinite(columns["score"]).any():
        refit, columns["refit_intercept"] = coefficients([point.refit for point in points])
    sd = np.where(may, sd, np.nan)[:, back] / units.scale
    return PathPoints(columns, coef, sd, refit)


def dense_spread(outcome: RowOutcome, p: int) -> _Spread:
    state, model = outcome.fit.state, outcome.model
    # a dropped column: gamma/(s + w), where s < w/1000
    variance, log_variance = 1.0 / state.precision, -np.log(state.precision)
    covariance = state.root @ state.root.T
    variance[state.active] = np.diag(covariance)
    log_variance[state.active] = 2.0 * np.log(np.diag(state.root))
    k = len(state.active) - model.intercept
    mean = np.zeros(p)
    mean[state.active[:k]] = state.mean[:k]
    inside = Posterior(mean, variance[:p], state.active[:k], covariance[:k, :k])
    return _Spread(variance, log_variance, inside)


def source_nats(outcome: RowOutcome, mean: Array, spread: _Spread) -> dict[str, float]:
    """KL of every source in nats; J is the expected loss plus gamma times each."""
    model, state = outcome.model, outcome.fit.state
    scales = model.scales.costs(state.local, state.top)
    log_prior = log_prior_variance(model, scales)
    second = spread.variance + mean**2
    nats = coefficient_kl(state.precision, second, log_prior, spread.log_variance)
    costs = source_costs(model, nats)
    costs = {name: costs[name] for name, columns in model.sources if len(columns)}
    if model.sparse.any():
        costs |= {"local": float(scales.local.sum()), "global": scales.top}
    if model.intercept:
        costs["intercept"] = float(nats[-1])
    likelihood = outcome.fit.likelihood
    if likelihood is not None and likelihood.nuisance is not None:
        costs[likelihood.nuisance] = likelihood.kl
    return costs
