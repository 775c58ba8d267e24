"""One way from rows to what is reported, whatever the response.

    rows > design > sparse point > candidates > choice

A `Family` says what is special about a response: its standardised design, the sparse point of every
target, its candidates, and what these say about a row that was held out. `fit_rows` and
`fit_design` are the way; linear regression, likelihoods of rows and Cox regression all take it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from soubayes.sparse.choice.folds import Splits, enough_rows, folds_of
from soubayes.sparse.choice.race import Candidate, Choice, ChoiceTask, Fits, Predictions, choose
from soubayes.sparse.choice.scoring import HeldOut, Scoring
from soubayes.sparse.constants import FEWEST_ROWS
from soubayes.sparse.designs.standardise import blocks_of_rows
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.intervals.estimates import ColumnEstimates
from soubayes.sparse.model import FitSettings
from soubayes.sparse.posterior import Component, Mixture, SparsePoint, centred
from soubayes.threads import solver_threads

Array = np.ndarray

CandidateFit = tuple[
    str, tuple[Component, ...], float
]  # a candidate: name, components, columns in use


class TrainingRows(NamedTuple):
    """Rows in memory, all of positive weight."""

    X: Any
    targets: list[Array]
    weight: Array
    labels: Array  # which folds share out evenly, if they are stratified
    groups: Array | None = None  # which folds hold out whole


class Choosing(NamedTuple):
    """What the parameters of an estimator say about the choice and the supports."""

    owner: str  # whom warnings are from
    predicts: bool  # whether confidences are chosen by prediction
    inclusion: bool
    cv: Any
    seed: Any
    jobs: int
    stratified: bool
    names: Sequence[Any]  # of the targets


class DesignOfTargets(Protocol):
    """Standardised data of every target."""

    @property
    def x_mean(self) -> Array:
        """Of the columns in the user's units, about which posteriors report the intercept."""


class SolvedTarget(Protocol):
    """A target at its sparse point."""

    @property
    def component(self) -> Component:
        """Its q, as candidates have one."""

    @property
    def points(self) -> list[SparsePoint]:
        """What is reported: one point, or one for each class."""


class Reported(NamedTuple):
    """What an estimator reports."""

    points: list[SparsePoint]
    x_mean: Array
    choices: list[Choice] | None = None
    supports: list[SupportPosterior] | None = None


class Family(ABC):
    """What the shell asks of a kind of response."""

    candidates: tuple[Candidate, ...]
    scoring: Scoring
    settings: FitSettings
    fewest_rows: ClassVar[int] = FEWEST_ROWS  # below which nothing is chosen by prediction
    sparse: list[tuple[Component, SparsePoint]]  # the targets at their sparse points, once known

    @abstractmethod
    def design(self, X: Any, targets: list[Array], weight: Array) -> Any:
        """The standardised data of every target (`DesignOfTargets`), from rows in memory."""

    @abstractmethod
    def solve(self, intake: Any, names: Sequence[Any], jobs: int = 1) -> Sequence[SolvedTarget]:
        """Every target at its sparse point."""

    @abstractmethod
    def supports(
        self, intake: Any, solved: Any, rows: TrainingRows | None
    ) -> list[SupportPosterior]:
        """The posterior over supports of every target."""

    @abstractmethod
    def fitted(self, intake: Any, t: int, wanted: set[str], known: bool) -> Iterable[CandidateFit]:
        """The wanted candidates of a target; ``known``: the sparse point is that of these rows."""

    @abstractmethod
    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """What a candidate says about rows that were held out."""

    def chosen_at_once(
        self, intake: Any, solved: Any, rows: TrainingRows | None, how: Choosing
    ) -> list[Choice] | None:
        """The choice of data that need not be fitted again for every fold; None: they must."""
        return None

    def chooses(self, intake: Any) -> bool:
        """Whether candidates differ."""
        return True

    def race(
        self, task: "InMemory", intake: Any, how: Choosing
    ) -> tuple[Sequence[Candidate], Splits] | None:
        """Which candidates race in which folds; None where there can be no folds."""
        rows = task.rows
        folds = folds_of(
            how.cv, rows.X, rows.labels, rows.groups,
            seed=how.seed, owner=how.owner, stratified=how.stratified,
        )  # fmt: skip
        return None if folds is None else (self.candidates, folds)

    def estimates(
        self, rows: TrainingRows, predictors: Callable[[], list[Array]], mixtures: list[Mixture]
    ) -> list[ColumnEstimates] | None:
        """Of all columns and every target, which no prior pulls to 0; None: they are not kept.

        ``predictors()`` are the fitted ones, means of the ``mixtures``.
        """
        return None

    def integrated(self, rows: TrainingRows) -> Sequence[tuple[Mixture, list[float]]] | None:
        """The posterior of every target with scales integrated over, and their likelihood ratios.

        None: the scales are as fitted.
        """
        return None

    def left_out(
        self, rows: TrainingRows, points: Sequence[SparsePoint], curves: Sequence[Array]
    ) -> list[Any]:
        """Of every target what curved parts may be that its sparse point leaves out; [] unknown."""
        return []

    def in_order(self, each: list[Any]) -> list[Any]:
        """What was found for every target, in the order in which it is reported."""
        return each

    def reported(self, choices: list[Choice]) -> list[Choice]:
        """The choices as they are reported."""
        return choices

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        """The wanted candidates of every target; ``known``: these are all rows."""
        return self.fit_candidates(self.design(X, targets, weight), wanted, known)

    def fit_candidates(self, intake: Any, wanted: Sequence[set[str]], known: bool) -> Fits:
        """The same from a design."""
        fits = Fits([], [], intake.x_mean)
        for t, names in enumerate(wanted):
            candidates = list(self.fitted(intake, t, names, known))
            fits.components.append({name: parts for name, parts, _ in candidates})
            fits.effective.append({name: size for name, _, size in candidates})
        return fits


