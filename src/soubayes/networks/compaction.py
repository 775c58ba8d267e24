"""Which units carry no information, and cutting them out of a training state.

When the local confidence is near 0, tau_k is free, and what a unit knows about the data is the KL
of its incoming weights from N(0, c^2) at the best scale c^2 = mean_j(m_j^2 + s_j^2):

    KL_k = (D/2) log mean_j(m_j^2 + s_j^2) - sum_j log s_j    (nats; D incoming weights)

It does not change when (m, s) is multiplied and tau divided by the same number, and it falls to 0
long before E[tau nu] does.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from soubayes.networks.layers import Layer


def unit_information(layers: list[Layer]) -> list[np.ndarray]:
    """KL_k of every unit of every hidden layer, in nats."""
    information = []
    for layer in layers[:-1]:
        mean, log_sd = np.asarray(layer["mean"], float), np.asarray(layer["log_sd"], float)
        second = (mean**2 + np.exp(2 * log_sd)).mean(axis=0)
        information.append(len(log_sd) * np.log(second) / 2 - log_sd.sum(axis=0))
    return information


def units_to_keep(measure: list[Any], threshold: float) -> list[np.ndarray]:
    """Indices of the units above the threshold; a layer keeps its best unit whatever happens.

    >>> units_to_keep([[0.1, 5.0, 9.0], [0.2, 0.1]], threshold=3.0)
    [array([1, 2]), array([0])]
    """
    kept = []
    for values in map(np.asarray, measure):
        alive = np.flatnonzero(values > threshold)
        kept.append(alive if len(alive) else np.array([np.argmax(values)]))
    return kept


def size_after(layers: list[Layer], kept: list[np.ndarray]) -> int:
    """The number of weights that would remain."""
    inputs, outputs = layers[0]["mean"].shape[0] - 1, layers[-1]["mean"].shape[1]
    sizes = [inputs, *map(len, kept), outputs]
    return sum((a + 1) * b for a, b in pairwise(sizes))


def remove_units(layers: list[Layer], kept: list[np.ndarray]) -> list[Layer]:
    """The layers (or any tree of their shapes: gradients, moments) with only the kept units."""
    smaller = []
    for i, layer in enumerate(layers):
        inputs = len(layer["mean"]) - 1
        rows = np.append(kept[i - 1] if i else np.arange(inputs), inputs)
        columns = kept[i] if i < len(kept) else np.arange(layer["mean"].shape[1])
        smaller.append(
            {
                name: value[np.ix_(rows, columns)]
                if value.ndim == 2
                else value[columns]
                if value.ndim == 1
                else value
                for name, value in layer.items()
            }
        )
    return smaller
