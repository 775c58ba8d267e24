"""Training: one compiled scan an epoch, and the loop that removes dead units around it.

The optimiser sees J/n = mean loss of a minibatch + sum_k gamma_k KL_k / n (eq. 5 over n).
Adam's step is multiplied for the scales: pruning is the scales' random walk to 0, and without the
multiplier it takes ten times as many epochs as the fit.
"""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.exceptions import ConvergenceWarning

from soubayes.networks.compaction import remove_units, size_after, unit_information, units_to_keep
from soubayes.networks.feeding import minibatches, placement
from soubayes.networks.layers import (
    ACTIVE_SCALE,
    Spec,
    active_counts,
    forward,
    init_layers,
    kl_terms,
    unit_scales,
    weight_counts,
)
from soubayes.networks.likelihoods import (
    NoisePrior,
    categorical_loss,
    gaussian_kl,
    gaussian_loss,
    init_noise,
)

BLOCKS = ("weights", "local", "global")
WEIGHT_THRESHOLD = 1e-5  # the paper's threshold for the sparsity of effective weights
HOLD = 0.5  # the learning rate is held for this part of the run, then falls along a cosine
COMPACT_FROM = 0.08  # no unit is removed in this first part of the run
COMPACT_GAIN = 0.6  # a new shape is compiled only when at most this part of the weights remains,
COMPILE_FLOPS = 6e10  # and when that spares enough arithmetic: compiling takes about 4 s
BLOCK_STEPS, BLOCK_FLOPS = 200, 2e10  # what one compiled call may hold of small epochs
DEAD_NATS = 3.0  # a unit that knows less than this about the data is dead


class Problem(NamedTuple):
    """Numbers of the objective and the optimiser; traced, so changing them compiles nothing."""

    n: np.ndarray
    confidence: dict[str, np.ndarray]
    noise: NoisePrior | None  # None: a classifier
    learning_rate: np.ndarray
    scale_speed: np.ndarray
    warmup: np.ndarray


class Run(NamedTuple):
    """Everything that a training needs to go on: what a checkpoint holds."""

    params: dict[str, Any]  # {"layers": [...], "noise": {...}}
    moments: Any  # Adam's state, of the same shapes
    kept: list[np.ndarray]  # original indices of the units still there, a hidden layer each
    epoch: int
    rows: list[dict[str, Any]]  # the history; shared by all Runs of a training, longest last


@dataclass(frozen=True)
class Schedule:
    """How long, in what portions, and whether dead units are removed."""

    epochs: int
    batch_size: int
    compact: bool
    mesh: jax.sharding.Mesh
    block: int = 1  # epochs a compiled call; more than 1 only when the data are one chunk
    free_scales: bool = True  # whether tau is free, so that information tells who is dead


def start(spec: Spec, problem: Problem, seed: int) -> Run:
    """A run before its first epoch."""
    params: dict[str, Any] = {"layers": init_layers(spec, np.random.default_rng(seed))}
    if problem.noise is not None:
        params["noise"] = init_noise(problem.noise)
    kept = [np.arange(width) for width in spec.sizes[1:-1]]
    moments = optax.ScaleByAdamState(
        count=np.zeros((), np.int32),
        mu=jax.tree.map(np.zeros_like, params),
        nu=jax.tree.map(np.zeros_like, params),
    )
    return Run(params, moments, kept, 0, [])


def train(
    spec: Spec,
    problem: Problem,
    schedule: Schedule,
    run: Run,
    seed: int,
    chunks: Callable[[int], Iterator[tuple[Any, Any]]],
    validate: Callable[[dict[str, Any]], dict[str, float]],
    report: Callable[[Run], None],
) -> tuple[Run, bool]:
    """Train to the end of the schedule; (the run, whether it got there).

    Epoch e draws its randomness from (seed, e), so a run resumed from any epoch ends the same.
    Ctrl-C and a non-finite objective stop at the last good epoch with a warning.
    """
    run = _placed(run, schedule)
    try:
        while run.epoch < schedule.epochs:
            following = _block(spec, problem, schedule, run, seed, chunks, validate)
            if not np.isfinite(following.rows[-1]["objective"]):
                warnings.warn(
                    f"the objective is not finite in epoch {following.epoch}; training stopped at "
                    f"epoch {run.epoch}. Lower learning_rate.",
                    ConvergenceWarning,
                    stacklevel=4,
                )
                return run, False
            run = following
            report(run)
    except KeyboardInterrupt:
        warnings.warn(
            f"training interrupted after {run.epoch} of {schedule.epochs} epochs; the estimator "
            "holds what it had learned by then.",
            ConvergenceWarning,
            stacklevel=4,
        )
        return run, False
    return run, True


