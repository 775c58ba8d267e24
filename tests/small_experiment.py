"""A small experiment for the tests of the runner, importable by its workers."""

import os
import signal
import time
from pathlib import Path

import numpy as np

from paper.runner import Experiment, run
from paper.storage import Store, Task
from paper.views import View, cell, select

WAIT = 0.01


def grid(size):
    seeds = {"toy": 4, "quick": 30, "full": 60}[size]
    return [Task(seed, {"n": n}) for seed in range(seeds) for n in (5, 50)]


def compute(seed, parameters):
    time.sleep(WAIT)
    values = np.random.default_rng(seed).standard_normal((200, parameters["n"]))
    # a product of matrices: its last digits depend on the number of BLAS threads
    return {"mean": values.mean(), "gram": (values @ values.T).sum(), "list": values[0, :3]}


def compute_or_fail(seed, parameters):
    if seed == 2:
        raise ZeroDivisionError("seed two")
    return compute(seed, parameters)


def compute_wide(seed, parameters):
    """A row of several kilobytes."""
    return {**compute(seed, parameters), "many": list(range(1000))}


def compute_once_deadly(seed, parameters):
    """Kills its own worker the first time that it meets seed 3."""
    if seed == 3 and parameters["n"] == 5:
        mark = Path(os.environ["SOUBAYES_TEST_MARK"])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return compute(seed, parameters)


def report(rows):
    return [View("means", "", ["n", "mean"], [["5", cell(select(rows, n=5), "mean")]])]


def experiment(row=compute):
    minutes = {"toy": 0.01, "quick": 0.1, "full": 0.2}
    return Experiment("small", "nothing", "nowhere", grid, row, report, minutes)


def run_into(folder, size):
    run(experiment(), size, Store(folder))
