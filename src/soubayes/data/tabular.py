"""From a table to a problem of regression: the target, its task, and columns that can be used."""

import re
import shlex
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from soubayes.data.encoding import (
    dates_of,
    day_comes_first,
    days_of,
    is_date,
    is_duration,
    is_number,
    is_whole,
    labels_of,
    levels_of,
)
from soubayes.data.names import TableError, no_column, quoted
from soubayes.terms.expansion import LARGEST_UNIT

TASKS = ("auto", "regression", "robust", "positive", "counts", "classification", "ordered")
NUMERIC_TASKS = ("regression", "robust", "positive", "counts")  # tasks whose target is a number
MISSING = ("impute", "drop")
MOST_LEVELS = 50
FEW_LABELS, ROWS_A_LABEL = 10, 5  # whole numbers may be labels (development/tables.md)


class Problem(NamedTuple):
    """Features as they were read, the target, the task, and what was decided on the way."""

    X: Any
    y: Any  # numbers or labels; of survival a data frame of events and times
    task: str
    notes: list[str]
    dates: list[str]
    levels: list[Any] | None = None  # of ordered classes, from the lowest
    exposure: Any = None  # of every row, for counts and positive numbers
    terms: list[str] | None = None  # of the estimator, if asked for


def pose_problem(
    frame: Any,
    target: str,
    *,
    task: str = "auto",
    missing: str = "impute",
    drop: Sequence[str] = (),
    dates: Sequence[str] = (),
    categories: Sequence[str] = (),
    event: str | None = None,
    levels: Sequence[str] = (),
    exposure: str | None = None,
    curves: str = "",
    units: Sequence[str] = (),
) -> Problem:
    """Split off the target, choose the task, and check every column; nothing is done in silence.

    Columns named in ``dates`` become days since 1970-01-01; those in ``categories`` are labels,
    also if they are written as numbers. With the name of an ``event`` column the target is a
    survival time. ``levels`` are the classes of an ordered target, lowest first.
    The column ``exposure`` says for how long, or among how many, a row was observed.
    ``curves`` is "curves" or "pairs", as in the ``terms`` of an estimator; ``units`` are columns
    of repeated units.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "kind": ["a", "b", "a"], "y": [1, 2, 4]})
    >>> problem = pose_problem(frame, "y")
    >>> problem.task
    'regression'
    >>> problem.notes[-1]
    "Missing values replaced: 'size' 1 (by the median)."
    """
    tasks = TASKS if event is None else ("auto", "survival")
    if levels and task == "auto":
        task = "ordered"
    for option, value, allowed in [("task", task, tasks), ("missing", missing, MISSING)]:
        if value not in allowed:
            raise TableError(f"{option} is {value!r}, but it must be one of {', '.join(allowed)}.")
    notes = list(frame.attrs.get("notes", ()))  # of how the file was read
    wrong = frame.attrs.get("typing_errors", {})
    frame = _plain(frame.rename(columns=str))
    doubled = list(dict.fromkeys(frame.columns[frame.columns.duplicated()]))
    if doubled:
        raise TableError(f"several columns are called {quoted(doubled)}: give each its own name.")
    if levels and task != "ordered":
        raise TableError(f"--levels is for --task ordered, not for {task}: leave it out.")
    if exposure and task not in ("counts", "positive"):
        raise TableError("--exposure needs --task counts or --task positive.")
    targets = [name for name in (target, event, exposure) if name]
    units, categories = list(dict.fromkeys(units)), [*categories, *units]
    for name in [*targets, *drop, *dates, *categories]:
        if name not in frame:
            raise TableError(no_column(name, list(frame)))
    for option, names in (("--unit", units), ("--date", dates), ("--category", categories)):
        for name in names:
            if option == "--unit" and name == target:
                raise TableError(f"--unit {name} is the column to predict.")
            if name in (*targets, *drop):
                raise TableError(f"{option} {name} names a column that is not a feature.")
    labels = [target] if task in ("classification", "ordered") else []
    for name, message in wrong.items():
        if name not in (*drop, *dates, *categories, *labels):
            option = (
                "--task classification" if name in targets else f"--category {shlex.quote(name)}"
            )
            raise TableError(f"{message}, or add {option} if they are labels.")
    known = frame[targets].notna().all(axis=1).to_numpy()
    if not known.all():
        missed = " or ".join(map(repr, targets))
        notes.append(f"{np.sum(~known)} rows without {missed} left out.")
    frame = frame[known]
    frame = frame.assign(**{name: labels_of(frame[name]) for name in categories})
    X = frame.drop(columns=[*targets, *drop])
    numbering = [name for name in X if name not in (*dates, *categories) and _numbers_rows(X, name)]
    if numbering:
        X = X.drop(columns=numbering)
        notes.append(
            f"Left out: {quoted(numbering)}, without a name and with names of rows or no values."
        )
    _refuse_unusable(X.drop(columns=units), dates)
    if missing == "drop":
        whole = X.notna().all(axis=1).to_numpy()
        if not whole.all():
            notes.append(f"{np.sum(~whole)} rows with missing values left out.")
        frame, X = frame[whole], X[whole]
    if len(X) < 2 or X.shape[1] < 1:
        size = f"{len(X)} usable rows and {X.shape[1]} features"
        raise TableError(f"{size} are too few: 2 rows and 1 feature are the least.")
    _check_units(X, units, dates, task)
    if event is None:
        task, reason = _task_of(frame[target], task)
        y: Any = _target_values(frame[target], task)
        if task == "ordered":
            y, levels = _in_order(y, target, levels)
    else:
        y = _survival_values(frame[target], frame[event])
        task, reason = "survival", f"{int(y['event'].sum())} events"
    notes.insert(0, f"{task.capitalize()}, {reason}.")
    terms = _terms(X, curves, units)
    notes += _decisions(X, dates, units, terms is not None)
    observed = None if exposure is None else exposures(frame[exposure])
    if exposure:
        notes.insert(
            1, f"Means are proportional to {exposure!r}: the page shows those of one unit."
        )
    return Problem(X, y, task, notes, list(dates), list(levels) or None, observed, terms)


