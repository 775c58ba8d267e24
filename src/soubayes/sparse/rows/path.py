"""One row-wise problem: from a start, along the confidence path, to a solution."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from soubayes.sparse.constants import FEW_COLUMNS, GAIN, LATE_ROWS, NUISANCE_GAIN, ROOM
from soubayes.sparse.designs.columns import first_in_columns
from soubayes.sparse.dial import DialPoint, confidence_grid, rises
from soubayes.sparse.likelihoods.base import Likelihood
from soubayes.sparse.rows.coordinate import prior_start, solve_sweeps
from soubayes.sparse.rows.criterion import (
    Counted,
    dispersion,
    places_of,
    price_factor,
    searched,
    support_price,
    weakest,
)
from soubayes.sparse.rows.dial import RowFitAt, fit_rows_at
from soubayes.sparse.rows.dropped import without
from soubayes.sparse.rows.newton import solve
from soubayes.sparse.rows.passes import RowDesign, RowProblem, gram_of
from soubayes.sparse.rows.starts import (
    first_in_rows,
    fit_held_by_products,
    ridge_start,
    screened_start,
    start_precision,
)
from soubayes.sparse.rows.state import RowFit, RowModel, make_state

Array = np.ndarray

StepReport = Callable[[int, float, int], None]
_ROUNDS = 5  # updates of nuisance parameters at a point on the way
_LOOSE = 1e-5  # relative change of J at which a point on the way counts as reached
_PRECISE = 1e-6  # tolerance of J from which on averages over the predictors have all digits


class PathRows(Protocol):
    """What a path asks of the rows of a fit, whatever reads them."""

    @property
    def design(self) -> RowDesign:
        """The columns."""

    @property
    def n_columns(self) -> int:
        """The columns of a problem, all coordinates of each."""

    @property
    def n(self) -> float:
        """How many rows inform the coefficients."""

    @property
    def grid_rows(self) -> float:
        """The same, for where the path begins; infinite: at confidence 1, however wide."""

    @property
    def products(self) -> bool:
        """Whether all columns are read by products with a sparse X alone."""

    @property
    def coordinates(self) -> int:
        """How many columns of the problem, which are neighbours, are one column of X."""

    def minimise(
        self, model: RowModel, warm: RowFit | None, limits: "Limits", readmit: bool = True
    ) -> RowFit:
        """The minimum of J, from the state of another confidence or from a start."""

    def loss(self, fit: RowFit) -> float:
        """The loss of the rows at the posterior mean."""

    def first_copies(self) -> Array:
        """For every column the first that it is a copy of."""

    def fit_at(self, model: RowModel, point: DialPoint) -> RowFitAt:
        """The fit at a point of the dial."""


class SharedRows(NamedTuple):
    """The rows of a target that a likelihood reads; but for y, targets of a fit share them."""

    likelihood: Any  # a `Likelihood`
    design: RowDesign
    y: Any  # (n,), or what the design takes for y
    weight: Any  # (n,); None: known to the design
    gram: Array | None  # X'X; None: never formed
    n: float  # sum of the weights
    products: bool = False  # whether all columns are read by products with a sparse X alone
    dispersion: float = 1.0  # least factor of the price of a column, see `_settle_price`

    @property
    def coordinates(self) -> int:
        """The predictors of a row."""
        return self.likelihood.coordinates

    @property
    def _several(self) -> bool:
        return self.likelihood.several

    @property
    def n_columns(self) -> int:
        """The columns of a problem."""
        return self.design.n_columns * self.coordinates

    @property
    def grid_rows(self) -> float:
        """Expected losses keep separated data finite; a path of many columns begins later.

        A large sparse X begins at about 8, where a handful of a thousand null columns pass, fewer
        than such a path ends with. Several classes of wide data begin where half as many rows
        would: at confidence 1 they keep more coordinates than ever stay.
        """
        if self.products:
            return 0.1 * self.design.n_columns
        if not self._several or self.n_columns <= max(ROOM, self.design.n_rows):
            return np.inf
        return LATE_ROWS * min(self.design.n_rows * self.coordinates, self.n_columns)

    def problem(self, fit: RowFit | None = None) -> RowProblem:
        """With one target, and the nuisance parameters of a fit."""
        follows = fit is not None and self.likelihood.nuisance is not None
        likelihood = (fit.likelihood if fit and follows else None) or self.likelihood
        return RowProblem(likelihood, self.design, self.y, self.weight)

    def minimise(
        self, model: RowModel, warm: RowFit | None, limits: "Limits", readmit: bool = True
    ) -> RowFit:
        """Coefficients and nuisance parameters in turn."""
        rough = limits.tol > _PRECISE  # a point on the way needs few digits
        shared = self._replace(likelihood=self.likelihood.coarse) if rough else self
        return _minimise(shared, model, warm, limits, readmit)

    def fit_at(self, model: RowModel, point: DialPoint) -> RowFitAt:
        """The fit at a point of the dial."""
        if self.products:
            return fit_held_by_products(self.problem(), model, point)
        return fit_rows_at(self.problem(), model, point)

    def loss(self, fit: RowFit) -> float:
        """One pass."""
        return float(self.problem(fit).take(fit.state.active).plug_in(fit.state.mean)[0])

    def first_copies(self) -> Array:
        """From X'X, or from the columns of wide data; of several coordinates, none are barred.

        These share a tau, and columns that share a tau stay together.
        """
        if self._several:
            return np.arange(self.n_columns)
        if self.gram is not None:
            return first_in_rows(self.design, self.gram, self.y, self.weight)
        X = self.design.by_products() or self.design.by_columns()
        assert X is not None
        return first_in_columns(X)


class Limits(NamedTuple):
    """When a solver stops, and what it reports each step to."""

    max_iter: int
    tol: float
    report: StepReport = lambda *_: None
    stride: int = 1  # every how many-th point of a path that chooses is visited
    refine: bool = False  # whether then those beside the best
    loose: float = _LOOSE  # relative change of J at which a point on the way counts as reached
    settle: bool = True  # whether columns that a refit leaves out are brought up to date

    def solver(self) -> dict[str, Any]:
        """What a solver of one point is told."""
        return {"max_iter": self.max_iter, "tol": self.tol, "report": self.report}


class RowPoint(NamedTuple):
    """One point of the path."""

    gamma: float
    active: Array  # columns, the intercept too
    mean: Array  # (p,) exactly 0 where dropped
    # (columns of X, d, d) covariances of the d coordinates of a column under q; NaN where dropped
    spread: Array
    value: float  # J
    score: float  # what `solve_rows` minimises along the path; NaN where not asked for
    refit: Array  # (p,) the mean of the support refitted at confidence 1; NaN likewise
    converged: bool


class RowOutcome(NamedTuple):
    """Where a problem ended: the fit at the reported confidence, and the way there."""

    model: RowModel
    fit: RowFit
    history: Array
    n_iter: int
    points: list[RowPoint]
    gamma: float  # confidence in the coefficients of the reported point
    first: RowFit | None = None  # where a path that chooses began, at confidence 1
    dispersion: float = 1.0  # of the residuals at the reported fit


class _Visit(NamedTuple):
    """A point of a path that chooses: the fit there, and the refit of its support."""

    point: RowPoint
    fit: RowFit
    refit: RowFit
    factor: float  # `price_factor` of the refit


def share_rows(
    likelihood: Likelihood, design: RowDesign, targets: Sequence[Array], weight: Array, solver: str
) -> list[SharedRows]:
    """Decide whether k x k or n x n matrices are formed, and form what all targets share."""
    several = likelihood.several
    wide = design.n_columns > max(design.n_rows, 2 * FEW_COLUMNS) and solver == "newton"
    products = solver == "newton" and not several and design.by_products() is not None
    gram = None if wide or products or several else gram_of(design, weight)
    shared = weight, gram, float(weight.sum()), products
    return [SharedRows(likelihood, design, y, *shared) for y in targets]


def solve_rows(
    shared: PathRows,
    model: RowModel,
    free: Array,
    confidence: float | None,
    solver: str,
    limits: Limits,
) -> RowOutcome:
    """Minimise J at this confidence in the ``free`` coefficients, or choose it (None).

    The path raises the confidence gamma_b, the threshold of z_j^2, from 1. A number is reached
    by it and reported there. None goes to the end of the path and reports the point of least

        2 sum(loss) + 2 k n/(n - k - 1) + 2 k log(p/e) + 360 k `few_rows`(n - k),

    the corrected Akaike risk plus the price of having searched p columns for each one kept (a group
    is one column), with k the degrees of freedom of the support (`Counted`) and the loss at its
    refit at confidence 1; that refit is what is reported. A lower price does not do: wide data can
    be separated by a few wrong columns. The refit has weaker columns than the price allows where
    the point of the path has a low threshold; it is reported without them if that lowers the score.
    Where the residuals contradict the family the loss is divided by their dispersion, as in a
    quasi-likelihood: the same as multiplying the rest with it. The dispersion is that of the fit it
    leads to, found from the sparse end, because columns that are taken in for outliers hide them. A
    support whose own rows of high leverage have larger residuals pays for those (`price_factor`).
    """
    selects = bool(np.any(free & model.selects))
    auto = confidence is None and selects and solver == "newton"
    asked = 1.0 if confidence is None else confidence
    if solver == "coordinate":
        assert isinstance(shared, SharedRows)
        swept = _sweeps(shared, model.at(asked, free), free, asked, limits)
        return swept._replace(dispersion=_dispersion(shared, swept.fit))
    model = model.barring(shared.first_copies())
    counted = model.searched_among(free)
    grid: Any = [asked]
    if selects:
        goal = None if auto else asked
        grid = confidence_grid(int(counted.sum()), goal, shared.grid_rows)
    loose = limits._replace(tol=max(limits.loose, limits.tol))
    if auto:
        return _choose(shared, model, free, np.asarray(grid), limits, loose)
    points: list[RowPoint] = []
    way: RowFit | None = None
    for gamma in map(float, grid):
        way = shared.minimise(model.at(gamma, free), way, limits if gamma == grid[-1] else loose)
        points.append(_point(shared, way, gamma))
    assert way is not None
    outcome = _outcome(model.at(gamma, free), way, points, gamma)
    return outcome._replace(dispersion=_dispersion(shared, way))


def _choose(
    shared: PathRows,
    model: RowModel,
    free: Array,
    grid: Array,
    limits: Limits,
    loose: Limits,
) -> RowOutcome:
    """Along the path, to the refit of the support of least score."""
    one, counted = model.at(1.0, free), places_of(model, free)
    rough = loose._replace(settle=False)  # only its loss is asked for

    def walk(gammas: Array, before: _Visit | None) -> list[_Visit]:
        visits: list[_Visit] = []
        for gamma in map(float, gammas):
            start = before and before.fit
            fit = shared.minimise(model.at(gamma, free), start, loose)
            same = before and np.array_equal(before.refit.state.active, fit.state.active)
            if before and same:
                refit, factor = before.refit, before.factor
            else:
                refit = shared.minimise(one, fit, rough, readmit=False)
                factor = _of_residuals(shared, refit, price_factor)
            visit = _Visit(_point(shared, fit, gamma), fit, refit, factor)
            known = before.point.score if before and same else None
            before = _scored(shared, visit, counted, known)
            visits.append(before)
            if not free[fit.state.active].any():
                break
        return visits

    def best(visits: list[_Visit]) -> int:
        return int(np.argmin([visit.point.score for visit in visits]))

    visits = walk(grid[:: limits.stride], None)
    first = visits[0].fit
    if limits.refine:
        at = best(visits) * limits.stride
        inside = np.arange(max(at - limits.stride, 0) + 1, min(at + limits.stride, len(grid)))
        inside = inside[inside % limits.stride > 0]
        below = visits[max(best(visits) - 1, 0)]
        visits = sorted(visits + walk(grid[inside], below), key=lambda visit: visit.point.gamma)
    visits = _trim(shared, one, counted, visits, rough)
    priced, visits = _settle_price(shared, visits, counted)
    if priced is not shared:
        shared, visits = priced, _trim(priced, one, counted, visits, rough)
    chosen, points = visits[best(visits)], [visit.point for visit in visits]
    fit = shared.minimise(one, chosen.refit, limits, readmit=False)
    fit = fit._replace(converged=fit.converged and all(point.converged for point in points))
    outcome = _outcome(one, fit, points, chosen.point.gamma)
    return outcome._replace(first=first, dispersion=_dispersion(shared, chosen.refit))


def _settle_price(
    shared: PathRows, visits: list[_Visit], places: Array
) -> tuple[PathRows, list[_Visit]]:
    """The dispersion of the best visit in all prices, found from the sparse end."""
    if not isinstance(shared, SharedRows):
        return shared, visits
    phi = _dispersion(shared, visits[-1].refit)
    while phi != shared.dispersion:
        shared = shared._replace(dispersion=phi)
        visits = [_scored(shared, visit, places) for visit in visits]
        best = min(visits, key=lambda visit: visit.point.score)
        phi = min(phi, _dispersion(shared, best.refit))
    return shared, visits


def _scored(shared: PathRows, visit: _Visit, places: Array, known: float | None = None) -> _Visit:
    """A visit with its refit's coefficients and score, which is what `solve_rows` minimises."""
    refit, again = visit.refit, np.zeros(len(visit.point.refit))
    again[refit.state.active] = refit.state.mean
    if known is None:
        counted = Counted.of(refit.state, places)
        price = _pricing(shared, visit, places)(counted.total, len(counted.numbers))
        known = 2.0 * shared.loss(refit) + price
    return visit._replace(point=visit.point._replace(refit=again, score=known))


