"""y of a survival model: records of subjects from what users have."""

from typing import Any

import numpy as np
import pandas as pd

from soubayes.confidence import shown
from soubayes.data.rows import check_sizes
from soubayes.sparse.survival.risk_sets import subjects

Array = np.ndarray

ALLOWED = (
    "y must be a structured array with the fields of scikit-survival (event, time), a DataFrame "
    "with the columns event and time, or start, stop and event, or a tuple (event, time) or "
    "(start, stop, event)"
)
ROLES = {
    **dict.fromkeys(("event", "status", "died", "death", "dead", "cens"), "event"),
    **dict.fromkeys(("time", "stop", "duration", "futime", "survival_in_days"), "stop"),
    **dict.fromkeys(("start", "entry"), "start"),
}


def read_survival(y: Any) -> Array:
    """Records of `SUBJECT` with the stratum 0, or an error that says what is wrong.

    >>> read_survival(([True, False], [2.0, 3.0]))["stop"]
    array([2., 3.])
    """
    parts = _parts(y)
    event = _events(parts["event"])
    stop = _times("time" if "start" not in parts else "stop", parts["stop"])
    if len(event) != len(stop):
        raise ValueError(f"y has {len(event)} events, but {len(stop)} times.")
    start: Any = -np.inf
    if "start" in parts:
        start = _times("start", parts["start"])
        if len(start) != len(stop):
            raise ValueError(f"y has {len(start)} start times, but {len(stop)} stop times.")
        late = np.flatnonzero(start >= stop)
        if len(late):
            i = int(late[0])
            raise ValueError(
                f"row {i} of y has start {start[i]:g} and stop {stop[i]:g}: a subject must be "
                "observed for some time, so stop must be after start."
            )
        if (start < 0.0).any():
            i = int(np.flatnonzero(start < 0.0)[0])
            raise ValueError(f"row {i} of y has start {start[i]:g}, but times begin at 0.")
        start = np.where(start == 0.0, -np.inf, start)
    if (stop <= 0.0).any():
        i = int(np.flatnonzero(stop <= 0.0)[0])
        raise ValueError(
            f"row {i} of y has the time {stop[i]:g}, but times must be greater than 0; move the "
            "origin, or drop subjects that were not observed."
        )
    return subjects(stop, event, start)


def read_training(y: Any) -> Array:
    """The same, with at least one event, and no time beside which the others are rounding."""
    records = read_survival(y)
    if not records["event"].any():
        raise ValueError(
            "all rows of y are censored: without an event nothing is known about the hazards. "
            "Check that the event column is 1 (or True) where the event happened."
        )
    check_sizes(records["stop"], "correct the time or leave its row out")
    return records


def with_strata(y: Array, strata: Any, labels: Array | None = None) -> tuple[Array, Array]:
    """The records with the numbers of their strata, and the labels of these."""
    if strata is None:
        if labels is not None and len(labels) > 1:
            raise ValueError(
                "the model was fitted with strata: pass strata=, one label for each row, here too."
            )
        return y, np.array([""]) if labels is None else labels
    given = np.asarray(strata)
    if given.shape != (len(y),):
        raise ValueError(f"strata has {given.size} labels, but y has {len(y)} rows.")
    if pd.isna(given).any():
        i = int(np.flatnonzero(pd.isna(given))[0])
        raise ValueError(f"row {i} has no stratum: give it a label, such as 'unknown', or drop it.")
    if labels is None:
        labels = np.unique(given)
    number = np.searchsorted(labels, given)
    wrong = (number >= len(labels)) | (labels[np.minimum(number, len(labels) - 1)] != given)
    if wrong.any():
        raise ValueError(
            f"strata holds {shown(given[wrong][0])}, which is not a stratum of the fitted data."
        )
    y = y.copy()
    y["stratum"] = number
    return y, labels


def _parts(y: Any) -> dict[str, Any]:
    if y is None:
        raise ValueError(f"y is missing; {ALLOWED}.")
    if hasattr(y, "columns") and not isinstance(y, np.ndarray):  # a table of pandas, polars, ...
        names = getattr(y, "column_names", y.columns)
        return _named({str(name): np.asarray(y[name]) for name in names})
    if isinstance(y, tuple):
        if len(y) == 2:
            return {"event": y[0], "stop": y[1]}
        if len(y) == 3:
            return {"start": y[0], "stop": y[1], "event": y[2]}
        raise ValueError(f"y is a tuple of {len(y)}, but {ALLOWED}.")
    values = np.asarray(y)
    if values.dtype.names is None:
        raise ValueError(f"y is an array of {values.dtype} of shape {values.shape}, but {ALLOWED}.")
    return _named({name: values[name] for name in values.dtype.names})


def _named(columns: dict[str, Any]) -> dict[str, Any]:
    """By names; if they do not tell, two are (event, time) and three (start, stop, event)."""
    names = list(columns)
    roles = [ROLES.get(name.lower()) for name in names]
    order = {2: ("event", "stop"), 3: ("start", "stop", "event")}.get(len(names), ())
    if not any(roles):
        roles = list(order)
    if len(names) == 2 and None in roles and len(set(roles) & set(order)) == 1:
        roles = [
            role or next(candidate for candidate in order if candidate not in roles)
            for role in roles
        ]
    if sorted(map(str, roles)) not in (["event", "stop"], ["event", "start", "stop"]):
        raise ValueError(f"y has the columns {', '.join(names)}, but {ALLOWED}.")
    return {str(role): columns[name] for role, name in zip(roles, names, strict=True)}


def _events(values: Any) -> Array:
    event = np.asarray(values)
    if event.ndim != 1:
        raise ValueError(
            f"the events of y have shape {event.shape}, but one for each row is needed."
        )
    if event.dtype == bool:
        return event
    levels = pd.unique(event)
    try:
        numbers = event.astype(float)
        right = bool(np.isin(numbers, (0.0, 1.0)).all())
    except (TypeError, ValueError):
        right = False
    if not right:
        some = ", ".join(str(value) for value in levels[:4])
        raise ValueError(
            f"the event column of y holds {len(levels)} values ({some}), but it must be True or 1 "
            "where the event happened and False or 0 where the row is censored."
        )
    return numbers > 0.5


def _times(name: str, values: Any) -> Array:
    given = np.asarray(values)
    if given.dtype.kind in "mM":
        raise ValueError(
            f"the {name} column of y holds dates or durations, but it must hold numbers: the days "
            "since the subject came under observation, say, as (end - begin).dt.days gives them."
        )
    try:
        times = given.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"the {name} column of y does not hold numbers.") from None
    if times.ndim != 1:
        raise ValueError(f"the {name} column of y has shape {times.shape}, but must be flat.")
    if not np.isfinite(times).all():
        i = int(np.flatnonzero(~np.isfinite(times))[0])
        raise ValueError(f"row {i} of y has the {name} {times[i]}, but times must be finite.")
    return times
