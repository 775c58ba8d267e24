"""How candidates are judged by held-out rows: scores, weights, recalibration."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp, ndtr, ndtri, xlogy
from scipy.stats import norm, t

from soubayes.levels import LEVEL
from soubayes.sparse.posterior import Mixture

Array = np.ndarray

NUMBERS_POWER = 0.25  # of the likelihood of the held-out rows, for regression
CLASSES_POWER = 0.1  # and for classification
FARTHEST = 8.0  # normal score beyond which a distribution function is 0 or 1 to all digits
LEAST_CHANCE = 1e-9  # of a difference of two distribution functions that has digits
NO_CHANCE = 2e-15  # rounding of sums of probabilities: closer to 0 or 1 they are 0 or 1
OUTLIER_NATS = 5.0  # by which the log density of a row may depend on its share in the spread
LEAST_WEIGHT = 1e-3  # weights below this are set to 0


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
    weights[weights < LEAST_WEIGHT] = 0.0
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
        # E step: the weight of a row under t; M step: the weighted mean square
        new = share @ (square * (degrees + 1.0) / (degrees + square / scale))
        new = np.maximum(new, 1e-300)
        moved = np.max(np.abs(np.log(new / scale)))
        scale = new
        if moved < 1e-6:
            break
    return scale


def pooled_variance(variance: Array, noise: Array, weight: Array) -> Array:
    """Predictive variances of held-out rows with the noise of every fold replaced by the mean one.

    An outlier is not in the noise of the fold that holds it out, but it is in that of the fit to
    all rows, which is the one that is recalibrated. The leverage variance/noise stays: for least
    squares residual^2/leverage is what RSS grows by when the row comes in, hence at most the RSS of
    all rows, so one row adds about 1 to the mean of residual^2 over these, whatever its size.

    >>> pooled_variance(np.array([2.0, 200.0]), np.array([1.0, 99.0]), np.ones(2)).round(1)
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

    return _best_factor(loss, 4.0)


HALF_WIDTH = float(norm.ppf(0.5 + LEVEL / 2.0))  # of central intervals, in standard deviations
DEGREES = 5.0  # of freedom of the t scores
SETTLED_ERROR = 0.4  # relative standard error of the mean square; 40 normal rows have 0.22


class HeldOut(NamedTuple):
    """What candidates say about held-out rows, (rows,) of one or (rows, candidates) of all."""

    middle: Array  # what the loss is a function of: the mean, the log odds or the log density
    variance: Array  # 0 but for numbers
    noise: Array  # the part of the variance that is noise, one number for each fold
    mean: Array  # E[y]
    density: Array  # log density of y; 0 where predictions are not recalibrated by `spread_of`
    below: Array  # P(Y <= y), or 0 likewise; NaN where it is not known

    def take(self, *index: Any) -> "HeldOut":
        """Some rows, targets or candidates."""
        return HeldOut(*(part[index] for part in self))


class Recalibration(NamedTuple):
    """What held-out rows ask of predictions; coefficients do not include it."""

    scale: float = 1.0  # of the predictive variance of numbers
    temperature: float = 1.0  # power of the odds, or of the probabilities of classes
    spread: float = 1.0  # squared `spread_of`: of the normal scores of any other distribution

    def of(self, mixture: Mixture) -> Mixture:
        """The mixture, recalibrated."""
        parts = tuple(
            replace(part, inflation=part.inflation * self.scale) for part in mixture.components
        )
        return replace(mixture, components=parts, power=self.temperature, widen=self.spread)


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
    widen: float = 1.0  # squared `spread_of` the mixture: variances are multiplied with it

    @property
    def recalibration(self) -> Recalibration:
        """That of the mixture, whose components have scales of their own beside it."""
        return Recalibration(1.0, self.power, self.widen)


