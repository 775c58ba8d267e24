"""fig6 and table3: networks on MNIST, their training and their final size (section 4.4)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from paper.digits import load_digits_data
from paper.printed import printed_number
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.toy_networks import MODELS, epochs_of
from paper.views import (
    STYLE,
    Cell,
    Content,
    Picture,
    View,
    cell,
    line_style,
    new_figure,
    select,
)

_TOY: dict[str, Any] = {"data": "digits", "width": 8, "epochs": 3}
WIDTHS = [50, 100, 200, 400, 800, 1200, 1600]


def width_grid(size: str) -> list[Task]:
    """SoU-SGL by initial width; three seeds at 200, one elsewhere."""
    if size == "toy":
        return [Task(0, {**_TOY, "model": "sou"})]
    if size == "quick":
        return [
            Task(0, {"data": "mnist", "train": 10_000, "width": w, "model": "sou", "epochs": 40})
            for w in (50, 200)
        ]
    seeds = {200: 3}
    return [
        Task(seed, {"data": "mnist", "width": width, "model": "sou"})
        for width in WIDTHS
        for seed in range(seeds.get(width, 1))
    ]


def dynamics_grid(size: str) -> list[Task]:
    """The three models at width 200, scored on the test images every epoch."""
    shared = {
        "toy": _TOY,
        "quick": {"data": "mnist", "train": 10_000, "width": 200, "epochs": 40},
        "full": {"data": "mnist", "width": 200},
    }[size]
    return [Task(0, {**shared, "model": m}) for m in (MODELS if size != "toy" else ["sou"])]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One training: accuracy on the test images, units left, and the course of both."""
    from soubayes import SoUNetClassifier

    data = load_digits_data(parameters["data"], parameters.get("train"), seed)
    net = SoUNetClassifier(
        hidden=(parameters["width"],) * 2,
        epochs=parameters.get("epochs") or epochs_of(len(data.y_train)),
        random_state=seed,
        **MODELS[parameters["model"]],
    ).fit(data.X_train, data.y_train, X_val=data.X_test, y_val=data.y_test)
    sparsity = net.weight_sparsity(1e-5)
    history = net.history_
    shown = [n for n in history if n.startswith(("epoch", "active", "sparsity"))]
    shown.append("validation_accuracy")
    return {
        "accuracy": float(np.mean(net.predict(data.X_test, mode="mean") == data.y_test)),
        "accuracy_draws": float(np.mean(net.predict(data.X_test, mode="draws") == data.y_test)),
        **{f"active_{i + 1}": int(net.active_units_[i]) for i in range(2)},
        **{f"sparsity_{i + 1}": float(sparsity[i]) for i in range(2)},
        "epochs_done": int(net.n_iter_),
        "history": {name: history[name].to_numpy().round(5) for name in shown},
    }


def report_widths(rows: list[Row]) -> Content:
    """table3: one row for each initial width."""
    body: list[list[str | Cell]] = []
    for width, train in sorted({(r.parameters["width"], _images(r)) for r in rows}):
        here = [r for r in select(rows, width=width) if _images(r) == train]
        name = f"width {width}" + (f", {train} images" if train != 60_000 else "")
        cells = []
        for metric in ("active_1", "active_2", "accuracy", "accuracy_draws"):
            digits = 3 if metric.startswith("accuracy") else 0
            printed = printed_number("table3", {"width": width}, "sou", metric)
            better = "higher" if metric == "accuracy" else ""
            cells.append(cell(here, metric, paper=printed, better=better, digits=digits))
        body.append([name, *cells])
    note = (
        "A unit is active when E[tau nu] is at least 1e-3. The verdict on accuracy is for mean "
        "weights; the last column averages 100 posterior draws."
    )
    columns = ["initial width", "layer 1 active", "layer 2 active", "accuracy", "accuracy, draws"]
    return [View("SoU-SGL on MNIST by initial width", note, columns, body)] if body else []


def report_dynamics(rows: list[Row]) -> Content:
    """fig6, and where the three models end."""
    rows = select(rows)
    if not rows:
        return []
    most = max(map(_images, rows))
    rows = [row for row in rows if _images(row) == most]
    names = ("accuracy", "accuracy_draws", "sparsity_1", "sparsity_2", "active_1", "active_2")
    body: list[list[str | Cell]] = [
        [
            STYLE[model]["label"],
            *(cell(select(rows, model=model), m, digits=0 if "active" in m else 3) for m in names),
        ]
        for model in MODELS
    ]
    note = (
        "Accuracy of mean weights on the test images (no setting was chosen on them), and the "
        "share of effective weights below 1e-5, by epoch."
    )
    columns = ["model", "test accuracy", "by draws", "sparsity 1", "sparsity 2"]
    columns += ["active units 1", "active units 2"]
    return [
        Picture("fig6", "Training on MNIST", note, partial(draw_dynamics, rows)),
        View("At the end of training", f"{most} training images.", columns, body),
    ]


def _images(row: Row) -> int:
    parameters = row.parameters
    return parameters.get("train") or (60_000 if parameters["data"] == "mnist" else 1500)


def draw_dynamics(rows: list[Row]) -> Any:
    """Accuracy on top, the two layers' sparsity below."""
    figure = new_figure(7, 5.4)
    panels = figure.subplot_mosaic([["validation_accuracy"] * 2, ["sparsity_1", "sparsity_2"]])
    for name, axis in panels.items():
        for model in MODELS:
            for row in select(rows, model=model)[:1]:
                history = row.result["history"]
                axis.plot(history["epoch"], history[name], **line_style(model))
        axis.set_xlabel("epoch")
    panels["validation_accuracy"].set_ylabel("test accuracy")
    panels["validation_accuracy"].legend(frameon=False)
    for layer in (1, 2):
        panels[f"sparsity_{layer}"].set(title=f"layer {layer}", ylim=(-0.03, 1.03))
    panels["sparsity_1"].set_ylabel("share of |E[w]| below 1e-5")
    return figure


EXPERIMENTS = [
    Experiment(
        name="fig6",
        shows="accuracy and sparsity of three networks while they learn MNIST",
        where="section 4.4, fig:accuracy_sparsity_training_dynamics",
        grid=dynamics_grid,
        row=compute,
        report=report_dynamics,
        minutes={"toy": 0.5, "quick": 3.0, "full": 8.0},
    ),
    Experiment(
        name="table3",
        shows="units that are left, by the width that a network started with",
        where="section 4.4, tab:mnist_table_b",
        grid=width_grid,
        row=compute,
        report=report_widths,
        minutes={"toy": 0.2, "quick": 2.0, "full": 25.0},
    ),
]
