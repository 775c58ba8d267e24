"""table2 with fig4: logistic regression of digits, one against the rest (section 4.3)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from paper.digits import load_digits_data
from paper.l1 import fit_l1_cv
from paper.printed import BELOW, printed_number
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, Picture, View, new_figure, select

TITLES = {"lr": "LR", "lr_l1": "LR-L1", "gl": "GL", "sou": "SoU-SGL", "sou_auto": "SoU-SGL, auto"}
DIGITS = range(10)
LEAST_SCORE = -6.0  # the largest of ten scores lies above this; rows are half as long
# a row is a digit, so a run that stops loses a digit and not a method


def table_grid(size: str) -> list[Task]:
    """Methods by digit; `--quick` takes 10,000 images."""
    return [
        Task(0, {**images_of(size), "method": method, "digit": digit})
        for method in TITLES
        for digit in (DIGITS if size != "toy" or method == "sou" else [0])
    ]


def images_of(size: str) -> dict[str, Any]:
    """The parameters that name the data of a size."""
    if size == "toy":
        return {"data": "digits", "train": 400}
    return {"data": "mnist"} | ({"train": 10_000} if size == "quick" else {})


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One digit against the rest: its coefficients, and the score of every test image."""
    data = load_digits_data(parameters["data"], parameters.get("train"), seed)
    train, test = standardised(data.X_train, data.X_test)
    digit = parameters["digit"]
    settings: dict[str, Any] = {}
    if parameters["method"] == "path":
        on_local = parameters["path"] == "confidence"
        settings["confidence_local"] = parameters["value"] if on_local else 1.0
        settings["priors"] = {"rate_global": 10.0 if on_local else parameters["value"]}
    fit = METHODS[parameters["method"]]
    coef, score, extra = fit(train, (data.y_train == digit).astype(int), test, **settings)
    row = {"coef": _rounded(coef), "score": np.round(score, 3).clip(LEAST_SCORE), **extra}
    if digit == 0:
        row["labels"] = "".join(map(str, data.y_test))
    return row


