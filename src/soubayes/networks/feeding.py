"""Data as chunks: arrays in memory, memory maps, iterables of batches; their scaling and devices.

A source is walked once to learn its size and scale (`survey`) and then once an epoch. A chunk is a
pair of float32 arrays that one compiled scan goes through in minibatches. An array that fits is a
single chunk that stays on the device; nothing else is ever held whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

RESIDENT_BYTES = 2**30  # as float32; larger arrays and memory maps are read in chunks
CHUNK_BYTES = 2**25


@dataclass(frozen=True)
class Scaler:
    """(x - shift) / scale, computed in float64 and returned as float32."""

    shift: np.ndarray
    scale: np.ndarray

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return ((values - self.shift) / self.scale).astype(np.float32)

    def fold(self, first: np.ndarray) -> np.ndarray:
        """A first layer's weights (..., inputs + 1, units) that act on the data as they are."""
        inputs = first.shape[-2] - 1
        shift, scale = (np.broadcast_to(part, inputs) for part in (self.shift, self.scale))
        folded = np.array(first, float)
        folded[..., :-1, :] /= scale[:, None]
        folded[..., -1, :] -= shift @ folded[..., :-1, :]
        return folded

    @property
    def foldable(self) -> bool:
        """Whether float32 keeps the digits of data that are not centred first."""
        return bool((np.abs(self.shift) <= 100 * self.scale).all())

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Back to the units of the data."""
        return np.asarray(values, float) * self.scale + self.shift


class Moments:
    """Mean, variance and range of every column, merged chunk by chunk (Chan et al.'s update)."""

    def __init__(self) -> None:
        self.n, self.mean, self._squares = 0, np.zeros(()), np.zeros(())
        self.low, self.high = np.array(np.inf), np.array(-np.inf)

    def add(self, values: np.ndarray) -> None:
        """Take in the rows of one chunk."""
        values = np.asarray(values, float)
        n, mean = len(values), values.mean(axis=0)
        squares = ((values - mean) ** 2).sum(axis=0)
        total = self.n + n
        gap = mean - self.mean
        self._squares = self._squares + squares + gap**2 * self.n * n / total
        self.mean = self.mean + gap * n / total
        self.n = total
        self.low = np.minimum(self.low, values.min(axis=0))
        self.high = np.maximum(self.high, values.max(axis=0))

    def one_unit(self) -> bool:
        """Whether columns look like pixels or counts: one smallest value, no outsize largest."""
        span = self.high - self.low
        return bool(
            span.size > 1 and (self.low == self.low[0]).all() and span.max() <= 10 * np.median(span)
        )

    @property
    def sd(self) -> np.ndarray:
        """Standard deviations, 1 where a column is constant."""
        sd = np.sqrt(self._squares / self.n)
        # a constant column can leave rounding of its mean behind
        return np.where(sd > 1e-12 * np.abs(self.mean), sd, 1.0)


@dataclass
class ArraySource:
    """Rows of arrays: one resident chunk, or contiguous chunks in a shuffled order."""

    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray | None = None  # the training rows, when some are held out
    streamed: bool = False
    _resident: Any = field(default=None, repr=False)

    def raw(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Views of the data as they are, in order."""
        for block in self._blocks():
            yield self.X[block], self.y[block]

    def chunks(
        self, scale_x: Any, encode_y: Any, rng: np.random.Generator, put: Any
    ) -> Iterator[tuple[Any, Any]]:
        """Scaled chunks of one epoch; minibatches are shuffled later, inside a chunk."""
        if self._resident is None and not self.streamed:
            rows = slice(None) if self.rows is None else self.rows
            self._resident = put(scale_x(self.X[rows]), encode_y(self.y[rows]))
        if not self.streamed:
            yield self._resident
            return
        blocks = list(self._blocks())
        for i in rng.permutation(len(blocks)):
            yield put(scale_x(self.X[blocks[i]]), encode_y(self.y[blocks[i]]))

    def _blocks(self) -> Iterator[Any]:
        per_chunk = max(1, CHUNK_BYTES // (4 * max(1, self.X.shape[1])))
        n = len(self.X) if self.rows is None else len(self.rows)
        for start in range(0, n, per_chunk):
            stop = min(start + per_chunk, n)
            yield slice(start, stop) if self.rows is None else self.rows[start:stop]


@dataclass
class BatchSource:
    """An iterable of (X, y) batches that can be walked again every epoch."""

    batches: Iterable[tuple[Any, Any]]

    def __post_init__(self) -> None:
        if iter(self.batches) is self.batches:
            raise TypeError(
                f"fit was given a {type(self.batches).__name__}, which can be walked only once, "
                "but every epoch walks the batches again. Pass a list or an object whose __iter__ "
                "starts anew."
            )

    def raw(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The batches as NumPy arrays, in their own order."""
        for pair in self.batches:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(
                    f"a batch must be a pair (X, y) of arrays, not {type(pair).__name__}."
                )
            yield np.asarray(pair[0]), np.asarray(pair[1])

    def chunks(
        self, scale_x: Any, encode_y: Any, rng: np.random.Generator, put: Any
    ) -> Iterator[tuple[Any, Any]]:
        """Scaled batches of one epoch, in their own order."""
        for X, y in self.raw():
            yield put(scale_x(X), encode_y(y))


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
