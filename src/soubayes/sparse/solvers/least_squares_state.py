"""A state on the way of a least-squares solver, and the whole posterior that belongs to it."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from soubayes.sparse.designs.base import LeastSquares, Ridge
from soubayes.sparse.likelihoods.gaussian import Noise
from soubayes.sparse.scales import Scale
from soubayes.sparse.solvers import ordered
from soubayes.sparse.solvers.objective import LeastSquaresModel, Value, evaluate

Array = np.ndarray


@dataclass(frozen=True)
class PathState:
    """What the next step needs."""

    w: Array  # (p,) gamma_j times the prior precision of beta_j, in units of the noise
    active: Array  # sorted indices
    noise: float  # sigma^2
    shape: Array  # (p,) shapes of q(tau_j^2)
    nu: Scale
    refit: bool = False  # dropped columns stay where a higher confidence put them


@dataclass(frozen=True)
class LeastSquaresFit:
    """q(beta) and the noise in standardised units: all that a prediction needs."""

    w: Array
    coef: Array
    variance: Array  # diag(S) / (gamma_j sigma^2)
    selected: Array
    noise: Noise
    model: LeastSquaresModel

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
    value = whole.evaluate(model, design.n)
    selected = np.zeros(len(whole.w), bool)
    selected[state.active] = True
    return LeastSquaresSolution(
        w=whole.w,
        coef=np.where(selected, whole.ridge.mean, 0.0),
        variance=whole.ridge.variance,
        selected=selected,
        noise=whole.noise,
        model=model,
        tau=whole.tau,
        nu=whole.nu,
        value=value,
        history=history if len(history) else np.array([value.value]),
        n_iter=n_iter,
        converged=converged,
    )


class WholeState(NamedTuple):
    """A state with everything that J needs, of all columns."""

    ridge: Ridge
    w: Array
    tau: Scale
    nu: Scale
    noise: Noise
    log_dets: Array

    def evaluate(self, model: LeastSquaresModel, n: float) -> Value:
        return evaluate(model, n, self.ridge, self.w, self.tau, self.nu, self.noise, self.log_dets)


def dropped_columns(design: LeastSquares, state: PathState) -> tuple[Array, Array, Array]:
    """The dropped columns with their s and q."""
    dropped = np.setdiff1d(np.arange(len(state.w)), state.active, assume_unique=True)
    if not len(dropped):
        return dropped, np.zeros(0), np.zeros(0)
    return dropped, *design.outside(state.active, state.w[state.active], dropped)


def expand(
    design: LeastSquares,
    model: LeastSquaresModel,
    state: PathState,
    outside: tuple[Array, Array, Array],
) -> WholeState:
    """Fill in the dropped columns (exact up to s_j/w_j, about 1e-9) and the scales."""
    active, w, (dropped, s, q) = state.active, state.w.copy(), outside
    mean, variance, log_dets = np.zeros_like(w), np.ones_like(w), np.zeros(len(model.sources))
    rss, k = design.yy, 0.0
    if len(active):
        part, here = design.take(active), model.take(active)
        inner = part.ridge(w[active])
        rss, k = inner.rss, float(np.sum(1.0 - w[active] * inner.variance))
        mean[active] = inner.mean
        parts = ordered.nested(here, ordered.restricted(part, w[active], inner))
        variance[active] = ordered.variances(here, parts) / here.confidence
        log_dets = ordered.log_determinants(here, parts)
    if len(dropped):
        there = model.take(dropped)
        if not state.refit:
            w[dropped] = goal_of(
                there, s, q, state.noise, state.nu.mean_inverse, state.shape[dropped]
            )
        mean[dropped], variance[dropped] = q / (s + w[dropped]), 1.0 / (s + w[dropped])
        rss -= float(np.sum(q * mean[dropped]))
        log_dets = log_dets + [np.log(s + w[dropped])[own].sum() for _, own in there.sources]
    sparse = model.sparse
    precision = w[sparse] / model.confidence[sparse] / (1.0 if model.scaled else state.noise)
    tau, nu = model.scales.split(model.groups.first(precision), state.nu)
    noise = Noise(model.noise.shape + 0.5 * model.noise_degrees(design.n, k), state.noise)
    ridge = Ridge(mean, variance, variance, variance, max(rss, 0.0), float(log_dets.sum()))
    return WholeState(ridge, w, tau, nu, noise, log_dets)


def settle(state: PathState, model: LeastSquaresModel, whole: WholeState) -> PathState:
    """The state with the scales that belong to it."""
    shape = state.shape.copy()
    shape[model.sparse] = model.groups.each(whole.tau.shape)
    return replace(state, w=whole.w, shape=shape, nu=whole.nu)


def goal_of(
    model: LeastSquaresModel, s: Array, q: Array, noise: float, top: Array, shape: Array
) -> Array:
    """Where each coordinate alone would go: note 2's root, or the plain prior's precision."""
    gamma, sparse = model.confidence, model.sparse
    limit = gamma * top * (1.0 if model.scaled else noise)
    signal = q * q / (noise * gamma)
    if model.all_sparse:
        return model.stationary(s, signal, limit, shape)
    goal = gamma * noise / np.where(sparse, 1.0, model.variance)
    goal[sparse] = model.stationary(s[sparse], signal[sparse], limit[sparse], shape[sparse])
    return goal
