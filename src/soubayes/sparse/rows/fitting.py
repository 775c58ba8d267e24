"""Regression with a likelihood of rows: from data to fits in the user's units.

`RowSettings` is the model as an estimator's parameters say it. `RowFamily` holds it with the
likelihood: it makes designs of rows, solves for the sparse point of every target, and fits what the
choice by prediction asks for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from soubayes.data.rows import RowBlock, RowSource
from soubayes.sparse.blocks import sources, tau_groups
from soubayes.sparse.choice.folds import DENSE_BYTES, LARGE
from soubayes.sparse.choice.race import PATH, Candidate, Candidates, Choice, Fits
from soubayes.sparse.choice.scoring import (
    COUNTS,
    DENSITIES,
    WHOLE_DENSITIES,
    HeldOut,
    class_scoring,
)
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
from soubayes.sparse.likelihoods.base import Likelihood, RowLikelihood
from soubayes.sparse.likelihoods.predictive import Predictive
from soubayes.sparse.likelihoods.shifted import offset_apart, plain
from soubayes.sparse.model import FitSettings
from soubayes.sparse.posterior import Component, Mixture, SparsePoint
from soubayes.sparse.rows.classes import log_shares, of_class
from soubayes.sparse.rows.dial import ROW_DIAL
from soubayes.sparse.rows.passes import RowsInMemory, rows_in_memory
from soubayes.sparse.rows.path import (
    ROOM,
    Limits,
    PathRows,
    RowOutcome,
    SharedRows,
    share_rows,
    solve_rows,
)
from soubayes.sparse.rows.report import class_points, joint_posterior, row_sparse_point
from soubayes.sparse.rows.state import RowModel
from soubayes.sparse.rows.streams import StreamedRows
from soubayes.sparse.rows.supports import SupportRows, class_supports, row_supports
from soubayes.sparse.scales.balance import Groups
from soubayes.threads import run_jobs, solver_threads

Array = np.ndarray

STRIDE = 4  # a path in a fold or on many rows visits every fourth point
LARGEST_MEAN = 1e100  # of a held-out row: its square is a number
FOLD_TOL = 1e-4  # relative fall of J at which a fold's path stops at a point
# the same of several classes, whose steps cost more, and of a point on the way
CLASSES_FOLD_TOL, CLASSES_WAY_TOL = 1e-3, 1e-4


@dataclass(frozen=True, kw_only=True)
class RowSettings(FitSettings):
    """Those of a likelihood of rows."""

    centre: bool  # whether the columns are centred

    def plan(self, p: int, marks: Array | None = None) -> "RowPlan":
        """The columns' model; the sources stand in reverse order, the intercept last.

        Within a source the columns stand in the order of their ``marks``, if there are any.
        """
        given = sources(list(self.blocks), p, self.coef or 1.0, self.local)
        marks = np.zeros(p) if marks is None else marks
        each = [columns for _, columns in given.groups[::-1]]
        order = np.concatenate([own[np.argsort(marks[own], kind="stable")] for own in each])
        place = np.argsort(order)
        extra = [] if self.intercept is None else [1.0]
        own, trust = self.intercept or (1.0, 1.0)
        variance = np.append(given.variance[order], np.multiply(extra, own))
        model = RowModel(
            confidence=np.append(given.gamma[order], np.multiply(extra, trust)),
            variance=variance,
            local_confidence=np.append(given.local[order], extra),
            global_confidence=self.top,
            local_prior=self.local_prior,
            global_prior=self.top_prior,
            sources=tuple((name, np.sort(place[columns])) for name, columns in given.groups),
            groups=tau_groups(self.groups, given, order),
            intercept=self.intercept is not None,
        )
        free = np.append(given.free[order], np.zeros(len(extra), bool)) & np.isnan(variance)
        return RowPlan(model, free, order, bool(extra))


class RowPlan(NamedTuple):
    """The model of a fit, which columns follow the path, and their order in the solver."""

    model: RowModel
    free: Array
    order: Array
    ones: bool  # whether the last column of the design is one of ones

    @property
    def back(self) -> Array:
        """What undoes the solver's order."""
        return np.argsort(self.order)

    def to_user(self, units: ColumnUnits) -> tuple[Array, Array]:
        """The user's order of the columns and their units, the intercept last."""
        order, scale = self.back, 1.0 / units.scale
        return (
            (np.append(order, len(order)), np.append(scale, 1.0)) if self.ones else (order, scale)
        )

    def of_coordinates(self, d: int) -> "RowPlan":
        """The plan of d coefficients for every column, which share a tau.

        The intercepts are the first of the sources.
        """
        model = self.model

        def spread(columns: Array) -> Array:
            return (columns[:, None] * d + np.arange(d)).ravel()

        sources = tuple((name, spread(own)) for name, own in model.sources)
        if model.intercept:
            sources = (("intercept", spread(np.array([len(model.confidence) - 1]))), *sources)
        model = replace(
            model,
            confidence=np.repeat(model.confidence, d),
            variance=np.repeat(model.variance, d),
            local_confidence=np.repeat(model.local_confidence, d),
            sources=sources,
            groups=Groups.of(np.repeat(model.groups.number, d)),
            intercept=False,
        )
        return self._replace(model=model, free=np.repeat(self.free, d))


