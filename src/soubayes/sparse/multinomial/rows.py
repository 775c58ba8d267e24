"""Rows of several classes: every column has a coefficient for each of the c - 1 coordinates.

To the solvers of `newton.py` and `path.py` these are (c - 1) p columns, of which those that belong
to one column of X are neighbours and share a tau. One pass gives the score, and the information
with all terms between the coordinates.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from soubayes.sparse.glm.rows import Pass
from soubayes.sparse.multinomial.softmax import Softmax, spread_root

Array = np.ndarray

_NUMBERS = 2**22  # in what is made of a block of rows
_PAIRS = 120  # pairs of columns for each pair of coordinates up to which all are formed at once


@dataclass(frozen=True)
class ClassDesign:
    """Standardised columns and a last one of ones, each for ``d`` coordinates."""

    X: Array  # (n, columns)
    d: int
    columns: Array  # of X that are in use, ascending

    @property
    def n_rows(self) -> int:
        """n."""
        return len(self.X)

    @property
    def n_columns(self) -> int:
        """Coordinates of the columns in use."""
        return len(self.columns) * self.d

    @property
    def dtype(self) -> np.dtype:
        """float64."""
        return self.X.dtype

    @cached_property
    def matrix(self) -> Array:
        """The columns in use."""
        return self.X if len(self.columns) == self.X.shape[1] else self.X[:, self.columns]

    @cached_property
    def pairs(self) -> "Pairs | None":
        """Products of the columns in use where these are few, or else None."""
        k = len(self.columns)
        few = 0 < k * (k + 1) / 2 <= min(_PAIRS * self.d**2, _NUMBERS / max(self.n_rows, 1))
        return Pairs.of(self.matrix, self.d) if few else None

    def take(self, coordinates: Array) -> "ClassDesign":
        """The columns of these coordinates, which are those of whole columns."""
        inside = coordinates[:: self.d] // self.d
        return replace(self, columns=self.columns[inside])

    def by_columns(self, rows: float = 1.0) -> None:
        """Nothing is read through n x n systems."""

    def by_products(self) -> None:
        """Nor by products alone."""


class Pairs(NamedTuple):
    """Pairs i <= j of columns and pairs a <= b of coordinates: what is symmetric is formed once."""

    products: Array  # (n, pairs) x_i x_j
    columns: tuple[Array, Array]
    coordinates: tuple[Array, Array]

    @classmethod
    def of(cls, X: Array, d: int) -> "Pairs":
        i, j = columns = np.triu_indices(X.shape[1])
        return cls(X[:, i] * X[:, j], columns, np.triu_indices(d))

    def variance(self, S: Array) -> Array:
        """The lower triangles of the covariances of the rows' coordinates, S as (k, d, k, d)."""
        (i, j), (a, b) = self.columns, self.coordinates
        each = S[i[:, None], a, j[:, None], b] + S[j[:, None], a, i[:, None], b]
        each[i == j] *= 0.5
        V = np.zeros((len(self.products), S.shape[1], S.shape[1]))
        V[:, b, a] = self.products @ each
        return V

    def forms(self, S: Array) -> Array:
        """(n, m): x_i'S x_i of m symmetric matrices."""
        i, j = self.columns
        return self.products @ (S[:, i, j] * np.where(i == j, 1.0, 2.0)).T

    def sums(self, b: Array) -> Array:
        """(m, k, k): X' diag(b) X of m weights (n, m) of the rows."""
        return (self.products.T @ b)[_places(*self.columns)].transpose(2, 0, 1)

    def gram(self, B: Array) -> Array:
        """X' diag(B_ab) X for every pair of coordinates, as (k, d, k, d)."""
        (i, j), (a, b) = self.columns, self.coordinates
        sums = self.products.T @ B[:, a, b]
        return sums[_places(i, j)[:, None, :, None], _places(a, b)[:, None, :]]


def _places(i: Array, j: Array) -> Array:
    """(size, size): the number of a pair."""
    found = np.empty((i[-1] + 1, i[-1] + 1), int)
    found[i, j] = found[j, i] = np.arange(len(i))
    return found


