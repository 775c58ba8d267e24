"""What results share: labels, how they print, and the export to ArviZ."""

import warnings
from collections.abc import Mapping
from html import escape
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from soubayes._optional import require
from soubayes._types import DataTree
from soubayes.levels import LEVEL, check_level

__all__ = ["LEVEL", "check_level", "coordinates", "to_inference_data"]


Shown = list[str | pd.DataFrame]  # sentences and tables, from top to bottom


class Printable:
    """A result that shows itself: text on a terminal, tables in a notebook.

    >>> class Found(Printable):
    ...     def _shown(self):
    ...         return ["Found(two points)", pd.DataFrame({"gamma": [1, 2], "value": [0.5, 1 / 9]})]
    >>> Found()
    Found(two points)
     gamma   value
         1     0.5
         2 0.11111
    """

    def _shown(self) -> Shown:
        """What is to be seen, with all columns of the tables."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return shown_as_text(self._shown())

    def _repr_html_(self) -> str:
        return shown_as_html(self._shown())


def shown_as_text(parts: Shown) -> str:
    """Sentences and tables for a terminal."""
    tables = {"index": False, "float_format": "{:.5g}".format}
    return "\n".join(part if isinstance(part, str) else part.to_string(**tables) for part in parts)


def shown_as_html(parts: Shown) -> str:
    """The same for a notebook."""
    tables = {"index": False, "float_format": "{:.5g}".format, "border": 0}
    return "\n".join(
        f"<p>{escape(part)}</p>" if isinstance(part, str) else part.to_html(**tables)
        for part in parts
        if not isinstance(part, str) or part
    )


class WholeTable(pd.DataFrame):
    """A table that prints all of its columns, also on a narrow terminal.

    >>> table = WholeTable({f"column {j}": [1.0] for j in range(30)})
    >>> "..." in repr(table), "..." in table._repr_html_()
    (False, False)
    """

    @property
    def _constructor(self) -> type["WholeTable"]:
        return WholeTable

    def __repr__(self) -> str:
        with pd.option_context("display.max_columns", None):
            return super().__repr__()

    def _repr_html_(self) -> str | None:
        with pd.option_context("display.max_columns", None):
            return super()._repr_html_()


def in_words(thing: Any) -> str:
    """A distribution or a function as one would write it, without its address in memory.

    >>> from scipy import stats
    >>> in_words(stats.norm(0, 10)), in_words(lambda mu: mu)
    ('norm(0, 10)', 'function of mu')
    """
    if hasattr(thing, "dist") and hasattr(thing, "kwds"):  # a frozen distribution of scipy
        given = [*map(str, thing.args), *(f"{name}={value}" for name, value in thing.kwds.items())]
        return f"{thing.dist.name}({', '.join(given)})"
    if isinstance(thing, tuple):
        return f"({', '.join(map(in_words, thing))})"
    if isinstance(thing, Mapping):
        return f"{{{', '.join(f'{name}: {in_words(part)}' for name, part in thing.items())}}}"
    plain = repr(thing)
    if " at 0x" not in plain:
        return plain
    try:
        return f"function of {', '.join(signature(thing).parameters)}"
    except (TypeError, ValueError):
        return type(thing).__name__


def coordinates(name: str, shape: tuple[int, ...]) -> list[str]:
    """A label for every coordinate of an array, or the name itself for a number.

    >>> coordinates("theta", (2,)), coordinates("mu", ())
    (['theta[0]', 'theta[1]'], ['mu'])
    """
    each = (",".join(map(str, index)) for index in np.ndindex(shape))
    return [f"{name}[{index}]" if index else name for index in each]


def to_inference_data(
    draws: Mapping[str, ArrayLike],
    log_likelihood: Mapping[str, ArrayLike] | None = None,
    coords: Any = None,
    dims: Any = None,
    **attrs: Any,
) -> DataTree:
    """Independent draws, each of shape (draw, ...), as one chain of an ArviZ object.

    >>> data = to_inference_data({"mu": [0.1, 0.2, 0.3]}, engine="exact")
    >>> data.posterior["mu"].shape
    (1, 3)
    """
    groups = {"posterior": draws, **({"log_likelihood": log_likelihood} if log_likelihood else {})}
    chained: dict[str, Any] = {
        group: {name: np.asarray(values)[None] for name, values in of.items()}
        for group, of in groups.items()
    }
    data = chains_for_arviz(**chained, coords=coords, dims=dims)
    data.posterior.attrs.update(attrs)
    return data


def chains_for_arviz(
    posterior: Mapping[str, np.ndarray],
    log_likelihood: Mapping[str, np.ndarray] | None = None,
    coords: Mapping[str, list[str]] | None = None,
    dims: Mapping[str, list[str]] | None = None,
) -> DataTree:
    """Draws of shape (chain, draw, ...) as an ArviZ object, with log densities of observations.

    A ``DataTree`` as ArviZ 1 and PyMC 6 have it, made by arviz-base; where ArviZ before 1.0 is
    installed its ``InferenceData``, since its functions take nothing else.

    >>> chains_for_arviz({"mu": np.zeros((2, 3))}).posterior["mu"].dims
    ('chain', 'draw')
    """
    groups = {"posterior": dict(posterior)}
    if log_likelihood:
        groups["log_likelihood"] = dict(log_likelihood)
    labels = {name: given for name, given in (("coords", coords), ("dims", dims)) if given}
    old = _old_arviz()
    if old is not None:
        return old.from_dict(**groups, **labels)
    return require("arviz_base", "to_arviz").from_dict(groups, **labels)


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
