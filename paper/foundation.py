"""fig1 and figtree: what a confidence does, in closed form and on an event tree (sections 2, 3)."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, Picture, View, select

OBSERVED = (1.6, 2.3, 1.9, 2.7, 1.5)
NOISE_SD = 1.5
PRIOR_SDS = (0.25, 0.5, 1.0)
CONFIDENCES = (5.0, 1.0, 0.1)


def figure_grid(size: str) -> list[Task]:
    """Panel (a): prior scales at confidence 1. Panel (b): confidences at prior scale 1."""
    narrow = [{"prior_sd": sd, "confidence": 1.0} for sd in PRIOR_SDS]
    doubted = [{"prior_sd": 1.0, "confidence": gamma} for gamma in CONFIDENCES]
    return [Task(0, case) for case in narrow + [case for case in doubted if case not in narrow]]


def compute_update(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The SoU posterior of a normal mean with a normal prior (supplement C.3)."""
    from soubayes import conjugate_update

    update = conjugate_update(
        "normal",
        OBSERVED,
        mean=0.0,
        sd=parameters["prior_sd"],
        noise_sd=NOISE_SD,
        confidence=parameters["confidence"],
    )
    return {"mean": float(update.posterior.mean()), "sd": float(update.posterior.std())}


def report_figure(rows: list[Row]) -> Content:
    """fig1 and the posterior behind each of its curves."""
    order = [task.parameters for task in figure_grid("full")]
    body: list[list[str | Cell]] = []
    for case in order:
        for row in select(rows, **case):
            name = f"prior sd {case['prior_sd']:g}, confidence {case['confidence']:g}"
            values = [Cell(row.result[k], digits=3, data_sets=1) for k in ("mean", "sd")]
            body.append([name, *values])
    note = (
        f"Five observations with mean {np.mean(OBSERVED):g}, prior mean 0 (the paper prints no "
        "numbers for this figure). (a) Prior (dashed) and posterior (solid) across prior scales. "
        "(b) The prior fixed, and the SoU posterior as its confidence varies."
    )
    title = "Prior informativeness against confidence"
    return [
        Picture("fig1", title, note, _draw_figure),
        View("Posterior mean and standard deviation", "", ["curve", "mean", "sd"], body),
    ]


def _draw_figure() -> Any:
    from soubayes import plot_prior_vs_confidence

    return plot_prior_vs_confidence(
        OBSERVED,
        noise_sd=NOISE_SD,
        prior_sd=1.0,
        prior_sds=PRIOR_SDS,
        confidences=CONFIDENCES,
    )


STAGES = ("first", "second", "third")
TREE_CASES: list[dict[str, float]] = [
    {"first": 1.0, "second": 1.0, "third": 1.0},
    {"first": 0.2, "second": 1.0, "third": 1.0},
    {"first": 1.0, "second": 0.2, "third": 1.0},
    {"first": 1.0, "second": 1.0, "third": 0.2},
    {"first": 100.0, "second": 100.0, "third": 100.0},
]


def tree_grid(size: str) -> list[Task]:
    """Equal confidences, each stage doubted in turn, and hardly any doubt."""
    return [Task(0, case) for case in TREE_CASES]


def _tree() -> tuple[Any, dict[Any, float]]:
    """The eight states of fig:tree with equal weights, and an act that pays for going up."""
    from soubayes import EventTree

    paths = list(product(("up", "down"), repeat=3))
    utility = {path: 4.0 * (path[0] == "up") + 2.0 * (path[1] == "up") for path in paths}
    utility = {path: value + (path[2] == "up") for path, value in utility.items()}
    return EventTree(dict.fromkeys(paths, 1.0 / 8), stages=STAGES), utility


def compute_tree(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """V(f), and the probability of going up at each stage in the worst case."""
    tree, utility = _tree()
    return {"value": float(tree.value(utility, dict(parameters)))}


def report_tree(rows: list[Row]) -> Content:
    """figtree with numbers on it, and V(f) by confidence."""
    body: list[list[str | Cell]] = []
    for case in TREE_CASES:
        for row in select(rows, **case):
            name = ", ".join(f"{stage} {gamma:g}" for stage, gamma in case.items())
            body.append([name, Cell(row.result["value"], digits=3, data_sets=1)])
    note = (
        "Eight equally likely states, utility 4, 2 and 1 for going up at the three stages, the "
        "first stage doubted (confidence 0.2). Nodes carry V; branches the reference probability "
        "and the one in the worst case."
    )
    return [
        Picture("figtree", "An event tree with a confidence for every stage", note, _draw_tree),
        View("The value of the act", "Expected utility is 3.5.", ["confidences", "V(f)"], body),
    ]


def _draw_tree() -> Any:
    from soubayes import plot_event_tree

    tree, utility = _tree()
    return plot_event_tree(tree, utility, TREE_CASES[1]).figure


EXPERIMENTS = [
    Experiment(
        name="figtree",
        shows="an event tree: the value of an act by the confidence of every stage",
        where="section 2, fig:tree",
        grid=tree_grid,
        row=compute_tree,
        report=report_tree,
        minutes=dict.fromkeys(("toy", "quick", "full"), 0.01),
    ),
    Experiment(
        name="fig1",
        shows="prior informativeness against confidence in the normal-normal model",
        where="section 3, fig:oneParameter",
        grid=figure_grid,
        row=compute_update,
        report=report_figure,
        minutes=dict.fromkeys(("toy", "quick", "full"), 0.01),
    ),
]
