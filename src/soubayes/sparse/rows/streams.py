"""Rows that are read again, block by block, in every pass."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from soubayes.data.rows import RowBlock, RowSource
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
    y = encode(block.y)
    weight = np.ones(len(y)) if block.weight is None else block.weight

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