def _trim(
    shared: PathRows, one: RowModel, places: Array, visits: list[_Visit], rough: Limits
) -> list[_Visit]:
    """Visits, some with a refit of fewer columns of lower score.

    Those from which most is expected come first. A refit is made if it should be the best so far.
    """

    def expect(number: int) -> tuple[float, int, Array]:
        visit = visits[number]
        state = visit.refit.state
        if not np.isfinite(visit.point.score):  # too many columns for the rows: try none
            return -np.inf, number, np.flatnonzero(places[state.active] >= 0)
        gain, gone = weakest(state, places, _pricing(shared, visit, places))
        return visit.point.score - gain, number, gone

    visits, tried = list(visits), set()
    new = [visits[0], *(v for u, v in pairwise(visits) if u.refit is not v.refit)]
    open_ = [expect(visits.index(v)) for v in new]
    while open_:
        score, number, gone = min(open_, key=lambda each: each[0])
        open_ = [each for each in open_ if each[1] != number]
        visit, least = visits[number], min(visit.point.score for visit in visits)
        likelihood = visit.refit.likelihood
        follows = likelihood is not None and likelihood.nuisance is not None
        if not score < least - (NUISANCE_GAIN if follows else GAIN):
            break
        stay = np.delete(visit.refit.state.active, gone).tobytes()
        if stay in tried:
            continue
        tried.add(stay)
        refit = shared.minimise(one, without(one, visit.refit, gone), rough, readmit=False)
        factor = _of_residuals(shared, refit, price_factor)
        trial = _scored(shared, visit._replace(refit=refit, factor=factor), places)
        if trial.point.score < visit.point.score:
            visits[number] = trial
            open_.append(expect(number))
    return visits


