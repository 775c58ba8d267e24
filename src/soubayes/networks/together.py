"""Groups of small networks of one structure, trained in one compiled program."""

import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from soubayes.networks import storage
from soubayes.networks.feeding import placement
from soubayes.networks.plan import make_plan
from soubayes.networks.program import scan_together
from soubayes.networks.progress import CHECKPOINT_SECONDS, progress
from soubayes.networks.removal import columns_read
from soubayes.networks.state import Run, TrainingPlan, TrainingProblem, stage_problem
from soubayes.networks.training import epoch_rngs, handed_over, history_row, order_and_keys


def fit_together(
    nets: list[list[Any]],
    data: list[tuple[Any, Any, Any]],
    *,
    verbose: int = 0,
    folder: Path | None = None,
) -> None:
    """Fit groups of networks of one structure, one confidence each, on data (X, y, weight).

    The networks of a group have one seed and the same data; the data of all groups have one size.
    """
    plans = []
    for group, rows in zip(nets, data, strict=True):
        taken = [net._take_in(*rows, None, None, None) for net in group]
        each = zip(group, taken, strict=True)
        plans.append([make_plan(net, own, (net.confidence_weights,)) for net, own in each])
    first = plans[0][0]
    with progress(verbose, first.schedule.epochs) as show:
        runs = _train_together(plans, show, folder)
    for net, run in zip(chain(*nets), chain(*runs), strict=True):
        net.finished_ = True
        net._set_run(first.spec, run, (net.confidence_weights,), None)


class _State(NamedTuple):
    """Where a training stands; the first axes of all arrays are the group and the network."""

    params: Any
    moments: Any
    histories: list[list[list[dict[str, Any]]]]
    epoch: int


def _train_together(
    plans: list[list[TrainingPlan]], show: Callable[[Run], None], folder: Path | None
) -> list[list[Run]]:
    """Train groups of networks of one shape to the end of one stage.

    A group has one seed and one resident chunk. Small networks spend their time on calls and on
    random numbers, not on arithmetic: together they take little longer than one. Each ends as it
    would have ended alone, up to rounding. With a folder a training that was killed or interrupted
    goes on from there.
    """
    first = plans[0][0]
    info = {
        "fingerprints": [plan.info["fingerprint"] for plan in chain(*plans)],
        "seeds": [group[0].seed for group in plans],
    }
    problems = [[stage_problem(plan, 0) for plan in group] for group in plans]
    chunks = [jax.device_get(next(group[0].chunks(0))) for group in plans]
    fixed = _stacked([_stacked(group) for group in problems]), _stacked(chunks)
    fixed = jax.device_put(fixed, placement(first.schedule.mesh))
    state = _begun(plans, folder, info)
    written, since = state.epoch, time.monotonic()
    try:
        while state.epoch < first.schedule.epochs:
            state = _block(plans, problems, fixed, state)
            show(first.run._replace(epoch=state.epoch, rows=state.histories[0][0]))
            if folder is not None and time.monotonic() - since >= CHECKPOINT_SECONDS:
                storage.write_together(folder, *state[:3], {**info, "epoch": state.epoch})
                written, since = state.epoch, time.monotonic()
    finally:  # at the end, and after Ctrl-C
        if folder is not None and state.epoch > written:
            storage.write_together(folder, *state[:3], {**info, "epoch": state.epoch})
    params, moments = jax.device_get(state[:2])

    def end(i: int, j: int) -> Run:
        mine, past = jax.tree.map(lambda leaf: leaf[i, j], (params, moments))
        run = plans[i][j].run._replace(params=mine, moments=past, rows=state.histories[i][j])
        return handed_over(plans[i][j], run._replace(epoch=state.epoch), 0, chunks[i])

    return [[end(i, j) for j in range(len(group))] for i, group in enumerate(plans)]


def _begun(plans: list[list[TrainingPlan]], folder: Path | None, info: dict[str, Any]) -> _State:
    """The state before the first epoch, or that of a checkpoint of the same training."""
    found = None if folder is None else storage.read_together(folder)
    if found is None:
        runs = [[(plan.run.params, plan.run.moments) for plan in group] for group in plans]
        params, moments = _stacked([_stacked(group) for group in runs])
        state = _State(params, moments, [[[] for _ in group] for group in plans], 0)
    elif {name: found[3][name] for name in info} != info:
        raise ValueError(
            f"the checkpoint in {str(folder)!r} belongs to a training with other settings or "
            "other data. Give those again, or another folder."
        )
    else:
        state = _State(*found[:3], found[3]["epoch"])
    mesh = plans[0][0].schedule.mesh
    params, moments = jax.device_put((state.params, state.moments), placement(mesh))
    return state._replace(params=params, moments=moments)


def _block(
    plans: list[list[TrainingPlan]],
    problems: list[list[TrainingProblem]],
    fixed: tuple[Any, Any],
    state: _State,
) -> _State:
    """The next epochs, in one compiled call; `fixed` are the stacked problems and chunks."""
    began = time.perf_counter()
    spec, schedule = plans[0][0].spec, plans[0][0].schedule
    epochs = state.epoch + np.arange(schedule.block)
    drawn = [
        order_and_keys(schedule, epoch_rngs(group[0].seed, epochs), schedule.rows)
        for group in plans
    ]
    order, keys = (np.stack(parts) for parts in zip(*drawn, strict=True))
    into = np.arange(order.shape[2]) / order.shape[2]
    times = schedule.stages[0].part(epochs[:, None] + into).astype(np.float32)
    params, moments, loss, summary = scan_together(
        spec, schedule.mesh, columns_read(spec, plans[0][0].run.kept), times,
        state.params, state.moments, *fixed, order, keys,
    )  # fmt: skip
    loss, summary = jax.device_get((loss, summary))
    if not np.isfinite(loss).all():
        raise FloatingPointError(
            f"the loss of a network is not finite by epoch {epochs[-1] + 1}; lower learning_rate."
        )
    seconds = (time.perf_counter() - began) / schedule.block / loss[..., 0].size
    for i, j in np.ndindex(loss.shape[:2]):
        totals = float(problems[i][j].weight) * loss[i, j].astype(float)
        state.histories[i][j][state.epoch :] = [
            {**history_row(spec, problems[i][j], epoch + 1, *parts), "seconds": seconds}
            for epoch, *parts in zip(epochs.tolist(), totals, summary[i, j], strict=True)
        ]
    return _State(params, moments, state.histories, int(epochs[-1]) + 1)


def _stacked(trees: list[Any]) -> Any:
    """Trees of one structure as one, with a new first axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
