"""Rows that a likelihood reads: where they live, and what one pass over them says about q."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from soubayes.sparse.designs.columns import SPARSE_BYTES, StandardColumns, standard_columns
from soubayes.sparse.designs.standardise import ColumnUnits, row_blocks, standardise_block
from soubayes.sparse.likelihoods.base import Likelihood, RowTerms, times_rows, weighted_terms
from soubayes.sparse.rows import coordinates

Array = np.ndarray


class RowDesign(Protocol):
    """Standardised columns, then a column of ones if there is an intercept, read row by row."""

    @property
    def n_rows(self) -> int:
        """n."""

    @property
    def n_columns(self) -> int:
        """The columns in use, with the intercept."""

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64, in which Gram matrices of a block of rows are formed."""

    def take(self, columns: Array) -> "RowDesign":
        """Some columns (ascending)."""

    def total(self, work: Callable[..., tuple[Any, ...]], y: Any, weight: Any) -> Any:
        """One pass over the rows: work(Z, y, weight) of every block, summed entry by entry.

        Solvers see the rows through this alone, so they may be anywhere.
        """

    def by_products(self) -> StandardColumns | None:
        """The same of a scipy-sparse X so large that no dense copy is made of it; else None."""

    def by_columns(self, rows: float = 1.0) -> StandardColumns | None:
        """The same data read column by column, where they are in memory and wide; else None.

        Wide are less than ``rows`` rows for each column.
        """


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

    def by_products(self) -> StandardColumns | None:
        large = self._bytes > SPARSE_BYTES and self.columns is None
        if not large or self.mean is None or self.divisor is None:
            return None
        root = np.ones(self.n_rows)
        return standard_columns(self.matrix, self.mean, self.divisor, root, self.intercept)

    @property
    def _bytes(self) -> int:
        return 8 * self.n_rows * self.n_columns

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
        units = self.mean[inside], self.divisor[inside]
        subset = RowsInMemory(self.matrix[:, inside], intercept, *units)
        if subset._bytes > SPARSE_BYTES or self.dtype != np.float64:
            return subset
        # solvers pass over a few columns many times
        return RowsInMemory(standardise_block(subset.matrix, *units, ones=intercept), False)

    def total(self, work: Callable[..., tuple[Any, ...]], y: Array, weight: Array) -> Any:
        return add_up(work(Z, y[rows], weight[rows]) for rows, Z in self.blocks())

    def by_columns(self, rows: float = 1.0) -> StandardColumns | None:
        if rows * self.n_columns <= self.n_rows or self.columns is not None:
            return None
        return self.standard()

    def standard(self) -> StandardColumns:
        """All columns of the matrix, whatever its shape."""
        p, root = self.matrix.shape[1], np.ones(self.n_rows)
        if self.mean is not None and self.divisor is not None:
            return standard_columns(self.matrix, self.mean, self.divisor, root, self.intercept)
        if self.dtype == np.float64:
            return StandardColumns(self.matrix, None, None, root, self.intercept)
        return standard_columns(self.matrix, np.zeros(p), np.ones(p), root, self.intercept)

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """The rows with their standardised columns, a block at a time."""
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
    tuples = iter(parts)
    total = list(next(tuples))
    for terms in tuples:
        for i, term in enumerate(terms):
            total[i] += term
    return tuple(total)


class Pass(NamedTuple):
    """What one pass over the rows says about q(alpha, beta) = N(mean, root root')."""

    loss: float  # E[loss], summed with the weights
    score: Array  # (k,) minus its gradient in the mean
    information: Array  # (k, k) H, twice its gradient in the covariance
    curvature: Array  # (k, k) W, its second derivative in the mean
    # H where the loss is so far from convex that this is not positive definite; ``information`` is
    # then that of the rows of positive curvature, an upper bound that a step can be made with
    indefinite: Array | None = None

    @property
    def slope(self) -> Array:
        """H, twice the gradient of the loss in the covariance."""
        return self.information if self.indefinite is None else self.indefinite


