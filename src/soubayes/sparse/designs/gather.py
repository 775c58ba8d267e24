"""One pass over rows that are walked in blocks: their sufficient statistics, or the rows.

Fewer rows than columns travel as rows, which is less than the p x p matrix they would make; a
source that has no more than that (or than a number that is asked for) is fitted in memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from soubayes.data.streams import RowBlock, RowSource
from soubayes.sparse.designs.moments import FoldedMoments, folded_moments

Array = np.ndarray


class GatherPlan(NamedTuple):
    """What is made of the rows."""

    targets: Callable[[Array], Array]  # the (n, targets) numbers of a block's y
    folds: int = 1
    keep: int = 0  # fewer rows than this are kept as rows too


class Gathered(NamedTuple):
    """The rows themselves while they are few, then their statistics."""

    rows: RowBlock | None
    statistics: FoldedMoments | None
    single: bool  # y has one dimension
    n_rows: int  # of positive weight
    dtype: np.dtype

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
    dtype = np.result_type(a.dtype, b.dtype)
    return Gathered(None, both, a.single, a.n_rows + b.n_rows, dtype)


def _statistics(plan: GatherPlan, part: Gathered) -> FoldedMoments:
    if part.statistics is not None:
        return part.statistics
    assert part.rows is not None
    X, y, weight = part.rows
    with np.errstate(over="ignore", invalid="ignore"):  # checked with the column scales
        return folded_moments(X, plan.targets(y), weight, plan.folds)


def _settle(plan: GatherPlan, block: RowBlock) -> Gathered:
    X, y, _ = block
    part = Gathered(block, None, y.ndim == 1, len(y), X.dtype)
    if X.shape[0] < max(X.shape[1], plan.keep):
        plan.targets(y)  # bad input is found here, not later
        return part
    return part._replace(rows=None, statistics=_statistics(plan, part))


def _concatenate(a: RowBlock, b: RowBlock) -> RowBlock:
    stack = sp.vstack if sp.issparse(a.X) or sp.issparse(b.X) else np.concatenate
    weight = None
    if a.weight is not None or b.weight is not None:
        weight = np.concatenate(
            [np.ones(len(part.y)) if part.weight is None else part.weight for part in (a, b)]
        )
    X: Any = stack([a.X, b.X])
    return RowBlock(sp.csr_array(X) if sp.issparse(X) else X, np.concatenate([a.y, b.y]), weight)
