"""Functions drawn from the posterior, in NumPy: the small network needs no compilation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from soubayes.networks.feeding import Scaler
from soubayes.networks.layers import (
    Layer,
    convolved,
    forward,
    mean_weights,
    pooled,
    row_scales,
)
from soubayes.networks.removal import Kept, columns_read
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
    def read(self) -> np.ndarray:
        """Where the gated layer finds its inputs."""
        return columns_read(self.spec, self.kept)

    @property
    def n_weights(self) -> int:
        """Of all layers, biases included."""
        return sum(layer["mean"].size for layer in self.layers)

    @property
    def columns(self) -> np.ndarray | None:
        """The columns of X that are read, None for all."""
        return self.kept.inputs if self.spec.gate == 0 else None


class Arrays:
    """The operations of prediction: weights (draws, inputs + 1, units) on rows (draws, rows, ...).

    All draws read the same rows, so the first layers of all of them are one product.
    """

    def __init__(self, spec: Spec, draws: Sequence[Sequence[np.ndarray]]) -> None:
        self.spec, self.draws = spec, len(draws)
        self.first = np.concatenate([weights[0] for weights in draws], axis=1)
        self.later = [np.stack(parts) for parts in zip(*(w[1:] for w in draws), strict=True)]
        self.activate = _ACTIVATIONS[spec.activation]

    def convolve(self, i: int, x: np.ndarray) -> np.ndarray:
        step = self.spec.steps[i]
        if not i:
            return self._apart(convolved(x[0], self.first, step))
        return np.stack(
            [convolved(part, w, step) for part, w in zip(x, self.later[i - 1], strict=True)]
        )

    def pool(self, x: np.ndarray, size: int) -> np.ndarray:
        return pooled(x.reshape(-1, *x.shape[2:]), size).reshape(
            *x.shape[:2], *(side // size for side in x.shape[2:-1]), x.shape[-1]
        )

    def flatten(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(*x.shape[:2], -1)

    def take(self, x: np.ndarray, columns: Any) -> np.ndarray:
        return x[..., columns]

    def gate(self, i: int, x: np.ndarray) -> np.ndarray:
        return x  # its scales are in the weights

    def join(self, h: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.concatenate([h, np.broadcast_to(x, (len(h), *x.shape[1:]))], axis=2)

    def dense(self, i: int, x: np.ndarray) -> np.ndarray:
        if not i:
            return self._apart(x[0] @ self.first[:-1] + self.first[-1])
        weight = self.later[i - 1]
        return x @ weight[:, :-1] + weight[:, -1:]

    def add(self, x: np.ndarray, h: np.ndarray) -> np.ndarray:
        return x + h

    def _apart(self, x: np.ndarray) -> np.ndarray:
        """(rows, ..., draws x units) as (draws, rows, ..., units)."""
        parts = x.reshape(*x.shape[:-1], self.draws, -1)
        return np.ascontiguousarray(np.moveaxis(parts, -2, 0))


def outputs_by_chunk(
    network: Network, X: np.ndarray, scaler: Scaler, groups: Callable[[], Iterable[Arrays]]
) -> Iterator[np.ndarray]:
    """Outputs of shape (draws, rows, outputs) for chunks of rows.

    A draw is one set of weights for all rows, so what is said of a row never depends on others.
    """
    scaler = scaler.of(network.columns)
    for start in range(0, len(X), _ROWS):
        x = X[start : start + _ROWS]
        x = scaler.rounded(x if network.columns is None else x[:, network.columns])
        yield np.concatenate([_in_pieces(network, do, x) for do in groups()])


def _in_pieces(network: Network, do: Arrays, x: np.ndarray) -> np.ndarray:
    read = slice(None) if network.columns is not None else network.read
    pieces = [
        forward(network.spec, read, x[None, i : i + _PIECE], do) for i in range(0, len(x), _PIECE)
    ]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)


def forward_weights(network: Network, weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Outputs of the ordinary network with these weights, on scaled rows of all columns."""
    x = x if network.columns is None else x[:, network.columns]
    return _in_pieces(network, Arrays(network.spec, [weights]), x)[0]


def draw_groups(network: Network, n_draws: int | None, seed: int) -> Iterator[Arrays]:
    """Posterior draws, some at a time; None is the mean weights."""
    layers = network.layers
    draws = iter([mean_weights(layers)]) if n_draws is None else drawn(layers, n_draws, seed)
    while group := list(islice(draws, max(1, _COLUMNS // layers[0]["mean"].shape[1]))):
        yield Arrays(network.spec, group)


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
                weight = weight * _draw_scale(rng, layer, part)
        weights.append(weight * row_scales(layer, partial(_draw_scale, rng)))
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


def _draw_scale(rng: np.random.Generator, layer: Layer, part: str) -> np.ndarray:
    return np.exp(_draw(layer[f"{part}_mean"], layer[f"{part}_log_sd"], rng) / 2)


def _draw(mean: np.ndarray, log_sd: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return mean + np.exp(log_sd) * rng.standard_normal(np.shape(mean), np.float32)
