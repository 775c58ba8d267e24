"""Columns, their sources and groups, their scales, and what the coefficients cost in J."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from soubayes.confidence import check_gamma, shown
from soubayes.sparse.scales.balance import Groups, ScaleCosts, ScaleModel, stationary_precision
from soubayes.sparse.scales.base import ScalePrior

Array = np.ndarray


@dataclass(frozen=True)
class ColumnModel:
    """The coefficients' priors, in standardised units.

    Columns with a finite ``variance`` have the plain prior N(0, variance); the others, the sparse
    ones, have N(0, tau_g^2 nu^2) with the tau of their group. Columns of different confidence are
    ordered sources of uncertainty (`ordered.py`); ``sources`` lists them, the first one outermost.
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
            sources = tuple((name, where[own][where[own] >= 0]) for name, own in self.sources)
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
        own = np.arange(len(first))
        if not self.groups.alone or np.array_equal(first, own):
            return self
        source = np.zeros(len(first), int)
        for number, (_, columns) in enumerate(self.sources, 1):
            source[columns] = number
        copies = (first != own) & self.selects & self.selects[first] & (source == source[first])
        return replace(self, copies=copies) if copies.any() else self

    @property
    def distinct(self) -> Array:
        """The columns that may be active."""
        own = np.arange(len(self.confidence))
        return own if self.copies is None else own[~self.copies]

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

    def each_tau(self, values: Array) -> Array:
        """Values of the scales tau_g as values of all columns, NaN where not sparse."""
        found = np.full(len(self.confidence), np.nan)
        found[self.sparse] = self.groups.each(values)
        return found

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
        found = values.copy()
        found[self.sparse] = reduce(values[self.sparse])
        return found

    def stationary(self, s: Array, signal: Array, limit: Array, shape: Array) -> Array:
        """w of every sparse column at its own stationary point (`stationary_precision`).

        ``s``, ``signal``, ``limit`` and the ``shape`` of its tau are of the sparse columns.
        """
        groups = None if self.groups.alone else self.groups
        ratio = self._local_ratio
        return stationary_precision(self.local_prior, s, signal, ratio, limit, shape, groups)


def coefficient_kl(
    precision: Array, second_moment: Array, log_prior: Array, log_variance: Array
) -> Array:
    """Nats of every coefficient: [d_j E[beta_j^2] - 1 + E[log prior variance] - log variance]/2.

    The ``log_variance`` of the columns of a source sum to log|its conditional covariance|.
    """
    return 0.5 * (precision * second_moment - 1.0 + log_prior - log_variance)


def log_prior_variance(model: ColumnModel, scales: ScaleCosts) -> Array:
    """E[log prior variance] of every coefficient: of N(0, variance), or of N(0, tau^2 nu^2)."""
    own = model.each_tau(scales.log_local) + scales.log_top
    if model.all_sparse:
        return own
    return np.where(model.sparse, own, np.log(np.where(model.sparse, 1.0, model.variance)))


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
    blocks: tuple["FeatureBlock", ...] = ()
    groups: "GroupLabels | None" = None  # columns of a group share a tau


_KEYS = {
    "normal": {"columns", "prior", "variance", "confidence"},
    "sparse": {"columns", "prior", "confidence", "confidence_local"},
}


class FeatureBlock(NamedTuple):
    """One group of columns: a plain normal prior, or the sparse prior with other confidences."""

    name: str
    columns: np.ndarray  # indices
    variance: float  # NaN: the sparse prior
    confidence: float | None  # None: the estimator's
    confidence_local: float | None


class Sources(NamedTuple):
    """Confidence and prior of every column; the groups are ordered sources, sparse ones first."""

    gamma: np.ndarray  # (p,) confidence in each coefficient
    local: np.ndarray  # (p,) confidence in each tau_j
    variance: np.ndarray  # (p,) of the normal prior, NaN for sparse columns
    free: np.ndarray  # (p,) bool: follows the estimator's confidence_coef
    groups: tuple[tuple[str, np.ndarray], ...]


