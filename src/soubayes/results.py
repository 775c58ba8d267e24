"""What results share: labels, tables as text and the export to ArviZ."""

import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from soubayes._optional import require
from soubayes._types import DataTree


def printed(table: pd.DataFrame) -> str:
    """All columns and rows of a table as text, whatever the width of the terminal.

    >>> import pandas as pd
    >>> print(printed(pd.DataFrame({"gamma": [1.0, 2.0], "value": [0.5, 0.123456789]})))
     gamma   value
         1     0.5
         2 0.12346
    """
    return table.to_string(index=False, float_format="{:.5g}".format)


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
