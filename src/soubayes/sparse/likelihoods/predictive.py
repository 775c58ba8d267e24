"""What a mixture of fits says about new y: mean, variance, density and quantiles."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from soubayes.sparse.choice.scoring import spread_density
from soubayes.sparse.likelihoods.base import RowLikelihood

Array = np.ndarray

BISECTIONS = 60  # of a bracket: to the last digits of a number
SOME_ROWS = 1000  # of a fold by which predictions are recalibrated
UNSURE = 5.0  # sd of a mean, relative to it, from which standard deviations say little
DOUBLINGS = 200  # of a bracket's width before it is given up


class Predictive(NamedTuple):
    """Mixture of components, (components, rows) means and variances of their predictors."""

    likelihoods: Sequence[RowLikelihood]  # one for each component, with its nuisance parameters
    weights: Array
    means: Array
    variances: Array
    widen: float = 1.0  # recalibration of the variance; its root is the spread of normal scores

    def each(self, of: Callable[[Any, Array, Array], Array]) -> Array:
        """``of(likelihood, means, variances)`` of every component, (components, rows, ...)."""
        parts = zip(self.likelihoods, self.means, self.variances, strict=True)
        return np.stack([of(likelihood, m, v) for likelihood, m, v in parts])

    def average(self, of: Callable[[Any, Array, Array], Array]) -> Array:
        """The same, averaged over the components."""
        return np.tensordot(self.weights, self.each(of), axes=1)

    def mean(self) -> Array:
        """E[y] of every row."""
        return self.average(lambda one, m, v: one.predict(m, v))

    def variance(self) -> Array:
        """Var[y]: within plus between components."""
        inside = self.each(lambda one, m, v: one.predict_variance(m, v))
        means = self.each(lambda one, m, v: one.predict(m, v))
        return self.widen * (self.weights @ (inside + (means - self.weights @ means) ** 2))

    def unsure(self) -> Array:
        """Rows of a logarithmic link whose mean has a posterior sd above `UNSURE` times itself.

        There the moments of y are those of the far tail of a lognormal distribution.
        """
        b = self.weights[:, None]
        second = logsumexp(2.0 * self.means + 2.0 * self.variances, b=b, axis=0)
        first = logsumexp(self.means + 0.5 * self.variances, b=b, axis=0)
        return second - 2.0 * first > np.log(1.0 + UNSURE**2)

    def log_density(self, y: Array) -> Array:
        """log p(y) of every row."""
        log_densities = self.each(lambda one, m, v: one.log_density(m, v, y))
        density = logsumexp(log_densities, b=self.weights[:, None], axis=0)
        if self.widen == 1.0:
            return density
        whole = self.likelihoods[0].whole
        return spread_density(density, self.cdf(y), np.sqrt(self.widen), whole)

    def cdf(self, y: Array) -> Array:
        """P(Y <= y) of every row, before recalibration."""
        return self.average(lambda one, m, v: one.predict_cdf(y, m, v))

    def rough_cdf(self, y: Array) -> Array:
        """The same by three nodes, of at most `SOME_ROWS` rows: enough to recalibrate by.

        They are far apart, because tables are often sorted; the others are NaN.
        """
        below, some = np.full(len(y), np.nan), slice(None, None, 1 + len(y) // SOME_ROWS)
        subset = self._replace(means=self.means[:, some], variances=self.variances[:, some])
        below[some] = subset.average(lambda one, m, v: one._rough_cdf(y[some], m, v))
        return below

    def quantile(self, level: float) -> Array:
        """The least y with P(Y <= y) >= ``level``: a whole number where y is one."""
        level = float(ndtr(np.sqrt(self.widen) * ndtri(level)))
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
        return high

    def _bracket(self, centre: Array, width: Array, beyond: Callable[[Array], Array]) -> Array:
        """An end of a bracket: farther out while the quantile lies ``beyond``."""
        for _ in range(DOUBLINGS):
            more = beyond(centre + width)
            if not more.any():
                break
            width = np.where(more, 2.0 * width, width)
        return centre + width
