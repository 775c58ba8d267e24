"""Mixtures: normal components of every row, and weights by held-out rows (stacking)."""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

_HALVINGS, _STEPS_OF_EM = 60, 2000


class NormalMixture(NamedTuple):
    """Normal components of the predictive distribution of every row."""

    mean: np.ndarray  # (components, rows) or (components, rows, outputs)
    variance: np.ndarray  # likewise
    weight: np.ndarray  # (components,), with sum 1

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y) of every row; the outputs of a component are independent."""
        squares = (y - self.mean) ** 2 / self.variance
        logs = -(squares + np.log(2 * np.pi * self.variance)) / 2
        logs = logs.reshape(*logs.shape[:2], -1).sum(axis=2)
        return logsumexp(logs, axis=0, b=self.weight[:, None])

    def quantile(self, level: float) -> np.ndarray:
        """The quantile of every row and output, by bisection."""
        sd = np.sqrt(self.variance)
        low, high = (self.mean - 40 * sd).min(axis=0), (self.mean + 40 * sd).max(axis=0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = np.tensordot(self.weight, ndtr((middle - self.mean) / sd), 1) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


def interval_tails(coverage: float) -> tuple[float, float]:
    """The levels of the two ends of a central interval.

    >>> interval_tails(0.5)
    (0.25, 0.75)
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage is {coverage}, but it must be between 0 and 1.")
    return (1 - coverage) / 2, (1 + coverage) / 2


def stacking_weights(log_density: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mixture weights of the largest log score, given log p_k(y_i) and weights of the rows.

    The score is concave in the weights; expectation–maximisation climbs it.

    >>> stacking_weights(np.log([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]]), np.ones(3)).round(3)
    array([0.708, 0.292])
    """
    density = np.exp(log_density - log_density.max(axis=0))
    weights = np.full(len(density), 1 / len(density))
    for _ in range(_STEPS_OF_EM):
        share = weights[:, None] * density
        weights = (share / share.sum(axis=0)) @ counted / counted.sum()
    return weights
