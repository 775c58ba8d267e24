"""Likelihoods of rows as families of the shell: sparse point, supports, candidates."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from soubayes.confidence import shown
from soubayes.data.rows import RowSource
from soubayes.sparse.choice.folds import DENSE_BYTES, Splits, folds_of, say_path
from soubayes.sparse.choice.race import PATH, Candidate, Choice
from soubayes.sparse.choice.scoring import (
    CLASSES,
    COUNTS,
    DENSITIES,
    WHOLE_DENSITIES,
    HeldOut,
    class_scoring,
)
from soubayes.sparse.constants import FAR_MORE, LARGE, ROOM, STRIDE
from soubayes.sparse.designs.columns import SPARSE_BYTES
from soubayes.sparse.designs.moments import Gathered
from soubayes.sparse.designs.standardise import (
    ColumnUnits,
    as_dense,
    check_squares,
    check_units,
    column_marks,
    column_units,
    in_range,
)
from soubayes.sparse.dial import EACH_TERM, DialPoint
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.intervals.estimates import ColumnEstimates, one_step
from soubayes.sparse.likelihoods.base import Likelihood, RowLikelihood, offset_apart
from soubayes.sparse.likelihoods.bernoulli import average_log_odds
from soubayes.sparse.likelihoods.predictive import Predictive
from soubayes.sparse.posterior import Component, Mixture, SparsePoint
from soubayes.sparse.rows.classes import log_shares, of_class
from soubayes.sparse.rows.dial import ROW_DIAL
from soubayes.sparse.rows.many_rows import choose_ends
from soubayes.sparse.rows.passes import RowsInMemory, rows_in_memory
from soubayes.sparse.rows.path import (
    Limits,
    PathRows,
    RowOutcome,
    SharedRows,
    share_rows,
    solve_rows,
)
from soubayes.sparse.rows.report import class_points, joint_posterior, row_sparse_point
from soubayes.sparse.rows.state import RowPlan, RowSettings
from soubayes.sparse.rows.streams import StreamedRows
from soubayes.sparse.rows.supports import SupportRows, class_supports, row_supports
from soubayes.sparse.shell import CandidateFit, Choosing, Family, InMemory, TrainingRows
from soubayes.threads import run_jobs, solver_threads

Array = np.ndarray

LARGEST_MEAN = 1e100  # of a held-out row: its square is a number
FOLD_TOL = 1e-4  # relative fall of J at which a fold's path stops at a point
# the same of several classes, whose steps cost more, and of a point on the way
CLASSES_FOLD_TOL, CLASSES_WAY_TOL = 1e-3, 1e-4


class RowIntake(NamedTuple):
    """The rows of every target with their likelihood, and the plan and units that they share."""

    rows: Sequence[PathRows]
    plan: RowPlan
    units: ColumnUnits

    @property
    def x_mean(self) -> Array:
        """Means of the columns."""
        return self.units.mean


class RowSolved(NamedTuple):
    """One target: where the solver ended, and the same in the user's units."""

    outcome: RowOutcome
    component: Component  # q of all predictors
    points: list[SparsePoint]  # what is reported: one point, or one for each class