def _block(
    spec: Spec,
    problem: Problem,
    schedule: Schedule,
    run: Run,
    seed: int,
    chunks: Callable[[int], Iterator[tuple[Any, Any]]],
    validate: Callable[[dict[str, Any]], dict[str, float]],
) -> Run:
    """The next epochs: one, or on small data a few in one compiled call."""
    began = time.perf_counter()
    epochs = run.epoch + np.arange(schedule.block)
    rngs = [np.random.default_rng([seed, int(epoch)]) for epoch in epochs]
    params, moments = run.params, run.moments
    seen, losses, summary = 0, [], None
    for X, y in chunks(run.epoch):
        steps, batch = minibatches(len(X), schedule.batch_size)
        order = np.stack([rng.permutation(len(X))[: steps * batch] for rng in rngs])
        keys = np.stack([rng.integers(2**32, size=(steps, 2), dtype=np.uint32) for rng in rngs])
        into = (seen + len(X) * np.arange(steps) / steps) / problem.n
        params, moments, loss, summary = scan_chunk(
            spec, schedule.mesh, params, moments, X, y,
            order.reshape(-1, steps, batch).astype(np.int32), keys,
            ((epochs[:, None] + into) / schedule.epochs).astype(np.float32), problem,
        )  # fmt: skip
        seen += len(X)
        losses.append((len(X), loss))
        # calls return before they are done: reading may run one chunk ahead, not all of them
        jax.block_until_ready(losses[-2:-1])
    losses, summaries = jax.device_get((losses, summary))
    loss = float(problem.n) * sum(rows * part.astype(float) for rows, part in losses) / seen
    score = validate(params)
    seconds = (time.perf_counter() - began) / schedule.block
    run.rows[run.epoch :] = [
        {**_history_row(spec, problem, epoch + 1, *parts), **score, "seconds": seconds}
        for epoch, *parts in zip(epochs.tolist(), loss.tolist(), summaries, strict=True)
    ]
    last, run = run.epoch, Run(params, moments, run.kept, run.epoch + schedule.block, run.rows)
    if schedule.compact and _may_compact(last, run.epoch, schedule.epochs):
        rows_left = seen * (schedule.epochs - run.epoch)
        run = _placed(compact(run, schedule, rows_left), schedule)
        if not rows_left:  # so that the last row tells of the network that is handed over
            layers = jax.device_get(run.params["layers"])
            counts = active_counts(layers), weight_counts(layers, WEIGHT_THRESHOLD)
            run.rows[-1] |= _count_columns(spec, *counts)
    return run


