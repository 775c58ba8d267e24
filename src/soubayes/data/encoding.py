"""Columns of a data frame as numbers: categories, missing values and dates."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin

from soubayes._docstrings import fill_docstrings
from soubayes.data.names import TableError, refuse_absent

_PARAMETERS = """
X : pandas.DataFrame
    The rows.
y : object, default=None
    Not used.
"""


@fill_docstrings(_PARAMETERS)
class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a data frame as numbers: categories as 0/1 columns, gaps filled, dates as days.

    Parameters
    ----------
    dates : sequence of str, default=()
        Columns that hold dates. They become days since 1970-01-01.
    indicators : bool, default=True
        Whether categories become 0/1 columns. False leaves them as text, for an estimator with
        ``terms``.

    Attributes
    ----------
    columns_ : list of str
        The columns of the data frame that was fitted.
    medians_ : dict of str to float
        The median of every numeric column.
    levels_ : dict of str to list
        The values of every category, the most frequent first.
    day_first_ : dict of str to bool
        Whether the dates of a column are read with the day before the month.
    features_ : dict of str to tuple
        For every encoded column the column it comes from, and its category or None.

    Notes
    -----
    The most frequent value of a category is the reference: it is 0 in all columns of the category.
    Missing numbers are replaced by the median of the fitted rows. Missing categories are a category
    of their own, called "missing", if there were some in the fitted rows. Otherwise they count as
    the reference, as do values that the fitted rows do not have. Dates such as 3.12.2026 have the
    day first and dates such as 3/12/2026 the month, unless a fitted date shows the opposite.

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

    def __init__(self, dates: Sequence[str] = (), indicators: bool = True) -> None:
        self.dates = dates
        self.indicators = indicators

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the medians and the categories of a data frame.

        Returns
        -------
        self : TableEncoder
            The fitted encoder.
        """
        self.columns_ = list(X)
        self.day_first_ = {name: day_comes_first(X[name]) for name in self.dates if name in X}
        self.medians_ = {}
        self.levels_ = {}
        for name in self.columns_:
            if name not in self.dates and (is_date(X[name]) or is_duration(X[name])):
                raise TableError(
                    f"{name!r} holds dates: name it in dates=[{name!r}] to make it days."
                    if is_date(X[name])
                    else f"{name!r} holds durations: make them numbers (.dt.total_seconds())."
                )
            if name in self.dates or is_number(X[name]):
                median = float(self._numbers(X[name]).median())
                self.medians_[name] = 0.0 if np.isnan(median) else median
            else:
                self.levels_[name] = levels_of(X[name])
        self.features_ = _features(self.columns_, self.levels_ if self.indicators else {})
        return self

    def transform(self, X: Any) -> Any:
        """Encode rows.

        Returns
        -------
        encoded : pandas.DataFrame
            Floats without gaps, and text where categories stay as they are.
        """
        refuse_absent(self.columns_, X)
        coded = {}
        for feature, (name, level) in self.features_.items():
            if level is None and name in self.levels_:
                coded[feature] = text_of(X[name])
            elif level is None:
                coded[feature] = self._numbers(X[name]).fillna(self.medians_[name])
            else:
                coded[feature] = (text_of(X[name]) == level).astype(float)
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

        Returns
        -------
        unseen : dict of str to list
            The new values of every category that has some.
        """
        refuse_absent(self.columns_, X)
        found = {
            name: sorted(set(text_of(X[name][X[name].notna()])) - set(levels))
            for name, levels in self.levels_.items()
        }
        return {name: levels for name, levels in found.items() if levels}

    def _replacement(self, name: str) -> str:
        if name not in self.levels_:
            return "by the median"
        if "missing" in self.levels_[name]:
            return 'by the category "missing"'
        if not self.indicators:
            return "as a value that the fit has not seen"
        return f"by {self.levels_[name][0]!r}, the most frequent"

    def _numbers(self, column: Any) -> Any:
        if column.name in self.dates:
            return days_of(column, self.day_first_[column.name])
        try:
            return column.astype(float)
        except (TypeError, ValueError) as error:
            raise TableError(f"{column.name!r} must hold numbers, but {error}.") from error

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "columns_")


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


def levels_of(column: Any) -> list[str]:
    """The values of a category, the most frequent first, then by name; "missing" is the last."""
    counts = text_of(column).value_counts()
    return sorted(counts.index, key=lambda level: (level == "missing", -counts[level], level))


def text_of(column: Any) -> Any:
    """Every value as text, and "missing" where there is none."""
    return labels_of(column).astype(object).fillna("missing")


def labels_of(column: Any) -> Any:
    """Every value as text; whole numbers are written without a point, as gaps would make them."""
    if is_whole(column) and pd.api.types.is_float_dtype(column):
        column = column.astype("Int64")
    return column.map(str, na_action="ignore")


def is_whole(column: Any) -> bool:
    """Whether a column holds whole numbers alone, booleans apart."""
    if not is_number(column) or pd.api.types.is_bool_dtype(column):
        return False
    values = column.dropna().to_numpy(dtype=float)
    return bool((np.isfinite(values) & (values % 1 == 0)).all())


def is_number(column: Any) -> bool:
    """Whether a column holds numbers."""
    return bool(pd.api.types.is_numeric_dtype(column))


def is_date(column: Any) -> bool:
    """Whether a column holds dates, not their text."""
    return bool(pd.api.types.is_datetime64_any_dtype(column))


def is_duration(column: Any) -> bool:
    """Whether a column holds differences of dates."""
    return bool(pd.api.types.is_timedelta64_dtype(column))


def days_of(column: Any, day_first: bool) -> Any:
    """Days since 1970-01-01 of a column of dates, as floats."""
    return (dates_of(column, day_first) - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)


def day_comes_first(column: Any) -> bool:
    """Whether dates such as 3.12.2026 or 13/3/2026 have the day before the month.

    Where both readings are possible, dots mean that it has, and slashes that it has not.

    >>> [day_comes_first(pd.Series([text])) for text in ("3.12.2026", "3/12/2026", "13/3/2026")]
    [True, False, True]
    """
    if is_number(column) or is_date(column):
        return False
    parts = (
        column.dropna().map(str).str.extract(r"^\s*(\d{1,2})([./-])(\d{1,2})[./-]\d{4}").dropna()
    )
    if parts.empty or (parts[2].astype(int) > 12).any():
        return False
    return bool((parts[1] == ".").any() or (parts[0].astype(int) > 12).any())


def dates_of(column: Any, day_first: bool) -> Any:
    """A column of dates, read from text if need be."""
    if is_number(column):
        raise TableError("numbers, not dates.")
    read = partial(pd.to_datetime, column, utc=True, dayfirst=day_first)
    with warnings.catch_warnings():  # about the order of day and month: the notes show it
        warnings.simplefilter("ignore")
        try:
            return read()
        except (TypeError, ValueError, OverflowError) as error:
            wrong = column[read(errors="coerce").isna() & column.notna()]
            example = f": {str(wrong.iloc[0])!r} is not one" if len(wrong) else ""
            raise TableError(f"{column.name!r} cannot be read as dates{example}.") from error
