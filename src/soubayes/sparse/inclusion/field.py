"""A loss that is quadratic in the coefficients: what the posterior over supports asks of the data.

Everything is in units where the noise is 1 (or in units of the noise, where that is unknown):
loss(b) = (yy - 2 scores'b + b' X'X b)/2.

What the data say about one column when every other column keeps its prior variance.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve

from soubayes.sparse.designs.columns import StandardColumns

Array = np.ndarray


class Quadratic(ABC):
    """X'X a few columns at a time, X'y, y'y, and how many rows inform the noise.

    Parameters
    ----------
    norms, scores : ndarray of shape (p,)
        Diagonal of X'X, and X'y.
    yy : float
        y'y.
    n : float
        Squared length of a standardised column: the information of a typical column.
    degrees : float
        Degrees of freedom of an unknown noise; infinite if the noise is 1.
    """

    def __init__(
        self, norms: Array, scores: Array, yy: float, n: float, degrees: float = np.inf
    ) -> None:
        self.norms, self.scores, self.yy, self.n, self.degrees = norms, scores, yy, n, degrees

    @abstractmethod
    def cross(self, columns: Array) -> Array:
        """X'X of these columns, (p, columns)."""

    @abstractmethod
    def within(self, columns: Array) -> Array:
        """X'X of these columns (ascending) with each other."""


class GramQuadratic(Quadratic):
    """From X'X itself.

    >>> GramQuadratic(np.eye(2), np.ones(2), 3.0, 1.0).cross(np.array([1]))
    array([[0.],
           [1.]])
    """

    def __init__(
        self, gram: Array, scores: Array, yy: float, n: float, degrees: float = np.inf
    ) -> None:
        super().__init__(np.diag(gram).copy(), scores, yy, n, degrees)
        self.gram = gram

    def cross(self, columns: Array) -> Array:
        return self.gram[:, columns]

    def within(self, columns: Array) -> Array:
        return self.gram[np.ix_(columns, columns)]


class ColumnQuadratic(Quadratic):
    """From the columns, dense or scipy-sparse; only products with a few of them are formed."""

    def __init__(
        self, columns: StandardColumns, y: Array, n: float, degrees: float = np.inf
    ) -> None:
        super().__init__(columns.norms(), columns.left(y), float(y @ y), n, degrees)
        self.columns = columns

    def cross(self, columns: Array) -> Array:
        order = np.argsort(columns)
        few = self.columns.take(columns[order]).dense()
        products = np.empty((len(self.norms), len(columns)))
        for chunk, columns_of_chunk in self.columns.through(few.T):
            products[chunk] = columns_of_chunk.T
        return products[:, np.argsort(order)]

    def within(self, columns: Array) -> Array:
        few = self.columns.take(columns).dense()
        return few.T @ few


class ColumnEvidence(NamedTuple):
    """For every column: its information and its score; and y' Omega^-1 y of all of them."""

    s: Array
    q: Array
    rest: float


