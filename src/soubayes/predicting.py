"""`soubayes predict`: a saved model, new rows of a table, and a table of predictions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import is_classifier

from soubayes.data.encoding import TableEncoder
from soubayes.data.names import TableError, no_column, refuse_absent
from soubayes.data.reading import read_table
from soubayes.data.tabular import exposures
from soubayes.levels import LEVEL
from soubayes.sparse.estimators.response import ResponseRegression


def read_new_rows(model: Any, path: Path, decimal: str = "auto", separator: str = "auto") -> Any:
    """The rows of a file; columns that were categories at the fit are read as text."""
    encoder = _encoder(model)
    text = list(encoder.levels_) if encoder is not None else []
    frame = read_table(path, decimal, separator, text=text)
    for name, message in frame.attrs.get("typing_errors", {}).items():
        if encoder is not None and str(name) in encoder.medians_:
            raise TableError(f"{message}.")
    return frame.rename(columns=str)


def predict_table(
    model: Any,
    frame: pd.DataFrame,
    level: float = LEVEL,
    keep: Sequence[str] = (),
    exposure: str = "",
) -> pd.DataFrame:
    """A row of predictions for each row: of a number, a class or a survival time.

    These are mean, sd and interval; or class and probabilities; or the log risk, and survival at
    three times with bands. The columns named in ``keep`` are copied from the rows; the column
    ``exposure`` has the exposure of every row.

    >>> from sklearn.datasets import load_diabetes
    >>> from soubayes import SoULinearRegression
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = SoULinearRegression(choice="path").fit(X[["bmi", "s5"]], y)
    >>> list(predict_table(model, X.head(3)))
    ['mean', 'sd', 'lower', 'upper']
    """
    copied = {name: frame[_known(name, frame)] for name in keep}
    X = _features(model, frame)
    if exposure and not isinstance(_last(model), ResponseRegression):
        raise TableError("--exposure is for models of counts or positive numbers: leave it out.")
    exposed = {"exposure": exposures(frame[_known(exposure, frame)])} if exposure else {}
    if is_classifier(model):
        found = _classes(model, X)
    elif hasattr(_last(model), "predict_survival_function"):
        found = _survival(model, X, level)
    else:
        found = _numbers(model, X, level, exposed)
    return pd.DataFrame({**copied, **found}, index=frame.index)


def _last(model: Any) -> Any:
    """The estimator at the end of a pipeline."""
    return model[-1] if hasattr(model, "steps") else model


def _survival(model: Any, X: pd.DataFrame, level: float) -> dict[str, Any]:
    """The log risk, and the probability to survive the quartiles of the event times."""
    last, found = _last(model), {"log risk": model.predict(X)}
    coded = model[:-1].transform(X) if hasattr(model, "steps") else X
    times = np.quantile(last.event_times_, [0.25, 0.5, 0.75])
    curves = last.predict_survival_function(coded, times, level=level)
    for t in times:
        for name, word in (("estimate", "S"), ("lower", "lower"), ("upper", "upper")):
            found[f"{word}({t:.4g})"] = curves.xs(name, axis=1, level=1).loc[t].to_numpy()
    return found


def _classes(model: Any, X: pd.DataFrame) -> dict[str, Any]:
    chance = np.asarray(model.predict_proba(X))
    each = {f"P({label})": chance[:, k] for k, label in enumerate(model.classes_)}
    return {"class": model.predict(X), **each}


def _numbers(model: Any, X: Any, level: float, exposed: dict[str, Any]) -> dict[str, Any]:
    mean, sd = model.predict(X, return_std=True, **exposed)
    if np.ndim(mean) != 1:
        raise TableError(f"the model predicts {mean.shape[1]} targets: use its predict in Python.")
    tail = (1.0 - level) / 2.0
    lower, upper = np.asarray(model.predict(X, quantiles=[tail, 1.0 - tail], **exposed)).T
    return {"mean": mean, "sd": sd, "lower": lower, "upper": upper}


def remarks(model: Any, frame: pd.DataFrame) -> list[str]:
    """What is done with missing values and categories that the fit has not seen, in sentences."""
    encoder = _encoder(model)
    if encoder is None:
        return []
    gaps, unseen = encoder.gaps(frame), encoder.unseen(frame)
    notes = []
    if gaps:
        told = ", ".join(f"{name!r} {count} ({by})" for name, (count, by) in gaps.items())
        notes.append(f"Missing values replaced as in the fit: {told}.")
    for name, levels in unseen.items():
        shown = ", ".join(map(repr, levels[:5])) + (" ..." if len(levels) > 5 else "")
        if not encoder.indicators:
            more = ""
            if f"(1 | `{name}`)" in _last(model).terms:
                more = ", with the variance between units on top"
            notes.append(f"{name!r}: {shown} not seen in the fit; the effect is 0{more}.")
            continue
        reference = encoder.levels_[name][0]
        notes.append(
            f"{name!r}: {shown} not seen in the fit; predicted as {reference!r}, the most frequent."
        )
    return notes


def _known(name: str, frame: pd.DataFrame) -> str:
    if name not in frame:
        raise TableError(no_column(name, list(frame)))
    return name


def _encoder(model: Any) -> TableEncoder | None:
    """The step that `soubayes fit` puts before the estimator."""
    first = getattr(model, "steps", [("", None)])[0][1]
    return first if isinstance(first, TableEncoder) else None


def _features(model: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that the model reads, checked."""
    encoder = _encoder(model)
    names = encoder.columns_ if encoder is not None else getattr(model, "feature_names_in_", None)
    if names is None:
        raise TableError(
            "the model was fitted without names of columns: use its predict in Python."
        )
    refuse_absent(names, frame)
    X = frame[list(names)]
    coded = X if encoder is None else encoder.transform(X)
    for name in coded.select_dtypes("number"):
        if not np.isfinite(coded[name].to_numpy(dtype=float)).all():
            raise TableError(f"{name!r} holds infinite or missing values: replace them.")
    return X