def standardised(train: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels with mean 0 and standard deviation 1 on ``train``; constant ones stay at 0."""
    mean, scale = train.mean(axis=0, dtype=float), train.std(axis=0, dtype=float)
    scale[scale == 0] = 1.0
    scaled = [((x - mean) / scale).astype(np.float32) for x in (train, test)]
    return scaled[0], scaled[1]


def _rounded(coef: np.ndarray) -> list[float]:
    return [float(f"{value:.6g}") for value in coef]


def _lr(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple:
    model = LogisticRegression(C=np.inf, max_iter=100).fit(X, y)
    return model.coef_[0], model.decision_function(test), {"n_iter": int(model.n_iter_[0])}


def _lr_l1(X: np.ndarray, y: np.ndarray, test: np.ndarray) -> tuple:
    fit = fit_l1_cv(X, y)
    return fit.coef, fit.decision_function(test), {"C": fit.C}


def _sou(X: np.ndarray, y: np.ndarray, test: np.ndarray, **settings: Any) -> tuple:
    from soubayes import SoULogisticRegression

    model = SoULogisticRegression(bound="jaakkola", **settings).fit(X, y)  # as Algorithm 1
    chance = np.clip(model.predict_proba(test)[:, 1], 1e-12, 1 - 1e-12)
    extra = {"n_iter": int(np.max(model.n_iter_)), "converged": bool(np.all(model.converged_))}
    return np.ravel(model.coef_), np.log(chance) - np.log1p(-chance), extra


METHODS: dict[str, Callable[..., tuple]] = {
    "lr": _lr,
    "lr_l1": _lr_l1,
    "gl": partial(_sou, confidence_coef=1.0, confidence_local=1.0),
    "sou": partial(_sou, confidence_coef=1.0),
    "sou_auto": partial(_sou, choice="path"),
    "path": partial(_sou, confidence_coef=1.0),
}


def report_table(rows: list[Row]) -> Content:
    """table2 beside the paper; a method appears once all its digits are there."""
    body: list[list[str | Cell]] = []
    images = most_images(rows)
    for method, title in TITLES.items():
        found = all_digits(select(rows, method=method, **images))
        if found is None:
            continue
        cells = []
        for metric, value in {"accuracy": found[0], **shares_below(found[1])}.items():
            printed = printed_number("table2", {}, method, metric)
            digits = 3 if metric == "accuracy" else 2
            cells.append(Cell(value, data_sets=1, paper=printed, better="higher", digits=digits))
        body.append([title, *cells])
    columns = ["model", "accuracy", *(f"below {m.removeprefix('below_')}" for m in BELOW)]
    note = (
        "Test accuracy, and the share of the coefficients of standardised pixels below each "
        f"tolerance. Data: {described(images)}."
    )
    return [View("Accuracy and sparsity", note, columns, body)] if body else []


def report_maps(rows: list[Row]) -> Content:
    """fig4, from the rows of table2."""
    images = most_images(rows)
    kept = {m: select(rows, method=m, **images) for m in ("lr", "lr_l1", "gl", "sou")}
    kept = {m: found for m, found in kept.items() if found}
    if not kept:
        return []
    note = (
        "Coefficients of standardised pixels for the digits 0 to 9 on one scale (dark negative, "
        f"light positive). Data: {described(images)}."
    )
    return [Picture("fig4", "Coefficient maps", note, partial(draw_maps, kept))]


def draw_maps(kept: dict[str, list[Row]]) -> Any:
    """A row of maps for each method, a column for each digit."""
    figure = new_figure(8, 0.72 * len(kept) + 0.4)
    axes = figure.subplots(len(kept), 10, squeeze=False)
    limit = 0.5
    for line, (method, rows) in zip(axes, kept.items(), strict=True):
        found = {row.parameters["digit"]: np.array(row.result["coef"]) for row in rows}
        for digit, axis in enumerate(line):
            axis.set(xticks=[], yticks=[])
            if digit in found:
                side = int(np.sqrt(len(found[digit])))
                shown = axis.imshow(
                    found[digit].reshape(side, side), cmap="cividis", vmin=-limit, vmax=limit
                )
        line[0].set_ylabel(TITLES[method])
    for digit, axis in enumerate(axes[0]):
        axis.set_title(str(digit))
    figure.colorbar(shown, ax=axes, extend="both", shrink=0.8, label="coefficient")
    return figure


def all_digits(rows: list[Row]) -> tuple[float, np.ndarray] | None:
    """Accuracy of the largest score, and the coefficients (10, pixels); None if a digit lacks."""
    found = {row.parameters["digit"]: row.result for row in rows}
    if sorted(found) != list(DIGITS):
        return None
    labels = np.array(list(found[0]["labels"]), dtype=int)
    scores = np.array([found[digit]["score"] for digit in DIGITS])
    coef = np.array([found[digit]["coef"] for digit in DIGITS])
    return float(np.mean(scores.argmax(axis=0) == labels)), coef


def shares_below(coef: np.ndarray) -> dict[str, float]:
    return {name: float(np.mean(np.abs(coef) < float(name[6:]))) for name in BELOW}


def most_images(rows: list[Row]) -> dict[str, Any]:
    """The largest data set among the rows: all of MNIST, a part of it, or the small digits."""
    found = [{k: r.parameters.get(k) for k in ("data", "train")} for r in select(rows)]
    size = {"mnist": lambda train: train or 60_000, "digits": lambda train: train}
    return max(found, key=lambda d: size[d["data"]](d["train"]), default={"data": "", "train": 0})


def described(images: dict[str, Any]) -> str:
    if images["data"] == "digits":
        return f"scikit-learn's 8 × 8 digits, {images['train']} for training"
    return f"MNIST, {images['train'] or 60_000:,} images for training, 10,000 for the test"


EXPERIMENTS = [
    Experiment(
        name="table2",
        shows="MNIST by logistic regression: accuracy and sparsity of four models",
        where="section 4.3, tab:resultados_accuracy",
        grid=table_grid,
        row=compute,
        report=report_table,
        minutes={"toy": 0.2, "quick": 4.5, "full": 50.0},
    ),
    Experiment(
        name="fig4",
        shows="MNIST by logistic regression: maps of the coefficients (rows of table2)",
        where="section 4.3, fig:MnistCoefficients",
        grid=table_grid,
        row=compute,
        report=report_maps,
        minutes={"toy": 0.2, "quick": 4.5, "full": 50.0},
        rows_of="table2",
    ),
]
