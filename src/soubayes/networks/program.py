"""The compiled part of training: minibatches in a scan, the objective, Adam.

The optimiser sees J/n = mean loss of a minibatch + sum_k gamma_k KL_k / n (eq. 5 over n).
Adam's step is multiplied for the scales: pruning is the scales' random walk to 0, and without the
multiplier it takes ten times as many epochs as the fit.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from soubayes.networks.feeding import Chunk, placement
from soubayes.networks.layers import (
    Drawn,
    active_counts,
    draw_noise,
    forward,
    kl_terms,
    weight_counts,
)
from soubayes.networks.likelihoods import categorical_loss, gaussian_kl, gaussian_loss
from soubayes.networks.state import TrainingProblem
from soubayes.networks.structure import Spec

WEIGHT_THRESHOLD = 1e-5  # the paper's threshold for the sparsity of effective weights
RISE = 0.3  # the confidence of a later stage is reached after this part of it
WIDEST = np.float32(np.log(np.pi))  # log of the prior standard deviation of log tau^2 (half-Cauchy)
HOLD = 0.5  # the learning rate is held for this part of a stage, then falls along a cosine


def _scan(
    spec: Spec,
    mesh: jax.sharding.Mesh,
    params: dict[str, Any],
    moments: Any,
    inputs: jax.Array,
    chunk: Chunk,
    order: jax.Array,
    keys: jax.Array,
    times: jax.Array,
    problem: TrainingProblem,
) -> tuple[dict[str, Any], Any, jax.Array, jax.Array]:
    """Take the minibatches `order` (epochs, steps, batch) of a chunk.

    `keys` (epochs, steps, 2) are their noise, `times` (epochs, steps) their parts of the run. Also
    returns the mean loss and the summary of every epoch.
    """
    batch = order.shape[-1]

    def draw(key_data: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        return draw_noise(spec, params["layers"], batch, key)

    def step(state: Any, now: Any) -> Any:
        params, moments, noise = state
        rows, next_key, t = now
        if batch % mesh.size == 0:
            rows = jax.lax.with_sharding_constraint(rows, placement(mesh, "rows"))
        loss_and_slope = jax.value_and_grad(partial(batch_objective, spec), has_aux=True)
        (_, loss), slope = loss_and_slope(
            params, inputs, Chunk(*(part[rows] for part in chunk)), noise, t, problem
        )
        direction, moments = _ADAM.update(slope, moments)
        rate = problem.learning_rate * _decay(t)
        params = _bounded(
            jax.tree.map(
                lambda p, d, speed: p - rate * speed * d,
                params,
                direction,
                _speeds(params, problem.scale_speed),
            )
        )
        # XLA merges what draws numbers with everything that reads them, and would draw them several
        # times; what a step hands to the next one is computed once
        return (params, moments, draw(next_key)), loss

    def epoch(state: Any, now: Any) -> Any:
        state, losses = jax.lax.scan(step, state, now)
        return state, (losses.mean(), _summary(spec, state[0], problem))

    following = jnp.roll(keys.reshape(-1, 2), -1, axis=0).reshape(keys.shape)
    (params, moments, _), (loss, summary) = jax.lax.scan(
        epoch, (params, moments, draw(keys[0, 0])), (order, following, times)
    )
    return params, moments, loss, summary


scan_chunk = jax.jit(_scan, static_argnames=("spec", "mesh"))


@partial(jax.jit, static_argnames=("spec", "mesh"))
def scan_together(
    spec: Spec, mesh: jax.sharding.Mesh, inputs: jax.Array, times: jax.Array, *members: Any
) -> tuple[dict[str, Any], Any, jax.Array, jax.Array]:
    """`scan_chunk` for several groups of networks of one shape.

    The first axis of `members` (params, moments, problem, chunk, order, keys) is the group. The
    second one of the first three is the network: those of a group share minibatches and noise,
    and drawing the noise is more than half of the work.
    """

    def one(params: Any, moments: Any, problem: Any, chunk: Any, order: Any, keys: Any) -> Any:
        return _scan(spec, mesh, params, moments, inputs, chunk, order, keys, times, problem)

    return jax.vmap(jax.vmap(one, in_axes=(0, 0, 0, None, None, None)))(*members)


def batch_objective(
    spec: Spec,
    params: dict[str, Any],
    inputs: jax.Array,
    batch: Chunk,
    noise: tuple[jax.Array, jax.Array],
    t: jax.Array,
    problem: TrainingProblem,
) -> tuple[jax.Array, jax.Array]:
    """(J/n on a minibatch with the KL terms warming up, the mean loss alone).

    `noise` is `draw_noise`'s. Weights of rows have the mean 1 over all rows, and n is the sum of
    the weights as given.
    """
    outputs = forward(spec, inputs, batch.X, Drawn(spec, params["layers"], noise))
    if problem.noise is None:
        losses = categorical_loss(outputs, batch.y)
    else:
        losses = gaussian_loss(outputs, batch.y, params["noise"], problem.noise)
    loss = (batch.weight * losses).mean()
    kl = block_kl(spec, params, problem)
    rise = problem.rise ** (1 - jnp.minimum(1.0, t / RISE))
    changing = {name: rise * problem.confidence[name] for name in spec.weight_blocks}
    confidence = {**problem.confidence, **changing}
    penalty = sum(confidence[name] * value for name, value in kl.items())
    return loss + jnp.minimum(1.0, t / problem.warmup) * penalty / problem.weight, loss


def block_kl(spec: Spec, params: dict[str, Any], problem: TrainingProblem) -> dict[str, jax.Array]:
    """KL in nats of every block: weights, local, global and, in regression, noise."""
    kl = kl_terms(spec, params["layers"])
    if problem.noise is not None:
        kl["noise"] = gaussian_kl(params["noise"], problem.noise)
    return kl


def _summary(spec: Spec, params: dict[str, Any], problem: TrainingProblem) -> jax.Array:
    """KL of the blocks, active units and weights above the threshold, as one vector to fetch."""
    layers = params["layers"]
    kl = block_kl(spec, params, problem)
    counts = [*active_counts(layers), *weight_counts(layers, WEIGHT_THRESHOLD)]
    return jnp.stack([jnp.asarray(value, jnp.float32) for value in [*kl.values(), *counts]])


def _decay(t: jax.Array) -> jax.Array:
    past = jnp.clip((t - HOLD) / (1 - HOLD), 0.0, 1.0)
    return 0.01 + 0.99 * (1 + jnp.cos(jnp.pi * past)) / 2


def _speeds(params: dict[str, Any], scale_speed: Any) -> dict[str, Any]:
    """scale_speed for t, tau and nu of hidden layers, 1 for everything else."""
    speeds = jax.tree.map(lambda _: 1.0, params)
    for layer in speeds["layers"]:
        moving = ("input",) if layer is speeds["layers"][-1] else ("input", "local", "global")
        layer |= {name: scale_speed for name in layer if name.startswith(moving)}
    return speeds


def _bounded(params: dict[str, Any]) -> dict[str, Any]:
    """No scale has a wider posterior than its prior.

    At a confidence near 0 nothing else holds the standard deviation of a dead unit's scale: Adam
    makes it a random walk, and a single draw of a wide one destroys the network.
    """
    layers = [
        {
            name: jnp.minimum(value, WIDEST) if name.endswith("_log_sd") else value
            for name, value in layer.items()
        }
        for layer in params["layers"]
    ]
    return {**params, "layers": layers}


_ADAM = optax.scale_by_adam()
