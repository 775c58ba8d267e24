"""Where rows come from when they do not fit in memory: blocks of (X, y, weight), read again.

A source has one verb, ``reduce``: a function of every block, merged two results at a time. Only
results travel: on Dask the function runs where the block is, and results are merged in a tree.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_consistent_length

from soubayes._optional import require
from soubayes.data.rows import (
    Array,
    RowBlock,
    RowSource,
    check_kinds,
    check_masks,
    check_row_labels,
    check_weights,
    explained,
    is_dask,
    plain_labels,
)

_BYTES = 2**25  # of a block cut from a memory-mapped array
_ROWS = 2**16  # of a block read from parquet
_TEXT = {".csv", ".tsv", ".txt", ".gz", ".zip", ".json", ".xlsx", ".xls", ".feather", ".npz"}
_FAN_IN = 8  # results merged by one Dask task


def source_of(X: Any, y: Any, sample_weight: Any) -> RowSource:
    """The source that Dask collections, paths, memory maps or an iterable of blocks make."""
    if is_dask(X):
        return _from_dask(X, y, sample_weight)
    if isinstance(X, str | os.PathLike) and Path(X).suffix != ".npy":
        return _from_parquet(Path(X), y, sample_weight)
    if isinstance(X, str | os.PathLike | np.memmap):
        return _from_arrays(*map(_opened, (X, y, sample_weight)))
    if sample_weight is not None:
        raise ValueError("give the weights of blocks as the third entry of each block.")
    return _from_blocks(X)


def lazily(work: Callable[[Any], Any], X: Any) -> Any:
    """A Dask array of what ``work`` says of every row, or a tuple of them."""
    array = X.to_dask_array() if hasattr(X, "columns") else X
    frame = X._meta if hasattr(X, "columns") else None
    example = _as_block(np.zeros((1, X.shape[1])), frame)
    found = work(example)
    if isinstance(found, tuple):
        return tuple(_lazily(array, frame, work, part, i) for i, part in enumerate(found))
    return _lazily(array, frame, work, found, None)


class WalkedRows(NamedTuple):
    """Blocks on this machine, one at a time."""

    walk: Callable[[], Iterator[RowBlock]]
    names: Array | None = None
    once: bool = False

    def reduce(self, work: Callable[[RowBlock], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """``work`` of every block, merged in their order."""
        total, width = None, None
        for block in self.walk():
            width = width or block.X.shape[1]
            if block.X.shape[1] != width:
                raise ValueError(
                    f"a block of {block.X.shape[1]} columns follows blocks of {width}; all blocks "
                    "must have the same columns."
                )
            if len(block.y):
                part = work(block)
                total = part if total is None else merge(total, part)
        if total is None:
            raise ValueError("there are no rows: the source is empty, or was read before.")
        return total


class DelayedRows(NamedTuple):
    """Blocks of Dask collections, wherever they are: work goes to them."""

    blocks: list[tuple[Any, Any, Any]]
    names: Array | None = None
    once: bool = False
    targets: Array | None = None  # names of the columns of y

    def reduce(self, work: Callable[[RowBlock], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """``work`` on the workers, merged in a tree; the client gets one result."""
        dask = require("dask", "a Dask X")
        names = self.names, self.targets
        shared = dask.delayed(_Shared(work, merge, names), traverse=False)  # sent once, not a task
        parts = [dask.delayed(_apply)(shared, *block) for block in self.blocks]
        while len(parts) > 1:
            groups = [parts[i : i + _FAN_IN] for i in range(0, len(parts), _FAN_IN)]
            parts = [dask.delayed(_merge)(shared, group) for group in groups]
        with dask.config.set(_limits()):
            (total,) = dask.compute(*parts)
        if total is None:
            raise ValueError("there are no rows: every partition of X is empty.")
        return total


def _limits() -> dict[str, str]:
    """What is sent grows with the square of the columns in use; this is intended.

    Only a cluster warns of it, and only `distributed` sends to one. Before that is imported its
    part of the configuration must not be touched: a key set too early is taken out afterwards
    together with all of its defaults.
    """
    if "distributed" not in sys.modules:
        return {}
    return {"distributed.admin.large-graph-warning-threshold": "4GB"}


class _Shared(NamedTuple):
    work: Callable[[RowBlock], Any]
    merge: Callable[[Any, Any], Any]
    names: tuple[Array | None, Array | None]  # of the columns of X and y


def _apply(shared: _Shared, X: Any, y: Any, weight: Any) -> Any:
    block = _check_block((X, y, weight), shared.names)
    return shared.work(block) if len(block.y) else None


def _merge(shared: _Shared, parts: list[Any]) -> Any:
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else shared.merge(total, part)
    return total


def _check_block(item: Any, names: tuple[Array | None, Array | None] = (None, None)) -> RowBlock:
    """One block as the work functions expect it; float32 stays float32.

    ``names`` are those of the columns of X and y, by which the columns are put in order.
    """
    X, y, weight = _parts(item)
    check_row_labels({"X": X, "y": y, "sample_weight": weight})
    check_masks(X=X, y=y, weight=weight)
    X, y = _ordered("X", X, names[0]), _ordered("y", y, names[1])
    check_kinds(X)
    with explained(X):
        X = check_array(
            X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=0
        )
    y = np.asarray(plain_labels(y))
    check_consistent_length(X, y, weight)
    if weight is not None:
        weight = check_array(
            weight,
            ensure_2d=False,
            dtype=np.float64,
            ensure_min_samples=0,
            ensure_non_negative=len(y) > 0,  # scikit-learn takes the minimum
            input_name="sample_weight",
        )
        check_weights(weight)
    return RowBlock(X, y, weight)


def _parts(item: Any) -> tuple[Any, Any, Any]:
    """X, y and weight (or None) of a block."""
    if not isinstance(item, tuple | list) or len(item) not in (2, 3):
        given = type(item).__name__
    elif np.ndim(item[0]) == 0 and not hasattr(item[0], "shape"):
        given = f"a {type(item).__name__} of {len(item)} numbers"
    else:
        return (*item, None)[:3]
    raise TypeError(
        f"y is None, so X is read as blocks of rows, but a block is {given} and not (X, y) or "
        "(X, y, weight); to fit arrays in memory pass y."
    )


def _ordered(what: str, part: Any, names: Array | None) -> Any:
    """The columns of a block in the order of the first block's, by name."""
    found = _names(part)
    if found is None and names is None:
        return part
    if found is None or names is None or set(found) != set(names):
        given, wanted = _listed(found), _listed(names)
        raise ValueError(
            f"{what} of a block has {given}, but that of the first block has {wanted}; every "
            "block must have the same columns, in any order."
        )
    return part if list(found) == list(names) else part[list(names)]


