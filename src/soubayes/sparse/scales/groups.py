"""Which columns share a local scale tau."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Groups(NamedTuple):
    """Columns that share a tau have one number; numbers are 0, 1, ... in order of appearance.

    >>> pair = Groups.of([7, 3, 7])
    >>> pair.total(np.array([1.0, 2.0, 3.0])), pair.each(np.array([5.0, 6.0]))
    (array([4., 2.]), array([5., 6., 5.]))
    """

    number: Array  # (columns,)
    n_groups: int
    alone: bool  # every column has a tau of its own, so that nothing needs to be summed

    @classmethod
    def of(cls, labels: Sequence[object] | Array) -> "Groups":
        """Columns with equal labels share a tau."""
        _, first, number = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
        rank = np.empty(len(first), int)
        rank[np.argsort(first)] = np.arange(len(first))
        return cls(rank[number.ravel()], len(first), len(first) == len(number))

    @classmethod
    def single(cls, count: int) -> "Groups":
        """One column a group, the paper's model."""
        return cls(np.arange(count), count, True)

    @property
    def sizes(self) -> Array:
        """The number of columns of each group."""
        return np.bincount(self.number, minlength=self.n_groups).astype(float)

    def take(self, columns: Array) -> "Groups":
        """Of some columns, given by a mask or ascending indices."""
        inside = self.number[columns]
        return Groups.single(len(inside)) if self.alone else Groups.of(inside)

    def total(self, values: Array) -> Array:
        """The sum over the columns of each group."""
        if self.alone:
            return values
        return np.bincount(self.number, values, self.n_groups)

    def sum(self, values: Array) -> Array:
        """The sum over its group, for every column."""
        return values if self.alone else self.each(self.total(values))

    def mean(self, values: Array) -> Array:
        """The mean over its group, for every column."""
        return values if self.alone else self.each(self.total(values) / self.sizes)

    def most(self, values: Array) -> Array:
        """The largest value of its group, for every column."""
        if self.alone:
            return values
        found = np.full(self.n_groups, -np.inf)
        np.maximum.at(found, self.number, values)
        return self.each(found)

    def first(self, values: Array) -> Array:
        """Values that agree within a group, one a group."""
        if self.alone:
            return values
        found = np.empty(self.n_groups, values.dtype)
        found[self.number[::-1]] = values[::-1]
        return found

    def each(self, values: Array) -> Array:
        """The value of its group for every column."""
        return values if self.alone else values[self.number]

    def largest(self, values: Array, most: int) -> Array:
        """A mask of the columns of the groups of largest value, at most ``most`` columns.

        ``values`` agree within a group; groups of value 0 or less are left out.
        """
        own, size = self.first(values), self.sizes
        order = np.argsort(-own, kind="stable")
        fits = order[np.cumsum(size[order]) <= most]
        chosen = np.zeros(self.n_groups, bool)
        chosen[fits] = own[fits] > 0.0
        return self.each(chosen)
