"""Rows as named columns: from data frames and arrays, with gaps filled as `TableEncoder` does."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray


class Table(NamedTuple):
    """Named columns of equal length: numbers, or text."""

    columns: dict[str, Array]
    rows: int
    named: bool  # whether X had names


def as_table(X: Any) -> Table:
    """The columns of a pandas or polars frame, or of an array (x0, x1, ...).

    >>> as_table(np.eye(2)).columns["x1"]
    array([0., 1.])
    """
    if hasattr(X, "toarray"):
        X = X.toarray()
    if hasattr(X, "to_pandas") and not hasattr(X, "iloc"):  # polars
        X = X.to_pandas()
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"X has more than one column called {twice[0]!r}: rename one of them.")
        both = zip(names, (X.iloc[:, j] for j in range(len(names))), strict=True)
        return Table({name: _values(column, name) for name, column in both}, len(X), True)
    values = np.asarray(X)
    if values.ndim != 2:
        raise ValueError(
            f"X has {values.ndim} dimensions, but with terms it must have rows and columns."
        )
    columns = {f"x{j}": _values(values[:, j], f"x{j}") for j in range(values.shape[1])}
    return Table(columns, len(values), False)


def is_text(values: Array) -> bool:
    """Whether a column is a category."""
    return values.dtype == object


def check_columns(table: Table, wanted: Iterable[str]) -> None:
    """Every wanted column must be there."""
    for name in wanted:
        if name not in table.columns:
            some = ", ".join(list(table.columns)[:8]) + (", ..." if len(table.columns) > 8 else "")
            raise ValueError(f"there is no column {name!r}: the columns of X are {some}.")


def levels(values: Array) -> list[str]:
    """The levels of a category, the most frequent first, then by name.

    >>> levels(np.array(["b", "a", "b", None], dtype=object))
    ['b', 'a', 'missing']
    """
    text = as_levels(values)
    names, counts = np.unique(text, return_counts=True)
    order = sorted(zip(names == "missing", -counts, names, strict=True))
    return [str(name) for _, _, name in order]


def as_levels(values: Array) -> Array:
    """Every value as text; whole numbers without a point, "missing" where there is none."""
    if not is_text(values):
        return np.array([_number_text(value) for value in values.tolist()])
    return np.array(["missing" if _absent(value) else str(value) for value in values.tolist()])


def _number_text(value: float) -> str:
    if value != value:
        return "missing"
    return str(int(value)) if value == int(value) else str(value)


def _absent(value: Any) -> bool:
    return value is None or value != value


def _values(column: Any, name: str) -> Array:
    """Floats, or an array of objects for a category; booleans are numbers."""
    kind = getattr(column, "dtype", None)
    if str(kind).startswith(("datetime", "timedelta")):
        raise ValueError(f"column {name!r} holds dates: make them numbers, such as days.")
    text = str(kind) in ("category", "object", "str", "string") or str(kind).startswith(
        ("string", "<U")
    )
    if not text:
        values = (
            column.to_numpy(dtype=float, na_value=np.nan) if hasattr(column, "iloc") else column
        )
        found = np.asarray(values, float)
        if np.isinf(found).any():
            raise ValueError(
                f"column {name!r} holds infinity: correct the value or leave the row out."
            )
        return found
    values = np.asarray(column, dtype=object)
    if str(kind) == "object" and all(
        isinstance(value, int | float | np.number) or value is None for value in values.tolist()
    ):
        return np.array([np.nan if value is None else float(value) for value in values.tolist()])
    return values
