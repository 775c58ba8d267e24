"""frontier: LeNet-300-100 on MNIST with inputs pruned, one path of confidences a seed."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paper.digits import load_digits_data
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import (
    Cell,
    Content,
    Picture,
    View,
    cell,
    line_style,
    new_figure,
    select,
)


class Published(NamedTuple):
    """A point of the literature: method, sizes, test error in percent, multiply–adds."""

    method: str
    sizes: str
    error: float
    multiply_adds: int


# Sparse VD: Molchanov et al. (2017); BC: Louizos et al. (2017); L0: Louizos et al. (2018).
# Sizes are inputs–hidden–hidden; multiply–adds follow from them, biases included.
PUBLISHED = [
    Published("Sparse VD", "512–114–72", 1.8, 67_492),
    Published("BC-GNJ", "278–98–13", 1.8, 28_769),
    Published("BC-GHS", "311–86–14", 1.8, 28_200),
    Published("L0", "219–214–100", 1.4, 69_590),
    Published("L0-sep", "266–88–33", 1.8, 26_773),
]
SETTINGS = {"epochs": 100, "confidences": [0.05, 0.1, 0.2, 0.35]}
AVERAGED = {**SETTINGS, "networks": 3}  # networks of different seeds err in different places


def grid(size: str) -> list[Task]:
    """One path a seed, then several averaged; the quick one has 10,000 images, fewer epochs."""
    if size == "toy":
        toy = {"data": "digits", "epochs": 2, "confidences": [0.2, 1.0]}
        return [Task(0, toy), Task(0, {**toy, "networks": 2})]
    if size == "quick":
        return [Task(0, {"data": "mnist", "train": 10_000, **SETTINGS, "epochs": 40})]
    kinds = [SETTINGS, AVERAGED]
    return [Task(seed, {"data": "mnist", **kind}) for kind in kinds for seed in range(3)]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One path, or several averaged: sizes and test errors of the networks."""
    from soubayes import SoUNetClassifier

    data = load_digits_data(parameters["data"], parameters.get("train"), seed)
    side = round(data.X_train.shape[1] ** 0.5)
    count = parameters.get("networks", 1)
    nets = [
        SoUNetClassifier(
            hidden=(300, 100) if parameters["data"] == "mnist" else (12, 8),
            confidence_weights=tuple(parameters["confidences"]),
            learning_rate=0.002,
            skip=False,
            epochs=parameters["epochs"],
            input_shape=(side, side, 1),
            prune_inputs=True,
            random_state=own_seed,
            checkpoint=checkpoint("frontier", own_seed, parameters),
        ).fit(data.X_train, data.y_train)
        for own_seed in range(count * seed, count * (seed + 1))
    ]
    return {**scores(nets, data), "pixels": nets[0].get_support().astype(int), "side": side}


def scores(nets: Sequence[Any], data: Any) -> dict[str, Any]:
    """Lists with an entry a confidence: errors in percent, log loss, sizes and costs.

    Several networks are averaged; their costs are added up, the sizes are those of the first.
    """
    found: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for confidence in nets[0].path_["confidence"].tolist():
        there = [net.at(confidence) for net in nets]
        classes = there[0].classes_
        p, p_mean = (
            np.mean([net.predict_proba(data.X_test, mode=mode) for net in there], axis=0)
            for mode in ("draws", "mean")
        )
        truth = p[np.arange(len(p)), np.searchsorted(classes, data.y_test)]
        wrong = classes[p.argmax(axis=1)] != data.y_test
        wrong_mean = classes[p_mean.argmax(axis=1)] != data.y_test
        values = [
            confidence,
            float(100 * wrong.mean()),
            float(100 * wrong_mean.mean()),
            float(-np.log(np.maximum(truth, 1e-12)).mean()),
            "–".join(map(str, there[0].architecture_.final[:-1])),
            sum(net.architecture_.multiply_adds[1] for net in there),
            sum(net.architecture_.parameters[1] for net in there),
        ]
        for name, value in zip(_COLUMNS, values, strict=True):
            found[name].append(value)
    return found


_COLUMNS = ["confidence", "error", "error_mean", "log_loss", "sizes", "multiply_adds", "parameters"]


def checkpoint(experiment: str, seed: int, parameters: Mapping[str, Any]) -> Path | None:
    """Where a long training leaves its state: under the folder that SOUBAYES_CHECKPOINTS names."""
    folder = os.environ.get("SOUBAYES_CHECKPOINTS")
    if not folder or parameters["data"] != "mnist":
        return None
    one = {name: value for name, value in parameters.items() if name != "networks"}
    digest = hashlib.sha256(json.dumps(one, sort_keys=True).encode()).hexdigest()
    return Path(folder) / f"{experiment}-{seed}-{digest[:8]}"


