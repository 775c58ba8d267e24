"""Several classes at once: from data to fits in the user's units.

A `ClassFamily` makes a `RowModel` of c - 1 coordinates for each column, solves for the sparse point
by the path of all likelihoods of rows, and fits what the choice by prediction asks for.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from soubayes.sparse.choice.folds import DENSE_BYTES
from soubayes.sparse.choice.race import PATH, Candidate, Candidates, Fits
from soubayes.sparse.choice.scoring import HeldOut, class_scoring
from soubayes.sparse.designs.standardise import (
    ColumnUnits,
    as_dense,
    check_units,
    column_marks,
    column_units,
    in_range,
)
from soubayes.sparse.dial import DialPoint
from soubayes.sparse.glm.dial import ROW_DIAL
from soubayes.sparse.glm.dropped import own_precision
from soubayes.sparse.glm.fitting import STRIDE, RowPlan, RowSettings
from soubayes.sparse.glm.newton import solve
from soubayes.sparse.glm.path import Limits, RowOutcome, solve_rows, start_precision
from soubayes.sparse.glm.report import dense_spread, path_points, source_nats
from soubayes.sparse.glm.state import (
    RowFit,
    RowModel,
    RowState,
    dropped_terms,
    make_state,
    tau_precision,
)
from soubayes.sparse.multinomial.dial import ClassFitAt, fit_classes_at
from soubayes.sparse.multinomial.posterior import JointClasses
from soubayes.sparse.multinomial.rows import ClassDesign, ClassProblem
from soubayes.sparse.multinomial.softmax import Softmax, class_basis
from soubayes.sparse.posterior import Component, Mixture, PathPoints, SparsePoint
from soubayes.sparse.scales.balance import Groups

Array = np.ndarray

ROOM = 240  # coordinates with which a path begins; the others are tested as all dropped ones are
SOFTMAX_FOLD_TOL = 1e-3  # relative fall of J at which a fold's path stops at a point
_PRECISE = 1e-6  # tolerance of J from which on averages over the predictors have all digits
LATE_ROWS = 0.5  # a path of more coordinates than these begins where half as many rows would


class ClassRows(NamedTuple):
    """What a path asks of rows with several classes (`path.PathRows`)."""

    likelihood: Softmax
    design: ClassDesign
    weight: Array
    n: float
    products: bool = False

    @property
    def coordinates(self) -> int:
        """One less than there are classes."""
        return self.design.d

    @property
    def grid_rows(self) -> float:
        """At confidence 1 wide data would begin with more columns than are ever kept."""
        d, rows = self.design.d, self.design.n_rows
        late = self.design.n_columns > max(ROOM, rows)
        return LATE_ROWS * min(rows * d, self.design.n_columns) if late else np.inf

    def problem(self, y: Array) -> ClassProblem:
        """With the classes of the rows."""
        return ClassProblem(self.likelihood, self.design, y, self.weight)

    def minimise(
        self, y: Array, model: RowModel, warm: RowFit | None, limits: Limits, readmit: bool = True
    ) -> RowFit:
        """Newton's steps with all terms between the coordinates of the columns in play."""
        problem: Any = self.problem(y)
        if limits.tol > _PRECISE:  # a point on the way needs few digits
            problem = problem._replace(likelihood=Softmax(self.likelihood.classes, coarse=True))
        if warm is None:
            start = self._start(problem, model)
        else:
            old, near = warm.state, (warm.state.local, warm.state.top)
            H = warm.data.information
            start = make_state(model, old.active, old.mean, H, old.precision, old.rest, near)
        slow = warm is not None and warm.slow
        with np.errstate(over="ignore", invalid="ignore"):
            return solve(problem, model, start, readmit=readmit, slow=slow, **limits.solver())

    def fit_at(self, y: Array, model: RowModel, point: DialPoint) -> ClassFitAt:
        """The fit at a point of the dial."""
        return fit_classes_at(self.problem(y), model, point)

    def loss(self, y: Array, fit: RowFit) -> float:
        """At the posterior mean."""
        return self.problem(y).take(fit.state.active).plug_in(fit.state.mean)[0]

    def first_copies(self, y: Array) -> Array:
        """Coordinates share a tau, so copies stay."""
        return np.arange(self.design.n_columns)

    def _start(self, problem: ClassProblem, model: RowModel) -> RowState:
        """From ridge regression: the columns of largest z^2, up to `ROOM` coordinates."""
        precision = start_precision(model)
        mean = _penalised(problem, model.confidence * precision)
        d, X = self.design.d, self.design.matrix
        U = X @ mean.reshape(-1, d)
        terms = self.likelihood.terms(U, np.zeros_like(U), problem.y)
        B = self.weight[:, None, None] * terms.information
        s = (np.square(X).T @ np.einsum("naa->na", B)).ravel()
        stay, sparse = ~model.selects, model.sparse
        gain = model.groups.sum((s * mean**2)[sparse])
        stay[sparse] |= model.groups.largest(gain + 1e-300, max(ROOM - int(stay.sum()), d))
        j, precision, rest = np.flatnonzero(~stay), precision.copy(), np.zeros(len(s))
        if len(j):
            local, top = model.scales.split(tau_precision(model, precision))
            precision[j] = own_precision(model, local, top, j, s[j], 0.0 * s[j])
            rest[j] = dropped_terms(model, j, s[j], 0.0 * s[j], precision[j])
        active = np.flatnonzero(stay)
        part = problem.take(active)
        none = np.zeros((len(active), len(active)))
        H = part.sweep(mean[active], none).information
        return make_state(model, active, mean[active], H, precision, rest)


