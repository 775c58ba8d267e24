"""The priors of the squared scales: exponential, and half-Cauchy of the scale."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from soubayes.confidence import shown
from soubayes.sparse.scales.base import (
    Scale,
    ScalePrior,
    as_floats,
    delta1,
    delta2,
    newton_root,
    positive_root,
)

Array = np.ndarray


@dataclass(frozen=True)
class Exponential(ScalePrior):
    """x ~ Exp(rate), the paper's prior of tau^2 and nu^2 (paper: lambda_tau, lambda_nu).

    >>> q = Exponential(10.0).fit(0.5, 0.2, 1e-9)
    >>> float(q.shape) // 1e6, round(float(q.ratio), 6)
    (500.0, 0.4)
    """

    rate: float

    least_shape = 1.0  # E[x] is finite

    @property
    def start_precision(self) -> float:
        """1/E[x] under the prior."""
        return self.rate

    def kl(self, q: Scale) -> Array:
        """KL(q(x) || Exp(rate)) in nats.

        >>> round(float(Exponential(1.0).kl(Scale(np.array(3.0), np.array(0.5)))), 4)
        0.3425
        """
        return q.mean_log_density - np.log(self.rate) + self.rate * q.mean

    def kl_slope(self, q: Scale) -> tuple[Array, Array]:
        """First and second derivative of the KL in log(ratio).

        >>> [float(x) for x in Exponential(2.0).kl_slope(Scale(np.array(2.0), np.array(0.25)))]
        [0.0, 1.0]
        """
        pull = self.rate * q.mean
        return pull - 1.0, pull

    def best_ratio(
        self,
        shape: ArrayLike,
        log_weight: ArrayLike,
        inverse_weight: ArrayLike,
        confidence: ArrayLike,
    ) -> Array:
        """The closed form of b in the paper, with the factor a_nu that its b_nu lacks.

        confidence * rate * a/(a-1) * rho^2 + (log_weight - confidence) * rho = inverse_weight.
        """
        a, A, E, gamma = as_floats(shape, log_weight, inverse_weight, confidence)
        return positive_root(gamma * self.rate * (a / (a - 1.0)), A - gamma, E)

    def best_shape(self, ratio: ArrayLike, log_weight: ArrayLike, confidence: ArrayLike) -> Array:
        """The root of dJ/da at this ratio, found in log(a - 1)."""
        rho, A, gamma = as_floats(ratio, log_weight, confidence)
        # dJ/da = 0 with psi'(a) = 1/a + 1/(2a^2) + ...: for large a only these terms are left
        asymptote = A / gamma - 1.0 + 2.0 * self.rate * rho  # off by O(1): exact for such shapes
        if np.min(A / gamma, initial=np.inf) > 1e7 and np.max(rho, initial=0.0) < np.inf:
            return asymptote

        # dJ/da = gamma [delta1(a) (A/gamma - a - 1) - rate rho/(a - 1)^2] (supplement C.4 at fixed
        # b/a): the first term must be positive, so a > A/gamma - 1
        low = np.maximum(A / gamma - 1.0, 1.0)

        def slope(t: Array) -> tuple[Array, Array]:
            more = np.exp(t)
            a = low + more
            d, d1, lift = a - 1.0, delta1(a), A / gamma - low - 1.0 - more
            value = d * d * d1 * lift - self.rate * rho
            change = 2.0 * d * d1 * lift + d * d * (delta2(a) * lift - d1)
            return value, more * change

        weight = float(np.ravel(A / gamma)[0]) if A.size else 1.0
        if A.size and np.all(A / gamma == weight):
            nodes, places = _shape_table(weight)
            t = np.interp(np.log(self.rate * rho), nodes, places)
            value, change = slope(t)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = np.where(change > 0.0, value / change, 0.0)
            return low + np.exp(t - np.clip(step, -0.1, 0.1))
        # a - low is that of the asymptote where A/gamma is large
        pull = np.maximum(2.0 * self.rate * rho, 1e-300)
        start = np.log(np.where(A / gamma > 10.0, pull, np.maximum(A / gamma, 1.0) + pull))
        return low + np.exp(newton_root(slope, start, 80.0))

    def coordinate_step(
        self, q: Scale, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike
    ) -> Scale:
        """The b-step, then the a-step of Algorithm 1: each minimises J with the other held.

        Supplement C.4. With b held a grows by only about 1/2 a call when the confidence is small,
        where `fit` goes to the joint minimum at once.
        """
        held = q.shape * self.best_ratio(q.shape, log_weight, inverse_weight, confidence)
        A, E, gamma, old, b = as_floats(log_weight, inverse_weight, confidence, q.shape, held)

        def slope(t: Array) -> tuple[Array, Array]:
            # (a-1)^2 dJ/da at fixed b, and its derivative in t = log(a - 1);
            # psi'(a)(a + 1) - 1 = 1/a - (a + 1) delta1(a)
            d = np.exp(t)
            a = 1.0 + d
            d1, d2 = delta1(a), delta2(a)
            trigamma, tetragamma = 1.0 / a - d1, -1.0 / (a * a) - d2
            force = E / b - A * trigamma + gamma * (1.0 / a - (a + 1.0) * d1)
            change = gamma * trigamma - (A - gamma * (a + 1.0)) * tetragamma
            return (
                d * d * force - gamma * self.rate * b,
                d * (2.0 * d * force + d * d * change),
            )

        # with b held the root lies about 1/2 above the old shape where the confidence is small
        growth = np.where(gamma < 0.1 * A, 0.5, 0.0)
        start = np.log(old - 1.0 + growth)
        a = 1.0 + np.exp(newton_root(slope, start, 40.0))
        return Scale(a, b / a)


@lru_cache(maxsize=64)
def _shape_table(weight: float) -> tuple[Array, Array]:
    """log(rate * ratio) at which a = max(weight - 1, 1) + exp(t) is best, and t.

    dJ/da = 0 gives the ratio as a function of the shape in closed form; ``weight`` is
    log_weight/confidence. One Newton step from the table is exact to rounding.
    """
    t = np.linspace(-36.0, 40.0, 4001)
    low = max(weight - 1.0, 1.0)
    a = low + np.exp(t)
    value = np.log((a - 1.0) ** 2 * -delta1(a) * (np.exp(t) + (low + 1.0 - weight)))
    keep = np.append(True, np.diff(value) > 0.0)
    return value[keep], t[keep]


@dataclass(frozen=True)
class HalfCauchy(ScalePrior):
    """sqrt(x) ~ C+(0, 1), the horseshoe, as x | w ~ IG(1/2, 1/w), w ~ IG(1/2, 1).

    The auxiliary factor q(w) = IG(1, 1 + E[1/x]) is kept at its optimum, so the KL is that of
    the pair (x, w): log(pi) + E[log q(x)] + 3/2 E[log x] + log(1 + E[1/x]).

    >>> q = HalfCauchy().fit(0.5, 0.2, 1.0)
    >>> round(float(q.shape), 3), round(float(q.ratio), 3)
    (1.0, 0.558)
    """

    @property
    def start_precision(self) -> float:
        """10: the prior has no mean, and a start below its median scale of 1 shrinks more."""
        return 10.0

    def kl(self, q: Scale) -> Array:
        """KL of the pair (x, w) in nats."""
        return q.mean_log_density + np.log(np.pi) + 1.5 * q.mean_log + np.log1p(q.mean_inverse)

    def kl_slope(self, q: Scale) -> tuple[Array, Array]:
        """First and second derivative of the KL in log(ratio)."""
        share = q.ratio / (1.0 + q.ratio)
        return share - 0.5, share * (1.0 - share)

    def best_ratio(
        self,
        shape: ArrayLike,
        log_weight: ArrayLike,
        inverse_weight: ArrayLike,
        confidence: ArrayLike,
    ) -> Array:
        """The positive root of a quadratic, the auxiliary factor profiled out."""
        _, A, E, gamma = as_floats(shape, log_weight, inverse_weight, confidence)
        # A - E/rho + gamma (rho/(1 + rho) - 1/2) = 0, which is dJ/dlog(rho), times rho (1 + rho)
        return positive_root(A + gamma / 2.0, A - gamma / 2.0 - E, E)

    def best_shape(self, ratio: ArrayLike, log_weight: ArrayLike, confidence: ArrayLike) -> Array:
        """a = log_weight/confidence + 1/2, whatever the ratio."""
        _, A, gamma = as_floats(ratio, log_weight, confidence)
        return A / gamma + 0.5

    def fit(self, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike) -> Scale:
        """The joint minimum in closed form."""
        A, E, gamma = as_floats(log_weight, inverse_weight, confidence)
        a = self.best_shape(E, A, gamma)
        return Scale(a, self.best_ratio(a, A, E, gamma))


def make_prior(prior: str | ScalePrior, rate: float) -> ScalePrior:
    """The prior called "exponential" (with this rate) or "horseshoe", or the prior given.

    >>> make_prior("exponential", 10.0)
    Exponential(rate=10.0)
    """
    if isinstance(prior, ScalePrior):
        return prior
    if prior == "exponential":
        return Exponential(rate)
    if prior == "horseshoe":
        return HalfCauchy()
    message = f"prior is {shown(prior)}, but it must be 'exponential', 'horseshoe' or a ScalePrior."
    raise ValueError(message) if isinstance(prior, str) else TypeError(message)