class Scoring(NamedTuple):
    """How candidates are judged: `NUMBERS`, `FOLD_MOMENTS`, `CLASSES` or `DENSITIES`."""

    name: str  # of the error

    score: Callable[[Array, HeldOut, Array, float], Scored]  # the last: see `score_numbers`
    loss: Callable[[Array, Array], Array]  # of rows y at what candidates say, ``middle``
    error: Callable[[float], float]  # from the mean loss
    power: float  # of the scores in the weights
    by_row: bool = True  # whether the rows that are scored are those of the data
    shape: tuple[int, ...] = ()  # of what a candidate says about a row; (c,) for classes at once
    nats: float = 1.0  # that a unit of the loss is worth; 0: the error is in units of y

    def gap(self, losses: Array, weight: Array) -> tuple[float, float]:
        """The difference of two predictions of the same rows, and its standard error.

        ``losses`` are (rows, 2). In nats a row, or of root mean squares in units of y.

        >>> losses = np.array([[4.0, 1.0], [9.0, 4.0], [5.0, 1.0]])
        >>> DENSITIES.gap(losses, np.ones(3))
        (4.0, 0.577...)
        >>> NUMBERS.gap(losses, np.ones(3))
        (1.035..., 0.149...)
        """
        share = weight / weight.sum()
        mean, paired = share @ losses, losses[:, 0] - losses[:, 1]
        middle, freedom = float(share @ paired), 1.0 - float(share @ share)
        error = np.nan  # of one row
        if freedom > 0.0:
            size = max(float(np.abs(paired).max()), np.finfo(float).tiny)  # of extreme units of y
            error = size * float(np.sqrt((share**2) @ ((paired - middle) / size) ** 2 / freedom))
        if self.nats:
            return self.nats * middle, self.nats * error
        # sqrt(a) - sqrt(b) = (a - b)/(sqrt(a) + sqrt(b))
        unit = max(float(np.sqrt(mean).sum()), np.finfo(float).tiny)
        return middle / unit, error / unit


def t_scores(off: Array, variance: Array, weight: Array, degrees: float = DEGREES) -> Array:
    """Log densities of Student's t with 5 degrees of freedom, its scale fitted but at least 1.

    A normal score lets one outlier decide between candidates; real tables have outliers.
    """
    z = off / np.sqrt(variance)
    scale = np.maximum(robust_scale(z, weight, degrees), 1.0)
    return t.logpdf(z / np.sqrt(scale), degrees) - 0.5 * np.log(variance * scale)


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
    mean, variance, noise = said[:3]
    off = y[:, None] - mean
    level = pooled_variance(variance, noise, weight)
    factor = _inflations(off, level, weight)
    settled = relative_error(off**2 / level, weight) <= SETTLED_ERROR
    wide = variance * factor
    scores = weight[:, None] * density(off, variance, weight)
    w = predictive_weights(scores, more * NUMBERS_POWER)
    middle = mean @ w
    spread = (wide + (mean - middle[:, None]) ** 2) @ w
    inside = [np.abs(off) < HALF_WIDTH * np.sqrt(v) for v in (variance, wide)]
    before, after = (np.mean(part, axis=0) for part in inside)
    return Scored(scores, w, factor, before, after, middle, spread, middle, 1.0, settled)


def score_student(
    degrees: float, y: Array, said: HeldOut, weight: Array, more: float = 1.0
) -> Scored:
    """The same for noise with these degrees of freedom.

    The recalibration is the factor of the squared scale that fits the held-out rows best, so
    outliers do not decide about it.
    """
    mean, variance, noise = said[:3]
    off, share = y[:, None] - mean, 1.0 - 2.0 / degrees
    level = share * pooled_variance(variance, noise, weight)
    factor = np.maximum(robust_scale(off / np.sqrt(level), weight, degrees), 1.0)
    square = off**2 / level
    # what a row adds to the estimate of the scale: bounded, however far out the row is
    weighted = (degrees + 1.0) * square / (degrees + square)
    settled = relative_error(weighted, weight) <= SETTLED_ERROR
    wide = variance * factor
    scores = weight[:, None] * t_scores(off, share * variance, weight, min(degrees, DEGREES))
    w = predictive_weights(scores, more * NUMBERS_POWER)
    middle = mean @ w
    spread = (wide + (mean - middle[:, None]) ** 2) @ w
    reach = float(t.ppf(0.95, degrees)) * np.sqrt(share)
    before, after = (np.mean(np.abs(off) < reach * np.sqrt(v), axis=0) for v in (variance, wide))
    return Scored(scores, w, factor, before, after, middle, spread, middle, 1.0, settled)


