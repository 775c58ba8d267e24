"""What a mixture of fits says about new y: mean, variance, density and quantiles.

Every component has a likelihood with its own nuisance parameters, and normal predictors.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from soubayes.sparse.glm.likelihood import RowLikelihood

Array = np.ndarray

BISECTIONS = 60  # of a bracket: to the last digits of a number
DOUBLINGS = 200  # of a bracket's width before it is given up


class Predictive(NamedTuple):
    """Mixture of components, (components, rows) means and variances of their predictors."""

    likelihoods: Sequence[RowLikelihood]
    weights: Array
    means: Array
    variances: Array
    widen: float = 1.0  # of the variance: recalibration, not part of the density

    def mean(self) -> Array:
        """E[y] of every row."""
        return self.weights @ self._means()

    def variance(self) -> Array:
        """Var[y]: within plus between components."""
        parts = zip(self.likelihoods, self.means, self.variances, strict=True)
        inside = np.stack([one.predict_variance(m, v) for one, m, v in parts])
        means = self._means()
        return self.widen * (self.weights @ (inside + (means - self.weights @ means) ** 2))

    def log_density(self, y: Array) -> Array:
        """log p(y) of every row."""
        parts = zip(self.likelihoods, self.means, self.variances, strict=True)
        each = np.stack([one.log_density(m, v, y) for one, m, v in parts])
        return logsumexp(each, b=self.weights[:, None], axis=0)

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) of every row."""
        parts = zip(self.likelihoods, self.means, self.variances, strict=True)
        return self.weights @ np.stack([one.predict_cdf(y, m, v) for one, m, v in parts])

    def quantile(self, level: float) -> Array:
        """The least y with P(Y <= y) >= ``level``: a whole number where y is one."""
        first = self.likelihoods[0]
        centre, width = self.mean(), np.sqrt(self.variance()) + 1.0
        low = np.full_like(centre, first.lowest - first.whole)
        if np.isinf(first.lowest):
            low = self._bracket(centre, -width, lambda y: self.cdf(y) >= level)
        high = self._bracket(centre, width, lambda y: self.cdf(y) < level)
        if first.whole:
            low, high = np.floor(low), np.ceil(high)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            middle = np.floor(middle) if first.whole else middle
            short = self.cdf(middle) < level
            low, high = np.where(short, middle, low), np.where(short, high, middle)
            if (high - low <= (1.0 if first.whole else 1e-15 * np.abs(high))).all():
                break
        if self.widen == 1.0:
            return high
        wide = np.maximum(centre + np.sqrt(self.widen) * (high - centre), first.lowest)
        return np.round(wide) if first.whole else wide

    def _bracket(self, centre: Array, width: Array, beyond: Callable[[Array], Array]) -> Array:
        """An end of a bracket: farther out while the quantile lies ``beyond``."""
        for _ in range(DOUBLINGS):
            more = beyond(centre + width)
            if not more.any():
                break
            width = np.where(more, 2.0 * width, width)
        return centre + width

    def _means(self) -> Array:
        parts = zip(self.likelihoods, self.means, self.variances, strict=True)
        return np.stack([one.predict(m, v) for one, m, v in parts])