def _check_units(X: Any, units: Sequence[str], dates: Sequence[str], task: str) -> None:
    """Units repeat; for counts alone one in every row has a meaning, overdispersion."""
    for name in units:
        count = X[name].nunique(dropna=False)
        if name in dates:
            raise TableError(f"--unit {name} and --date {name}: a column is one or the other.")
        if count < 2:
            raise TableError(
                f"--unit {name} names a column with one value, but units need at least two."
            )
        if count == len(X) and task != "counts":
            raise TableError(
                f"--unit {name} names a column with another value in every row: no unit is "
                "repeated."
            )
        if count > LARGEST_UNIT:
            raise TableError(
                f"--unit {name} names a column with {count:,} values, but at most "
                f"{LARGEST_UNIT:,} units can be fitted."
            )


def _terms(X: Any, curves: str, units: Sequence[str]) -> list[str] | None:
    """What an estimator is asked for; without curves all other columns are straight."""
    if not (curves or units):
        return None
    straight = [f"`{name}`" for name in X if name not in units]
    return [*([curves] if curves else straight), *(f"(1 | `{name}`)" for name in units)]


def _in_order(y: np.ndarray, target: str, levels: Sequence[str]) -> tuple[np.ndarray, list[Any]]:
    """The target and its classes in order: those of the user, or numbers as they are."""
    found = np.unique(y).tolist()
    if not levels:
        if y.dtype.kind == "U":
            example = ",".join(found[:MOST_LEVELS])
            raise TableError(
                f"{target!r} holds text: name its classes from the lowest to the highest, here "
                f"these in their order: --levels {shlex.quote(example)}"
            )
        return y, found
    labels = y.astype(str)
    unknown = [label for label in np.unique(labels).tolist() if label not in levels]
    if unknown:
        raise TableError(
            f"{target!r} holds {quoted(unknown)}, which --levels {','.join(levels)} does not have."
        )
    return labels, list(levels)


def exposures(column: Any) -> np.ndarray:
    """Positive numbers."""
    values = column.to_numpy(dtype=float) if is_number(column) else np.array([np.nan])
    if not (np.isfinite(values) & (values > 0)).all():
        raise TableError(f"--exposure {column.name} holds values that are not numbers above 0.")
    return values


def _survival_values(time: Any, event: Any) -> Any:
    """Events and times, checked."""
    import pandas as pd

    from soubayes.sparse.survival.responses import read_training

    try:
        y = read_training((event.to_numpy(), time.to_numpy()))
    except ValueError as error:
        raise TableError(f"--time {time.name} --event {event.name}: {error}") from None
    return pd.DataFrame({"event": y["event"], "time": y["stop"]})


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
    numeric = is_number(y)
    if _holds(y, _NESTED):
        raise TableError(f"{y.name!r} holds lists: a target needs one value in a row.")
    values = y.nunique()
    if is_date(y) or is_duration(y):
        what = "dates" if is_date(y) else "durations"
        raise TableError(f"{y.name!r} holds {what}: make them numbers to predict them.")
    if task in NUMERIC_TASKS and not numeric:
        raise TableError(f"{y.name!r} holds text: --task {task} needs numbers.")
    counts = numeric and _are_counts(y)
    if task == "counts" and not counts:
        raise TableError(
            f"{y.name!r} holds numbers that are negative or not whole: --task counts needs whole "
            "numbers from 0 on; --task regression takes any."
        )
    if task == "positive" and not (y.astype(float) > 0).all():
        raise TableError(
            f"{y.name!r} holds numbers that are not above 0: --task regression takes any."
        )
    if values < 2:
        (only,) = y[:1].tolist()
        raise TableError(f"{y.name!r} has one value only ({only!r}): nothing to predict.")
    if task in ("classification", "ordered") and 2 * values > len(y) > 4:
        raise TableError(
            f"{y.name!r} has {values} different values in {len(y)} rows, too many to be classes"
            + (": use --task regression." if numeric else ".")
        )
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
            "classes"
            + (": add --task classification if they are." if 2 * values <= len(y) else ".")
        )
    kind = "text" if not numeric else "two values"
    return "classification", f"since {y.name!r} holds {kind} (--task to change)"


