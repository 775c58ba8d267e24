"""What results share: labelled tables and the export to ArviZ."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from soubayes._optional import require


class Table(Mapping[str, np.ndarray]):
    """Columns of equal length with names, readable without pandas and convertible to it.

    >>> table = Table(gamma=[1.0, 2.0], value=[0.5, 0.7])
    >>> table["value"]
    array([0.5, 0.7])
    >>> len(table.to_pandas())
    2
    >>> print(table)
    gamma  value
        1    0.5
        2    0.7
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

    def to_pandas(self) -> Any:
        """The same table as a pandas DataFrame (extra ``io``); 2-D columns become lists."""
        pandas = require("pandas", "Table.to_pandas")
        flat = {k: v if v.ndim == 1 else list(v) for k, v in self._columns.items()}
        return pandas.DataFrame(flat)

    def __repr__(self) -> str:
        def cell(value: Any) -> str:
            return f"{value:.5g}" if isinstance(value, float | np.floating) else str(value)

        shown = {k: v for k, v in self._columns.items() if v.ndim == 1}
        rows = [list(shown), *([cell(v[i]) for v in shown.values()] for i in range(self.n_rows))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True))
            for row in rows
        )


def to_inference_data(draws: Mapping[str, ArrayLike], **attrs: Any) -> Any:
    """Independent draws, each of shape (draws, ...), as one chain of an ArviZ InferenceData.

    >>> data = to_inference_data({"mu": [0.1, 0.2, 0.3]}, engine="exact")
    >>> data.posterior["mu"].shape
    (1, 3)
    """
    arviz = require("arviz", "to_arviz")
    posterior = {name: np.asarray(values)[None] for name, values in draws.items()}
    data = arviz.from_dict(posterior=posterior)
    data.posterior.attrs.update(attrs)
    return data
