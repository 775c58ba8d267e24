"""The loop around the compiled epochs: history, stages, and the removal of dead units."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from soubayes._warnings import warn
from soubayes.networks.feeding import Chunk, minibatches, placement
from soubayes.networks.layers import (
    ACTIVE_SCALE,
    Layer,
    active_counts,
    expected_scale,
    mean_weights,
    row_scales,
    unit_scales,
    weight_counts,
)
from soubayes.networks.likelihoods import categorical_loss, gaussian_loss
from soubayes.networks.prediction import Network, forward_weights
from soubayes.networks.program import WEIGHT_THRESHOLD, scan_chunk
from soubayes.networks.removal import (
    Kept,
    columns_read,
    information,
    information_read,
    information_skipped,
    network_size,
    remove,
    survivors,
)
from soubayes.networks.state import (
    Run,
    Schedule,
    StageEnd,
    TrainingPlan,
    TrainingProblem,
    afresh,
    stage_problem,
    start,
    starts_afresh,
)
from soubayes.networks.structure import Spec

PATIENCE = 0.1  # early stopping waits so much of the run for a better score
COMPACT_FROM = 0.08  # no unit is removed in this first part of a stage
COMPACT_GAIN = 0.6  # a new shape is compiled only when at most this part of the weights remains,
COMPILE_FLOPS = 6e10  # and when that saves enough arithmetic: compiling takes about 4 s
DEAD_NATS = 3.0  # a unit that knows less than this about the data is dead
LEAST_NATS = 0.1  # with which a unit goes even where the loss rises
CHECKED_ROWS = 10_000  # whose loss is compared before and after the removal
DEAD_LINEAR = 1.0  # likewise a skipped column: one weight with |mean| = 2.5 sd knows as much


def train(plan: TrainingPlan, report: Callable[[Run], None]) -> tuple[Run, bool]:
    """Train to the end of the schedule; (the run, whether it got there).

    Epoch e draws its randomness from (seed, e), so a run resumed from any epoch ends the same.
    A non-finite objective stops at the last good epoch with a warning.
    """
    schedule, run = plan.schedule, _placed(plan.run, plan.schedule)
    best = None
    while run.epoch < schedule.epochs:
        following = _block(plan, run)
        if not np.isfinite(following.rows[-1]["objective"]):
            warn(
                f"the objective is not finite in epoch {following.epoch}; training stopped at "
                f"epoch {run.epoch}. Lower learning_rate.",
                ConvergenceWarning,
            )
            return run, False
        run = following
        report(run)
        if schedule.monitor:
            best = run if best is None or _score(run, schedule) < _score(best, schedule) else best
            if run.epoch - best.epoch >= PATIENCE * schedule.epochs:
                break
    if best is not None and best.epoch < run.epoch:
        rows = next(iter(plan.chunks(best.epoch)))
        run = handed_over(plan, best._replace(ends=[]), 0, rows)
    return run, True


def _score(run: Run, schedule: Schedule) -> float:
    """The monitored score of a run's last epoch."""
    return float(run.rows[run.epoch - 1][schedule.monitor])


