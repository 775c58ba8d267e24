"""J at fixed confidences, minimised over the prior variances: the points between dense and sparse.

The path and Newton solvers expect precisions that run off to infinity. Here every column stays.
With P_j = 1/w_j the prior variance of a column in units of the noise, q(beta) profiled out and
K = I + X P X', the data's share of J is

    gamma_b/2 log|K| + y'K^-1 y/(2 v) + (n/2) log v        (least squares; v held or fitted),

and the scales add gamma_tau KL(q(tau_g^2)) + gamma_nu KL(q(nu^2)). log|K| is concave in P, so its
tangent lies above it, with slopes h_j = x_j' K^-1 x_j. y'K^-1 y is at most m_j^2/P_j plus a
constant, m the posterior mean. With the KL matched by -e log P + c P the minimum is

    P = [ge + sqrt(ge^2 + 2 b m^2/v)] / (2 b),   b = gamma_b h/2 + gamma_tau c,  ge = gamma_tau e.

Such steps are slow in one direction only, the common scale of P and nu, where J has two cheap
derivatives: a Newton step is added there. Steps are lengthened while J falls and taken back when it
rises, so that J is monotone and tens of steps are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from soubayes.sparse.scales import Groups, Scale
from soubayes.sparse.solvers.model import ScaleModel

Array = np.ndarray

REACH = 3.0  # longest step, in majorise-minimise steps
FLAT = 0.05  # slope of J in the common scale, in nats, below which the plain step is enough
STALE = 0.3  # on the way, shapes of q(tau^2) are only renewed when a log ratio moved this far


@dataclass(frozen=True)
class Evidence:
    """The data's share of J at prior variances P of the sparse columns, q(beta) at its best."""

    value: float
    explained: Array  # h_j of the sparse columns
    mean: Array  # posterior means of the sparse columns
    noise: float  # v; 1 where the likelihood has none

    @property
    def slope(self) -> float:
        """The derivative of ``value`` in a common log scale of all P."""
        raise NotImplementedError

    def curvature(self) -> float:
        """The second derivative."""
        raise NotImplementedError


E = TypeVar("E", bound=Evidence)


class Variances(NamedTuple, Generic[E]):
    """Where the solver ended: the prior variances, their scales, and what the data say there."""

    variance: Array  # (groups,) P, one a tau
    local: Scale
    top: Scale
    evidence: E
    value: float  # J up to a constant
    history: list[float]
    converged: bool


class Prior(NamedTuple):
    """The scales' share of J; all sparse columns have one confidence gamma_b."""

    scales: ScaleModel
    groups: Groups
    confidence: float  # gamma_b

    def first(self, P: Array, top: Scale | None) -> tuple[Scale, Scale]:
        """q(tau^2), q(nu^2) that are close to the best for these variances."""
        scales, rho = self.scales, 0.1 if top is None else float(top.ratio)
        a_nu = np.asarray(max(0.5 * scales.weight.sum() / scales.global_confidence, 2.0))
        shape = np.maximum(scales.weight / (2.0 * scales.local_confidence), 2.0)
        held = Scale(shape, self.confidence * P / rho), Scale(a_nu, np.asarray(rho))
        precision = 1.0 / (self.confidence * P)
        for _ in range(6 if top is None else 2):
            held = scales.refresh(precision, held)
        return held

    def value(self, P: Array, local: Scale, top: Scale) -> float:
        """KLs of the scales; gamma_b/2 sum log P is part of the data's gamma_b/2 log|K|."""
        shared = 0.5 * float(self.scales.weight @ np.log(self.confidence * P))
        return self.scales.value(local, top) - shared

    def near(
        self, before: tuple[Scale, Scale], P: Array, rho: float, stale: float
    ) -> tuple[Scale, Scale]:
        """The scales at a trial point, with the shapes of ``before`` unless they are stale."""
        local, top = before
        ratio, scales = self.confidence * P / rho, self.scales
        new = np.asarray(rho)
        if np.max(np.abs(np.log(ratio / local.ratio))) < stale:
            return local.at(ratio), top.at(new)
        weight = scales.weight / 2.0
        a = scales.local_prior.best_shape(ratio, weight, scales.local_confidence)
        a_nu = scales.global_prior.best_shape(new, weight.sum(), scales.global_confidence)
        return Scale(a, ratio), Scale(a_nu, new)


