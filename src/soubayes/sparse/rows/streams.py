"""Rows that are read again, block by block, in every pass: their design, and their labels."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from soubayes.data.rows import RowBlock, RowSource
from soubayes.sparse.designs.moments import Gathered, GatherPlan, gather_block, join
from soubayes.sparse.designs.standardise import row_blocks, standardise_block
from soubayes.sparse.rows.passes import add_up

Array = np.ndarray


class StreamedTarget(NamedTuple):
    """What y means in every block, and what the first pass found it to sum to."""

    encode: Callable[[Array], Array]
    total: float  # of the weighted numbers


class StreamedRows(NamedTuple):
    """A `RowDesign` whose passes are reductions of a source; its y is a `StreamedTarget`."""

    source: RowSource | None  # None where the work is done
    columns: Array  # of the source, in the order of the design
    mean: Array
    divisor: Array
    intercept: bool
    dtype: np.dtype
    n_rows: int
    weigh: Callable[[RowBlock], Array]  # the weights of a block's rows

    @property
    def n_columns(self) -> int:
        return len(self.columns) + self.intercept

    def take(self, columns: Array) -> "StreamedRows":
        data = columns[columns < len(self.columns)]
        return self._replace(
            columns=self.columns[data],
            mean=self.mean[data],
            divisor=self.divisor[data],
            intercept=bool(self.intercept and len(data) < len(columns)),
        )

    def by_products(self) -> None:
        return None

    def by_columns(self, rows: float = 1.0) -> None:
        return None

    def total(
        self, work: Callable[..., tuple[Any, ...]], y: StreamedTarget, weight: None = None
    ) -> Any:
        """One pass over the blocks, wherever they are; the source knows the weights."""
        assert self.source is not None
        here = self._replace(source=None)
        *total, y_total, n = self.source.reduce(partial(_block_total, here, work, y.encode), _add)
        if n != self.n_rows or abs(y_total - y.total) > 1e-9 * max(1.0, abs(y.total)):
            raise RuntimeError(
                f"a pass found {n} rows whose weighted y sum to {y_total}, where the first found "
                f"{self.n_rows} and {y.total}: the blocks must be the same every time they are "
                "read."
            )
        return total


def _block_total(
    here: StreamedRows,
    work: Callable[..., tuple[Any, ...]],
    encode: Callable[[Array], Array],
    block: RowBlock,
) -> tuple[Any, ...]:
    y, weight = encode(block.y), here.weigh(block)

    def parts() -> Any:
        for rows in row_blocks(len(y)):
            X = block.X[rows][:, here.columns]
            Z = standardise_block(X, here.mean, here.divisor, ones=here.intercept, dtype=here.dtype)
            yield work(Z, y[rows], weight[rows])

    counted = int(np.count_nonzero(weight))
    numbers = y if y.ndim == 1 else y[:, 0]  # an offset stands beside it
    return (*add_up(parts()), float(weight @ numbers), counted)


def _add(a: tuple[Any, ...], b: tuple[Any, ...]) -> Any:
    # a new tuple: Dask may ask for the parts again
    return tuple(x + y for x, y in zip(a, b, strict=True))


class Labels(NamedTuple):
    """The classes of positive weight, with the number and the weight of their rows."""

    names: Array
    rows: Array
    weight: Array


class Survey(NamedTuple):
    """What the first pass of a classifier finds."""

    gathered: Gathered
    labels: Labels
    weights: dict[Any, float] | None  # of the classes


def survey(rows: RowSource, class_weight: Any, keep: int) -> Survey:
    """Classes and column statistics; a second pass where the weights depend on the classes.

    Fewer rows than ``keep`` are kept as rows.
    """
    plan = GatherPlan(_no_targets, keep=keep)
    surveyed = rows.reduce(partial(_survey_block, plan, None), partial(_join_surveys, plan))
    if class_weight is None or surveyed.gathered.statistics is None:
        return surveyed
    weights = class_weights(class_weight, surveyed.labels)
    return rows.reduce(partial(_survey_block, plan, weights), partial(_join_surveys, plan))


def class_weights(class_weight: Any, labels: Labels) -> dict[Any, float]:
    """scikit-learn's weight of every class."""
    if class_weight == "balanced":
        balanced = labels.rows.sum() / (len(labels.names) * labels.rows)
        return dict(zip(labels.names.tolist(), balanced.tolist(), strict=True))
    values = compute_class_weight(class_weight, classes=labels.names, y=labels.names)
    return dict(zip(labels.names.tolist(), values.tolist(), strict=True))


def weigh_block(weights: dict[Any, float] | None, block: RowBlock) -> Array:
    """The weights of a block's rows, those of their classes included."""
    weight = np.ones(len(block.y)) if block.weight is None else block.weight
    if weights is None:
        return weight
    names, place = np.unique(block.y, return_inverse=True)
    return weight * np.array([weights[name] for name in names.tolist()])[place.ravel()]


def _survey_block(plan: GatherPlan, weights: dict[Any, float] | None, block: RowBlock) -> Survey:
    check_classification_targets(block.y)
    weight = weigh_block(weights, block)
    names, place, rows = np.unique(block.y, return_inverse=True, return_counts=True)
    labels = Labels(names, rows, np.bincount(place.ravel(), weight, len(names)))
    gathered = gather_block(plan, RowBlock(block.X, block.y, weight))
    return Survey(gathered, labels, weights)


def _join_surveys(plan: GatherPlan, a: Survey, b: Survey) -> Survey:
    names = np.union1d(a.labels.names, b.labels.names)
    rows, weight = np.zeros(len(names), int), np.zeros(len(names))
    for labels in (a.labels, b.labels):
        place = np.searchsorted(names, labels.names)
        rows[place] += labels.rows
        weight[place] += labels.weight
    gathered = join(plan, a.gathered, b.gathered)
    return Survey(gathered, Labels(names, rows, weight), a.weights)


def _no_targets(y: Array) -> Array:
    return np.zeros((len(y), 0))
