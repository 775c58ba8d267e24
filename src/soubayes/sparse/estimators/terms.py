"""Estimators with ``terms``: an expansion of the rows, and the same estimator on its columns.

`with_terms` wraps the public methods of an estimator. Fitted with terms, it holds the `TermColumns`
and an estimator of its class for the expanded columns, to which methods and attributes go.
"""

import inspect
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import minimize_scalar

from soubayes._warnings import warn
from soubayes.data.rows import as_rows, check_row_labels, row_weights
from soubayes.sparse.blocks import GroupLabels
from soubayes.sparse.designs.standardise import as_dense
from soubayes.sparse.estimators.term_reports import effect_sds, kinds, sentence
from soubayes.terms.expansion import Indicators, Slopes, TermColumns, filled, learn
from soubayes.terms.levels import with_pairs
from soubayes.terms.parsing import parse_terms
from soubayes.terms.table import Table, as_table

Array = np.ndarray
Made = TypeVar("Made")

# the centre of correlated slopes: the largest angle whose tangent, in standard deviations of x, is
# its distance from the mean (20 of them), how many are tried, and the digits of the angle
FARTHEST_CENTRE, TRIED_CENTRES, CENTRE_DIGITS = 1.52, 7, 3e-4
FLAT_VARIANCE = 1e8  # variance of the prior of a required column, in units of var(y)/var(x)
# methods that are the outer estimator's own
OWN = {
    "fit", "partial_fit", "summary", "get_params", "set_params", "get_metadata_routing",
    "set_output", "fit_transform", "get_support", "transform", "inverse_transform",
    "get_feature_names_out", "term_effects", "variance_components",
}  # fmt: skip


def with_terms(cls: type[Made]) -> type[Made]:
    """Let every public method know of terms."""
    methods = {
        name: member
        for base in reversed(cls.__mro__)
        for name, member in vars(base).items()
        if not name.startswith("_") and inspect.isfunction(member)
    }
    for name, method in methods.items():
        if name in ("fit", "partial_fit"):
            setattr(cls, name, _fitting(method, name))
        elif name not in OWN:
            setattr(cls, name, _delegated(method, name))
    return cls


def _fitting(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "terms", None) is None:
            self.__dict__.pop("_inner", None)
            return method(self, *args, **kwargs)
        if name != "fit":
            raise ValueError(
                "partial_fit cannot be used with terms, because knots and levels are learned from "
                "all rows: pass them to fit."
            )
        given = signature.bind(self, *args, **kwargs).arguments
        given.pop("self")
        return fit_terms(self, **given)

    return call


