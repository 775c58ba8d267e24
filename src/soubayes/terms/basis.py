"""NaturalSpline bases in the coordinates in which their roughness penalty is the identity.

With cubic B-splines B of t = (x - low)/(high - low), S the integral of products of their second
derivatives and B'B/n = LL', the eigenvectors of L^-1 S L^-T give functions that are uncorrelated
over the data and whose roughness is the eigenvalue. The eigenvalues 0 belong to {1, x}: x is a
column of its own. The others, divided by the root of their eigenvalue, are the curved part: under
u ~ N(0, tau^2 I) they are the smoothing spline with the penalty f'Sf/tau^2. They have mean 0 and no
correlation with x, and their variances sum to 1, so tau is about the standard deviation of f.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from scipy.interpolate import BSpline
from scipy.linalg import eigh, solve_triangular

Array = np.ndarray

CURVED = 8  # curved columns: with one scale for all of them 5 to 17 predict alike
FEWEST_VALUES = 3  # distinct values of x that a curve needs
_NULL = 2  # functions without roughness: the constant and x
_LEAST = 1e-10  # of the mean diagonal: added to B'B where ties leave it singular


class Basis(Protocol):
    """Functions of one variable."""

    @property
    def straight(self) -> bool:
        """Whether x itself is a column beside them."""

    @property
    def size(self) -> int:
        """The number of curved columns."""

    def curved(self, x: Array) -> Array:
        """(n, size) their values."""


@dataclass(frozen=True)
class NaturalSpline:
    """A cubic spline without its straight part; outside of the data it goes on straight."""

    knots: Array  # of B-splines on [0, 1], the ends repeated
    coef: Array  # (functions, curved)
    low: float
    high: float

    straight = True

    @property
    def size(self) -> int:
        """The number of curved columns."""
        return int(self.coef.shape[1])

    def curved(self, x: Array) -> Array:
        """The curved columns at new values."""
        t = (np.asarray(x, float) - self.low) / (self.high - self.low)
        inside = np.clip(t, 0.0, 1.0)
        found = _b_splines(self.knots, inside) @ self.coef
        beyond = t - inside
        out = beyond != 0.0
        if out.any():
            slope = BSpline(self.knots, self.coef, 3).derivative()
            found[out] += beyond[out, None] * slope(inside[out])
        return found


@dataclass(frozen=True)
class Cycle:
    """A periodic cubic spline: it has no straight part."""

    knots: Array  # of one period on [0, 1)
    coef: Array  # (functions, curved)
    begin: float
    period: float
    centre: Array  # (curved,)

    straight = False

    @property
    def size(self) -> int:
        """The number of curved columns."""
        return int(self.coef.shape[1])

    def curved(self, x: Array) -> Array:
        """The curved columns at new values."""
        t = np.mod((np.asarray(x, float) - self.begin) / self.period, 1.0)
        return _cyclic(self.knots, t) @ self.coef - self.centre


def spline(x: Array, curved: int = CURVED, weight: Array | None = None) -> NaturalSpline:
    """Learn a spline from the values of a variable; ``weight`` counts rows.

    Knots are at quantiles of the distinct values, so ties cannot make two of them equal.

    >>> x = np.linspace(0.0, 1.0, 101)
    >>> Z = spline(x).curved(x)
    >>> bool(np.allclose(Z.T @ x, 0.0)), round(float(Z.var(axis=0).sum()), 6)
    (True, 1.0)
    """
    values = np.unique(x)
    if len(values) < FEWEST_VALUES:
        raise ValueError(
            f"a curve needs at least {FEWEST_VALUES} distinct values, but there are {len(values)}: "
            "use the column itself, or a factor."
        )
    size = min(curved, len(values) - _NULL)
    low, high = float(values[0]), float(values[-1])
    inner = np.quantile((values - low) / (high - low), np.linspace(0.0, 1.0, size)[1:-1])
    knots = np.concatenate([np.zeros(4), inner, np.ones(4)])
    t = (x - low) / (high - low)
    roughness = _roughness(knots, BSpline(knots, np.eye(len(knots) - 4), 3))
    coef = _natural(_b_splines(knots, t), roughness, _NULL, _share(x, weight))[:, :size]
    return NaturalSpline(knots, coef, low, high)


def cycle(
    x: Array, begin: float, end: float, curved: int = CURVED, weight: Array | None = None
) -> Cycle:
    """Learn a periodic spline on [begin, end), the values of which repeat."""
    if not end > begin:
        raise ValueError(f"the period is ({begin}, {end}), but its end must lie above its begin.")
    t = np.mod((np.asarray(x, float) - begin) / (end - begin), 1.0)
    size = min(curved, len(np.unique(t)) - 1)
    if size < _NULL:
        raise ValueError(
            f"a periodic curve needs at least 3 distinct values, but there are {size + 1}: use a "
            "factor."
        )
    knots = np.linspace(0.0, 1.0, size + 2)[:-1]
    B, share = _cyclic(knots, t), _share(t, weight)
    coef = _natural(B, _roughness(np.append(knots, 1.0), _cyclic_spline(knots)), 1, share)
    return Cycle(knots, coef, float(begin), float(end - begin), share @ (B @ coef))


def _b_splines(knots: Array, t: Array) -> Array:
    return np.asarray(BSpline.design_matrix(t, knots, 3).toarray())


def _cyclic_spline(knots: Array) -> BSpline:
    """The periodic B-splines, whose coefficients repeat."""
    k = len(knots)
    whole = np.concatenate([knots[-3:] - 1.0, knots, knots[:4] + 1.0])
    return BSpline(whole, np.eye(k)[np.arange(k + 3) % k], 3)


def _cyclic(knots: Array, t: Array) -> Array:
    return np.asarray(_cyclic_spline(knots)(t))


def _roughness(knots: Array, functions: BSpline) -> Array:
    """Integrals of products of second derivatives, which are straight between knots."""
    bend, ends = functions.derivative(2), np.unique(knots)
    total = np.zeros((functions.c.shape[1],) * 2)
    for a, b in pairwise(ends):
        at = bend(np.array([a + 1e-9 * (b - a), 0.5 * (a + b), b - 1e-9 * (b - a)]))
        # Simpson's rule is exact for the square of a straight line
        total += (b - a) / 6.0 * (at.T @ (np.array([1.0, 4.0, 1.0])[:, None] * at))
    return total


def _share(x: Array, weight: Array | None) -> Array:
    return np.full(len(x), 1.0 / len(x)) if weight is None else weight / weight.sum()


def _natural(B: Array, roughness: Array, null: int, share: Array) -> Array:
    """Coefficients of the curved functions, their variances in proportion to 1/eigenvalue."""
    gram = B.T @ (share[:, None] * B)
    gram[np.diag_indices_from(gram)] += _LEAST * float(np.trace(gram)) / len(gram)
    lower = np.linalg.cholesky(gram)
    inside = solve_triangular(lower, solve_triangular(lower, roughness, lower=True).T, lower=True)
    values, vectors = eigh(0.5 * (inside + inside.T))
    values, vectors = values[null:], vectors[:, null:]
    natural = solve_triangular(lower, vectors, lower=True, trans="T") / np.sqrt(values)
    natural *= np.where(natural[np.abs(natural).argmax(axis=0), range(len(values))] < 0, -1.0, 1.0)
    return np.asarray(natural / np.sqrt(np.sum(1.0 / values)))
