"""Linear regression and normal means: from data to fits in the user's units.

`LinearSettings` is the model as an estimator's parameters say it, a `LinearIntake` holds one
standardised design for each target, from rows in memory or from their moments, and `solve_targets`
gives the sparse point of each.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from soubayes.sparse.blocks import GroupLabels, sources, tau_groups
from soubayes.sparse.constants import NOISE_SHARE
from soubayes.sparse.designs.columns import standard_columns, weighted_moments
from soubayes.sparse.designs.moments import FoldedMoments, Moments, folded_moments
from soubayes.sparse.designs.standardise import (
    check_squares,
    check_units,
    column_scales,
    in_range,
)
from soubayes.sparse.inclusion.field import ColumnQuadratic, GramQuadratic, Quadratic
from soubayes.sparse.inclusion.grouped import fit_groups
from soubayes.sparse.inclusion.product import fit_product
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.least_squares.coordinate import solve_coordinate
from soubayes.sparse.least_squares.designs import Gram, LeastSquares, Wide
from soubayes.sparse.least_squares.dial import RIDGE, LeastSquaresDial
from soubayes.sparse.least_squares.path import PathPoint, path_fit, solve_path
from soubayes.sparse.least_squares.state import (
    LeastSquaresFit,
    LeastSquaresModel,
    LeastSquaresSolution,
    NoisePrior,
)
from soubayes.sparse.least_squares.student_noise import (
    STILL,
    RowUnits,
    StudentNoise,
    StudentPrior,
    TailRows,
    settle_tails,
)
from soubayes.sparse.least_squares.unit_gram import UnitGram, unit_grams, unit_posterior
from soubayes.sparse.model import FitSettings
from soubayes.sparse.posterior import (
    Component,
    LowRankPosterior,
    PathPoints,
    Posterior,
    SparsePoint,
    chosen_row,
)
from soubayes.sparse.scales.base import log_minus_psi
from soubayes.threads import solver_threads

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class LinearSettings(FitSettings):
    """Those of a Gaussian model."""

    noise_shape: float
    noise_scale: float | None  # None: `NOISE_SHARE` of var(y)
    noise_confidence: float
    scaled: bool = True  # whether the prior of beta is multiplied by sigma^2
    student: StudentPrior | None = None  # None: normal noise

    def model(self, p: int, y_scale: float) -> tuple[LeastSquaresModel, Array]:
        """The model in standardised units, and which columns move along the path."""
        columns = sources(list(self.blocks), p, self.coef or 1.0, self.local)
        scale = NOISE_SHARE if self.noise_scale is None else self.noise_scale / y_scale**2
        variance, confidence = self.intercept or (None, 1.0)
        model = LeastSquaresModel(
            confidence=columns.gamma,
            variance=columns.variance,
            local_confidence=columns.local,
            global_confidence=self.top,
            local_prior=self.local_prior,
            global_prior=self.top_prior,
            sources=columns.groups,
            groups=tau_groups(self.groups, columns),
            noise=NoisePrior(self.noise_shape, scale, self.noise_confidence),
            scaled=self.scaled,
            intercept_variance=variance,
            intercept_confidence=confidence,
        )
        return model, columns.free

    def follows_path(self, model: LeastSquaresModel) -> bool:
        """Whether J has minima at infinite precisions, so there is a path to follow."""
        least = np.minimum(model.confidence, 1.0)
        selects = bool(np.all((model.local_confidence < least / 2.0)[model.sparse]))
        return self.solver == "path" and selects


class TargetUnits(NamedTuple):
    """Where the standardised units came from."""

    x_mean: Array
    x_scale: Array
    y_mean: Array  # one entry for each target
    y_scale: Array
    plain: bool = True  # whether no unit had to be taken out before squaring
    students: tuple[StudentNoise, ...] = ()  # one for each target; empty: the noise is normal

    def of(self, t: int) -> RowUnits:
        """Of one target."""
        return RowUnits(self.x_mean, self.x_scale, float(self.y_mean[t]), float(self.y_scale[t]))


class LinearIntake(NamedTuple):
    """What linear regression is fitted to: one standardised design for each target."""

    designs: list[LeastSquares]
    units: TargetUnits
    moments: FoldedMoments | None = None  # of the folds; None: fewer rows than columns
    dense: "LinearIntake | None" = None  # that of the dense fits, where they have their own

    @property
    def x_mean(self) -> Array:
        """Means of the columns."""
        return self.units.x_mean

    @property
    def size(self) -> int:
        """The side of the systems that are solved."""
        first, p = self.designs[0], len(self.units.x_scale)
        return int(min(first.n, len(first.gram) if isinstance(first, UnitGram) else p))

    def model(self, settings: LinearSettings, t: int) -> tuple[LeastSquaresModel, Array]:
        """The model of a target in standardised units, and which columns follow the path."""
        return settings.model(len(self.units.x_scale), float(self.units.y_scale[t]))

    def with_noise(self, students: tuple[StudentNoise, ...]) -> "LinearIntake":
        """The same designs, of pseudo-observations for this noise."""
        return self._replace(units=self.units._replace(students=students))

    def observations(self, X: Any, Y: Array) -> Array:
        """Pseudo-observations of rows, (rows, targets)."""
        pairs = zip(self.units.students, Y.T, strict=True)
        return np.stack([noise.observations(X, y) for noise, y in pairs], axis=1)


def rows_intake(
    X: Any,
    Y: Array,
    weight: Array | None,
    intercept: bool,
    folds: int = 1,
    square: bool = False,
    shared: Array | None = None,
) -> LinearIntake:
    """From rows in memory.

    ``square``: cross-products also with up to twice as many columns as rows, where p x p systems,
    which need no product with X, are solved faster than n x n ones. Columns of one number in
    ``shared`` have one unit (`column_scales`).
    """
    X, x_unit = in_range(X)
    Y, y_unit = in_range(Y)
    if X.shape[0] * (1 + square) < X.shape[1]:
        return _wide(X, Y, weight, intercept, x_unit, y_unit, shared)
    folded = folded_moments(X, Y, weight, folds)
    intake = moments_intake(folded.total(), intercept, x_unit, y_unit, shared)
    return intake._replace(moments=folded)


def unit_intake(
    X: Any, Y: Array, weight: Array | None, intercept: bool, settings: LinearSettings
) -> LinearIntake:
    """From rows some of whose columns are effects of units, which are eliminated."""
    assert settings.unit is not None
    weight = np.ones(len(Y)) if weight is None else weight
    designs, units = unit_grams(X, Y, weight, intercept, settings.unit, settings.shared)
    return LinearIntake(list(designs), TargetUnits(*units))


def moments_intake(
    raw: Moments,
    intercept: bool,
    x_unit: Array | float = 1.0,
    y_unit: Array | float = 1.0,
    shared: Array | None = None,
) -> LinearIntake:
    """From the moments of X/x_unit and y/y_unit."""
    use = raw if intercept else raw.about_zero()
    n = use.n
    x_scale, constant = column_scales(raw.x_mean * intercept, np.diag(use.xx) / n, n, shared)
    y_scale, _ = column_scales(raw.y_mean * intercept, use.yy / n, n)
    check_squares(raw.x_mean, np.diag(use.xx) / n)
    check_squares(raw.y_mean, use.yy / n)
    # from raw cross-products: X is not read again to be standardised
    xx = use.xx / np.outer(x_scale, x_scale)
    xx[constant], xx[:, constant] = 0.0, 0.0
    xy = use.xy / np.outer(x_scale, y_scale)
    xy[constant] = 0.0
    yy = use.yy / y_scale**2
    designs: list[LeastSquares] = [Gram(xx, xy[:, t], float(yy[t]), n) for t in range(len(y_scale))]
    plain = bool(np.all(x_unit == 1.0) and np.all(y_unit == 1.0))
    units = use.x_mean * x_unit, x_scale * x_unit, use.y_mean * y_unit, y_scale * y_unit
    return LinearIntake(designs, TargetUnits(*units, plain))


def _wide(
    X: Any,
    Y: Array,
    weight: Array | None,
    intercept: bool,
    x_unit: Array | float,
    y_unit: Array | float,
    shared: Array | None,
) -> LinearIntake:
    counts = np.ones(len(Y)) if weight is None else weight
    n = float(counts.sum())
    share = counts / n
    x_mean, x_square = weighted_moments(X, share, intercept)
    y_mean, y_square = weighted_moments(Y, share, intercept)
    x_scale, constant = column_scales(x_mean, x_square, n, shared)
    y_scale, _ = column_scales(y_mean, y_square, n)
    root = np.sqrt(counts)
    columns = standard_columns(X, x_mean, np.where(constant, np.inf, x_scale), root)
    Y = (Y - y_mean) * root[:, None] / y_scale
    designs: list[LeastSquares] = [Wide(columns, Y[:, t], n) for t in range(Y.shape[1])]
    units = x_mean * x_unit, x_scale * x_unit, y_mean * y_unit, y_scale * y_unit
    return LinearIntake(designs, TargetUnits(*units))


@dataclass(frozen=True)
class Solved:
    """One target at its reported point, in standardised units."""

    design: LeastSquares
    solution: LeastSquaresSolution
    path: list[PathPoint]  # empty: no path was followed
    gamma: float
    units: TargetUnits
    target: int

    @cached_property
    def points(self) -> list[SparsePoint]:
        """The one that is reported."""
        return [linear_sparse_point(self, self.units, self.target)]

    @property
    def component(self) -> Component:
        """Its q."""
        return self.points[0].component


def solve_targets(intake: LinearIntake, settings: LinearSettings) -> list[Solved]:
    """Every target at its reported point."""
    designs, units = intake.designs, intake.units
    check_units(units.x_scale, units.y_scale)
    with solver_threads(intake.size):
        return [_solve(design, settings, units, t) for t, design in enumerate(designs)]


def _solve(design: LeastSquares, settings: LinearSettings, units: TargetUnits, t: int) -> Solved:
    label = f"target {t}: " if len(units.y_scale) > 1 else ""
    model, free = settings.model(len(units.x_scale), float(units.y_scale[t]))
    limits: Any = {
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "report": lambda words: settings.say(label + words),
    }
    if not settings.follows_path(model):
        solution = solve_coordinate(design, model, **limits)
        return Solved(design, solution, [], settings.coef or 1.0, units, t)
    points, chosen, solution = solve_path(design, model, free, settings.coef, **limits)
    gamma = settings.coef if chosen is None else points[chosen].gamma
    return Solved(design, solution, points, float(gamma or 1.0), units, t)


def settle_targets(
    intake: LinearIntake,
    rows: Callable[[int], TailRows],
    settings: LinearSettings,
    priors: Sequence[StudentPrior],
    *,
    dense: bool = False,
    still: float = STILL,
) -> LinearIntake:
    """The designs of pseudo-observations around the sparse fit of every target, or the dense end.

    A dense fit of more columns than rows takes outliers for signal: there it is the sparse one.
    """
    units, settled = intake.units, []
    check_units(units.x_scale, units.y_scale)
    for t, design in enumerate(intake.designs):
        model, free = intake.model(settings, t)
        solve = partial(_dense_fit, model=model)
        if not dense or len(design.norms) >= design.n:
            solve = partial(_sparse_fit, model=model, free=free, settings=settings)
        intercept = settings.intercept is not None
        settled.append(settle_tails(design, rows(t), priors[t], solve, intercept, still))
    designs, noise = [list(each) for each in zip(*settled, strict=True)]
    shift = units.y_scale * [each.centre for each in noise]
    units = units._replace(y_mean=units.y_mean + shift, students=tuple(noise))
    return intake._replace(designs=designs, units=units)


def _dense_fit(design: LeastSquares, model: LeastSquaresModel) -> LeastSquaresFit:
    return LeastSquaresDial(design, model).fit(RIDGE)


def _sparse_fit(
    design: LeastSquares, model: LeastSquaresModel, free: Array, settings: LinearSettings
) -> LeastSquaresFit:
    limits: Any = {"tol": settings.tol, "max_iter": settings.max_iter}
    if not settings.follows_path(model):
        return solve_coordinate(design, model, **limits)
    if settings.coef is not None:
        return solve_path(design, model, free, settings.coef, **limits)[2]
    return path_fit(design, model, free, max_iter=settings.max_iter)[1]


def linear_sparse_point(solved: Solved, units: TargetUnits, t: int) -> SparsePoint:
    """The point in the user's units."""
    design, s = solved.design, solved.solution
    # kappa_j = w_j (A^-1)_jj, the share of the prior in the posterior precision
    kappa = s.w * s.variance
    component = in_units(design, s, units, t)
    offset, costs, settled = design.n * math.log(units.y_scale[t]), s.value.kl, True
    if units.students:
        noise = units.students[t]
        # the loss of the pseudo-observations is that of the rows up to a constant
        normal = s.value.expected_loss - 0.5 * design.n * log_minus_psi(s.noise.shape)
        offset, settled = offset + noise.loss - float(normal), noise.converged
        if noise.learnt:
            costs = costs | {"degrees": noise.kl}
    return SparsePoint(
        component=component,
        units=units.y_scale[t] / units.x_scale,
        selected=s.selected,
        shrinkage=kappa,
        local_scale=np.sqrt(s.model.each_tau(s.tau.ratio)),
        global_scale=float(np.sqrt(s.nu.ratio)),
        kl=costs,
        confidence=solved.gamma,
        # a density of y changes by n log(scale) with its units
        objective=s.history + offset,
        n_iter=s.n_iter,
        converged=s.converged and settled,
        solver="path" if solved.path else "coordinate",
        path=_path(solved, units, t, offset),
    )


