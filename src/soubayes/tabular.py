"""From a file to numbers: what `soubayes fit` does with columns before an estimator sees them."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from soubayes._optional import require

TASKS = ("auto", "regression", "classification")
MISSING = ("impute", "drop")
MOST_LEVELS = 50


class TableError(ValueError):
    """A file or column that cannot be used as it is; the message says what to do."""


class Problem(NamedTuple):
    """Features as they were read, the target, the task, and what was decided on the way."""

    X: Any
    y: np.ndarray
    task: str
    notes: list[str]


def read_table(path: Path) -> Any:
    """The data frame in a CSV or parquet file."""
    pandas = require("pandas", "soubayes fit")
    readers = {".csv": pandas.read_csv, ".parquet": pandas.read_parquet}
    if not path.is_file():
        raise TableError(f"there is no file {str(path)!r}.")
    if path.suffix.lower() not in readers:
        raise TableError(f"{path.name} is not .csv or .parquet: convert it to one of them.")
    try:
        frame = readers[path.suffix.lower()](path)
    except ImportError:
        raise
    except Exception as error:  # each reader has its own kinds
        raise TableError(f"{path.name} cannot be read: {' '.join(str(error).split())}.") from error
    if frame.empty:
        raise TableError(f"{path.name} has no rows.")
    return frame


def pose_problem(
    frame: Any,
    target: str,
    *,
    task: str = "auto",
    missing: str = "impute",
    drop: Sequence[str] = (),
) -> Problem:
    """Split off the target, choose the task, and check every column; nothing is done in silence.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "kind": ["a", "b", "a"], "y": [1, 2, 4]})
    >>> problem = pose_problem(frame, "y")
    >>> problem.task
    'regression'
    >>> problem.notes[-1]
    "missing values replaced: 'size' 1 (by the median)."
    """
    for option, value, allowed in [("task", task, TASKS), ("missing", missing, MISSING)]:
        if value not in allowed:
            raise TableError(f"{option} is {value!r}, but it must be one of {', '.join(allowed)}.")
    frame = frame.rename(columns=str)
    for name in [target, *drop]:
        if name not in frame:
            raise TableError(_no_column(name, list(frame)))
    notes = []
    known = frame[target].notna().to_numpy()
    if not known.all():
        notes.append(f"{np.sum(~known)} rows without {target!r} left out.")
    frame = frame[known]
    X = frame.drop(columns=[target, *drop])
    empty = [name for name in X if X[name].isna().all()]
    if empty and len(X):
        raise TableError(f"no values at all in {_quoted(empty)}: leave out with --drop.")
    if missing == "drop":
        whole = X.notna().all(axis=1).to_numpy()
        if not whole.all():
            notes.append(f"{np.sum(~whole)} rows with missing values left out.")
        frame, X = frame[whole], X[whole]
    if len(X) < 2 or X.shape[1] < 1:
        size = f"{len(X)} usable rows and {X.shape[1]} features"
        raise TableError(f"{size} are too few: 2 rows and 1 feature are the least.")
    task, reason = _task_of(frame[target], task)
    notes.insert(0, f"{task}, {reason}.")
    notes += _check_features(X)
    return Problem(X, _target_values(frame[target], task), task, notes)


class TableEncoder(TransformerMixin, BaseEstimator):
    """Numbers with the median for missing values; categories as 0/1 columns.

    A category's most frequent value is the reference, the 0 of all its columns; a missing one is
    the value "missing". Values that were not there when fitting count as the reference.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "kind": ["a", "b", "a"]})
    >>> TableEncoder().fit_transform(frame)
       size  kind=b
    0   1.0     0.0
    1   2.0     1.0
    2   3.0     0.0
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the medians and the categories of a data frame."""
        self.columns_ = list(X)
        self.medians_ = {name: float(X[name].astype(float).median()) for name in _kinds(X)[0]}
        self.levels_ = {
            name: _levels(X[name]) for name in self.columns_ if name not in self.medians_
        }
        return self

    def transform(self, X: Any) -> Any:
        """A data frame of floats without gaps."""
        absent = [name for name in self.columns_ if name not in X]
        if absent:
            raise TableError(f"the data lack {_quoted(absent)}, which the model was fitted with.")
        coded = {}
        for name in self.columns_:
            if name in self.medians_:
                coded[name] = X[name].astype(float).fillna(self.medians_[name])
            else:
                values = _as_text(X[name])
                for level in self.levels_[name][1:]:
                    coded[f"{name}={level}"] = (values == level).astype(float)
        return require("pandas", "TableEncoder").DataFrame(coded, index=X.index)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "columns_")


def _task_of(y: Any, task: str) -> tuple[str, str]:
    numeric = _is_number(y)
    values = y.nunique()
    if task == "regression" and not numeric:
        raise TableError(f"{y.name!r} holds text: regression needs numbers.")
    if values < 2:
        raise TableError(f"{y.name!r} has one value only ({y.iloc[0]!r}): nothing to predict.")
    if task != "auto":
        return task, "as asked"
    if numeric and values > 2:
        return "regression", f"since {y.name!r} holds numbers (--task classification to change)"
    kind = "text" if not numeric else "two values"
    return "classification", f"since {y.name!r} holds {kind} (--task to change)"


def _target_values(y: Any, task: str) -> np.ndarray:
    if task == "regression":
        values = y.to_numpy(dtype=float)
        if not np.isfinite(values).all():
            raise TableError(f"{y.name!r} holds infinite values: replace or leave them out.")
        return values
    return y.to_numpy() if _is_number(y) else y.map(str).to_numpy(dtype=str)


def _check_features(X: Any) -> list[str]:
    numeric, categorical = _kinds(X)
    for name in numeric:
        if np.isinf(X[name].to_numpy(dtype=float)).any():
            raise TableError(f"infinite values in {name!r}: replace them or --drop {name}.")
    for name in categorical:
        levels = X[name].nunique()
        if levels > MOST_LEVELS or 2 < levels == len(X):
            raise TableError(
                f"{name!r} is text with {levels} different values in {len(X)} rows, "
                f"too many to be categories: --drop {name}."
            )
    notes = []
    if categorical:
        told = [f"{name!r} (against {_levels(X[name])[0]!r})" for name in categorical]
        notes.append(f"categories as 0/1 columns: {', '.join(told)}.")
    gaps = X.isna().sum()
    told = [f"{n!r} {gaps[n]} (by the median)" for n in numeric if gaps[n]]
    told += [f'{n!r} {gaps[n]} (by the category "missing")' for n in categorical if gaps[n]]
    if told:
        notes.append(f"missing values replaced: {', '.join(told)}.")
    return notes


def _kinds(X: Any) -> tuple[list[str], list[str]]:
    numeric = [name for name in X if _is_number(X[name])]
    categorical = [name for name in X if name not in numeric]
    types = require("pandas", "soubayes fit").api.types
    dates = [n for n in categorical if types.is_datetime64_any_dtype(X[n])]
    if dates:
        raise TableError(f"{_quoted(dates)} hold dates: make them numbers or leave out (--drop).")
    return numeric, categorical


def _is_number(column: Any) -> bool:
    types = require("pandas", "soubayes fit").api.types
    return bool(types.is_numeric_dtype(column))


def _levels(column: Any) -> list[str]:
    """The values of a category, the most frequent first, then by name."""
    counts = _as_text(column).value_counts()
    return sorted(counts.index, key=lambda level: (-counts[level], level))


def _as_text(column: Any) -> Any:
    return column.map(str, na_action="ignore").astype(object).fillna("missing")


def _no_column(name: str, columns: list[str]) -> str:
    close = get_close_matches(name, columns, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {_quoted(columns[:20])}."
    return f"no column {name!r}: {hint}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
