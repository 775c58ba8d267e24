"""What results share: labelled tables and the export to ArviZ."""

import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from soubayes._optional import require
from soubayes._types import DataFrame, DataTree


class Table(Mapping[str, np.ndarray]):
    """Named columns of equal length, readable without pandas.

    Parameters
    ----------
    **columns : array-like
        The columns, by name. Two-dimensional columns are kept but not printed.

    Attributes
    ----------
    n_rows : int
        The number of rows.

    Notes
    -----
    A Table is a mapping from names to arrays: ``table["gamma"]`` is a column and ``list(table)``
    the names. Paths, histories and scores of this library are Tables. A column of truth values is
    printed as ``yes`` where it is true.

    Examples
    --------
    >>> table = Table(gamma=[1.0, 2.0], value=[0.5, 0.7])
    >>> table["value"]
    array([0.5, 0.7])
    >>> len(table.to_pandas())
    2
    >>> print(table)
    gamma  value
        1    0.5
        2    0.7

    A column of truth values is printed as a mark in the rows where it is true.

    >>> print(Table(gamma=[1.0, 2.0], chosen=[False, True]))
    gamma  chosen
        1       -
        2     yes
    """

    def __init__(self, **columns: ArrayLike) -> None:
        self._columns = {name: np.asarray(values) for name, values in columns.items()}
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of a Table must have one length, not {lengths}.")

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            raise KeyError(f"no column {name!r}; the columns are {list(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self._columns.values()), ()))

    def to_pandas(self) -> DataFrame:
        """Convert the table to pandas (extra ``io``).

        Returns
        -------
        frame : pandas.DataFrame
            The same columns; two-dimensional ones become columns of arrays.
        """
        pandas = require("pandas", "Table.to_pandas")
        flat = {k: v if v.ndim == 1 else list(v) for k, v in self._columns.items()}
        return pandas.DataFrame(flat)

    def __repr__(self) -> str:
        def cell(value: Any) -> str:
            if isinstance(value, bool | np.bool_):
                return "yes" if value else "-"
            return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)

        shown = {k: v for k, v in self._columns.items() if v.ndim == 1}
        rows = [list(shown), *([cell(v[i]) for v in shown.values()] for i in range(self.n_rows))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        )


def coordinates(name: str, shape: tuple[int, ...]) -> list[str]:
    """A label for every coordinate of an array, or the name itself for a number.

    >>> coordinates("theta", (2,)), coordinates("mu", ())
    (['theta[0]', 'theta[1]'], ['mu'])
    """
    each = (",".join(map(str, index)) for index in np.ndindex(shape))
    return [f"{name}[{index}]" if index else name for index in each]


def to_inference_data(draws: Mapping[str, ArrayLike], **attrs: Any) -> DataTree:
    """Independent draws, each of shape (draw, ...), as one chain of an ArviZ object.

    >>> data = to_inference_data({"mu": [0.1, 0.2, 0.3]}, engine="exact")
    >>> data.posterior["mu"].shape
    (1, 3)
    """
    data = chains_for_arviz({name: np.asarray(values)[None] for name, values in draws.items()})
    data.posterior.attrs.update(attrs)
    return data


def chains_for_arviz(posterior: Mapping[str, np.ndarray]) -> DataTree:
    """Draws of shape (chain, draw, ...) as an ArviZ object with the group ``posterior``.

    A ``DataTree`` as ArviZ 1 and PyMC 6 have it, made by arviz-base; where ArviZ before 1.0 is
    installed its ``InferenceData``, since its functions take nothing else.

    >>> chains_for_arviz({"mu": np.zeros((2, 3))}).posterior["mu"].dims
    ('chain', 'draw')
    """
    old = _old_arviz()
    if old is not None:
        return old.from_dict(posterior=dict(posterior))
    return require("arviz_base", "to_arviz").from_dict({"posterior": dict(posterior)})


def pareto_khat(log_weights: np.ndarray, wanted: str) -> float:
    """PSIS k-hat of log importance weights; below 0.7 their means can be trusted.

    >>> from scipy.stats import norm
    >>> x = norm.ppf(np.linspace(0.001, 0.999, 1000))  # w = e^(x^2 / 2) has no mean
    >>> print(pareto_khat(-(x**2), "an example") < 0 < 0.7 < pareto_khat(x**2 / 2, "an example"))
    True
    """
    top = np.sort(log_weights)[
        -max(5, min(len(log_weights) // 5, 3 * int(len(log_weights) ** 0.5))) :
    ]
    if np.ptp(top) < 1e-12:  # weights with a largest value that many draws have, or all alike
        return float("-inf")
    # arviz-stats takes log likelihoods, whose negatives are the log weights of leaving one out
    return float(require("arviz_stats.base", wanted).array_stats.psislw(-log_weights)[1])


def _old_arviz() -> Any:
    """ArviZ before 1.0, if that is installed."""
    try:
        if int(version("arviz").partition(".")[0]) >= 1:
            return None
    except PackageNotFoundError:
        return None
    with warnings.catch_warnings():  # it announces version 1 once a day
        warnings.simplefilter("ignore")
        return import_module("arviz")
