"""The settings that both estimators have: defaults, descriptions, and what is allowed."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np
from sklearn.base import BaseEstimator

from soubayes._docstrings import fill_docstrings
from soubayes._types import State
from soubayes.confidence import check_choice, check_gamma
from soubayes.data.rows import checks_rows
from soubayes.networks.layers import ACTIVATIONS
from soubayes.networks.path import confidences
from soubayes.networks.structure import Conv, Pool, Residual

Made = TypeVar("Made")

# parameters of methods
NET_ARGUMENTS = """
X : array-like
    The rows.
y : array-like
    Their targets or labels.
n_draws : int, default=100
    Posterior draws to average over.
path : str or path-like
    The file; ``.safetensors`` is the usual ending.
ax : matplotlib.axes.Axes, optional
    Where to draw; a new figure by default.
"""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def network_estimator(cls: type[Made]) -> type[Made]:
    """Make ``__init__`` from the annotations, as a dataclass does, and complete the docstrings.

    Methods check the rows that they are given.
    """
    made = fill_docstrings(NET_ARGUMENTS)(dataclass(kw_only=True, eq=False, repr=False)(cls))
    return checks_rows(made)


@network_estimator
class NetSettings(BaseEstimator):
    r"""What a user sets: the fields are the parameters of both estimators.

    Parameters
    ----------
    hidden : tuple of int, Conv, Pool or Residual, or None, default=None
        Units of every hidden layer before training. Convolutions and pooling may come before the
        first dense layer, ``Residual()`` after a dense layer. None is (200, 200), or (50, 50) with
        fewer than 4,000 rows.
    prior : {"horseshoe", "normal"}, default="horseshoe"
        ``"horseshoe"`` gives every unit a scale. ``"normal"`` is the standard Bayesian network,
        with standard deviation 1 / sqrt(inputs of the unit).
    confidence_local : float, default=1e-9
        Confidence in the prior of the units' scales (paper: :math:`\gamma_\tau`). 1 gives the
        horseshoe network, which removes no units.
    confidence_global : float, default=1.0
        Confidence in the prior of the layers' scales (:math:`\gamma_\nu`).
    confidence_weights : float, sequence of float, "auto" or "smallest", default="auto"
        Confidence in the prior of the weights: the dial between an accurate (low) and a small
        (high) network. A number fixes it; 1 is Bayes' rule. ``"auto"`` trains the path 0.03, 0.1,
        0.3, 1 with some rows held out, takes the network with the lowest loss there and trains it
        further on all rows; with fewer than 10 rows it is 1. ``"smallest"`` takes the smallest
        network within one standard error of the lowest loss. A sequence is a path of your own, in
        the order given: with held-out rows the one of the lowest loss is used, otherwise the last.
        Units that a stage removes stay removed: a low value after a high one makes a small network
        more accurate.
    local_scale : float, default=1.0
        Scale :math:`b_0` of the half-Cauchy prior of the units' scales.
    global_scale : float, default=0.1
        Scale :math:`b_g` of the half-Cauchy prior of the layers' scales.
    output_scale : bool, default=True
        Give the weights of the output layer a common half-Cauchy scale. The paper has none.
    input_shape : tuple of int, optional
        Shape of a row, (length, channels) or (height, width, channels), for convolutions on a flat
        X.
    prune_inputs : bool or "auto", default="auto"
        Give every column of X a scale too, so inputs are removed. ``"auto"`` does so where
        columns are at least a quarter as many as rows and are scaled one by one.
    skip : bool or "auto", default="auto"
        Let the outputs read the columns of X beside the last hidden layer, so the network
        contains the linear model. ``"auto"`` does so where columns are scaled one by one. If there
        are at least a quarter as many columns as rows, a linear model must also predict held-out
        rows clearly better than a constant.
    scale_inputs : {"auto", "columns", "common"} or None, default="auto"
        ``"columns"`` standardises every column. ``"common"`` maps all of X to [0, 1] together,
        which is right for pixels. None leaves X as it is. ``"auto"`` decides between the first two.
    activation : {"relu", "tanh", "elu"}, default="relu"
        Activation of the hidden units.
    epochs : int, sequence of int or None, default=None
        Passes over the data. None is 100, but at least 4,000 steps, and at most 20,000 where that
        leaves 20 epochs. Along a path, one number is that of the first confidence and later ones
        have at most half of it; several numbers are those of every confidence.
    batch_size : int, default=100
        Rows of a minibatch.
    learning_rate : float or None, default=None
        Learning rate of Adam. It is held for half of the run and then decays. None is 20 over the
        number of steps, between 0.002 and 0.01.
    scale_speed : float or None, default=None
        Multiplies the learning rate of the scales. None is 10, or 2 with fewer than 300 rows.
    warmup : float or None, default=None
        Part of the run over which the KL terms grow to their full weight. None chooses by the model
        and the number of rows.
    compact : bool, default=True
        Remove units that hold no information about the data while training, so the rest of the
        run costs less.
    validation_fraction : float, default=0.0
        Part of the rows that is held out and scored every epoch. With 0, ``"auto"`` holds out a
        tenth, up to three tenths of few rows, and trains on them at the end.
    early_stopping : bool, default=False
        Stop when the held-out score has not improved for a tenth of the epochs, and keep the best
        network. For one confidence only.
    warm_start : bool, default=False
        Let ``fit`` go on from the network that the last call ended with, at its confidence and with
        its scaling, for ``epochs`` more. In a new process it is the network of ``checkpoint``.
    random_state : int, RandomState or None, default=0
        The seed.
    verbose : int, default=0
        1 shows a progress bar.
    checkpoint : str or path-like, optional
        A folder. A training that was killed continues from it to the same result. With
        ``warm_start=True`` a finished one is trained further.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    """

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
