"""Linear regression as a family of the shell: its sparse point, candidates, and which of them race.

Rows enter through cross-products, so a fold of many rows is known by its moments
(`fold_moments.py`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from soubayes.confidence import shown
from soubayes.sparse.choice.folds import (
    DENSE_BYTES,
    Splits,
    few_at_a_time,
    folds_of,
    make_folds,
    nearly_square,
    square_folds,
)
from soubayes.sparse.choice.race import PATH, PATH_AVERAGE, Candidate, Choice, Fits, choose
from soubayes.sparse.choice.scoring import FOLD_MOMENTS, NUMBERS, HeldOut, student_scoring
from soubayes.sparse.constants import (
    CLEARLY_SPARSE,
    FAILED_PATH,
    FEWEST_NUMBERS,
    LARGE,
    RATHER_SPARSE,
    TRIED_FOLDS,
)
from soubayes.sparse.designs.moments import FoldedMoments, folded_moments
from soubayes.sparse.dial import EACH_TERM, DialPoint
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.intervals.estimates import ColumnEstimates, debiased_ridge
from soubayes.sparse.least_squares.criterion import support_evidence
from soubayes.sparse.least_squares.dial import LEAST_SQUARES_DIAL, LeastSquaresDial
from soubayes.sparse.least_squares.fitting import (
    LinearIntake,
    LinearSettings,
    Solved,
    in_units,
    linear_supports,
    rows_intake,
    settle_targets,
    solve_targets,
    unit_intake,
)
from soubayes.sparse.least_squares.fold_moments import FoldMoments
from soubayes.sparse.least_squares.integrated import (
    IntegratedScales,
    LeftOut,
    integrated,
    left_out_curves,
)
from soubayes.sparse.least_squares.path import coefficients_at, path_fit
from soubayes.sparse.least_squares.student_noise import StudentPrior, TailRows
from soubayes.sparse.posterior import Component, Mixture, SparsePoint
from soubayes.sparse.shell import CandidateFit, Choosing, Family, InMemory, TrainingRows
from soubayes.threads import solver_threads

Array = np.ndarray

FOLD_STILL = 1e-4  # relative change at which the rounds for Student's t end in a fold
MEDIAN_NORMAL = 0.6745  # of |z|


class LinearFamily(Family):
    """``folds`` are those of which moments are kept."""

    settings: LinearSettings
    candidates: tuple[Candidate, ...] = (
        PATH, PATH_AVERAGE, *map(Candidate.of, LEAST_SQUARES_DIAL)
    )  # fmt: skip
    scoring = NUMBERS
    fewest_rows = FEWEST_NUMBERS

    def __init__(self, settings: LinearSettings, folds: int = 1) -> None:
        self.settings, self.folds, self.sparse = settings, folds, []
        self.dial: tuple[DialPoint, ...] = LEAST_SQUARES_DIAL
        if settings.shared is not None:
            self.dial = (*self.dial, EACH_TERM)
            self.candidates = (*self.candidates, Candidate.of(EACH_TERM))
        self.priors: list[StudentPrior] = []  # degrees of freedom of all rows; folds hold them
        self.moments: FoldedMoments | None = None  # of all rows, to which others may be added

    @property
    def intercept(self) -> bool:
        """Whether the model has one."""
        return self.settings.intercept is not None

    def design(self, X: Any, targets: list[Array], weight: Array) -> LinearIntake:
        """With the moments of the folds, if X'X is formed in the units of X and y."""
        Y, student = np.stack(targets, axis=1), self.settings.student
        counts = None if (weight == 1.0).all() else weight
        shared = self.settings.shared
        if self.settings.unit is not None:
            self.moments = None
            return unit_intake(X, Y, counts, self.intercept, self.settings)
        intake = rows_intake(X, Y, counts, self.intercept, self.folds, shared=shared)
        known = intake.moments if intake.units.plain else None
        self.moments = known if student is None else None
        if student is not None:
            priors = [student] * len(targets)
            intake = settle_targets(
                intake, tails(intake, X, targets, weight), self.settings, priors
            )
            if known is not None and len(Y) >= LARGE:
                known = folded_moments(X, intake.observations(X, Y), counts, self.folds)
            else:
                known = None
        return intake._replace(moments=known)

    def solve(self, intake: LinearIntake, names: Sequence[Any], jobs: int = 1) -> list[Solved]:
        """One target after the other."""
        students = intake.units.students
        self.priors = [StudentPrior(float(noise.degrees)) for noise in students]
        if students:
            self.scoring = student_scoring(min(noise.degrees for noise in students))
        return solve_targets(intake, self.settings)

    def supports(
        self, intake: LinearIntake, solved: Sequence[Solved], rows: TrainingRows | None
    ) -> list[SupportPosterior]:
        """From the cross-products."""
        units, groups = intake.units, self.settings.groups
        with solver_threads(intake.size):
            return [linear_supports(one, units, t, groups) for t, one in enumerate(solved)]

    def chosen_at_once(
        self, intake: LinearIntake, solved: Any, rows: TrainingRows | None, how: Choosing
    ) -> list[Choice] | None:
        """By the moments of the folds: of rows that are gone, and of many rows."""
        folds = intake.moments
        if folds is None:
            return None
        if rows is None:
            enough = folds.rows >= max(FEWEST_NUMBERS, len(folds.folds))
        else:
            enough = folds.rows >= LARGE and how.cv == "auto" and rows.groups is None
        if not enough:
            return None
        if len(folds.folds) < 2:
            raise TypeError(
                f"cv is {shown(how.cv)}, but rows that are streamed are split by their numbers: "
                "use 'auto', an int, or None."
            )
        task = FoldMoments(folds, self, intake.units.students)
        with solver_threads(len(intake.units.x_scale), how.jobs):
            return choose(task, self.candidates, task.splits, FOLD_MOMENTS, how.jobs)

    def estimates(
        self, rows: TrainingRows, predictors: Callable[[], list[Array]], mixtures: list[Mixture]
    ) -> list[ColumnEstimates] | None:
        """For more columns than rows; the moments of others say more."""
        if self.moments is not None or self.settings.student is not None:
            return None
        intercept = self.intercept
        return [debiased_ridge(rows.X, y, rows.weight, intercept) for y in rows.targets]

    def race(
        self, task: InMemory, intake: LinearIntake, how: Choosing
    ) -> tuple[Sequence[Candidate], Splits] | None:
        """Which candidates race in which folds; None where there can be no folds.

        Where n is close to p, folds have fewer training rows than columns. If the evidence of all
        rows is for the path, there are more folds. If it is clearly so, or if the path loses its
        signals in these folds, the path is the only candidate, in folds of few rows.
        """
        rows, (n, p) = task.rows, task.rows.X.shape
        points = [point for _, point in self.sparse]
        lead = -np.inf
        if how.cv == "auto" and nearly_square(n, p) and self.settings.unit is None:
            lead = sparse_lead(intake, points, self.settings)
        if lead < RATHER_SPARSE:
            # all candidates are fitted from X'X or X X', whichever is smaller
            square = 8 * (p if p <= 2 * n else n) ** 2 <= DENSE_BYTES
            folds = folds_of(
                how.cv, rows.X, rows.labels, rows.groups, seed=how.seed, stratified=False,
                owner=how.owner, products=square and (p <= n or not self.settings.blocks),
            )  # fmt: skip
            return None if folds is None else (self.candidates, folds)
        folds = make_folds(square_folds(n), rows.labels, rows.groups, False, how.seed, True)
        if lead < CLEARLY_SPARSE * n and not path_fails(task, folds[:TRIED_FOLDS], points):
            return self.candidates, folds
        return (PATH,), few_at_a_time(n, p, how.seed) if rows.groups is None else folds

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        """Dense fits have Student's t about the dense end, sparse ones about the path."""
        Y = np.stack(targets, axis=1)
        shared = self.settings.shared
        if self.settings.unit is not None:
            intake = unit_intake(X, Y, weight, self.intercept, self.settings)
            return self.fit_candidates(intake, wanted, known)
        intake = rows_intake(X, Y, weight, self.intercept, square=True, shared=shared)
        if self.priors:
            given = intake, tails(intake, X, targets, weight), self.settings, self.priors
            dense = settle_targets(*given, dense=True, still=FOLD_STILL)
            sparse = dense if known else settle_targets(*given, still=FOLD_STILL)
            intake = sparse._replace(dense=dense)
        return self.fit_candidates(intake, wanted, known)

    def fitted(
        self, intake: LinearIntake, t: int, wanted: set[str], known: bool
    ) -> Iterable[CandidateFit]:
        """The path, its average, then the points of the dial."""
        if wanted & {PATH.name, PATH_AVERAGE.name}:
            average = PATH_AVERAGE.name in wanted
            component, coefs, size = self._known(t) if known else self._path(intake, t, average)
            if PATH.name in wanted:
                yield PATH.name, (component,), size
            if average:
                count = float(np.count_nonzero(coefs, axis=1).mean())
                yield PATH_AVERAGE.name, _along(component, coefs), count
        points = [point for point in self.dial if point.name in wanted]
        if points:
            dense = intake.dense or intake
            model, _ = intake.model(self.settings, t)
            dial = LeastSquaresDial(dense.designs[t], model)
            for point in points:
                fit = dial.fit(point)
                component = in_units(dense.designs[t], fit, dense.units, t)
                yield point.name, (component,), fit.effective

    def integrated(self, rows: TrainingRows) -> list[IntegratedScales] | None:
        """At confidence 1 the scales of units are integrated over."""
        groups = self.settings.groups
        asked = groups is not None and groups.scales and self.settings.coef == 1.0
        if groups is None or not asked or self.settings.student is not None:
            return None
        intake = self.design(rows.X, rows.targets, rows.weight)
        scales = [np.flatnonzero(groups.number == g) for g in groups.scales]
        each = enumerate(solve_targets(intake, self.settings))
        return [integrated(intake, t, solved, scales) for t, solved in each]

    def left_out(
        self, rows: TrainingRows, points: Sequence[SparsePoint], curves: Sequence[Array]
    ) -> list[list[LeftOut]]:
        """Of every target the curved parts that its sparse point leaves out."""
        if self.settings.student is not None or not curves:
            return []
        intake = self.design(rows.X, rows.targets, rows.weight)
        return [
            left_out_curves(intake, t, point, [c for c in curves if not point.selected[c].any()])
            for t, point in enumerate(points)
        ]

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """The mean of y and its variance."""
        try:
            with np.errstate(over="raise"):
                mean, variance = mixture.predict(rows)
        except FloatingPointError:
            j = int(np.argmax(np.abs(rows).max(axis=0)))
            raise ValueError(
                f"column {j} of X has a value {np.abs(rows[:, j]).max():.2g} from the mean of the "
                "other rows, too far to predict its row when it is held out; correct the value, "
                "or leave out the row."
            ) from None
        return HeldOut.of_numbers(mean, variance, np.full_like(mean, mixture.noise))

    def _known(self, t: int) -> tuple[Component, Array, float]:
        component, point = self.sparse[t]
        return component, point.path.coef, point.effective

    def _path(self, intake: LinearIntake, t: int, average: bool) -> tuple[Component, Array, float]:
        """The path of some rows: its chosen point, if asked its coefficients, and its size."""
        (model, free), design = intake.model(self.settings, t), intake.designs[t]
        states, fit = path_fit(design, model, free, max_iter=self.settings.max_iter)
        coefs = np.array([coefficients_at(design, state) for state in states if average])
        component = in_units(design, fit, intake.units, t)
        if average:
            coefs = coefs * (intake.units.y_scale[t] / intake.units.x_scale)
        return component, coefs, fit.effective


