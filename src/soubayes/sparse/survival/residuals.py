"""Scaled Schoenfeld residuals: do the effects of columns change with time?"""

from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, rankdata

from soubayes.sparse.survival.measures import KaplanMeier
from soubayes.sparse.survival.partial import PartialLoss
from soubayes.sparse.survival.risk_sets import RiskSets

Array = np.ndarray

CLOCKS = ("km", "rank", "log", "identity")


class Schoenfeld(NamedTuple):
    """One row for each event: its time, and the coefficients that it speaks for."""

    time: Array  # (d,)
    clock: Array  # (d,) the time as the tests see it
    scaled: Array  # (d, k)
    variance: Array  # (k,) of the coefficients


def schoenfeld(sets: RiskSets, X: Array, coef: Array, clock: str) -> Schoenfeld:
    """Residuals of columns X with these coefficients.

    The residual of an event is its x minus the mean of its risk set. Times the inverse information
    of an average event, and plus the coefficients, its mean at time t is about beta(t)
    (Grambsch and Therneau 1994).
    """
    at = PartialLoss.at(sets, X @ coef)
    dead, mean = sets.by_event(at.means(X))
    off = X[dead] - mean
    V = np.linalg.pinv(at.curvature(X), hermitian=True)
    time = sets.y["stop"][dead]
    scaled = len(dead) * off @ V + coef
    return Schoenfeld(time, _clock(sets, time, clock), scaled, np.diag(V).copy())


def _clock(sets: RiskSets, time: Array, clock: str) -> Array:
    if clock == "km":
        return 1.0 - KaplanMeier.of(sets.y, sets.weight).at(time, before=True)
    if clock == "rank":
        return rankdata(time)
    return np.log(time) if clock == "log" else time


def time_trends(found: Schoenfeld, coef: Array) -> tuple[Array, Array, Array]:
    """Of every column: correlation of its residuals with the clock, chi-square of it, p-value."""
    g = found.clock - found.clock.mean()
    off = found.scaled - coef
    d, square = len(g), float(g @ g)
    slope = g @ off
    with np.errstate(invalid="ignore", divide="ignore"):
        statistic = slope**2 / (d * found.variance * square)
        rho = slope / np.sqrt(square * ((off - off.mean(axis=0)) ** 2).sum(axis=0))
    return rho, statistic, chi2.sf(statistic, 1)