def fit_rows(family: Family, rows: TrainingRows, how: Choosing) -> Reported:
    """From rows in memory: the sparse point, the supports, then the choice among candidates."""
    intake = family.design(rows.X, rows.targets, rows.weight)
    fit, chosen = _fit(family, intake, rows, how), how.predicts and family.chooses(intake)
    if (
        not chosen
        or fit.choices
        or not enough_rows(len(rows.weight), how.owner, family.fewest_rows)
    ):
        return fit
    task = InMemory(family, rows)
    with solver_threads(task.size, how.jobs):
        plan = family.race(task, intake, how)
        del intake  # the folds have designs of their own
        choices = choose(task, *plan, family.scoring, how.jobs) if plan else None
    return fit._replace(choices=choices and family.reported(choices))


def fit_design(family: Family, intake: Any, how: Choosing) -> Reported:
    """From a design whose rows are not in memory: no row can be held out."""
    return _fit(family, intake, None, how)


def _fit(family: Family, intake: Any, rows: TrainingRows | None, how: Choosing) -> Reported:
    """The sparse point, the supports, and the choice where it needs no rows."""
    solved = family.solve(intake, how.names, how.jobs)
    family.sparse = [(one.component, one.points[0]) for one in solved]
    points = family.in_order([point for one in solved for point in one.points])
    supports, choices = None, None
    if how.inclusion:
        supports = family.in_order(family.supports(intake, solved, rows))
    if how.predicts:
        choices = family.chosen_at_once(intake, solved, rows, how)
    return Reported(points, intake.x_mean, choices, supports)


class InMemory(ChoiceTask):
    """Rows in memory, of which some are held out."""

    def __init__(self, family: Family, rows: TrainingRows) -> None:
        self.family, self.rows = family, rows
        self.targets, self.weight = rows.targets, rows.weight
        self.size = family.settings.system_size(rows.X)

    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        X, weight = self.rows.X, self.weight
        if rows is None:
            return self.family.fit(X, self.targets, weight, wanted, True)
        targets = [y[rows] for y in self.targets]
        return self.family.fit(X[rows], targets, weight[rows], wanted, False)

    def predict(self, fits: Fits, rows: Array) -> Predictions:
        X, held_out = self.rows.X[rows], self.family.held_out
        mixtures = [
            {k: Mixture(parts) for k, parts in by_name.items()} for by_name in fits.components
        ]
        blocks: list[dict[str, list[HeldOut]]] = [{k: [] for k in by_name} for by_name in mixtures]
        for part_of_rows, block in blocks_of_rows(X, self.family.settings.unit is not None):
            for by_name, held, y in zip(mixtures, blocks, self.targets, strict=True):
                for k, mixture in by_name.items():
                    Z = centred(block, fits.x_mean, mixture)
                    # a prediction that overflows is a wrong one: its candidate loses
                    with np.errstate(over="ignore"):
                        held[k].append(held_out(mixture, Z, y[rows[part_of_rows]]))
        return [
            {
                k: HeldOut(*map(np.concatenate, zip(*held, strict=True)))
                for k, held in by_name.items()
            }
            for by_name in blocks
        ]
