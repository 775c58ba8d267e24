"""What a call of `fit` trains: settings and data as stages of epochs and numbers of the objective.

Defaults that depend on the data stand here: epochs, learning rate, warm-up, speed of the scales.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from soubayes.networks import path, storage
from soubayes.networks.feeding import (
    ArraySource,
    BatchSource,
    Chunk,
    data_mesh,
    flat,
    minibatches,
    placement,
)
from soubayes.networks.files import NOT_SAVED
from soubayes.networks.layers import mean_weights
from soubayes.networks.prediction import Network, forward_weights
from soubayes.networks.removal import Kept
from soubayes.networks.state import (
    PathStage,
    Run,
    Schedule,
    StageEnd,
    TrainingPlan,
    TrainingProblem,
    epochs_a_call,
    from_network,
    rescaled_noise,
    start,
)
from soubayes.networks.structure import Spec

FEW_ROWS = 300
EPOCHS, LEAST_EPOCHS = 100, 20  # epochs=None is EPOCHS, but LEAST_STEPS to MOST_STEPS
LEAST_STEPS, MOST_STEPS = 4_000, 20_000
LEARNING_RATES = 0.002, 0.01  # learning_rate=None is RATE_STEPS / steps, within these
RATE_STEPS = 20.0
SKIP_CONFIDENCE = 0.3  # in the weights of the linear part: 1 and 0.1 predict worse on small tables

Validator = Callable[[dict[str, Any], Kept], dict[str, float]]


class TrainingData(NamedTuple):
    """What `fit` was given, after one walk over it."""

    source: ArraySource | BatchSource  # the rows to train on
    whole: ArraySource | BatchSource  # held-out rows included
    held_out: Chunk | None
    own: bool  # whether rows are held out to choose and to calibrate, and trained on at the end
    rows: int
    weight: float
    seed: int


class Before(NamedTuple):
    """A network to go on from, and its confidence in the weights."""

    end: StageEnd
    confidence: float
    noise_shape: float | None  # of the precision's posterior, which follows the number of rows
    calibration: dict[str, float]  # a classifier's temperature, if it was fitted


def make_plan(
    net: Any,
    data: TrainingData,
    values: Sequence[float],
    *,
    before: Before | None = None,
    folder: Any = None,
    part: float = 1.0,
) -> TrainingPlan:
    """What there is to train, and how; `part` of the epochs when it goes on from a network."""
    n, weight = data.rows, data.weight
    spec = net._spec()
    auto = isinstance(net.confidence_weights, str) and before is None
    stages, separate = _stages(net, data, values, part, auto)
    steps, batch = minibatches(n, net.batch_size)
    problem = _problem(net, weight, steps * (stages[0].stop - stages[0].start))
    # an epoch of a path is not scored, only its networks are
    scored = data.held_out if len(values) == 1 else None
    validator = None if scored is None else _validator(net, spec, scored)
    block = 1
    if isinstance(data.source, ArraySource) and not data.source.streamed and scored is None:
        lengths = [stage.stop - stage.start for stage in stages]
        block = epochs_a_call(lengths, n, net.batch_size, spec.cost(*spec.whole)[0])
    schedule = Schedule(
        stages, n, net.batch_size, bool(net.compact), data_mesh(batch), block,
        net._free_scales, weight * net._constant_loss(),
        net._MONITOR if net.early_stopping and scored is not None else "", separate,
    )  # fmt: skip
    if before is None:
        run = start(spec, problem, data.seed)
    else:
        run = _going_on(net, spec, before)
        problem = problem._replace(warmup=np.asarray(1e-9, np.float32))
    info = {"seed": data.seed, "fingerprint": _fingerprint(net, n), "before": _digest(before)}
    found = None if folder is None else storage.read_checkpoint(folder)
    # with a network to go on from, the folder may still hold the training that led to it
    if found is not None and (before is None or found[1].get("before") == info["before"]):
        run = _resumed(net, *found, info)
    chunks = _prepared(net, data, placement(schedule.mesh))
    return TrainingPlan(spec, problem, schedule, run, chunks, data.seed, validator, folder, info)


def _stages(
    net: Any, data: TrainingData, values: Sequence[float], part: float, auto: bool
) -> tuple[tuple[PathStage, ...], bool]:
    """The epochs of every confidence, and whether each is a training of its own."""
    epochs = _n_epochs(net, data.rows)
    if isinstance(epochs, int):
        epochs = max(1, round(part * epochs))
    elif len(epochs) != len(values):
        epochs = epochs[-1]
    separate = auto and data.rows < path.SEPARATE_ROWS and isinstance(data.source, ArraySource)
    if separate and isinstance(epochs, int):
        epochs = [max(1, round(path.SEPARATE * epochs))] * len(values)
    share = path.AUTO_LATER if auto else path.ALL_LATER
    return path.stages(values, epochs, rounded=net.epochs is None, all_later=share), separate


def _n_epochs(net: Any, n: int) -> int | list[int]:
    """Of the first confidence, or of every one."""
    if isinstance(net.epochs, Sequence):
        return [int(count) for count in net.epochs]
    if net.epochs is not None:
        return int(net.epochs)
    steps, _ = minibatches(n, net.batch_size)
    most = max(LEAST_EPOCHS, MOST_STEPS // steps)
    return min(most, max(EPOCHS, -(-LEAST_STEPS // steps)))


def _problem(net: Any, n: float, steps: int) -> TrainingProblem:
    settings = net.get_params(deep=False)
    confidence = {
        name.removeprefix("confidence_"): np.asarray(value, np.float32)
        for name, value in settings.items()
        if name.startswith("confidence_") and name != "confidence_weights"
    }
    if net._skips:  # wherever the dial stands
        confidence["skip"] = np.asarray(SKIP_CONFIDENCE, np.float32)
    warmup, speed = _pace(net, n)
    rate = net.learning_rate
    if rate is None:  # a short run takes larger steps
        rate = float(np.clip(RATE_STEPS / steps, *LEARNING_RATES))
    numbers = (rate, speed, max(warmup, 1e-9))
    optimiser = (np.asarray(value, np.float32) for value in numbers)
    return TrainingProblem(np.asarray(n, np.float32), confidence, net._noise(n), *optimiser)


def _pace(net: Any, n: float) -> tuple[float, float]:
    """Warm-up and speed of the scales; with few rows the KL terms weigh more, so go gently."""
    gentle = n < FEW_ROWS
    if net._free_scales:
        warmup, speed = (0.5, 2.0) if gentle else (net._WARMUP, 10.0)
    else:
        warmup, speed = 0.3, 10.0
    return (
        warmup if net.warmup is None else net.warmup,
        speed if net.scale_speed is None else net.scale_speed,
    )


def _validator(net: Any, spec: Spec, held_out: Chunk) -> Validator:
    """Scores of the mean weights on held-out rows."""
    X, y = net._x_scaler(held_out.X), net._encode_y(held_out.y)

    def validate(params: dict[str, Any], kept: Kept) -> dict[str, float]:
        network = Network(spec, jax.device_get(params["layers"]), kept)
        outputs = forward_weights(network, mean_weights(network.layers), X)
        scores = net._score_outputs(outputs, y, held_out.weight)
        return {f"validation_{name}": value for name, value in scores.items()}

    return validate


def _going_on(net: Any, spec: Spec, before: Before) -> Run:
    """A run that goes on from a network, whose structure must be that of the settings."""
    try:
        storage.check_ends(spec, [before.end], before.end.epoch)
    except (ValueError, KeyError) as error:
        raise ValueError(
            "warm_start=True, but the network that was fitted before has another structure "
            "than the settings or the data now ask for. Set warm_start=False."
        ) from error
    return from_network(rescaled_noise(before.end, before.noise_shape, net._noise_shape))


def _fingerprint(net: Any, n: int) -> str:
    """What must not change between a training and its resumption."""
    settings = {k: repr(v) for k, v in net.get_params().items() if k not in NOT_SAVED}
    text = json.dumps([type(net).__name__, settings, n, net._data_print], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(before: Before | None) -> str:
    """What tells one network to go on from apart from another."""
    total = hashlib.sha256()
    for leaf in [] if before is None else jax.tree.leaves(before.end.params):
        total.update(np.asarray(leaf).tobytes())
    return "" if before is None else total.hexdigest()


def _resumed(net: Any, run: Run, found: dict[str, Any], info: dict[str, Any]) -> Run:
    """The run of a checkpoint, which must be of the same training."""
    if {name: found.get(name) for name in info} != info:
        raise ValueError(
            f"the checkpoint in {str(net.checkpoint)!r} belongs to a training with other "
            "settings or other data. Give those again, or another folder."
        )
    return run


def _prepared(net: Any, data: TrainingData, copies: Any) -> Callable[[int], Iterator[Chunk]]:
    """The scaled chunks of an epoch, on all devices; weights of rows have the mean 1."""
    mean_weight = data.weight / data.rows

    def prepare(rows: Chunk) -> Chunk:
        weights = (rows.weight / mean_weight).astype(np.float32)
        scaled = Chunk(net._x_scaler(flat(rows.X)), net._encode_y(rows.y), weights)
        return jax.device_put(scaled, copies)

    def chunks(epoch: int) -> Iterator[Chunk]:
        return data.source.chunks(prepare, np.random.default_rng([data.seed, epoch]))

    return chunks
