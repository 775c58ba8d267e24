"""A hazard in pieces, which scores single held-out rows."""

import numpy as np

from soubayes.sparse.likelihoods.base import RowLikelihood

Array = np.ndarray

_PIECES = 10  # of the hazard
_PER_PIECE = 10  # events, at least


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
        own = weight * y["event"]
        times = y["stop"][y["event"]]
        pieces = int(np.clip(len(times) // _PER_PIECE, 1, _PIECES))
        inner = np.unique(np.quantile(times, np.arange(1, pieces) / pieces))
        edges = np.concatenate([[0.0], inner, [np.inf]])
        exposure = _exposures(edges, y) * (weight * risk)[:, None]
        total = exposure.sum(axis=0)
        place = np.searchsorted(edges, y["stop"], side="left") - 1
        events = np.bincount(place, own, minlength=len(total))
        prior = 0.5 * total.sum() / max(float(own.sum()), 1e-300)
        hazard = (events + 0.5) / (total + prior)
        stratum = y["stratum"]
        expected = np.bincount(stratum, exposure @ hazard)
        factor = (np.bincount(stratum, own) + 1.0) / (expected + 1.0)
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