def _penalised(problem: ClassProblem, w: Array) -> Array:
    """The minimum of the loss plus w_j mean_j^2/2, by L-BFGS."""
    X, d = problem.design.matrix, problem.design.d
    curve = problem.likelihood.start_curvature * (problem.weight @ np.square(X))
    unit = 1.0 / np.sqrt(w + np.repeat(curve, d))

    def value(scaled: Array) -> tuple[float, Array]:
        mean = unit * scaled
        loss, slope = problem.plug_in(mean)
        return loss + 0.5 * float(mean @ (w * mean)), unit * (slope + w * mean)

    options: Any = {"maxiter": 50, "ftol": 1e-8}
    return unit * minimize(value, np.zeros(len(w)), jac=True, method="L-BFGS-B", options=options).x


class ClassIntake(NamedTuple):
    """Rows with their model of coordinates, the plan of the columns, and the units."""

    shared: ClassRows
    model: RowModel
    free: Array
    plan: RowPlan
    units: ColumnUnits


class ClassSolved(NamedTuple):
    """The sparse point: where the solver ended, q of all classes, and what each class reports."""

    outcome: RowOutcome
    component: Component  # of all coordinates
    points: list[SparsePoint]


class ClassFamily(NamedTuple):
    """Settings and the number of classes."""

    settings: RowSettings
    classes: int

    def in_memory(self, X: Any, weight: Array) -> ClassIntake:
        """Rows in memory, made dense."""
        if 8 * X.shape[0] * X.shape[1] > DENSE_BYTES:
            raise ValueError(
                f"multi_class='multinomial' makes X dense, but {X.shape[0]:,} x {X.shape[1]:,} "
                "numbers are too many; use multi_class='ovr'."
            )
        X, unit = in_range(X)
        units = column_units(X, weight, self.settings.centre)
        plan = self.settings.plan(X.shape[1], column_marks(X, units, weight))
        order = plan.order
        Z = (as_dense(X)[:, order] - units.mean[order]) / units.divisor[order]
        if plan.model.intercept:
            Z = np.hstack([Z, np.ones((len(Z), 1))])
        d = self.classes - 1
        design = ClassDesign(np.ascontiguousarray(Z), d, np.arange(Z.shape[1]))
        shared = ClassRows(Softmax(self.classes), design, weight, float(weight.sum()))
        units = units._replace(mean=units.mean * unit, scale=units.scale * unit)
        check_units(units.scale)
        return ClassIntake(
            shared, model_of_coordinates(plan.model, d), np.repeat(plan.free, d), plan, units
        )

    def solve(self, intake: ClassIntake, y: Array, limits: Limits, path: bool) -> ClassSolved:
        """The sparse point; ``path``: its confidence is chosen, whatever the settings."""
        coef = None if path else self.settings.coef
        shared: Any = intake.shared  # its fits at a point are of several coordinates
        outcome = solve_rows(shared, y, intake.model, intake.free, coef, "newton", limits)
        component = Component(_joint(outcome, intake))  # type: ignore[arg-type]
        return ClassSolved(outcome, component, _points(outcome, component, intake))


def model_of_coordinates(model: RowModel, d: int) -> RowModel:
    """The model of d coordinates for every column; the intercept is the first of the sources."""

    def spread(columns: Array) -> Array:
        return (columns[:, None] * d + np.arange(d)).ravel()

    sources = tuple((name, spread(own)) for name, own in model.sources)
    if model.intercept:
        last = np.array([len(model.confidence) - 1])
        sources = (("intercept", spread(last)), *sources)
    return RowModel(
        confidence=np.repeat(model.confidence, d),
        variance=np.repeat(model.variance, d),
        local_confidence=np.repeat(model.local_confidence, d),
        global_confidence=model.global_confidence,
        local_prior=model.local_prior,
        global_prior=model.global_prior,
        sources=sources,
        groups=Groups.of(np.repeat(model.groups.number, d)),
        intercept=False,
    )


def _joint(outcome: RowOutcome, intake: ClassIntake) -> JointClasses:
    """q of all coordinates in the user's units."""
    state, d = outcome.fit.state, intake.shared.design.d
    p = len(state.precision) // d
    mean = np.zeros((p, d))
    columns = state.active[::d] // d
    k = len(columns)
    mean[columns] = state.mean.reshape(k, d)
    square = (state.root @ state.root.T).reshape(k, d, k, d)
    variance = (1.0 / state.precision).reshape(p, d)
    variance[columns] = np.einsum("iaia->ia", square)
    found = JointClasses(mean, variance, columns, square, np.ones(p))
    return found.moved(*_to_user(intake))


