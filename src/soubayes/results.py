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


def pareto_smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Importance weights with a smoothed tail, which sum to 1, and k-hat (Vehtari et al. 2024).

    The largest 3 sqrt(n) of the weights are replaced by quantiles of a generalised Pareto
    distribution fitted to them. Its shape is k-hat: below 0.7 weighted means can be trusted.

    >>> from scipy.stats import norm
    >>> x = norm.ppf(np.linspace(0.001, 0.999, 1000))  # w = e^(x^2 / 2) has no mean
    >>> print(pareto_smoothed(-(x**2))[1] < 0 < 0.7 < pareto_smoothed(x**2 / 2)[1])
    True
    """
    n = len(log_weights)
    log_w = np.asarray(log_weights, float) - np.max(log_weights)
    count = pareto_tail(n)
    order = np.argsort(log_w)
    tail = order[-count:]
    cutoff = log_w[order[-count - 1]]
    excess = np.exp(log_w[tail]) - np.exp(cutoff)
    khat = float("-inf")
    # weights with a largest value that many draws have, or all alike, have no tail
    if np.ptp(log_w[tail]) > 1e-12 and count >= 5 and excess[0] > 0:
        khat, scale = pareto_fit(excess)
        levels = (np.arange(count) + 0.5) / count
        quantile = scale * np.expm1(-khat * np.log1p(-levels)) / khat
        log_w[tail] = np.minimum(np.log(quantile + np.exp(cutoff)), 0.0)
    weights = np.exp(log_w)
    return weights / weights.sum(), khat


def pareto_tail(n: int) -> int:
    """How many of n weights are taken for their tail."""
    return int(min(0.2 * n, 3 * np.sqrt(n)))


def pareto_fit(x: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution (Zhang and Stephens 2009), x sorted.

    The shape is drawn towards 1/2 by ten observations' worth, as PSIS has it.
    """
    n = len(x)
    grid = 30 + int(np.sqrt(n))
    theta = 1 / x[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (
        3 * x[int(n / 4 + 0.5) - 1]
    )
    shape = np.log1p(-theta[:, None] * x).mean(axis=1)
    profile = n * (np.log(-theta / shape) - shape - 1)
    weights = 1 / np.exp(profile - profile[:, None]).sum(axis=1)
    best = np.sum(theta * weights / weights.sum())
    k = np.log1p(-best * x).mean()
    return float((n * k + 10 * 0.5) / (n + 10)), float(-k / best)


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