class RowProblem(NamedTuple):
    """Rows with their likelihood; all solvers of such likelihoods take one of these.

    The columns of a problem are those of X, d of each where the likelihood has d predictors a row
    (`coordinates.py`).
    """

    likelihood: Any  # a `Likelihood`
    design: RowDesign
    y: Any  # (n,), or what the design takes for y
    weight: Any  # (n,); None: known to the design

    @property
    def n_columns(self) -> int:
        """Coefficients, the intercepts among them."""
        return self.design.n_columns * self.likelihood.coordinates

    def take(self, columns: Array) -> "RowProblem":
        """The same rows with some columns (ascending), all coordinates of each."""
        d = self.likelihood.coordinates
        inside = coordinates.columns_of(columns, d) if self.likelihood.several else columns
        return self._replace(design=self.design.take(inside))

    def by_columns(self, rows: float = 1.0) -> StandardColumns | None:
        """The same data read by columns (`RowDesign`), if a row has one predictor."""
        return None if self.likelihood.several else self.design.by_columns(rows)

    def by_products(self) -> StandardColumns | None:
        """Likewise."""
        return None if self.likelihood.several else self.design.by_products()

    def total(self, work: Any) -> Any:
        """work(Z, y, weight) of every block of rows, summed entry by entry."""
        return self.design.total(work, self.y, self.weight)

    def read(self, work: Any, mean: Array, root: Array, inside: Array | None = None) -> Any:
        """The sum of work(Z, terms) with the weighted `RowTerms` at q = N(mean, root root').

        ``root`` is upper triangular. q is that of the columns ``inside``, of all if None.
        """
        d = self.likelihood.coordinates if self.likelihood.several else None
        if inside is not None and d:
            inside = coordinates.columns_of(inside, d)
        q = _Predictor(inside, mean, np.asfortranarray(root, dtype=self.design.dtype), d)
        return self.total(partial(_read_block, work=work, likelihood=self.likelihood, q=q))

    def sweep(self, mean: Array, root: Array, *, curvature: bool = True) -> Pass:
        """One pass at q = N(mean, root root'); J's share of the nuisance parameters is a loss."""
        work = partial(_sweep_block, curvature=curvature)
        loss, score, H, W, negative = self.read(work, mean, root)
        loss += self.likelihood.confidence * self.likelihood.kl
        # H must be positive definite for a covariance to exist
        if negative and lapack.dpotrf(H)[1] != 0:
            return Pass(loss, score, W, W, H)
        return Pass(loss, score, H, W)

    def one_out(
        self, active: Array, columns: Array, mean: Array, root: Array
    ) -> tuple[Array, Array, Array]:
        """X_a'B X_j, x_j'B x_j and x_j'score of columns j outside q of the ``active`` ones."""
        both = np.union1d(active, columns)
        inside, outside = np.searchsorted(both, active), np.searchsorted(both, columns)
        if self.likelihood.several:
            d = self.likelihood.coordinates
            one, other = (
                coordinates.columns_of(columns_of_one, d) for columns_of_one in (inside, outside)
            )
            work = partial(_one_out_coordinates, inside=one, outside=other)
        else:
            work = partial(_one_out_block, inside=inside, outside=outside)
        return self.take(both).read(work, mean, root, inside)

    def updated(self, mean: Array, root: Array) -> "RowProblem":
        """With the best q of the nuisance parameters at this q(alpha, beta)."""
        q = _Predictor(None, mean, np.asfortranarray(root, dtype=self.design.dtype))
        work = partial(_statistics_block, likelihood=self.likelihood, q=q)
        return self._replace(likelihood=self.likelihood.updated(tuple(self.total(work))))

    def updated_at(self, eta: Array, variance: Array) -> "RowProblem":
        """The same from the predictors of all rows, where these are in memory."""
        statistics = self.likelihood.statistics(eta, variance, self.y)
        totals = tuple(
            float(self.weight @ np.broadcast_to(values, len(eta))) for values in statistics
        )
        return self._replace(likelihood=self.likelihood.updated(totals))

    def plug_in(self, mean: Array) -> tuple[float, Array]:
        """The loss at known coefficients, and its gradient."""
        value, slope = self.total(partial(_plug_in_block, likelihood=self.likelihood, mean=mean))
        return float(value), slope