def _path(solved: Solved, units: TargetUnits, t: int, offset: float) -> PathPoints:
    """The path in the user's units; a coordinate fit is a path of one point."""
    scale, s = float(units.y_scale[t]), solved.solution
    if not solved.path:
        coef, selected = s.coef[None], s.selected[None]
        sd = np.sqrt(s.model.confidence * s.noise.variance * s.variance)[None]
        rest = [[solved.gamma], [s.noise.variance], [s.value.value], [False], [2 * s.noise.shape]]
    else:
        coef = np.array([point.coef for point in solved.path])
        sd = np.array([point.sd for point in solved.path])
        selected = np.zeros(coef.shape, bool)
        for row, point in zip(selected, solved.path, strict=True):
            row[point.state.active] = True
        rest = [
            [point.gamma for point in solved.path],
            [point.state.noise for point in solved.path],
            [point.value for point in solved.path],
            [point.guarded for point in solved.path],
            [point.degrees for point in solved.path],
        ]
    coef, sd = coef * (scale / units.x_scale), sd * (scale / units.x_scale)
    gamma, noise, value, guarded, degrees = map(np.array, rest)
    columns = {
        "gamma": gamma,
        "chosen": chosen_row(gamma, solved.gamma),
        "n_selected": selected.sum(axis=1),
        "noise_variance": noise * scale**2 * (units.students[t].ratio if units.students else 1.0),
        "value": value + offset,
        "guarded": guarded,
        "degrees": degrees,
        "intercept": units.y_mean[t] - coef @ units.x_mean,
    }
    return PathPoints(columns, coef, np.where(selected, sd, np.nan))