def sources(blocks: list[FeatureBlock], p: int, coef: float, local: float) -> Sources:
    """Columns outside every block form the source "coef", with these confidences.

    >>> sources(parse_blocks({"b": {"columns": [0], "prior": "normal"}}, 2), 2, 3.0, 1e-6).gamma
    array([1., 3.])
    """
    gamma, locals_, variance = np.full(p, coef), np.full(p, local), np.full(p, np.nan)
    free, rest = np.ones(p, bool), np.ones(p, bool)
    for block in blocks:
        rest[block.columns] = False
        variance[block.columns] = block.variance
        if block.confidence is not None:
            gamma[block.columns], free[block.columns] = block.confidence, False
        if block.confidence_local is not None:
            locals_[block.columns] = block.confidence_local
    # stable: blocks of one kind keep the user's order
    named = sorted(blocks, key=lambda block: not np.isnan(block.variance))
    groups = [("coef", np.flatnonzero(rest)), *((block.name, block.columns) for block in named)]
    return Sources(gamma, locals_, variance, free, tuple(groups))


def parse_blocks(
    feature_blocks: Mapping[str, Mapping[str, Any]] | None, n_features: int, names: Any = None
) -> list[FeatureBlock]:
    """Check ``feature_blocks`` and turn column names into indices.

    >>> blocks = {"clinical": {"columns": ["age", "sex"], "prior": "normal", "variance": 10.0}}
    >>> parse_blocks(blocks, 3, ["gene", "age", "sex"])[0].columns
    array([1, 2])
    """
    if feature_blocks is None:
        return []
    if not isinstance(feature_blocks, Mapping):
        raise TypeError(
            f"feature_blocks is a {type(feature_blocks).__name__}, but it must be a dict such as "
            '{"clinical": {"columns": ["age"], "prior": "normal"}}.'
        )
    blocks: list[FeatureBlock] = []
    taken = np.zeros(n_features, bool)
    for name, given in feature_blocks.items():
        block = _parse(str(name), given, n_features, names)
        if taken[block.columns].any():
            raise ValueError(
                f"feature block {str(name)!r} holds columns that an earlier block already has; "
                "every column may be in one block only."
            )
        taken[block.columns] = True
        blocks.append(block)
    return blocks


class GroupLabels(NamedTuple):
    """Which group every column belongs to; groups are numbered in the order of their columns."""

    number: Array  # (p,)
    names: list[str]  # of the groups

    @property
    def single(self) -> bool:
        """Whether every column is a group of its own."""
        return len(self.names) == len(self.number)


def parse_groups(feature_groups: Any, n_features: int, names: Any = None) -> GroupLabels | None:
    """Check ``feature_groups``: one label for each column, or a mapping of names to columns.

    In a mapping, columns that no group names are groups of their own.

    >>> parse_groups({"shelf": ["good", "bad"]}, 3, ["price", "good", "bad"])
    GroupLabels(number=array([0, 1, 1]), names=['price', 'shelf'])
    """
    if feature_groups is None:
        return None
    if isinstance(feature_groups, str) or not hasattr(feature_groups, "__len__"):
        raise TypeError(
            f"feature_groups is {shown(feature_groups)}, but it must be a sequence with one label "
            'for each column, or a dict such as {"shelf": ["good", "bad"]}.'
        )
    if isinstance(feature_groups, Mapping):
        labels = [f"x{j}" for j in range(n_features)] if names is None else list(map(str, names))
        whose: dict[int, str] = {}
        for name, given in feature_groups.items():
            for j in _columns(str(name), given, n_features, names, "group").tolist():
                if j in whose:
                    raise ValueError(
                        f"column {labels[j]!r} is in the groups {whose[j]!r} and {str(name)!r} of "
                        "feature_groups; every column may be in one group only."
                    )
                whose[j] = str(name)
        # a group and a column outside of it may have the same name
        keys: list[Any] = [(whose[j],) if j in whose else j for j in range(n_features)]
        shown_as = [whose.get(j, labels[j]) for j in range(n_features)]
    else:
        keys = list(feature_groups)
        shown_as = list(map(str, keys))
        if len(keys) != n_features:
            raise ValueError(
                f"feature_groups has {len(keys)} labels, but X has {n_features} columns: give "
                "every column the label of its group."
            )
    place: dict[Any, int] = {}
    number = np.array([place.setdefault(key, len(place)) for key in keys], int)
    first = np.unique(number, return_index=True)[1]
    return GroupLabels(number, [shown_as[j] for j in first])