class _Predictor(NamedTuple):
    """q of the coefficients, which gives every row the mean and the variance of its predictor."""

    columns: Array | None  # of the block; None: all
    mean: Array
    root: Array
    d: int | None = None  # the number of predictors a row, where they have an axis

    def of(self, Z: Array) -> tuple[Array, Array]:
        Z = Z if self.columns is None else Z[:, self.columns]
        if self.d:
            return coordinates.predictors(Z, self.mean, self.root, self.d)
        trmm = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
        eta = Z.astype(float, copy=False) @ self.mean
        # x'Sx = |R'x|^2 with S = RR'
        spread = trmm(1.0, self.root, Z.T, trans_a=1)  # (k, rows)
        return eta, np.einsum("ij,ij->j", spread, spread).astype(float)


def weighted_gram(Z: Array, weight: Array) -> Array:
    """Z' diag(weight) Z, or with a matrix for each row the Gram matrix of all coordinates."""
    if weight.ndim == 3:
        return coordinates.gram(Z, weight)
    if (weight < 0.0).any():
        return ((Z * weight.astype(Z.dtype)[:, None]).T @ Z).astype(float, copy=False)
    # NumPy sees that both factors are one array and uses syrk
    scaled = Z * np.sqrt(weight).astype(Z.dtype)[:, None]
    return (scaled.T @ scaled).astype(float, copy=False)


def gram_of(design: RowDesign, weight: Array) -> Array:
    """X' diag(weight) X over all columns."""
    return design.total(_gram_block, weight, weight)[0]


def _gram_block(Z: Array, _: Array, weight: Array) -> tuple[Array]:
    return (weighted_gram(Z, weight),)


def _read_block(
    Z: Array, y: Array, weight: Array, work: Any, likelihood: Likelihood, q: _Predictor
) -> Any:
    return work(Z, weighted_terms(likelihood, *q.of(Z), y, weight))


def _statistics_block(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, q: _Predictor
) -> tuple[float, ...]:
    parts = likelihood.statistics(*q.of(Z), y)
    return tuple(float(weight @ np.broadcast_to(values, weight.shape)) for values in parts)


def _sweep_block(
    Z: Array, terms: RowTerms, curvature: bool
) -> tuple[float, Array, Array, Array, int]:
    # H = X'BX, B twice the slope of the expected loss in the variance of a row's predictor
    H = weighted_gram(Z, terms.information)
    # of one predictor: rows with several have losses that are convex
    negative = int(np.count_nonzero(terms.curvature < 0.0)) if terms.curvature.ndim == 1 else 0
    if negative:
        # rows where the loss bends down would send a Newton step uphill: without them W is larger,
        # so that steps are shorter and lead down
        W = weighted_gram(Z, np.maximum(terms.curvature, 0.0))
    elif terms.curvature is terms.information:
        W = H.copy()
    else:
        W = weighted_gram(Z, terms.curvature) if curvature else np.zeros_like(H)
    # in float64 whatever the rows are kept in: the score vanishes at the minimum
    score = (Z.T.astype(float, copy=False) @ terms.score).ravel()
    return float(terms.loss.sum()), score, H, W, negative


def _one_out_block(Z: Array, terms: RowTerms, inside: Array, outside: Array) -> tuple[Array, ...]:
    information = terms.information.astype(Z.dtype)
    cross = (Z[:, inside] * information[:, None]).T @ Z
    squares, q = information @ np.square(Z), terms.score @ Z.astype(float, copy=False)
    return tuple(values[..., outside].astype(float, copy=False) for values in (cross, squares, q))


def _one_out_coordinates(
    Z: Array, terms: RowTerms, inside: Array, outside: Array
) -> tuple[Array, ...]:
    cross, squares = coordinates.one_out(Z, terms.information, inside, outside)
    return cross, squares, (Z[:, outside].T @ terms.score).ravel()


def _plug_in_block(
    Z: Array, y: Array, weight: Array, likelihood: Any, mean: Array
) -> tuple[float, Array]:
    coefficients = mean.reshape(-1, likelihood.coordinates) if likelihood.several else mean
    eta = (Z @ coefficients.astype(Z.dtype)).astype(float)
    with np.errstate(over="ignore"):
        loss, slope = likelihood.plug_in(eta, y)
    total = Z.T @ times_rows(weight, slope).astype(Z.dtype)
    return float(weight @ loss), total.ravel().astype(float, copy=False)
