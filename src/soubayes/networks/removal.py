"""Which units carry no information, and cutting them out of a training state.

When the local confidence is near 0, tau_k is free, and what a unit knows about the data is the KL
of its incoming weights from N(0, c^2) at the best scale c^2 = mean_j(m_j^2 + s_j^2):

    KL_k = (D/2) log mean_j(m_j^2 + s_j^2) - sum_j log s_j    (nats; D incoming weights)

It does not change when (m, s) is multiplied and tau divided by the same number, and it falls to 0
long before E[tau nu] does. The same holds of an input with a scale of its own and its outgoing
weights.
"""

from typing import Any, NamedTuple

import numpy as np

from soubayes.networks.layers import Layer
from soubayes.networks.structure import Spec


class Kept(NamedTuple):
    """Original numbers of what is still there."""

    units: list[np.ndarray]  # of every hidden layer: units, or channels of a convolution
    inputs: np.ndarray  # of the gated layer: columns of X, or features; empty if there is none


def all_kept(spec: Spec) -> Kept:
    """Everything, before training."""
    return Kept([np.arange(step.units) for step in spec.steps[:-1]], np.arange(spec.reads))


def network_size(spec: Spec, kept: Kept) -> tuple[list[int], int]:
    """Units of every layer, outputs included, and inputs of the gated layer."""
    return [*map(len, kept.units), spec.steps[-1].units], len(kept.inputs)


def columns_read(spec: Spec, kept: Kept) -> np.ndarray:
    """Where the gated layer finds its inputs in what reaches it: X, or the channels that are left.

    >>> from soubayes.networks.structure import Conv
    >>> spec = Spec(((4, 1), Conv(3, 2), 5, 1))  # three places of three channels
    >>> columns_read(spec, Kept([np.array([0, 2]), np.arange(5)], np.array([0, 5, 6])))
    array([0, 3, 4], dtype=int32)
    """
    if not spec.gate:  # none, or X itself
        return kept.inputs.astype(np.int32)
    place, channel = np.divmod(kept.inputs, spec.steps[spec.gate - 1].units)
    channels = kept.units[spec.gate - 1]
    return (place * len(channels) + np.searchsorted(channels, channel)).astype(np.int32)


def information(layer: Layer, axis: int = 0) -> np.ndarray:
    """KL_k in nats of every unit of a layer (axis 0), or of every input (axis 1)."""
    rows = slice(-1) if axis == 1 else slice(None)  # the bias is no input
    return _information(layer["mean"][rows], layer["log_sd"][rows], axis)


def information_skipped(layer: Layer, units: int) -> np.ndarray:
    """KL in nats, at the best scale, of what outputs that read so many units know of columns."""
    return _information(layer["mean"][units:-1], layer["log_sd"][units:-1], 1)


def information_read(layer: Layer, channels: int) -> np.ndarray:
    """KL in nats, at the best scale, of what a convolution knows about every channel it reads.

    An unused channel may keep informative weights for many epochs: its scale falls,
    and with it the gradient.
    """
    shape = (-1, channels, layer["mean"].shape[1])
    mean, log_sd = (layer[name][:-1].reshape(shape) for name in ("mean", "log_sd"))
    return _information(mean, log_sd, (0, 2))


def _information(mean: Any, log_sd: Any, axes: int | tuple[int, ...]) -> np.ndarray:
    """KL_k of the module's formula, where weights along the axes share a scale."""
    mean, log_sd = np.asarray(mean, float), np.asarray(log_sd, float)
    second = (mean**2 + np.exp(2 * log_sd)).mean(axis=axes)
    return log_sd.size / max(1, second.size) * np.log(second) / 2 - log_sd.sum(axis=axes)


def survivors(
    spec: Spec, kept: Kept, units: list[Any], inputs: Any, threshold: float
) -> tuple[list[np.ndarray], np.ndarray]:
    """Places, among what is there now, of the units and inputs whose measure passes the threshold.

    A layer keeps its best unit, and the gated layer its best input, whatever happens. A channel
    goes with its last feature, and a feature with its channel. A unit that residual layers add to
    goes when it is dead in all of them.

    >>> spec = Spec((1, 3, 2, 1))
    >>> units, _ = survivors(spec, all_kept(spec), [[0.1, 5.0, 9.0], [0.2, 0.1]], [], 3.0)
    >>> units
    [array([1, 2]), array([0])]
    """
    alive = [_above(values, threshold) for values in units]
    for stream in streams(spec):
        alive[stream] = [np.any(alive[stream], axis=0)] * len(alive[stream])
    if spec.gate is None:
        return list(map(np.flatnonzero, alive)), np.arange(0)
    reads = _above(inputs, threshold)
    if spec.gate:
        channels = kept.units[spec.gate - 1]
        owner = np.searchsorted(channels, kept.inputs % spec.steps[spec.gate - 1].units)
        if not (reads & alive[spec.gate - 1][owner]).any():
            alive[spec.gate - 1][owner[reads]] = True
        reads = reads & alive[spec.gate - 1][owner]
        alive[spec.gate - 1] = np.isin(np.arange(len(channels)), owner[reads])
    return list(map(np.flatnonzero, alive)), np.flatnonzero(reads)


def streams(spec: Spec) -> list[slice]:
    """Hidden layers that write the same units: a dense one and the residual ones after it.

    >>> from soubayes.networks.structure import Residual
    >>> streams(Spec((4, 5, 6, Residual(), Residual(), 1)))
    [slice(1, 4, None)]
    """
    starts = [i for i, step in enumerate(spec.steps) if not step.residual]
    ends = [*starts[1:], len(spec.steps)]
    return [slice(a, b) for a, b in zip(starts, ends, strict=True) if b - a > 1]


def _above(values: Any, threshold: float) -> np.ndarray:
    values = np.asarray(values, float)
    alive = values > threshold
    alive[np.argmax(values)] |= not alive.any()
    return alive


def remove(
    spec: Spec, layers: list[Layer], units: list[np.ndarray], inputs: np.ndarray
) -> list[Layer]:
    """The layers (or any tree of their shapes: gradients, moments) with only these places."""
    smaller = []
    for i, (step, layer) in enumerate(zip(spec.steps, layers, strict=True)):
        rows = np.arange(len(layer["mean"]) - 1)
        skipped = rows[:0]
        if spec.skip and i == spec.n_hidden:
            rows, skipped = np.split(rows, [len(layers[i - 1]["mean"][0])])
        if i == spec.gate:
            rows = inputs
        elif i:
            # a row for every entry of a patch, channels last; dense layers have patches of one
            rows = rows.reshape(-1, len(layers[i - 1]["mean"][0]))[:, units[i - 1]].ravel()
        if len(skipped):
            rows = np.concatenate([rows, skipped[inputs] if spec.gate == 0 else skipped])
        columns = units[i] if i < len(units) else np.arange(step.units)
        with_bias = np.append(rows, len(layer["mean"]) - 1)
        cut = {"input": rows, "local": columns}
        smaller.append(
            {
                name: value[np.ix_(with_bias, columns)]
                if value.ndim == 2
                else value[cut[name.split("_")[0]]]
                if value.ndim == 1
                else value
                for name, value in layer.items()
            }
        )
    return smaller
