"""Sufficient statistics of least squares, accumulated in chunks of rows.

One pass over rows in blocks: their sufficient statistics, or the rows.

Fewer rows than columns travel as rows, which is less than the p x p matrix they would make; a
source that has no more than that (or than a number that is asked for) is fitted in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils.multiclass import check_classification_targets

from soubayes.data.rows import RowBlock, RowSource

Array = np.ndarray

_UNCHECKED = np.errstate(over="ignore", invalid="ignore")  # `check_squares` sees what overflows
_ROWS = 1024  # rows centred at once: small enough to stay in cache


@dataclass(frozen=True)
class Moments:
    """Weight, means and centred cross-products of (X, y); y has a column for each target.

    Chunks are centred at their own means and merged exactly, so any number of chunks gives the
    same statistics up to rounding, and columns far from zero lose no digits.

    >>> X, y = np.arange(8.0).reshape(4, 2) ** 2, np.arange(4.0)[:, None]
    >>> whole, parts = moments(X, y), moments(X[:1], y[:1]).merge(moments(X[1:], y[1:]))
    >>> bool(np.allclose(whole.xx, parts.xx)) and whole.n == parts.n
    True
    """

    n: float
    x_mean: Array  # (p,)
    y_mean: Array  # (targets,)
    xx: Array  # (p, p)
    xy: Array  # (p, targets)
    yy: Array  # (targets,)

    @_UNCHECKED
    def merge(self, other: "Moments") -> "Moments":
        """The statistics of both sets of rows together."""
        n = self.n + other.n
        share = other.n / n
        # Chan, Golub and LeVeque (1983): no difference of large sums
        dx, dy = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        weight = self.n * share
        return Moments(
            n,
            self.x_mean + share * dx,
            self.y_mean + share * dy,
            self.xx + other.xx + weight * np.outer(dx, dx),
            self.xy + other.xy + weight * np.outer(dx, dy),
            self.yy + other.yy + weight * dy * dy,
        )

    @_UNCHECKED
    def about_zero(self) -> "Moments":
        """The same cross-products about zero instead of the mean (no intercept)."""
        n, x, y = self.n, self.x_mean, self.y_mean
        return Moments(
            n,
            np.zeros_like(x),
            np.zeros_like(y),
            self.xx + n * np.outer(x, x),
            self.xy + n * np.outer(x, y),
            self.yy + n * y * y,
        )


@dataclass(frozen=True)
class FoldedMoments:
    """`Moments` of k folds, row number i in fold i mod k, and how many rows there are.

    Rows are counted from the first, so the folds of rows that follow are turned by the number
    of rows before them: any number of chunks gives the same folds.

    >>> X, y = np.arange(14.0).reshape(7, 2), np.arange(7.0)[:, None]
    >>> whole = folded_moments(X, y, None, 3)
    >>> parts = folded_moments(X[:2], y[:2], None, 3).merge(folded_moments(X[2:], y[2:], None, 3))
    >>> [float(fold.y_mean[0]) for fold in whole.folds], [fold.n for fold in parts.folds]
    ([3.0, 2.5, 3.5], [3.0, 2.0, 2.0])
    """

    folds: tuple[Moments | None, ...]  # None: no row yet
    rows: int

    def merge(self, other: "FoldedMoments") -> "FoldedMoments":
        """With the rows that follow."""
        folds = list(self.folds)
        for i, fold in enumerate(other.folds):
            place = (i + self.rows) % len(folds)
            folds[place] = _both(folds[place], fold)
        return FoldedMoments(tuple(folds), self.rows + other.rows)

    @property
    def shape(self) -> tuple[int, int]:
        """How many columns and targets there are."""
        fold = next(fold for fold in self.folds if fold is not None)
        return fold.xy.shape

    def total(self, without: int | None = None) -> Moments:
        """Of all rows, or of all but one fold."""
        total = None
        for i, fold in enumerate(self.folds):
            total = total if i == without else _both(total, fold)
        assert total is not None
        return total


def _both(a: Moments | None, b: Moments | None) -> Moments | None:
    return a.merge(b) if a is not None and b is not None else a or b


def folded_moments(X: Any, y: Array, weight: Array | None, folds: int) -> FoldedMoments:
    """Statistics of every fold; rows of weight 0 have been taken out."""
    each_fold = []
    for i in range(folds):
        rows = slice(i, None, folds)
        counts = None if weight is None else weight[rows]
        each_fold.append(moments(X[rows], y[rows], counts) if i < len(y) else None)
    return FoldedMoments(tuple(each_fold), len(y))


@_UNCHECKED
def moments(X: Any, y: Array, weight: Array | None = None) -> Moments:
    """Statistics of dense or scipy-sparse rows; ``weight`` counts each row that many times."""
    if sp.issparse(X):
        return _sparse_moments(X, y, np.ones(len(y)) if weight is None else weight)
    total: Moments | None = None
    for begin in range(0, len(y), _ROWS):
        rows = slice(begin, begin + _ROWS)
        counts = None if weight is None else weight[rows]
        if counts is not None and not counts.any():
            continue
        chunk = _dense_moments(np.asarray(X[rows], float), np.asarray(y[rows], float), counts)
        total = chunk if total is None else total.merge(chunk)
    assert total is not None  # some weight is positive
    return total


def _dense_moments(X: Array, y: Array, weight: Array | None) -> Moments:
    if weight is None:
        n, x_mean, y_mean = float(len(y)), X.mean(axis=0), y.mean(axis=0)
        xc, yc = X - x_mean, y - y_mean
    else:
        n = float(weight.sum())
        x_mean, y_mean = weight @ X / n, weight @ y / n
        root = np.sqrt(weight)[:, None]
        xc, yc = (X - x_mean) * root, (y - y_mean) * root
    return Moments(n, x_mean, y_mean, xc.T @ xc, xc.T @ yc, np.sum(yc * yc, axis=0))


def _sparse_moments(X: Any, y: Array, weight: Array) -> Moments:
    """X'WX stays sparse until it is p x p; X itself is never made dense."""
    n = float(weight.sum())
    X = sp.csr_array(X)
    weighted = sp.csr_array(X.multiply(weight[:, None]))
    x_mean, y_mean = np.asarray(weighted.sum(axis=0)).ravel() / n, weight @ y / n
    xx = (X.T @ weighted).toarray() - n * np.outer(x_mean, x_mean)
    yc = y - y_mean
    xy = weighted.T @ yc
    return Moments(n, x_mean, y_mean, xx, np.asarray(xy), weight @ (yc * yc))