def _listed(names: Array | None) -> str:
    if names is None:
        return "no column names"
    few = ", ".join(repr(str(name)) for name in names[:5])
    return f"the columns {few}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _from_blocks(X: Any) -> WalkedRows:
    once = not callable(X) and iter(X) is X

    def walk() -> Iterator[RowBlock]:
        names = None
        for item in X() if callable(X) else X:
            part = _parts(item)
            if names is None:
                names = _names(part[0]), _names(part[1])
            yield _check_block(part, names)

    names = None
    if not once:
        first = next(iter(X() if callable(X) else X), None)
        names = None if first is None else _names(_parts(first)[0])
    return WalkedRows(walk, names, once)


def _from_arrays(X: Array, y: Any, weight: Any) -> WalkedRows:
    if y is None:
        raise ValueError("X is a memory-mapped array, but y is None: pass an array or a .npy path.")
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape}, but it must have two dimensions.")
    y = np.asarray(y) if not isinstance(y, np.memmap) else y
    check_consistent_length(X, y, weight)
    step = max(1, _BYTES // max(1, X.itemsize * X.shape[1]))

    def walk() -> Iterator[RowBlock]:
        for i in range(0, len(X), step):
            rows = slice(i, i + step)
            yield _check_block((X[rows], y[rows], None if weight is None else weight[rows]))

    return WalkedRows(walk)


def _from_parquet(path: Path, y: Any, weight: Any) -> WalkedRows:
    if path.suffix.lower() in _TEXT:
        raise ValueError(
            f"X is the path {str(path)!r}, but fit reads only .npy files and parquet: read the "
            "table first, for example with pandas.read_csv, or run the command soubayes fit."
        )
    if not isinstance(y, str):
        raise ValueError(
            f"X is the path {str(path)!r}, read as parquet, but y is {type(y).__name__}: pass the "
            "name of the target's column (or, for arrays, paths that end in .npy)."
        )
    if not path.exists():
        raise FileNotFoundError(f"{str(path)!r} does not exist; pass a parquet file or folder.")
    if not (weight is None or isinstance(weight, str)):
        raise ValueError("X is parquet: pass sample_weight as the name of a column.")
    table = require("pyarrow.dataset", "parquet").dataset(path, format="parquet")
    if not table.files:
        raise ValueError(f"the folder {str(path)!r} holds no parquet file.")
    _check_files(table)
    used = [y] if weight is None else [y, weight]
    names = np.array([name for name in table.schema.names if name not in used], dtype=object)
    missing = sorted(set(used) - set(table.schema.names))
    if missing:
        raise ValueError(f"{str(path)!r} has no column {missing[0]!r}; it has {list(names)}.")

    def walk() -> Iterator[RowBlock]:
        for batch in table.to_batches(batch_size=_ROWS, batch_readahead=2, fragment_readahead=1):
            X = np.column_stack([_numbers(batch.column(name)) for name in names])
            labels = batch.column(y).to_numpy(zero_copy_only=False)
            counts = None if weight is None else _numbers(batch.column(weight))
            yield _check_block((X, labels, counts))

    return WalkedRows(walk, names)


def _check_files(table: Any) -> None:
    """Every file of a folder has the columns of the first; they are read by name."""
    names = set(table.schema.names)
    for fragment in table.get_fragments():
        other = sorted(names ^ set(fragment.physical_schema.names))
        if other:
            raise ValueError(
                f"{fragment.path!r} and {table.files[0]!r} do not have the same columns: only one "
                f"of them has {other[0]!r}."
            )


def _from_dask(X: Any, y: Any, weight: Any) -> DelayedRows:
    if y is None:
        raise ValueError("X is a Dask collection, but y is None: pass its Dask series or array.")
    names = _names(X)
    if names is None:
        if X.ndim != 2:
            raise ValueError(f"X has shape {X.shape}, but it must have two dimensions.")
        X = X.rechunk({1: -1})
        blocks = list(X.to_delayed().ravel())
    else:
        blocks = list(X.to_delayed())
    others = [_partitions(part, X, len(blocks)) for part in (y, weight)]
    return DelayedRows(
        list(zip(blocks, *others, strict=True)), names, targets=_names(y) if is_dask(y) else None
    )


def _partitions(part: Any, X: Any, count: int) -> list[Any]:
    """The blocks of y or the weights that belong to those of X."""
    if part is None:
        return [None] * count
    known = hasattr(X, "chunks") and not np.isnan(X.chunks[0]).any()
    if not is_dask(part):
        if not known:
            raise ValueError(
                "X is a Dask collection of unknown lengths and y or sample_weight is not one: "
                "pass both as Dask collections with the same partitions."
            )
        part = require("dask.array", "a Dask X").from_array(np.asarray(part))
    if hasattr(part, "chunks"):
        if known and not np.isnan(part.chunks[0]).any():
            check_consistent_length(X, part)
            part = part.rechunk({0: X.chunks[0]})
        part = part.rechunk({1: -1}) if part.ndim > 1 else part
    blocks = list(np.ravel(part.to_delayed()))
    if len(blocks) != count:
        raise ValueError(
            f"X has {count} partitions and y or sample_weight {len(blocks)}; repartition one of "
            "them so that their rows correspond."
        )
    return blocks


def _lazily(array: Any, frame: Any, work: Callable[[Any], Any], like: Array, item: Any) -> Any:
    array = array.rechunk({1: -1})
    shape: dict[str, Any] = (
        {"drop_axis": 1} if like.ndim == 1 else {"chunks": (array.chunks[0], (like.shape[1],))}
    )
    return array.map_blocks(
        _predict_block, frame, work, item, dtype=like.dtype, meta=like[:0], **shape
    )


def _predict_block(X: Any, frame: Any, work: Callable[[Any], Any], item: int | None) -> Array:
    found = work(_as_block(X, frame))
    return found if item is None else found[item]


def _as_block(X: Any, frame: Any) -> Any:
    return X if frame is None else type(frame)(X, columns=frame.columns)


def _opened(part: Any) -> Any:
    return np.load(part, mmap_mode="r") if isinstance(part, str | os.PathLike) else part


def _numbers(column: Any) -> Array:
    return column.to_numpy(zero_copy_only=False)


def _names(X: Any) -> Array | None:
    columns = getattr(X, "columns", None)
    return None if columns is None or len(X.shape) != 2 else np.asarray(columns, dtype=object)
