"""What estimators are given as rows: arrays and tables in memory, which are checked, or a source.

Rows of X, y and what goes beside them belong together by position, as in scikit-learn. pandas joins
by label instead. So labels that say another order than the positions are an error: one of the two
is wrong, and only the user knows which.
"""

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from numbers import Real
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from soubayes.confidence import shown
from soubayes.data.unusable import why_unusable

Array = np.ndarray
Made = TypeVar("Made")

# arguments of methods that have an entry for each row, by the argument that has the rows
ROW_ARGUMENTS = {
    "X": ("y", "sample_weight", "groups", "offset", "exposure", "strata"),
    "X_val": ("y_val",),
}
# a row that counts for less is lost to rounding beside the prior, or beside the other rows
_LEAST_WEIGHT, _MOST_WEIGHT, _MOST_RATIO = 1e-12, 1e100, 1e12
_FEW_ROWS = 20  # a table of toy size may have a class for every row


class RowBlock(NamedTuple):
    """Some rows: X dense or scipy-sparse, in float64 or float32; y as it was given."""

    X: Any
    y: Array
    weight: Array | None


class RowSource(Protocol):
    """A source of blocks."""

    @property
    def names(self) -> Array | None:
        """Of the columns, where they have any."""

    @property
    def once(self) -> bool:
        """Whether it can be iterated only once."""

    def reduce(self, work: Callable[[RowBlock], Any], merge: Callable[[Any, Any], Any]) -> Any:
        """``work`` of every block, merged."""


def as_rows(X: Any, y: Any, sample_weight: Any) -> RowSource | None:
    """The source that ``fit`` was given, or None for data in memory.

    A Dask array or dataframe; a path of a ``.npy`` file, or of a parquet file or folder with y
    the name of a column; a memory-mapped array; an iterable of (X, y) or (X, y, weight) blocks,
    or a function without arguments that returns one.

    >>> blocks = [(np.ones((2, 3)), np.zeros(2)), (np.ones((1, 3)), np.zeros(1))]
    >>> as_rows(blocks, None, None).reduce(lambda block: len(block.y), int.__add__)
    3
    """
    check_masks(X=X, y=y, sample_weight=sample_weight)
    blocks = callable(X) or (hasattr(X, "__iter__") and not hasattr(X, "shape"))
    blocks = blocks and y is None and not hasattr(X, "__array__")
    if not (blocks or is_dask(X) or isinstance(X, str | os.PathLike | np.memmap)):
        return None
    from soubayes.data.streams import source_of  # which rows in memory do not need

    return source_of(X, y, sample_weight)


def walked_again(rows: RowSource, estimator: str) -> None:
    """Refuse blocks that can be iterated only once, where every step of a solver reads them."""
    if rows.once:
        raise TypeError(
            f"fit was given blocks that can be iterated only once, but {estimator} reads them at "
            "every step. Pass a list, an object whose __iter__ starts anew, or a function without "
            "arguments that returns an iterator."
        )


def block_by_block(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of X that returns arrays by row, made lazy for a Dask X."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        check_in_memory(X, method.__name__)
        if not is_dask(X):
            return method(self, X, *args, **kwargs)
        work = partial(method, self, **kwargs) if not args else None
        if work is None:
            raise TypeError(f"with a Dask X, pass the options of {method.__name__} by name.")
        from soubayes.data.streams import lazily

        return lazily(work, X)

    return call


def check_in_memory(X: Any, method: str) -> None:
    """Refuse what only ``fit`` of a regression reads: a path, or a query that has not run."""
    check_eager(X=X)
    check_masks(X=X)
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            f"X is the path {os.fspath(X)!r}, but {method} takes the rows themselves: read the "
            "file first, for example with pandas.read_parquet or numpy.load."
        )


def check_eager(**tables: Any) -> None:
    """Refuse tables that are still a query, such as a polars LazyFrame."""
    for name, table in tables.items():
        if hasattr(table, "collect_schema") and not hasattr(table, "__array__"):
            where = ", or write it to parquet and pass that path to fit" if name == "X" else ""
            raise TypeError(
                f"{name} is a {type(table).__name__}, a query that has not run: pass "
                f"{name}.collect(){where}."
            )


def check_masks(**arrays: Any) -> None:
    """Refuse masked values: NumPy would put what is behind the mask in their place."""
    for name, array in arrays.items():
        if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
            raise ValueError(
                f"{name} is a masked array with {int(np.ma.count_masked(array))} masked values, "
                "which are missing values: remove those rows, or fill them in."
            )


