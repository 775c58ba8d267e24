"""Columns, their sources and groups, their scales, and what the coefficients cost in J."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from soubayes.progress import say_step
from soubayes.sparse.blocks import FeatureBlock, GroupLabels
from soubayes.sparse.scales.balance import Groups, ScaleCosts, ScaleModel, stationary_precision
from soubayes.sparse.scales.base import LAST_STEP, ScalePrior

Array = np.ndarray


class Restricted(Protocol):
    """The inverse of A restricted to some columns."""

    @property
    def variance(self) -> Array:
        """Its diagonal."""

    @property
    def log_det(self) -> float:
        """log|A| of these columns."""


Part = TypeVar("Part", bound=Restricted)


class Nested(NamedTuple, Generic[Part]):
    """The columns of a source and all later ones, with the share of their inverse in S."""

    columns: Array  # ascending
    share: float
    inverse: Part


@dataclass(frozen=True)
class ColumnModel:
    """The coefficients' priors, in standardised units.

    Columns with a finite ``variance`` have the plain prior N(0, variance); the others, the sparse
    ones, have N(0, tau_g^2 nu^2) with the tau of their group. Columns of different confidence are
    ordered sources of uncertainty; ``sources`` lists them, the first one outermost.
    """

    confidence: Array  # (p,) gamma_b, of each coefficient
    variance: Array  # (p,) NaN for sparse columns
    local_confidence: Array  # (p,) gamma_tau, used where sparse
    global_confidence: float  # gamma_nu
    local_prior: ScalePrior
    global_prior: ScalePrior
    sources: tuple[tuple[str, Array], ...]
    groups: Groups  # of the sparse columns, in their order
    copies: Array | None = field(default=None, kw_only=True)  # (p,) see `barring`; None: no column

    @cached_property
    def sparse(self) -> Array:
        """Which columns have the global-local prior."""
        return np.isnan(self.variance)

    @cached_property
    def all_sparse(self) -> bool:
        """Whether no column has a plain prior."""
        return bool(self.sparse.all())

    @cached_property
    def _local_ratio(self) -> Array:
        """gamma_tau/gamma_b of the sparse columns."""
        return self.local_confidence[self.sparse] / self.confidence[self.sparse]

    @property
    def coefficients(self) -> int:
        """The number of columns without an intercept."""
        return len(self.confidence)

    @property
    def intercepts(self) -> Array:
        """Which columns are intercepts."""
        return np.zeros(len(self.confidence), bool)

    @property
    def selects(self) -> Array:
        """Where J has a minimum at an (almost) infinite prior precision: gamma_t < gamma_b/2."""
        return self.sparse & (self.local_confidence < self.confidence / 2.0)

    def take(self, index: Array) -> Self:
        """The same model of some columns, given by a mask or sorted indices."""
        confidence, variance = self.confidence[index], self.variance[index]
        if self.all_sparse and self.groups.alone and len(self.sources) == 1:
            sources: tuple[tuple[str, Array], ...]
            sources = ((self.sources[0][0], np.arange(len(confidence))),)
            groups = Groups.single(len(confidence))
        else:
            where = np.full(len(self.confidence), -1)
            where[index] = np.arange(len(confidence))
            sources = tuple(
                (name, where[columns][where[columns] >= 0]) for name, columns in self.sources
            )
            groups = self.groups.take(where[self.sparse] >= 0)
        return replace(
            self,
            confidence=confidence,
            variance=variance,
            local_confidence=self.local_confidence[index],
            sources=sources,
            groups=groups,
            copies=None if self.copies is None else self.copies[index],
        )

    def barring(self, first: Array) -> Self:
        """The same model in which of equal columns only the first may be active.

        ``first`` is the first column that equals each one. Equal columns of one source share a
        coefficient in any proportions at the same J (up to the confidence in tau), so nothing is
        lost. Columns that share a tau stay together.
        """
        numbers = np.arange(len(first))
        if not self.groups.alone or np.array_equal(first, numbers):
            return self
        source = np.zeros(len(first), int)
        for number, (_, columns) in enumerate(self.sources, 1):
            source[columns] = number
        copies = (first != numbers) & self.selects & self.selects[first] & (source == source[first])
        return replace(self, copies=copies) if copies.any() else self

    @property
    def distinct(self) -> Array:
        """The columns that may be active."""
        numbers = np.arange(len(self.confidence))
        return numbers if self.copies is None else numbers[~self.copies]

    def searched_among(self, free: Array) -> Array:
        """The ``free`` columns that count as places for a signal: copies do not."""
        return free if self.copies is None else free & ~self.copies

    def at(self, confidence: float, free: Array) -> Self:
        """The same model with the confidence of the ``free`` columns set."""
        return replace(self, confidence=np.where(free, confidence, self.confidence))

    @cached_property
    def scales(self) -> ScaleModel:
        """What J says about q(tau^2) and q(nu^2) when the coefficients are given."""
        sparse = self.sparse
        return ScaleModel(
            self.local_prior,
            self.global_prior,
            self.groups.total(self.confidence[sparse]),
            self.groups.first(self.local_confidence[sparse]),
            self.global_confidence,
        )

    @property
    def tau_numbers(self) -> Array | None:
        """Which tau a column shares with others, -1 where it is alone; None: all columns are."""
        if self.groups.alone:
            return None
        numbers = np.full(len(self.confidence), -1)
        number = self.groups.number
        numbers[self.sparse] = np.where(np.bincount(number)[number] > 1, number, -1)
        return numbers

    @cached_property
    def places(self) -> Array:
        """The number of the tau of every column, -1 where its prior is plain."""
        places = np.full(len(self.confidence), -1)
        places[self.sparse] = self.groups.number
        return places

    def each_tau(self, values: Array) -> Array:
        """Values of the scales tau_g as values of all columns, NaN where not sparse."""
        whole = np.full(len(self.confidence), np.nan)
        whole[self.sparse] = self.groups.each(values)
        return whole

    def group_total(self, values: Array) -> Array:
        """Values of all columns, replaced by their sum where columns share a tau."""
        return self._within_groups(self.groups.sum, values)

    @cached_property
    def group_size(self) -> Array:
        """How many columns share the tau of each column; 1 where the prior is plain."""
        return self.group_total(np.ones(len(self.confidence)))

    def group_mean(self, values: Array) -> Array:
        """Values of all columns, replaced by their mean where columns share a tau."""
        return self._within_groups(self.groups.mean, values)

    def group_most(self, values: Array) -> Array:
        """Values of all columns, replaced by the largest where columns share a tau."""
        return self._within_groups(self.groups.most, values)

    def _within_groups(self, reduce: Callable[[Array], Array], values: Array) -> Array:
        if self.groups.alone:
            return values
        reduced = values.copy()
        reduced[self.sparse] = reduce(values[self.sparse])
        return reduced

    def stationary(
        self, s: Array, signal: Array, limit: Array, shape: Array, near: float = LAST_STEP
    ) -> Array:
        """w of every sparse column at its own stationary point (`stationary_precision`).

        ``s``, ``signal``, ``limit`` and the ``shape`` of its tau are of the sparse columns.
        """
        groups = None if self.groups.alone else self.groups
        ratio = self._local_ratio
        return stationary_precision(self.local_prior, s, signal, ratio, limit, shape, groups, near)

    # ---- columns of different confidence: ordered sources inside one Gaussian q(beta) ----------
    # A source's conditional covariance given the earlier ones is gamma_k times the inverse of its
    # Schur complement in A, the later sources integrated out. So with the sources in order
    # S = sum_k (gamma_k - gamma_(k-1)) inverse(A restricted to the sources from k on), which is
    # gamma times the inverse of A if all confidences agree.

    @property
    def _tails(self) -> list[tuple[Array, float, float]]:
        """Of every source that has columns: it and all later ones, its gamma, the one before."""
        sources = [columns for _, columns in self.sources if len(columns)]
        tails, before = list[tuple[Array, float, float]](), 0.0
        for i, columns in enumerate(sources):
            gamma = float(self.confidence[columns[0]])
            tails.append((np.sort(np.concatenate(sources[i:])).astype(int), gamma, before))
            before = gamma
        return tails

    def nested(self, restrict: Callable[[Array], Part]) -> list[Nested[Part]]:
        """One entry for each source with columns; sources of equal confidence share a part of S."""
        return [Nested(tail, gamma - before, restrict(tail)) for tail, gamma, before in self._tails]

    def mixed(self, among: Array) -> bool:
        """Whether columns ``among`` (a mask) differ in confidence, so their order matters."""
        first = [columns[0] for _, columns in self.sources if len(columns)]
        return len({float(self.confidence[j]) for j in first if among[j]}) > 1

    def variances(self, parts: list[Nested[Part]]) -> Array:
        """diag(S)."""
        total = np.zeros(len(self.confidence))
        for nested in parts:
            if nested.share:
                total[nested.columns] += nested.share * nested.inverse.variance
        return total

    def covariance(self, inverse: Callable[[Array], Array]) -> Array:
        """S as a matrix; ``inverse`` gives that of A restricted to some columns."""
        total = np.zeros((len(self.confidence), len(self.confidence)))
        for tail, gamma, before in self._tails:
            if gamma != before:
                total[np.ix_(tail, tail)] += (gamma - before) * inverse(tail)
        return total

    def log_determinants(self, parts: list[Nested[Part]]) -> Array:
        """log|conditional precision| of every source, 0 for one without columns, sigma apart."""
        # the Schur complement of a source in A has the determinant |A from k on|/|A from k + 1 on|
        values = [nested.inverse.log_det for nested in parts] + [0.0]
        log_dets = iter(np.subtract(values[:-1], values[1:]))
        return np.array([next(log_dets) if len(columns) else 0.0 for _, columns in self.sources])


def coefficient_kl(
    precision: Array, second_moment: Array, log_prior: Array, log_variance: Array
) -> Array:
    """Nats of every coefficient: [d_j E[beta_j^2] - 1 + E[log prior variance] - log variance]/2.

    The ``log_variance`` of the columns of a source sum to log|its conditional covariance|.
    """
    return 0.5 * (precision * second_moment - 1.0 + log_prior - log_variance)


def log_prior_variance(model: ColumnModel, scales: ScaleCosts) -> Array:
    """E[log prior variance] of every coefficient: of N(0, variance), or of N(0, tau^2 nu^2)."""
    sparse = model.each_tau(scales.log_local) + scales.log_top
    if model.all_sparse:
        return sparse
    return np.where(model.sparse, sparse, np.log(np.where(model.sparse, 1.0, model.variance)))


def source_costs(model: ColumnModel, nats: Array) -> dict[str, float]:
    """The sum over the columns of every source."""
    return {name: float(nats[columns].sum()) for name, columns in model.sources}


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What the parameters of every sparse estimator say about the model and its solver."""

    coef: float | None  # gamma_b; None: chosen along the path
    local: float  # gamma_tau of the path
    top: float  # gamma_nu
    local_prior: ScalePrior
    top_prior: ScalePrior
    intercept: tuple[float, float] | None  # variance and confidence of its prior; None: none
    solver: str
    tol: float
    max_iter: int
    verbose: int = 0
    blocks: tuple[FeatureBlock, ...] = ()
    groups: GroupLabels | None = None  # columns of a group share a tau

    @property
    def shared(self) -> Array | None:
        """Which columns have one unit, as those of a term; None: each has its own."""
        return self.groups.number if self.groups is not None and self.groups.common else None

    @property
    def unit(self) -> Array | None:
        """The unit of the columns that are eliminated in blocks; None: no column is."""
        return self.groups.unit if self.groups is not None else None

    def system_size(self, X: Any) -> int:
        """The side of the systems that are solved; those of units are in blocks."""
        unit = self.unit
        return int(min(X.shape) if unit is None else min(X.shape[0], (unit < 0).sum()))

    def say(self, words: str) -> None:
        """What ``verbose`` asks for."""
        if self.verbose:
            say_step(words)

    def say_newton(self, name: str) -> Callable[[int, float, int], None]:
        """What ``verbose`` asks for of a Newton solver: the step, J and the number of columns."""
        return lambda step, value, active: self.say(
            f"{name}step {step}, J = {value:.8g}, {active} active"
        )
