"""What the solvers need of rows that are walked in blocks: statistics, labels, and a design.

Fewer rows than columns travel as rows, which is less than the p x p matrix they would make; a
source that has no more than that is fitted in memory.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from soubayes.sparse.base import as_dense, check_finite_columns, column_scales
from soubayes.sparse.jaakkola import Design, add_up
from soubayes.sparse.logistic_path import Problem
from soubayes.sparse.moments import Moments, moments
from soubayes.sparse.streams import Block, Rows
from soubayes.sparse.units import Units

Array = np.ndarray
_ROWS = 4096  # standardised at once


class Gathered(NamedTuple):
    """The rows themselves while they are fewer than their columns, then their statistics."""

    rows: Block | None
    statistics: Moments | None
    single: bool  # y has one dimension


def gather(rows: Rows, targets: Callable[[Array], Array]) -> Gathered:
    """One pass; ``targets`` makes the (n, targets) numbers of a block's y."""
    return rows.reduce(partial(_gather_block, targets), partial(_join, targets))


class Labels(NamedTuple):
    """The classes of positive weight, with the number and the weight of their rows."""

    names: Array
    rows: Array
    weight: Array


class Survey(NamedTuple):
    """What the first pass of a classifier finds."""

    gathered: Gathered
    labels: Labels
    dtype: np.dtype

    @property
    def n_columns(self) -> int:
        """p."""
        rows, statistics = self.gathered.rows, self.gathered.statistics
        if statistics is not None:
            return len(statistics.x_mean)
        assert rows is not None
        return rows.X.shape[1]


def survey(rows: Rows, class_weight: Any) -> Survey:
    """Classes and column statistics; a second pass where the weights depend on the classes."""
    if rows.once:
        raise TypeError(
            "fit was given blocks that can be walked only once, but logistic regression walks them "
            "at every step. Pass a list, an object whose __iter__ starts anew, or a function "
            "without arguments that returns an iterator."
        )
    found = rows.reduce(partial(_survey_block, by_class=None), _join_surveys)
    if class_weight is None or found.gathered.statistics is None:
        return found
    return rows.reduce(
        partial(_survey_block, by_class=class_weights(class_weight, found.labels)), _join_surveys
    )


def class_weights(class_weight: Any, labels: Labels) -> dict[Any, float]:
    """scikit-learn's weight of every class."""
    if class_weight == "balanced":
        balanced = labels.rows.sum() / (len(labels.names) * labels.rows)
        return dict(zip(labels.names.tolist(), balanced.tolist(), strict=True))
    values = compute_class_weight(class_weight, classes=labels.names, y=labels.names)
    return dict(zip(labels.names.tolist(), values.tolist(), strict=True))


def stream_problem(
    rows: Rows, found: Survey, order: Array, centre: bool, class_weight: Any
) -> tuple[Problem, Units]:
    """What the solvers of logistic regression get, with X'X/4 from the first pass."""
    statistics = found.gathered.statistics
    assert statistics is not None
    use = statistics if centre else statistics.about_zero()
    square = np.diag(use.xx) / use.n
    scale, constant = column_scales(use.x_mean, square, use.n)
    check_finite_columns(square)
    units = Units(use.x_mean, scale, constant)
    divisor = np.where(constant, np.inf, scale)[order]  # a constant column becomes 0
    gram = np.zeros((len(order) + centre,) * 2)
    gram[: len(order), : len(order)] = use.xx[np.ix_(order, order)] / np.outer(divisor, divisor)
    gram[len(order) :, len(order) :] = use.n
    by_class = None if class_weight is None else class_weights(class_weight, found.labels)
    design = StreamDesign(
        rows, order, use.x_mean[order], divisor, centre, found.dtype, by_class, found.labels
    )
    return Problem(cast(Design, design), None, gram / 4.0, use.n), units


class StreamDesign(NamedTuple):
    """Standardised columns of rows that are somewhere else; see `jaakkola.Design`.

    ``total`` is one pass over the blocks. Its y is the label of the class that is 1; weights are
    those of the blocks times ``by_class``.
    """

    source: Any  # Rows; None where the work is done
    columns: Array  # of the source, in the order of the design
    mean: Array
    scale: Array
    intercept: bool
    dtype: np.dtype
    by_class: dict[Any, float] | None
    labels: Labels

    @property
    def n_rows(self) -> int:
        """n."""
        return int(self.labels.rows.sum())

    @property
    def n_columns(self) -> int:
        """The columns in use, with the intercept."""
        return len(self.columns) + self.intercept

    def take(self, columns: Array) -> "StreamDesign":
        """Some columns (ascending)."""
        data = columns[columns < len(self.columns)]
        return self._replace(
            columns=self.columns[data],
            mean=self.mean[data],
            scale=self.scale[data],
            intercept=bool(self.intercept and len(data) < len(columns)),
        )

    def total(self, work: Callable[..., tuple[Any, ...]], y: Any, weight: Any) -> Any:
        """One pass over the blocks, wherever they are."""
        view = self._replace(source=None)
        *total, positive, n = self.source.reduce(partial(_block_total, view, work, y), _add)
        expected = float(self.labels.weight[self.labels.names == y][0])
        if n != self.n_rows or abs(positive - expected) > 1e-9 * max(1.0, expected):
            raise RuntimeError(
                f"a pass found {n} rows and a weight of {positive} in class {y}, where the first "
                f"found {self.n_rows} and {expected}: the blocks must be the same every time they "
                "are walked."
            )
        return total


