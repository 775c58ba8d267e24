"""Groups of small networks of one structure, trained in one compiled program."""

import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import jax
import numpy as np

from soubayes.networks import storage
from soubayes.networks.compaction import columns_read
from soubayes.networks.feeding import Chunk, placement
from soubayes.networks.plan import make_plan
from soubayes.networks.program import scan_together
from soubayes.networks.progress import CHECKPOINT_SECONDS, progress
from soubayes.networks.state import Run, Schedule, TrainingProblem, stage_problem
from soubayes.networks.structure import Spec
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
    prints = [plan.info["fingerprint"] for group in plans for plan in group]
    with progress(verbose, first.schedule.epochs) as show:
        runs = _train_together(
            first.spec,
            [[stage_problem(p.spec, p.problem, p.schedule, 0) for p in group] for group in plans],
            first.schedule,
            [[plan.run for plan in group] for group in plans],
            [group[0]._rng_seed for group in nets],
            [jax.device_get(next(group[0].chunks(0))) for group in plans],
            show,
            folder,
            {"fingerprints": prints, "seeds": [group[0]._rng_seed for group in nets]},
        )
    for net, run in zip(chain(*nets), chain(*runs), strict=True):
        net.finished_ = True
        net._set_run(first.spec, run, (net.confidence_weights,), None)


def _train_together(
    spec: Spec,
    problems: list[list[TrainingProblem]],
    schedule: Schedule,
    runs: list[list[Run]],
    seeds: list[int],
    chunks: list[Chunk],
    show: Callable[[Run], None],
    folder: Path | None,
    info: dict[str, Any],
) -> list[list[Run]]:
    """Train groups of networks of one shape to the end of one stage.

    A group has one seed and one resident chunk. Small networks spend their time on calls and on
    random numbers, not on arithmetic: together they take little longer than one. Each ends as it
    would have ended alone, up to rounding. With a folder a killed training goes on from there.
    """
    parts = [
        [(run.params, run.moments, problem) for run, problem in zip(*group, strict=True)]
        for group in zip(runs, problems, strict=True)
    ]
    members = jax.device_put(
        (*_stacked([_stacked(group) for group in parts]), _stacked(chunks)),
        placement(schedule.mesh),
    )
    params, moments, problem, chunk = members
    inputs = columns_read(spec, runs[0][0].kept)
    histories: list[list[list[dict[str, Any]]]] = [[[] for _ in group] for group in runs]
    done, written = 0, time.monotonic()
    found = None if folder is None else storage.read_together(folder)
    if found is not None:
        if {name: found[3][name] for name in info} != info:
            raise ValueError(
                f"the checkpoint in {str(folder)!r} belongs to a training with other settings or "
                "other data. Give those again, or another folder."
            )
        params, moments = jax.device_put(found[:2], placement(schedule.mesh))
        histories, done = found[2], found[3]["epoch"]
    for first in range(done, schedule.epochs, schedule.block):
        began = time.perf_counter()
        epochs = first + np.arange(schedule.block)
        rows = schedule.rows
        drawn = [order_and_keys(schedule, epoch_rngs(seed, epochs), rows) for seed in seeds]
        order, keys = (np.stack(parts) for parts in zip(*drawn, strict=True))
        into = np.arange(order.shape[2]) / order.shape[2]
        times = schedule.stages[0].part(epochs[:, None] + into).astype(np.float32)
        params, moments, loss, summary = scan_together(
            spec, schedule.mesh, inputs, times, params, moments, problem, chunk, order, keys
        )
        loss, summary = jax.device_get((loss, summary))
        if not np.isfinite(loss).all():
            raise FloatingPointError(
                f"the loss of a network is not finite by epoch {epochs[-1] + 1}; lower "
                "learning_rate."
            )
        seconds = (time.perf_counter() - began) / schedule.block / loss[..., 0].size
        for i, j in np.ndindex(loss.shape[:2]):
            own = problems[i][j]
            totals = float(own.weight) * loss[i, j].astype(float)
            histories[i][j] += [
                {**history_row(spec, own, epoch + 1, *parts), "seconds": seconds}
                for epoch, *parts in zip(epochs.tolist(), totals, summary[i, j], strict=True)
            ]
        done = int(epochs[-1]) + 1
        show(runs[0][0]._replace(epoch=done, rows=histories[0][0]))
        last = done == schedule.epochs
        if folder is not None and (last or time.monotonic() - written >= CHECKPOINT_SECONDS):
            mine, past = jax.device_get((params, moments))
            storage.write_together(folder, mine, past, histories, {**info, "epoch": done})
            written = time.monotonic()
    params, moments = jax.device_get((params, moments))

    def end(i: int, j: int) -> Run:
        mine, past = jax.tree.map(lambda leaf: leaf[i, j], (params, moments))
        run = runs[i][j]._replace(params=mine, moments=past, rows=histories[i][j])
        run = run._replace(epoch=schedule.epochs)
        return handed_over(spec, problems[i][j], schedule, run, 0, chunks[i])

    return [[end(i, j) for j in range(len(group))] for i, group in enumerate(runs)]


def _stacked(trees: list[Any]) -> Any:
    """Trees of one structure as one, with a new first axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
