"""How candidates are judged by held-out rows: scores, weights, recalibration."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, ndtr, ndtri, xlogy
from scipy.stats import t

from soubayes.levels import LEVEL
from soubayes.sparse.constants import (
    CLASSES_POWER,
    LEAST_WEIGHT,
    NUMBERS_POWER,
    OUTLIER_NATS,
    SCORE_DEGREES,
    SETTLED_ERROR,
)
from soubayes.sparse.posterior import Mixture

Array = np.ndarray

FARTHEST = 8.0  # normal score beyond which a distribution function is 0 or 1 to all digits
LEAST_CHANCE = 1e-9  # of a difference of two distribution functions that has digits
NO_CHANCE = 2e-15  # rounding of sums of probabilities: closer to 0 or 1 they are 0 or 1


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

    With infinite ``degrees``, those of a normal distribution, it is the mean square.

    >>> z = np.random.default_rng(0).standard_t(5, size=(20_000, 1))
    >>> robust_scale(3.0 * z, np.ones(20_000), 5.0).round(1)
    array([8.9])
    """
    square = z * z
    share = weight / weight.sum()
    scale = np.maximum(share @ square, 1e-300)
    for _ in range(200 if np.isfinite(degrees) else 0):
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


def relative_error(square: Array, weight: Array) -> float:
    """The standard error of the mean of squares, relative to that mean; the largest of columns.

    >>> round(relative_error(np.array([[1.0], [1.0], [1.0], [97.0]]), np.ones(4)), 2)
    0.83
    """
    share = weight / weight.sum()
    mean = share @ square
    spread = np.sqrt((share**2) @ (square - mean) ** 2)
    return float(np.max(spread / np.maximum(mean, 1e-300)))


class HeldOut(NamedTuple):
    """What candidates say about held-out rows, (rows,) of one or (rows, candidates) of all.

    It is the log density of y; of classes, the log probability of every class (a last axis).
    Moments and the distribution function stand beside it where they are known and asked for.
    """

    log_density: Array
    mean: Array  # E[y]
    variance: Array  # Var[y]
    noise: Array  # the part of the variance that is noise, one number for each fold
    rough: Array  # of whole numbers the log density with the errors of ``below``
    below: Array  # P(Y <= y); NaN where it is not known

    @classmethod
    def of_numbers(cls, mean: Array, variance: Array, noise: Array) -> "HeldOut":
        """Where the density is that of the mean and the variance."""
        zero = np.zeros_like(mean)
        return cls(zero, mean, variance, noise, zero, zero)

    @classmethod
    def of_classes(cls, log_probability: Array) -> "HeldOut":
        """(rows, classes)."""
        return cls(log_probability, *(np.zeros_like(log_probability),) * 5)

    def take(self, *index: Any) -> "HeldOut":
        """Some rows, targets or candidates."""
        return HeldOut(*(values[index] for values in self))


class Recalibration(NamedTuple):
    """What held-out rows ask of predictions; coefficients do not include it."""

    scale: float = 1.0  # of the predictive variance of numbers
    temperature: float = 1.0  # power of the odds, or of the probabilities of classes
    spread: float = 1.0  # squared `spread_of`: of the normal scores of any other distribution

    def of(self, mixture: Mixture) -> Mixture:
        """The mixture, recalibrated."""
        parts = tuple(
            replace(component, inflation=component.inflation * self.scale)
            for component in mixture.components
        )
        return replace(mixture, components=parts, power=self.temperature, widen=self.spread)


class Scored(NamedTuple):
    """Out-of-fold predictions of one target, and what follows from them."""

    scores: Array  # (rows, candidates) log scores of the held-out rows, recalibrated
    weights: Array
    scale: Array  # (candidates,) recalibration of each, of the predictive variance
    coverage: Array  # (2, candidates) of 90 % intervals before and after recalibration
    mean: Array  # (rows,) of the mixture: E[y]
    variance: Array
    point: Array  # (rows,) what its loss is a function of
    recalibration: Recalibration  # of the mixture, beside the scales of its candidates
    settled: bool = True  # whether further held-out rows would hardly change the recalibration


class Scoring(NamedTuple):
    """How candidates are judged: `NUMBERS`, `CLASSES`, `DENSITIES` and what is made of these."""

    name: str  # of the error

    score: Callable[[Array, HeldOut, Array, float], Scored]  # the last: see `score_numbers`
    loss: Callable[[Array, Array], Array]  # of rows y at what is read
    reads: str  # which of `HeldOut` the loss is a function of
    error: Callable[[float], float]  # from the mean loss
    power: float  # of the scores in the weights
    by_row: bool = True  # whether the rows that are scored are those of the data
    shape: tuple[int, ...] = ()  # of what a candidate says about a row; (c,) of c classes
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