def row_weights(weight: Any, rows: int) -> Array:
    """``sample_weight`` as float64, a number for each row; None is 1, a number is that number.

    >>> row_weights(None, 2), row_weights([1, 0], 2)
    (array([1., 1.]), array([1., 0.]))
    """
    if weight is None or isinstance(weight, Real):
        return np.full(rows, 1.0 if weight is None else float(weight))
    found = check_array(weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if found.shape != (rows,):
        raise ValueError(
            f"sample_weight has the shape {found.shape}, but there are {rows} rows: give one "
            "number for each row."
        )
    if (found < 0.0).any():
        raise ValueError(
            f"sample_weight has negative values, the least {found.min():.3g}, but a weight says "
            "how often a row counts: it must be 0 or more."
        )
    if not found.any():
        raise ValueError("all entries of sample_weight are zero: give some rows a weight above 0.")
    return found


def check_weights(weight: Array) -> None:
    """Refuse weights that are lost to rounding, or that overflow when squared."""
    some = weight[weight > 0.0]
    if not len(some):
        return  # the callers count the rows that are left
    low, high = float(some.min()), float(some.max())
    if high > _MOST_WEIGHT or low < _LEAST_WEIGHT or high > _MOST_RATIO * low:
        raise ValueError(
            f"sample_weight has positive entries from {low:.2g} to {high:.2g}, but they must lie "
            f"between {_LEAST_WEIGHT:.0e} and {_MOST_WEIGHT:.0e} and the largest may be at "
            f"most {_MOST_RATIO:.0e} times the smallest; set the smallest weights to 0."
        )


def check_sizes(y: Array, advice: str) -> None:
    """Refuse a y beside which the others are lost, where a row counts in proportion to its y."""
    some = y[y > 0.0]
    if len(some) and some.max() / _MOST_RATIO > np.median(some):
        raise ValueError(
            f"y has the value {some.max():.6g}, which is more than {_MOST_RATIO:.0e} times the "
            f"median of the positive ones, {np.median(some):.3g}: {advice}."
        )


def check_labels(y: Any) -> None:
    """Refuse numbers that are no labels, and labels of which hardly one comes back.

    A class of one or two rows can be neither learnt nor held out. The bounds are those from which
    scikit-learn warns that y may be a number.

    >>> check_labels(np.arange(30) / 7.0)
    Traceback (most recent call last):
    ValueError: Unknown label type: y holds numbers such as 0.142857, which are no labels of \
classes: if y is a number, use a regressor such as SoULinearRegression; if not, pass whole numbers \
or text.
    """
    values = np.asarray(y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        if type_of_target(values, "y") == "continuous":
            broken = values[values.astype(float) % 1.0 != 0.0]
            raise ValueError(
                f"Unknown label type: y holds numbers such as {float(broken[0]):.6g}, which are no "
                "labels of classes: if y is a number, use a regressor such as SoULinearRegression; "
                "if not, pass whole numbers or text."
            )
        check_classification_targets(values)
    rows, classes = values.size, len(np.unique(values))
    if rows > _FEW_ROWS and 2 * classes >= rows:
        raise ValueError(
            f"y has {classes} classes in {rows} rows, which is too few rows for a class: if y is a "
            "number, use a regressor such as SoULinearRegression; if not, join classes."
        )


def plain_labels(y: Any) -> Any:
    """Labels of a pandas column of its own types as a NumPy array of the same values.

    Without this, nullable booleans become the numbers 0 and 1. Missing values are left to the
    checks that follow.
    """
    if not hasattr(y, "to_numpy") or isinstance(getattr(y, "dtype", np.dtype(float)), np.dtype):
        return y
    values = np.asarray(y)
    if values.dtype != object:
        return values
    kinds = {type(value) for value in values}
    return np.array(values.tolist()) if kinds in ({bool}, {int}) else y


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask."""
    return hasattr(X, "__dask_graph__")


def checks_rows(cls: type[Made]) -> type[Made]:
    """Make every public method of rows check them first, and name columns that it cannot use.

    Methods of scikit-learn's base classes, such as ``score``, are among them.
    """
    methods = {
        name: member
        for base in reversed(cls.__mro__)
        for name, member in vars(base).items()
        if not name.startswith("_")
    }
    for name, method in methods.items():
        if inspect.isfunction(method) and row_arguments(method):
            setattr(cls, name, _checked(method))
    return cls


def row_arguments(method: Callable[..., Any]) -> dict[str, list[str]]:
    """Names of the arguments that belong to the rows of a table, by the name of the table.

    >>> row_arguments(lambda self, X, y, offset=None, level=0.9: None)
    {'X': ['y', 'offset']}
    """
    names = inspect.signature(method).parameters
    beside = {
        rows: [name for name in others if name in names] for rows, others in ROW_ARGUMENTS.items()
    }
    return {rows: others for rows, others in beside.items() if rows in names}


def check_row_labels(inputs: Mapping[str, Any]) -> None:
    """Refuse pandas inputs whose labels are those of an earlier one in another order.

    Each is compared with the first one of its length. Inputs with other labels, or with none, are
    taken by position.

    >>> frame = pd.DataFrame({"x": [1, 2]}, index=["a", "b"])
    >>> check_row_labels({"X": frame, "y": pd.Series([3, 4], index=["c", "d"])})
    """
    first: dict[int, tuple[str, pd.Index]] = {}
    for name, index in _labels(inputs):
        before = first.setdefault(len(index), (name, index))
        row = _first_in_another_order(before[1], index)
        if row is not None:
            raise ValueError(_message(*before, name, index, row))


def check_kinds(X: Any, y: Any = None) -> None:
    """Refuse dates and durations, which NumPy would make numbers of any unit."""
    if any(kind in "mM" for values in (X, y) for kind in _kinds(values)):
        raise ValueError(why_unusable(X, y))


def _kinds(X: Any) -> Iterator[str]:
    """NumPy's kind of every column, from dtypes alone."""
    if isinstance(X, pd.DataFrame):
        yield from (getattr(kind, "kind", "O") for kind in X.dtypes)
    elif hasattr(getattr(X, "dtype", None), "kind"):
        yield X.dtype.kind
    elif hasattr(X, "dtype") and hasattr(X, "to_numpy"):  # a column of polars
        yield X[:1].to_numpy().dtype.kind
    elif hasattr(X, "columns") and hasattr(X, "head") and not is_dask(X):  # polars and its like
        first = X.head(1)
        yield from (np.asarray(first[name]).dtype.kind for name in first.columns)


@contextmanager
def explained(X: Any, y: Any = None, y_is_numbers: bool = True) -> Iterator[None]:
    """An error names the columns that are not finite numbers, if there are any."""
    try:
        yield
    except NotFittedError:
        raise
    except (TypeError, ValueError) as error:
        reason = why_unusable(X, y, y_is_numbers)
        if reason is None or reason == str(error):
            raise
        raise ValueError(reason) from error


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    signature, arguments = inspect.signature(method), row_arguments(method)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:
            given = {}  # the method itself says what is missing
        for rows, others in arguments.items():
            inputs = {name: given.get(name) for name in (rows, *others)}
            check_eager(**inputs)
            check_row_labels(inputs)
        X, y = given.get("X"), given.get("y")
        numbers = y is not None and is_regressor(self)
        check_kinds(X, y if numbers else None)
        with explained(X, y, numbers):
            return method(self, *args, **kwargs)

    return call


def _labels(inputs: Mapping[str, Any]) -> Iterator[tuple[str, pd.Index]]:
    """The index of every input that has one; those of a tuple, as of (event, time), one by one."""
    for name, value in inputs.items():
        entries = (
            {f"{name}[{i}]": entry for i, entry in enumerate(value)}
            if type(value) is tuple
            else {name: value}
        )
        for entry, values in entries.items():
            if isinstance(values, pd.DataFrame | pd.Series):
                yield entry, values.index


def _first_in_another_order(one: pd.Index, other: pd.Index) -> int | None:
    """The first row whose labels differ, if the labels are the same, as often, in another order.

    Both have the same length. Names of levels and dtypes may differ: labels are compared.
    """
    if one is other or one.equals(other):
        return None
    if one.dtype != other.dtype:  # pandas cannot append all pairs of types
        one, other = one.astype(object), other.astype(object)
    try:
        codes, labels = one.append(other).factorize(use_na_sentinel=False)
    except TypeError:  # labels that cannot be hashed
        return None
    ours, theirs = codes[: len(one)], codes[len(one) :]
    counts = [np.bincount(each, minlength=len(labels)) for each in (ours, theirs)]
    different = np.flatnonzero(ours != theirs)
    return int(different[0]) if np.array_equal(counts[0], counts[1]) and len(different) else None


def _message(first: str, one: pd.Index, name: str, other: pd.Index, row: int) -> str:
    by_label = (
        f"pass {name}.loc[{first}.index] to join them by label"
        if one.is_unique
        else f"sort both in one order (labels repeat, so {name}.loc cannot)"
    )
    return (
        f"{name} has the row labels of {first} in another order: row {row} is {shown(one[row])} in "
        f"{first} and {shown(other[row])} in {name}. Rows are joined by position: {by_label}, or "
        f"{name}.to_numpy() if the order is right as it is."
    )
