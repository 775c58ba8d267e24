"""Data as chunks: arrays in memory, memory maps, iterables of batches; their scaling and devices.

A source is read once to learn its size and scale (`survey`) and then once for each epoch. A chunk
is rows of X, of y and their weights, which one compiled scan goes through in minibatches. An array
that fits is a single chunk that stays on the device; nothing else is ever held whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from soubayes.data.rows import check_row_labels, row_weights

RESIDENT_BYTES = 2**30  # as float32; larger arrays and memory maps are read in chunks
CHUNK_BYTES = 2**25
HELD_OUT_MOST = 10_000  # rows that are held out


class Chunk(NamedTuple):
    """Some rows: inputs, targets, and a weight for each row."""

    X: Any
    y: Any
    weight: Any


@dataclass(frozen=True)
class Scaler:
    """(x - shift) / scale, computed in float64 and returned as float32."""

    shift: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        shapes = self.shift.shape, self.scale.shape
        if shapes[0] != shapes[1] or self.shift.ndim > 1 or not (self.scale > 0).all():
            raise ValueError(f"means and scales of the shapes {shapes} make no scaling")

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return ((values - self.shift) / self.scale).astype(np.float32)

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """The same in float32 throughout where that loses at most a digit, which is faster."""
        far = np.abs(self.shift) > 10 * self.scale
        if (far | (self.scale < 1e-30) | (self.scale > 1e30)).any():  # float32 ends near 1e38
            return self(values)
        shift, factor = self.shift.astype(np.float32), (1 / self.scale).astype(np.float32)
        return (values.astype(np.float32, copy=False) - shift) * factor

    def of(self, columns: np.ndarray | None) -> "Scaler":
        """The scaling of some of the columns."""
        if columns is None or not self.shift.ndim:
            return self
        return Scaler(self.shift[columns], self.scale[columns])

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Back to the units of the data."""
        return np.asarray(values, float) * self.scale + self.shift


