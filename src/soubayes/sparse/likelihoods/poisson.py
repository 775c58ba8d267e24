"""Counts with mean exp(eta)."""

import numpy as np
from scipy.special import gammaln, pdtr, xlogy

from soubayes.sparse.likelihoods.base import Array, RowLikelihood, RowTerms

LARGEST_COUNT = 2.0**53  # larger floats leave out whole numbers


class Counts(RowLikelihood):
    """What the likelihoods of counts with mean exp(eta) share."""

    whole = True
    lowest = 0.0
    log_link = True

    def predict(self, mean: Array, variance: Array) -> Array:
        """E[exp(eta)]."""
        return np.exp(mean + variance / 2.0)

    def check(self, y: Array) -> Array:
        """Whole numbers of 0 or more."""
        y = super().check(y)
        if (y < 0.0).any():
            raise ValueError(
                f"y has negative values, the least {y.min():.6g}, but counts are whole numbers of "
                "0 or more: remove these rows, or use SoULinearRegression."
            )
        broken = y[y != np.floor(y)]
        if len(broken):
            raise ValueError(
                f"y has values such as {broken[0]:.6g}, but counts are whole numbers: pass the "
                "counts themselves, and what they were divided by as the exposure."
            )
        if (y > LARGEST_COUNT).any():
            raise ValueError(
                f"y has values up to {y.max():.6g}, but float64 tells whole numbers apart up to "
                f"{LARGEST_COUNT:.0e} only: correct them, or fit them as positive numbers by "
                "SoUGammaRegression."
            )
        return y

    def centre(self, mean: float, rows: float) -> float:
        """The logarithm of the mean; if all counts are 0, of half a count in all rows."""
        return float(np.log(max(mean, 0.5 / rows)))


class Poisson(Counts):
    """y is Poisson with mean exp(eta); E[exp(eta)] = exp(m + v/2) for eta ~ N(m, v)."""

    @property
    def residual_variance(self) -> float:
        """2 + the excess kurtosis 1/mu - the squared skewness 1/mu, because the mean is fitted."""
        return 2.0

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """exp(eta) - y eta + log y!, exp(eta) - y, exp(eta)."""
        rate = np.exp(eta)
        return rate - y * eta + gammaln(y + 1.0), rate - y, rate

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """The exact expectation.

        >>> Poisson().terms(np.zeros(1), np.full(1, 2.0), np.ones(1)).score.round(3)  # 1 - e
        array([-1.718])
        """
        rate = np.exp(mean + variance / 2.0)
        return RowTerms(rate - y * mean + gammaln(y + 1.0), y - rate, rate, rate)

    def noise(self, eta: Array) -> Array:
        """exp(eta)."""
        return np.exp(eta)

    def cdf(self, y: Array, eta: Array) -> Array:
        """P(Y <= y)."""
        return np.where(y < 0.0, 0.0, pdtr(np.maximum(np.floor(y), 0.0), np.exp(eta)))

    def deviance(self, y: Array, mean: Array) -> Array:
        """2 [y log(y/mean) - (y - mean)]."""
        return 2.0 * (xlogy(y, y / np.maximum(mean, 1e-300)) - (y - mean))