def _sweeps(
    shared: SharedRows, model: RowModel, free: Array, gamma: float, limits: Limits
) -> RowOutcome:
    """Algorithm 1 at one confidence."""
    assert shared.gram is not None
    # X'BX with one curvature for all rows
    typical = shared.likelihood.start_curvature * shared.gram
    start = prior_start(model, typical, start_precision(model))
    fit = solve_sweeps(shared.problem(), model, start, **limits.solver())
    return _outcome(model, fit, [_point(shared, fit, gamma)], gamma)


def _minimise(
    shared: SharedRows,
    model: RowModel,
    warm: RowFit | None,
    limits: Limits,
    readmit: bool,
) -> RowFit:
    """From the state of another confidence, or from the start; nuisance parameters in turn."""
    fit = solve_from(shared, shared.problem(warm), model, warm, limits, readmit)
    if shared.likelihood.nuisance is None:
        return fit
    for _ in range(limits.max_iter if limits.tol < _LOOSE else _ROUNDS):
        problem = _updated(shared.problem(fit), fit)
        again = solve_from(shared, problem, model, fit, limits, readmit)
        fall = fit.history[-1] - again.history[-1]
        # both steps lower the same J, so it is monotone up to rounding
        if not rises(again.history[-1], fit.history[-1]):
            history = fit.history + again.history
            fit = again._replace(history=history, likelihood=problem.likelihood)
        if fall <= limits.tol * abs(fit.history[-1]):
            return fit
    return fit._replace(converged=fit.converged and limits.tol >= _LOOSE)


