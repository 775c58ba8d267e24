"""Columns that equal an earlier one, their sign apart: they say nothing that it does not say.

Standardised columns are equal when the raw ones are affine functions of each other: a unit given
twice, or an indicator and its complement.
"""

from functools import partial
from typing import Any

import numpy as np

from soubayes.sparse.designs.base import RowDesign
from soubayes.sparse.designs.columns import StandardColumns

Array = np.ndarray

EQUAL = 1e-13  # 1 - |correlation| that the rounding of a sum over rows explains


def first_in_gram(gram: Array, equal: float = EQUAL) -> Array:
    """For every column the first that equals it, from X'X; a column of zeros equals none.

    >>> X = np.array([[1.0, 2.0, -3.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    >>> first_in_gram(X.T @ X)
    array([0, 1, 0, 3])
    """
    root = np.sqrt(np.diag(gram))
    same = np.abs(gram) >= (1.0 - equal) * root[:, None] * root
    first = np.argmax(same, axis=0)
    return np.where(root > 0.0, first, np.arange(len(root)))


def first_in_columns(X: StandardColumns) -> Array:
    """The same from the columns, without X'X.

    Equal columns have equal products with a random vector. Those whose products agree are compared
    entry by entry.
    """
    seen = np.abs(X.left(np.random.default_rng(0).standard_normal(len(X.root))))
    order = np.argsort(seen, kind="stable")
    near = np.diff(seen[order]) <= 1e-10 * np.linalg.norm(X.root)
    first = np.arange(len(seen))
    ends = np.flatnonzero(np.diff(np.concatenate([[False], near, [False]]).astype(int)))
    for begin, end in ends.reshape(-1, 2):
        group = np.sort(order[begin : end + 1])
        part = X.take(group)
        first[group] = group[_first_of_few(part, np.sqrt(part.norms()))]
    return first


def first_in_rows(design: RowDesign, gram: Array, y: Any, weight: Any) -> Array:
    """The same from X'X and rows, which tell equal columns where X'X was summed in float32."""
    if design.dtype == np.float64:
        return first_in_gram(gram)
    first = first_in_gram(gram, 1e-5)
    copies = np.flatnonzero(first != np.arange(len(first)))
    if not len(copies):
        return first
    both = np.union1d(copies, first[copies])
    one, two = np.searchsorted(both, first[copies]), np.searchsorted(both, copies)
    sign = np.sign(gram[first[copies], copies])
    work = partial(_differences, one=one, two=two, sign=sign)
    apart = design.take(both).total(work, y, weight)[0]
    first[copies] = np.where(apart <= EQUAL * design.n_rows, first[copies], copies)
    return first


def _differences(
    Z: Array, y: Array, weight: Array, one: Array, two: Array, sign: Array
) -> tuple[Array]:
    """Squared distances of pairs of columns."""
    Z = Z.astype(float, copy=False)
    return (np.square(Z[:, one] - sign * Z[:, two]).sum(axis=0),)


def _first_of_few(X: StandardColumns, root: Array) -> Array:
    """By products with one column after the other, each of which finds all of its copies."""
    first, left = np.arange(len(root)), root > 0.0
    while left.any():
        j = int(np.argmax(left))
        product = np.abs(X.left(X.take(np.array([j])).dense()[:, 0]))
        equal = left & (product >= (1.0 - EQUAL) * root * root[j])
        equal[j] = True
        first[equal], left[equal] = j, False
    return first
