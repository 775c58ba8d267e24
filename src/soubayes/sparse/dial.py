"""The points of the plane (scale prior, confidences) between dense and sparse.

A point is a prior of the local scales, gamma_tau and gamma_b. A large gamma_tau/gamma_b is ridge
regression, a small one lets every tau_j follow the data, and gamma_b is the threshold of z^2. All
points have a half-Cauchy global scale. Neighbours on the dial predict alike: a handful is enough.

`confidence_grid` is where a path in gamma_b stops. `minimise` finds the minimum of J at a point of
the dial over the prior variances.

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
rises, so J is monotone and tens of steps are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from scipy import stats

from soubayes.sparse.constants import N_POINTS
from soubayes.sparse.model import ColumnModel
from soubayes.sparse.scales.balance import Groups, ScaleModel
from soubayes.sparse.scales.base import Scale
from soubayes.sparse.scales.priors import HalfCauchy, make_prior

Array = np.ndarray

AnyModel = TypeVar("AnyModel", bound=ColumnModel)
DIAL_NATS = 0.1  # nats in a step at which a point counts as reached
# rise of J, relative to its size or to 1 nat, that is rounding: whether a step is taken, or another
# solver is tried, must not hang on it, or digits of the result depend on the processor
NO_RISE = 1e-11
SURE = 1e-6  # gamma_b of a point without posterior variance; its predictors have gamma_b held p


def rises(value: float, before: float) -> bool:
    """Whether J is higher than before by more than rounding; NaN is.

    >>> rises(1000.0 + 1e-9, 1000.0), rises(1000.1, 1000.0)
    (False, True)
    """
    return not value <= before + NO_RISE * max(abs(before), 1.0)


class DialPoint(NamedTuple):
    """One point: its name, the prior of the local scales, and two confidences.

    With ``held`` no scale is fitted: every sparse column has the prior variance gamma_b held, so
    the penalty gamma_b/(2 tau^2 nu^2) = 1/(2 held) does not depend on gamma_b, which then only
    says how much of the posterior variance predictions average over.
    """

    name: str
    prior: str
    local: float  # gamma_tau
    coef: float  # gamma_b
    held: float | None = None  # tau^2 nu^2/gamma_b; None: the scales are fitted

    @classmethod
    def sure(cls, held: float) -> "DialPoint":
        """Predictions without posterior variance: gamma_b close to 0 at this penalty.

        >>> DialPoint.sure(0.1).name
        'sure 0.1'
        """
        return cls(f"sure {held:g}", "normal", np.inf, SURE, held)


# the scale of every group by itself, at confidence 1: REML, a little short of 0
EACH_TERM = DialPoint("each term", "exponential", 0.01, 1.0)


def at_point(model: AnyModel, point: DialPoint) -> AnyModel:
    """The model with the priors and confidences of a point in all columns.

    Named blocks with a normal prior keep their pull: a point has one confidence for all columns, so
    their variances change in proportion. So does the intercept where the penalty of all columns is
    held; with hardly any pull, products of its column would round off those of the others.
    """
    prior = "exponential" if point.held else point.prior  # not read where the scales are held
    block = ~model.sparse
    if point.held is None:
        block &= ~model.intercepts
    variance = np.where(block, model.variance * point.coef / model.confidence, model.variance)
    return replace(
        model,
        variance=variance,
        confidence=np.full(len(model.sparse), point.coef),
        local_confidence=np.full(len(model.sparse), point.local),
        local_prior=make_prior(prior, 10.0),
        global_prior=HalfCauchy(),
    )


def confidence_grid(p: int, confidence: float | None, n: float = np.inf) -> Array:
    """Where the path stops: from 1 to max(2, 3 log p), or to the number asked for.

    With p >= n the minimiser at confidence 1 interpolates, for a third of the null columns pass;
    the path then begins where those that pass leave half of the observations to the noise, and
    is continued downwards from there while it keeps fewer than n/3 columns.

    >>> confidence_grid(50, 1.5).round(2)
    array([1.  , 1.11, 1.22, 1.36, 1.5 ])
    """
    end, begin = max(2.0, 3.0 * np.log(max(p, 1))), 1.0
    step = np.log(end) / (N_POINTS - 1)
    if p >= n:
        begin = float(stats.chi2.isf(0.5 * n / p, 3))
        end = max(end, 2.0 * begin)
    end = end if confidence is None else confidence
    n_points = int(np.ceil(abs(np.log(end / begin)) / step - 1e-9)) + 1
    return np.geomspace(begin, end, n_points) if n_points > 1 else np.array([end])


REACH = 3.0  # longest step, in majorise-minimise steps
FLAT = 0.05  # slope of J in the common scale, in nats, below which the plain step is enough
STALE = 0.3  # on the way, shapes of q(tau^2) are only renewed when a log ratio moved this far


def few_rows(left: float) -> float:
    """The share of few rows in the score of a support that leaves so many degrees of freedom.

    A marginal likelihood, or a loss with its expected rise, says how probable these rows are. The
    fit that is reported also has to predict, with what is left to tell noise from signal. With two
    degrees of freedom or fewer a prediction has no finite variance. The share vanishes faster than
    the corrected Akaike term, which would price the many effects of a dense support out.

    >>> [round(24.0 * few_rows(left), 2) for left in (3.0, 6.0, 18.0, 98.0)]
    [24.0, 1.5, 0.09, 0.0]
    """
    return 1.0 / (left - 2.0) ** 2 if left > 2.0 else np.inf


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

    variance: Array  # (groups,) P, one for each tau
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
        # shapes near weight/(2 gamma), where small confidences end; tau^2 nu^2 = gamma_b P
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
        here_evidence = evidence(groups.each(P), last)
        value = here_evidence.value + prior.value(P, *here)
        if best is None or not rises(value, best.value):
            fall = np.inf if best is None else best.value - value
            best, last = Variances(P, *here, here_evidence, value, history, False), here_evidence
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
    P, evidence, rho = at.variance, at.evidence, float(at.top.ratio)
    one, two = scales.local_prior.kl_slope(at.local)
    ge = gamma * (two - one)  # -e log P + c P has the KL's first two derivatives in log P
    h = prior.groups.total(evidence.explained)
    energy = prior.groups.total(evidence.mean**2) / evidence.noise
    b = 0.5 * prior.confidence * h + gamma * two / P
    # the positive root of b P^2 - ge P - energy/2 = 0, the minimum of the majoriser (see above)
    new = np.clip((ge + np.sqrt(ge * ge + 2.0 * b * energy)) / (2.0 * b), 1e-14, 1e12)
    step = np.log(new / P)
    held = at.local.at(prior.confidence * new / rho), at.top
    move = float(np.log(scales.balance(1.0 / (prior.confidence * new), held)[1].ratio / rho))
    if common:
        # columns count by what they explain: a Newton step replaces the common part of the step
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