def _updated(problem: RowProblem, fit: RowFit) -> RowProblem:
    """With the best q of the nuisance parameters at the end of a fit."""
    active = problem.take(fit.state.active).updated(fit.state.mean, fit.state.root)
    return active._replace(design=problem.design)


@np.errstate(over="ignore", invalid="ignore")  # where a trial step overflows it is not taken
def solve_from(
    shared: SharedRows,
    problem: RowProblem,
    model: RowModel,
    warm: RowFit | None,
    limits: Limits,
    readmit: bool,
) -> RowFit:
    """At fixed nuisance parameters."""
    if warm is not None:
        old = warm.state
        near = old.local, old.top
        start = make_state(
            model, old.active, old.mean, warm.data.information, old.precision, old.rest, near
        )
    elif shared.gram is not None:
        typical = shared.likelihood.start_curvature * shared.gram
        start = ridge_start(problem, model, start_precision(model), typical)
    else:
        room = ROOM if shared.likelihood.several else FEW_COLUMNS
        start = screened_start(problem, model, start_precision(model), room)
    slow = warm is not None and warm.slow
    same = warm is not None and warm.likelihood is problem.likelihood
    known = warm.data if warm is not None and same else None
    tell = limits.solver()
    fit = solve(
        problem, model, start, readmit=readmit, slow=slow, known=known, settle=limits.settle, **tell
    )
    return fit._replace(likelihood=problem.likelihood)


