"""From out-of-fold scores to weights, and the recalibration that they allow."""

import numpy as np
from scipy.optimize import minimize_scalar

Array = np.ndarray

NUMBERS_POWER = 0.25  # of the likelihood of the held-out rows, for regression
CLASSES_POWER = 0.1  # and for classification
LEAST = 1e-3  # weights below this are set to 0


def predictive_weights(scores: Array, power: float = NUMBERS_POWER) -> Array:
    """Weights of candidates from the log scores of held-out rows, (rows, candidates).

    w_k is proportional to exp(power * sum_i log p_k(y_i | the other folds)); weights below 1e-3 are
    dropped. Power 1 is pseudo-BMA, which takes the scores of n rows for n independent pieces of
    evidence about new rows and is too sure.

    >>> predictive_weights(np.log([[0.5, 0.5, 1e-30]]))
    array([0.5, 0.5, 0. ])
    """
    total = power * scores.sum(axis=0)
    weights = np.exp(total - total.max())
    weights /= weights.sum()
    weights[weights < LEAST] = 0.0
    return weights / weights.sum()


def robust_scale(z: Array, weight: Array, degrees: float) -> Array:
    """The squared scale of each column of z that fits Student's t best, by EM.

    >>> z = np.random.default_rng(0).standard_t(5, size=(20_000, 1))
    >>> robust_scale(3.0 * z, np.ones(20_000), 5.0).round(1)
    array([8.9])
    """
    square = z * z
    share = weight / weight.sum()
    scale = np.maximum(share @ square, 1e-300)
    for _ in range(200):
        new = share @ (square * (degrees + 1.0) / (degrees + square / scale))
        new = np.maximum(new, 1e-300)
        moved = np.max(np.abs(np.log(new / scale)))
        scale = new
        if moved < 1e-6:
            break
    return scale


def pooled(variance: Array, noise: Array, weight: Array) -> Array:
    """Predictive variances of held-out rows with the noise of every fold replaced by the mean one.

    An outlier is not in the noise of the fold that holds it out, but it is in that of the fit to
    all rows, which is the one that is recalibrated. The leverage variance/noise stays: for least
    squares residual^2/leverage is what RSS grows by when the row comes in, hence at most the RSS of
    all rows, so that one row adds about 1 to the mean of residual^2/pooled, whatever its size.

    >>> pooled(np.array([2.0, 200.0]), np.array([1.0, 99.0]), np.ones(2)).round(1)
    array([100., 101.])
    """
    level = np.average(noise, axis=0, weights=weight)
    return variance * np.divide(level, noise, out=np.ones_like(variance), where=noise > 0.0)


def inflation(residual: Array, variance: Array, weight: Array | None = None) -> float:
    """What the predictive variances must be multiplied with to fit the held-out rows, at least 1.

    >>> inflation(np.array([2.0, -2.0]), np.ones(2))
    4.0
    """
    return max(1.0, float(np.average(residual**2 / variance, weights=weight)))


def relative_error(square: Array, weight: Array) -> float:
    """The standard error of the mean of squares, relative to that mean; the largest of columns.

    >>> round(relative_error(np.array([[1.0], [1.0], [1.0], [97.0]]), np.ones(4)), 2)
    0.83
    """
    share = weight / weight.sum()
    mean = share @ square
    spread = np.sqrt((share**2) @ (square - mean) ** 2)
    return float(np.max(spread / np.maximum(mean, 1e-300)))


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
