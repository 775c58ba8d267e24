"""Regression with a likelihood of rows: from data to fits in the user's units.

`RowSettings` is the model as an estimator's parameters say it. `RowFamily` holds it with the
likelihood: it makes designs of rows, solves for the sparse point of every target, and fits what the
choice by prediction asks for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from soubayes.data.rows import RowBlock, RowSource
from soubayes.sparse.blocks import sources, tau_groups
from soubayes.sparse.choice.folds import LARGE
from soubayes.sparse.choice.race import PATH, Candidate, Candidates, Fits
from soubayes.sparse.choice.scoring import COUNTS, DENSITIES, WHOLE_DENSITIES, HeldOut
from soubayes.sparse.designs.columns import SPARSE_BYTES
from soubayes.sparse.designs.moments import Gathered
from soubayes.sparse.designs.standardise import (
    ColumnUnits,
    check_squares,
    check_units,
    column_marks,
    column_units,
    in_range,
)
from soubayes.sparse.glm.dial import ROW_DIAL
from soubayes.sparse.glm.likelihood import Likelihood, RowLikelihood
from soubayes.sparse.glm.path import (
    Limits,
    PathRows,
    RowOutcome,
    SharedRows,
    share_rows,
    solve_rows,
)
from soubayes.sparse.glm.predictive import Predictive
from soubayes.sparse.glm.report import row_sparse_point
from soubayes.sparse.glm.rows import rows_in_memory
from soubayes.sparse.glm.shifted import offset_apart, plain
from soubayes.sparse.glm.state import RowModel
from soubayes.sparse.glm.streams import StreamedRows
from soubayes.sparse.glm.supports import SupportRows, row_supports
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.model import FitSettings
from soubayes.sparse.posterior import Component, Mixture, SparsePoint
from soubayes.threads import run_jobs, solver_threads

Array = np.ndarray

STRIDE = 4  # a path in a fold or on many rows visits every fourth point
LARGEST_MEAN = 1e100  # of a held-out row: its square is a number
FOLD_TOL = 1e-4  # relative fall of J at which a fold's path stops at a point


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
        return RowPlan(model, free, order)


class RowPlan(NamedTuple):
    """The model of a fit, which columns follow the path, and their order in the solver."""

    model: RowModel
    free: Array
    order: Array

    @property
    def back(self) -> Array:
        """What undoes the solver's order."""
        return np.argsort(self.order)


class RowIntake(NamedTuple):
    """What the targets of a fit share: rows with their likelihood, the plan, the units."""

    shared: PathRows
    plan: RowPlan
    units: ColumnUnits


class RowSolved(NamedTuple):
    """One target: where the solver ended, and the same in the user's units."""

    outcome: RowOutcome
    point: SparsePoint


