"""Folds: from the parameter ``cv`` and groups of rows to checked training and test rows."""

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    check_cv,
)
from sklearn.utils import check_consistent_length, column_or_1d

from soubayes.confidence import shown

Array = np.ndarray
Splits = list[tuple[Array, Array]]


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
    """One label a row."""
    if groups is None:
        return None
    labels = column_or_1d(groups)
    check_consistent_length(X, labels)
    return labels


def make_folds(
    cv: Any, y: Array, groups: Array | None, stratified: bool, seed: Any, at_most: bool = False
) -> Splits:
    """Training and test rows of every fold.

    An int makes that many shuffled folds, with the classes in equal shares if ``stratified`` and
    every group whole; ``at_most``: fewer if there are fewer rows or groups.

    >>> y, groups = np.zeros(6), np.array([0, 0, 1, 1, 2, 2])
    >>> [test.tolist() for _, test in make_folds(2, y, groups, False, 0)]
    [[2, 3], [0, 1, 4, 5]]
    """
    n = len(y)
    if isinstance(cv, Integral):
        what = "rows" if groups is None else "groups"
        most = n if groups is None else len(np.unique(groups))
        if most < 2 or (int(cv) > most and not at_most):
            raise ValueError(
                f"cv is {cv}, but there {'is' if most == 1 else 'are'} {most} of {what} to hold "
                f"out: cv must be at most the number of {what}, and at least 2."
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
        found = list(check_cv(cv, y, classifier=stratified).split(np.zeros(n), y, groups))
    splits = [(_rows(train, n), _rows(test, n)) for train, test in found]
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