class RowFamily(Family):
    """A likelihood with its settings."""

    settings: RowSettings
    dial: tuple[DialPoint, ...] = ROW_DIAL
    candidates: tuple[Candidate, ...] = (PATH, *map(Candidate.of, ROW_DIAL))
    scoring = DENSITIES

    def __init__(self, likelihood: Likelihood, settings: RowSettings) -> None:
        self.likelihood, self.settings, self.sparse = likelihood, settings, []
        if settings.shared is not None:
            self.dial = (*self.dial, EACH_TERM)
            self.candidates = (*self.candidates, Candidate.of(EACH_TERM))
        if self.scoring is DENSITIES and self.whole:
            self.scoring = WHOLE_DENSITIES

    @property
    def several(self) -> bool:
        """Whether the predictors of a row have an axis."""
        return self.likelihood.several

    @property
    def whole(self) -> bool:
        """Whether y are whole numbers."""
        likelihood = self.likelihood.plain
        return isinstance(likelihood, RowLikelihood) and likelihood.whole

    @property
    def products(self) -> bool:
        """Whether a scipy-sparse X of any size is read by products."""
        return not self.several

    def design(self, X: Any, targets: list[Array], weight: Array) -> RowIntake:
        """Rows in memory; those of several predictors are made dense."""
        if self.several:
            if 8 * X.shape[0] * X.shape[1] > DENSE_BYTES:
                raise ValueError(
                    f"multi_class='multinomial' makes X dense, but {X.shape[0]:,} x "
                    f"{X.shape[1]:,} numbers are too many; use multi_class='ovr'."
                )
            X = as_dense(X)
        X, unit = in_range(X)
        units = column_units(X, weight, self.settings.centre, self.settings.shared)
        plan = self.settings.plan(X.shape[1], column_marks(X, units, weight))
        design = rows_in_memory(X, units, plan.order, plan.ones)
        rows = share_rows(self.likelihood, design, targets, weight, self.settings.solver)
        units = units._replace(mean=units.mean * unit, scale=units.scale * unit)
        check_units(units.scale)
        plan = plan.of_coordinates(self.likelihood.coordinates) if self.several else plan
        return RowIntake(rows, plan, units)

    def estimates(
        self, rows: TrainingRows, predictors: Callable[[], list[Array]], mixtures: list[Mixture]
    ) -> list[ColumnEstimates] | None:
        """One Newton step with all columns from the fitted predictors."""
        if self.several:
            return None
        # cuts move with the columns as an intercept does
        intercept = self.settings.intercept is not None or not self.likelihood.intercept
        estimates: list[ColumnEstimates | None] = []
        for y, eta, mixture in zip(rows.targets, predictors(), mixtures, strict=True):
            values, offset = offset_apart(y)
            likelihood: Any = (mixture.components[0].likelihood or self.likelihood).plain
            with np.errstate(over="ignore"):
                _, slope, curvature = likelihood.derivatives(eta + offset, values)
            noise = max(component.dispersion for component in mixture.components)
            estimates.append(one_step(rows.X, eta, slope, curvature, rows.weight, intercept, noise))
        return (
            None
            if None in estimates
            else [estimate for estimate in estimates if estimate is not None]
        )

    def streamed(self, rows: RowSource, found: Gathered, targets: Sequence[Any]) -> RowIntake:
        """Rows that every pass reads again, block by block."""
        assert found.statistics is not None
        whole = found.statistics.total()
        use = whole if self.settings.centre else whole.about_zero()
        check_squares(whole.x_mean, np.diag(use.xx) / use.n)
        units = ColumnUnits.of_moments(use, self.settings.shared)
        plan = self.settings.plan(found.n_columns)
        order, divisor = plan.order, units.divisor[plan.order]
        p, ones = len(order), plan.model.intercept
        gram = np.zeros((p + ones, p + ones))
        gram[:p, :p] = use.xx[np.ix_(order, order)] / np.outer(divisor, divisor)
        gram[p:, p:] = use.n
        design = StreamedRows(
            rows, order, units.mean[order], divisor, ones, found.dtype, found.n_rows
        )
        targets_of_rows = [
            SharedRows(self.likelihood, design, y, None, gram, use.n) for y in targets
        ]
        return RowIntake(targets_of_rows, plan, units)

    def solve(self, intake: RowIntake, names: Sequence[Any], jobs: int = 1) -> list[RowSolved]:
        """Every target at its sparse point; ``names`` are for the reader of the log."""
        names = ["all classes"] if self.several else names
        settings, design, jobs = self.settings, intake.rows[0].design, min(jobs, len(names))

        def one(rows: PathRows, name: Any) -> RowSolved:
            limits = Limits(settings.max_iter, settings.tol, settings.say_newton(f"{name}: "))
            return self._solved(rows, intake, settings.coef, self._way(limits, rows))

        with solver_threads(min(design.n_rows, design.n_columns), jobs):
            return run_jobs(one, zip(intake.rows, names, strict=True), jobs)

    def _way(self, limits: Limits, rows: PathRows) -> Limits:
        """How much of a path is visited, by what a point of it costs."""
        if rows.products:
            return limits._replace(stride=STRIDE // 2, loose=FOLD_TOL)
        if self.several:
            if rows.n_columns <= ROOM:
                return limits._replace(loose=CLASSES_WAY_TOL)
            return limits._replace(loose=CLASSES_FOLD_TOL, stride=STRIDE, refine=True)
        if rows.design.n_rows >= LARGE:
            return limits._replace(stride=STRIDE, refine=True)
        return limits

    def _solved(
        self, rows: PathRows, intake: RowIntake, confidence: float | None, limits: Limits
    ) -> RowSolved:
        """One target; its confidence is chosen along the path if it is None."""
        plan, units, solver = intake.plan, intake.units, self.settings.solver
        outcome = solve_rows(rows, plan.model, plan.free, confidence, solver, limits)
        if not self.several:
            point = row_sparse_point(outcome, units, plan.back, solver)
            return RowSolved(outcome, point.component, [point])
        d = self.likelihood.coordinates
        joint: Any = joint_posterior(outcome, plan.to_user(units), d)
        component = Component(joint)
        return RowSolved(outcome, component, class_points(outcome, component, units, plan.back, d))

    def _in_fold(self, rows: PathRows, intake: RowIntake) -> RowSolved:
        """The sparse point of a fold, to few digits."""
        tol = CLASSES_FOLD_TOL if self.several else FOLD_TOL
        limits = Limits(self.settings.max_iter, max(self.settings.tol, tol), stride=STRIDE)
        return self._solved(rows, intake, None, limits)

    def supports(
        self, intake: RowIntake, solved: Sequence[RowSolved], rows: TrainingRows | None
    ) -> list[SupportPosterior]:
        """From quadratic forms of the loss, which begin at the sparse points."""
        if rows is None:
            raise ValueError(
                "inclusion=True needs the rows in memory: pass arrays, or select columns first."
            )
        work = self._class_supports if self.several else self._row_supports
        posteriors: list[SupportPosterior] = []
        with solver_threads(int(min(rows.X.shape))):
            for t, one in enumerate(solved):
                posteriors += work(intake, t, one, rows)
        return posteriors

    def _row_supports(
        self, intake: RowIntake, t: int, solved: RowSolved, rows: TrainingRows
    ) -> list[SupportPosterior]:
        X, unit = in_range(rows.X)
        units = column_units(X, rows.weight, self.settings.centre, self.settings.shared)
        scale, point = units.scale * unit, solved.points[0]
        likelihood: Any = point.component.likelihood or self.likelihood
        given = SupportRows(X, units, rows.targets[t], rows.weight, self.settings.centre)
        mean = point.component.posterior.mean
        coef = np.where(point.selected, mean[: len(scale)], 0.0) * scale
        alpha = float(mean[len(scale) :].sum()) - likelihood.shift
        always, groups = intake.plan.always, self.settings.groups
        return [row_supports(likelihood, given, coef, alpha, always, scale, groups)]

    def _class_supports(
        self, intake: RowIntake, t: int, solved: RowSolved, rows: TrainingRows
    ) -> list[SupportPosterior]:
        """A posterior for each class, in the order of the basis; all have the same columns."""
        shared, plan, scale = intake.rows[t], intake.plan, intake.units.scale
        assert isinstance(shared, SharedRows)
        assert isinstance(shared.design, RowsInMemory)
        p = len(scale)
        columns = np.asarray(shared.design.matrix)[:, :p][:, plan.back]
        mean = solved.component.posterior.mean
        coef = mean[:p] * (scale * solved.points[0].selected)[:, None]
        start = mean[p:].sum(axis=0) + columns @ coef, coef
        groups, centre = self.settings.groups, self.settings.centre
        return class_supports(shared.problem(), columns, start, plan.always, scale, groups, centre)

    def chooses(self, intake: RowIntake) -> bool:
        """Normal priors leave nothing to choose."""
        return bool(intake.plan.model.sparse.any())

    def chosen_at_once(
        self,
        intake: RowIntake,
        solved: Sequence[RowSolved],
        rows: TrainingRows | None,
        how: Choosing,
    ) -> list[Choice] | None:
        """Of many rows: both ends of the path."""
        if rows is None:
            if how.cv == "auto":
                return choose_ends(intake.rows, intake.plan.back, intake.units, solved)
            what = f"cv is {shown(how.cv)}, but streamed rows cannot be held out"
            say_path(how.owner, what)
            return None
        many = len(rows.weight) >= max(LARGE, FAR_MORE * rows.X.shape[1])
        single = not self.several and not intake.rows[0].products
        if many and single and how.cv == "auto" and rows.groups is None and self.chooses(intake):
            return choose_ends(intake.rows, intake.plan.back, intake.units, solved)
        return None

    def race(
        self, task: InMemory, intake: RowIntake, how: Choosing
    ) -> tuple[Sequence[Candidate], Splits] | None:
        """Of a large scipy-sparse X the candidates are those that products give."""
        X, labels, groups = task.rows.X, task.rows.labels, task.rows.groups
        folds = folds_of(
            how.cv, X, labels, groups, seed=how.seed, stratified=how.stratified,
            owner=how.owner, products=self.products,
        )  # fmt: skip
        if folds is None:
            return None
        if self.products and issparse(X) and 8 * X.shape[0] * X.shape[1] > SPARSE_BYTES:
            return (PATH, *(Candidate.of(point) for point in self.dial if point.held)), folds
        return self.candidates, folds

    def fitted(
        self, intake: RowIntake, t: int, wanted: set[str], known: bool
    ) -> Iterable[CandidateFit]:
        """The sparse point, then the points of the dial.

        The nuisance parameters of one fit are where the next begins, to save passes.
        """
        rows: Any = intake.rows[t]
        plan, wide = intake.plan, 1.0
        order, scale = plan.to_user(intake.units)
        if PATH.name in wanted:
            if known:
                component, point = self.sparse[t]
            else:
                solved = self._in_fold(rows, intake)
                component, point = solved.component, solved.points[0]
            rows = _with_nuisance(rows, component.likelihood)
            yield PATH.name, (component,), point.effective
        if known:
            wide = self.sparse[t][0].dispersion
        for at in self.dial:
            if at.name in wanted:
                fit = rows.fit_at(plan.model, at)
                rows = _with_nuisance(rows, fit.likelihood)
                q = fit.posterior.moved(order, scale)
                if plan.ones:
                    q.mean[-1] += self.likelihood.shift
                component = Component(
                    q if wide == 1.0 else q.widened(wide),
                    inflation=fit.inflation,
                    likelihood=fit.likelihood,
                    dispersion=wide,
                )
                yield at.name, (component,), fit.effective

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """The log density of y, its distribution function, mean and variance."""
        means, variances = mixture.predict_each(rows)
        y, offset = offset_apart(y)
        known = [component.likelihood or self.likelihood for component in mixture.components]
        likelihoods: Any = [likelihood.plain for likelihood in known]
        predictive = Predictive(likelihoods, mixture.weights, means + offset, variances)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            density, variance = predictive.log_density(y), predictive.variance()
            mean, below = predictive.mean(), predictive.rough_cdf(y)
            rough = density
            if self.whole:  # with the errors of the distribution function
                chance = below - predictive.rough_cdf(y - 1.0)
                rough = np.where(chance > 0.0, np.log(chance), density)
        # a mean that overflows is a wrong prediction, not a missing one: its weight must become 0
        wild = ~(np.abs(mean) < LARGEST_MEAN)
        mean = np.where(wild, LARGEST_MEAN, mean)
        variance = np.where(wild | (variance > LARGEST_MEAN**2), LARGEST_MEAN**2, variance)
        density = np.where(density > -LARGEST_MEAN, density, -LARGEST_MEAN)
        return HeldOut(density, mean, variance, np.zeros(len(y)), rough, below)


class ClassFamily(RowFamily):
    """A class against the rest."""

    scoring = CLASSES

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """Log probabilities of the rest and of the class."""
        odds = average_log_odds(*mixture.predict_each(rows), mixture.weights)
        log_probability = -np.logaddexp(0.0, odds), -np.logaddexp(0.0, -odds)
        return HeldOut.of_classes(np.stack(log_probability, axis=1))

    def reported(self, choices: list[Choice]) -> list[Choice]:
        """Of the class."""
        return [_of_one_class(choice, 1) for choice in choices]


class SoftmaxFamily(RowFamily):
    """Several classes at once.

    ``place`` are the places of the rows' classes in the basis, ``rank`` those of the classes.
    """

    def __init__(
        self, likelihood: Likelihood, settings: RowSettings, rank: Array, place: Array
    ) -> None:
        super().__init__(likelihood, settings)
        self.rank, self.place, self.scoring = rank, place, class_scoring(len(rank))

    def in_order(self, each: list[Any]) -> list[Any]:
        """Those of the classes, which the basis has in the order of their frequencies."""
        return [each[r] for r in self.rank]

    def reported(self, choices: list[Choice]) -> list[Choice]:
        """The one choice as each class reports it."""
        mixture = choices[0].mixture
        return [
            _of_one_class(choices[0], r, (self.place == r).astype(float))._replace(
                mixture=of_class(mixture, int(r))
            )
            for r in self.rank
        ]

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """Log probabilities of all classes, in the order of the basis."""
        return HeldOut.of_classes(log_shares(mixture, rows))


class CountFamily(RowFamily):
    """Poisson counts, judged by their deviance."""

    scoring = COUNTS


def _of_one_class(choice: Choice, k: int, y: Array | None = None) -> Choice:
    """A choice with the held-out probabilities of a class."""
    assert choice.out_of_fold is not None
    mean, fold = choice.out_of_fold[f"class {k}"], choice.out_of_fold["fold"]
    sd = np.sqrt(mean * (1.0 - mean))
    y = choice.out_of_fold["y"] if y is None else y
    return choice._replace(out_of_fold=pd.DataFrame({"y": y, "mean": mean, "sd": sd, "fold": fold}))


def _with_nuisance(rows: Any, likelihood: Likelihood | None) -> Any:
    return rows if likelihood is None else rows._replace(likelihood=likelihood)
