"""Hazards: in pieces, for single held-out rows, and cumulative ones from draws, for curves."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from soubayes.sparse.constants import PER_PIECE, PIECES
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.survival.risk_sets import RiskSets

Array = np.ndarray


def within_range(eta: Array) -> Array:
    """Log risks whose exponentials float64 can add up and divide by."""
    return np.clip(eta, -300.0, 300.0)


def relative_risk(eta: Array) -> Array:
    """exp(eta), within these limits."""
    return np.exp(within_range(eta))


class PiecewiseHazard(RowLikelihood):
    """A hazard that is constant between quantiles of the training events; strata have factors.

    The partial likelihood of a held-out row alone is not defined; its density under this hazard is.
    """

    intercept = False

    def __init__(self, edges: Array, log_hazard: Array, log_factor: Array) -> None:
        self.edges, self.log_hazard, self.log_factor = edges, log_hazard, log_factor

    @classmethod
    def of(cls, y: Array, weight: Array, risk: Array) -> "PiecewiseHazard":
        """From rows with these risks E[exp(eta)]: events over exposures, half an event added."""
        events_of_rows = weight * y["event"]
        times = y["stop"][y["event"]]
        pieces = int(np.clip(len(times) // PER_PIECE, 1, PIECES))
        inner = np.unique(np.quantile(times, np.arange(1, pieces) / pieces))
        edges = np.concatenate([[0.0], inner, [np.inf]])
        exposure = _exposures(edges, y) * (weight * risk)[:, None]
        total = exposure.sum(axis=0)
        place = np.searchsorted(edges, y["stop"], side="left") - 1
        events = np.bincount(place, events_of_rows, minlength=len(total))
        prior = 0.5 * total.sum() / max(float(events_of_rows.sum()), 1e-300)
        hazard = (events + 0.5) / (total + prior)
        stratum = y["stratum"]
        expected = np.bincount(stratum, exposure @ hazard)
        factor = (np.bincount(stratum, events_of_rows) + 1.0) / (expected + 1.0)
        if len(factor) == 1:
            factor = np.ones(1)
        return cls(edges, np.log(hazard), np.log(factor))

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """Loss exp(eta) H - event (log h + eta), with its derivatives."""
        # beyond the limits the gain of an event must not grow either: no hazard was fitted there
        flat, eta = y.ravel(), within_range(eta)
        place = np.searchsorted(self.edges, flat["stop"], side="left") - 1
        known = flat["stratum"] < len(self.log_factor)
        factor = np.where(known, self.log_factor[np.where(known, flat["stratum"], 0)], 0.0)
        log_h = (self.log_hazard[place] + factor).reshape(y.shape)
        total = _exposures(self.edges, flat) @ np.exp(self.log_hazard) * np.exp(factor)
        expected = relative_risk(eta) * total.reshape(y.shape)
        return expected - y["event"] * (log_h + eta), expected - y["event"], expected

    def predict(self, mean: Array, variance: Array) -> Array:
        """The log risk."""
        return mean


def _exposures(edges: Array, y: Array) -> Array:
    """(subjects, pieces) time at risk in every piece."""
    stop, start = y["stop"][:, None], np.maximum(y["start"], 0.0)[:, None]
    return np.maximum(np.minimum(stop, edges[1:]) - np.maximum(start, edges[:-1]), 0.0)


DRAWS = 400  # of the coefficients, behind curves and their bands
_CHUNK = 50  # draws at a time
_MOST_TIMES = 1_000  # at which cumulative hazards are kept


@dataclass(frozen=True)
class BaselineDraws:
    """Cumulative baseline hazards of draws of q(beta), at some times of every stratum.

    ``expected`` is E[H_0 | beta] of each draw, and ``drawn`` has increments drawn from q(h | beta).
    The draws of the coefficients themselves follow from ``seed``.
    """

    times: tuple[Array, ...]  # of every stratum, ascending
    expected: tuple[Array, ...]  # (times, draws) each
    drawn: tuple[Array, ...]
    seed: int

    @classmethod
    def of(cls, sets: RiskSets, eta: Array, strata: int, seed: int) -> "BaselineDraws":
        """From predictors (subjects, draws) of the fitted rows."""
        rng = np.random.default_rng(seed)
        gamma, count = sets.prior.confidence, sets.count[:, None]
        parts = [np.flatnonzero(sets.stratum == s) for s in range(strata)]
        ends = [_last_of_each(sets.time[jumps]) for jumps in parts]
        sums: list[list[tuple[Array, Array]]] = [[] for _ in parts]
        for begin in range(0, eta.shape[1], _CHUNK):
            risk = sets.weight[:, None] * relative_risk(eta[:, begin : begin + _CHUNK])
            exposure = sets.sums(risk) + sets.ghost
            expected = count / exposure
            drawn = rng.standard_gamma(np.broadcast_to(count / gamma, exposure.shape))
            drawn *= gamma / exposure
            for sums_of_stratum, jumps, end in zip(sums, parts, ends, strict=True):
                both = np.cumsum(expected[jumps], axis=0)[end], np.cumsum(drawn[jumps], axis=0)[end]
                sums_of_stratum.append(both)
        expected_all, drawn_all = (
            tuple(
                np.concatenate([both[k] for both in sums_of_stratum], axis=1)
                for sums_of_stratum in sums
            )
            for k in (0, 1)
        )
        times = tuple(sets.time[jumps][end] for jumps, end in zip(parts, ends, strict=True))
        return cls(times, expected_all, drawn_all, seed)

    def curves(
        self,
        of: Callable[[Array], Array],
        risks: Iterable[Array],
        stratum: Array,
        times: Array,
        level: float | None,
    ) -> Array:
        """(rows, 1 or 3, times) of a function of the cumulative hazards: mean, lower, upper.

        ``risks`` are blocks of rows with the relative risks of every draw.
        """
        expected = [self.at(times, s, self.expected) for s in range(len(self.times))]
        drawn = [self.at(times, s, self.drawn) for s in range(len(self.times))]
        curves = []
        for s, risk in zip(stratum, (row for block in risks for row in block), strict=True):
            lines = [of(expected[s] * risk).mean(axis=1)]
            if level is not None:
                ends = [0.5 - level / 2.0, 0.5 + level / 2.0]
                lines.extend(np.quantile(of(drawn[s] * risk), ends, axis=1))
            curves.append(lines)
        return np.array(curves)

    def at(self, times: Array, stratum: int, steps: tuple[Array, ...]) -> Array:
        """(times, draws) cumulative hazards of a stratum: 0 before the first event."""
        values = steps[stratum]
        place = np.searchsorted(self.times[stratum], times, side="right")
        return np.concatenate([np.zeros((1, values.shape[1])), values])[place]


def _last_of_each(time: Array) -> Array:
    """The last jump of every distinct time, of ``_MOST_TIMES`` of them where there are more."""
    ends = np.flatnonzero(np.append(np.diff(time) != 0.0, True)[: len(time)])
    if len(ends) > _MOST_TIMES:
        ends = ends[np.unique(np.linspace(0, len(ends) - 1, _MOST_TIMES).astype(int))]
    return ends
