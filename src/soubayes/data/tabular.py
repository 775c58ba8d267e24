"""From a file to numbers: what `soubayes fit` does with columns before an estimator sees them."""

import shlex
import warnings
from collections.abc import Sequence
from decimal import Decimal
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from soubayes._optional import require
from soubayes.data.text_tables import read_csv

TASKS = ("auto", "regression", "classification", "counts")
MISSING = ("impute", "drop")
KINDS = (".csv", ".tsv", ".txt", ".parquet", ".xlsx")
MOST_LEVELS = 50


class TableError(ValueError):
    """A file or column that cannot be used as it is; the message says what to do."""


class Problem(NamedTuple):
    """Features as they were read, the target, the task, and what was decided on the way."""

    X: Any
    y: Any  # numbers or labels; of survival a data frame of events and times
    task: str
    notes: list[str]
    dates: list[str]


def read_table(
    path: Path, decimal: str = "auto", separator: str = "auto", text: Sequence[str] = ()
) -> Any:
    """The data frame in a file.

    ``decimal`` and ``separator`` are those of a text file; the columns named in ``text`` are not
    turned into numbers.
    """
    if path.is_dir():
        inside = sorted(part.name for part in path.iterdir() if part.suffix.lower() in KINDS)
        hint = f"give one of its files, such as {inside[0]!r}" if inside else "give a file"
        raise TableError(f"{str(path)!r} is a folder{'' if inside else ' without tables'}: {hint}.")
    if not path.is_file():
        raise TableError(f"there is no file {str(path)!r}.")
    readers = {
        ".parquet": pd.read_parquet,
        ".xlsx": partial(_read_excel, text=text),
    }
    text_reader = partial(read_csv, decimal=decimal, separator=separator, text=text)
    reader = readers.get(table_kind(path), text_reader)
    try:
        frame = reader(path)
    except ImportError:
        raise
    except Exception as error:  # each reader has its own kinds
        raise TableError(f"{path.name} cannot be read: {' '.join(str(error).split())}.") from error
    if frame.empty:
        raise TableError(f"{path.name} has no rows.")
    return frame