def t_scores(
    residual: Array, variance: Array, weight: Array, degrees: float = SCORE_DEGREES
) -> Array:
    """Log densities of Student's t with 5 degrees of freedom, its scale fitted but at least 1.

    A normal score lets one outlier decide between candidates; real tables have outliers.
    """
    z = residual / np.sqrt(variance)
    scale = np.maximum(robust_scale(z, weight, degrees), 1.0)
    return t.logpdf(z / np.sqrt(scale), degrees) - 0.5 * np.log(variance * scale)


def score_numbers(
    y: Array,
    held: HeldOut,
    weight: Array,
    more: float = 1.0,
    degrees: float = np.inf,
    tails: float = SCORE_DEGREES,
) -> Scored:
    """Scores after recalibration; the mixture's mean and recalibrated variance.

    Weights are those that ``more`` times as many held-out rows would give, as all rows would where
    only a part was held out. ``degrees`` are those of the noise: each candidate is recalibrated by
    the factor of its squared scale that fits the held-out rows best, at least 1. So outliers do not
    decide about it where the noise is Student's t. ``tails`` are those of the scores.
    """
    residual, share = y[:, None] - held.mean, 1.0 - 2.0 / degrees
    level = share * pooled_variance(held.variance, held.noise, weight)
    scale = np.maximum(robust_scale(residual / np.sqrt(level), weight, degrees), 1.0)
    square = residual**2 / level
    if np.isfinite(degrees):
        # what a row adds to the estimate of the scale: bounded, however far out the row is
        square = (degrees + 1.0) * square / (degrees + square)
    wide = held.variance * scale
    log_density = t_scores(residual, share * held.variance, weight, min(degrees, tails))
    scores = weight[:, None] * log_density
    w = predictive_weights(scores, more * NUMBERS_POWER)
    mean = held.mean @ w
    spread = (wide + (held.mean - mean[:, None]) ** 2) @ w
    reach = float(t.ppf(0.5 + LEVEL / 2.0, degrees)) * np.sqrt(share)
    inside = [np.abs(residual) < reach * np.sqrt(variance) for variance in (held.variance, wide)]
    coverage = np.stack([hit.mean(axis=0) for hit in inside])
    settled = relative_error(square, weight) <= SETTLED_ERROR
    return Scored(scores, w, scale, coverage, mean, spread, mean, Recalibration(), settled)


def temperature(log_probability: Array, y: Array, weight: Array) -> float:
    """The a of log p <- a log p, normalised, that predicts the classes y best; log a ~ N(0, 1).

    Of two classes it is the power of the odds.

    >>> sure = np.log(np.array([[0.98, 0.01, 0.01]] * 10))
    >>> round(temperature(sure, np.array([0] * 7 + [1] * 3), np.ones(10)), 2)
    0.39
    """
    seen = log_probability[np.arange(len(y)), y]

    def loss(t: float) -> float:
        a = np.exp(t)
        log_total = np.logaddexp.reduce(a * log_probability, axis=1)
        return float(weight @ (log_total - a * seen)) + 0.5 * t * t

    return _best_factor(loss, 4.0)


def score_classes(y: Array, held: HeldOut, weight: Array, more: float = 1.0) -> Scored:
    """Log scores of classes; the mixture's log probabilities at the best temperature."""
    rows, y = np.arange(len(y)), y.astype(int)
    log_probability = held.log_density
    scores = weight[:, None] * log_probability[rows, :, y]
    w = predictive_weights(scores, more * CLASSES_POWER)
    # probabilities are averaged, not their logarithms: this is the mixture that predicts
    mixed = logsumexp(log_probability, b=w[:, None], axis=1)
    power = temperature(mixed, y, weight)
    point = power * mixed - logsumexp(power * mixed, axis=1, keepdims=True)
    chance = np.exp(point[rows, y])
    recalibration, spread = Recalibration(temperature=power), chance * (1.0 - chance)
    return Scored(scores, w, *_not_rescaled(w), chance, spread, point, recalibration)


def _not_rescaled(weights: Array) -> tuple[Array, Array]:
    """Scale and coverage of candidates that have no recalibration of their own."""
    return np.ones(len(weights)), np.full((2, len(weights)), np.nan)


