"""small: why not train a small network? The same sizes from scratch, cut, and along the dial."""

import copy
import warnings
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from paper.digits import load_digits_data
from paper.mnist import MNIST
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, Picture, View, cell, line_style, new_figure, select

CONFIDENCES = [0.1, 0.3, 1.0]
DENSE = (200, 200)
WIDER = 1.7
BATCH = 200  # of the ordinary networks: scikit-learn's default
PEER_PATIENCE = 1_000  # steps without a better score
AGAIN = 2_000  # steps after a network was cut
METHODS = {
    "sou": "soubayes at this confidence",
    "scratch": "the same size from scratch",
    "wider": "1.7 times the size from scratch",
    "units": "200–200, units cut by norm, trained again",
    "weights": "200–200, as many weights kept by size, trained again",
    "dense": "200–200, nothing cut",
}
_COLOURS = {
    "scratch": "#D55E00",
    "wider": "#E69F00",
    "units": "#009E73",
    "weights": "#CC79A7",
    "dense": "0.4",
}


def grid(size: str) -> list[Task]:
    """Three seeds of 10,000 images of MNIST and of the 8 x 8 digits; fewer in the smaller runs."""
    if size == "toy":
        return [Task(0, {"data": "digits", "confidences": [1.0], "epochs": 2})]
    digits = {"data": "digits", "confidences": CONFIDENCES}
    if size == "quick":
        return [Task(0, digits)]
    images = {"data": "mnist", "train": 10_000, "confidences": CONFIDENCES}
    return [Task(seed, kind) for kind in (digits, images) for seed in range(3)]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One path of confidences, and the networks that its sizes are compared with."""
    from soubayes import SoUNetClassifier

    data = _data(parameters, seed)
    scale = data.X_train.max()
    X, X_new = data.X_train / scale, data.X_test / scale
    net = SoUNetClassifier(
        DENSE,
        confidence_weights=tuple(parameters["confidences"]),
        epochs=parameters.get("epochs"),
        skip=False,
        validation_fraction=0.1,
        random_state=seed,
    ).fit(X, data.y_train)
    few = parameters.get("epochs")
    dense = _trained(X, data.y_train, DENSE, seed, few)
    found: dict[str, Any] = {"confidence": list(parameters["confidences"]), "sizes": []}
    for confidence in parameters["confidences"]:
        here = net.at(confidence)
        sizes = here.architecture_.final[1:-1]
        found["sizes"].append("–".join(map(str, sizes)))
        wider = tuple(max(1, round(WIDER * count)) for count in sizes)
        models = {
            "sou": here,
            "scratch": _trained(X, data.y_train, sizes, seed, few),
            "wider": _trained(X, data.y_train, wider, seed, few),
            "units": _units_cut(dense, sizes, X, data.y_train, seed, few),
            "weights": _weights_cut(dense, here.architecture_.parameters[1], X, data.y_train, few),
            "dense": dense,
        }
        for name, model in models.items():
            p = model.predict_proba(X_new)
            truth = p[np.arange(len(p)), np.searchsorted(model.classes_, data.y_test)]
            right = model.classes_[p.argmax(axis=1)] == data.y_test
            found.setdefault(f"accuracy_{name}", []).append(float(right.mean()))
            loss = float(-np.log(np.maximum(truth, 1e-12)).mean())
            found.setdefault(f"log_loss_{name}", []).append(loss)
    return found


def _data(parameters: Mapping[str, Any], seed: int) -> MNIST:
    """Images of MNIST that the seed draws, or a split of the 8 x 8 digits that it makes."""
    if parameters["data"] == "mnist":
        return load_digits_data("mnist", parameters.get("train"), seed)
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
    return MNIST(parts[0], parts[2], parts[1], parts[3])


def _epochs(steps: int, n: int) -> int:
    """As many epochs as make so many steps, at least 20: small tables have few in an epoch."""
    return max(20, ceil(steps * BATCH / n))


def _trained(X: Any, y: Any, sizes: tuple[int, ...], seed: int, epochs: int | None) -> Any:
    """An ordinary network with early stopping."""
    net = MLPClassifier(
        sizes, early_stopping=epochs is None, n_iter_no_change=_epochs(PEER_PATIENCE, len(X)),
        max_iter=epochs or 2_000, batch_size=BATCH, random_state=seed,
    )  # fmt: skip
    return _quietly(net, X, y)


def _quietly(net: Any, X: Any, y: Any) -> Any:
    """Fit; that a given number of epochs was reached is not reported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return net.fit(X, y)


