"""Named groups of columns with priors and confidences of their own."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from soubayes.confidence import check_gamma, shown

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


def _columns(block: str, given: Any, n_features: int, names: Any) -> np.ndarray:
    """Indices of columns given by name, index, slice or mask."""
    if isinstance(given, slice):
        return np.arange(n_features)[given]
    if isinstance(given, str | int | np.integer):
        given = [given]
    items: Sequence[Any] = list(given)
    if items and all(isinstance(item, bool | np.bool_) for item in items):
        if len(items) != n_features:
            raise ValueError(
                f"feature block {block!r} has a mask of {len(items)}, X has {n_features} columns."
            )
        return np.flatnonzero(items)
    known = {} if names is None else {str(name): i for i, name in enumerate(names)}
    found = []
    for item in items:
        if isinstance(item, str):
            if item not in known:
                where = "X has no column names" if names is None else "the columns of X do not"
                raise ValueError(f"feature block {block!r} names the column {item!r}, but {where}.")
            found.append(known[item])
        elif -n_features <= int(item) < n_features:
            found.append(int(item) % n_features)
        else:
            raise ValueError(
                f"feature block {block!r} asks for column {item}, but X has {n_features} columns."
            )
    if not found:
        raise ValueError(f"feature block {block!r} has no columns.")
    if len(set(found)) < len(found):
        raise ValueError(f"feature block {block!r} lists a column twice.")
    return np.array(found)
