"""q of a model whose rows are read by a likelihood: the prior side of J, and its value.

`RowSettings` is the model as an estimator's parameters say it, and a `RowPlan` that model for the
columns of a fit.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from soubayes.sparse.blocks import sources, tau_groups
from soubayes.sparse.designs.linalg import cholesky, invert_triangle
from soubayes.sparse.designs.standardise import ColumnUnits
from soubayes.sparse.likelihoods.base import Likelihood
from soubayes.sparse.model import ColumnModel, FitSettings, coefficient_kl
from soubayes.sparse.rows.passes import Pass
from soubayes.sparse.scales.balance import Groups
from soubayes.sparse.scales.base import Scale

Array = np.ndarray


@dataclass(frozen=True)
class RowModel(ColumnModel):
    """The columns of a `RowDesign`, the intercept last if there is one.

    The paper's q is q(alpha) q(beta): the intercept has a factor of its own. With several
    predictors a row the intercepts are the first of the sources instead, inside q(beta). There the
    sources stand in reverse order, the first one last, so one Cholesky factor serves all of them:
    with A = H + gamma D = LL', S = L^-T Gamma L^-1.
    """

    intercept: bool = True

    @property
    def coefficients(self) -> int:
        """The number of columns without the intercept."""
        return len(self.confidence) - self.intercept

    @property
    def intercepts(self) -> Array:
        """Which columns are intercepts."""
        intercepts = np.zeros(len(self.confidence), bool)
        intercepts[self.coefficients :] = True
        for name, columns in self.sources:
            intercepts[columns] |= name == "intercept"
        return intercepts

    def precisions(self, sparse: Array | float) -> Array:
        """Prior precisions of all columns, those of the sparse ones given."""
        return np.where(self.sparse, sparse, 1.0 / self.variance)

    def taus_of(self, columns: Array) -> Array:
        """Which taus belong to these sparse columns (whole groups, ascending), in their order."""
        inside = np.isin(np.flatnonzero(self.sparse), columns)
        number = self.groups.number[inside]
        if self.groups.alone:
            return number
        _, first = np.unique(number, return_index=True)
        return number[np.sort(first)]


LEAST_INFORMATION = 1e-12  # of a column about which the rows say nothing: its prior stays finite


class RowState(NamedTuple):
    """q of all factors. Dropped columns (not in ``active``) act on J only through ``rest``."""

    active: Array  # (k,) columns, ascending
    mean: Array  # (k,)
    root: Array  # (k, k) upper triangular: the covariance is root root'
    precision: Array  # (p,) d, the prior precision E[1/(tau_j^2 nu^2)]
    local: Scale  # one for each tau
    top: Scale
    rest: Array  # (p,) what a dropped column adds to J beside its scales, see `dropped_terms`


class RowFit(NamedTuple):
    """Where a solver ended, and how."""

    state: RowState
    data: Pass  # on the active columns
    history: list[float]  # J after every outer step; the last one is J of the state
    converged: bool
    # with the nuisance parameters of this fit; None: it has none
    likelihood: Likelihood | None = None
    slow: bool = False  # see `newton.solve`


def make_state(
    model: RowModel,
    active: Array,
    mean: Array,
    information: Array,
    precision: Array,
    rest: Array,
    near: tuple[Scale, Scale] | None = None,
) -> RowState:
    """The state whose covariance and scales are optimal for these prior precisions.

    ``information`` is H on the active columns. One round of updates suffices when the scales
    start ``near`` their optimum.
    """
    # dJ/dS = 0 at held precisions, so S is at its best before the scales follow
    root = covariance_root(model, active, information, precision)
    scales, d = model.scales, tau_precision(model, precision)
    return RowState(
        active, mean, root, precision, *(scales.refresh(d, near) if near else scales.split(d)), rest
    )


def tau_precision(model: RowModel, precision: Array) -> Array:
    """The prior precision of the columns of every tau."""
    return model.groups.first(precision[model.sparse])


def covariance_root(model: RowModel, active: Array, information: Array, precision: Array) -> Array:
    """The upper triangular R with S = R R' = gamma_b (H + gamma_b D)^-1, alpha apart."""
    gamma = model.confidence[active]
    # dJ/dS = 0: S^-1 = H/gamma_b + D (supplement C.4.3); for unequal confidences S = L^-T Gamma
    # L^-1
    lower = cholesky(apart(model, information), gamma * precision[active])
    return invert_triangle(lower).T * np.sqrt(gamma)