@dataclass(frozen=True)
class RowFamily:
    """A likelihood with its settings."""

    likelihood: Likelihood
    settings: RowSettings

    def in_memory(self, X: Any, weight: Array) -> RowIntake:
        """Rows in memory."""
        X, unit = in_range(X)
        units = column_units(X, weight, self.settings.centre)
        plan = self.settings.plan(X.shape[1], column_marks(X, units, weight))
        design = rows_in_memory(X, units, plan.order, plan.model.intercept)
        shared = share_rows(self.likelihood, design, weight, self.settings.solver)
        units = units._replace(mean=units.mean * unit, scale=units.scale * unit)
        check_units(units.scale)
        return RowIntake(shared, plan, units)

    def streamed(
        self, rows: RowSource, found: Gathered, weigh: Callable[[RowBlock], Array]
    ) -> RowIntake:
        """Rows that every pass reads again, block by block."""
        assert found.statistics is not None
        whole = found.statistics.total()
        use = whole if self.settings.centre else whole.about_zero()
        check_squares(whole.x_mean, np.diag(use.xx) / use.n)
        units, plan = ColumnUnits.of_moments(use), self.settings.plan(found.n_columns)
        order, divisor = plan.order, units.divisor[plan.order]
        p, ones = len(order), plan.model.intercept
        gram = np.zeros((p + ones, p + ones))
        gram[:p, :p] = use.xx[np.ix_(order, order)] / np.outer(divisor, divisor)
        gram[p:, p:] = use.n
        design = StreamedRows(
            rows, order, units.mean[order], divisor, ones, found.dtype, found.n_rows, weigh
        )
        return RowIntake(SharedRows(self.likelihood, design, None, gram, use.n), plan, units)

    def solve(
        self, intake: RowIntake, targets: Sequence[Any], names: Sequence[Any], jobs: int = 1
    ) -> list[RowSolved]:
        """Every target at its reported point; ``names`` are for the reader of the log."""
        shared, plan, units = intake
        settings, jobs = self.settings, min(jobs, len(targets))

        def one(target: Any, name: Any) -> RowSolved:
            limits = Limits(settings.max_iter, settings.tol, self.settings.say_newton(f"{name}: "))
            if shared.products:
                limits = limits._replace(stride=STRIDE // 2, loose=FOLD_TOL)
            elif shared.design.n_rows >= LARGE:
                limits = limits._replace(stride=STRIDE, refine=True)
            rows = shared, target, plan.model, plan.free
            outcome = solve_rows(*rows, settings.coef, settings.solver, limits)
            point = row_sparse_point(shared.design, outcome, units, plan.back, settings.solver)
            return RowSolved(outcome, point)

        with solver_threads(min(shared.design.n_rows, shared.design.n_columns), jobs):
            return run_jobs(one, zip(targets, names, strict=True), jobs)

    def supports(
        self, X: Any, weight: Array, targets: Sequence[Array], points: Sequence[SparsePoint]
    ) -> list[SupportPosterior]:
        """The posterior over supports of rows in memory, from the sparse points."""
        X, unit = in_range(X)
        units = column_units(X, weight, self.settings.centre)
        plan = self.settings.plan(X.shape[1])
        scale, always = units.scale * unit, np.zeros(X.shape[1])
        always[plan.order] = np.nan_to_num(plan.model.variance[: X.shape[1]], nan=0.0)
        found = []
        with solver_threads(int(min(X.shape))):
            for y, point in zip(targets, points, strict=True):
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


class RowCandidates(Candidates):
    """The candidates of a likelihood; ``points`` are the sparse points of all rows, once known."""

    dial = ROW_DIAL
    rows = (PATH, *(Candidate.of(point) for point in dial))
    scoring = DENSITIES

    def __init__(self, family: RowFamily, points: Sequence[SparsePoint] = ()) -> None:
        self.family, self.points = family, points
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
        return isinstance(self.family.likelihood, RowLikelihood)

    def among(self, X: Any) -> tuple[Candidate, ...]:
        """The candidates for these rows: of a large scipy-sparse X those that products give."""
        if not self.products or not issparse(X) or 8 * X.shape[0] * X.shape[1] <= SPARSE_BYTES:
            return self.rows
        return (PATH, *(Candidate.of(point) for point in ROW_DIAL if point.held is not None))

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        shared, plan, units = self.family.in_memory(X, weight)
        settings, order, scale = self.family.settings, plan.back, 1.0 / units.scale
        if plan.model.intercept:
            order, scale = np.append(order, len(order)), np.append(scale, 1.0)
        limits = Limits(settings.max_iter, max(settings.tol, FOLD_TOL), stride=STRIDE)
        found = Fits([], [], units.mean)
        for t, y in enumerate(targets):
            parts: dict[str, tuple[Component, ...]] = {}
            sizes: dict[str, float] = {}
            if PATH.name in wanted[t]:
                if known:
                    point = self.points[t]
                else:
                    rows = shared, y, plan.model, plan.free
                    outcome = solve_rows(*rows, None, settings.solver, limits)
                    point = row_sparse_point(
                        shared.design, outcome, units, plan.back, settings.solver
                    )
                shared = _with_nuisance(shared, point.component.likelihood)
                parts[PATH.name], sizes[PATH.name] = (point.component,), point.effective
            for at in self.dial:
                if at.name in wanted[t]:
                    fit = shared.fit_at(y, plan.model, at)
                    shared = _with_nuisance(shared, fit.likelihood)
                    q = fit.posterior.moved(order, scale)
                    if plan.model.intercept:
                        q.mean[-1] += self.family.likelihood.shift
                    wide = self.points[t].component.dispersion if known else 1.0
                    part = Component(
                        q.widened(wide),
                        inflation=fit.inflation,
                        likelihood=fit.likelihood,
                        dispersion=wide,
                    )
                    parts[at.name] = (part,)
                    sizes[at.name] = fit.effective
            found.components.append(parts)
            found.effective.append(sizes)
        return found

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


class CountCandidates(RowCandidates):
    """Candidates of Poisson counts, judged by their deviance."""

    scoring = COUNTS

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """The mean of y, which the deviance is a function of, and its variance."""
        said = super().held_out(mixture, rows, y)
        return said._replace(middle=said.mean)


def _with_nuisance(shared: Any, likelihood: Likelihood | None) -> Any:
    """The nuisance parameters of one fit are where the next begins, to save passes."""
    return shared if likelihood is None else shared._replace(likelihood=likelihood)