def minimise(
    evidence: Callable[[Array, E | None], E],
    prior: Prior,
    *,
    start: Variances[E] | float | None = None,
    tol: float = 1e-2,
    max_iter: int = 300,
) -> Variances[E]:
    """Minimise J over P; ``evidence(P of the columns, the last evidence)`` is asked once a step.

    It starts from another solution, or from a common variance (None: that of one column in all).
    Converged when two steps in a row, the second one a plain majorise-minimise step, lower J by
    less than ``tol`` nats.
    """
    groups, last = prior.groups, None
    if isinstance(start, Variances):
        P, last, here = start.variance, start.evidence, prior.first(start.variance, start.top)
    else:
        P = np.full(groups.n_groups, 1.0 / len(groups.number) if start is None else start)
        here = prior.first(P, None)
    best: Variances[E] | None = None
    history: list[float] = []
    reach, common, calm, done = 1.0, True, False, False
    for _ in range(max_iter):
        found = evidence(groups.each(P), last)
        value = found.value + prior.value(P, *here)
        if best is None or value <= best.value + 1e-11 * abs(best.value):
            fall = np.inf if best is None else best.value - value
            best, last = Variances(P, *here, found, value, history, False), found
            history.append(value)
            if fall < tol and calm:
                done = True
                break
            calm = fall < tol
            reach = min(1.3 * reach, REACH) if common and not calm else 1.0
            common = not calm
        elif common:  # longer than the plain step: take that
            reach, common = 1.0, False
        else:
            reach *= 0.5
            if reach < 1e-3:  # at the floor of rounding
                done = True
                break
        P, rho = _step(prior, best, reach, common)
        here = prior.near((best.local, best.top), P, rho, STALE if common else 0.0)
    assert best is not None
    return best._replace(converged=done)


def _step(prior: Prior, at: Variances[E], reach: float, common: bool) -> tuple[Array, float]:
    """The next variances and the ratio of q(nu^2)."""
    scales, gamma = prior.scales, prior.scales.local_confidence
    P, found, rho = at.variance, at.evidence, float(at.top.ratio)
    one, two = scales.local_prior.kl_slope(at.local)
    ge = gamma * (two - one)  # -e log P + c P has the KL's first two derivatives in log P
    h = prior.groups.total(found.explained)
    energy = prior.groups.total(found.mean**2) / found.noise
    b = 0.5 * prior.confidence * h + gamma * two / P
    new = np.clip((ge + np.sqrt(ge * ge + 2.0 * b * energy)) / (2.0 * b), 1e-14, 1e12)
    step = np.log(new / P)
    held = at.local.at(prior.confidence * new / rho), at.top
    move = float(np.log(scales.balance(1.0 / (prior.confidence * new), held)[1].ratio / rho))
    if common:
        weight = P * h + 1e-12
        middle, newton = float(weight @ step / weight.sum()), _common_step(prior, at)
        if abs(newton) > abs(middle):
            step, move = step + (newton - middle), move + (newton - middle)
    step, move = np.clip(reach * step, -4.0, 4.0), float(np.clip(reach * move, -4.0, 4.0))
    return P * np.exp(step), rho * float(np.exp(move))


def _common_step(prior: Prior, at: Variances[E]) -> float:
    """Newton's step of the common log scale of all P and of nu; 0 where it would gain nothing."""
    one, two = prior.scales.global_prior.kl_slope(at.top)
    slope = at.evidence.slope + prior.scales.global_confidence * float(one)
    if abs(slope) < FLAT:
        return 0.0
    curvature = at.evidence.curvature() + prior.scales.global_confidence * float(two)
    newton = -slope / curvature if curvature > 1e-12 else -0.5 * float(np.sign(slope))
    return float(np.clip(newton, -1.5, 1.5))
