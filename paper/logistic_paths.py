"""figS1: accuracy against sparsity along two paths from GL (supplement A.3)."""

from functools import partial
from typing import Any

import numpy as np

from paper.logistic import (
    DIGITS,
    all_digits,
    compute,
    described,
    images_of,
    most_images,
    shares_below,
)
from paper.printed import printed_number
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, Picture, View, new_figure, select

LOCAL_PATH = [1.0, 0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6]
RATE_PATH = [1e2, 1e3, 1e4, 1e5, 1e6, 1e7]


def path_grid(size: str) -> list[Task]:
    """From GL along both paths: less confidence in the local scales, or a tighter global prior."""
    step = 1 if size == "full" else 7 if size == "toy" else 3
    points = [("confidence", gamma) for gamma in LOCAL_PATH[::step]]
    points += [("prior", rate) for rate in RATE_PATH[::step]] if size != "toy" else []
    return [
        Task(0, {**images_of(size), "method": "path", "path": path, "value": value, "digit": digit})
        for path, value in points
        for digit in DIGITS
    ]


def report_paths(rows: list[Row]) -> Content:
    """figS1 and its points."""
    images = most_images(rows)
    paths = {"confidence": LOCAL_PATH, "prior": RATE_PATH}
    points: dict[str, list[tuple[float, float, float]]] = {}
    for path, values in paths.items():
        points[path] = []
        for value in values:
            found = all_digits(select(rows, path=path, value=value, **images))
            if found is not None:
                points[path].append((value, found[0], shares_below(found[1])["below_1e-3"]))
    if not points["confidence"]:
        return []
    names = {"confidence": "local confidence", "prior": "global rate"}
    body: list[list[str | Cell]] = [
        [f"{names[path]} {value:g}", *(Cell(x, data_sets=1, digits=3) for x in measured)]
        for path, found in points.items()
        for value, *measured in found
    ]
    note = (
        "From GL: lowering the confidence in the local scales, or tightening the prior of the "
        f"global scale. Sparsity: share of coefficients below 1e-3. Data: {described(images)}."
    )
    return [
        Picture("figS1", "Accuracy against sparsity", note, partial(draw_paths, points)),
        View("Points of the figure", _lost(points), ["point", "accuracy", "sparsity"], body),
    ]


def draw_paths(points: dict[str, list[tuple[float, float, float]]]) -> Any:
    """Two curves that start at GL."""
    figure = new_figure(6.5, 4)
    axis = figure.subplots()
    styles = {"confidence": ("#0072B2", "o-"), "prior": ("#D55E00", "s--")}
    labels = {
        "confidence": "lower local confidence (to SoU-SGL)",
        "prior": "tighter global prior",
    }
    start = points["confidence"][:1]
    for path, (color, marks) in styles.items():
        along = points[path] if path == "confidence" else start + points[path]
        if len(along) > 1:
            _, accuracy, sparsity = zip(*along, strict=True)
            axis.plot(100 * np.array(sparsity), accuracy, marks, color=color, label=labels[path])
    axis.plot(100 * start[0][2], start[0][1], "D", color="black", ms=8, label="GL", zorder=4)
    axis.set(xlabel="coefficients below 1e-3 (%)", ylabel="test accuracy")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure


def _lost(points: dict[str, list[tuple[float, float, float]]]) -> str:
    """What the tighter prior costs at the sparsity of SoU-SGL, by interpolation."""
    prior = sorted((sparsity, accuracy) for _, accuracy, sparsity in points["prior"])
    gamma, accuracy, sparsity = points["confidence"][-1]
    if gamma > 1e-5 or not prior or prior[-1][0] < sparsity:
        return ""
    shares, accuracies = zip(*prior, strict=True)
    there = float(np.interp(sparsity, shares, accuracies))
    printed = printed_number("figS1", {}, "prior", "accuracy_lost")
    return (
        f"At SoU-SGL's sparsity of {sparsity:.3f} the tighter prior has lost "
        f"{100 * (accuracy - there):.1f} points of accuracy (paper: {100 * (printed or 0):.1f})."
    )


EXPERIMENTS = [
    Experiment(
        name="figS1",
        shows="accuracy against sparsity: less confidence, or a tighter prior",
        where="supplement A.3, fig:acc_sparsity",
        grid=path_grid,
        row=compute,
        report=report_paths,
        minutes={"toy": 0.2, "quick": 4.0, "full": 40.0},
    ),
]