def tails(intake: LinearIntake, X: Any, targets: Sequence[Array], weight: Array) -> Any:
    """The rows of a target in standardised units, as Student's t reads them."""
    return lambda t: TailRows(X, targets[t], weight, intake.units.of(t))


def _along(chosen: Component, coefs: Array) -> tuple[Component, ...]:
    """The path's average: its points, each with the covariance and noise of the chosen one."""
    components = []
    for coef in coefs:
        mean = chosen.posterior.mean.copy()
        mean[: len(coef)] = coef
        posterior = chosen.posterior.at(mean)
        components.append(replace(chosen, posterior=posterior, weight=1.0 / len(coefs)))
    return tuple(components)


def sparse_lead(
    intake: LinearIntake, points: Sequence[SparsePoint], settings: LinearSettings
) -> float:
    """Nats by which the evidence of the path's support exceeds that of ridge regression.

    With p <= n and fewer training rows than columns in a fold, the path loses signals in folds
    that it finds on all rows, where their marginal likelihoods can be compared. The least of all
    targets.
    """
    leads = []
    for t, (design, point) in enumerate(zip(intake.designs, points, strict=True)):
        model, free = intake.model(settings, t)
        support, intercept = np.flatnonzero(point.selected), model.intercept_variance is not None
        places = free / model.group_size
        sparse = support_evidence(
            design, support, model.sparse, places, intercept, model.tau_numbers
        )
        leads.append(sparse - LeastSquaresDial(design, model).evidence())
    return float(min(leads))


def path_fails(
    task: InMemory, folds: Sequence[tuple[Array, Array]], points: Sequence[SparsePoint]
) -> bool:
    """Whether the path loses signals in folds that it has found on all rows.

    The median of its errors is then many times what it claims for new rows.
    """
    wanted = [{PATH.name}] * len(points)
    held_out = [(test, task.predict(task.fit(train, wanted), test)) for train, test in folds]
    for t, (point, y) in enumerate(zip(points, task.targets, strict=True)):
        residual = np.concatenate([y[test] - held[t][PATH.name].mean for test, held in held_out])
        n, k = len(y), min(point.effective, 0.9 * len(y))
        claimed = math.sqrt(point.component.noise * n / (n - k))
        if float(np.median(np.abs(residual))) > FAILED_PATH * MEDIAN_NORMAL * claimed:
            return True
    return False