def by_confidence(rows: list[Row]) -> list[Row]:
    """A row for every network of every path."""
    return [
        row._replace(
            parameters={**row.parameters, "confidence": confidence},
            result={name: row.result[name][i] for name in _COLUMNS},
        )
        for row in select(rows)
        for i, confidence in enumerate(row.result["confidence"])
    ]


def report(rows: list[Row]) -> Content:
    """The frontier as a figure and a table, and the pixels that are read."""
    rows = largest(rows)
    if not rows:
        return []
    note = (
        "Test error by 100 posterior draws against multiply–adds of one image. One line for each "
        "seed, one point for each confidence, in the order of the path. Multiply–adds of averaged "
        "networks are added up. Settings follow from trainings that were scored on held-out "
        "training images."
    )
    pixels = "Pixels that the last network of the path reads, first seed."
    return [
        Picture("frontier", "Error against size", note, partial(draw, rows, PUBLISHED)),
        table(rows, PUBLISHED, "inputs–hidden–hidden"),
        Picture("frontier_pixels", "Pixels that are read", pixels, partial(draw_pixels, rows[0])),
    ]


def largest(rows: list[Row]) -> list[Row]:
    """The rows of the largest training set and of these the ones with the most epochs, in order."""
    rows = sorted(select(rows), key=lambda row: row.parameters.get("networks", 1))
    images = {"digits": 0, "mnist": 60_000}

    def size(row: Row) -> tuple[int, int]:
        given = row.parameters
        return given.get("train") or images[given["data"]], int(np.sum(given["epochs"]))

    most = max(map(size, rows), default=None)
    return [row for row in rows if size(row) == most]


def table(rows: list[Row], published: list[Published], sizes: str) -> View:
    """Ours by confidence, and the published points below."""
    networks = by_confidence(rows)
    body: list[list[str | Cell]] = []
    kinds = dict.fromkeys(
        (row.parameters.get("networks"), row.parameters["confidence"]) for row in networks
    )
    for count, confidence in kinds:
        here = select(networks, networks=count, confidence=confidence)
        name = f"confidence {confidence:g}" + (f", {count} networks averaged" if count else "")
        shown = ", ".join(row.result["sizes"] for row in here)
        cells = [cell(here, m, digits=d) for m, d in _SHOWN.items()]
        body.append([name, shown, *cells])
    for point in published:
        missing = Cell(float("nan"))
        cells = [Cell(point.error, digits=1), missing, missing]
        body.append([point.method, point.sizes, *cells, Cell(point.multiply_adds, digits=0)])
    columns = ["network", sizes, "error (%)", "error, mean weights (%)", "log loss"]
    note = "Multiply–adds of one image, biases included. Published points from their papers."
    return View("Networks of the path", note, [*columns, "multiply–adds"], body)


_SHOWN = {"error": 2, "error_mean": 2, "log_loss": 3, "multiply_adds": 0}


def draw(rows: list[Row], published: list[Published]) -> Any:
    """Ours as lines, the literature as points with names."""
    figure = new_figure(7, 4.5)
    axis = figure.subplots()
    for count in dict.fromkeys(row.parameters.get("networks") for row in rows):
        kind = select(rows, networks=count)
        style = line_style("gl" if count else "sou")
        style["label"] = f"soubayes, {count} networks averaged" if count else "soubayes"
        for row in kind:
            axis.plot(row.result["multiply_adds"], row.result["error"], marker="o", **style)
            style["label"] = None
        first = kind[0].result
        points = zip(first["multiply_adds"], first["error"], first["confidence"], strict=True)
        for x, y, confidence in points:
            axis.annotate(f"{confidence:g}", (x, y), xytext=(5, 6), textcoords="offset points")
    levels = [(4, 6), (4, -13), (4, 18)]  # names of neighbouring points at different heights
    for i, point in enumerate(sorted(published, key=lambda point: point.multiply_adds)):
        axis.plot(point.multiply_adds, point.error, "s", color="#D55E00")
        place = (point.multiply_adds, point.error)
        shift = {"xytext": levels[i % 3], "textcoords": "offset points"}
        axis.annotate(point.method, place, color="#D55E00", size=8, **shift)
    axis.margins(0.15, 0.15)
    axis.set_xscale("log")
    axis.set(xlabel="multiply–adds of one image", ylabel="test error (%)")
    axis.legend(frameon=False)
    return figure


def draw_pixels(row: Row) -> Any:
    """White: read; black: not."""
    figure = new_figure(3.4, 3.4)
    axis = figure.subplots()
    side = row.result["side"]
    axis.imshow(np.reshape(row.result["pixels"], (side, side)), cmap="gray", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[], title=f"{int(np.sum(row.result['pixels']))} of {side * side}")
    return figure


EXPERIMENTS = [
    Experiment(
        name="frontier",
        shows="error against size of LeNet-300-100, one path of confidences",
        where="beyond the paper; the task of Louizos et al. (2017, 2018)",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.3, "quick": 2.0, "full": 50.0},
    )
]