def _units_cut(
    dense: Any, sizes: tuple[int, ...], X: Any, y: Any, seed: int, epochs: int | None
) -> Any:
    """The units of the largest incoming times outgoing norms, trained again from their weights."""
    kept = [np.arange(X.shape[1])]
    for layer, count in enumerate(sizes):
        into, out = dense.coefs_[layer], dense.coefs_[layer + 1]
        size = np.linalg.norm(into, axis=0) * np.linalg.norm(out, axis=1)
        kept.append(np.sort(np.argsort(size)[::-1][:count]))
    kept.append(np.arange(dense.coefs_[-1].shape[1]))
    small = MLPClassifier(sizes, max_iter=1, batch_size=BATCH, random_state=seed, warm_start=True)
    _quietly(small, X, y)  # makes the arrays that are filled next
    pairs = pairwise(kept)
    small.coefs_ = [w[np.ix_(*pair)] for w, pair in zip(dense.coefs_, pairs, strict=True)]
    small.intercepts_ = [b[k] for b, k in zip(dense.intercepts_, kept[1:], strict=True)]
    small.set_params(max_iter=epochs or _epochs(AGAIN, len(X)))
    return _quietly(small, X, y)


def _weights_cut(dense: Any, count: int, X: Any, y: Any, epochs: int | None) -> Any:
    """The largest weights of a network, trained again; the others stay 0."""
    cut = copy.deepcopy(dense).set_params(early_stopping=False)
    cut.best_loss_ = np.inf  # which early stopping leaves out and partial_fit asks for
    sizes = np.concatenate([np.abs(w).ravel() for w in cut.coefs_])
    least = np.sort(sizes)[::-1][min(count, len(sizes)) - 1]
    kept = [np.abs(w) >= least for w in cut.coefs_]
    for _ in range(epochs or _epochs(AGAIN, len(X))):
        for weight, mask in zip(cut.coefs_, kept, strict=True):
            weight *= mask
        cut.partial_fit(X, y)
    for weight, mask in zip(cut.coefs_, kept, strict=True):
        weight *= mask
    return cut


def report(rows: list[Row]) -> Content:
    """Accuracy and log loss by confidence, a table for each data set."""
    views: Content = []
    for data in dict.fromkeys(row.parameters["data"] for row in rows):
        here = select(rows, data=data)
        by = _by_confidence(here)
        for metric, better in (("accuracy", "higher"), ("log_loss", "lower")):
            body: list[list[str | Cell]] = []
            for confidence in here[0].result["confidence"]:
                at = select(by, confidence=confidence)
                sizes = ", ".join(row.result["sizes"] for row in at)
                cells = [cell(at, f"{metric}_{name}", digits=3) for name in METHODS]
                body.append([f"{confidence:g}: {sizes}", *cells])
            title = f"{data}: {metric.replace('_', ' ')} on test rows"
            note = f"Mean over seeds; {better} is better. Sizes are those of every seed."
            views.append(View(title, note, ["confidence: units", *METHODS.values()], body))
        note = "Log loss on test rows by the confidence whose size the networks have."
        name = f"small_{data}"
        views.append(Picture(name, f"{data}: log loss by size", note, partial(draw, by)))
    return views


def _by_confidence(rows: list[Row]) -> list[Row]:
    return [
        row._replace(
            parameters={**row.parameters, "confidence": confidence},
            result={name: values[i] for name, values in row.result.items()},
        )
        for row in rows
        for i, confidence in enumerate(row.result["confidence"])
    ]


def draw(rows: list[Row]) -> Any:
    """A line for each method."""
    figure = new_figure(9, 3.6)
    axis = figure.subplots()
    confidences = list(dict.fromkeys(row.parameters["confidence"] for row in rows))
    for name, label in METHODS.items():
        losses = [
            np.mean([r.result[f"log_loss_{name}"] for r in select(rows, confidence=c)])
            for c in confidences
        ]
        style = line_style("sou") if name == "sou" else {"lw": 1.2, "color": _COLOURS[name]}
        axis.plot(confidences, losses, marker="o", **{**style, "label": label})
    axis.set_xscale("log")
    axis.set_xticks(confidences, [f"{value:g}" for value in confidences])
    axis.minorticks_off()
    axis.set(xlabel="confidence in the weights", ylabel="log loss on test rows")
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


EXPERIMENTS = [
    Experiment(
        name="small",
        shows="a network that prunes itself beside small ones trained from scratch or cut",
        where="beyond the paper",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.1, "quick": 1.0, "full": 15.0},
    )
]
