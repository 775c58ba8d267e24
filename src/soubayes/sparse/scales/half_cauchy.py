"""Half-Cauchy priors of scales: the horseshoe."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from soubayes.sparse.scales.base import Scale, ScalePrior, as_floats, positive_root

Array = np.ndarray


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
