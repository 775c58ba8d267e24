"""Confidences chosen by what they predict: candidates, folds, out-of-fold scores, a mixture.

Every candidate is fitted to all rows and to the training rows of every fold. The log scores of the
held-out rows give its weight (`scoring.py`), and the mixture of the candidates
predicts. One that some folds leave hopelessly behind is not fitted again, and the folds end when
one fit is left. Nothing of the fit to all rows is known to a fold.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from soubayes.results import Printable, Shown
from soubayes.sparse.choice.folds import Splits
from soubayes.sparse.choice.scoring import (
    HeldOut,
    Recalibration,
    Scored,
    Scoring,
    first_column,
)
from soubayes.sparse.constants import (
    BEHIND,
    CLEAR_ERRORS,
    DECIDED,
    DENSE,
    DENSE_FOLDS,
    EARLY,
    EARLY_ERRORS,
    EARLY_NATS,
    ENOUGH_ROWS,
    LITTLE_GAIN,
    ROUNDS,
    SETTLED_ROWS,
    SOME,
)
from soubayes.sparse.dial import DialPoint
from soubayes.sparse.posterior import Component, Mixture
from soubayes.threads import SLOW, run_jobs, solver_threads

Array = np.ndarray

Predictions = list[dict[str, HeldOut]]  # of every target and candidate


class Candidate(NamedTuple):
    """A row of the table of candidates."""

    name: str
    prior: str
    local: float  # gamma_tau
    coef: float  # gamma_b
    fit: str = ""  # of which fit it is a part; its name if empty
    terms: str = ""  # how much of the terms it has; empty where all candidates have the same
    point: bool = False  # whether it is the sparse point

    @property
    def dense(self) -> bool:
        """Whether it is an end of the dial, where all columns have one scale."""
        return self.local >= DENSE * self.coef

    @classmethod
    def of(cls, point: DialPoint) -> "Candidate":
        """A point of the dial."""
        return cls(point.name, point.prior, point.local, point.coef)


PATH = Candidate("sparse", "", np.nan, np.nan, point=True)
PATH_AVERAGE = Candidate("average path", "", np.nan, np.nan, PATH.name)


class Fits(NamedTuple):
    """Candidates fitted to some rows: a dict for every target."""

    components: list[dict[str, tuple[Component, ...]]]  # weights sum to 1 within a candidate
    effective: list[dict[str, float]]  # sum_j (1 - kappa_j)
    x_mean: Array


class ChoiceTask(ABC):
    """What the race asks of data: candidates fitted to some, and what they say of others."""

    targets: list[Array]  # y of every target: numbers, or 0 and 1
    weight: Array
    size: int  # side of the systems that are solved

    @abstractmethod
    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        """The wanted candidates of every target, fitted to some rows (None: all)."""

    @abstractmethod
    def predict(self, fits: Fits, rows: Array) -> Predictions:
        """What the candidates say about held-out rows."""


@dataclass(frozen=True, repr=False)
class Sparsity(Printable):
    """What it costs to keep only the selected columns; its text is a sentence.

    Predictions of the sparse point and of the mixture are compared on the same rows, both
    recalibrated. The difference is positive if the selected columns alone predict worse. Where the
    measure is the root mean square error, it is in units of y; otherwise in nats a row.

    >>> print(Sparsity(6, 10, 55.2, 54.1, "RMSE", 1.1, 0.4))
    6 of 10 columns; alone they predict held-out rows worse than all columns (RMSE 55.2 against
    54.1, a difference of 1.1 ± 0.4).
    >>> print(Sparsity(6, 10, 0.45, 0.44, "log loss", 0.01, 0.02))
    6 of 10 columns; alone they predict held-out rows not clearly worse than all columns (a
    difference of 0.01 ± 0.02 nats a row).
    """

    selected: int
    columns: int
    error: float  # of the sparse point, as in the table of candidates
    error_all: float  # of the mixture on the same rows
    measure: str  # what the errors are
    difference: float  # in units of y, or nats a row
    standard_error: float  # of the difference; NaN if it is not known
    rows: str = "held-out rows"  # whose errors they are
    terms: str = ""  # what is kept, in words, where columns are those of terms

    def _shown(self) -> Shown:
        columns = self.terms or f"{self.selected:,} of {self.columns:,} columns"
        return [f"{columns}; alone they predict {self.rows} {self._compared()}."]

    def _compared(self) -> str:
        if self.difference == 0.0:  # the mixture is the sparse point
            return "as well as all columns"
        how = f"{'worse' if self.difference > 0.0 else 'better'} than all columns"
        if abs(self.difference) < CLEAR_ERRORS * self.standard_error:
            how = f"not clearly {how}"
        gap = f"{abs(self.difference):.2g}"
        if self.standard_error >= 0.0:
            gap += f" ± {self.standard_error:.2g}"
        if self.measure != "RMSE":
            return f"{how} (a difference of {gap} nats a row)"
        both = f"RMSE {self.error:.3g} against {self.error_all:.3g}"
        return f"{how} ({both}, a difference of {gap})"


class Choice(NamedTuple):
    """The result for one target."""

    mixture: Mixture
    candidates: pd.DataFrame
    out_of_fold: pd.DataFrame | None  # None: rows that were not kept
    error: str  # the name of the errors in the table
    gap: tuple[float, float]  # see `_Race.gap`
    judged_by: str = "held-out rows"
    alone: Recalibration = Recalibration()  # of the sparse point
    sparse: str = PATH.name  # the candidate that is reported as the sparse point

    def sparsity(self, selected: Array) -> Sparsity:
        """What keeping only the selected columns costs on held-out rows."""
        row = self.candidates.set_index("candidate").loc[self.sparse]
        return Sparsity(
            int(selected.sum()), len(selected), float(row["error"]), float(row["mixture_error"]),
            self.error, *self.gap, self.judged_by,
        )  # fmt: skip


def choose(
    task: ChoiceTask,
    candidates: Sequence[Candidate],
    splits: Splits,
    scoring: Scoring,
    jobs: int = 1,
) -> list[Choice]:
    """A mixture for every target.

    The first fold is fitted alone, since it leaves most of the hopeless candidates behind. Then
    jobs that a round would leave idle fit folds of the next rounds, for all candidates that are
    still in. What is said there by one that is left behind meanwhile is not kept, so the number of
    ``jobs`` changes nothing.
    """
    race = _Race(task, candidates, scoring, jobs)
    begin, slow = 0, False
    held_of_folds: list[Predictions] = []  # of folds from ``begin`` on
    for end in [*(r for r in ROUNDS if r < len(splits)), len(splits)]:
        if len(held_of_folds) < end - begin:
            more = max(end - begin, jobs if begin else 1)
            folds, start = splits[begin + len(held_of_folds) : begin + more], time.perf_counter()
            held_of_folds += run_jobs(race.held, folds, jobs, slow)
            slow = slow or (begin == 0 and time.perf_counter() - start > SLOW)
        for number in range(begin, end):
            race.keep(number, splits[number][1], held_of_folds.pop(0))
        begin = end
        if end < len(splits) and len(race.seen) >= EARLY:
            race.leave_behind(len(splits) / end, end)
            if race.decided(end):
                break
    results = [race.scored(t) for t in range(len(task.targets))]
    final = [race.weighted(t, scored) for t, scored in enumerate(results)]
    fits = task.fit(None, final)
    return [race.choice(t, scored, fits) for t, scored in enumerate(results)]


class _Race:
    """Out-of-fold predictions so far, and who is still in."""

    def __init__(
        self, task: ChoiceTask, candidates: Sequence[Candidate], scoring: Scoring, jobs: int
    ) -> None:
        self.task, self.candidates, self.scoring, self.jobs = task, candidates, scoring, jobs
        self.labels = np.array([candidate.name for candidate in candidates])
        n, count = len(task.weight), len(task.targets)
        shape = len(HeldOut._fields), n, count, len(candidates), *scoring.shape
        self.held_out = HeldOut(*np.full(shape, np.nan))
        self.fold = np.full(n, -1)
        self.left = np.ones((count, len(candidates)), bool)

    def held(self, train: Array, test: Array) -> Predictions:
        """What the candidates that are still in say about a fold."""
        wanted = [set(self.labels[left]) for left in self.left]
        with solver_threads(self.task.size, self.jobs):  # a process of its own has all cores
            return self.task.predict(self.task.fit(train, wanted), test)

    def keep(self, number: int, test: Array, found: Predictions) -> None:
        """Store what those who are still in say about a fold."""
        self.fold[test] = number
        for t, each in enumerate(found):
            for k in np.flatnonzero(self.left[t]):
                for whole, part in zip(self.held_out, each[self.labels[k]], strict=True):
                    whole[test, t, k] = part

    @property
    def seen(self) -> Array:
        """The rows that were held out."""
        return np.flatnonzero(self.fold >= 0)

    def scored(self, t: int) -> Scored:
        """The scores of a target by those who are still in."""
        rows, left, weight = self.seen, self.left[t], self.task.weight
        held = self.held_out.take(rows, t).take(slice(None), left)
        # one part was held out: the scores of all rows would be so many times as large
        more = float(weight.sum() / weight[rows].sum())
        return self.scoring.score(self.task.targets[t][rows], held, weight[rows], more)

    def leave_behind(self, more: float, folds: int) -> None:
        """Drop whose weight would vanish with ``more`` times the rows, less one standard error.

        After few rows, or one fold for a dense end, only with a wide margin. An outlier that
        decided the difference would make its standard error as large.
        """
        early = np.array([candidate.dense and folds < DENSE_FOLDS for candidate in self.candidates])
        early |= len(self.seen) < SOME
        for t, left in enumerate(self.left):
            scores = self.scored(t).scores
            behind = scores - scores[:, [int(np.argmax(scores.sum(axis=0)))]]
            # the sum of n differences has the standard error sqrt(n) sd, which is granted
            error, total = np.sqrt(len(behind)) * behind.std(axis=0), behind.sum(axis=0)
            granted = total + np.where(early[left], EARLY_ERRORS, 1.0) * error
            limit = -BEHIND * np.where(early[left], EARLY_NATS, 1.0)
            hopeless = self.scoring.power * more * granted < limit
            left[np.flatnonzero(left)[hopeless]] = False

    def decided(self, folds: int) -> bool:
        """Whether one fit is left for every target, or several that predict alike.

        Outliers among the held-out rows are no share of all rows yet: they wait for the other
        folds.
        """
        rows = len(self.seen)
        one = folds >= DECIDED and rows >= ENOUGH_ROWS
        if not one and rows < SETTLED_ROWS:
            return False
        names = np.array([candidate.fit or candidate.name for candidate in self.candidates])
        for t, left in enumerate(self.left):
            scored, single = self.scored(t), one and len(set(names[left])) == 1
            alike = rows >= SETTLED_ROWS and self._to_gain(scored) < LITTLE_GAIN
            if not (single or alike) or not scored.settled:
                return False
        return True

    def _to_gain(self, scored: Scored) -> float:
        """Nats a row by which the weights of all folds would change the mean score, about.

        Log weights are ``power`` times sums of scores. From m rows to n such a sum, less n/m times
        what it is now, changes with the variance sd^2 (n - m) n/m.
        """
        m, n = len(scored.scores), len(self.fold)
        off = scored.scores - (scored.scores @ scored.weights)[:, None]
        sd = off.std(axis=0)
        move = self.scoring.power * sd * np.sqrt((n - m) * n / m)
        return float(scored.weights @ (move * (np.abs(off.mean(axis=0)) + sd / np.sqrt(m))))

    def weighted(self, t: int, scored: Scored) -> set[str]:
        """The candidates of positive weight."""
        return set(self.labels[self.left[t]][scored.weights > 0])

    def choice(self, t: int, scored: Scored, fits: Fits) -> Choice:
        """The mixture, the table of candidates and the out-of-fold predictions of a target."""
        left, by_row = self.left[t], self.scoring.by_row

        def placed(values: Array | float, missing: float = np.nan) -> Array:
            whole = np.full(len(self.candidates), missing)
            whole[left] = values
            return whole

        totals = scored.scores.sum(axis=0)
        # standard errors are those of differences to the best: what rows have in common cancels
        off = scored.scores - scored.scores[:, [int(np.argmax(totals))]]
        weights, factor = placed(scored.weights, 0.0), placed(scored.scale)
        parts = [
            replace(
                component,
                weight=component.weight * float(weights[k]),
                inflation=component.inflation * float(factor[k]),
                candidate=str(label),
            )
            for k, label in enumerate(self.labels)
            for component in fits.components[t].get(label, ())
        ]
        error, beside = self._errors(t, scored)
        columns = {
            "candidate": list(self.labels),
            "prior": [candidate.prior for candidate in self.candidates],
            "confidence_local": [candidate.local for candidate in self.candidates],
            "confidence_coef": [candidate.coef for candidate in self.candidates],
            "score": placed(totals),
            "score_se": placed(np.sqrt(len(off)) * off.std(axis=0) if by_row else np.nan),
            "error": error,
            "mixture_error": beside,
            "weight": weights,
            "effective_columns": [fits.effective[t].get(label, np.nan) for label in self.labels],
            "inflation": factor,
            "coverage": placed(scored.coverage[0] if by_row else np.nan),
            "coverage_recalibrated": placed(scored.coverage[1] if by_row else np.nan),
        }
        y, rows = self.task.targets[t], self.seen
        mean, variance = np.full((2, len(y)), np.nan)
        mean[rows], variance[rows] = scored.mean, scored.variance
        y = first_column(y)
        rows_seen = {"y": y, "mean": mean, "sd": np.sqrt(variance), "fold": self.fold}
        for k in range(*self.scoring.shape or (0,)):
            rows_seen[f"class {k}"] = np.full(len(y), np.nan)
            rows_seen[f"class {k}"][rows] = np.exp(scored.point[:, k])
        held = pd.DataFrame(rows_seen) if by_row else None
        mixture = scored.recalibration.of(Mixture(tuple(parts)))
        sparse = self.sparse(weights)
        rows, alone = self.alone(t, sparse)
        gap, alone_recalibration = (np.nan, np.nan), Recalibration()
        if alone is not None:
            gap = self.gap(t, scored, weights[self.labels == sparse], rows, alone)
            alone_recalibration = alone.recalibration._replace(scale=float(alone.scale[0]))
        table = pd.DataFrame(columns)
        if any(candidate.terms for candidate in self.candidates):
            table.insert(1, "terms", [candidate.terms for candidate in self.candidates])
        return Choice(
            mixture, table, held, self.scoring.name, gap, alone=alone_recalibration, sparse=sparse
        )

    def sparse(self, weights: Array) -> str:
        """The sparse point that is reported: with the terms that the mixture is mostly of."""
        total: dict[str, float] = {}
        for candidate, weight in zip(self.candidates, weights, strict=True):
            total[candidate.terms] = total.get(candidate.terms, 0.0) + float(weight)
        most = max(total, key=lambda terms: total[terms])
        points = [c.name for c in self.candidates if c.point and c.terms == most]
        return points[0] if points else PATH.name

    def alone(self, t: int, name: str) -> tuple[Array, Scored | None]:
        """The rows that a sparse point saw held out, and its scores without the others."""
        sparse = self.labels == name
        held = self.held_out.take(slice(None), t).take(slice(None), sparse)
        rows = self._seen_by(held)
        if not sparse.any() or not rows.any():
            return rows, None
        y, weight = self.task.targets[t][rows], self.task.weight[rows]
        return rows, self.scoring.score(y, held.take(rows), weight, 1.0)

    def _seen_by(self, held: HeldOut) -> Array:
        """The rows about which a candidate has said something."""
        read = getattr(held, self.scoring.reads)
        return np.isfinite(read).reshape(len(read), -1).all(axis=1)

    def gap(
        self, t: int, scored: Scored, weights: Array, rows: Array, alone: Scored
    ) -> tuple[float, float]:
        """By how much the sparse point predicts worse than the mixture, and its standard error.

        ``weights`` are those of the sparse point in the mixture.

        Both are recalibrated, since columns are compared and not calibrations. The rows are those
        that the sparse point saw held out.
        """
        if weights[0] == 1.0:
            return 0.0, 0.0
        y, weight, folds = self.task.targets[t][rows], self.task.weight[rows], self.fold[rows]
        loss = self.scoring.loss
        losses = np.stack([loss(y, alone.point), loss(y, scored.point[rows[self.seen]])], axis=1)
        if not self.scoring.by_row:  # rows stand for the moments of a fold: a fold is one number
            total = np.bincount(folds, weight)
            losses = np.stack([np.bincount(folds, weight * column) for column in losses.T], axis=1)
            losses, weight = losses[total > 0.0] / total[total > 0.0, None], total[total > 0.0]
        return self.scoring.gap(losses, weight)

    def _errors(self, t: int, scored: Scored) -> tuple[Array, Array]:
        """Of every candidate on the rows it saw held out, and of the mixture on the same rows."""
        y, weight, loss = self.task.targets[t], self.task.weight, self.scoring.loss
        point = np.full((len(y), *self.scoring.shape), np.nan)
        point[self.seen] = scored.point
        errors = np.full((2, len(self.labels)), np.nan)
        for k in range(len(self.labels)):
            held = self.held_out.take(slice(None), t, k)
            rows = self._seen_by(held)
            for i, guess in enumerate((getattr(held, self.scoring.reads)[rows], point[rows])):
                mean = np.average(loss(y[rows], guess), weights=weight[rows])
                errors[i, k] = self.scoring.error(float(mean))
        return errors[0], errors[1]