def _point(shared: PathRows, fit: RowFit, gamma: float) -> RowPoint:
    p, active = shared.n_columns, fit.state.active
    mean, again = np.zeros(p), np.full(p, np.nan)
    mean[active] = fit.state.mean
    d = shared.coordinates
    spread = np.full((p // d, d, d), np.nan)
    root = fit.state.root.reshape(len(active) // d, d, len(active))
    spread[active[::d] // d] = root @ root.transpose(0, 2, 1)
    value = fit.history[-1]
    return RowPoint(gamma, active, mean, spread, value, np.nan, again, fit.converged)


def _pricing(shared: PathRows, visit: _Visit, places: Array) -> Callable[[float, int], float]:
    """`support_price` of these rows, times what their residuals at a refit say of it."""
    factor = visit.factor
    factor = max(factor, shared.dispersion) if isinstance(shared, SharedRows) else factor
    return lambda k, kept: factor * support_price(shared.n, searched(places), k, kept)


def _dispersion(shared: PathRows, fit: RowFit) -> float:
    """`dispersion` at a fit."""
    return _of_residuals(shared, fit, dispersion)


def _of_residuals(
    shared: PathRows, fit: RowFit, factor: Callable[[RowProblem, Array], float]
) -> float:
    """A factor of the residuals at a fit; 1 where the rows are not read by a likelihood of rows."""
    compared = isinstance(shared, SharedRows) and np.isfinite(shared.likelihood.residual_variance)
    if not compared:
        return 1.0
    assert isinstance(shared, SharedRows)
    return factor(shared.problem(fit).take(fit.state.active), fit.state.mean)


def _outcome(model: RowModel, fit: RowFit, points: list[RowPoint], gamma: float) -> RowOutcome:
    history = np.minimum.accumulate(fit.history)  # equal up to the rounding of an update
    return RowOutcome(model, fit, history, len(fit.history) - 1, points, gamma)
