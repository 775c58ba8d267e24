"""A loss that is quadratic in the coefficients: what the posterior over supports asks of the data.

Everything is in units where the noise is 1 (or in units of the noise, where that is unknown):
loss(b) = (yy - 2 scores'b + b' X'X b)/2.
"""

from abc import ABC, abstractmethod

import numpy as np

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
        found = np.empty((len(self.norms), len(columns)))
        for chunk, part in self.columns.through(few.T):
            found[chunk] = part.T
        return found[:, np.argsort(order)]
