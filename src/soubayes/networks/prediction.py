"""Functions drawn from the posterior, in NumPy: the small network needs no compilation."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from soubayes.networks.compaction import Kept, columns_read
from soubayes.networks.feeding import Scaler
from soubayes.networks.layers import Layer, convolved, mean_weights, pooled
from soubayes.networks.structure import Spec

_ROWS = 16_384  # whose outputs are held for all draws at once
_PIECE = 1024  # rows that stay in the processor's cache
_COLUMNS = 512  # of a product that several draws share
_ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0, out=x),
    "tanh": lambda x: np.tanh(x, out=x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
}


class Uncertainty(NamedTuple):
    """The two parts of predictive uncertainty and their total.

    Regression: standard deviations, total^2 = aleatoric^2 + epistemic^2. Classification: nats,
    total = entropy of the mean prediction = mean entropy (aleatoric) + mutual information
    (epistemic).
    """

    aleatoric: np.ndarray
    epistemic: np.ndarray
    total: np.ndarray


class Network(NamedTuple):
    """A trained network: the posterior of its layers, and what is left of the structure."""

    spec: Spec
    layers: list[Layer]
    kept: Kept

    @property
    def columns(self) -> np.ndarray | None:
        """The columns of X that are read, None for all."""
        return self.kept.inputs if self.spec.gate == 0 else None


def outputs_by_chunk(
    network: Network, X: np.ndarray, scaler: Scaler, n_draws: int | None, seed: int
) -> Iterator[np.ndarray]:
    """Outputs of shape (draws, rows, outputs) for chunks of rows; mean weights for None.

    A draw is one set of weights for all rows, so what is said of a row never depends on others.
    """
    layers = network.layers
    scaler = scaler.of(network.columns)
    # a scaling that is folded into the weights costs nothing a row; patches have no place for it
    fold = scaler.foldable and not network.spec.steps[0].kernel
    for start in range(0, len(X), _ROWS):
        x = X[start : start + _ROWS]
        x = x if network.columns is None else x[:, network.columns]
        x = x.astype(np.float32, copy=False) if fold else scaler(x)
        draws = iter([mean_weights(layers)]) if n_draws is None else drawn(layers, n_draws, seed)
        outputs = []
        while group := list(islice(draws, max(1, _COLUMNS // layers[0]["mean"].shape[1]))):
            if fold:
                group = [[scaler.fold(w[0]).astype(np.float32), *w[1:]] for w in group]
            pieces = [
                _group_outputs(network, group, x[i : i + _PIECE]) for i in range(0, len(x), _PIECE)
            ]
            outputs.append(np.concatenate(pieces, axis=1))
        yield np.concatenate(outputs)


def _group_outputs(network: Network, group: list[list[np.ndarray]], x: np.ndarray) -> np.ndarray:
    """Outputs (draws, rows, outputs) of several networks; their first layers are one product."""
    first = np.concatenate([weights[0] for weights in group], axis=1)
    parts = np.split(_layer(network, 0, first, x), len(group), axis=-1)
    return np.stack([_from(network, 1, w[1:], part) for w, part in zip(group, parts, strict=True)])


def forward_weights(network: Network, weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Outputs of the ordinary network with these weights, on scaled rows of all columns."""
    x = x if network.columns is None else x[:, network.columns]
    return _from(network, 0, weights, x)


def _from(network: Network, number: int, weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    for i, weight in enumerate(weights, start=number):
        x = _layer(network, i, weight, x)
    return x


def _layer(network: Network, i: int, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    step, gate = network.spec.steps[i], network.spec.gate
    if step.kernel:
        x = pooled(convolved(x, weight, step), step.pool)
    else:
        x = x.reshape(len(x), -1)
        if i and i == gate:
            x = x[:, columns_read(network.spec, network.kept)]
        x = x @ weight[:-1] + weight[-1]
    return x if i == network.spec.n_hidden else _ACTIVATIONS[network.spec.activation](x)


def drawn(layers: list[Layer], n_draws: int, seed: int) -> Iterator[list[np.ndarray]]:
    """The first draws of an endless sequence that the seed fixes."""
    for i in range(n_draws):
        yield draw_weights(layers, np.random.default_rng([seed, i]))


def draw_weights(layers: list[Layer], rng: np.random.Generator) -> list[np.ndarray]:
    """One draw of all weights, w = t tau nu beta."""
    weights = []
    for layer in layers:
        weight = _draw(layer["mean"], layer["log_sd"], rng)
        for part in ("local", "global"):
            if f"{part}_mean" in layer:
                log_square = _draw(layer[f"{part}_mean"], layer[f"{part}_log_sd"], rng)
                weight = weight * np.exp(log_square / 2)
        if "input_mean" in layer:
            log_square = _draw(layer["input_mean"], layer["input_log_sd"], rng)
            weight[:-1] *= np.exp(log_square / 2)[:, None]
        weights.append(weight)
    return weights


def softmax(outputs: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, in place.

    >>> softmax(np.array([0.0, 0.0]))
    array([0.5, 0.5])
    """
    outputs -= outputs.max(axis=-1, keepdims=True)
    np.exp(outputs, out=outputs)
    outputs /= outputs.sum(axis=-1, keepdims=True)
    return outputs


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy in nats over the last axis.

    >>> float(entropy(np.array([0.5, 0.5])).round(4))
    0.6931
    """
    p = np.asarray(probabilities, float)
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)


def _draw(mean: np.ndarray, log_sd: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return mean + np.exp(log_sd) * rng.standard_normal(np.shape(mean), np.float32)
