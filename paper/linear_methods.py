"""The methods of the linear tables: each a function of a data set giving an estimate."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LassoCV

from soubayes.datasets import Regression, oracle_coef
from soubayes.horseshoe import horseshoe_gibbs


class Fit(NamedTuple):
    """Estimated coefficients, and the 90 % intervals of methods that give any."""

    coef: np.ndarray
    interval: tuple[np.ndarray, np.ndarray] | None = None


class Method(NamedTuple):
    """How a table calls a method, how it is fitted, and the settings that its rows carry.

    ``at_200`` and ``at_400`` are the data sets that ``--full`` computes at these p, fewer where
    one takes seconds; ``quick_p`` is the largest p at which ``--quick`` runs it.
    """

    title: str
    fit: Callable[..., Fit]
    has_intervals: bool = False
    settings: Mapping[str, Any] = {}
    at_200: int = 100
    at_400: int = 100
    quick_p: int = 400


def _oracle(data: Regression, seed: int) -> Fit:
    return Fit(oracle_coef(data))


def _lasso(data: Regression, seed: int) -> Fit:
    return Fit(LassoCV(fit_intercept=False, max_iter=20_000).fit(data.X, data.y).coef_)


def _horseshoe(data: Regression, seed: int, *, draws: int, warmup: int, chains: int) -> Fit:
    posterior = horseshoe_gibbs(
        data.X, data.y, draws=draws, chains=chains, warmup=warmup, random_state=seed
    ).posterior["coef"]
    flat = posterior.values.reshape(-1, data.X.shape[1])
    low, high = np.quantile(flat, [0.05, 0.95], axis=0)
    return Fit(flat.mean(axis=0), (low, high))


def _sou(data: Regression, seed: int, **settings: Any) -> Fit:
    from soubayes import SoULinearRegression

    model = SoULinearRegression(choice="path", fit_intercept=False, **settings).fit(data.X, data.y)
    ends = model.mixtures_[0].coefficient_quantiles(np.array([0.05, 0.95]), data.X.shape[1])
    return Fit(model.coef_, (ends[0], ends[1]))


METHODS = {
    "oracle": Method("oracle", _oracle),
    "lasso": Method("Lasso", _lasso),
    "horseshoe": Method(
        "Horseshoe",
        _horseshoe,
        has_intervals=True,
        settings={"draws": 1000, "warmup": 500, "chains": 2},
        at_200=50,
        at_400=20,
        quick_p=100,
    ),
    "sou": Method("SoU-SGL", _sou, has_intervals=True),
    "sou_coordinate": Method(
        "SoU-SGL, Algorithm 1",
        _sou,
        has_intervals=True,
        settings={"solver": "coordinate", "max_iter": 300},
        quick_p=100,
    ),
    "gl": Method(
        "GL",
        _sou,
        has_intervals=True,
        settings={"solver": "coordinate", "confidence_local": 1.0, "max_iter": 300},
        quick_p=200,
    ),
}
