"""Standardised rows in memory, for likelihoods that are read row by row."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from soubayes.sparse.designs.columns import StandardColumns, standard_columns
from soubayes.sparse.designs.standardise import ColumnUnits, row_blocks, standardise_block

Array = np.ndarray


class RowsInMemory(NamedTuple):
    """(X - mean)/divisor, then a column of ones if there is an intercept; a `RowDesign`.

    A dense ``matrix`` is already standardised and may hold the ones. A sparse one stays as it is
    and is standardised a block of rows at a time. Gram matrices are summed in the matrix's dtype
    within a block of rows and in float64 over the blocks, so float32 data are never copied to
    float64 whole.
    """

    matrix: Array | sparse.csr_array  # (n, p)
    intercept: bool = True  # a column of ones is added
    mean: Array | None = None  # (p,), only of a sparse matrix
    divisor: Array | None = None
    columns: Array | None = None  # the columns of the matrix in use; None means all

    @property
    def n_rows(self) -> int:
        return self.matrix.shape[0]

    @property
    def n_columns(self) -> int:
        used = self.matrix.shape[1] if self.columns is None else len(self.columns)
        return used + self.intercept

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    def take(self, columns: Array) -> "RowsInMemory":
        """Some columns (ascending), copied only when they are few."""
        p = self.n_columns - self.intercept
        data = columns[columns < p]
        intercept = bool(self.intercept and len(data) < len(columns))
        if len(data) == p:
            return self._replace(intercept=intercept)
        inside = data if self.columns is None else self.columns[data]
        if len(inside) > 0.4 * self.matrix.shape[1]:
            return self._replace(intercept=intercept, columns=inside)
        if self.mean is None:
            return RowsInMemory(np.take(self.matrix, inside, axis=1), intercept)
        assert self.divisor is not None
        return RowsInMemory(
            self.matrix[:, inside], intercept, self.mean[inside], self.divisor[inside]
        )

    def total(self, work: Callable[..., tuple[Any, ...]], y: Array, weight: Array) -> Any:
        return add_up(work(Z, y[rows], weight[rows]) for rows, Z in self._blocks())

    def by_columns(self) -> StandardColumns | None:
        if self.n_columns <= self.n_rows or self.columns is not None:
            return None
        p, root = self.matrix.shape[1], np.ones(self.n_rows)
        if self.mean is not None and self.divisor is not None:
            return standard_columns(self.matrix, self.mean, self.divisor, root, self.intercept)
        if self.dtype == np.float64:
            return StandardColumns(self.matrix, None, None, root, self.intercept)
        return standard_columns(self.matrix, np.zeros(p), np.ones(p), root, self.intercept)

    def _blocks(self) -> Iterator[tuple[slice, Array]]:
        for rows in row_blocks(self.n_rows):
            block = self.matrix[rows]
            if self.columns is not None:
                block = block[:, self.columns]
            if self.mean is not None and self.divisor is not None:
                use = slice(None) if self.columns is None else self.columns
                units = self.mean[use], self.divisor[use]
                block = standardise_block(block, *units, ones=self.intercept, dtype=self.dtype)
            elif self.intercept:
                block = np.hstack([block, np.ones((len(block), 1), self.dtype)])
            yield rows, block


def rows_in_memory(X: Any, units: ColumnUnits, order: Array, intercept: bool) -> RowsInMemory:
    """The design of these columns in this order; a dense X is copied once, in its own dtype."""
    if sparse.issparse(X):
        matrix = sparse.csr_array(X)
        moved = not np.array_equal(order, np.arange(len(order)))
        matrix = matrix[:, order] if moved else matrix
        return RowsInMemory(matrix, intercept, units.mean[order], units.divisor[order])
    matrix = np.empty((X.shape[0], X.shape[1] + intercept), X.dtype)
    mean, divisor = units.mean[order], units.divisor[order]
    for rows in row_blocks(X.shape[0]):
        block = X[rows] if np.array_equal(order, np.arange(len(order))) else X[rows][:, order]
        matrix[rows] = standardise_block(block, mean, divisor, ones=intercept, dtype=X.dtype)
    return RowsInMemory(matrix, intercept=False)


def add_up(parts: Iterable[tuple[Any, ...]]) -> Any:
    """The entrywise sum of tuples of numbers and arrays; the first tuple's arrays are reused."""
    each = iter(parts)
    total = list(next(each))
    for part in each:
        for i, term in enumerate(part):
            total[i] += term
    return tuple(total)