class ClassProblem(NamedTuple):
    """Rows with their classes; what `RowProblem` is to one predictor."""

    likelihood: Softmax
    design: ClassDesign
    y: Array  # (n,) 0, ..., c - 1
    weight: Array

    def take(self, coordinates: Array) -> "ClassProblem":
        """The same rows with some columns."""
        return self._replace(design=self.design.take(coordinates))

    def sweep(self, mean: Array, root: Array, *, curvature: bool = True) -> Pass:
        """One pass at q = N(mean, root root')."""
        d, X = self.design.d, self.design.matrix
        k = X.shape[1]
        loss, score = 0.0, np.zeros((k, d))
        H = np.zeros((k, d, k, d))
        W = np.zeros((k, d, k, d))
        alike = not self.likelihood.consistent
        for rows, means, roots in self._predictors(mean, root):
            terms, weight = self.likelihood.terms(means, roots, self.y[rows]), self.weight[rows]
            loss += float(weight @ terms.loss)
            score += X[rows].T @ (weight[:, None] * terms.score)
            self._add_grams(H, rows, weight[:, None, None] * terms.information)
            if curvature and not alike:
                self._add_grams(W, rows, weight[:, None, None] * terms.curvature)
        square = H.reshape(k * d, k * d)
        return Pass(loss, score.ravel(), square, square if alike else W.reshape(k * d, k * d))

    def _add_grams(self, total: Array, rows: slice, B: Array) -> None:
        """Add X' diag(B_ab) X for every pair of coordinates to a (k, d, k, d) array."""
        if self.design.pairs is not None:
            total += self.design.pairs.gram(B)
            return
        X = self.design.matrix[rows]
        for a in range(B.shape[1]):
            for b in range(a + 1):
                own = X.T @ (X * B[:, a, b][:, None])
                total[:, a, :, b] += own
                if a != b:
                    total[:, b, :, a] += own

    def plug_in(self, mean: Array) -> tuple[float, Array]:
        """The loss at known coefficients, and its gradient."""
        X = self.design.matrix
        each, slope = self.likelihood.plug_in(X @ mean.reshape(-1, self.design.d), self.y)
        return float(self.weight @ each), (X.T @ (self.weight[:, None] * slope)).ravel()

    def one_out(
        self, active: Array, columns: Array, mean: Array, root: Array
    ) -> tuple[Array, Array, Array]:
        """X_a'B X_j, x_j'B x_j and x_j'score of coordinates j outside q, from one pass."""
        d, k, m = self.design.d, len(active) // self.design.d, len(columns) // self.design.d
        kept = self.take(active)
        inside, outside = kept.design.matrix, self.take(columns).design.matrix
        cross, own, q = np.zeros((k, d, m, d)), np.zeros((m, d)), np.zeros((m, d))
        for rows, means, roots in kept._predictors(mean, root):
            terms, weight = self.likelihood.terms(means, roots, self.y[rows]), self.weight[rows]
            Z, out = inside[rows], outside[rows]
            q += out.T @ (weight[:, None] * terms.score)
            for a in range(d):
                own[:, a] += (weight * terms.information[:, a, a]) @ np.square(out)
                for b in range(d):
                    B = weight * terms.information[:, a, b]
                    cross[:, a, :, b] += (Z * B[:, None]).T @ out
        return cross.reshape(k * d, m * d), own.ravel(), q.ravel()

    def _predictors(self, mean: Array, root: Array) -> Iterator[tuple[slice, Array, Array]]:
        """Blocks of rows with the mean and a root of the covariance of their coordinates."""
        X, d = self.design.matrix, self.design.d
        (n, k), M = X.shape, mean.reshape(-1, d)
        if self.design.pairs is not None:
            V = self.design.pairs.variance((root @ root.T).reshape(k, d, k, d))
            yield slice(0, n), X @ M, spread_root(V)
            return
        step = max(1, _NUMBERS // max(d * len(root), self.likelihood.size))
        for begin in range(0, n, step):
            rows = slice(begin, min(begin + step, n))
            T = np.stack([X[rows] @ root[a::d] for a in range(d)], axis=1)  # (rows, d, k d)
            yield rows, X[rows] @ M, spread_root(T @ T.transpose(0, 2, 1))
