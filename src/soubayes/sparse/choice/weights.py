"""From out-of-fold scores to weights, and the one recalibration that they allow."""

import numpy as np
from scipy.optimize import minimize_scalar

Array = np.ndarray

TEMPER = 0.25  # power of the likelihood of the held-out rows
LEAST = 1e-3  # weights below this are set to 0


def predictive_weights(scores: Array) -> Array:
    """Weights of candidates from the log scores of held-out rows, (rows, candidates).

    w_k is proportional to exp(c * sum_i log p_k(y_i | the other folds)) with c = 1/4; weights below
    1e-3 are dropped. c = 1 is pseudo-BMA, which takes the scores of n rows for n
    independent pieces of evidence about new rows and is too sure.

    >>> predictive_weights(np.log([[0.5, 0.5, 1e-30]]))
    array([0.5, 0.5, 0. ])
    """
    total = TEMPER * scores.sum(axis=0)
    weights = np.exp(total - total.max())
    weights /= weights.sum()
    weights[weights < LEAST] = 0.0
    return weights / weights.sum()


def inflation(residual: Array, variance: Array, weight: Array | None = None) -> float:
    """What the predictive variances must be multiplied with to fit the held-out rows, at least 1.

    >>> inflation(np.array([2.0, -2.0]), np.ones(2))
    4.0
    """
    return max(1.0, float(np.average(residual**2 / variance, weights=weight)))


def power_of_odds(log_odds: Array, y: Array, weight: Array | None = None) -> float:
    """The a of logit p <- a logit p that predicts the held-out y best, with log a ~ N(0, 1).

    >>> round(power_of_odds(np.array([4.0] * 50), np.array([1.0] * 40 + [0.0] * 10)), 2)
    0.37
    """
    weight = np.ones(len(y)) if weight is None else weight
    signed = np.where(y > 0.5, -log_odds, log_odds)

    def loss(t: float) -> float:
        return float(weight @ np.logaddexp(0.0, np.exp(t) * signed)) + 0.5 * t * t

    return float(np.exp(minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x))