def epochs_a_call(epochs: int, n: int, batch_size: int, weights: int) -> int:
    """As many epochs as are worth one compiled call: at most 200 steps or about a second.

    It divides the number of epochs, so that all calls have one shape.

    >>> epochs_a_call(5000, n=300, batch_size=100, weights=10_000)
    50
    >>> epochs_a_call(100, n=60_000, batch_size=100, weights=200_000)
    1
    """
    steps, _ = minibatches(n, batch_size)
    most = min(BLOCK_STEPS // steps, int(BLOCK_FLOPS / (12 * weights * n)))
    return max((k for k in range(1, most + 1) if epochs % k == 0), default=1)


def compact(run: Run, schedule: Schedule, rows_left: int) -> Run:
    """Remove the dead units, if that pays for the rows still to be trained on.

    With free scales a unit is dead that knows less than DEAD_NATS; when tau pays for its place,
    units share what they know and only the paper's rule, E[tau nu] < 1e-3, tells. At the end of a
    run every dead unit goes.
    """
    layers = jax.device_get(run.params["layers"])
    if "local_mean" not in layers[0]:
        return run  # no scales, nothing dies
    if schedule.free_scales:
        keep = units_to_keep(unit_information(layers), DEAD_NATS)
    else:
        keep = units_to_keep([unit_scales(layer) for layer in layers[:-1]], ACTIVE_SCALE)
    before = sum(layer["mean"].size for layer in layers)
    after = size_after(layers, keep)
    # two products forward and four back, each a multiplication and an addition a weight and row
    spared = 12.0 * (before - after) * rows_left
    if after == before or (rows_left and (after > COMPACT_GAIN * before or spared < COMPILE_FLOPS)):
        return run

    def cut(tree: Any) -> Any:
        return {**tree, "layers": remove_units(tree["layers"], keep)}

    params, moments = jax.device_get((run.params, run.moments))
    moments = moments._replace(mu=cut(moments.mu), nu=cut(moments.nu))
    kept = [old[new] for old, new in zip(run.kept, keep, strict=True)]
    return run._replace(params=cut(params), moments=moments, kept=kept)


@partial(jax.jit, static_argnames=("spec", "mesh"))
def scan_chunk(
    spec: Spec,
    mesh: jax.sharding.Mesh,
    params: dict[str, Any],
    moments: Any,
    X: jax.Array,
    y: jax.Array,
    order: jax.Array,
    keys: jax.Array,
    times: jax.Array,
    problem: Problem,
) -> tuple[dict[str, Any], Any, jax.Array, jax.Array]:
    """Take the minibatches `order` (epochs, steps, batch) of a chunk.

    `keys` (epochs, steps, 2) are their noise, `times` (epochs, steps) their parts of the run. Also
    returns the mean loss and the summary of every epoch.
    """
    batch = order.shape[-1]

    def step(state: Any, now: Any) -> Any:
        params, moments = state
        rows, key_data, t = now
        key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
        if batch % mesh.size == 0:
            rows = jax.lax.with_sharding_constraint(rows, placement(mesh, "rows"))
        loss_and_slope = jax.value_and_grad(partial(objective, spec), has_aux=True)
        (_, loss), slope = loss_and_slope(params, X[rows], y[rows], key, t, problem)
        direction, moments = _ADAM.update(slope, moments)
        rate = problem.learning_rate * _decay(t)
        params = jax.tree.map(
            lambda p, d, speed: p - rate * speed * d,
            params,
            direction,
            _speeds(params, problem.scale_speed),
        )
        return (params, moments), loss

    def epoch(state: Any, now: Any) -> Any:
        state, losses = jax.lax.scan(step, state, now)
        return state, (losses.mean(), _summary(spec, state[0], problem))

    (params, moments), (loss, summary) = jax.lax.scan(
        epoch, (params, moments), (order, keys, times)
    )
    return params, moments, loss, summary


def objective(
    spec: Spec,
    params: dict[str, Any],
    X: jax.Array,
    y: jax.Array,
    key: jax.Array,
    t: jax.Array,
    problem: Problem,
) -> tuple[jax.Array, jax.Array]:
    """(J/n on a minibatch with the KL terms warming up, the mean loss alone)."""
    outputs = forward(spec, params["layers"], X, key)
    if problem.noise is None:
        loss = categorical_loss(outputs, y).mean()
    else:
        loss = gaussian_loss(outputs, y, params["noise"], problem.noise).mean()
    kl = block_kl(spec, params, problem)
    penalty = sum(problem.confidence[name] * value for name, value in kl.items())
    return loss + jnp.minimum(1.0, t / problem.warmup) * penalty / problem.n, loss


def block_kl(spec: Spec, params: dict[str, Any], problem: Problem) -> dict[str, jax.Array]:
    """KL in nats of every block: weights, local, global and, in regression, noise."""
    terms = kl_terms(spec, params["layers"])
    kl = {name: terms[name] for name in BLOCKS}
    if problem.noise is not None:
        kl["noise"] = gaussian_kl(params["noise"], problem.noise)
    return kl


def _summary(spec: Spec, params: dict[str, Any], problem: Problem) -> jax.Array:
    """KL of the blocks, active units and weights above the threshold, as one vector to fetch."""
    layers = params["layers"]
    kl = block_kl(spec, params, problem)
    counts = [*active_counts(layers), *weight_counts(layers, WEIGHT_THRESHOLD)]
    return jnp.stack([jnp.asarray(value, jnp.float32) for value in [*kl.values(), *counts]])


def _history_row(
    spec: Spec, problem: Problem, epoch: int, loss: float, summary: np.ndarray
) -> dict[str, Any]:
    names = BLOCKS if problem.noise is None else (*BLOCKS, "noise")
    parts = np.split(summary.astype(float), np.cumsum([len(names), spec.n_hidden]))
    kl = dict(zip(names, parts[0].tolist(), strict=True))
    penalty = sum(float(problem.confidence[name]) * value for name, value in kl.items())
    return {
        "epoch": epoch,
        "objective": loss + penalty,
        "loss": loss,
        **{f"kl_{name}": value for name, value in kl.items()},
        **_count_columns(spec, *parts[1:]),
    }


def _count_columns(spec: Spec, active: Any, weights: Any) -> dict[str, Any]:
    """Active units and sparsity of every layer, as parts of the initial sizes."""
    sparsity = 1 - np.asarray(weights, float) / spec.n_weights
    return {
        **{f"active_{i}": int(count) for i, count in enumerate(active, start=1)},
        **{f"sparsity_{i}": part for i, part in enumerate(sparsity.tolist(), start=1)},
    }


def _placed(run: Run, schedule: Schedule) -> Run:
    """On all devices; without it the first epoch of a shape would compile twice."""
    params, moments = jax.device_put((run.params, run.moments), placement(schedule.mesh))
    return run._replace(params=params, moments=moments)


def _may_compact(last: int, epoch: int, epochs: int) -> bool:
    """At the end, and about 60 times between COMPACT_FROM and then."""
    every = max(1, epochs // 60)
    return epoch == epochs or (epoch > COMPACT_FROM * epochs and last // every < epoch // every)


def _decay(t: jax.Array) -> jax.Array:
    past = jnp.clip((t - HOLD) / (1 - HOLD), 0.0, 1.0)
    return 0.01 + 0.99 * (1 + jnp.cos(jnp.pi * past)) / 2


def _speeds(params: dict[str, Any], scale_speed: Any) -> dict[str, Any]:
    """scale_speed for tau and nu of hidden layers, 1 for everything else."""
    speeds = jax.tree.map(lambda _: 1.0, params)
    for layer in speeds["layers"][:-1]:
        layer |= {name: scale_speed for name in layer if name.startswith(("local", "global"))}
    return speeds


_ADAM = optax.scale_by_adam()