def prior_value(model: RowModel, state: RowState) -> float:
    """J without the loss: supplement C.4.3 from the second line on."""
    k = state.active
    # S = R R', so its diagonal is the squared length of the rows of R
    variance = np.einsum("ij,ij->i", state.root, state.root)
    # the diagonal of the triangular root gives log|S| of every source
    log_variance = 2.0 * np.log(np.diag(state.root))
    precision = state.precision[k]
    # E[log tau^2 nu^2] is counted with the scales
    log_prior = np.where(model.sparse[k], 0.0, -np.log(precision))
    nats = coefficient_kl(precision, variance + state.mean**2, log_prior, log_variance)
    total = float(model.confidence[k] @ nats) + float(state.rest.sum())
    return total + model.scales.value(state.local, state.top)


def dropped_terms(
    model: RowModel, columns: Array, information: Array, score: Array, precision: Array
) -> Array:
    """What dropped columns add to J beside their scales, from s_j, q_j and w_j = gamma_b d_j.

    gamma_b/2 log((s + w)/gamma_b) - q^2/(2 (s + w)): the column's own loss, KL and entropy at its
    optimal N(q/(s + w), gamma_b/(s + w)). It ignores what dropped columns do to each other,
    which is of order (s/w)^2.
    """
    gamma = model.confidence[columns]
    # posterior precision of the column alone, with the others adjusted
    total = information + gamma * precision
    return gamma / 2.0 * np.log(total / gamma) - score**2 / (2.0 * total)


def copies_out(model: RowModel, precision: Array, information: Array) -> tuple[Array, Array]:
    """Prior precisions of a start at which copies of columns are dropped, and their ``rest``.

    ``information`` of all columns; a dropped column without a score has d = s/(2 gamma_tau).
    """
    rest = np.zeros(len(precision))
    if model.copies is None:
        return precision, rest
    j = np.flatnonzero(model.copies)
    precision, s = precision.copy(), np.maximum(information[j], LEAST_INFORMATION)
    precision[j] = s / (2.0 * model.local_confidence[j])
    rest[j] = dropped_terms(model, j, s, 0.0 * s, precision[j])
    return precision, rest


def apart(model: RowModel, matrix: Array) -> Array:
    """A copy of H on some columns with nothing between the intercept and the rest."""
    matrix = matrix.copy()
    if model.intercept:
        matrix[-1, :-1] = matrix[:-1, -1] = 0.0
    return matrix


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
        sources_of_solver = [columns for _, columns in given.groups[::-1]]
        order = np.concatenate(
            [columns[np.argsort(marks[columns], kind="stable")] for columns in sources_of_solver]
        )
        place = np.argsort(order)
        extra = [] if self.intercept is None else [1.0]
        intercept_variance, trust = self.intercept or (1.0, 1.0)
        variance = np.append(given.variance[order], np.multiply(extra, intercept_variance))
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
    def always(self) -> Array:
        """(p,) prior variances of columns that are never dropped, in the user's order; else 0."""
        given = np.zeros(len(self.order))
        d = (len(self.model.variance) - self.ones) // len(self.order)
        given[self.order] = np.nan_to_num(self.model.variance[::d][: len(given)], nan=0.0)
        return given

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

        sources = tuple(
            (name, spread(columns_of_source)) for name, columns_of_source in model.sources
        )
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
