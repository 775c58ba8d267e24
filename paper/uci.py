"""uci: four regression tables with the published splits, beside what others report on them."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, Picture, View, cell, new_figure, select

TABLES = ["boston", "concrete", "energy", "yacht"]
SPLITS = 20
# RMSE and log likelihood on the same splits. Dropout: Mukhoti et al. (2018), grid-searched; PBP:
# Hernández-Lobato and Adams (2015); deep ensembles: Lakshminarayanan et al. (2017).
PUBLISHED = {
    "dropout": {
        "boston": (2.90, -2.40),
        "concrete": (4.82, -2.93),
        "energy": (0.54, -1.21),
        "yacht": (0.67, -1.25),
    },
    "PBP": {
        "boston": (3.01, -2.57),
        "concrete": (5.67, -3.16),
        "energy": (1.80, -2.04),
        "yacht": (1.02, -1.63),
    },
    "deep ensembles": {
        "boston": (3.28, -2.41),
        "concrete": (6.03, -3.06),
        "energy": (2.09, -1.38),
        "yacht": (1.58, -1.18),
    },
}


def load_table(name: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """X, y and the rows of every test split of a table; "friedman" is simulated, for the tests.

    The files are ``uci/<name>.npz`` in the folder that the environment variable ``SOUBAYES_DATA``
    names, with arrays X, y and test_0 to test_19.

    >>> X, y, splits = load_table("friedman")
    >>> X.shape, len(splits)
    ((80, 5), 20)
    """
    if name == "friedman":
        from sklearn.datasets import make_friedman1

        X, y = make_friedman1(80, 5, noise=1.0, random_state=0)
        rng = np.random.default_rng(0)
        return X, y, [rng.permutation(80)[:8] for _ in range(SPLITS)]
    folder = os.environ.get("SOUBAYES_DATA")
    path = Path(folder or ".") / "uci" / f"{name}.npz"
    if folder is None or not path.exists():
        raise FileNotFoundError(
            f"the table {name!r} needs the file {path.name} in the folder uci of the folder that "
            f"the environment variable SOUBAYES_DATA names, which is {folder!r}."
        )
    with np.load(path) as data:
        return data["X"], data["y"], [data[f"test_{i}"] for i in range(SPLITS)]


def grid(size: str) -> list[Task]:
    """The seed is the number of the split."""
    if size == "toy":
        return [Task(0, {"table": "friedman", "epochs": 20})]
    splits = range(3) if size == "quick" else range(SPLITS)
    return [Task(split, {"table": name}) for split in splits for name in TABLES]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One split: error, log likelihood and coverage of 90 % intervals on its test rows."""
    from soubayes import SoUNetEnsemble, SoUNetRegressor

    X, y, splits = load_table(parameters["table"])
    test = splits[seed]
    train = np.setdiff1d(np.arange(len(y)), test)
    short = {"epochs": parameters["epochs"]} if "epochs" in parameters else None
    estimator = None if short is None else SoUNetRegressor((10,), **short)
    net = SoUNetEnsemble(estimator, random_state=seed).fit(X[train], y[train])
    low, high = net.predict_interval(X[test])
    path = net.path_
    return {
        "rmse": float(np.sqrt(np.mean((net.predict(X[test]) - y[test]) ** 2))),
        "log_likelihood": float(net.log_density(X[test], y[test]).mean()),
        "coverage": float(np.mean((low <= y[test]) & (y[test] <= high))),
        "units": float(path["weight"] @ path["units_1"]),
        "confidence": float(path["confidence"][np.argmax(path["weight"])]),
        "weights": path["weight"].to_numpy().round(4),
    }


def report(rows: list[Row]) -> Content:
    """RMSE and log likelihood beside the published rows, then coverage and sizes."""
    names = [name for name in [*TABLES, "friedman"] if select(rows, table=name)]
    if not names:
        return []
    views: Content = []
    for k, (metric, title, better) in enumerate(_METRICS):
        body: list[list[str | Cell]] = []
        for name in names:
            theirs = [_published(method, name, k) for method in PUBLISHED]
            ours = cell(select(rows, table=name), metric, paper=theirs[0], better=better, digits=2)
            body.append([name, ours, *(Cell(np.nan if v is None else v) for v in theirs)])
        note = f"Mean over the splits; better, equal or worse than dropout: {better} is better."
        views.append(View(title, note, ["table", "soubayes", *PUBLISHED], body))
    body = []
    for name in names:
        here = select(rows, table=name)
        cells = [cell(here, m, digits=d) for m, d in _OTHERS.items()]
        body.append([name, *cells])
    note = (
        "Share of test rows in the 90 % interval; units of a network out of 50, averaged with the "
        "weights of the confidences; the confidence of the largest weight."
    )
    columns = ["table", "coverage of 90 %", "units", "confidence"]
    views.append(View("Coverage and size", note, columns, body))
    note = "One point for each split; the line is the mean, the dashed line the published dropout."
    return [Picture("uci", "By split", note, partial(draw, rows, names)), *views]


_METRICS = [("rmse", "RMSE", "lower"), ("log_likelihood", "Log likelihood", "higher")]
_OTHERS = {"coverage": 3, "units": 1, "confidence": 2}


def _published(method: str, name: str, which: int) -> float | None:
    return PUBLISHED[method][name][which] if name in PUBLISHED[method] else None


def draw(rows: list[Row], names: list[str]) -> Any:
    """A column for each table: RMSE above, log likelihood below."""
    figure = new_figure(2.1 * len(names) + 0.8, 4.6)
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, name in enumerate(names):
        for k, (metric, title, _) in enumerate(_METRICS):
            axis = axes[k, column]
            values = np.array([row.result[metric] for row in select(rows, table=name)])
            jitter = np.linspace(-0.25, 0.25, len(values))
            axis.plot(jitter, values, "o", color="#0072B2", ms=3.5, alpha=0.7)
            axis.plot([-0.4, 0.4], [values.mean()] * 2, color="#0072B2", lw=2)
            theirs = _published("dropout", name, k)
            if theirs is not None:
                axis.axhline(theirs, color="#D55E00", ls="--", lw=1.2)
            axis.set(xticks=[], xlim=(-0.6, 0.6))
            if k == 0:
                axis.set_title(name)
            if column == 0:
                axis.set_ylabel(title)
    return figure


EXPERIMENTS = [
    Experiment(
        name="uci",
        shows="regression tables with the published splits, beside dropout and others",
        where="beyond the paper; the splits of Hernández-Lobato and Adams (2015)",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.2, "quick": 3.0, "full": 20.0},
    )
]
