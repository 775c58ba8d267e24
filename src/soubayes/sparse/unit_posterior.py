"""q of coefficients some of which are the effects of many units.

Given the fixed coefficients b the effects of different units are independent:

    u = E[u] - C (b - E[b]) + e,   Cov(b) = S,   Cov(e) = P, block-diagonal.

So S, C and P hold the covariance, and none between two units is formed.
"""

from copy import copy
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from soubayes.sparse.designs.units import CentredRows
from soubayes.sparse.posterior import Posterior, spread_out

Array = np.ndarray

MOST_SQUARE = 3_000  # coefficients up to which a whole covariance is formed if it is asked for


class UnitPosterior(Posterior):
    """N(mean, covariance), by the parts above; a `Posterior`.

    S may have a first coefficient more than there are ``fixed`` ones, that of the intercept by
    which the columns are centred.
    """

    def __init__(
        self,
        mean: Array,
        variance: Array,
        fixed: Array,
        units: Array,
        S: Array,
        C: Array,  # (effects, k)
        P: sp.csr_array,
        scale: Array,
    ) -> None:
        self.mean, self.variance, self.fixed, self.units = mean, variance, fixed, units
        self.S, self.C, self.P, self.scale = S, C, P, scale

    def _parts(self, rows: Array | CentredRows) -> tuple[Array, Array, sp.csr_array, Array]:
        """x'T of S = Cov(b), squares of the loose columns, and the columns of the units z - m."""
        given = CentredRows.of(rows)
        p, extra = len(given.mean), len(self.mean) - len(given.mean)
        X = sp.csr_array(given.X @ sp.diags_array(self.scale[:p]))
        m = given.mean * self.scale[:p]
        Z, middle = sp.csr_array(X[:, self.units]), m[self.units]
        k, ones = len(self.S), len(self.S) - len(self.fixed)
        through = np.zeros((len(given), k))
        through[:, ones:] = X[:, self.fixed].toarray() - m[self.fixed]
        through -= np.asarray(Z @ self.C) - middle @ self.C
        loose = np.ones(p, bool)
        loose[self.fixed] = loose[self.units] = False
        free = self.variance[:p] * loose
        squares = np.asarray(X.power(2) @ free) - 2.0 * np.asarray(X @ (free * m)) + m @ (free * m)
        if extra:  # the predictor at the mean of X, independent of the others
            squares = squares + self.variance[p:].sum() * given.ones
        return through, squares, Z, middle

    def spread(self, X: Array | CentredRows) -> Array:
        through, squares, Z, middle = self._parts(X)
        total = np.einsum("ij,ij->i", through @ self.S, through) + squares
        PZ, Pm = sp.csr_array(Z @ self.P), np.asarray(self.P @ middle)
        inside = np.asarray(PZ.multiply(Z).sum(axis=1)).ravel()
        return np.maximum(total + inside - 2.0 * np.asarray(Z @ Pm) + middle @ Pm, 0.0)

    def times(self, X: Array) -> Array:
        through, _, Z, _ = self._parts(X)
        ones = len(self.S) - len(self.fixed)
        product = X * self.sd**2
        right = through @ self.S
        product[:, self.fixed] = right[:, ones:] * self.scale[self.fixed]
        inside = (Z @ self.P).toarray() - right @ self.C.T
        product[:, self.units] = inside * self.scale[self.units]
        return product

    def moved(self, order: Array, scale: Array) -> "UnitPosterior":
        place = np.argsort(order)
        moved = copy(self)
        moved.mean, moved.variance = self.mean[order] * scale, self.variance[order]
        moved.scale = self.scale[order] * scale
        moved.fixed, moved.units = place[self.fixed], place[self.units]
        return moved

    def joined(self, mean: float, variance: float) -> "UnitPosterior":
        joined = copy(self)
        joined.mean = np.append(self.mean, mean)
        joined.variance = np.append(self.variance, variance)
        joined.scale = np.append(self.scale, 1.0)
        return joined

    def placed(self, place: Array, size: int) -> "UnitPosterior":
        placed = copy(self)
        placed.mean = spread_out(self.mean, place, size)
        placed.variance = spread_out(self.variance, place, size)
        placed.scale = spread_out(self.scale, place, size, 1.0)
        placed.fixed, placed.units = place[self.fixed], place[self.units]
        return placed

    def full(self) -> Array:
        size = len(self.mean)
        if size > MOST_SQUARE:
            raise ValueError(
                f"the covariance of {size:,} coefficients is not formed, most of which are effects "
                "of units: use coef_sd_, predict with return_std=True, or sample."
            )
        return self.times(np.eye(size))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        draws = rng.standard_normal((n, len(self.mean))) * self.sd
        k, ones = len(self.S), len(self.S) - len(self.fixed)
        b = rng.standard_normal((n, k)) @ np.linalg.cholesky(self.S + _jitter(self.S)).T
        draws[:, self.fixed] = b[:, ones:] * self.scale[self.fixed]
        # blocks of one unit are at most a few wide
        e = rng.standard_normal((n, len(self.units))) @ _root(self.P).T
        draws[:, self.units] = (e - b @ self.C.T) * self.scale[self.units]
        return self.mean + draws


def _jitter(S: Array) -> Array:
    return 1e-14 * np.diag(np.diag(S))


def _root(P: sp.csr_array) -> sp.csr_array:
    """The Cholesky factor of a matrix of small blocks."""
    count, label = sp.csgraph.connected_components(P, directed=False)
    order = np.argsort(label, kind="stable")
    ends = np.append(0, np.cumsum(np.bincount(label, minlength=count)))
    rows, cols, values = [], [], []
    for begin, end in pairwise(ends.tolist()):
        index = order[begin:end]
        lower = np.linalg.cholesky(P[index][:, index].toarray())
        rows.append(np.repeat(index, len(index)))
        cols.append(np.tile(index, len(index)))
        values.append(lower.ravel())
    if not rows:
        return sp.csr_array(P.shape)
    where = np.concatenate(rows), np.concatenate(cols)
    return sp.csr_array((np.concatenate(values), where), shape=P.shape)
