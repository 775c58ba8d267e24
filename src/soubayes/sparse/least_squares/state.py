"""A state on the way of a least-squares solver, and the whole posterior that belongs to it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from soubayes.sparse.least_squares.designs import LeastSquares, Ridge
from soubayes.sparse.least_squares.objective import (
    LeastSquaresModel,
    Noise,
    Value,
    objective_value,
    restricted,
)
from soubayes.sparse.scales.balance import ScaleCosts
from soubayes.sparse.scales.base import Scale
from soubayes.sparse.scales.functions import LAST_STEP

Array = np.ndarray

OUT = 1e9  # precision of a copy, in units of what the data give: as good as infinite
DROPPED = 1e4  # a precision this far above what the data give is a coefficient of zero


class PathState(NamedTuple):
    """What the next step needs."""

    w: Array  # (p,) gamma_j times the prior precision of beta_j, in units of the noise
    active: Array  # sorted indices
    noise: float  # sigma^2
    shape: Array  # (p,) shapes of q(tau_j^2)
    nu: Scale
    refit: bool = False  # dropped columns stay where a higher confidence put them

    @property
    def dropped(self) -> Array:
        """The columns that are not active."""
        out = np.ones(len(self.w), bool)
        out[self.active] = False
        return np.flatnonzero(out)


@dataclass(frozen=True)
class LeastSquaresFit:
    """q(beta) and the noise in standardised units: all that a prediction needs."""

    w: Array
    coef: Array
    variance: Array  # diag(S) / (gamma_j sigma^2)
    selected: Array
    noise: Noise
    model: LeastSquaresModel
    triangle: Array | None = field(default=None, kw_only=True)  # of its `Ridge`, with all columns

    @property
    def effective(self) -> float:
        """sum_j (1 - kappa_j)."""
        return float(np.sum(1.0 - self.w * self.variance))


@dataclass(frozen=True)
class LeastSquaresSolution(LeastSquaresFit):
    """What a solver hands to the estimator: also q of the scales, and J."""

    tau: Scale  # of the sparse columns
    nu: Scale
    value: Value
    history: Array
    n_iter: int
    converged: bool


def assemble(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    history: Array,
    n_iter: int,
    converged: bool,
) -> LeastSquaresSolution:
    """The whole posterior at a state, the dropped columns included."""
    whole = expand(design, model, state, dropped_columns(design, state))
    value, filled = whole.evaluate(model, design.n), whole.filled
    selected = np.zeros(len(filled.w), bool)
    selected[state.active] = True
    return LeastSquaresSolution(
        w=filled.w,
        coef=np.where(selected, filled.ridge.mean, 0.0),
        variance=filled.ridge.variance,
        selected=selected,
        noise=filled.noise,
        model=model,
        tau=whole.tau,
        nu=whole.nu,
        value=value,
        history=history if len(history) else np.array([value.value]),
        n_iter=n_iter,
        converged=converged,
    )


class Filled(NamedTuple):
    """A state with its dropped columns filled in."""

    ridge: Ridge  # of all columns
    w: Array
    noise: Noise
    log_dets: Array
    precision: Array  # (g,) prior precisions, which the scales share between them

    def kept(self, model: LeastSquaresModel, active: Array) -> tuple[Array, Array]:
        """Means and sds of the coefficients: 0 and NaN where they are dropped."""
        coef, sd = np.zeros(len(self.w)), np.full(len(self.w), np.nan)
        coef[active] = self.ridge.mean[active]
        variance = model.confidence * self.noise.variance * self.ridge.variance
        sd[active] = np.sqrt(variance[active])
        return coef, sd

    def evaluate(self, model: LeastSquaresModel, n: float, scales: ScaleCosts) -> Value:
        """J with these scales."""
        return objective_value(model, n, self.ridge, self.w, scales, self.noise, self.log_dets)


class WholeState(NamedTuple):
    """A state with everything that J needs, of all columns."""

    filled: Filled
    tau: Scale
    nu: Scale

    def evaluate(self, model: LeastSquaresModel, n: float) -> Value:
        return self.filled.evaluate(model, n, model.scales.costs(self.tau, self.nu))


def dropped_columns(design: LeastSquares, state: PathState) -> tuple[Array, Array, Array]:
    """The dropped columns with their s and q."""
    dropped = state.dropped
    if not len(dropped):
        return dropped, np.zeros(0), np.zeros(0)
    return dropped, *design.outside(state.active, state.w[state.active], dropped)


def expand(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    outside: tuple[Array, Array, Array],
) -> WholeState:
    """Fill in the dropped columns and the scales."""
    filled = fill(design, model, state, outside)
    return WholeState(filled, *model.scales.split(filled.precision, state.nu))


def settle_together(
    models: Sequence[LeastSquaresModel], states: Sequence[PathState], filled: Sequence[Filled]
) -> tuple[list[PathState], list[ScaleCosts]]:
    """Several states with the scales that belong to them, and what J needs of these scales."""
    scales = models[0].scales._replace(weight=np.stack([points.scales.weight for points in models]))
    first = Scale(*(np.stack(values) for values in zip(*(s.nu for s in states), strict=True)))
    tau, nu = scales.split(np.stack([points.precision for points in filled]), first)
    points = zip(states, models, filled, map(Scale, *tau), map(Scale, *nu), strict=True)
    settled = [
        with_scales(state, m, WholeState(filled_in, *scales_of_point))
        for state, m, filled_in, *scales_of_point in points
    ]
    return settled, scales.costs_of_each(tau, nu)


def fill(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    outside: tuple[Array, Array, Array],
) -> Filled:
    """Fill in the dropped columns (exact up to s_j/w_j, about 1e-9)."""
    active, w, (dropped, s, q) = state.active, state.w.copy(), outside
    mean, variance, log_dets = np.zeros_like(w), np.ones_like(w), np.zeros(len(model.sources))
    rss, k = design.yy, 0.0
    if len(active):
        subset, here = design.take(active), model.take(active)
        inner = subset.ridge(w[active])
        rss, k = inner.rss, float(np.sum(1.0 - w[active] * inner.variance))
        mean[active] = inner.mean
        parts = here.nested(restricted(subset, w[active], inner))
        variance[active] = here.variances(parts) / here.confidence
        log_dets = here.log_determinants(parts)
    if len(dropped):
        there = model.take(dropped)
        if not state.refit:
            goal = goal_of(there, s, q, state.noise, state.nu.mean_inverse, state.shape[dropped])
            w[dropped] = goal if there.copies is None else np.where(there.copies, w[dropped], goal)
        # a dropped column alone beside the active ones: J is exact up to (s/w)^2, here below 1e-8
        mean[dropped], variance[dropped] = q / (s + w[dropped]), 1.0 / (s + w[dropped])
        # every dropped column explains q^2/(s + w) of RSS
        rss -= float(np.sum(q * mean[dropped]))
        log_dets = log_dets + [
            np.log(s + w[dropped])[columns].sum() for _, columns in there.sources
        ]
    sparse = model.sparse
    # d = w/gamma_b, in units of the noise unless the prior is not scaled by it
    precision = w[sparse] / model.confidence[sparse] / (1.0 if model.scaled else state.noise)
    noise = Noise(model.noise.shape + 0.5 * model.noise_degrees(design.n, k), state.noise)
    ridge = Ridge(mean, variance, variance, variance, max(rss, 0.0), float(log_dets.sum()))
    return Filled(ridge, w, noise, log_dets, model.groups.first(precision))


def with_scales(state: PathState, model: LeastSquaresModel, whole: WholeState) -> PathState:
    """The state with the scales that belong to it."""
    shape = state.shape.copy()
    shape[model.sparse] = model.groups.each(whole.tau.shape)
    return state._replace(w=whole.filled.w, shape=shape, nu=whole.nu)


def goal_of(
    model: LeastSquaresModel,
    s: Array,
    q: Array,
    noise: float,
    top: Array,
    shape: Array,
    near: float = LAST_STEP,
) -> Array:
    """Where each coordinate alone would go: the stationary w, or the plain prior's precision.

    The stationary w is derived in docs/development/solver.md; on the way it need only be ``near``.
    """
    gamma, sparse = model.confidence, model.sparse
    limit = gamma * top * (1.0 if model.scaled else noise)
    # the threshold of z^2 = q^2/(sigma^2 s) is gamma_b
    signal = q * q / (noise * gamma)
    if model.all_sparse:
        return model.stationary(s, signal, limit, shape, near)
    # a plain prior N(0, variance): w = gamma sigma^2/variance, whatever the data
    goal = gamma * noise / np.where(sparse, 1.0, model.variance)
    goal[sparse] = model.stationary(s[sparse], signal[sparse], limit[sparse], shape[sparse])
    return goal