class RowIntake(NamedTuple):
    """The rows of every target with their likelihood, and the plan and units that they share."""

    rows: Sequence[PathRows]
    plan: RowPlan
    units: ColumnUnits


class RowSolved(NamedTuple):
    """One target: where the solver ended, and the same in the user's units."""

    outcome: RowOutcome
    component: Component  # q of all predictors
    points: list[SparsePoint]  # what is reported: one point, or one for each class

    @property
    def point(self) -> SparsePoint:
        """The one that is reported."""
        return self.points[0]


@dataclass(frozen=True)
class RowFamily:
    """A likelihood with its settings."""

    likelihood: Likelihood
    settings: RowSettings

    @property
    def coordinates(self) -> int:
        """The predictors of a row."""
        return self.likelihood.coordinates

    @property
    def several(self) -> bool:
        """Whether these have an axis."""
        return self.likelihood.several

    def in_memory(self, X: Any, weight: Array, targets: Sequence[Array]) -> RowIntake:
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
        plan = plan.of_coordinates(self.coordinates) if self.several else plan
        return RowIntake(rows, plan, units)

    def streamed(
        self,
        rows: RowSource,
        found: Gathered,
        weigh: Callable[[RowBlock], Array],
        targets: Sequence[Any],
    ) -> RowIntake:
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
            rows, order, units.mean[order], divisor, ones, found.dtype, found.n_rows, weigh
        )
        each = [SharedRows(self.likelihood, design, y, None, gram, use.n) for y in targets]
        return RowIntake(each, plan, units)

    def solve(self, intake: RowIntake, names: Sequence[Any], jobs: int = 1) -> list[RowSolved]:
        """Every target at its reported point; ``names`` are for the reader of the log."""
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
            point = row_sparse_point(rows.design, outcome, units, plan.back, solver)
            return RowSolved(outcome, point.component, [point])
        joint: Any = joint_posterior(outcome, plan.to_user(units), self.coordinates)
        component = Component(joint)
        points = class_points(outcome, component, units, plan.back, self.coordinates)
        return RowSolved(outcome, component, points)

    def in_fold(self, rows: PathRows, intake: RowIntake) -> RowSolved:
        """The sparse point of a fold, to few digits."""
        tol = CLASSES_FOLD_TOL if self.several else FOLD_TOL
        limits = Limits(self.settings.max_iter, max(self.settings.tol, tol), stride=STRIDE)
        return self._solved(rows, intake, None, limits)

    def supports(
        self, X: Any, weight: Array, targets: Sequence[Array], solved: Sequence[RowSolved]
    ) -> list[SupportPosterior]:
        """The posterior over supports of rows in memory, from the sparse points."""
        if self.several:
            return self._class_supports(X, weight, targets, solved)
        X, unit = in_range(X)
        units = column_units(X, weight, self.settings.centre, self.settings.shared)
        plan = self.settings.plan(X.shape[1])
        scale, always = units.scale * unit, np.zeros(X.shape[1])
        always[plan.order] = np.nan_to_num(plan.model.variance[: X.shape[1]], nan=0.0)
        found = []
        with solver_threads(int(min(X.shape))):
            for y, each in zip(targets, solved, strict=True):
                point = each.point
                likelihood = point.component.likelihood or self.likelihood
                if not isinstance(likelihood, RowLikelihood):
                    raise ValueError(
                        "inclusion=True needs a RowLikelihood, but likelihood is a "
                        f"{type(likelihood).__name__}."
                    )
                rows = SupportRows(X, units, y, weight, self.settings.centre)
                mean = point.component.posterior.mean
                coef = np.where(point.selected, mean[: len(scale)], 0.0) * scale
                alpha = float(mean[len(scale) :].sum()) - likelihood.shift
                groups = self.settings.groups
                found.append(row_supports(likelihood, rows, coef, alpha, always, scale, groups))
        return found

    def _class_supports(
        self, X: Any, weight: Array, targets: Sequence[Array], solved: Sequence[RowSolved]
    ) -> list[SupportPosterior]:
        """A posterior for each class, in the order of the basis; all have the same columns."""
        (rows, plan, units), d = self.in_memory(X, weight, targets), self.coordinates
        p = X.shape[1]
        always = np.zeros(p)
        always[plan.order] = np.nan_to_num(plan.model.variance[::d][:p], nan=0.0)
        found: list[SupportPosterior] = []
        for shared, each in zip(rows, solved, strict=True):
            assert isinstance(shared, SharedRows)
            assert isinstance(shared.design, RowsInMemory)
            columns = np.asarray(shared.design.matrix)[:, :p][:, plan.back]
            mean = each.component.posterior.mean
            coef = mean[:p] * (units.scale * each.point.selected)[:, None]
            start = mean[p:].sum(axis=0) + columns @ coef, coef
            groups, centre = self.settings.groups, self.settings.centre
            with solver_threads(int(min(X.shape))):
                scale = units.scale
                found += class_supports(
                    shared.problem(), columns, start, always, scale, groups, centre
                )
        return found