class GatherPlan(NamedTuple):
    """What is made of the rows."""

    # the (n, targets) numbers of a block's y; None: y are classes, which are counted
    targets: Callable[[Array], Array] | None
    folds: int = 1
    keep: int = 0  # fewer rows than this are kept as rows too

    def of(self, y: Array) -> Array:
        """The numbers that moments are made of."""
        return np.zeros((len(y), 0)) if self.targets is None else self.targets(y)


class Gathered(NamedTuple):
    """The rows themselves while they are few, then their statistics."""

    rows: RowBlock | None
    statistics: FoldedMoments | None
    single: bool  # y has one dimension
    n_rows: int  # of positive weight
    dtype: np.dtype
    classes: dict[Any, float]  # the weight of every class; empty where y are numbers

    @property
    def n_columns(self) -> int:
        """p."""
        if self.statistics is not None:
            return self.statistics.shape[0]
        assert self.rows is not None
        return self.rows.X.shape[1]


def gather(rows: RowSource, plan: GatherPlan) -> Gathered:
    """One pass."""
    return rows.reduce(partial(gather_block, plan), partial(join, plan))


def gather_block(plan: GatherPlan, block: RowBlock) -> Gathered:
    """What one block contributes."""
    if block.weight is not None and not block.weight.all():
        keep = block.weight > 0
        block = RowBlock(block.X[keep], block.y[keep], block.weight[keep])
    return _settle(plan, block)


def join(plan: GatherPlan, a: Gathered, b: Gathered) -> Gathered:
    """Two parts together, the second behind the first."""
    if a.rows is not None and b.rows is not None:
        return _settle(plan, _concatenate(a.rows, b.rows))
    both = _statistics(plan, a).merge(_statistics(plan, b))
    dtype, names = np.result_type(a.dtype, b.dtype), {**a.classes, **b.classes}
    classes = {name: a.classes.get(name, 0.0) + b.classes.get(name, 0.0) for name in names}
    return Gathered(None, both, a.single, a.n_rows + b.n_rows, dtype, classes)


def _statistics(plan: GatherPlan, part: Gathered) -> FoldedMoments:
    if part.statistics is not None:
        return part.statistics
    assert part.rows is not None
    X, y, weight = part.rows
    with np.errstate(over="ignore", invalid="ignore"):  # checked with the column scales
        return folded_moments(X, plan.of(y), weight, plan.folds)


def _settle(plan: GatherPlan, block: RowBlock) -> Gathered:
    X, y, weight = block
    classes: dict[Any, float] = {}
    if plan.targets is None:
        check_classification_targets(y)
        names, place = np.unique(y, return_inverse=True)
        counts = np.bincount(place.ravel(), weight, len(names)).astype(float)
        classes = dict(zip(names.tolist(), counts.tolist(), strict=True))
    gathered = Gathered(block, None, y.ndim == 1, len(y), X.dtype, classes)
    if X.shape[0] < max(X.shape[1], plan.keep):
        plan.of(y)  # bad input is found here, not later
        return gathered
    return gathered._replace(rows=None, statistics=_statistics(plan, gathered))


def _concatenate(a: RowBlock, b: RowBlock) -> RowBlock:
    stack = sp.vstack if sp.issparse(a.X) or sp.issparse(b.X) else np.concatenate
    weight = None
    if a.weight is not None or b.weight is not None:
        weight = np.concatenate(
            [np.ones(len(block.y)) if block.weight is None else block.weight for block in (a, b)]
        )
    X: Any = stack([a.X, b.X])
    return RowBlock(sp.csr_array(X) if sp.issparse(X) else X, np.concatenate([a.y, b.y]), weight)