class ColumnMoments:
    """Mean, variance and range of every column, merged chunk by chunk (Chan et al.'s update).

    Rows count by their weights, which are positive and are added up in units of the first one.
    Squares are added up in units of the first chunk's largest value, so columns of any unit
    neither overflow nor vanish.
    """

    def __init__(self) -> None:
        self.rows, self._total, self._unit, self._size = 0, 0.0, 1.0, 1.0
        self.mean, self._squares = np.zeros(()), np.zeros(())
        self.low, self.high = np.array(np.inf), np.array(-np.inf)

    def add(self, values: np.ndarray, weight: np.ndarray) -> None:
        """Take in the rows of one chunk."""
        values = np.asarray(values, float)
        if not self.rows:
            self._unit = weight[0]
            exponent = np.frexp(np.abs(values).max())[1]
            self._size = float(np.exp2(exponent - 1))  # a power of 2: dividing rounds nothing
        share = weight / self._unit
        here, total = share.sum(), self._total + share.sum()
        mean = share @ values / here
        gap = mean - self.mean
        self._squares = self._squares + share @ ((values - mean) / self._size) ** 2
        self._squares = self._squares + (gap / self._size) ** 2 * (self._total * here / total)
        self.mean = self.mean + gap * (here / total)
        self.rows, self._total = self.rows + len(values), total
        self.low = np.minimum(self.low, values.min(axis=0))
        self.high = np.maximum(self.high, values.max(axis=0))

    def one_unit(self) -> bool:
        """Whether columns look like pixels or counts: one smallest value, no outsize largest."""
        span = self.high - self.low
        return bool(
            span.size > 1 and (self.low == self.low[0]).all() and span.max() <= 10 * np.median(span)
        )

    @property
    def weight(self) -> float:
        """The sum of the weights."""
        return float(self._total * self._unit)

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations; of a constant column its size, which has its unit (1 if it is 0)."""
        sd, size = self._size * np.sqrt(self._squares / self._total), np.abs(self.mean)
        # a constant column can leave rounding of its mean behind
        return np.where(sd > 1e-12 * size, sd, np.where(size > 0.0, size, 1.0))


@dataclass
class ArraySource:
    """Rows of arrays: one resident chunk, or contiguous chunks in a shuffled order."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    rows: np.ndarray | None = None  # the training rows, when some are held out or weigh nothing
    streamed: bool = False
    _resident: Any = field(default=None, repr=False)

    def raw(self) -> Iterator[Chunk]:
        """Views of the data as they are, in order."""
        for block in self._blocks():
            yield self[block]

    def chunks(self, prepare: Any, rng: np.random.Generator) -> Iterator[Chunk]:
        """Prepared chunks of one epoch; minibatches are shuffled later, inside a chunk."""
        if self._resident is None and not self.streamed:
            self._resident = prepare(self[slice(None) if self.rows is None else self.rows])
        if not self.streamed:
            yield self._resident
            return
        blocks = list(self._blocks())
        for i in rng.permutation(len(blocks)):
            yield prepare(self[blocks[i]])

    def weighed_out(self, whole: Any) -> "ArraySource":
        """The source of all rows, where those that this one lacks weigh nothing."""
        weight = np.zeros_like(whole.weight)
        weight[self.rows] = whole.weight[self.rows]
        return ArraySource(whole.X, whole.y, weight, whole.rows, whole.streamed)

    def __getitem__(self, rows: Any) -> Chunk:
        return Chunk(self.X[rows], self.y[rows], self.weight[rows])

    def _blocks(self) -> Iterator[Any]:
        per_chunk = max(1, CHUNK_BYTES // (4 * max(1, self.X.shape[1])))
        n = len(self.X) if self.rows is None else len(self.rows)
        for start in range(0, n, per_chunk):
            stop = min(start + per_chunk, n)
            yield slice(start, stop) if self.rows is None else self.rows[start:stop]


@dataclass
class BatchSource:
    """Batches, (X, y) or (X, y, weight), that can be iterated again for every epoch."""

    batches: Iterable[tuple[Any, ...]]
    every: int | None = None  # so many rows after each other give one that is held out

    def __post_init__(self) -> None:
        if iter(self.batches) is self.batches:
            raise TypeError(
                f"fit was given a {type(self.batches).__name__}, which can be iterated only once, "
                "but every epoch reads the batches again. Pass a list or an object whose __iter__ "
                "starts anew."
            )

    def raw(self) -> Iterator[Chunk]:
        """The batches as NumPy arrays, in their own order, without the rows held out."""
        for chunk, held in self._split():
            if not held.all():
                yield Chunk(*(part[~held] for part in chunk)) if held.any() else chunk

    def held_out(self) -> Chunk:
        """The rows that are held out."""
        parts = [Chunk(*(part[held] for part in chunk)) for chunk, held in self._split()]
        return Chunk(*map(np.concatenate, zip(*parts, strict=True)))

    def _split(self) -> Iterator[tuple[Chunk, np.ndarray]]:
        """Batches and which of their rows are held out."""
        start = 0
        for chunk in self._all():
            number = start + np.arange(len(chunk.X))
            start += len(number)
            held = np.zeros(len(number), bool)
            if self.every is not None:
                held = (number % self.every == 0) & (number < self.every * HELD_OUT_MOST)
            yield chunk, held

    def _all(self) -> Iterator[Chunk]:
        for parts in self.batches:
            if not isinstance(parts, tuple | list) or len(parts) not in (2, 3):
                raise TypeError(
                    "a batch must be (X, y) or (X, y, weight), all arrays, "
                    f"not {type(parts).__name__}."
                )
            check_row_labels(dict(zip(("X", "y", "sample_weight"), parts, strict=False)))
            X, y = np.asarray(parts[0]), np.asarray(parts[1])
            if len(X) != len(y):
                raise ValueError(f"a batch has {len(X)} rows of X but {len(y)} of y.")
            if len(parts) == 2:
                yield Chunk(X, y, np.ones(len(X)))
                continue
            weight = check_weight(parts[2], X)
            counted = weight > 0
            if counted.any():
                yield Chunk(X[counted], y[counted], weight[counted])

    def chunks(self, prepare: Any, rng: np.random.Generator) -> Iterator[Chunk]:
        """Prepared batches of one epoch, in their own order."""
        yield from map(prepare, self.raw())


def flat(X: Any) -> Any:
    """Rows of any shape as rows of columns; a memory map stays one."""
    return X.reshape(len(X), -1) if X.ndim > 2 else X


def check_weight(weight: Any, X: np.ndarray) -> np.ndarray:
    """The weights of the rows of X in float64; ones for None."""
    return row_weights(weight, len(X))


def minibatches(n: int, batch_size: int) -> tuple[int, int]:
    """Steps and rows a step of a chunk of n rows; fewer than `steps` random rows sit out.

    >>> minibatches(300, 128)
    (2, 150)
    """
    steps = max(1, round(n / batch_size))
    return steps, n // steps


def data_mesh(batch: int) -> jax.sharding.Mesh:
    """As many devices as divide a minibatch, in one row.

    The random numbers do not depend on the placement, so the result does not either.
    """
    devices = jax.devices()
    count = max(k for k in range(1, len(devices) + 1) if batch % k == 0)
    return jax.sharding.Mesh(np.array(devices[:count]), ("rows",))


def placement(mesh: jax.sharding.Mesh, *axes: str) -> jax.sharding.NamedSharding:
    """Copies on every device, or split along the named axes of the mesh."""
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
