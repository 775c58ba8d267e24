"""Draws of the network's function, in row chunks of a few shapes so that little is compiled."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from soubayes.networks.layers import Layer, Spec, draw_weights, forward_weights, mean_weights

_MOST_ROWS = 4096


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
) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows, outputs of shape (draws, rows, outputs)); one draw, the mean weights, for None.

    A draw is one set of weights for all rows, so what is said of a row never depends on the others.
    """
    keys = None if n_draws is None else jax.random.split(jax.random.key(seed), n_draws)
    for start in range(0, len(X), _MOST_ROWS):
        rows = slice(start, min(start + _MOST_ROWS, len(X)))
        part = scale(X[rows])
        padded = np.zeros((_bucket(len(part)), X.shape[1]), np.float32)
        padded[: len(part)] = part
        outputs = _outputs(spec, layers, padded, keys)
        yield rows, np.asarray(outputs, float)[:, : len(part)]


@partial(jax.jit, static_argnames="spec")
def _outputs(spec: Spec, layers: list[Layer], X: jax.Array, keys: jax.Array | None) -> jax.Array:
    if keys is None:
        return forward_weights(spec, mean_weights(layers), X)[None]
    return jax.lax.map(lambda key: forward_weights(spec, draw_weights(layers, key), X), keys)


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Entropy in nats over the last axis.

    >>> float(entropy(np.array([0.5, 0.5])).round(4))
    0.6931
    """
    p = np.asarray(probabilities)
    return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)


def _bucket(rows: int) -> int:
    return min(_MOST_ROWS, 1 << max(0, rows - 1).bit_length())
