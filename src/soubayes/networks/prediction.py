"""Functions drawn from the posterior, in NumPy: the small network needs no compilation."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from soubayes.networks.layers import Layer, Spec, mean_weights

_ROWS = 4096
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


def outputs_by_chunk(
    spec: Spec,
    layers: list[Layer],
    X: np.ndarray,
    scale: Callable[[np.ndarray], np.ndarray],
    n_draws: int | None,
    seed: int,
) -> Iterator[np.ndarray]:
    """Outputs of shape (draws, rows, outputs) for chunks of rows; mean weights for None.

    A draw is one set of weights for all rows, so what is said of a row never depends on others.
    """
    for start in range(0, len(X), _ROWS):
        x = scale(X[start : start + _ROWS])
        draws = [mean_weights(layers)] if n_draws is None else drawn(layers, n_draws, seed)
        yield np.stack([forward_weights(spec, weights, x) for weights in draws]).astype(float)


def drawn(layers: list[Layer], n_draws: int, seed: int) -> Iterator[list[np.ndarray]]:
    """The first draws of an endless sequence that the seed fixes."""
    for i in range(n_draws):
        yield draw_weights(layers, np.random.default_rng([seed, i]))


def draw_weights(layers: list[Layer], rng: np.random.Generator) -> list[np.ndarray]:
    """One draw of all weights, w = tau nu beta."""
    weights = []
    for layer in layers:
        weight = _draw(layer["mean"], layer["log_sd"], rng)
        for part in ("local", "global"):
            if f"{part}_mean" in layer:
                log_square = _draw(layer[f"{part}_mean"], layer[f"{part}_log_sd"], rng)
                weight = weight * np.exp(log_square / 2)
        weights.append(weight)
    return weights


def forward_weights(spec: Spec, weights: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Outputs of the ordinary network with these weights; rows of x are in scaled units."""
    for i, weight in enumerate(weights):
        x = x @ weight[:-1] + weight[-1]
        if i < len(weights) - 1:
            x = _ACTIVATIONS[spec.activation](x)
    return x


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy in nats over the last axis.

    >>> float(entropy(np.array([0.5, 0.5])).round(4))
    0.6931
    """
    p = np.asarray(probabilities)
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)


def _draw(mean: np.ndarray, log_sd: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return mean + np.exp(log_sd) * rng.standard_normal(np.shape(mean), np.float32)
