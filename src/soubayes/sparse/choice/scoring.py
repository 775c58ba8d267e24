"""How candidates are judged by what they said about held-out rows: numbers, or two classes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp
from scipy.stats import norm, t

from soubayes.sparse.choice.weights import (
    CLASSES_POWER,
    NUMBERS_POWER,
    inflation,
    pooled,
    power_of_odds,
    predictive_weights,
    relative_error,
    robust_scale,
)

Array = np.ndarray

NINETY = float(norm.ppf(0.95))
DEGREES = 5.0  # of freedom of the t scores
SETTLED = 0.4  # relative standard error of the mean square; 40 normal rows have 0.22


class HeldOut(NamedTuple):
    """What candidates say about held-out rows, (rows,) of one or (rows, candidates) of all."""

    middle: Array  # the mean, or the log odds
    variance: Array  # 0 for classes
    noise: Array  # the part of the variance that is noise, one number a fold

    def take(self, *index: Any) -> "HeldOut":
        """Some rows, targets or candidates."""
        return HeldOut(*(part[index] for part in self))


class Scored(NamedTuple):
    """Out-of-fold predictions of one target, and what follows from them."""

    scores: Array  # (rows, candidates) log scores of the held-out rows, recalibrated
    weights: Array
    inflation: Array  # (candidates,)
    coverage: Array  # (candidates,) of 90 % intervals before recalibration
    recalibrated: Array  # and after
    mean: Array  # (rows,) of the mixture: E[y]
    variance: Array
    point: Array  # (rows,) what its loss is a function of: the mean, or the log odds
    power: float
    settled: bool  # whether further held-out rows would hardly change the recalibration


class Scoring(NamedTuple):
    """How candidates are judged: `NUMBERS`, `FOLD_MOMENTS` or `CLASSES`."""

    score: Callable[[Array, HeldOut, Array, float], Scored]  # the last: see `score_numbers`
    loss: Callable[[Array, Array], Array]  # of rows y at means or log odds
    error: Callable[[float], float]  # from the mean loss
    power: float  # of the scores in the weights
    by_row: bool = True  # whether the rows that are scored are those of the data


def t_scores(off: Array, variance: Array, weight: Array) -> Array:
    """Log densities of Student's t with 5 degrees of freedom, its scale fitted but at least 1.

    A normal score lets one outlier decide between candidates; real tables have outliers.
    """
    z = off / np.sqrt(variance)
    scale = np.maximum(robust_scale(z, weight, DEGREES), 1.0)
    return t.logpdf(z / np.sqrt(scale), DEGREES) - 0.5 * np.log(variance * scale)


def normal_scores(off: Array, variance: Array, weight: Array) -> Array:
    """Normal log densities with inflated variances."""
    return norm.logpdf(off, scale=np.sqrt(variance * _inflations(off, variance, weight)))


def _inflations(off: Array, variance: Array, weight: Array) -> Array:
    """`inflation` of every candidate."""
    return np.array([inflation(off[:, k], variance[:, k], weight) for k in range(off.shape[1])])


def score_numbers(
    y: Array,
    said: HeldOut,
    weight: Array,
    more: float = 1.0,
    density: Callable[[Array, Array, Array], Array] = t_scores,
) -> Scored:
    """Scores after recalibration; the mixture's mean and inflated variance.

    Weights are those that ``more`` times as many held-out rows would give, as all rows would where
    only a part was held out.
    """
    mean, variance, noise = said
    off = y[:, None] - mean
    level = pooled(variance, noise, weight)
    factor = _inflations(off, level, weight)
    settled = relative_error(off**2 / level, weight) <= SETTLED
    wide = variance * factor
    scores = weight[:, None] * density(off, variance, weight)
    w = predictive_weights(scores, more * NUMBERS_POWER)
    middle = mean @ w
    spread = (wide + (mean - middle[:, None]) ** 2) @ w
    before, after = (np.mean(np.abs(off) < NINETY * np.sqrt(v), axis=0) for v in (variance, wide))
    return Scored(scores, w, factor, before, after, middle, spread, middle, 1.0, settled)


def score_moments(y: Array, said: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """The same where only the moments of a fold are known: normal scores, no coverage."""
    found = score_numbers(y, said, weight, more, normal_scores)
    unknown = np.full(len(found.weights), np.nan)
    return found._replace(coverage=unknown, recalibrated=unknown)


def score_classes(y: Array, said: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """Bernoulli log scores; the mixture's probability, its odds raised to the best power."""
    log_odds = said.middle
    signed = np.where(y[:, None] > 0.5, log_odds, -log_odds)
    scores = -weight[:, None] * np.logaddexp(0.0, -signed)
    w = predictive_weights(scores, more * CLASSES_POWER)
    up = logsumexp(-np.logaddexp(0.0, -log_odds), b=w, axis=1)
    mixed = up - logsumexp(-np.logaddexp(0.0, log_odds), b=w, axis=1)
    power = power_of_odds(mixed, y, weight)
    chance = expit(power * mixed)
    none, spread = np.full(len(w), np.nan), chance * (1.0 - chance)
    one = np.ones(len(w))
    return Scored(scores, w, one, none, none, chance, spread, power * mixed, power, True)


def _squares(y: Array, mean: Array) -> Array:
    return (y - mean) ** 2


def _log_loss(y: Array, log_odds: Array) -> Array:
    return np.logaddexp(0.0, np.where(y > 0.5, -log_odds, log_odds))


NUMBERS = Scoring(score_numbers, _squares, np.sqrt, NUMBERS_POWER)
FOLD_MOMENTS = Scoring(score_moments, _squares, np.sqrt, NUMBERS_POWER, by_row=False)
CLASSES = Scoring(score_classes, _log_loss, float, CLASSES_POWER)
