"""Which rows are held out: from ``cv`` and groups to checked training and test rows."""

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d

from soubayes._warnings import warn
from soubayes.confidence import shown
from soubayes.sparse.constants import FEWEST_ROWS, FOLDS, LARGE, MORE_FOLDS, ONE_PART, SQUARE_FOLDS
from soubayes.sparse.designs.columns import SPARSE_BYTES

Array = np.ndarray
Splits = list[tuple[Array, Array]]

DENSE_BYTES = 2**28  # of a dense X up to which dense candidates are fitted


class ChoiceWarning(UserWarning):
    """The confidences could not be chosen by prediction."""


def say_path(owner: str, what: str) -> None:
    """Warn that the path alone decides."""
    warn(f"{owner}: {what}; falling back to choice='path'.", ChoiceWarning)


def enough_rows(rows: int, owner: str, fewest: int = FEWEST_ROWS) -> bool:
    """Whether there are enough rows to choose by prediction; if not, it is said."""
    if rows < fewest:
        say_path(owner, f"{rows} rows are too few to choose the confidences by prediction")
    return rows >= fewest


def auto_folds(n: int, p: int, stratified: bool = False) -> int:
    """How many folds ``cv="auto"`` means."""
    return FOLDS if stratified or p > n else _first(MORE_FOLDS, n)


def nearly_square(n: int, p: int) -> bool:
    """Whether there are as many rows as columns, but not in the training rows of a fold."""
    return p <= n and n - n // auto_folds(n, p) <= p


def square_folds(n: int) -> int:
    """How many folds there are then, if the evidence is for a sparse fit.

    >>> square_folds(210), square_folds(800), square_folds(2000)
    (20, 10, 5)
    """
    return _first(SQUARE_FOLDS, n)


def _first(table: tuple[tuple[int, int], ...], n: int) -> int:
    """The folds of the first entry with more than n rows."""
    return next((folds for rows, folds in table if n < rows), FOLDS)


def folds_of(
    cv: Any,
    X: Any,
    y: Array,
    groups: Array | None,
    *,
    seed: Any,
    owner: str,
    stratified: bool,
    products: bool = False,
) -> Splits | None:
    """The folds of X; None and a warning if no fold is possible.

    ``cv="auto"`` holds out one part of large data. ``products``: no scipy-sparse X is made dense.
    """
    n, p = X.shape
    most = (np.inf if products else SPARSE_BYTES) if sp.issparse(X) else DENSE_BYTES
    if 8 * n * p > most:
        say_path(owner, f"dense candidates would each need {n:,} x {p:,} numbers in memory")
        return None
    auto = isinstance(cv, str)
    cv = auto_folds(n, p, stratified) if auto else cv
    if isinstance(cv, Integral) and stratified:
        rarest = int(np.unique(y, return_counts=True)[1].min())
        if rarest < 2:
            say_path(owner, "a class (or the event) has one row, which cannot be held out")
            return None
        cv = min(int(cv), rarest) if cv <= n else cv
    splits = make_folds(cv, y, groups, stratified, seed, auto)
    return splits[:1] if auto and n >= (ONE_PART if stratified else LARGE) else splits


def few_at_a_time(n: int, p: int, seed: Any) -> Splits:
    """Folds of so few rows that more rows than columns are left, or all but one.

    They end early, as all folds of one candidate do (`race.py`).
    """
    size = max(n - p - 1, 1)
    order = check_random_state(seed).permutation(n)
    held = [order[i * size : (i + 1) * size] for i in range(n // size)]
    return [(np.delete(np.arange(n), test), np.sort(test)) for test in held]


def check_folds(cv: Any, *words: str | None) -> None:
    """``cv`` must be an int of at least 2, a splitter, folds, or one of some words."""
    if cv is None or isinstance(cv, str):
        right = cv in words
    elif isinstance(cv, Integral):
        right = int(cv) >= 2
    else:
        right = hasattr(cv, "split") or (isinstance(cv, Iterable) and not _is_empty(cv))
    if not right:
        allowed = ", ".join([*map(repr, words), "an int of at least 2", "a splitter"])
        raise ValueError(
            f"cv is {shown(cv)}, but it must be {allowed} or a list of at least one (train, test)."
        )


def check_groups(groups: ArrayLike | None, X: Any) -> Array | None:
    """One label for each row."""
    if groups is None:
        return None
    labels = column_or_1d(groups)
    check_consistent_length(X, labels)
    missing = sum(label is None or label != label for label in labels.tolist())
    if missing:
        raise ValueError(f"groups is missing in {missing} rows: give every row a label.")
    return labels


def make_folds(
    cv: Any, y: Array, groups: Array | None, stratified: bool, seed: Any, at_most: bool = False
) -> Splits:
    """Training and test rows of every fold.

    An int makes that many shuffled folds, with the classes in equal shares if ``stratified`` and
    every group whole; ``at_most``: fewer if there are fewer rows or groups.

    >>> y, groups = np.zeros(6), np.array([0, 0, 1, 1, 2, 2])
    >>> sorted(len(test) for _, test in make_folds(2, y, groups, False, 0))
    [2, 4]
    """
    n = len(y)
    if isinstance(cv, Integral):
        what = "rows" if groups is None else "groups"
        most = n if groups is None else len(np.unique(groups))
        if most < 2:
            raise ValueError(
                f"there is only one of the {what}, so none is left to fit when it is held out: "
                f"give at least two {what}, or cv=None."
            )
        if int(cv) > most and not at_most:
            raise ValueError(
                f"cv is {cv}, but the number of {what} is {most}, and no fold may be empty: cv "
                f"must be between 2 and {most}."
            )
        kinds: Any = {
            (False, False): KFold,
            (False, True): GroupKFold,
            (True, False): StratifiedKFold,
            (True, True): StratifiedGroupKFold,
        }
        kind = kinds[stratified, groups is not None]
        cv = kind(min(int(cv), most), shuffle=True, random_state=seed)
    with warnings.catch_warnings():  # a group that is split is an error below
        warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
        pairs = list(check_cv(cv, y, classifier=stratified).split(np.zeros(n), y, groups))
    splits = [(_rows(train, n), _rows(test, n)) for train, test in pairs]
    _check(splits, groups)
    return splits


def _rows(given: ArrayLike, n: int) -> Array:
    """Numbers of rows, from numbers or a mask."""
    rows = np.asarray(given)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.size == 0:
        return np.zeros(0, int)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.min() < -n or rows.max() >= n:
        raise ValueError(
            f"cv holds {shown(given)}, but a fold is a pair of one-dimensional arrays of row "
            f"numbers below {n}, or of masks of that length."
        )
    return rows % n


def _check(splits: Splits, groups: Array | None) -> None:
    if not splits:
        raise ValueError("cv gives no fold: give at least one (train, test).")
    for number, (train, test) in enumerate(splits):
        for name, rows in (("training", train), ("test", test)):
            if not len(rows):
                raise ValueError(f"fold {number} of cv has no {name} rows.")
        if len(np.intersect1d(train, test)):
            raise ValueError(
                f"fold {number} of cv has rows that are both in training and test: what is held "
                "out must not be fitted."
            )
        if groups is not None and np.isin(groups[test], groups[train]).any():
            raise ValueError(
                f"fold {number} of cv splits a group: use 'auto', an int, or a splitter for groups "
                "such as GroupKFold."
            )


def _is_empty(cv: Any) -> bool:
    return hasattr(cv, "__len__") and len(cv) == 0
