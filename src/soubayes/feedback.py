"""Modules: how much of what a block has learnt from its data the earlier blocks may hear.

A module is a block k with the loss L_k(theta_<=k) of its data. With a feedback eta_k in [0, 1] the
recursion of Theorem 1 becomes, from the last block to the first and with H_{K+1} = 0,

    U_k = L_k + H_{k+1},   q_k proportional to exp(-U_k / gamma_k) pi_k,
    power:  H_k = -eta_k gamma_k log E_pi exp(-U_k / gamma_k),
    smi:    H_k = -gamma_k log E_pi exp(-eta_k U_k / gamma_k).

eta = 1 is the SoU posterior; eta_k = 0 is the cut posterior (Plummer 2015), in both forms. "smi" is
the semi-modular inference of Carmona and Nicholls (2020).
"""

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import NamedTuple

from soubayes.confidence import shown

POWER, SMI = "power", "smi"


class Feedback(NamedTuple):
    """Feedback and weight of the data of every block, in block order."""

    eta: dict[str, float]  # 1 for the first block, which has nobody to hand on to
    kind: str  # POWER or SMI
    weight: dict[str, float]

    @property
    def is_full(self) -> bool:
        """Whether every block hears everything."""
        return all(eta == 1.0 for eta in self.eta.values())


def check_feedback(
    eta: Mapping[str, float] | None,
    kind: str,
    weight: Mapping[str, float] | None,
    blocks: Iterable[str],
) -> Feedback:
    """Checked numbers for every block; a block that is not named has feedback 1 and weight 1.

    >>> check_feedback({"b": 0.3}, "smi", None, ["a", "b"]).eta
    {'a': 1.0, 'b': 0.3}
    """
    names = list(blocks)
    if kind not in (POWER, SMI):
        raise ValueError(f"feedback is {shown(kind)}, but it must be {POWER!r} or {SMI!r}.")
    given = _numbers("eta", eta, names)
    for name, value in given.items():
        if not 0 <= value <= 1:
            raise ValueError(
                f"eta of {name!r} is {value}, but it must lie between 0 (cut: earlier blocks do "
                "not learn from its data) and 1 (they do)."
            )
    if names[0] in given:
        raise ValueError(
            f"eta names {names[0]!r}, the first block, which has no earlier block to inform. Name "
            f"one of {names[1:]}."
        )
    weights = _numbers("weight", weight, names)
    for name, value in weights.items():
        if not 0 <= value < float("inf"):
            raise ValueError(
                f"weight of {name!r} is {value}, but it must be finite and at least 0."
            )
    ones = dict.fromkeys(names, 1.0)
    return Feedback({**ones, **given}, kind, {**ones, **weights})


def reduced(eta: Mapping[str, float]) -> str:
    """The feedback that is not full, as a result's head shows it."""
    below = {name: value for name, value in eta.items() if value != 1}
    return f", feedback {below}" if below else ""


def check_minimises(eta: Mapping[str, float]) -> None:
    """Refuse derivatives of J by confidences where the posterior does not minimise it."""
    if reduced(eta):
        raise ValueError(
            f"with the feedback {dict(eta)} the posterior does not minimise J, so the KLs are not "
            "the derivatives of its value. Solve again at another confidence and compare."
        )


def _numbers(title: str, given: Mapping[str, float] | None, names: list[str]) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{title} is {shown(given)}, but it must be a mapping, {{block: number}}.")
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(
            f"{title} names {', '.join(map(repr, unknown))}, but the model's blocks are "
            f"{', '.join(map(repr, names))}. Use one of these names."
        )
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{title} of {name!r} is {shown(value)}, but it must be a number.")
    return {name: float(value) for name, value in given.items()}
