"""One pass over rows that are walked in blocks: their sufficient statistics, or the rows.

Fewer rows than columns travel as rows, which is less than the p x p matrix they would make; a
source that has no more than that is fitted in memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from soubayes.data.streams import RowBlock, RowSource
from soubayes.sparse.designs.moments import Moments, moments

Array = np.ndarray


class Gathered(NamedTuple):
    """The rows themselves while they are fewer than their columns, then their statistics."""

    rows: RowBlock | None
    statistics: Moments | None
    single: bool  # y has one dimension
    n_rows: int  # of positive weight
    dtype: np.dtype

    @property
    def n_columns(self) -> int:
        """p."""
        if self.statistics is not None:
            return len(self.statistics.x_mean)
        assert self.rows is not None
        return self.rows.X.shape[1]


def gather(rows: RowSource, targets: Callable[[Array], Array]) -> Gathered:
    """One pass; ``targets`` makes the (n, targets) numbers of a block's y."""
    return rows.reduce(partial(gather_block, targets), partial(join, targets))


def gather_block(targets: Callable[[Array], Array], block: RowBlock) -> Gathered:
    """What one block contributes."""
    if block.weight is not None and not block.weight.all():
        keep = block.weight > 0
        block = RowBlock(block.X[keep], block.y[keep], block.weight[keep])
    return _settle(targets, block)


def join(targets: Callable[[Array], Array], a: Gathered, b: Gathered) -> Gathered:
    """Two parts together."""
    if a.rows is not None and b.rows is not None:
        return _settle(targets, _concatenate(a.rows, b.rows))
    found = [_statistics(targets, part) for part in (a, b)]
    if found[0] is None or found[1] is None:
        both = found[0] or found[1]
    else:
        both = found[0].merge(found[1])
    dtype = np.result_type(a.dtype, b.dtype)
    return Gathered(None, both, a.single, a.n_rows + b.n_rows, dtype)


def _statistics(targets: Callable[[Array], Array], part: Gathered) -> Moments | None:
    """Of a part, None if it has no rows."""
    if part.rows is None:
        return part.statistics
    X, y, weight = part.rows
    return moments(X, targets(y), weight) if len(y) else None


def _settle(targets: Callable[[Array], Array], block: RowBlock) -> Gathered:
    X, y, weight = block
    if X.shape[0] < X.shape[1]:
        targets(y)  # bad input is found here, not later
        return Gathered(block, None, y.ndim == 1, len(y), X.dtype)
    with np.errstate(over="ignore", invalid="ignore"):  # checked with the column scales
        found = moments(X, targets(y), weight)
    return Gathered(None, found, y.ndim == 1, len(y), X.dtype)


def _concatenate(a: RowBlock, b: RowBlock) -> RowBlock:
    stack = sp.vstack if sp.issparse(a.X) or sp.issparse(b.X) else np.concatenate
    weight = None
    if a.weight is not None or b.weight is not None:
        weight = np.concatenate(
            [np.ones(len(part.y)) if part.weight is None else part.weight for part in (a, b)]
        )
    X: Any = stack([a.X, b.X])
    return RowBlock(sp.csr_array(X) if sp.issparse(X) else X, np.concatenate([a.y, b.y]), weight)
