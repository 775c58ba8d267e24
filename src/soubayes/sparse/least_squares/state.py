"""The model of least squares, J block by block (supplement C.4.1-C.4.2), q on a solver's way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from soubayes.sparse.least_squares.designs import LeastSquares, Ridge
from soubayes.sparse.model import ColumnModel, coefficient_kl, log_prior_variance, source_costs
from soubayes.sparse.scales.balance import ScaleCosts
from soubayes.sparse.scales.base import LAST_STEP, Scale, log_minus_psi

Array = np.ndarray

OUT = 1e9  # precision of a copy, in units of what the data give: as good as infinite
DROPPED = 1e4  # a precision this far above what the data give is a coefficient of zero


class Noise(NamedTuple):
    """q(sigma^2) = Inv-Gamma(shape, shape * variance); variance is 1/E[1/sigma^2]."""

    shape: float
    variance: float

    @property
    def mean_log(self) -> float:
        """E[log sigma^2]."""
        return float(np.log(self.variance) + log_minus_psi(self.shape))


@dataclass(frozen=True)
class NoisePrior:
    """sigma^2 ~ Inv-Gamma(shape, scale), with its confidence gamma_s."""

    shape: float
    scale: float
    confidence: float = 1.0

    def kl(self, q: Noise) -> float:
        """KL(q(sigma^2) || prior) in nats.

        >>> round(NoisePrior(3.0, 2.0).kl(Noise(3.0, 2.0 / 3.0)), 12)
        0.0
        """
        a, b = q.shape, q.shape * q.variance
        a0, b0 = self.shape, self.scale
        return float(
            a0 * np.log(b / b0) - gammaln(a) + gammaln(a0) + (a - a0) * psi(a) + (b0 - b) * a / b
        )

    def estimate(self, rss: float, degrees: float) -> float:
        """sigma^2 at confidence 1, from the residuals and what is left of n."""
        return (2.0 * self.scale + rss) / (2.0 * self.shape + degrees)


@dataclass(frozen=True)
class LeastSquaresModel(ColumnModel):
    """Coefficients, noise and intercept of normal means and linear regression.

    If ``scaled`` the prior of beta_j is multiplied by sigma^2 (linear regression).
    """

    noise: NoisePrior
    scaled: bool = True
    intercept_variance: float | None = None  # None: no intercept
    intercept_confidence: float = 1.0  # gamma_alpha
    searched: float = 0.0  # degrees of freedom that the choice of the support has used up

    def noise_degrees(self, n: float, k: float) -> float:
        """What is left of n for the noise after k effective parameters (and an intercept)."""
        left = max(n - k - (self.intercept_variance is not None), 0.0)
        return max(left - self.searched, 0.5 * left)

    def noise_estimate(self, n: float, rss: float, k: float) -> float:
        """The unit-confidence estimate of sigma^2; an intercept costs one observation."""
        return self.noise.estimate(rss, self.noise_degrees(n, k))

    def intercept_spread(self, n: float, noise: float) -> float:
        """s_alpha^2, the variance of the intercept at the mean of X (supplement C.4.2)."""
        if self.intercept_variance is None:
            return 0.0
        return 1.0 / (n / (self.intercept_confidence * noise) + 1.0 / self.intercept_variance)


class Value(NamedTuple):
    """J, the expected loss and what each block cost in nats."""

    value: float
    expected_loss: float
    kl: dict[str, float]


def objective_value(
    model: LeastSquaresModel,
    n: float,
    ridge: Ridge,
    w: Array,
    scales: ScaleCosts,
    noise: Noise,
    log_dets: Array,
) -> Value:
    """J = E[loss] + sum_k gamma_k KL_k at q(beta) = N(m, S) with S the best for precisions w.

    With A = X'X + diag(w) and w_j = gamma_j u_j, the conditional covariance of each source is
    gamma_k sigma^2 times the inverse of its Schur complement in A (``log_dets``: their log
    determinants, a source each), so tr(A S) = sigma^2 sum_j gamma_j.
    """
    gamma, v = model.confidence, noise.variance
    kappa = w * ridge.variance
    # E|y - X beta|^2 = RSS + tr(X'X S), and tr(X'X S) = v sum_j gamma_j (1 - kappa_j)
    loss = 0.5 * n * (np.log(2.0 * np.pi) + noise.mean_log)
    loss += 0.5 * (ridge.rss / v + float(gamma @ (1.0 - kappa)))
    log_prior = log_prior_variance(model, scales)
    if model.scaled:
        log_prior = log_prior + np.where(model.sparse, noise.mean_log, 0.0)
    # E[beta_j^2]; supplement C.4.2 with the prior precision w/(gamma v)
    second = gamma * v * ridge.variance + ridge.mean**2
    nats = coefficient_kl(w / (gamma * v), second, log_prior, np.log(gamma * v))
    costs = source_costs(model, nats)
    total = 0.0
    for (name, columns), log_det in zip(model.sources, log_dets, strict=True):
        costs[name] += 0.5 * float(log_det)
        total += float(gamma[columns[0]]) * costs[name] if len(columns) else 0.0
    costs |= {"local": float(scales.local.sum()), "global": scales.top}
    costs["noise"] = model.noise.kl(noise)
    total += float(model.scales.local_confidence @ scales.local)
    total += model.global_confidence * scales.top
    total += model.noise.confidence * costs["noise"]
    if model.intercept_variance is not None:
        spread = model.intercept_spread(n, v)
        loss += 0.5 * n * spread / v
        # KL(N(0, s^2) || N(0, s_0^2)): its mean is that of y, where the prior is centred
        ratio = spread / model.intercept_variance
        costs["intercept"] = float(0.5 * (ratio - np.log(ratio) - 1.0))
        total += model.intercept_confidence * costs["intercept"]
    return Value(float(loss + total), float(loss), costs)


def restricted(design: LeastSquares, w: Array, whole: Ridge) -> Callable[[Array], Ridge]:
    """The posterior of some columns alone, that of all of them already known."""
    return lambda tail: whole if len(tail) == len(w) else design.take(tail).ridge(w[tail])


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
