"""What a report is made of: tables of ours beside the paper's, and pictures."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from paper.storage import Row
from soubayes._optional import require


class Cell(NamedTuple):
    """A mean over data sets with its Monte Carlo standard error, and the paper's number.

    ``better`` is "lower" or "higher" where one of them is better, "" where neither is.
    """

    mean: float
    error: float = math.nan
    data_sets: int = 0
    paper: float | None = None
    better: str = ""
    digits: int = 2

    @property
    def verdict(self) -> str:
        """ "better", "equal" or worse than the paper, or "" where there is nothing to compare.

        Equal means within 2 sqrt(2) standard errors (the paper's own error is taken to be as
        large as ours) and half a unit of the paper's last digit.

        >>> Cell(1.40, 0.01, 100, paper=1.42, better="lower").verdict
        'equal'
        """
        if self.paper is None or not self.better or not math.isfinite(self.mean):
            return ""
        error = self.error if math.isfinite(self.error) else 0.0
        gain = (self.mean - self.paper) * (1 if self.better == "higher" else -1)
        if abs(gain) <= 2 * math.sqrt(2) * error + 0.5 * 10**-self.digits:
            return "equal"
        return "better" if gain > 0 else "worse"


class View(NamedTuple):
    """A table: ``rows`` hold strings (the row's name) and cells, one for each of ``columns``."""

    title: str
    note: str
    columns: list[str]
    rows: list[list["str | Cell"]]
    folded: bool = False


class Picture(NamedTuple):
    """A figure: ``name`` of its files, what it shows, and the function that draws it."""

    name: str
    title: str
    note: str
    draw: Callable[[], Any]


Content = list[View | Picture]


def select(rows: Iterable[Row], **where: Any) -> list[Row]:
    """The rows without error whose parameters agree with ``where``."""
    return [
        row
        for row in rows
        if not row.error and all(row.parameters.get(k) == v for k, v in where.items())
    ]


def cell(
    rows: list[Row],
    metric: str,
    *,
    paper: float | None = None,
    better: str = "",
    digits: int = 2,
) -> Cell:
    """The mean of ``metric`` over rows, with its standard error; NaN (no nulls, say) left out."""
    values = np.array([row.result[metric] for row in rows if metric in row.result], dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return Cell(math.nan, paper=paper, digits=digits)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Cell(float(values.mean()), float(error), len(values), paper, better, digits)


def name_of(row: Mapping[str, Any]) -> str:
    """The name of a row of a table.

    >>> name_of({"n": 25, "p": 20, "signals": 10})
    'n 25, p 20, signals 10'
    """
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in row.items())


# Okabe and Ito's colours, told apart by colour-blind readers; the styles do the same in grey.
_STYLES = {
    "sou": ("SoU-SGL", "#0072B2", "-", "o", ""),
    "horseshoe": ("Horseshoe", "#D55E00", "--", "s", "///"),
    "lasso": ("Lasso", "#009E73", ":", "^", "..."),
    "gl": ("GL", "#CC79A7", "-.", "D", "xxx"),
    "bnn": ("BNN", "#009E73", ":", "^", "..."),
}
STYLE = {
    method: dict(zip(("label", "color", "linestyle", "marker", "hatch"), values, strict=True))
    for method, values in _STYLES.items()
}


def line_style(method: str) -> dict[str, Any]:
    """The arguments of ``Axes.plot`` for a method."""
    return {k: v for k, v in STYLE[method].items() if k in ("color", "linestyle", "label")}


def new_figure(width: float, height: float) -> Any:
    """A matplotlib Figure outside pyplot's state, so reports need no display."""
    matplotlib = require("matplotlib.figure", "python -m paper report")
    return matplotlib.Figure(figsize=(width, height), layout="constrained")