def _delegated(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self.__dict__.get("_inner")
        if inner is None:
            return method(self, *args, **kwargs)
        given = signature.bind(self, *args, **kwargs).arguments
        given.pop("self")
        more = given.pop("kwargs", {})
        if given.get("X") is not None:
            check_row_labels(given)
            table = checked_table(self, given["X"])
            given["X"] = self._expansion.transform(table)
            _add_offset(self._expansion, table, given, signature)
        return getattr(inner, name)(**given, **more)

    return call


def fit_terms(estimator: Any, X: Any, y: Any = None, **rest: Any) -> Any:
    """Learn the terms, then fit the estimator of their columns."""
    estimator._check_parameters()
    wanted = parse_terms(estimator.terms)
    for name in ("feature_groups", "feature_blocks"):
        if getattr(estimator, name, None) is not None:
            raise ValueError(
                f"{name} and terms were both given: terms say which columns belong together."
            )
    if as_rows(X, y, rest.get("sample_weight")) is not None:
        raise ValueError(
            "terms were given, but X comes in blocks: knots and levels need the rows in memory. "
            "Pass X and y as arrays."
        )
    check_row_labels({"X": X, "y": y, **rest})
    table = as_table(X)
    weight = rest.get("sample_weight")
    weight = None if weight is None else row_weights(weight, table.rows)
    if weight is not None and not weight.any():
        weight = None
    expansion = learn(wanted, table, weight, estimator._eliminates_units())
    Z, levels = expansion.transform(table), None
    if wanted.curves:
        known = None if weight is None else weight[weight > 0]
        rows = slice(None) if weight is None else weight > 0
        target = estimator._screening_target(y)[rows] if wanted.pairs else np.zeros((table.rows, 0))
        expansion, levels = with_pairs(expansion, Z[rows], target, known, wanted.pairs)
        Z = expansion.transform(table)
        levels = levels if len(levels.levels) > 1 else None
    for name in [name for name in vars(estimator) if name.endswith("_") or name == "_inner"]:
        delattr(estimator, name)
    _add_offset(expansion, table, rest, inspect.signature(type(estimator).fit))
    if estimator._fits_noise():
        _check_repeated(expansion, table, weight)
    if expansion.correlated:
        expansion = _settled_centres(estimator, expansion, table, y, rest)
        Z = expansion.transform(table)
    inner = type(estimator)(
        **{**estimator.get_params(deep=False), **_columns(estimator, expansion)}
    )
    if levels is not None:
        inner._levels = levels
    _warn_of_units(expansion, Z, inner._chooses() and rest.get("groups") is None)
    inner.fit(Z, y, **rest)
    estimator._inner, estimator._expansion = inner, expansion
    estimator._term_sd = effect_sds(estimator, Z, weight)
    if hasattr(inner, "sparsity_"):
        estimator.sparsity_ = _in_words(estimator, inner.sparsity_)
    estimator.n_features_in_ = len(table.columns)
    if table.named:
        estimator.feature_names_in_ = np.array(list(table.columns), dtype=object)
    return estimator


def _check_repeated(expansion: TermColumns, table: Table, weight: Array | None) -> None:
    """Beside a noise of its own, a unit needs a level with several rows."""
    for block in expansion.blocks:
        if block.kind == "unit" and isinstance(block.piece, Indicators):
            rows = block.piece.sparse(table)
            rows = rows if weight is None else rows[weight > 0]
            if rows.sum(axis=0).max(initial=0.0) <= 1.0:
                raise ValueError(
                    f"the unit {block.piece.column!r} has one row at each level, so its variance "
                    "cannot be told from that of the noise: leave it out."
                )


def _settled_centres(
    estimator: Any, expansion: TermColumns, table: Table, y: Any, rest: dict[str, Any]
) -> TermColumns:
    """Correlated slopes about the centre at which they are independent of the intercepts.

    An intercept and a slope with any 2 x 2 covariance T at 0 are independent at -T_01/T_11. So the
    centre of least J at confidence 1, nothing dropped, has the restricted maximum likelihood
    estimate of T.
    """
    rest = {name: value for name, value in rest.items() if name != "groups"}

    def value(angle: float, k: int, middle: float, spread: float) -> float:
        there = expansion.centred_at(k, middle + spread * np.tan(angle))
        columns = _columns(estimator, there)
        groups = replace(columns["feature_groups"], scales=())  # as fitted
        settled = {"choice": "path", "confidence_coef": 1.0, "inclusion": False}
        point = type(estimator)(
            **{**estimator.get_params(deep=False), **columns, **settled, "feature_groups": groups}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the last fit they are said
            point.fit(there.transform(table), y, **rest)
        ends = point.objective_ if isinstance(point.objective_, list) else [point.objective_]
        return float(sum(objective[-1] for objective in ends))

    for k in expansion.correlated:
        piece = expansion.blocks[k].piece
        assert isinstance(piece, Slopes)
        x = filled(table, piece.column, piece.fill)
        about = k, piece.centre, float(np.std(x)) or 1.0
        angles = np.linspace(-FARTHEST_CENTRE, FARTHEST_CENTRE, TRIED_CENTRES)
        best = angles[int(np.argmin([value(angle, *about) for angle in angles]))]
        step = angles[1] - angles[0]
        found = minimize_scalar(
            value, args=about, bounds=(best - step, best + step), method="bounded",
            options={"xatol": CENTRE_DIGITS},
        )  # fmt: skip
        expansion = expansion.centred_at(k, about[1] + about[2] * float(np.tan(found.x)))
    return expansion


def _columns(estimator: Any, expansion: TermColumns) -> dict[str, Any]:
    """Parameters of the estimator of the columns."""
    number, names = expansion.number, [block.name for block in expansion.blocks]
    units = [k for k, b in enumerate(expansion.blocks) if b.kind in ("unit", "slope")]
    labels = GroupLabels(
        number, names, common=True, columns=tuple(expansion.names), scales=tuple(units),
        curves=tuple(k for k, b in enumerate(expansion.blocks) if b.kind == "curved"),
        unit=expansion.unit,
    )  # fmt: skip
    required = np.flatnonzero(np.array([block.required for block in expansion.blocks])[number])
    settings_of_columns: dict[str, Any] = {"terms": None, "feature_groups": labels}
    if len(required):
        block = {"columns": required.tolist(), "prior": "normal", "variance": FLAT_VARIANCE}
        settings_of_columns["feature_blocks"] = {"required": block}
    optional = [b for b in expansion.blocks if not b.required and b.kind not in SCALES_DECIDE]
    if not optional and estimator.confidence_coef == "auto":
        settings_of_columns["confidence_coef"] = 1.0  # nothing to select: scales by REML
    return settings_of_columns


ROWS_A_UNIT = 2.0  # rows of an average unit from which units can be compared within
BETWEEN_UNITS = 0.95  # share of a column's variance between units from which it is said
SCALES_DECIDE = ("unit", "slope", "curved")  # kinds that alone leave nothing to choose


class UnitWarning(UserWarning):
    """What a fit with repeated units does not answer."""


class RowFoldsWarning(UnitWarning):
    """Rows of known units were held out."""


def _warn_of_units(expansion: TermColumns, Z: Array, folds_of_rows: bool) -> None:
    """Say what the folds ask, and which columns differ between units alone."""
    both = list(zip(expansion.blocks, expansion.slices(), strict=True))
    units = [(block, where) for block, where in both if block.kind == "unit"]
    if units and folds_of_rows:
        warn(
            "folds of rows were held out, which asks about new rows of known units. For new units "
            f"pass groups=, the labels of {units[0][0].term}.",
            RowFoldsWarning,
        )
    straight = [(b.names[0], w.start) for b, w in both if b.kind == "straight"]
    columns = [(name, as_dense(Z[:, [j]])[:, 0]) for name, j in straight]
    for block, where in units:
        member = Z[:, where]
        size = member.sum(axis=0)
        if (size > 0).sum() > Z.shape[0] / ROWS_A_UNIT:
            continue  # hardly any rows to compare within units
        for name, x in columns:
            means = member.T @ (x - x.mean()) / np.maximum(size, 1.0)
            between = float(size @ means**2) / max(float(len(x) * x.var()), 1e-300)
            if between > BETWEEN_UNITS:
                warn(
                    f"{name} hardly varies within the units of {block.term}: its effect is that of "
                    "a comparison between units, behind which other differences of the units may "
                    "stand.",
                    UnitWarning,
                )


def _in_words(estimator: Any, sparsity: Any) -> Any:
    """The costs of sparsity with the terms that are kept."""
    if isinstance(sparsity, list):
        numbered = enumerate(sparsity)
        return [replace(one, terms=sentence(kinds(estimator, t))) for t, one in numbered]
    return replace(sparsity, terms=sentence(kinds(estimator)))


def checked_table(estimator: Any, X: Any) -> Table:
    """New rows of the same columns."""
    table, expansion = as_table(X), estimator._expansion
    if not table.named and len(table.columns) != len(expansion.columns):
        raise ValueError(
            f"X has {len(table.columns)} features, but {type(estimator).__name__} is expecting "
            f"{len(expansion.columns)} features as input."
        )
    if not table.named:  # columns of arrays are known by their places
        both = zip(expansion.columns, table.columns.values(), strict=True)
        table = table._replace(columns=dict(both))
    return table


def _add_offset(
    expansion: TermColumns, table: Table, given: dict[str, Any], signature: inspect.Signature
) -> None:
    """The offset of the terms, added to the one that was given."""
    known = expansion.offset(table)
    if known is None:
        return
    if "offset" not in signature.parameters:
        raise ValueError(
            "a term is an offset, but this estimator takes none: subtract it from y, or leave it "
            "out."
        )
    before = given.get("offset")
    given["offset"] = known if before is None else known + np.asarray(before, float)


def support_of_terms(estimator: Any) -> Array:
    """Which columns of X the terms read that the sparse point keeps for any target."""
    expansion, selected = estimator._expansion, np.atleast_2d(estimator._inner.selected_)
    both = zip(expansion.blocks, expansion.slices(), strict=True)
    kept = [block for block, where in both if selected[:, where].any()]
    names = {name for block in kept for name in expansion.reads(block)}
    names |= {piece.column for piece in expansion.offsets}
    return np.array([name in names for name in expansion.columns])


def sparse_with_terms(estimator: Any) -> Any:
    """The sparse point of an estimator with terms, for the same rows."""
    point = copy(estimator)
    point._inner = estimator._inner.sparse_
    return point
