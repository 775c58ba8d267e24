"""The normal likelihood: q(sigma^2), its prior, and how the noise is estimated.

Its loss is quadratic, so the rows enter only through X'X, X'y and y'y (`designs`) and no pass over
them is needed after the first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from soubayes.sparse.scales.gamma_functions import log_minus_psi


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
