"""Confidences: plain mappings from a block's name to gamma > 0, absent meaning 1."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np


def check_confidence(
    confidence: Mapping[str, float] | None, blocks: Iterable[str], *, allow_zero: bool = False
) -> dict[str, float]:
    """The confidence (paper: gamma_k) of every block, in block order.

    A block that ``confidence`` does not name gets 1, which is ordinary Bayes for that block;
    ``inf`` keeps a block at its prior. Only engines that can make a block a point estimate
    pass ``allow_zero``.

    >>> check_confidence({"tau": 1e-9}, ["sigma", "tau"])
    {'sigma': 1.0, 'tau': 1e-09}
    """
    blocks = list(blocks)
    given = dict(check_mapping(confidence) or {})
    unknown = [name for name in given if name not in blocks]
    if unknown:
        raise ValueError(
            f"confidence names {', '.join(map(repr, unknown))}, but the model's blocks are "
            f"{', '.join(map(repr, blocks))}. Use one of these names."
        )
    return {name: check_gamma(name, given.get(name, 1.0), allow_zero=allow_zero) for name in blocks}


def check_mapping(confidence: Any) -> Any:
    """What was given for confidences, if it is a mapping or None.

    >>> check_mapping(0.5)
    Traceback (most recent call last):
    ...
    TypeError: confidence is 0.5, but it must be a mapping, {block: number}.
    """
    if not isinstance(confidence, Mapping | None):
        raise TypeError(
            f"confidence is {shown(confidence)}, but it must be a mapping, {{block: number}}."
        )
    return confidence


def check_gamma(
    name: str, gamma: float, *, allow_zero: bool = False, allow_inf: bool = True
) -> float:
    """One confidence as a float, or an error that names the block and what is allowed.

    >>> check_gamma("tau", 1)
    1.0
    >>> check_gamma("tau", -1)
    Traceback (most recent call last):
    ...
    ValueError: confidence of 'tau' is -1, but it must be a number greater than 0 (inf allowed).
    """
    wanted = "a number " + ("of at least 0" if allow_zero else "greater than 0")
    wanted += " (inf allowed)" if allow_inf else " and finite"
    if isinstance(gamma, bool) or not isinstance(gamma, Real):
        raise TypeError(f"confidence of {name!r} is {shown(gamma)}, but it must be {wanted}.")
    value = float(gamma)
    low = value < 0 if allow_zero else value <= 0
    if math.isnan(value) or low or (math.isinf(value) and not allow_inf):
        raise ValueError(f"confidence of {name!r} is {gamma}, but it must be {wanted}.")
    return value


def shown(value: Any) -> str:
    """A value as messages show it; a NumPy scalar as the number or text that it holds.

    >>> shown(np.int64(3)), shown(np.str_("a")), shown("a")
    ('3', "'a'", "'a'")
    """
    return repr(value.item() if isinstance(value, np.generic) else value)


def check_choice(name: str, value: Any, allowed: Sequence[Any]) -> None:
    """A parameter that is one of a few words."""
    if value not in allowed:
        raise ValueError(
            f"{name} is {shown(value)}, but it must be one of {', '.join(map(repr, allowed))}."
        )