def table_kind(path: Path) -> str:
    """The ending of a file's name, one of `KINDS`.

    >>> table_kind(Path("data.CSV"))
    '.csv'
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise TableError(f"{path.name} is not {', '.join(KINDS)}: convert it to one of them.")
    return kind


def _read_excel(path: Path, text: Sequence[str]) -> Any:
    """The first sheet of a workbook."""
    require("openpyxl", "reading .xlsx")
    return pd.read_excel(path, dtype=dict.fromkeys(text, str), engine="openpyxl")


def pose_problem(
    frame: Any,
    target: str,
    *,
    task: str = "auto",
    missing: str = "impute",
    drop: Sequence[str] = (),
    dates: Sequence[str] = (),
    event: str | None = None,
) -> Problem:
    """Split off the target, choose the task, and check every column; nothing is done in silence.

    Columns named in ``dates`` become days since 1970-01-01. With the name of an ``event`` column
    the target is a survival time.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "kind": ["a", "b", "a"], "y": [1, 2, 4]})
    >>> problem = pose_problem(frame, "y")
    >>> problem.task
    'regression'
    >>> problem.notes[-1]
    "missing values replaced: 'size' 1 (by the median)."
    """
    tasks = TASKS if event is None else ("auto", "survival")
    for option, value, allowed in [("task", task, tasks), ("missing", missing, MISSING)]:
        if value not in allowed:
            raise TableError(f"{option} is {value!r}, but it must be one of {', '.join(allowed)}.")
    notes = list(frame.attrs.get("notes", ()))  # of how the file was read
    frame = _plain(frame.rename(columns=str))
    doubled = list(dict.fromkeys(frame.columns[frame.columns.duplicated()]))
    if doubled:
        raise TableError(f"several columns are called {_quoted(doubled)}: give each its own name.")
    targets = [target] if event is None else [target, event]
    for name in [*targets, *drop, *dates]:
        if name not in frame:
            raise TableError(no_column(name, list(frame)))
    for name in dates:
        if name in (*targets, *drop):
            raise TableError(f"--date {name} names a column that is not a feature.")
    known = frame[targets].notna().all(axis=1).to_numpy()
    if not known.all():
        missed = " or ".join(map(repr, targets))
        notes.append(f"{np.sum(~known)} rows without {missed} left out.")
    frame = frame[known]
    X = frame.drop(columns=[*targets, *drop])
    _refuse_unusable(X, dates)
    if missing == "drop":
        whole = X.notna().all(axis=1).to_numpy()
        if not whole.all():
            notes.append(f"{np.sum(~whole)} rows with missing values left out.")
        frame, X = frame[whole], X[whole]
    if len(X) < 2 or X.shape[1] < 1:
        size = f"{len(X)} usable rows and {X.shape[1]} features"
        raise TableError(f"{size} are too few: 2 rows and 1 feature are the least.")
    if event is None:
        task, reason = _task_of(frame[target], task)
        y: Any = _target_values(frame[target], task)
    else:
        y = _survival_values(frame[target], frame[event])
        task, reason = "survival", f"{int(y['event'].sum())} events"
    notes.insert(0, f"{task}, {reason}.")
    notes += _decisions(X, dates)
    return Problem(X, y, task, notes, list(dates))


def _survival_values(time: Any, event: Any) -> Any:
    """Events and times, checked."""
    import pandas as pd

    from soubayes.sparse.survival.responses import read_training

    try:
        y = read_training((event.to_numpy(), time.to_numpy()))
    except ValueError as error:
        raise TableError(f"--time {time.name} --event {event.name}: {error}") from None
    return pd.DataFrame({"event": y["event"], "time": y["stop"]})


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a data frame as numbers: categories as 0/1 columns, gaps filled, dates as days.

    Parameters
    ----------
    dates : sequence of str, default=()
        Columns that hold dates. They become days since 1970-01-01.

    Attributes
    ----------
    columns_ : list of str
        The columns of the data frame that was fitted.
    medians_ : dict of str to float
        The median of every numeric column.
    levels_ : dict of str to list
        The values of every category, the most frequent first.
    features_ : dict of str to tuple
        For every encoded column the column it comes from, and its category or None.

    Notes
    -----
    The most frequent value of a category is the reference: it is 0 in all columns of the category.
    Missing numbers are replaced by the median of the fitted rows. Missing categories are a category
    of their own, called "missing", if there were some in the fitted rows. Otherwise they count as
    the reference, as do values that the fitted rows do not have.

    Examples
    --------
    >>> import pandas as pd
    >>> from soubayes import TableEncoder
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "kind": ["a", "b", "a"]})
    >>> TableEncoder().fit_transform(frame)
       size  kind=b
    0   1.0     0.0
    1   2.0     1.0
    2   3.0     0.0
    """

    def __init__(self, dates: Sequence[str] = ()) -> None:
        self.dates = dates

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the medians and the categories of a data frame.

        Parameters
        ----------
        X : pandas.DataFrame
            The rows.
        y : object, default=None
            Not used.

        Returns
        -------
        self : TableEncoder
            The fitted encoder.
        """
        self.columns_ = list(X)
        self.medians_ = {}
        self.levels_ = {}
        for name in self.columns_:
            if name in self.dates or _is_number(X[name]):
                median = float(self._numbers(X[name]).median())
                self.medians_[name] = 0.0 if np.isnan(median) else median
            else:
                self.levels_[name] = _levels(X[name])
        self.features_ = _features(self.columns_, self.levels_)
        return self

    def transform(self, X: Any) -> Any:
        """Encode rows.

        Parameters
        ----------
        X : pandas.DataFrame
            The rows.

        Returns
        -------
        encoded : pandas.DataFrame
            Floats without gaps.
        """
        refuse_absent(self.columns_, X)
        coded = {}
        for feature, (name, level) in self.features_.items():
            if level is None:
                coded[feature] = self._numbers(X[name]).fillna(self.medians_[name])
            else:
                coded[feature] = (_as_text(X[name]) == level).astype(float)
        return pd.DataFrame(coded, index=X.index)

    def groups(self) -> dict[str, list[str]]:
        """Categories that have several columns, for ``feature_groups`` of an estimator.

        Returns
        -------
        groups : dict of str to list
            The encoded columns of every such category.
        """
        own: dict[str, list[str]] = {}
        for feature, (name, level) in self.features_.items():
            if level is not None:
                own.setdefault(name, []).append(feature)
        return {name: features for name, features in own.items() if len(features) > 1}

    def gaps(self, X: Any) -> dict[str, tuple[int, str]]:
        """Columns with missing values.

        Parameters
        ----------
        X : pandas.DataFrame
            The rows.

        Returns
        -------
        gaps : dict of str to tuple
            How many values are missing, and what takes their place, in words.
        """
        refuse_absent(self.columns_, X)
        counts = {name: int(X[name].isna().sum()) for name in self.columns_}
        return {name: (n, self._replacement(name)) for name, n in counts.items() if n}

    def unseen(self, X: Any) -> dict[str, list[str]]:
        """Values of categories that the fitted rows did not have.

        Parameters
        ----------
        X : pandas.DataFrame
            The rows.

        Returns
        -------
        unseen : dict of str to list
            The new values of every category that has some.
        """
        refuse_absent(self.columns_, X)
        found = {
            name: sorted(set(_as_text(X[name][X[name].notna()])) - set(levels))
            for name, levels in self.levels_.items()
        }
        return {name: levels for name, levels in found.items() if levels}

    def _replacement(self, name: str) -> str:
        if name not in self.levels_:
            return "by the median"
        if "missing" in self.levels_[name]:
            return 'by the category "missing"'
        return f"by {self.levels_[name][0]!r}, the most frequent"

    def _numbers(self, column: Any) -> Any:
        if column.name in self.dates:
            return _days(column)
        try:
            return column.astype(float)
        except (TypeError, ValueError) as error:
            raise TableError(f"{column.name!r} must hold numbers, but {error}.") from error

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "columns_")


def refuse_absent(names: Sequence[str], X: Any) -> None:
    """An error if a table lacks columns that a model reads, with what they may be called there."""
    absent = [name for name in names if name not in X]
    if not absent:
        return
    spare = [name for name in map(str, X) if name not in names]
    close = {name: near[0] for name in absent if (near := get_close_matches(name, spare, 1))}
    hint = ", ".join(f"{there!r} may be {name!r}" for name, there in close.items())
    raise TableError(
        f"the data lack {_quoted(absent)}, which the model was fitted with"
        + (f" ({hint})." if hint else f"; there are {_quoted(list(map(str, X))[:20])}.")
    )


def _plain(frame: Any) -> Any:
    """Columns of decimal numbers, as databases have them, become floats."""
    numbers = {Decimal, int, float}
    exact = [
        name
        for name in frame
        if _holds(frame[name], Decimal) and set(map(type, frame[name].dropna())) <= numbers
    ]
    return frame.astype(dict.fromkeys(exact, float)) if exact else frame


def _holds(column: Any, kinds: Any) -> bool:
    """Whether a column of Python objects holds any of these, beside missing values."""
    if not pd.api.types.is_object_dtype(column):
        return False
    return any(isinstance(value, kinds) for value in column)


def _task_of(y: Any, task: str) -> tuple[str, str]:
    numeric = _is_number(y)
    if _holds(y, _NESTED):
        raise TableError(f"{y.name!r} holds lists: a target needs one value in a row.")
    values = y.nunique()
    if _is_date(y):
        raise TableError(f"{y.name!r} holds dates: make them numbers to predict them.")
    if task in ("regression", "counts") and not numeric:
        raise TableError(f"{y.name!r} holds text: --task {task} needs numbers.")
    counts = numeric and _are_counts(y)
    if task == "counts" and not counts:
        raise TableError(
            f"{y.name!r} holds numbers that are negative or not whole: --task counts needs whole "
            "numbers from 0 on; --task regression takes any."
        )
    if values < 2:
        (only,) = y[:1].tolist()
        raise TableError(f"{y.name!r} has one value only ({only!r}): nothing to predict.")
    if task != "auto":
        return task, "as asked"
    if numeric and (values > 2 or values == len(y)):
        other = "--task classification to change"
        if counts:
            other = (
                "--task counts if they count something, --task classification if they are labels"
            )
        return "regression", f"since {y.name!r} holds numbers ({other})"
    if _too_many(values, len(y)):
        raise TableError(
            f"{y.name!r} is text with {values} different values in {len(y)} rows, too many to be "
            "classes: --task classification if they are."
        )
    kind = "text" if not numeric else "two values"
    return "classification", f"since {y.name!r} holds {kind} (--task to change)"


def _are_counts(y: Any) -> bool:
    """Whether all numbers of a column are whole and not negative."""
    values = y.dropna().to_numpy(dtype=float)
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values % 1 == 0).all())


def _target_values(y: Any, task: str) -> np.ndarray:
    if task in ("regression", "counts"):
        values = y.to_numpy(dtype=float)
        if not np.isfinite(values).all():
            raise TableError(f"{y.name!r} holds infinite values: replace or leave them out.")
        return values
    whole = _is_number(y) and (y.astype(float) % 1 == 0).all()
    return y.to_numpy() if whole else y.map(str).to_numpy(dtype=str)


def _refuse_unusable(X: Any, dates: Sequence[str]) -> None:
    """One error that names every column that cannot be used, and the options that help."""
    found = {name: why for name in X if (why := _why_unusable(X[name], name in dates))}
    if not found or not len(X):
        return
    told = ", ".join(f"{name!r} ({why})" for name, why in found.items())
    drop = [f"--drop {shlex.quote(name)}" for name, why in found.items() if why != _DATES]
    date = [f"--date {shlex.quote(name)}" for name, why in found.items() if why == _DATES]
    hints = []
    if drop:
        hints.append(f"{' '.join(drop)} leaves out")
    if date:
        hints.append(f"{' '.join(date)} uses the days since 1970-01-01")
    raise TableError(f"these columns cannot be used: {told}; {', '.join(hints)}.")


_DATES = "dates"
_DAY = r"(\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{4})([T ].*)?"
_NESTED = (list, tuple, set, dict, np.ndarray)


def _why_unusable(column: Any, parse: bool) -> str:
    if column.isna().all():
        return "no values at all"
    if parse:
        try:
            _days(column)
        except TableError as error:
            return str(error).rstrip(".")
        return ""
    if _is_number(column):
        return "infinite values" if np.isinf(column.astype(float)).any() else ""
    if _is_date(column) or _looks_like_dates(column):
        return _DATES
    if _holds(column, _NESTED):
        return "lists, not numbers or text"
    levels = column.nunique()
    if not _too_many(levels, len(column)):
        return ""
    if _reads_as_dates(column):
        return _DATES
    return f"text with {levels} different values in {len(column)} rows, too many for categories"


def _decisions(X: Any, dates: Sequence[str]) -> list[str]:
    """What is done with dates, categories and missing values, in sentences."""
    notes = []
    numeric = [name for name in X if name in dates or _is_number(X[name])]
    categorical = [name for name in X if name not in numeric]
    if dates:
        spans = [
            f"{n!r} ({_time(X[n]).min():%Y-%m-%d} to {_time(X[n]).max():%Y-%m-%d})" for n in dates
        ]
        notes.append(f"dates as days since 1970-01-01: {', '.join(spans)}.")
    if categorical:
        told = [f"{name!r} (against {_levels(X[name])[0]!r})" for name in categorical]
        notes.append(f"categories as 0/1 columns: {', '.join(told)}.")
    gaps = X.isna().sum()
    told = [f"{n!r} {gaps[n]} (by the median)" for n in numeric if gaps[n]]
    told += [f'{n!r} {gaps[n]} (by the category "missing")' for n in categorical if gaps[n]]
    if told:
        notes.append(f"missing values replaced: {', '.join(told)}.")
    return notes


def _features(
    columns: list[str], levels: dict[str, list[str]]
) -> dict[str, tuple[str, str | None]]:
    """For every feature its column and its category; a name that is taken is made another one."""
    features: dict[str, tuple[str, str | None]] = {}
    for name in columns:
        if name not in levels:
            features[name] = (name, None)
        for level in levels.get(name, [])[1:]:
            feature = f"{name}={level}"
            while feature in columns or feature in features:
                feature += " (category)"
            features[feature] = (name, level)
    return features


def _days(column: Any) -> Any:
    """Days since 1970-01-01 of a column of dates, as floats."""
    return (_time(column) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def _time(column: Any) -> Any:
    if _is_number(column):
        raise TableError("numbers, not dates.")
    try:
        with warnings.catch_warnings():  # about the order of day and month: the notes show it
            warnings.simplefilter("ignore")
            return pd.to_datetime(column, utc=True)
    except (TypeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise TableError(f"{column.name!r} cannot be read as dates: {reason}.") from error


def _looks_like_dates(column: Any) -> bool:
    """Whether all values are written as days, such as 2026-11-17 or 17.11.2026."""
    shown = column.dropna().map(str).str.strip()
    return bool(shown.str.fullmatch(_DAY).all()) and _reads_as_dates(column)


def _reads_as_dates(column: Any) -> bool:
    try:
        _time(column.dropna())
    except TableError:
        return False
    return True


def _too_many(levels: int, rows: int) -> bool:
    """Whether text is too varied to be categories."""
    return levels > MOST_LEVELS or 2 < levels == rows


def _is_date(column: Any) -> bool:
    return bool(pd.api.types.is_datetime64_any_dtype(column))


def _is_number(column: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column))


def _levels(column: Any) -> list[str]:
    """The values of a category, the most frequent first, then by name; "missing" is the last."""
    counts = _as_text(column).value_counts()
    return sorted(counts.index, key=lambda level: (level == "missing", -counts[level], level))


def _as_text(column: Any) -> Any:
    return column.map(str, na_action="ignore").astype(object).fillna("missing")


def no_column(name: str, columns: list[str]) -> str:
    """The message for a name that is not a column, with the one that may be meant."""
    close = get_close_matches(name, columns, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {_quoted(columns[:20])}."
    return f"no column {name!r}: {hint}"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
