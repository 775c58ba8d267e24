"""Why X or y cannot be read as numbers: columns of text or dates, missing values and the like."""

import datetime
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

Array = np.ndarray

_SHOWN = 5  # columns that a message names
_ENCODER = "put soubayes.TableEncoder, which reads data frames, before the estimator in a pipeline"
_ADVICE = {
    "text": _ENCODER,
    "dates": "make them numbers, such as days since one of them, or name them in the dates of a "
    "soubayes.TableEncoder before the estimator in a pipeline",
    "durations": "make them numbers of one unit, as .dt.total_seconds() gives them",
    "missing values (NaN)": f"leave these rows out, or {_ENCODER}: it replaces missing values",
    "infinite values": "replace them or leave these rows out",
}
_LABELS = {"missing values (NaN)": "leave these rows out"}  # of y, where any value may be a label
_NUMBERS = _LABELS | {
    "text": "it must hold numbers",
    "dates": "make them numbers, as (y - y.min()).dt.days gives them",
    "durations": _ADVICE["durations"],
    "infinite values": _ADVICE["infinite values"],
}
_DATES = (datetime.date, np.datetime64, pd.Period)
_DURATIONS = (datetime.timedelta, np.timedelta64)


def why_unusable(X: Any, y: Any = None, y_is_numbers: bool = True) -> str | None:
    """A sentence about the columns of X or the values of y that are not finite numbers, if any.

    >>> why_unusable(pd.DataFrame({"size": [1.0, 2.0], "kind": ["a", "b"]}))
    "X holds text in the column 'kind': put soubayes.TableEncoder, which reads data frames, before \
the estimator in a pipeline."
    """
    troubles: dict[str, list[str]] = {}
    for label, column in _columns(X):
        for what in _troubles(column):
            troubles.setdefault(what, []).append(label)
    for what, advice in _ADVICE.items():
        if what in troubles:
            labels = troubles[what]
            more = f" and {len(labels) - _SHOWN} more" if len(labels) > _SHOWN else ""
            where = f"the column{'s' if len(labels) > 1 else ''} {', '.join(labels[:_SHOWN])}{more}"
            return f"X holds {what} in {where}: {advice}."
    advice_y = _NUMBERS if y_is_numbers else _LABELS
    held = {what for _, column in _columns(y) for what in _troubles(column)}
    for what, advice in advice_y.items():
        if what in held:
            rows = _rows_without(y) if what == "missing values (NaN)" else ""
            return f"y holds {what}{rows}: {advice}."
    return None


def _columns(values: Any) -> Iterator[tuple[str, Array]]:
    """The columns of a table, array or sparse matrix, one at a time; nothing of anything else."""
    if values is None or isinstance(values, tuple | str) or callable(values):
        return
    if sp.issparse(values):
        table = values.tocsc()
        for j in range(table.shape[1]):
            yield str(j), table.data[table.indptr[j] : table.indptr[j + 1]]
    elif isinstance(values, pd.DataFrame):
        for j, name in enumerate(values.columns):
            yield repr(name), np.asarray(values.iloc[:, j])
    elif hasattr(values, "columns"):
        for name in values.columns:
            yield repr(name), np.asarray(values[name])
    else:
        try:
            array = np.asarray(values)
        except ValueError:  # rows of different lengths
            return
        if array.dtype.names is None and array.ndim in (1, 2) and array.size:
            table = array.reshape(len(array), -1)
            yield from ((str(j), table[:, j]) for j in range(table.shape[1]))


def _troubles(column: Array) -> Iterator[str]:
    if column.dtype.kind == "M":
        yield "dates"
    elif column.dtype.kind == "m":
        yield "durations"
    elif column.dtype.kind in "OUST":
        missing = pd.isna(column)
        others = {what for value in column[~missing] if (what := _trouble(value))}
        yield from others
        if missing.any():
            yield "missing values (NaN)"
    elif column.dtype.kind == "f":
        if np.isnan(column).any():
            yield "missing values (NaN)"
        if np.isinf(column).any():
            yield "infinite values"


def _trouble(value: Any) -> str | None:
    """Of one value of an object column; text such as "1.5" is a number."""
    if isinstance(value, _DATES):
        return "dates"
    if isinstance(value, _DURATIONS):
        return "durations"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return "text" if isinstance(value, str | bytes) else None
    return "infinite values" if np.isinf(number) else None


def _rows_without(y: Any) -> str:
    missing = np.flatnonzero(pd.isna(np.asarray(y)).reshape(len(y), -1).any(axis=1))
    return f" in {len(missing)} of {len(y)} rows, the first of them row {missing[0]}"
