"""Least squares with repeated units whose effects are eliminated in blocks.

With A = X'X + diag(w), f the fixed columns and u those of the units,

    A = [A_ff, K; K', B],   B block-diagonal,   A_ff - K B^-1 K' = LL',

so all that a solver asks for costs (units) x (fixed columns)^2. Centred columns of units would not
be block-diagonal. So they are as they are, and one more fixed column, of ones with precision 0,
stands for the intercept: eliminating it centres the others.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from soubayes.sparse.designs.columns import weighted_moments
from soubayes.sparse.designs.linalg import cholesky, invert_triangle, log_determinant
from soubayes.sparse.designs.standardise import check_squares, column_scales, in_range
from soubayes.sparse.designs.units import UnitColumns
from soubayes.sparse.least_squares.designs import LEAST_INFORMATION, Gram, LeastSquares, Ridge
from soubayes.sparse.unit_posterior import UnitPosterior

Array = np.ndarray


class Eliminated(NamedTuple):
    """A at prior precisions w, factorised."""

    inner: Array  # (k,) the rows of the fixed Gram matrix that it has
    inverse: Array  # (units, s, s) B^-1, 0 at slots without a column
    share: Array  # (k, units, s) K B^-1
    root: Array  # L^-1
    log_det: float  # log|A|

    def solve(self, fixed: Array, units: Array) -> tuple[Array, Array]:
        """A^-1 of vectors: (k,) or (k, r), and (units, s) or (units, s, r)."""
        share, shape = _flat(self.share), units.shape
        right = fixed - share @ units.reshape(share.shape[1], *shape[2:])
        first = self.root.T @ (self.root @ right)
        inside = np.einsum("ust,ut...->us...", self.inverse, units)
        return first, inside - (share.T @ first).reshape(shape)


class UnitGram:
    """X'X of fixed columns and of units, X'y, y'y and n; a `LeastSquares`."""

    def __init__(
        self,
        columns: UnitColumns,
        gram: Array,  # (k, k) of the fixed columns, behind one of ones if there is an intercept
        cross: Array,  # (k, units, s)
        blocks: Array,  # (units, s, s)
        norms: Array,
        scores: Array,
        yy: float,
        n: float,
    ) -> None:
        self.columns, self.gram, self.blocks = columns, gram, blocks
        self.cross = np.ascontiguousarray(cross)
        self.norms, self.scores, self.yy, self.n = norms, scores, yy, n
        self.ones = len(gram) - len(columns.fixed)  # 1 with an intercept, else 0

    def with_target(self, scores: Array, yy: float) -> "UnitGram":
        """The same columns with another y."""
        return UnitGram(
            self.columns, self.gram, self.cross, self.blocks, self.norms, scores, yy, self.n
        )

    def take(self, index: Array) -> LeastSquares:
        columns, place = self.columns, np.full(self.columns.size, -1)
        place[index] = np.arange(len(index))
        first = np.flatnonzero(place[columns.fixed] >= 0)
        inner = np.concatenate([np.arange(self.ones), self.ones + first])
        slots = np.where(columns.present, place[columns.slots], -1)
        rest = self.norms[index], self.scores[index], self.yy, self.n
        if not (slots >= 0).any():  # the ones are orthogonal to centred columns
            inside = inner[self.ones :]
            return Gram(self.gram[np.ix_(inside, inside)], rest[1], self.yy, self.n)
        some, at = (slots >= 0).any(axis=1), (slots >= 0).any(axis=0)
        slots = slots[np.ix_(some, at)]
        keep = slots >= 0
        cross = self.cross[np.ix_(inner, some, at)] * keep
        blocks = self.blocks[np.ix_(some, at, at)] * keep[:, :, None] * keep[:, None, :]
        taken = UnitColumns(place[columns.fixed[first]], slots)
        return UnitGram(taken, self.gram[np.ix_(inner, inner)], cross, blocks, *rest)

    def eliminated(self, w: Array, active: Array | None = None) -> Eliminated:
        """A, its units eliminated; of the ``active`` columns alone, if they are not all."""
        present, inner = self.columns.present, np.arange(len(self.gram))
        cross, B = self.cross, self.blocks
        if active is not None:
            present = present & active[self.columns.slots]
            ones = np.ones(self.ones, bool)
            inner = np.flatnonzero(np.concatenate([ones, active[self.columns.fixed]]))
            cross = cross[inner] * present
            B = B * present[:, :, None] * present[:, None, :]
        B, at = B.copy(), np.arange(B.shape[1])
        B[:, at, at] += np.where(present, self.columns.each(w), 1.0)
        if B.shape[1] == 1:
            inverse, log_blocks = 1.0 / B, float(np.log(B).sum())
        else:
            inverse, log_blocks = np.linalg.inv(B), float(np.linalg.slogdet(B)[1].sum())
        inverse = inverse * present[:, :, None] * present[:, None, :]
        share = cross * inverse[:, 0] if B.shape[1] == 1 else _by_blocks(cross, inverse)
        outside = _flat(share) @ _flat(cross).T
        square = self.gram[np.ix_(inner, inner)] - 0.5 * (outside + outside.T)
        lower = cholesky(square, self._fixed(w)[inner])
        log_det = log_determinant(lower) + log_blocks - (np.log(self.n) if self.ones else 0.0)
        return Eliminated(inner, inverse, share, invert_triangle(lower), float(log_det))

    def _fixed(self, w: Array) -> Array:
        return np.concatenate([np.zeros(self.ones), w[self.columns.fixed]])

    @property
    def _right(self) -> tuple[Array, Array]:
        """X'y; y is centred, so the ones have none."""
        return self._fixed(self.scores), self.columns.each(self.scores)

    def _joined(self, fixed: Array, units: Array) -> Array:
        return self.columns.joined(fixed[self.ones :], units)

    def ridge(self, w: Array) -> Ridge:
        at = self.eliminated(w)
        mean = self._joined(*at.solve(*self._right))
        half = (at.root @ _flat(at.share)).reshape(at.share.shape)
        spread = np.einsum("uss->us", at.inverse) + np.einsum("kus,kus->us", half, half)
        variance = self._joined(np.einsum("ij,ij->j", at.root, at.root), spread)
        return Ridge(
            mean,
            variance,
            np.maximum(1.0 / variance - w, LEAST_INFORMATION * self.n),
            mean / variance,
            max(self.yy - mean @ self.scores - mean @ (w * mean), 0.0),
            at.log_det,
        )

    def log_det(self, w: Array) -> float:
        return self.eliminated(w).log_det

    def marginal(self, w: Array) -> tuple[Array, float]:
        """A^-1 X'y and log|A|."""
        at = self.eliminated(w)
        return self._joined(*at.solve(*self._right)), at.log_det

    def has_units(self, columns: Array) -> bool:
        """Whether these are effects of units."""
        return bool(self._place[0][columns[0]] >= 0)

    def inverse_of(self, w: Array, columns: Array) -> Array:
        """A^-1 of some fixed columns."""
        half = self.eliminated(w).root[:, self._place[1][columns]]
        return np.asarray(half.T @ half)

    def outside(self, index: Array, w: Array, others: Array) -> tuple[Array, Array]:
        whole, active = np.ones(self.columns.size), np.zeros(self.columns.size, bool)
        whole[index], active[index] = w, True
        at = self.eliminated(whole, active)
        fixed, units = self._right
        first, effects = at.solve(fixed[at.inner], units)
        unit, slot = self._place
        s, fitted = self.norms[others].copy(), np.zeros(len(others))
        alone = np.flatnonzero(unit[others] < 0)
        if len(alone):
            rows = slot[others[alone]]
            c, b = self.gram[np.ix_(at.inner, rows)], self.cross[rows].transpose(1, 2, 0)
            half = at.root @ (c - np.tensordot(at.share, b, 2))
            inside = np.einsum("ust,utr->usr", at.inverse, b)
            s[alone] -= np.einsum("kr,kr->r", half, half) + np.einsum("usr,usr->r", b, inside)
            fitted[alone] = first @ c + np.tensordot(effects, b, 2)
        inside_unit = np.flatnonzero(unit[others] >= 0)
        if len(inside_unit):
            u, a = unit[others[inside_unit]], slot[others[inside_unit]]
            c, b = (
                self.cross[np.ix_(at.inner, np.arange(len(self.blocks)))][:, u, a],
                self.blocks[u, a],
            )
            half = at.root @ (c - np.einsum("krs,rs->kr", at.share[:, u], b))
            s[inside_unit] = self.blocks[u, a, a] - np.einsum("kr,kr->r", half, half)
            s[inside_unit] -= np.einsum("rs,rst,rt->r", b, at.inverse[u], b)
            fitted[inside_unit] = first @ c + np.einsum("rs,rs->r", effects[u], b)
        return np.maximum(s, LEAST_INFORMATION * self.n), self.scores[others] - fitted

    @cached_property
    def _place(self) -> tuple[Array, Array]:
        """Of every column its unit and slot; of the fixed ones -1 and the row of ``gram``."""
        unit, slot = np.full(self.columns.size, -1), np.zeros(self.columns.size, int)
        slot[self.columns.fixed] = self.ones + np.arange(len(self.columns.fixed))
        at = self.columns.present
        unit[self.columns.slots[at]], slot[self.columns.slots[at]] = np.nonzero(at)
        return unit, slot

    closest = 1.0

    def correlations(self, columns: Array) -> Array:
        raise NotImplementedError("columns of units are never compared with each other.")

    def first_copies(self) -> Array:
        return np.arange(self.columns.size)

    def inverse(self, w: Array) -> Array:
        at = self.eliminated(w)
        p, k = self.columns.size, len(self.gram)
        units = self.columns.slots[self.columns.present]
        fixed, place = np.eye(k)[:, self.ones :], np.zeros((p, *self.columns.slots.shape))
        place[units, *np.nonzero(self.columns.present)] = 1.0
        right = np.zeros((k, p))
        right[:, self.columns.fixed] = fixed
        first, inside = at.solve(right, place.transpose(1, 2, 0))
        full = np.empty((p, p))
        full[self.columns.fixed] = first[self.ones :]
        full[units] = inside[self.columns.present]
        return full

    def shrinkage_sums(self, w: Array, ridge: Ridge) -> tuple[float, float, float]:
        at = self.eliminated(w)
        root = np.sqrt(w)
        fixed, units = np.sqrt(self._fixed(w)), self.columns.each(root)
        # tr (W^1/2 A^-1 W^1/2)^2 from its blocks; with Q = L^-1 K B^-1 W^1/2 that of the units is
        # W^1/2 B^-1 W^1/2 + Q'Q
        half = at.root * fixed
        Q = at.root @ _flat(at.share) * units.ravel()
        inside = at.inverse * units[:, :, None] * units[:, None, :]
        by_unit = Q.reshape(len(Q), *units.shape)
        squares = np.sum((half.T @ half) ** 2) + np.sum((Q @ Q.T) ** 2) + np.sum(inside**2)
        squares += 2.0 * np.sum((half.T @ Q) ** 2)  # between the fixed ones and the units
        squares += 2.0 * np.einsum("kus,ust,kut->", by_unit, inside, by_unit)
        pull = w * ridge.mean
        solved = self._joined(*at.solve(self._fixed(pull), self.columns.each(pull)))
        return float(w @ ridge.variance), float(squares), float(pull @ solved)

    def spectrum(self) -> None:
        return None

    def rows(self) -> None:
        return None