def _block(plan: TrainingPlan, run: Run) -> Run:
    """The next epochs: one, or on small data a few in one compiled call."""
    began = time.perf_counter()
    spec, schedule, last = plan.spec, plan.schedule, run.epoch
    epochs = last + np.arange(schedule.block)
    rngs = epoch_rngs(plan.seed, epochs)
    stage = schedule.stages[schedule.stage(last)]
    fresh = not schedule.separate and starts_afresh(plan, run)
    problem = stage_problem(plan, last, afresh=fresh)
    inputs = columns_read(spec, run.kept)
    params, moments = run.params, run.moments
    seen, losses, summary = 0, [], None
    for chunk in plan.chunks(last):
        rows = len(chunk.X)
        order, keys = order_and_keys(schedule, rngs, rows)
        steps = order.shape[1]
        into = (seen + rows * np.arange(steps) / steps) / schedule.rows
        params, moments, loss, summary = scan_chunk(
            spec, schedule.mesh, params, moments, inputs, chunk,
            order, keys,
            stage.part(epochs[:, None] + into).astype(np.float32), problem,
        )  # fmt: skip
        seen += rows
        losses.append((rows, loss))
        # calls return before they are done: reading may run one chunk ahead, not all of them
        jax.block_until_ready(losses[-2:-1])
    losses, summaries = jax.device_get((losses, summary))
    loss = float(problem.weight) * sum(rows * part.astype(float) for rows, part in losses) / seen
    score = {} if plan.validator is None else plan.validator(params, run.kept)
    seconds = (time.perf_counter() - began) / schedule.block
    run.rows[last:] = [
        {**history_row(spec, problem, epoch + 1, *parts), **score, "seconds": seconds}
        for epoch, *parts in zip(epochs.tolist(), loss.tolist(), summaries, strict=True)
    ]
    run = run._replace(params=params, moments=moments, epoch=last + schedule.block)
    if run.epoch == stage.stop:
        handed = handed_over(plan, run, schedule.stage(last), chunk)
        if run.epoch == schedule.epochs:
            return handed
        if schedule.separate:
            new = start(spec, problem, plan.seed)
            new = new._replace(epoch=run.epoch, rows=run.rows, ends=run.ends)
            return _placed(new, schedule)
        if starts_afresh(plan, run):
            new_seed = int(np.random.default_rng([plan.seed, run.epoch]).integers(2**31))
            return _placed(afresh(plan, handed, new_seed), schedule)
        if schedule.stages[schedule.stage(run.epoch)].confidence < stage.confidence:
            return _placed(handed, schedule)  # a lower confidence would bring dead units back
    if _may_compact(last - stage.start, run.epoch - stage.start, stage.stop - stage.start):
        rows_left = seen * (schedule.epochs - run.epoch)
        run = _placed(compact(plan, run, rows_left), schedule)
    return run


def handed_over(plan: TrainingPlan, run: Run, number: int, rows: Chunk) -> Run:
    """The run at the end of a stage, all dead units gone; written into its `rows` and `ends`."""
    handed = compact(plan, run, rows_left=0)
    if plan.schedule.free_scales and handed.kept is not run.kept:
        handed = _checked(plan, run, handed, rows)
    layers = jax.device_get(handed.params["layers"])
    counts = active_counts(layers), weight_counts(layers, WEIGHT_THRESHOLD)
    run.rows[run.epoch - 1] |= _count_columns(plan.spec, *counts)
    run.ends[number:] = [StageEnd(jax.device_get(handed.params), handed.kept, run.epoch)]
    return handed


def _checked(plan: TrainingPlan, run: Run, handed: Run, rows: Chunk) -> Run:
    """The run after a removal, or after a smaller one where that changed the predictions.

    A unit that reads two others may know 2 nats and still divide the classes. So the loss of some
    rows is compared: it may rise by as much as what is gone knew, and by DEAD_NATS.
    """
    rows = jax.device_get(Chunk(*(part[:CHECKED_ROWS] for part in rows)))
    before, dead = _mean_loss(plan, run, rows), DEAD_NATS
    while dead > LEAST_NATS and handed.kept is not run.kept:
        rise = _mean_loss(plan, handed, rows) - before
        if rise <= DEAD_NATS + _lost(plan.spec, run, handed.kept):
            break
        dead /= 2
        handed = compact(plan, run, rows_left=0, dead=dead)
    return handed


def _mean_loss(plan: TrainingPlan, run: Run, rows: Chunk) -> float:
    """The loss of all rows in nats, by mean weights and from a part of the rows."""
    params, problem = jax.device_get(run.params), plan.problem
    network = Network(plan.spec, params["layers"], run.kept)
    outputs = jnp.asarray(forward_weights(network, mean_weights(network.layers), rows.X))
    if problem.noise is None:
        losses = categorical_loss(outputs, rows.y)
    else:
        losses = gaussian_loss(outputs, rows.y, params["noise"], problem.noise)
    return float(problem.weight) * float(np.mean(rows.weight * np.asarray(losses)))