def spread_density(density: Array, below: Array, spread: float, whole: bool) -> Array:
    """Log density of y where P(Y <= y) becomes Phi(Phi^-1(P(Y <= y))/spread).

    The median stays and the normal scores are ``spread`` times as wide. ``density`` and ``below``
    are log density and distribution function before; of ``whole`` numbers it is a log probability.

    >>> from scipy.stats import norm
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

    >>> from scipy.stats import norm
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
    minimum = minimize_scalar(loss, bounds=(-reach, reach), method="bounded", options=options)
    t, h = float(minimum.x), 0.01
    if abs(t) < reach - 0.1:
        # rounding leaves half of the digits of where a loss is least, but more of where its slope
        # is 0: a Newton step with differences of fourth order
        a, b, c, d, e = (loss(t + k * h) for k in (-2, -1, 0, 1, 2))
        bend = (-a + 16.0 * b - 30.0 * c + 16.0 * d - e) / h
        t -= float((a - 8.0 * b + 8.0 * d - e) / bend) if bend > 0.0 else 0.0
    return float(np.exp(t))


def _spread_mixture(
    held: HeldOut, w: Array, weight: Array, whole: bool
) -> tuple[Array, float, Array]:
    """Log densities of the held-out rows under the mixture, recalibrated, its spread, outliers."""
    density, below = logsumexp(held.rough, b=w, axis=1), held.below @ w
    spread, rows = spread_of(density, below, weight, whole)
    known = np.isfinite(below)
    density[known] = spread_density(density[known], below[known], spread, whole)
    return density, spread, known & ~rows


def score_densities(
    y: Array,
    held: HeldOut,
    weight: Array,
    more: float = 1.0,
    whole: bool = False,
    power: float = CLASSES_POWER,
    deviance: Callable[[Array, Array], Array] | None = None,
) -> Scored:
    """Log densities of any likelihood; the mixture's mean and recalibrated variance.

    Outliers of `spread_of`, to which no candidate gives a density to speak of, are not scored: the
    widest candidate would win by them.

    With a ``deviance`` candidates are judged by it, as in a quasi-likelihood. Counts of real tables
    vary more than Poisson counts do. Their log probabilities would choose fits that are unsure,
    because these come closest to that spread, and would be too sure of the choice. A
    quasi-likelihood divides the deviance by the dispersion, at least 1: here the mean deviance of
    the best candidate.
    """
    log_density = held.log_density
    if deviance is not None:
        deviances = deviance(y, held.mean)
        least = float(np.min(np.average(deviances, axis=0, weights=weight)))
        log_density = -0.5 * deviances / max(1.0, least)
    scores = weight[:, None] * log_density
    w = predictive_weights(scores, more * power)
    mixed, s, far = _spread_mixture(held, w, weight, whole)
    if far.any() and deviance is None:
        scores[far] = 0.0
        w = predictive_weights(scores, more * power)
        mixed, s, _ = _spread_mixture(held, w, weight, whole)
    mean = held.mean @ w
    spread = s * s * ((held.variance + (held.mean - mean[:, None]) ** 2) @ w)
    point = mixed if deviance is None else mean
    return Scored(scores, w, *_not_rescaled(w), mean, spread, point, Recalibration(spread=s * s))


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


def _minus(y: Array, log_density: Array) -> Array:
    return -log_density


def _minus_seen(y: Array, log_probability: Array) -> Array:
    return -log_probability[np.arange(len(y)), y.astype(int)]


NUMBERS = Scoring("RMSE", score_numbers, _squares, "mean", np.sqrt, NUMBERS_POWER, nats=0.0)
# of the moments of a fold no row is known, so its squares are summed and scores are normal
FOLD_MOMENTS = NUMBERS._replace(score=partial(score_numbers, tails=np.inf), by_row=False)
DENSITIES = Scoring(
    "minus log density", score_densities, _minus, "log_density", float, CLASSES_POWER
)
WHOLE_DENSITIES = DENSITIES._replace(score=partial(score_densities, whole=True))
COUNTS = Scoring(
    "mean deviance",
    partial(score_densities, whole=True, deviance=poisson_deviance),
    poisson_deviance, "mean", float, CLASSES_POWER,
    nats=0.5,  # a deviance is twice a difference of log probabilities
)  # fmt: skip


def student_scoring(degrees: float) -> Scoring:
    """`NUMBERS` for noise with these degrees of freedom."""
    return NUMBERS._replace(score=partial(score_numbers, degrees=degrees))


def class_scoring(classes: int) -> Scoring:
    """Of so many classes."""
    reads = "log_density"
    return Scoring(
        "log loss", score_classes, _minus_seen, reads, float, CLASSES_POWER, True, (classes,)
    )


CLASSES = class_scoring(2)