def _to_user(intake: ClassIntake) -> tuple[Array, Array]:
    """The user's order of the columns and their units, the intercept last."""
    order, scale = intake.plan.back, 1.0 / intake.units.scale
    if intake.plan.model.intercept:
        order, scale = np.append(order, len(order)), np.append(scale, 1.0)
    return order, scale


def _points(outcome: RowOutcome, component: Component, intake: ClassIntake) -> list[SparsePoint]:
    """What every class reports: a column is selected for all of them."""
    model, state, d = outcome.model, outcome.fit.state, intake.shared.design.d
    back, units = intake.plan.back, intake.units
    p = len(back)
    whole = np.zeros(len(state.precision))
    whole[state.active] = state.mean
    spread = dense_spread(outcome, len(whole))
    selected = np.zeros(p, bool)
    columns = state.active[::d] // d
    selected[columns[columns < p]] = True
    selected &= ~(units.constant[intake.plan.order] & intake.plan.model.sparse[:p])
    kappa = np.minimum(state.precision * spread.variance, 1.0).reshape(-1, d).mean(axis=1)[:p]
    posterior: Any = component.posterior
    first = SparsePoint(
        component=component,
        units=1.0 / units.scale,
        selected=selected[back],
        shrinkage=np.where(selected, kappa, 1.0)[back],
        local_scale=np.sqrt(model.each_tau(state.local.ratio))[::d][:p][back],
        global_scale=float(np.sqrt(state.top.ratio)),
        kl=source_nats(outcome, whole, spread),
        confidence=outcome.gamma,
        objective=outcome.history,
        n_iter=outcome.n_iter,
        converged=outcome.fit.converged,
        solver="newton",
        path=_path(outcome, intake, 0),
    )
    return [
        replace(first, component=Component(posterior.of_class(k)), path=_path(outcome, intake, k))
        for k in range(posterior.classes)
    ]


def _path(outcome: RowOutcome, intake: ClassIntake, k: int) -> PathPoints:
    """The path of a class."""
    back, units, d = intake.plan.back, intake.units, intake.shared.design.d
    own, p = class_basis(d + 1)[k], len(back)

    def coefficients(means: list[Array]) -> tuple[Array, Array]:
        each = np.array(means).reshape(len(means), -1, d) @ own
        coef = each[:, :p][:, back] / units.scale
        alpha = each[:, p] if each.shape[1] > p else np.zeros(len(each))
        return coef, alpha - coef @ units.mean

    kept = [np.unique(point.active // d) for point in outcome.points]
    count = [int(np.sum(active < p)) for active in kept]
    spread = np.array([point.spread[:p] for point in outcome.points])
    sd = np.sqrt(np.einsum("kjab,a,b->kj", spread, own, own, optimize=True))[:, back]
    return path_points(outcome, coefficients, count, sd / units.scale)


class SoftmaxCandidates(Candidates):
    """The candidates of several classes at once; ``path`` is the sparse point of all rows."""

    rows = (PATH, *(Candidate.of(point) for point in ROW_DIAL))

    products = False

    def __init__(self, family: ClassFamily, path: ClassSolved) -> None:
        self.family, self.path = family, path
        self.scoring = class_scoring(family.classes)

    def among(self, X: Any) -> tuple[Candidate, ...]:
        """All of them for any rows."""
        return self.rows

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        intake, settings = self.family.in_memory(X, weight), self.family.settings
        limits = Limits(settings.max_iter, max(settings.tol, SOFTMAX_FOLD_TOL), stride=STRIDE)
        y, sizes = targets[0], {}
        parts: dict[str, tuple[Component, ...]] = {}
        if PATH.name in wanted[0]:
            solved = self.path if known else self.family.solve(intake, y, limits, True)
            parts[PATH.name] = (solved.component,)
            sizes[PATH.name] = solved.points[0].effective
        for at in ROW_DIAL:
            if at.name in wanted[0]:
                fit = intake.shared.fit_at(y, intake.model, at)
                q: Any = fit.posterior.moved(*_to_user(intake))
                parts[at.name] = (Component(q, inflation=fit.inflation),)
                sizes[at.name] = fit.effective
        return Fits([parts], [sizes], intake.units.mean)

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """Log probabilities of all classes."""
        said = log_shares(mixture, rows)
        zero = np.zeros_like(said)
        return HeldOut(said, zero, zero, zero, zero, zero)


def log_shares(mixture: Mixture, rows: Array) -> Array:
    """(rows, c): log probabilities averaged over the posterior, before recalibration."""
    found = []
    for part in mixture.components:
        q: Any = part.posterior
        mean, root = q.predictors(rows)
        each = Softmax(q.classes).log_mean_shares(mean, np.sqrt(part.inflation) * root)
        found.append(each)
    return logsumexp(np.stack(found), b=mixture.weights[:, None, None], axis=0)
