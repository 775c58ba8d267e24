"""``feature_blocks`` and ``feature_groups``: from what a user writes to sources and groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from soubayes.confidence import check_gamma, shown
from soubayes.sparse.scales.balance import Groups

Array = np.ndarray

_KEYS = {
    "normal": {"columns", "prior", "variance", "confidence"},
    "sparse": {"columns", "prior", "confidence", "confidence_local"},
}


class FeatureBlock(NamedTuple):
    """One group of columns: a plain normal prior, or the sparse prior with other confidences."""

    name: str
    columns: Array  # indices
    variance: float  # NaN: the sparse prior
    confidence: float | None  # None: the estimator's
    confidence_local: float | None


class Sources(NamedTuple):
    """Confidence and prior of every column; the groups are ordered sources, sparse ones first."""

    gamma: Array  # (p,) confidence in each coefficient
    local: Array  # (p,) confidence in each tau_j
    variance: Array  # (p,) of the normal prior, NaN for sparse columns
    free: Array  # (p,) bool: follows the estimator's confidence_coef
    groups: tuple[tuple[str, Array], ...]


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


@dataclass(frozen=True)
class GroupLabels:
    """Which group every column belongs to; groups are numbered in the order of their columns."""

    number: Array  # (p,)
    names: list[str]  # of the groups
    common: bool = field(default=False, repr=False)  # columns of a group also have one unit
    columns: tuple[str, ...] = field(default=(), repr=False)  # their names, if they are of terms
    scales: tuple[int, ...] = field(default=(), repr=False)  # groups whose tau is integrated over
    curves: tuple[int, ...] = field(default=(), repr=False)  # groups that are curved parts
    # (p,) the unit of the columns that are eliminated in blocks, -1 of the others
    unit: Array | None = field(default=None, repr=False)

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
    if feature_groups is None or isinstance(feature_groups, GroupLabels):
        return feature_groups
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


def _columns(name: str, given: Any, n_features: int, names: Any, kind: str = "block") -> Array:
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
    indices = []
    for item in items:
        if isinstance(item, str):
            if item not in known:
                where = "X has no column names" if names is None else "the columns of X do not"
                raise ValueError(f"{block} names the column {item!r}, but {where}.")
            indices.append(known[item])
        elif -n_features <= int(item) < n_features:
            indices.append(int(item) % n_features)
        else:
            raise ValueError(f"{block} asks for column {item}, but X has {n_features} columns.")
    if not indices:
        raise ValueError(f"{block} has no columns.")
    if len(set(indices)) < len(indices):
        raise ValueError(f"{block} lists a column twice.")
    return np.array(indices)
