"""The settings that both estimators have, and what is allowed for each."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from soubayes._types import State
from soubayes.confidence import check_choice, check_gamma
from soubayes.networks.layers import ACTIVATIONS
from soubayes.networks.path import confidences
from soubayes.networks.structure import Conv, Pool, Residual


@dataclass(eq=False, repr=False, kw_only=True)
class NetSettings(BaseEstimator):
    """What a user sets: fields are the parameters of an estimator, in scikit-learn's sense."""

    hidden: tuple[int | Conv | Pool | Residual, ...] | None = field(default=None, kw_only=False)
    prior: str = "horseshoe"
    confidence_local: float = 1e-9
    confidence_global: float = 1.0
    confidence_weights: float | Sequence[float] | str = "auto"
    local_scale: float = 1.0
    global_scale: float = 0.1
    output_scale: bool = True
    input_shape: tuple[int, ...] | None = None
    prune_inputs: bool | str = "auto"
    skip: bool | str = "auto"
    scale_inputs: str | None = "auto"
    activation: str = "relu"
    epochs: int | Sequence[int] | None = None
    batch_size: int = 100
    learning_rate: float | None = None
    scale_speed: float | None = None
    warmup: float | None = None
    compact: bool = True
    validation_fraction: float = 0.0
    early_stopping: bool = False
    warm_start: bool = False
    random_state: State = 0
    verbose: int = 0
    checkpoint: str | os.PathLike[str] | None = None


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise for the first setting that is not allowed.

    >>> check_settings({"epochs": 0})
    Traceback (most recent call last):
    ...
    ValueError: epochs is 0, but it must be None, a whole number of at least 1, or several of them.
    """
    for name, value in settings.items():
        if name == "confidence_weights":
            _check_path(value)
        elif name.startswith("confidence_"):
            check_gamma(name.removeprefix("confidence_"), value, allow_inf=False)
        elif name in _CHOICES:
            check_choice(name, value, _CHOICES[name])
        elif name in _RULES:
            allowed, holds = _RULES[name]
            if not holds(value):
                raise ValueError(f"{name} is {value!r}, but it must be {allowed}.")
    _check_lengths(settings.get("epochs"), settings.get("confidence_weights"))
    _check_early(settings)


def _check_lengths(epochs: Any, path: Any) -> None:
    """Several numbers of epochs need as many confidences."""
    if isinstance(epochs, _SEVERAL):
        wanted = len(confidences(path))
        if len(epochs) != wanted:
            raise ValueError(
                f"epochs has {len(epochs)} numbers and confidence_weights {wanted}; give one "
                "number of epochs for every confidence, or one number in all."
            )


def _check_early(settings: Mapping[str, Any]) -> None:
    """Stages of a path have their epochs; one training may stop early."""
    path = settings.get("confidence_weights", 1.0)
    if settings.get("early_stopping") and len(confidences(path)) > 1:
        raise ValueError(
            f"early_stopping is True and confidence_weights {path!r}, but only the training of one "
            "confidence stops early. Set confidence_weights to a number."
        )


def _check_path(value: Any) -> None:
    """A number, several different ones, or "auto"."""
    if isinstance(value, str):
        if value not in ("auto", "smallest"):
            raise ValueError(
                f"confidence_weights is {value!r}, but it must be a number greater than 0, several "
                "of them, 'auto' or 'smallest'."
            )
        return
    values = np.atleast_1d(np.asarray(value, object)).tolist()
    for number in values:
        check_gamma("weights", number, allow_inf=False)
    if not values or len(set(values)) < len(values):
        raise ValueError(
            f"confidence_weights is {value!r}, but a path must hold different numbers, at least "
            "one."
        )


def check_seed(value: Any) -> int:
    """A seed that NumPy takes, from a file."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"the seed is {value!r}, but it must be a whole number of at least 0.")
    return value


def _count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _positive(value: Any) -> bool:
    return isinstance(value, Real) and 0 < float(value) < np.inf


def _part(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= 1


def _layer(value: Any) -> bool:
    if isinstance(value, Conv):
        numbers = (value.channels, value.kernel, value.stride)
        fits = value.padding in ("valid", "same") and _positive(value.confidence)
        return fits and all(map(_count, numbers))
    if isinstance(value, Residual):
        return True
    return _count(value.size) if isinstance(value, Pool) else _count(value)


_SEVERAL = (tuple, list)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "prior": ("horseshoe", "normal"),
    "activation": tuple(ACTIVATIONS),
    "scale_inputs": ("auto", "columns", "common", None),
    "prune_inputs": (False, True, "auto"),
    "skip": (False, True, "auto"),
    "early_stopping": (False, True),
    "warm_start": (False, True),
}
_RULES: dict[str, tuple[str, Any]] = {
    "hidden": (
        "None or a tuple of one or more widths of at least 1, Conv, Pool or Residual",
        lambda v: v is None or (isinstance(v, _SEVERAL) and len(v) > 0 and all(map(_layer, v))),
    ),
    "input_shape": (
        "None, or the shape of a row: (length, channels) or (height, width, channels)",
        lambda v: v is None or (isinstance(v, _SEVERAL) and len(v) > 1 and all(map(_count, v))),
    ),
    "noise_prior": (
        "None or two numbers greater than 0, shape and rate of the noise precision's Gamma prior",
        lambda v: v is None or (isinstance(v, _SEVERAL) and len(v) == 2 and all(map(_positive, v))),
    ),
    "epochs": (
        "None, a whole number of at least 1, or several of them",
        lambda v: v is None or _count(v) or (isinstance(v, _SEVERAL) and all(map(_count, v))),
    ),
    "batch_size": ("a whole number of at least 1", _count),
    "warmup": ("None or a number in [0, 1]", lambda v: v is None or _part(v)),
    "validation_fraction": ("a number in [0, 1)", lambda v: _part(v) and v < 1),
    "local_scale": ("a number greater than 0", _positive),
    "global_scale": ("a number greater than 0", _positive),
    "learning_rate": ("None or a number greater than 0", lambda v: v is None or _positive(v)),
    "scale_speed": ("None or a number greater than 0", lambda v: v is None or _positive(v)),
}