def tau_groups(labels: GroupLabels | None, given: Sources, order: Array | None = None) -> Groups:
    """Which sparse columns share a tau, in the order of a solver."""
    order = np.arange(len(given.variance)) if order is None else order
    sparse = np.isnan(given.variance[order])
    if labels is None or labels.single:
        return Groups.single(int(sparse.sum()))
    source = np.zeros(len(order), int)
    for k, (_, columns) in enumerate(given.groups):
        source[columns] = k
    for g, name in enumerate(labels.names):
        if len(np.unique(source[labels.number == g])) > 1:
            raise ValueError(
                f"the columns of the group {name!r} lie in more than one feature block; a group "
                "must lie in one."
            )
    return Groups.of(labels.number[order][sparse])


def _parse(name: str, given: Any, n_features: int, names: Any) -> FeatureBlock:
    if name in {"coef", "local", "global", "noise", "intercept"}:
        raise ValueError(
            f"a feature block cannot be called {name!r}: that is a block of the model."
        )
    if not isinstance(given, Mapping) or "columns" not in given:
        raise ValueError(f"feature block {name!r} must be a dict with the key 'columns'.")
    prior = given.get("prior", "sparse")
    if prior not in _KEYS:
        raise ValueError(
            f"feature block {name!r} has prior {shown(prior)}, but it must be 'normal' or 'sparse'."
        )
    unknown = set(given) - _KEYS[prior]
    if unknown:
        raise ValueError(
            f"feature block {name!r} with prior {prior!r} has unknown keys {sorted(unknown)}; "
            f"allowed are {sorted(_KEYS[prior])}."
        )
    columns = _columns(name, given["columns"], n_features, names)
    confidence = given.get("confidence", 1.0 if prior == "normal" else None)
    if confidence is not None:
        confidence = check_gamma(name, confidence, allow_inf=False)
    local = given.get("confidence_local")
    if local is not None:
        local = check_gamma(f"{name} (local)", local, allow_inf=False)
    variance = np.nan
    if prior == "normal":
        variance = float(given.get("variance", 10.0))
        if not (np.isfinite(variance) and variance > 0):
            raise ValueError(
                f"feature block {name!r} has variance {variance}; it must be positive."
            )
    return FeatureBlock(name, columns, variance, confidence, local)


def _columns(name: str, given: Any, n_features: int, names: Any, kind: str = "block") -> np.ndarray:
    """Indices of columns given by name, index, slice or mask."""
    block = f"feature {kind} {name!r}"
    if isinstance(given, slice):
        given = np.arange(n_features)[given]
    if isinstance(given, str | int | np.integer):
        given = [given]
    items: Sequence[Any] = list(given)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != n_features:
            raise ValueError(f"{block} has a mask of {len(items)}, X has {n_features} columns.")
        given = items = np.flatnonzero(items).tolist()
    known = {} if names is None else {str(name): i for i, name in enumerate(names)}
    found = []
    for item in items:
        if isinstance(item, str):
            if item not in known:
                where = "X has no column names" if names is None else "the columns of X do not"
                raise ValueError(f"{block} names the column {item!r}, but {where}.")
            found.append(known[item])
        elif -n_features <= int(item) < n_features:
            found.append(int(item) % n_features)
        else:
            raise ValueError(f"{block} asks for column {item}, but X has {n_features} columns.")
    if not found:
        raise ValueError(f"{block} has no columns.")
    if len(set(found)) < len(found):
        raise ValueError(f"{block} lists a column twice.")
    return np.array(found)