class RowCandidates(Candidates):
    """The candidates of a likelihood; ``solved`` are the sparse points of all rows, once known."""

    dial: tuple[DialPoint, ...] = ROW_DIAL
    rows: tuple[Candidate, ...] = (PATH, *(Candidate.of(point) for point in dial))
    scoring = DENSITIES

    def __init__(self, family: RowFamily, solved: Sequence[RowSolved] = ()) -> None:
        self.family, self.solved = family, solved
        if family.settings.shared is not None:
            self.dial = (*self.dial, EACH_TERM)
            self.rows = (*self.rows, Candidate.of(EACH_TERM))
        if self.scoring is DENSITIES and self.whole:
            self.scoring = WHOLE_DENSITIES

    @property
    def whole(self) -> bool:
        """Whether y are whole numbers."""
        likelihood = plain(self.family.likelihood)
        return isinstance(likelihood, RowLikelihood) and likelihood.whole

    @property
    def products(self) -> bool:
        """Whether a scipy-sparse X of any size is read by products."""
        likelihood = self.family.likelihood
        return not likelihood.coupled and not likelihood.several

    def among(self, X: Any) -> tuple[Candidate, ...]:
        """The candidates for these rows: of a large scipy-sparse X those that products give."""
        if not self.products or not issparse(X) or 8 * X.shape[0] * X.shape[1] <= SPARSE_BYTES:
            return self.rows
        return (PATH, *(Candidate.of(point) for point in ROW_DIAL if point.held is not None))

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        intake = self.family.in_memory(X, weight, targets)
        plan, units = intake.plan, intake.units
        order, scale = plan.to_user(units)
        found = Fits([], [], units.mean)
        for t, given in enumerate(intake.rows):
            rows: Any = given
            parts: dict[str, tuple[Component, ...]] = {}
            sizes: dict[str, float] = {}
            if PATH.name in wanted[t]:
                solved = self.solved[t] if known else self.family.in_fold(rows, intake)
                rows = _with_nuisance(rows, solved.component.likelihood)
                parts[PATH.name], sizes[PATH.name] = (solved.component,), solved.point.effective
            for at in self.dial:
                if at.name in wanted[t]:
                    fit = rows.fit_at(plan.model, at)
                    rows = _with_nuisance(rows, fit.likelihood)
                    q = fit.posterior.moved(order, scale)
                    if plan.ones:
                        q.mean[-1] += self.family.likelihood.shift
                    wide = self.solved[t].component.dispersion if known else 1.0
                    part = Component(
                        q if wide == 1.0 else q.widened(wide),
                        inflation=fit.inflation,
                        likelihood=fit.likelihood,
                        dispersion=wide,
                    )
                    parts[at.name] = (part,)
                    sizes[at.name] = fit.effective
            found.components.append(parts)
            found.effective.append(sizes)
        return found

    def in_order(self, parts: list[Any]) -> list[Any]:
        """What is reported, in the user's order."""
        return parts

    def reported(self, choices: list[Choice]) -> list[Choice]:
        """The choices as they are reported."""
        return choices

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """The log density of y, its distribution function, mean and variance."""
        means, variances = mixture.predict_each(rows)
        y, offset = offset_apart(y)
        known = [plain(part.likelihood or self.family.likelihood) for part in mixture.components]
        each = [one for one in known if isinstance(one, RowLikelihood)]  # others follow the path
        said = Predictive(each, mixture.weights, means + offset, variances)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            density, variance, mean = said.log_density(y), said.variance(), said.mean()
            below, own = said.rough_cdf(y), density
            if self.whole:  # with the errors of the distribution function
                chance = below - said.rough_cdf(y - 1.0)
                own = np.where(chance > 0.0, np.log(chance), density)
        # a mean that overflows is a wrong prediction, not a missing one: its weight must become 0
        wild = ~(np.abs(mean) < LARGEST_MEAN)
        mean = np.where(wild, LARGEST_MEAN, mean)
        variance = np.where(wild | (variance > LARGEST_MEAN**2), LARGEST_MEAN**2, variance)
        density = np.where(density > -LARGEST_MEAN, density, -LARGEST_MEAN)
        return HeldOut(density, variance, np.zeros(len(y)), mean, own, below)


