"""How well survival is predicted: concordance and Brier score; whether effects change with time."""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2, rankdata

from soubayes.sparse.survival.risk_sets import PartialLoss, RiskSets

Array = np.ndarray

CLOCKS = ("km", "rank", "log", "identity")


def concordance(y: Array, risk: Array) -> float:
    """Harrell's C: how often the subject with the earlier event has the higher risk.

    Pairs are of one stratum: a subject with an event, and one that is at risk after that time (or
    censored at it). Equal risks count one half.

    >>> from soubayes.sparse.survival.risk_sets import subjects
    >>> y = subjects(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    >>> concordance(y, np.array([0.5, 0.9, 0.1]))
    0.6666666666666666
    """
    right, pairs = 0.0, 0
    for stratum in np.unique(y["stratum"]):
        inside = y["stratum"] == stratum
        more, count = _concordant(y[inside], np.asarray(risk, float)[inside])
        right, pairs = right + more, pairs + count
    if not pairs:
        raise ValueError("no two rows of y can be compared: there is no event before another time.")
    return right / pairs


def _concordant(y: Array, risk: Array) -> tuple[float, int]:
    """Concordant pairs and all pairs; risks of those still at risk are kept sorted."""
    stop = np.lexsort((y["event"], -y["stop"]))  # late times first, censored before events
    start = np.argsort(-y["start"], kind="stable")
    held: list[float] = []
    right, pairs, gone, i = 0.0, 0, 0, 0
    while i < len(stop):
        t, j = y["stop"][stop[i]], i
        while j < len(stop) and y["stop"][stop[j]] == t:
            j += 1
        here = stop[i:j]
        for row in here[~y["event"][here]]:
            insort(held, float(risk[row]))
        while gone < len(start) and y["start"][start[gone]] >= t:
            del held[bisect_left(held, float(risk[start[gone]]))]
            gone += 1
        dead = here[y["event"][here]]
        for row in dead:
            low, high = bisect_left(held, float(risk[row])), bisect_right(held, float(risk[row]))
            right += low + 0.5 * (high - low)
            pairs += len(held)
        for row in dead:
            insort(held, float(risk[row]))
        i = j
    return right, pairs


@dataclass(frozen=True)
class KaplanMeier:
    """A survival curve in steps."""

    times: Array
    survival: Array

    @classmethod
    def of(cls, y: Array, weight: Array, censoring: bool = False) -> "KaplanMeier":
        """Of the events, or of the censoring: who has an event leaves before who is censored."""
        y = y.copy()
        y["stratum"] = 0
        if censoring:
            y["stop"] = np.where(y["event"], np.nextafter(y["stop"], -np.inf), y["stop"])
            y["event"] = ~y["event"]
        sets = RiskSets.of(y, weight, "breslow")
        risk = np.maximum(sets.sums(weight), 1e-300)
        return cls(sets.time, np.cumprod(1.0 - sets.deaths / risk))

    def at(self, times: Array, before: bool = False) -> Array:
        """S(t), or S(t-)."""
        place = np.searchsorted(self.times, times, side="left" if before else "right")
        return np.append(1.0, self.survival)[place]


def brier_scores(y: Array, survival: Array, times: Array, censoring: KaplanMeier) -> Array:
    """The Brier score at every time, weighted by the inverse probability of not being censored.

    ``survival`` is (rows, times).
    """
    stop, event = y["stop"][:, None], y["event"][:, None]
    not_censored = np.maximum(censoring.at(y["stop"], before=True), 1e-12)[:, None]
    later = np.maximum(censoring.at(times), 1e-12)
    past = (stop <= times) & event
    square = np.where(past, survival**2 / not_censored, 0.0)
    square += np.where(stop > times, (1.0 - survival) ** 2 / later, 0.0)
    return square.mean(axis=0)


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