def in_units(design: LeastSquares, s: LeastSquaresFit, units: TargetUnits, t: int) -> Component:
    """q of a fit in the user's units, with the predictor at the mean of X if there is one."""
    scale = float(units.y_scale[t])
    q = _posterior(design, s, scale / units.x_scale)
    if s.model.intercept_variance is not None:
        spread = s.model.intercept_spread(design.n, s.noise.variance) * scale**2
        q = q.joined(float(units.y_mean[t]), spread)
    noise, shape = s.noise.variance * scale**2, s.noise.shape
    if not units.students:
        return Component(q, noise, shape)
    student = units.students[t]
    shape = shape * student.information
    return Component(q, noise * student.ratio, shape, noise_degrees=student.degrees)


def _posterior(design: LeastSquares, s: LeastSquaresFit, scale: Array) -> Posterior:
    """q(beta) in the user's units."""
    v, gamma = s.noise.variance, s.model.confidence
    if isinstance(design, UnitGram):
        if s.model.mixed(s.selected):
            raise ValueError(
                "with a unit of many levels all columns need one confidence: set "
                "confidence_coef=1, or leave it at 'auto'."
            )
        active, v = np.flatnonzero(s.selected), v * float(gamma[0])
        return unit_posterior(design, s.w, s.coef * scale, v * s.variance, active, scale, v)
    alike = s.selected.all() and not s.model.mixed(s.selected)
    if alike and (rows := design.rows()) is not None:
        # A^-1 = W^-1 - W^-1 X' L^-T L^-1 X W^-1
        inverse = s.triangle if s.triangle is not None else design.ridge(s.w).triangle
        assert inverse is not None
        X, root = rows
        T = inverse if root is None else np.column_stack([inverse, -inverse @ root])
        diagonal, factor = gamma * v / s.w, (X, np.sqrt(gamma * v) / s.w, T, inverse)
        known = scale, gamma * v * s.variance
        return LowRankPosterior(s.coef * scale, diagonal, *factor, *known)
    active = np.flatnonzero(s.selected)
    subset, model, w = design.take(active), s.model.take(active), s.w[active]
    block = v * model.covariance(lambda own: subset.take(own).inverse(w[own]))
    return Posterior(s.coef * scale, gamma * v * s.variance, active, block, scale)