class SoftmaxCandidates(RowCandidates):
    """Candidates of several classes at once: they say log probabilities of all classes.

    y are the places of the rows' classes in the basis, ``rank`` those of the classes.
    """

    def __init__(self, family: RowFamily, rank: Array, y: Array) -> None:
        super().__init__(family)
        self.rank, self.y = rank, y
        self.scoring = class_scoring(len(rank))

    def in_order(self, parts: list[Any]) -> list[Any]:
        """Those of the classes, which the basis has in the order of their frequencies."""
        return [parts[r] for r in self.rank]

    def reported(self, choices: list[Choice]) -> list[Choice]:
        """The one choice as each class reports it."""
        found = []
        for r in self.rank:
            held = choices[0].out_of_fold
            assert held is not None
            mean = held[f"class {r}"]
            own = {"y": (self.y == r).astype(float), "mean": mean}
            own |= {"sd": np.sqrt(mean * (1.0 - mean)), "fold": held["fold"]}
            mixture = of_class(choices[0].mixture, int(r))
            found.append(choices[0]._replace(mixture=mixture, out_of_fold=pd.DataFrame(own)))
        return found

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """Log probabilities of all classes, in the order of the basis."""
        said = log_shares(mixture, rows)
        zero = np.zeros_like(said)
        return HeldOut(said, zero, zero, zero, zero, zero)


class CountCandidates(RowCandidates):
    """Candidates of Poisson counts, judged by their deviance."""

    scoring = COUNTS

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """The mean of y, which the deviance is a function of, and its variance."""
        said = super().held_out(mixture, rows, y)
        return said._replace(middle=said.mean)


def _with_nuisance(rows: Any, likelihood: Likelihood | None) -> Any:
    """The nuisance parameters of one fit are where the next begins, to save passes."""
    return rows if likelihood is None else rows._replace(likelihood=likelihood)
