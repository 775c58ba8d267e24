"""Confidences chosen by what they predict: candidates, folds, out-of-fold scores, a mixture.

Every candidate is fitted to all rows and to the training rows of every fold. The log scores of the
held-out rows give its weight (`weights.py`), and the mixture of the candidates predicts. One that
the first two folds leave hopelessly behind is not fitted again. Nothing of the fit to all rows is
known to a fold.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed
from scipy.special import expit, logsumexp
from scipy.stats import norm

from soubayes.results import Table
from soubayes.sparse.choice.mixture import Component, Mixture
from soubayes.sparse.choice.weights import TEMPER, inflation, power_of_odds, predictive_weights

Array = np.ndarray
Predictions = list[dict[str, tuple[Array, Array]]]  # of every target and candidate

BEHIND = 7.0  # nats after tempering, which is a weight of 1e-3: as good as 0
ROUNDS = 2  # folds after which candidates are left behind
NINETY = float(norm.ppf(0.95))


class Candidate(NamedTuple):
    """A row of the table of candidates."""

    label: str
    prior: str
    local: float  # gamma_tau
    coef: float  # gamma_b


class Fits(NamedTuple):
    """Candidates fitted to some rows: a dict for every target."""

    components: list[dict[str, tuple[Component, ...]]]  # weights sum to 1 within a candidate
    effective: list[dict[str, float]]  # sum_j (1 - kappa_j)
    x_mean: Array


class ChoiceTask(ABC):
    """What the choice asks of an estimator and its rows."""

    targets: list[Array]  # y of every target: numbers, or 0 and 1
    weight: Array

    @abstractmethod
    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        """The wanted candidates of every target, fitted to some rows (None: all)."""

    @abstractmethod
    def predict(self, fits: Fits, rows: Array) -> Predictions:
        """At held-out rows: mean and variance, or log odds and zeros."""


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


class Scoring(NamedTuple):
    """How candidates are judged: `NUMBERS` or `CLASSES`."""

    score: Callable[[Array, Array, Array, Array], Scored]
    loss: Callable[[Array, Array], Array]  # of rows y at means or log odds
    error: Callable[[float], float]  # from the mean loss


class Choice(NamedTuple):
    """The result for one target."""

    mixture: Mixture
    candidates: Table
    out_of_fold: Table


def choose(
    task: ChoiceTask,
    candidates: Sequence[Candidate],
    splits: Sequence[tuple[Array, Array]],
    scoring: Scoring,
    jobs: int = 1,
) -> list[Choice]:
    """A mixture for every target."""
    labels = [candidate.label for candidate in candidates]
    n, count = len(task.weight), len(task.targets)
    first, second = np.full((2, n, count, len(labels)), np.nan)
    fold = np.full(n, -1)
    wanted = [set(labels) for _ in task.targets]

    def held(train: Array, test: Array) -> Predictions:
        return task.predict(task.fit(train, wanted), test)

    def keep(number: int, found: Predictions) -> None:
        test = splits[number][1]
        fold[test] = number
        for t, each in enumerate(found):
            for label, (one, two) in each.items():
                k = labels.index(label)
                first[test, t, k], second[test, t, k] = one, two

    def scored(t: int, rows: Array, left: Array) -> Scored:
        one, two = first[rows, t][:, left], second[rows, t][:, left]
        return scoring.score(task.targets[t][rows], one, two, task.weight[rows])

    left = [np.ones(len(labels), bool) for _ in task.targets]
    for number in range(min(ROUNDS, len(splits) - 1)):
        keep(number, held(*splits[number]))
        seen = np.flatnonzero(fold >= 0)
        for t in range(count):
            places = np.flatnonzero(left[t])
            lost = _hopeless(scored(t, seen, left[t]).scores, len(splits) / (number + 1))
            left[t][places[lost]] = False
            wanted[t] = {label for label, stays in zip(labels, left[t], strict=True) if stays}
    done = min(ROUNDS, len(splits) - 1)
    rest = Parallel(n_jobs=jobs, prefer="threads")(delayed(held)(*s) for s in splits[done:])
    for number, found in enumerate(rest, start=done):
        keep(number, found)
    inside = np.flatnonzero(fold >= 0)
    results = [scored(t, inside, left[t]) for t in range(count)]
    final = [
        {label for label, w in zip(np.array(labels)[left[t]], each.weights, strict=True) if w > 0}
        for t, each in enumerate(results)
    ]
    fits = task.fit(None, final)
    choices = []
    for t, y in enumerate(task.targets):
        point = np.full(n, np.nan)
        point[inside] = results[t].point
        errors = np.full((2, len(labels)), np.nan)  # of a candidate, and of the mixture beside it
        for k in range(len(labels)):
            rows = np.isfinite(first[:, t, k])
            for i, guess in enumerate((first[rows, t, k], point[rows])):
                loss = np.average(scoring.loss(y[rows], guess), weights=task.weight[rows])
                errors[i, k] = scoring.error(float(loss))
        choices.append(_choice(candidates, fits, t, left[t], results[t], y, fold, errors))
    return choices


def _hopeless(scores: Array, more: float) -> Array:
    """Whose weight would vanish with ``more`` times the rows, two standard errors granted."""
    behind = scores - scores[:, [int(np.argmax(scores.sum(axis=0)))]]
    granted = behind.sum(axis=0) + 2.0 * np.sqrt(len(behind)) * behind.std(axis=0)
    return TEMPER * more * granted < -BEHIND


def score_numbers(y: Array, mean: Array, variance: Array, weight: Array) -> Scored:
    """Normal log scores after inflation; the mixture's mean and variance."""
    off = y[:, None] - mean
    factor = np.array([inflation(off[:, k], variance[:, k], weight) for k in range(off.shape[1])])
    wide = variance * factor
    scores = weight[:, None] * norm.logpdf(off, scale=np.sqrt(wide))
    w = predictive_weights(scores)
    middle = mean @ w
    spread = (wide + (mean - middle[:, None]) ** 2) @ w
    before, after = (np.mean(np.abs(off) < NINETY * np.sqrt(v), axis=0) for v in (variance, wide))
    return Scored(scores, w, factor, before, after, middle, spread, middle, 1.0)


