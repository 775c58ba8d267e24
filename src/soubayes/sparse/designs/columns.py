"""Standardised columns of wide data, a chunk of them at a time; sparse ones are never made dense.

Solvers with more columns than rows need four things of X: X diag(1/w) X', T X for a short T, X v,
and the few columns that stay. T X gives s_j and q_j of every column, which decide whether it can be
active; only columns that can are ever taken.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import blas
from scipy.sparse.csgraph import connected_components

Array = np.ndarray

HELD_BYTES = 2**28  # bytes of standardised columns up to which they are kept
CHUNK_BYTES = 2**25  # bytes of a chunk of them otherwise
SPARSE_BYTES = 2**25  # bytes of a dense copy up to which one is made of scipy-sparse columns
BLOCK_BYTES = 2**23  # bytes of kept columns that are scaled or multiplied at once


class StandardColumns(NamedTuple):
    """X = (raw - mean)/scale with row i times root_i, and perhaps a last column of ``root``.

    ``mean`` None says that ``raw`` is X already. A scale of infinity makes a column zero.
    """

    raw: Any  # (n, p) array or csc_array
    mean: Array | None
    scale: Array | None
    root: Array
    ones: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and columns with the one of the intercept."""
        return self.raw.shape[0], self.raw.shape[1] + self.ones

    def take(self, index: Array) -> "StandardColumns":
        """Some columns (ascending), copied."""
        p = self.raw.shape[1]
        data = index[index < p]
        if len(index) == self.shape[1]:
            return self
        subset = self._replace(raw=self.raw[:, data], ones=len(data) < len(index))
        if self.mean is None or self.scale is None:
            return subset
        subset = subset._replace(mean=self.mean[data], scale=self.scale[data])
        if sp.issparse(self.raw) or subset.raw.size * 8 > HELD_BYTES:
            return subset
        return subset._replace(raw=subset._chunk(slice(None)), mean=None, scale=None)

    def dense(self) -> Array:
        """X whole; the same array whenever it is kept as it is."""
        X = self.raw if self.mean is None else self._chunk(slice(None))
        return np.hstack([X, self.root[:, None]]) if self.ones else X

    def gram(self, w: Array) -> Array:
        """X diag(1/w) X', n x n."""
        p = self.raw.shape[1]
        total = np.zeros((len(self.root), len(self.root)))
        if self.ones:
            total += np.outer(self.root, self.root) / w[-1]
        if sp.issparse(self.raw):
            mean, scale = self.units()
            d = 1.0 / (w[:p] * scale**2)
            inside = (self.raw @ sp.diags_array(d) @ self.raw.T).toarray()
            shift = self.raw @ (d * mean)
            # (X - 1m') D (X - 1m')' without forming X - 1m'
            inside -= shift[:, None] + shift - d @ mean**2
            return total + inside * np.outer(self.root, self.root)
        for chunk in self._chunks():
            X = self._chunk(chunk) * np.sqrt(1.0 / w[:p][chunk])
            total += X @ X.T
        return total

    def through(self, T: Array, lower: bool = False) -> Iterator[tuple[slice, Array]]:
        """T X for T (k, n), perhaps a lower triangle, a chunk of columns at a time."""
        if sp.issparse(self.raw):
            mean, scale = self.units()
            rooted = T * self.root
            total = rooted.sum(axis=1)[:, None]
            for chunk in self._chunks(len(T)):
                product = np.asarray((self.raw[:, chunk].T @ rooted.T).T)
                yield chunk, (product - total * mean[chunk]) / scale[chunk]
        else:
            for chunk in self._chunks():
                yield chunk, _product(T, self._chunk(chunk), lower)
        if self.ones:
            p = self.raw.shape[1]
            yield slice(p, p + 1), (T @ self.root)[:, None]

    def left(self, v: Array) -> Array:
        """v'X."""
        product = np.empty(self.shape[1])
        if sp.issparse(self.raw):
            mean, scale = self.units()
            rooted, p = v * self.root, self.raw.shape[1]
            product[:p] = (self.raw.T @ rooted - rooted.sum() * mean) / scale
            product[p:] = v @ self.root
            return product
        for chunk, columns in self.through(v[None]):
            product[chunk] = columns[0]
        return product

    def times(self, v: Array) -> Array:
        """X v."""
        p = self.raw.shape[1]
        total = v[-1] * self.root if self.ones else np.zeros(len(self.root))
        if sp.issparse(self.raw):
            mean, scale = self.units()
            scaled = v[:p] / scale
            return total + self.root * (self.raw @ scaled - mean @ scaled)
        for chunk in self._chunks():
            total = total + self._chunk(chunk) @ v[:p][chunk]
        return total

    def projected(self, T: Array, v: Array, lower: bool = False) -> tuple[Array, Array]:
        """The squared length of every column of T X, and v' T X; T may be a lower triangle."""
        # from T'T, n x n, where the columns have more nonzeros than that has entries
        if sp.issparse(self.raw) and self.raw.nnz > len(self.root) ** 2:
            return self._sparse_squares(T), self.left(v @ T)
        squares, products = np.empty(self.shape[1]), np.empty(self.shape[1])
        for chunk, columns in self.through(T, lower):
            squares[chunk], products[chunk] = np.einsum("ij,ij->j", columns, columns), v @ columns
        return squares, products

    def norms(self, weight: Array | None = None) -> Array:
        """The squared length of every column, perhaps with more weight on some rows."""
        p, weight = self.raw.shape[1], np.ones(len(self.root)) if weight is None else weight
        squares = np.full(self.shape[1], self.root**2 @ weight)
        if sp.issparse(self.raw):
            mean, scale = self.units()
            # (x - m)^2 over the nonzeros, m^2 over the rest: nothing cancels
            csc, weight = self.raw, weight * self.root**2
            column = np.repeat(np.arange(p), np.diff(csc.indptr))
            inside = weight[csc.indices]
            off = np.square(csc.data - mean[column])
            squares[:p] = np.bincount(column, inside * off, p)
            squares[:p] += mean**2 * (weight.sum() - np.bincount(column, inside, p))
            squares[:p] /= scale**2
            return squares
        for chunk in self._chunks():
            X = self._chunk(chunk)
            squares[:p][chunk] = np.einsum("i,ij,ij->j", weight, X, X)
        return squares

    def _sparse_squares(self, T: Array) -> Array:
        """x_j' T'T x_j from the nonzeros of x_j alone, columns with as many of them together."""
        mean, scale = self.units()
        p, csc = self.raw.shape[1], self.raw
        rooted = T * self.root
        M = rooted.T @ rooted
        row = M.sum(axis=1)
        squares = np.full(self.shape[1], row.sum())
        filled = np.diff(csc.indptr)
        # (x - m1)'M(x - m1) = x'Mx - 2m x'M1 + m^2 1'M1; what follows adds x'Mx
        squares[:p] = mean**2 * row.sum() - 2.0 * mean * (csc.T @ row)
        for count in np.unique(filled[filled > 0]):
            columns = np.flatnonzero(filled == count)
            step = max(1, CHUNK_BYTES // int(8 * count * min(count, len(M))))
            for begin in range(0, len(columns), step):
                some = columns[begin : begin + step]
                place = csc.indptr[some][:, None] + np.arange(count)
                rows, data = csc.indices[place], csc.data[place]
                if count * count > 4 * len(M):  # about as many as a dense column has
                    full = np.zeros((len(some), len(M)))
                    full[np.arange(len(some))[:, None], rows] = data
                    squares[some] += np.einsum("ij,ij->i", full @ M, full)
                else:
                    pairs = M[rows[:, :, None], rows[:, None, :]]
                    squares[some] += np.einsum("ci,cij,cj->c", data, pairs, data)
        squares[:p] = np.maximum(squares[:p], 0.0) / scale**2
        return squares

    def units(self) -> tuple[Array, Array]:
        """Mean and scale of columns that are not standardised yet, as scipy-sparse ones are."""
        assert self.mean is not None
        assert self.scale is not None
        return self.mean, self.scale

    def _chunks(self, rows: int = 0) -> Iterator[slice]:
        n, p = self.raw.shape
        most = BLOCK_BYTES if self.mean is None else CHUNK_BYTES
        step = max(1, most // (8 * max(n, rows, 1)))
        for begin in range(0, p, step):
            yield slice(begin, min(begin + step, p))

    def _chunk(self, chunk: slice) -> Array:
        raw = self.raw[:, chunk]
        if self.mean is None or self.scale is None:
            return raw
        raw = raw.toarray() if sp.issparse(raw) else np.asarray(raw, float)
        columns = raw - self.mean[chunk]
        columns *= self.root[:, None]
        columns /= self.scale[chunk]
        return columns


def _product(T: Array, X: Array, lower: bool) -> Array:
    """T X; half the work where T is a lower triangle."""
    if not lower:
        return T @ X
    turned = np.array(X, order="C").T  # X'T': BLAS reads by columns
    return blas.dtrmm(1.0, T, turned, side=1, lower=1, trans_a=1, overwrite_b=1).T


def standard_columns(
    X: Any, mean: Array, scale: Array, root: Array | None = None, ones: bool = False
) -> StandardColumns:
    """Columns to be standardised: at once if that is small, else when they are looked at."""
    root = np.ones(X.shape[0]) if root is None else root
    if sp.issparse(X):
        return StandardColumns(sp.csc_array(X), mean, scale, root, ones)
    columns = StandardColumns(X, mean, scale, root, ones)
    if X.size * 8 > HELD_BYTES:
        return columns
    return StandardColumns(columns._chunk(slice(None)), None, None, root, ones)


def weighted_moments(X: Any, share: Array, centre: bool) -> tuple[Array, Array]:
    """Mean and mean square about it of every column, by rows of weight ``share``."""
    if not sp.issparse(X):
        mean = share @ X if centre else np.zeros(X.shape[1])
        square = np.empty(X.shape[1])
        for chunk in StandardColumns(X, mean, None, share)._chunks():
            off = np.asarray(X[:, chunk], float) - mean[chunk]
            square[chunk] = share @ np.multiply(off, off, out=off)
        return mean, square
    csc = sp.csc_array(X)
    mean = np.asarray(csc.T @ share) if centre else np.zeros(X.shape[1])
    return mean, StandardColumns(csc, mean, np.ones_like(mean), np.sqrt(share)).norms()


# 1 - |correlation| of copies. One stands for the other in a minimum of J, and a signal in their
# difference would not be found from there (docs/development/solver.md).
EQUAL = 1e-8


def first_in_columns(X: StandardColumns) -> Array:
    """For every column the first that it is a copy of, without X'X; a column of zeros has none.

    Products with random vectors tell how far apart columns are. In the order of the first product
    every column is linked with the next one that is a copy of it.
    """
    root = np.sqrt(X.norms())
    T = np.random.default_rng(0).standard_normal((8, len(X.root)))
    seen = np.hstack([columns for _, columns in X.through(T)]) / np.where(root > 0.0, root, 1.0)
    seen *= np.where(seen[0] < 0.0, -1.0, 1.0)
    order = np.argsort(seen[0], kind="stable")
    order = order[root[order] > 0.0]
    seen, here, shift, links = seen[:, order], np.arange(len(order)), 1, [np.zeros((2, 0), int)]
    while len(here := here[here + shift < len(order)]):
        # the sd of a product is the length of the difference, sqrt(2 EQUAL): six of them
        here = here[seen[0, here + shift] - seen[0, here] <= 6.0 * np.sqrt(2.0 * EQUAL)]
        near = np.square(seen[:, here + shift] - seen[:, here]).mean(axis=0) < 12.0 * EQUAL
        near[near] = _are_copies(X, order[here[near]], order[here[near] + shift], root)
        links.append(order[np.stack([here[near], here[near] + shift])])
        here, shift = here[~near], shift + 1
    link = np.hstack(links)
    graph = sp.coo_array((np.ones(link.shape[1]), tuple(link)), shape=(len(root), len(root)))
    _, first, label = np.unique(
        connected_components(graph, directed=False)[1], return_index=True, return_inverse=True
    )
    return first[label]


def _are_copies(X: StandardColumns, one: Array, two: Array, root: Array) -> Array:
    """Whether pairs of columns are copies, from their entries."""
    equal, step = np.zeros(len(one), bool), max(1, CHUNK_BYTES // (64 * len(X.root)))
    for some in (slice(begin, begin + step) for begin in range(0, len(one), step)):
        both = np.union1d(one[some], two[some])
        Z = X.take(both).dense()
        i, j = np.searchsorted(both, one[some]), np.searchsorted(both, two[some])
        product = np.abs(np.einsum("ij,ij->j", Z[:, i], Z[:, j]))
        equal[some] = product >= (1.0 - EQUAL) * root[one[some]] * root[two[some]]
    return equal