def linear_supports(
    solved: Solved, units: TargetUnits, t: int, groups: GroupLabels | None = None
) -> SupportPosterior:
    """The sweeps start from the columns that the path has selected.

    Columns with a normal prior of their own are in every support.
    """
    design, fit = solved.design, solved.solution
    noise, model = fit.noise.variance, fit.model
    data = quadratic_of(design, model.noise, model.intercept_variance is not None)
    selected = np.flatnonzero(fit.selected)
    always = np.nan_to_num(model.variance, nan=0.0) / noise
    start, scale = (selected, fit.coef[selected] ** 2 / noise), units.y_scale[t] / units.x_scale
    if groups is not None and not groups.single:
        whole = fit_groups(data, groups.number, start, always=always)
        return SupportPosterior.of(whole, scale, units.x_scale)
    return SupportPosterior.of(fit_product(data, start, always=always), scale, units.x_scale)


def quadratic_of(design: LeastSquares, noise: NoisePrior, intercept: bool) -> Quadratic:
    """The same loss, with the noise's prior as 2 shape more observations of it."""
    degrees = design.n - intercept + 2.0 * noise.shape
    if isinstance(design, Gram):
        data: Quadratic = GramQuadratic(design.gram, design.scores, design.yy, design.n, degrees)
    elif isinstance(design, Wide):
        data = ColumnQuadratic(design.columns, design.y, design.n, degrees)
    else:
        raise TypeError(f"a {type(design).__name__} has no posterior over supports.")
    data.yy += 2.0 * noise.scale
    return data