def score_moments(y: Array, said: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """The same where only the moments of a fold are known: normal scores, no coverage."""
    found = score_numbers(y, said, weight, more, normal_scores)
    unknown = np.full(len(found.weights), np.nan)
    return found._replace(coverage=unknown, recalibrated=unknown)


def score_classes(y: Array, said: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """Bernoulli log scores; the mixture's probability, its odds raised to the best power."""
    log_odds = said.middle
    # minus log(1 + exp(-s)) with the sign of the class: no probability near 0 or 1 is ever formed
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


def temperature(log_share: Array, y: Array, weight: Array) -> float:
    """The a of log p <- a log p, normalised, that predicts the classes y best; log a ~ N(0, 1).

    >>> sure = np.log(np.array([[0.98, 0.01, 0.01]] * 10))
    >>> round(temperature(sure, np.array([0] * 7 + [1] * 3), np.ones(10)), 2)
    0.39
    """
    own = log_share[np.arange(len(y)), y]

    def loss(t: float) -> float:
        a = np.exp(t)
        return float(weight @ (logsumexp(a * log_share, axis=1) - a * own)) + 0.5 * t * t

    return _best_factor(loss, 4.0)


def score_shares(y: Array, said: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """Log scores of several classes at once; the mixture's probability of the class seen."""
    rows, y = np.arange(len(y)), y.astype(int)
    scores = weight[:, None] * said.middle[rows, :, y]
    w = predictive_weights(scores, more * CLASSES_POWER)
    # probabilities are averaged, not their logarithms: this is the mixture that predicts
    mixed = logsumexp(said.middle, b=w[:, None], axis=1)
    power = temperature(mixed, y, weight)
    point = power * mixed - logsumexp(power * mixed, axis=1, keepdims=True)
    chance = np.exp(point[rows, y])
    none, one = np.full(len(w), np.nan), np.ones(len(w))
    spread = chance * (1.0 - chance)
    return Scored(scores, w, one, none, none, chance, spread, point, power, True)


def _share_loss(y: Array, log_share: Array) -> Array:
    return -log_share[np.arange(len(y)), y.astype(int)]


def spread_density(density: Array, below: Array, spread: float, whole: bool) -> Array:
    """Log density of y where P(Y <= y) becomes Phi(Phi^-1(P(Y <= y))/spread).

    The median stays and the normal scores are ``spread`` times as wide. ``density`` and ``below``
    are log density and distribution function before; of ``whole`` numbers it is a log probability.

    >>> z = np.array([-1.0, 2.0])
    >>> found = spread_density(norm.logpdf(z), norm.cdf(z), 3.0, False)
    >>> np.allclose(found, norm.logpdf(z, scale=3.0))
    True
    """
    if spread == 1.0:
        return density
    if not whole:  # an average may exceed 1 by rounding
        z = np.clip(ndtri(np.clip(below, 0.0, 1.0)), -FARTHEST, FARTHEST)
        return density + 0.5 * z * z * (1.0 - spread**-2) - np.log(spread)
    # rounding of 0 and 1, the ends of the first and the last class, has normal scores of -8 and 8
    both = np.array([below, below - np.exp(density)])
    both = np.where(both > 1.0 - NO_CHANCE, 1.0, np.where(both < NO_CHANCE, 0.0, both))
    z, last = ndtri(both)
    ends = np.where(last > 0.0, [-last, -z], [z, last]) / spread  # in the tail that has digits
    chance = ndtr(ends[0]) - ndtr(ends[1])
    # far out the log probability is about -z^2/2
    return np.where(chance > LEAST_CHANCE, np.log(np.maximum(chance, 1e-300)), density / spread**2)


def spread_of(density: Array, below: Array, weight: Array, whole: bool) -> tuple[float, Array]:
    """The spread that predicts the held-out rows best, with log spread ~ N(0, 1), and its rows.

    One row does not decide: a row is left out where its own log density would fall by more than
    `OUTLIER_NATS` without it. So is a row of which P(Y <= y) is not known.

    >>> z = 2.0 * norm.ppf((np.arange(100) + 0.5) / 100)
    >>> round(spread_of(norm.logpdf(z), norm.cdf(z), np.ones(100), False)[0], 1)
    2.0
    """
    rows = np.isfinite(below)

    def gained(spread: float, rows: Array) -> Array:
        return weight[rows] * spread_density(density[rows], below[rows], spread, whole)

    def best(rows: Array) -> float:
        def loss(t: float) -> float:
            return 0.5 * t * t - float(gained(np.exp(t), rows).sum())

        return _best_factor(loss, 1.5)

    spread = best(rows) if rows.any() else 1.0
    while rows.sum() > 2:
        # twice what a row adds to the slope in log spread is about z^2/spread^2; its share in
        # spread^2 is that over n, and by both it gains
        pull = (gained(spread * 1.01, rows) - gained(spread / 1.01, rows)) / np.log(1.01**2)
        if float(pull.max()) ** 2 < OUTLIER_NATS * rows.sum():
            break
        others = rows.copy()
        others[np.flatnonzero(rows)[int(np.argmax(pull))]] = False
        alone, without = rows & ~others, best(others)
        if float((gained(spread, alone) - gained(without, alone))[0]) < OUTLIER_NATS:
            break
        rows, spread = others, without
    return spread, rows


def _best_factor(loss: Callable[[float], float], reach: float) -> float:
    """exp(t) at the minimum over abs(t) < ``reach``; precise, because all predictions take part."""
    options = {"xatol": 1e-10}
    found = minimize_scalar(loss, bounds=(-reach, reach), method="bounded", options=options)
    t, h = float(found.x), 0.01
    if abs(t) < reach - 0.1:
        # rounding leaves half of the digits of where a loss is least, but more of where its slope
        # is 0: a Newton step with differences of fourth order
        a, b, c, d, e = (loss(t + k * h) for k in (-2, -1, 0, 1, 2))
        bend = (-a + 16.0 * b - 30.0 * c + 16.0 * d - e) / h
        t -= float((a - 8.0 * b + 8.0 * d - e) / bend) if bend > 0.0 else 0.0
    return float(np.exp(t))


def _spread_mixture(
    said: HeldOut, w: Array, weight: Array, whole: bool
) -> tuple[Array, float, Array]:
    """Log densities of the held-out rows under the mixture, recalibrated, its spread, outliers."""
    density, below = logsumexp(said.density, b=w, axis=1), said.below @ w
    spread, rows = spread_of(density, below, weight, whole)
    known = np.isfinite(below)
    density[known] = spread_density(density[known], below[known], spread, whole)
    return density, spread, known & ~rows


def score_densities(
    y: Array,
    said: HeldOut,
    weight: Array,
    more: float = 1.0,
    whole: bool = False,
    power: float = CLASSES_POWER,
) -> Scored:
    """Log densities of any likelihood; the mixture's mean and recalibrated variance.

    Rows that nothing foresaw, the outliers of `spread_of`, say nothing about the candidates: the
    widest would win by them.
    """
    scores = weight[:, None] * said.middle
    w = predictive_weights(scores, more * power)
    mixed, s, far = _spread_mixture(said, w, weight, whole)
    if far.any():
        scores[far] = 0.0
        w = predictive_weights(scores, more * power)
        mixed, s, _ = _spread_mixture(said, w, weight, whole)
    none, mean = np.full(len(w), np.nan), said.mean @ w
    spread = s * s * ((said.variance + (said.mean - mean[:, None]) ** 2) @ w)
    one = np.ones(len(w))
    return Scored(scores, w, one, none, none, mean, spread, mixed, 1.0, True, widen=s * s)


def score_counts(y: Array, said: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """Deviances of Poisson counts over their dispersion; mean and recalibrated variance.

    Counts of real tables vary more than Poisson counts do. Their log probabilities would choose
    fits that are unsure, because these come closest to that spread, and would be too sure of the
    choice. A quasi-likelihood divides the deviance by the dispersion, at least 1: here the mean
    deviance of the best candidate.
    """
    loss = poisson_deviance(y, said.mean)
    dispersion = max(1.0, float(np.min(np.average(loss, axis=0, weights=weight))))
    scores = -0.5 * weight[:, None] * loss / dispersion
    w = predictive_weights(scores, more * CLASSES_POWER)
    none, mean = np.full(len(w), np.nan), said.mean @ w
    spread = (said.variance + (said.mean - mean[:, None]) ** 2) @ w
    widen = _spread_mixture(said, w, weight, True)[1] ** 2
    one = np.ones(len(w))
    return Scored(scores, w, one, none, none, mean, widen * spread, mean, 1.0, True, widen=widen)


def first_column(y: Array) -> Array:
    """The targets, without what stands beside them."""
    return y if y.ndim == 1 else y[:, 0]


def poisson_deviance(y: Array, mean: Array) -> Array:
    """2 [y log(y/mean) - (y - mean)] of every row, or (rows, candidates)."""
    y, mean = first_column(y), np.maximum(mean, 1e-300)
    y = y[:, None] if mean.ndim == 2 else y
    return 2.0 * (xlogy(y, y / mean) - (y - mean))


def _squares(y: Array, mean: Array) -> Array:
    return (y - mean) ** 2


def _log_loss(y: Array, log_odds: Array) -> Array:
    return np.logaddexp(0.0, np.where(y > 0.5, -log_odds, log_odds))


def _minus(y: Array, log_density: Array) -> Array:
    return -log_density


NUMBERS = Scoring("RMSE", score_numbers, _squares, np.sqrt, NUMBERS_POWER, nats=0.0)


def student_scoring(degrees: float) -> Scoring:
    """`NUMBERS` for noise with these degrees of freedom."""
    return NUMBERS._replace(score=partial(score_student, degrees))


FOLD_MOMENTS = NUMBERS._replace(score=score_moments, by_row=False)
CLASSES = Scoring("log loss", score_classes, _log_loss, float, CLASSES_POWER)


def class_scoring(classes: int) -> Scoring:
    """Of several classes at once."""
    return Scoring("log loss", score_shares, _share_loss, float, CLASSES_POWER, True, (classes,))


# a deviance is twice a difference of log probabilities
COUNTS = Scoring("mean deviance", score_counts, poisson_deviance, float, CLASSES_POWER, nats=0.5)
DENSITIES = Scoring("minus log density", score_densities, _minus, float, CLASSES_POWER)
WHOLE_DENSITIES = DENSITIES._replace(score=partial(score_densities, whole=True))
