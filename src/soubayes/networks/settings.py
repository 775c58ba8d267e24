"""Checks of the estimators' settings: what was given, what is allowed."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from soubayes.confidence import check_gamma
from soubayes.networks.layers import ACTIVATIONS


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise for the first setting that is not allowed.

    >>> check_settings({"epochs": 0})
    Traceback (most recent call last):
    ...
    ValueError: epochs is 0, but it must be None or a whole number of at least 1.
    """
    for name, value in settings.items():
        if name.startswith("confidence_"):
            check_gamma(name.removeprefix("confidence_"), value, allow_inf=False)
        elif name in _CHOICES:
            check_choice(name, value, _CHOICES[name])
        elif name in _RULES:
            allowed, holds = _RULES[name]
            if not holds(value):
                raise ValueError(f"{name} is {value!r}, but it must be {allowed}.")


def check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise unless the value is one of the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, but it must be one of {allowed}.")


def _count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _positive(value: Any) -> bool:
    return isinstance(value, Real) and 0 < float(value) < np.inf


def _part(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= 1


_SEVERAL = (tuple, list)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "prior": ("horseshoe", "normal"),
    "activation": tuple(ACTIVATIONS),
    "scale_inputs": ("auto", "columns", "common", None),
}
_RULES: dict[str, tuple[str, Any]] = {
    "hidden": (
        "a tuple of one or more widths of at least 1",
        lambda v: isinstance(v, _SEVERAL) and len(v) > 0 and all(map(_count, v)),
    ),
    "noise_prior": (
        "None or two numbers greater than 0, shape and rate of the noise precision's Gamma prior",
        lambda v: v is None or (isinstance(v, _SEVERAL) and len(v) == 2 and all(map(_positive, v))),
    ),
    "epochs": ("None or a whole number of at least 1", lambda v: v is None or _count(v)),
    "batch_size": ("a whole number of at least 1", _count),
    "warmup": ("None or a number in [0, 1]", lambda v: v is None or _part(v)),
    "validation_fraction": ("a number in [0, 1)", lambda v: _part(v) and v < 1),
    "local_scale": ("a number greater than 0", _positive),
    "global_scale": ("a number greater than 0", _positive),
    "learning_rate": ("a number greater than 0", _positive),
    "scale_speed": ("None or a number greater than 0", lambda v: v is None or _positive(v)),
}
