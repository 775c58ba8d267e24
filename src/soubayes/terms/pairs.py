"""Pairs: centred products of the columns of two terms, and which of them the data ask for.

A product reads columns of the terms, not X, so a fold can form and screen its own. A pair has a
scale each for straight x straight, straight x curved, curved x straight and curved x curved.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

Array = np.ndarray

PAIR_CURVED = 2  # curved columns of a margin that enter products
SCREEN_RIDGE = 0.01  # of n, added to the information about the columns of a product


@dataclass(frozen=True)
class CentredProduct:
    """Products of two sets of columns, each column centred and scaled.

    Beyond the data a column stays where it ends: a product would grow with the square.
    """

    first: Array  # indices of columns
    second: Array
    centre: tuple[Array, Array]
    scale: tuple[Array, Array]
    low: tuple[Array, Array]
    high: tuple[Array, Array]

    @property
    def size(self) -> int:
        """The number of columns."""
        return len(self.first) * len(self.second)

    @classmethod
    def learn(
        cls, Z: Array, first: Array, second: Array, weight: Array | None = None
    ) -> "CentredProduct":
        """Of columns of Z."""
        both = [_dense(Z[:, columns]) for columns in (first, second)]
        centres, scales = zip(*(_units(part, weight) for part in both), strict=True)
        a, b = both
        low, high = (a.min(axis=0), b.min(axis=0)), (a.max(axis=0), b.max(axis=0))
        return cls(first, second, centres, scales, low, high)

    def of(self, Z: Array) -> Array:
        """(n, size) of rows whose columns are Z."""
        a, b = self._margin(Z, self.first, 0), self._margin(Z, self.second, 1)
        return (a[:, :, None] * b[:, None, :]).reshape(len(a), self.size)

    def _margin(self, Z: Array, columns: Array, k: int) -> Array:
        inside = np.clip(_dense(Z[:, columns]), self.low[k], self.high[k])
        return (inside - self.centre[k]) / self.scale[k]


class Margins(NamedTuple):
    """Terms that pairs may be formed of."""

    labels: tuple[str, ...]
    parts: tuple[tuple[Array, ...], ...]  # of every term its straight and its curved columns

    def products(
        self, Z: Array, a: int, b: int, weight: Array | None = None
    ) -> list[CentredProduct]:
        """The products of one pair."""
        return [
            CentredProduct.learn(Z, first, second, weight)
            for first in self.parts[a]
            for second in self.parts[b]
        ]

    def screen(
        self,
        Z: Any,
        target: Array,
        weight: Array | None,
        most: int,
        unit: Array | None = None,
    ) -> list[tuple[int, int]]:
        """The pairs that explain most of the additive residual of ``target`` (n, targets).

        ``unit`` is that of the columns of a large unit, else -1; its levels' means are taken off.
        """
        root = np.ones(Z.shape[0]) if weight is None else np.sqrt(weight)
        fixed = slice(None) if unit is None else np.flatnonzero(unit < 0)
        if unit is not None:
            target = _within_levels(Z[:, unit >= 0], target, root)
        residual = additive_residual(_dense(Z[:, fixed]), target, root)
        units = [_standardised(_dense(Z[:, np.concatenate(p)]), root) for p in self.parts]
        found = []
        for a in range(len(units)):
            for b in range(a + 1, len(units)):
                T = (units[a][:, :, None] * units[b][:, None, :]).reshape(Z.shape[0], -1)
                found.append((_explained(T, residual, root), -a, -b))
        found.sort(reverse=True)
        return [(-a, -b) for value, a, b in found[:most] if value > 0.0]


def additive_residual(Z: Array, target: Array, root: Array) -> Array:
    """What ridge regression on Z leaves of ``target``, its penalty of largest evidence."""
    total = float(root @ root)
    share = root**2 / total
    Zc, Yc = (Z - share @ Z) * root[:, None], (target - share @ target) * root[:, None]
    size = np.sqrt((Zc**2).sum(axis=0) / total)
    Zc = Zc / np.where(size > 0.0, size, np.inf)
    if Z.shape[1] <= len(Z):
        values, vectors = np.linalg.eigh(Zc.T @ Zc)
        scores, left = vectors.T @ (Zc.T @ Yc), Zc @ vectors
    else:
        values, vectors = np.linalg.eigh(Zc @ Zc.T)
        root_values = np.sqrt(np.maximum(values, 0.0))
        scores, left = root_values[:, None] * (vectors.T @ Yc), vectors * root_values
    values = np.maximum(values, 0.0)
    best, kept = np.inf, Yc
    square = (Yc**2).sum(axis=0)
    for penalty in np.geomspace(1e-4, 1e3, 15) * total / 10.0:
        # y'K^-1 y and log|K| with K = I + ZZ'/penalty
        quadratic = square - (scores**2 / (values + penalty)[:, None]).sum(axis=0)
        cost = total * np.log(np.maximum(quadratic, 1e-300)).sum()
        cost += Yc.shape[1] * np.log1p(values / penalty).sum()
        if cost < best:
            best, kept = cost, Yc - left @ (scores / (values + penalty)[:, None])
    return kept


def _within_levels(Z: Any, target: Array, root: Array) -> Array:
    """The target less what the columns of a unit explain, each alone and as if of one more row."""
    counts = np.asarray(Z.power(2).T @ root**2) + 1.0
    off = target - (root**2 @ target) / (root @ root)
    return off - np.asarray(Z @ ((Z.T @ (root[:, None] ** 2 * off)) / counts[:, None]))


def _explained(T: Array, residual: Array, root: Array) -> float:
    """The share of the residual that the columns of T explain, lightly penalised."""
    T = _standardised(T, root) * root[:, None]
    n = float(root @ root)
    gram = T.T @ T
    gram[np.diag_indices_from(gram)] += SCREEN_RIDGE * n
    scores = T.T @ residual
    return float(np.sum(scores * np.linalg.solve(gram, scores)))


def _standardised(Z: Array, root: Array) -> Array:
    share = root**2 / (root @ root)
    off = Z - share @ Z
    size = np.sqrt(share @ off**2)
    return off[:, size > 1e-12] / size[size > 1e-12]


def _dense(Z: Any) -> Array:
    """A few columns, perhaps of a scipy-sparse matrix."""
    return np.asarray(Z.toarray() if sp.issparse(Z) else Z)


def _units(Z: Array, weight: Array | None) -> tuple[Array, Array]:
    share = np.full(len(Z), 1.0 / len(Z)) if weight is None else weight / weight.sum()
    centre = share @ Z
    scale = np.sqrt(share @ (Z - centre) ** 2)
    return centre, np.where(scale > 0.0, scale, 1.0)