def _flat(several: Array) -> Array:
    """(k, units, s) as a matrix of k rows."""
    return several.reshape(len(several), several.shape[1] * several.shape[2])


def _by_blocks(cross: Array, inverse: Array) -> Array:
    """K B^-1: the rows of K of every unit times its block."""
    return np.ascontiguousarray((cross.transpose(1, 0, 2) @ inverse).transpose(1, 0, 2))


def unit_grams(
    X: Any, Y: Array, weight: Array, intercept: bool, unit: Array, shared: Array | None
) -> tuple[list[UnitGram], tuple[Array, Array, Array, Array]]:
    """A design for each target, and means and scales of the columns and of the targets."""
    X, x_unit = in_range(X)
    Y, y_unit = in_range(Y)
    n = float(weight.sum())
    share, columns = weight / n, UnitColumns.of(unit)
    x_mean, x_square = weighted_moments(X, share, intercept)
    y_mean, y_square = weighted_moments(Y, share, intercept)
    check_squares(x_mean, x_square)
    check_squares(y_mean, y_square)
    x_scale, constant = column_scales(x_mean, x_square, n, shared)
    y_scale, _ = column_scales(y_mean, y_square, n)
    divisor = np.where(constant, np.inf, x_scale)
    Y = (Y - y_mean) / y_scale
    fixed = columns.fixed
    F = (sp.csc_array(X)[:, fixed].toarray() - x_mean[fixed]) / divisor[fixed]
    if intercept:
        F = np.column_stack([np.ones(len(F)), F])
    # columns of units stay sparse, and uncentred
    Z = sp.csr_array(sp.csr_array(X) @ sp.diags_array((unit >= 0) / divisor))
    WZ = sp.csr_array(sp.diags_array(weight) @ Z)
    products = sp.csr_array(Z.T @ WZ)
    slots, present = columns.slots, columns.present
    cross = np.asarray((WZ.T @ F).T)[:, slots] * present
    pairs = np.broadcast_arrays(slots[:, :, None], slots[:, None, :])
    blocks = np.asarray(products[pairs[0].ravel(), pairs[1].ravel()]).reshape(pairs[0].shape)
    blocks = blocks * present[:, :, None] * present[:, None, :]
    norms = np.where(constant, 0.0, n * x_square / divisor**2)
    gram = F.T @ (weight[:, None] * F)
    right = np.empty((columns.size, Y.shape[1]))
    right[fixed] = F[:, int(intercept) :].T @ (weight[:, None] * Y)
    right[slots[present]] = np.asarray(WZ.T @ Y)[slots[present]]
    first = UnitGram(columns, gram, cross, blocks, norms, right[:, 0], 0.0, n)
    designs = [
        first.with_target(right[:, t], float(weight @ Y[:, t] ** 2)) for t in range(Y.shape[1])
    ]
    return designs, (x_mean * x_unit, x_scale * x_unit, y_mean * y_unit, y_scale * y_unit)


def unit_posterior(
    design: UnitGram, w: Array, mean: Array, variance: Array, active: Array, scale: Array, v: float
) -> UnitPosterior:
    """q(beta) of the ``active`` columns at precisions w, with covariance v A^-1.

    The others are independent, with their own ``variance``; all in standardised units.
    """
    columns, there = design.columns, np.zeros(design.columns.size, bool)
    there[active] = True
    at = design.eliminated(w, there)
    present = columns.present & there[columns.slots]
    units = columns.slots[present]
    # P is v B^-1, a block for each unit
    rows, cols = np.broadcast_arrays(columns.slots[:, :, None], columns.slots[:, None, :])
    both = present[:, :, None] & present[:, None, :]
    place = np.full(columns.size, -1)
    place[units] = np.arange(len(units))
    where = place[rows[both]], place[cols[both]]
    inside = sp.csr_array((v * at.inverse[both], where), shape=(len(units), len(units)))
    return UnitPosterior(
        mean, variance, columns.fixed[at.inner[design.ones :] - design.ones], units,
        v * (at.root.T @ at.root), at.share[:, present].T.copy(), inside, scale,
    )  # fmt: skip