def _lost(spec: Spec, run: Run, after: Kept) -> float:
    """What the units and inputs that are gone knew, in nats."""
    layers = jax.device_get(run.params["layers"])
    parts = [
        (information(layer), *kept)
        for layer, *kept in zip(layers, run.kept.units, after.units, strict=False)
    ]
    if spec.gate is not None:
        parts.append((information(layers[spec.gate], axis=1), run.kept.inputs, after.inputs))
    known = (values[~np.isin(before, left)] for values, before, left in parts)
    return float(sum(np.maximum(part, 0.0).sum() for part in known))


def order_and_keys(
    schedule: Schedule, rngs: list[np.random.Generator], rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Minibatches (epochs, steps, batch) of a chunk of so many rows, and their noise."""
    steps, batch = minibatches(rows, schedule.batch_size)
    order = np.stack([rng.permutation(rows)[: steps * batch] for rng in rngs])
    keys = np.stack([rng.integers(2**32, size=(steps, 2), dtype=np.uint32) for rng in rngs])
    return order.reshape(-1, steps, batch).astype(np.int32), keys


def epoch_rngs(seed: int, epochs: np.ndarray) -> list[np.random.Generator]:
    return [np.random.default_rng([seed, int(epoch)]) for epoch in epochs]


def compact(plan: TrainingPlan, run: Run, rows_left: int, dead: float = DEAD_NATS) -> Run:
    """Remove the dead units and inputs, if that pays for the rows still to be trained on.

    With free scales a unit is dead that knows less than `dead` nats; when tau pays for its place,
    units share what they know and only the paper's rule, E[tau nu] < 1e-3, tells. At the end of a
    stage every dead unit goes.
    """
    spec, schedule = plan.spec, plan.schedule
    layers = jax.device_get(run.params["layers"])
    if not schedule.compact or "local_mean" not in layers[0]:
        return run  # without scales nothing dies
    gated = layers[spec.gate or 0]
    if schedule.free_scales:
        read = information(gated, axis=1)
        if spec.skip and spec.gate == 0:  # by the network, or by the outputs alone
            linear = information_skipped(layers[-1], len(layers[-2]["mean"][0]))
            read = np.maximum(read, linear * (DEAD_NATS / DEAD_LINEAR))
        units, inputs = survivors(spec, run.kept, _known(spec, layers), read, dead)
    else:
        read = row_scales(gated, expected_scale)[:-1, 0]
        scales = [unit_scales(layer) for layer in layers[:-1]]
        units, inputs = survivors(spec, run.kept, scales, read, ACTIVE_SCALE)
    kept = Kept([a[b] for a, b in zip(run.kept.units, units, strict=True)], run.kept.inputs[inputs])
    before, _ = spec.cost(*network_size(spec, run.kept))
    after, _ = spec.cost(*network_size(spec, kept))
    # two products forward and four back, each one multiply–add for every weight and row
    spared = 12.0 * (before - after) * rows_left
    if after == before or (rows_left and (after > COMPACT_GAIN * before or spared < COMPILE_FLOPS)):
        return run

    def cut(tree: Any) -> Any:
        return {**tree, "layers": remove(spec, tree["layers"], units, inputs)}

    params, moments = jax.device_get((run.params, run.moments))
    moments = moments._replace(mu=cut(moments.mu), nu=cut(moments.nu))
    return run._replace(params=cut(params), moments=moments, kept=kept)


def _known(spec: Spec, layers: list[Layer]) -> list[np.ndarray]:
    """What the units of every hidden layer know, in nats; of a channel also what is read of it."""
    known = [information(layer) for layer in layers[:-1]]
    for i, step in enumerate(spec.steps[1:]):
        if step.kernel:
            read = information_read(layers[i + 1], len(known[i]))
            known[i] = np.minimum(known[i], read)
    return known


def history_row(
    spec: Spec, problem: TrainingProblem, epoch: int, loss: float, summary: np.ndarray
) -> dict[str, Any]:
    names = spec.blocks if problem.noise is None else (*spec.blocks, "noise")
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
    """About 60 times between COMPACT_FROM and the end of a stage."""
    every = max(1, epochs // 60)
    return epoch > COMPACT_FROM * epochs and last // every < epoch // every