def score_classes(y: Array, log_odds: Array, _: Array, weight: Array) -> Scored:
    """Bernoulli log scores; the mixture's probability, its odds raised to the best power."""
    signed = np.where(y[:, None] > 0.5, log_odds, -log_odds)
    scores = -weight[:, None] * np.logaddexp(0.0, -signed)
    w = predictive_weights(scores)
    up = logsumexp(-np.logaddexp(0.0, -log_odds), b=w, axis=1)
    mixed = up - logsumexp(-np.logaddexp(0.0, log_odds), b=w, axis=1)
    power = power_of_odds(mixed, y, weight)
    chance = expit(power * mixed)
    none, spread = np.full(len(w), np.nan), chance * (1.0 - chance)
    return Scored(scores, w, np.ones(len(w)), none, none, chance, spread, power * mixed, power)


def _log_loss(y: Array, log_odds: Array) -> Array:
    return np.logaddexp(0.0, np.where(y > 0.5, -log_odds, log_odds))


NUMBERS = Scoring(score_numbers, lambda y, mean: (y - mean) ** 2, np.sqrt)
CLASSES = Scoring(score_classes, _log_loss, float)


def _choice(
    candidates: Sequence[Candidate],
    fits: Fits,
    t: int,
    left: Array,
    scored: Scored,
    y: Array,
    fold: Array,
    errors: Array,
) -> Choice:
    """The mixture, the table of candidates and the out-of-fold predictions of a target."""

    def placed(values: Array, missing: float = np.nan) -> Array:
        whole = np.full(len(candidates), missing)
        whole[left] = values
        return whole

    totals = scored.scores.sum(axis=0)
    off = scored.scores - scored.scores[:, [int(np.argmax(totals))]]
    weights, factor = placed(scored.weights, 0.0), placed(scored.inflation)
    parts = [
        replace(part, weight=part.weight * float(weights[k]), inflation=float(factor[k]))
        for k, candidate in enumerate(candidates)
        for part in fits.components[t].get(candidate.label, ())
    ]
    table = Table(
        candidate=[candidate.label for candidate in candidates],
        prior=[candidate.prior for candidate in candidates],
        confidence_local=[candidate.local for candidate in candidates],
        confidence_coef=[candidate.coef for candidate in candidates],
        score=placed(totals),
        score_se=placed(np.sqrt(len(off)) * off.std(axis=0)),
        error=errors[0],
        mixture_error=errors[1],
        weight=weights,
        effective_columns=[fits.effective[t].get(c.label, np.nan) for c in candidates],
        coverage=placed(scored.coverage),
        coverage_recalibrated=placed(scored.recalibrated),
    )
    mean, variance = np.full((2, len(y)), np.nan)
    mean[fold >= 0], variance[fold >= 0] = scored.mean, scored.variance
    held = Table(y=y, mean=mean, sd=np.sqrt(variance), fold=fold)
    return Choice(Mixture(tuple(parts), scored.power), table, held)