def _are_counts(y: Any) -> bool:
    """Whether all numbers of a column are whole and not negative."""
    values = y.dropna().to_numpy(dtype=float)
    return bool(np.isfinite(values).all() and (values >= 0).all() and (values % 1 == 0).all())


def _target_values(y: Any, task: str) -> np.ndarray:
    if task in NUMERIC_TASKS:
        values = y.to_numpy(dtype=float)
        if not np.isfinite(values).all():
            raise TableError(f"{y.name!r} holds infinite values: replace or leave them out.")
        return values
    whole = is_number(y) and (y.astype(float) % 1 == 0).all()
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
        hints.append(f"add {' '.join(drop)} to leave {'it' if len(drop) == 1 else 'them'} out")
    if date:
        hints.append(f"add {' '.join(date)} to use days since 1970-01-01")
    raise TableError(f"these columns cannot be used: {told}; {', '.join(hints)}.")


_DATES = "dates"
_DAY = r"(\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}([./-])\d{1,2}\2\d{4})([T ].*)?"
_NESTED = (list, tuple, set, dict, np.ndarray)


def _why_unusable(column: Any, parse: bool) -> str:
    if column.isna().all():
        return "no values at all"
    if parse:
        try:
            days_of(column, day_comes_first(column))
        except TableError as error:
            return str(error).rstrip(".")
        return ""
    if is_number(column):
        return "infinite values" if np.isinf(column.astype(float)).any() else ""
    if is_date(column) or _looks_like_dates(column):
        return _DATES
    if is_duration(column):
        return "durations: make them numbers first"
    if _holds(column, _NESTED):
        return "lists, not numbers or text"
    levels = column.nunique()
    if not _too_many(levels, len(column)):
        return ""
    if not _are_codes(column) and _reads_as_dates(column):
        return _DATES
    return f"text with {levels} different values in {len(column)} rows, too many for categories"


def _decisions(X: Any, dates: Sequence[str], units: Sequence[str], terms: bool) -> list[str]:
    """What is done with dates, categories and missing values, in sentences."""
    notes = []
    numeric = [name for name in X if name in dates or is_number(X[name])]
    categorical = [name for name in X if name not in numeric]
    if dates:
        spans = [
            f"{name!r} ({times.min():%Y-%m-%d} to {times.max():%Y-%m-%d})"
            for name in dates
            for times in [dates_of(X[name], day_comes_first(X[name]))]
        ]
        notes.append(f"Dates as days since 1970-01-01: {', '.join(spans)}.")
    most = min(FEW_LABELS, len(X) // ROWS_A_LABEL)
    values = {n: X[n].nunique() for n in numeric if n not in dates and is_whole(X[n])}
    told = [f"{n!r} ({count})" for n, count in values.items() if 2 < count <= most]
    if told:
        notes.append(
            f"Numbers with few values: {', '.join(told)}; --category NAME if they are labels."
        )
    kinds = [name for name in categorical if name not in units]
    if kinds and not terms:
        told = [f"{name!r} (against {levels_of(X[name])[0]!r})" for name in kinds]
        notes.append(f"Categories as 0/1 columns: {', '.join(told)}.")
    for word, names in (("Categories", kinds), ("Repeated units", units)):
        if names and terms:
            told = [f"{name!r} ({len(levels_of(X[name]))})" for name in names]
            notes.append(f"{word}: {', '.join(told)}.")
    gaps = X.isna().sum()
    told = [f"{n!r} {gaps[n]} (by the median)" for n in numeric if gaps[n]]
    told += [f'{n!r} {gaps[n]} (by the category "missing")' for n in categorical if gaps[n]]
    if told:
        notes.append(f"Missing values replaced: {', '.join(told)}.")
    return notes


def _numbers_rows(X: Any, name: str) -> bool:
    """Whether a column without a name holds pandas' or R's names of the rows, or nothing.

    pandas and spreadsheets call a column without a name "Unnamed: 0".
    """
    column = X[name]
    if not (name == "" or re.fullmatch(r"Unnamed: \d+", name)):
        return False
    return bool(column.isna().all() or (name == X.columns[0] and column.is_unique))


def _looks_like_dates(column: Any) -> bool:
    """Whether all values are written as days, such as 2026-11-17 or 17.11.2026."""
    shown = column.dropna().map(str).str.strip()
    return bool(shown.str.fullmatch(_DAY).all()) and _reads_as_dates(column)


def _are_codes(column: Any) -> bool:
    """Whether all values are digits, such as 01001, which pandas would read as a date."""
    return bool(column.dropna().map(str).str.fullmatch(r"\d+").all())


def _reads_as_dates(column: Any) -> bool:
    try:
        dates_of(column.dropna(), day_comes_first(column))
    except TableError:
        return False
    return True


def _too_many(levels: int, rows: int) -> bool:
    """Whether text is too varied to be categories."""
    return levels > MOST_LEVELS or 2 < levels == rows
