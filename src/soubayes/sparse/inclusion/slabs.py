"""The prior of an effect that is there, shared by all columns."""

from dataclasses import dataclass

import numpy as np

from soubayes.sparse.inclusion.field import ColumnEvidence

Array = np.ndarray

GRID = 4.0 ** np.arange(1, 17)  # information times variance of the slab's components
CENTRE, WIDTH = np.log(64.0), 1.4  # of log(information x variance) before data
PULL = 1.0  # effects' worth of weight that these have


@dataclass(frozen=True)
class Slab:
    """The prior of an effect that is there, shared by all: sum_m weight_m N(0, variance_m).

    Variances are in units of the noise, for a standardised column.
    """

    variance: Array
    weight: Array

    def log_bayes_factors(self, evidence: ColumnEvidence, degrees: float) -> Array:
        """log of weight_m p(y | effect in column j of variance m)/p(y | no effect), (p, m).

        An unknown noise is integrated out under the prior 1/sigma^2.
        """
        s, q, V = evidence.s[:, None], evidence.q[:, None], self.variance
        spread = 1.0 + V * s
        fall = V * q * q / spread
        occam = np.log(self.weight) - 0.5 * np.log(spread)
        if np.isinf(degrees):
            return occam + 0.5 * fall
        share = np.minimum(fall / evidence.rest, 1.0 - 1e-12)
        return occam - 0.5 * degrees * np.log1p(-share)


def default_slab(n: float, widest: float = np.inf) -> Slab:
    """The slab before data, of variances up to ``widest``."""
    return log_normal_slab(n, np.zeros(max(int(np.sum(GRID / n <= widest)), 1)))


def log_normal_slab(n: float, counts: Array) -> Slab:
    """log V ~ N(m, v) on a grid, m and v from the expected counts of effects at each point.

    A slab of one peak: a second one at small variances would take null columns for effects.
    """
    at, total = np.log(GRID[: len(counts)]), PULL + counts.sum()
    m = (PULL * CENTRE + counts @ at) / total
    v = (PULL * (WIDTH**2 + (CENTRE - m) ** 2) + counts @ (at - m) ** 2) / total
    weight = np.exp(-0.5 * (at - m) ** 2 / v) + 1e-12
    return Slab(GRID[: len(counts)] / n, weight / weight.sum())