class Field:
    """y ~ N(0, Omega), Omega = I + X diag(d) X', kept under changes of a few entries of d.

    s_j = x_j' Omega^-1 x_j and q_j = x_j' Omega^-1 y decide on a column when the coefficients of
    the others are integrated out, not fixed at their means. X'X is only asked for columns that
    ever had d > 0; with these, Omega^-1 = I - X P X', and a change of r entries of d changes P
    by a matrix of rank r.
    """

    def __init__(self, data: Quadratic) -> None:
        self.data = data
        self.p = len(data.norms)
        self.d = np.zeros(self.p)
        self._place = np.full(self.p, -1)  # where a column's cross products are kept
        self._known = np.zeros(0, int)
        self._cross = np.zeros((self.p, 0), order="F")
        self._P = np.zeros((0, 0))
        self._now = ColumnEvidence(data.norms.copy(), data.scores.copy(), data.yy)

    @property
    def evidence(self) -> ColumnEvidence:
        """With all columns' prior variances in Omega."""
        return self._now

    def reset(self, d: Array) -> None:
        """Every prior variance anew, without the rounding of earlier changes."""
        self.d = d.copy()
        active = np.flatnonzero(d)
        self._learn(active)
        k = len(self._known)
        self._P = np.zeros((k, k))
        at = self._place[active]
        C = self._cross[:, at]
        root = np.sqrt(d[active])
        # Woodbury with D^1/2 X'X D^1/2 + I, which is well conditioned for any d
        B = root[:, None] * C[active] * root + np.eye(len(active))
        inverse = np.linalg.inv(np.linalg.cholesky(B)) * root
        self._P[np.ix_(at, at)] = inverse.T @ inverse
        half = C @ inverse.T  # (p, k): rows of X'X_A with Omega^-1 = I - X_A P X_A'
        short = inverse @ self.data.scores[active]
        self._now = ColumnEvidence(
            self._floor(self.data.norms - np.einsum("ij,ij->i", half, half)),
            self.data.scores - half @ short,
            self._left(self.data.yy - float(short @ short)),
        )

    def without(self, columns: Array, c: Array) -> ColumnEvidence:
        """The evidence when d[columns] is less by c."""
        if not len(columns):
            return self._now
        S = self.block(columns)
        return self._changed(columns, S, _capacity(S[columns], -c))

    def change(self, columns: Array, delta: Array) -> None:
        """Add to d[columns]."""
        if not len(columns):
            return
        S = self.block(columns)
        N = _capacity(S[columns], delta)
        self._now = self._changed(columns, S, N)
        at = self._place[columns]
        # Omega^-1 changes by -Omega^-1 X_r N X_r' Omega^-1, hence P by U N U'
        U = -self._P @ self._cross[columns][:, : len(self._known)].T
        U[at, np.arange(len(columns))] += 1.0
        self._P = self._P + U @ N @ U.T
        self.d[columns] = np.maximum(self.d[columns] + delta, 0.0)

    def block(self, columns: Array) -> Array:
        """X' Omega^-1 X of these columns, (p, columns)."""
        self._learn(columns)
        C, k = self._cross, len(self._known)
        return C[:, self._place[columns]] - C[:, :k] @ (self._P @ C[columns, :k].T)

    def blocks(self, columns: Array, grams: Array) -> Array:
        """X_g' Omega^-1 X_g of groups of columns (groups, size), from their X'X."""
        C = self._cross[columns, : len(self._known)]
        return grams - (C @ self._P) @ C.transpose(0, 2, 1)

    def correlations(self, columns: Array) -> Array:
        """Of some columns with each other."""
        self._learn(columns)
        root = np.sqrt(self.data.norms[columns])
        return self._cross[np.ix_(columns, self._place[columns])] / np.outer(root, root)

    def similar(self, column: int, least: float) -> Array:
        """Which columns have at least this correlation with one, its sign apart."""
        self._learn(np.array([column]))
        norms = self.data.norms
        size = np.sqrt(norms * norms[column])
        return np.abs(self._cross[:, self._place[column]]) >= least * size

    def _changed(self, columns: Array, S: Array, N: Array) -> ColumnEvidence:
        q = self._now.q[columns]
        return ColumnEvidence(
            self._floor(self._now.s - np.einsum("ij,jk,ik->i", S, N, S, optimize=True)),
            self._now.q - S @ (N @ q),
            self._left(self._now.rest - float(q @ N @ q)),
        )

    def _floor(self, s: Array) -> Array:
        return np.maximum(s, 1e-12 * self.data.n)

    def _left(self, rest: float) -> float:
        """y' Omega^-1 y above what rounding leaves where X explains y entirely."""
        return max(rest, 1e-12 * self.data.yy, 1e-300)

    def _learn(self, columns: Array) -> None:
        """Keep the cross products of columns that are new."""
        new = columns[self._place[columns] < 0]
        if not len(new):
            return
        k = len(self._known)
        self._place[new] = k + np.arange(len(new))
        self._known = np.append(self._known, new)
        self._cross = np.asfortranarray(np.hstack([self._cross, self.data.cross(new)]))
        self._P = np.pad(self._P, (0, len(new)))


def _capacity(S: Array, delta: Array) -> Array:
    """(diag(1/delta) + S)^-1, also where an entry of delta is 0."""
    N = solve(np.eye(len(delta)) + delta[:, None] * S, np.diag(delta), check_finite=False)
    return (N + N.T) / 2.0
