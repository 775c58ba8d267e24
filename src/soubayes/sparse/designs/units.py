"""Repeated units with many levels: their columns in blocks, and rows that stay sparse.

Two units share no row, so the information about their effects is block-diagonal: a number for an
intercept, 2 x 2 with a slope. The effects are eliminated from every linear system by a Schur
complement, and no matrix has a side as long as the number of units.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

Array = np.ndarray


class UnitColumns(NamedTuple):
    """Which columns are of a unit; the others are ``fixed``."""

    fixed: Array
    slots: Array  # (units, s) the columns of every unit; -1: it has fewer

    @classmethod
    def of(cls, unit: Array) -> "UnitColumns":
        """From the number of the unit of every column, -1 of the others.

        >>> UnitColumns.of(np.array([-1, 0, 1, 0])).slots
        array([[ 1,  3],
               [ 2, -1]])
        """
        columns = np.flatnonzero(unit >= 0)
        columns = columns[np.argsort(unit[columns], kind="stable")]
        _, begin, place, count = np.unique(
            unit[columns], return_index=True, return_inverse=True, return_counts=True
        )
        slots = np.full((len(count), int(count.max(initial=1))), -1)
        slots[place, np.arange(len(columns)) - begin[place]] = columns
        return cls(np.flatnonzero(unit < 0), slots)

    @property
    def present(self) -> Array:
        """Which slots have a column."""
        return self.slots >= 0

    @property
    def size(self) -> int:
        """The number of columns."""
        return len(self.fixed) + int(self.present.sum())

    @property
    def unit(self) -> Array:
        """The number of the unit of every column, -1 of the fixed ones."""
        unit = np.full(self.size, -1)
        unit[self.slots[self.present]] = np.nonzero(self.present)[0]
        return unit

    def each(self, values: Array) -> Array:
        """(units, s) the values of the columns, 0 where there is none."""
        return np.where(self.present, values[self.slots], 0.0)

    def joined(self, fixed: Array, units: Array) -> Array:
        """The values of all columns, from those of the fixed ones and of the slots."""
        values = np.empty(self.size)
        values[self.fixed] = fixed
        values[self.slots[self.present]] = units[self.present]
        return values


class CentredRows:
    """Rows of a sparse X less the means of the columns, never made dense; perhaps a 1 at the end.

    >>> rows = CentredRows(sp.csr_array(np.eye(2)), np.array([0.5, 0.0]), ones=True)
    >>> rows.times(np.array([[1.0, 2.0, 3.0]]))
    array([[3.5, 4.5]])
    """

    def __init__(self, X: Any, mean: Array, ones: bool) -> None:
        self.X, self.mean, self.ones = sp.csr_array(X), mean, ones

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def times(self, vectors: Array) -> Array:
        """(vectors, rows) linear combinations."""
        p = len(self.mean)
        constant = self.ones * vectors[:, p:].sum(axis=1) - vectors[:, :p] @ self.mean
        return np.asarray((self.X @ vectors[:, :p].T).T) + constant[:, None]

    def dense(self, size: int) -> Array:
        """As an array of ``size`` columns, those that X lacks being 0."""
        rows = np.zeros((len(self), size))
        rows[:, : len(self.mean)] = self.X.toarray() - self.mean
        return rows

    @classmethod
    def of(cls, rows: "Array | CentredRows") -> "CentredRows":
        """Of rows that may be dense."""
        if isinstance(rows, CentredRows):
            return rows
        return cls(sp.csr_array(rows), np.zeros(rows.shape[1]), ones=False)
