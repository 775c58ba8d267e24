"""The logistic loss under the Jaakkola-Jordan bound, and the passes over the rows that need it.

For one row whose linear predictor has mean eta and variance v under q, and xi^2 = eta^2 + v (the
optimal xi, supplement A.3), the bound on E[-log p(y | x, alpha, beta)] is

    log(2 cosh(xi/2)) - (y - 1/2) eta.

It is minus the paper's (y - 1/2) eta - xi/2 + log sigma(xi) at that xi. The printed objective of
supplement C.4.3 has +xi/2 and (1 - y) log(1 - sigma(xi)), which is wrong for y = 1.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import blas
from scipy.special import expit

from soubayes.sparse.wide_columns import WideColumns, wide_columns

Array = np.ndarray
ROWS = 4096  # rows of a block: the working memory of a pass


class Design(NamedTuple):
    """Standardised columns (X - mean)/scale, then a column of ones if there is an intercept.

    A dense ``matrix`` is already standardised. A sparse one stays as it is and is standardised
    a block of rows at a time. Gram matrices are summed in the matrix's dtype within a block of
    rows and in float64 over the blocks, so float32 data are never copied to float64 whole.
    """

    matrix: Array | sparse.csr_array  # (n, p)
    intercept: bool = True
    mean: Array | None = None  # (p,), only of a sparse matrix
    scale: Array | None = None
    columns: Array | None = None  # the columns of the matrix in use; None means all

    @property
    def n_rows(self) -> int:
        """n."""
        return self.matrix.shape[0]

    @property
    def n_columns(self) -> int:
        """The columns in use, with the intercept."""
        used = self.matrix.shape[1] if self.columns is None else len(self.columns)
        return used + self.intercept

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return self.matrix.dtype

    def take(self, columns: Array) -> "Design":
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
            return Design(np.take(self.matrix, inside, axis=1), intercept)
        assert self.scale is not None
        return Design(self.matrix[:, inside], intercept, self.mean[inside], self.scale[inside])

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Blocks of rows of the columns in use, as (rows, block)."""
        for start in range(0, self.n_rows, ROWS):
            rows = slice(start, min(start + ROWS, self.n_rows))
            block = self.matrix[rows]
            if self.columns is not None:
                block = block[:, self.columns]
            if self.mean is not None and self.scale is not None:
                use = slice(None) if self.columns is None else self.columns
                block = (sparse.csr_array(block).toarray() - self.mean[use]) / self.scale[use]
                block = block.astype(self.dtype, copy=False)
            if self.intercept:
                block = np.hstack([block, np.ones((len(block), 1), self.dtype)])
            yield rows, block

    def wide(self) -> WideColumns:
        """The same columns for solvers that go by columns."""
        assert self.columns is None
        p, root = self.matrix.shape[1], np.ones(self.n_rows)
        if self.mean is None or self.scale is None:
            if self.dtype == np.float64:
                return WideColumns(self.matrix, None, None, root, self.intercept)
            return wide_columns(self.matrix, np.zeros(p), np.ones(p), root, self.intercept)
        return wide_columns(self.matrix, self.mean, self.scale, root, self.intercept)

    def total(self, work: Callable[..., tuple[Any, ...]], y: Array, weight: Array) -> Any:
        """One pass over the rows: work(Z, y, weight) of every block, summed entry by entry.

        Solvers see the rows through this alone, so that they may be anywhere (`streams.py`).
        """
        return add_up(work(Z, y[rows], weight[rows]) for rows, Z in self.blocks())


class Pass(NamedTuple):
    """What one pass over the rows says about q(alpha, beta) = N(mean, root root')."""

    loss: float  # the bound on E[loss], summed with the weights
    score: Array  # (k,) minus its gradient in the mean
    bound: Array  # (k, k) H = 2 X' Lambda X, its curvature in the mean at fixed xi
    curvature: Array  # (k, k) W, its curvature with xi following the mean


def sweep(
    design: Design, y: Array, weight: Array, mean: Array, root: Array, *, curvature: bool = True
) -> Pass:
    """One pass over the rows at q = N(mean, root root'); ``root`` is upper triangular, y is 0/1."""
    work = partial(_sweep_block, mean=mean, root=_as_upper(root, design), curvature=curvature)
    return Pass(*design.total(work, y, weight))


def _sweep_block(
    Z: Array, y: Array, weight: Array, mean: Array, root: Array, curvature: bool
) -> tuple[float, Array, Array, Array]:
    terms = block_terms(Z, y, mean, root)
    H = gram(Z, weight * terms.bound)
    return (
        float(weight @ terms.loss),
        Z.T.astype(float, copy=False) @ (weight * terms.score),
        H,
        gram(Z, weight * terms.curvature) if curvature else np.zeros_like(H),
    )


class RowTerms(NamedTuple):
    """The bound at each row: its value, minus its slope in eta, and its two curvatures."""

    loss: Array
    score: Array
    bound: Array
    curvature: Array


def block_terms(Z: Array, y: Array, mean: Array, root: Array) -> RowTerms:
    """The bound on a block of rows at q = N(mean, root root')."""
    trmm = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
    eta = Z.astype(float, copy=False) @ mean
    spread = trmm(1.0, root, Z.T, trans_a=1)  # (k, rows)
    return row_terms(eta, np.einsum("ij,ij->j", spread, spread).astype(float), y)


def row_terms(eta: Array, variance: Array, y: Array) -> RowTerms:
    """The bound at the optimal xi, elementwise.

    With f = eta^2/xi^2 its second derivative in eta is 2 lambda(xi) (1 - f) + sigma'(xi) f.

    >>> row_terms(np.array([0.0]), np.array([0.0]), np.array([1.0])).bound
    array([0.25])
    """
    xi = np.hypot(eta, np.sqrt(variance))
    bound = 2.0 * jj_lambda(xi)
    sign = y - 0.5
    loss = 0.5 * xi + np.log1p(np.exp(-xi)) - sign * eta
    share = np.divide(eta * eta, xi * xi, out=np.zeros_like(xi), where=xi > 0)
    p = expit(-xi)
    return RowTerms(loss, sign - bound * eta, bound, bound + share * (p * (1.0 - p) - bound))


def jj_lambda(xi: Array) -> Array:
    """lambda(xi) = (sigma(xi) - 1/2) / (2 xi) = tanh(xi/2) / (4 xi) for xi >= 0, 1/8 at 0."""
    small = xi < 1e-4  # where the series' next term is below 1e-18
    safe = np.where(small, 1.0, xi)
    return np.where(small, 0.125 - xi * xi / 96.0, np.tanh(safe / 2.0) / (4.0 * safe))


def gram(Z: Array, weight: Array) -> Array:
    """Z' diag(weight) Z; NumPy sees that both factors are one array and uses syrk."""
    scaled = Z * np.sqrt(weight).astype(Z.dtype)[:, None]
    return (scaled.T @ scaled).astype(float, copy=False)


def add_up(parts: Iterable[tuple[Any, ...]]) -> Any:
    """The entrywise sum of tuples of numbers and arrays; the first tuple's arrays are reused."""
    each = iter(parts)
    total = list(next(each))
    for part in each:
        for i, term in enumerate(part):
            total[i] += term
    return tuple(total)


def _as_upper(root: Array, design: Design) -> Array:
    return np.asfortranarray(root, dtype=design.dtype)