def _gather_block(targets: Callable[[Array], Array], block: Block) -> Gathered:
    if block.weight is not None and not block.weight.all():
        keep = block.weight > 0
        block = Block(block.X[keep], block.y[keep], block.weight[keep])
    return _settle(targets, block)


def _settle(targets: Callable[[Array], Array], block: Block) -> Gathered:
    if block.X.shape[0] < block.X.shape[1]:
        targets(block.y)  # bad input is found here, not later
        return Gathered(block, None, block.y.ndim == 1)
    with np.errstate(over="ignore", invalid="ignore"):  # checked with the column scales
        found = moments(block.X, targets(block.y), block.weight)
    return Gathered(None, found, block.y.ndim == 1)


def _join(targets: Callable[[Array], Array], a: Gathered, b: Gathered) -> Gathered:
    if a.rows is not None and b.rows is not None:
        return _settle(targets, _concatenate(a.rows, b.rows))
    if a.statistics is not None and b.statistics is not None:
        return Gathered(None, a.statistics.merge(b.statistics), a.single)
    rows, found = (a.rows or b.rows), (a.statistics or b.statistics)
    assert rows is not None
    assert found is not None
    if len(rows.y):
        found = found.merge(moments(rows.X, targets(rows.y), rows.weight))
    return Gathered(None, found, a.single)


def _concatenate(a: Block, b: Block) -> Block:
    stack = sp.vstack if sp.issparse(a.X) or sp.issparse(b.X) else np.concatenate
    weight = None
    if a.weight is not None or b.weight is not None:
        weight = np.concatenate(
            [np.ones(len(part.y)) if part.weight is None else part.weight for part in (a, b)]
        )
    X: Any = stack([a.X, b.X])
    return Block(sp.csr_array(X) if sp.issparse(X) else X, np.concatenate([a.y, b.y]), weight)


def _survey_block(block: Block, by_class: dict[Any, float] | None) -> Survey:
    check_classification_targets(block.y)
    X, y, weight = block.X, block.y, _weights(block, by_class)
    names, place, rows = np.unique(y, return_inverse=True, return_counts=True)
    labels = Labels(names, rows, np.bincount(place.ravel(), weight, len(names)))
    return Survey(_gather_block(_no_targets, Block(X, y, weight)), labels, X.dtype)


def _join_surveys(a: Survey, b: Survey) -> Survey:
    names = np.union1d(a.labels.names, b.labels.names)
    rows, weight = np.zeros(len(names), int), np.zeros(len(names))
    for labels in (a.labels, b.labels):
        place = np.searchsorted(names, labels.names)
        rows[place] += labels.rows
        weight[place] += labels.weight
    return Survey(
        _join(_no_targets, a.gathered, b.gathered),
        Labels(names, rows, weight),
        np.result_type(a.dtype, b.dtype),
    )


def _no_targets(y: Array) -> Array:
    return np.zeros((len(y), 0))


def _weights(block: Block, by_class: dict[Any, float] | None) -> Array:
    weight = np.ones(len(block.y)) if block.weight is None else block.weight
    if by_class is None:
        return weight
    names, place = np.unique(block.y, return_inverse=True)
    return weight * np.array([by_class[name] for name in names.tolist()])[place.ravel()]


def _block_total(
    view: StreamDesign, work: Callable[..., tuple[Any, ...]], label: Any, block: Block
) -> tuple[Any, ...]:
    y, weight = (block.y == label).astype(float), _weights(block, view.by_class)

    def parts() -> Any:
        for begin in range(0, len(y), _ROWS):
            rows = slice(begin, begin + _ROWS)
            Z = (as_dense(block.X[rows][:, view.columns]) - view.mean) / view.scale
            Z = Z.astype(view.dtype, copy=False)
            if view.intercept:
                Z = np.hstack([Z, np.ones((len(Z), 1), view.dtype)])
            yield work(Z, y[rows], weight[rows])

    return (*add_up(parts()), float(weight @ y), len(y))


def _add(a: tuple[Any, ...], b: tuple[Any, ...]) -> Any:
    # a new tuple: Dask may ask for the parts again
    return tuple(x + y for x, y in zip(a, b, strict=True))
