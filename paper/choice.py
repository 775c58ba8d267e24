"""`choice`, beyond the paper: confidences chosen by prediction, from sparse to dense data."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import BayesianRidge, LassoCV, LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, Picture, View, cell, new_figure, select
from soubayes import datasets

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # training rows, new rows


def _split(X: np.ndarray, y: np.ndarray, seed: int) -> Data:
    """A fifth of the rows are new."""
    train, test = next(KFold(5, shuffle=True, random_state=seed).split(X))
    return X[train], y[train], X[test], y[test]


def _products(seed: int) -> Data:
    X, y = load_diabetes(return_X_y=True)
    return _split(PolynomialFeatures(2, include_bias=False).fit_transform(X), y, seed)


def _cancer(seed: int) -> Data:
    X, y = load_breast_cancer(return_X_y=True)
    return _split(X, y, seed)


def _digits(seed: int) -> Data:
    X, y = load_digits(return_X_y=True)
    keep = (y == 3) | (y == 8)
    return _split(X[keep], (y[keep] == 8).astype(int), seed)


def _simulated(kind: str, binary: bool, seed: int) -> Data:
    """100 rows and 200 columns: few signals, few strong and many weak ones, or common factors."""
    rng = np.random.default_rng([15, seed])
    n, p = 2100, 200
    X, coef = rng.standard_normal((n, p)), np.zeros(p)
    if kind == "factors":
        X += rng.standard_normal((n, 10)) @ rng.standard_normal((10, p)) * 0.5
        coef = 0.12 * rng.standard_normal(p)
    else:
        coef[:5] = (3.0, -3.0, 2.0, -2.0, 1.5)
        coef += 0.05 * rng.standard_normal(p) * (kind == "strong and weak")
    eta = X @ coef
    y = eta + rng.standard_normal(n)
    if binary:
        y = (eta + rng.logistic(size=n) > 0).astype(int)
    return X[:100], y[:100], X[100:], y[100:]


def _paper(seed: int) -> Data:
    data = datasets.experiment1(105, 100, 10, random_state=seed)
    rng = np.random.default_rng([16, seed])
    new = rng.standard_normal((2000, 100))
    return data.X, data.y, new, new @ data.coef + rng.standard_normal(2000)


DATA: dict[str, tuple[bool, Callable[[int], Data]]] = {
    "Experiment 1: 105, 100, 10": (False, _paper),
    "few signals": (False, partial(_simulated, "few", False)),
    "strong and weak": (False, partial(_simulated, "strong and weak", False)),
    "factors": (False, partial(_simulated, "factors", False)),
    "diabetes with products": (False, _products),
    "few signals, two classes": (True, partial(_simulated, "few", True)),
    "factors, two classes": (True, partial(_simulated, "factors", True)),
    "breast cancer": (True, _cancer),
    "digits 3 and 8": (True, _digits),
}


def _ours(binary: bool, choice: str) -> Any:
    import soubayes

    name = "SoULogisticRegression" if binary else "SoULinearRegression"
    return getattr(soubayes, name)(choice=choice)


def _grid(**settings: Any) -> Any:
    grid = {"C": np.logspace(-4, 2, 13)}
    return GridSearchCV(LogisticRegression(**settings), grid, scoring="neg_log_loss")


METHODS: dict[bool, dict[str, tuple[str, Callable[[], Any]]]] = {
    False: {
        "chosen": ("chosen by prediction", partial(_ours, False, "prediction")),
        "path": ("path", partial(_ours, False, "path")),
        "lasso": ("LassoCV", LassoCV),
        "ridge": ("RidgeCV", partial(RidgeCV, alphas=np.logspace(-3, 6, 37))),
        "bayes": ("BayesianRidge", BayesianRidge),
    },
    True: {
        "chosen": ("chosen by prediction", partial(_ours, True, "prediction")),
        "path": ("path", partial(_ours, True, "path")),
        "l1": (
            "L1, cross-validated",
            partial(_grid, l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0),
        ),
        "l2": ("L2, cross-validated", partial(_grid, max_iter=2000)),
    },
}


def grid(size: str) -> list[Task]:
    """Every method on every data set; the toy size is one small fit."""
    seeds = {"toy": 1, "quick": 2, "full": 10}[size]
    return [
        Task(1000 + seed, {"data": name, "method": method})
        for seed in range(seeds)
        for name, (binary, _) in DATA.items()
        for method in METHODS[binary]
        if size != "toy" or (name == "few signals" and method in ("chosen", "lasso"))
    ]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Error on new rows, coverage of 90 % intervals, and the candidates of a choice."""
    binary, load = DATA[parameters["data"]]
    X, y, new, truth = load(seed)
    model = make_pipeline(StandardScaler(), METHODS[binary][parameters["method"]][1]())
    model.fit(X, y)
    row: dict[str, Any] = {}
    if binary:
        chance = np.clip(model.predict_proba(new)[:, 1], 1e-12, 1 - 1e-12)
        row["error"] = float(-np.mean(np.log(np.where(truth == 1, chance, 1.0 - chance))))
    elif parameters["method"] in ("chosen", "path", "bayes"):
        mean, sd = model.predict(new, return_std=True)
        row["coverage"] = float(np.mean(np.abs(truth - mean) < 1.6449 * sd))
        row["error"] = float(np.sqrt(np.mean((truth - mean) ** 2)))
    else:
        row["error"] = float(np.sqrt(np.mean((truth - model.predict(new)) ** 2)))
    if parameters["method"] == "chosen":
        table = model[-1].candidates_
        for name in ("effective_columns", "score", "weight"):
            row[name] = [None if np.isnan(x) else float(x) for x in table[name]]
    return row


def report(rows: list[Row]) -> Content:
    """Errors of regression and classification, coverage, and the dial of one data set each."""
    views: Content = []
    titles = {False: "RMSE on new rows", True: "Log loss on new rows"}
    for binary, title in titles.items():
        methods = METHODS[binary]
        views.append(_table(rows, title, "error", binary, methods))
    covered = {m: METHODS[False][m] for m in ("chosen", "path", "bayes")}
    views.append(_table(rows, "Coverage of 90 % intervals", "coverage", False, covered))
    note = "Held-out log score, behind the best candidate, against the effective number of columns."
    views.append(
        Picture("choice", "The dial", note + " Marks grow with the weight.", partial(_draw, rows))
    )
    return [view for view in views if isinstance(view, Picture) or view.rows]


def _table(rows: list[Row], title: str, metric: str, binary: bool, methods: Mapping) -> View:
    body: list[list[str | Cell]] = []
    for name, (own, _) in DATA.items():
        cells = [cell(select(rows, data=name, method=m), metric, digits=3) for m in methods]
        if own == binary and any(c.data_sets for c in cells):
            body.append([name, *cells])
    note = "Means over splits or simulated data sets on which no setting was chosen."
    return View(title, note, ["data", *(shown for shown, _ in methods.values())], body)


def _draw(rows: list[Row]) -> Any:
    figure = new_figure(8, 3)
    names = [n for n in DATA if len(_fitted(select(rows, data=n, method="chosen"))) > 1][:4]
    for axis, name in zip(
        figure.subplots(1, max(len(names), 1), squeeze=False)[0], names, strict=False
    ):
        drawn = select(rows, data=name, method="chosen")
        found, kept = drawn[0].result, _fitted(drawn)
        size, score, weight = (
            np.array([found[k][i] for i in kept], float)
            for k in ("effective_columns", "score", "weight")
        )
        axis.scatter(size, score - score.max(), 15 + 250 * weight)
        axis.set_xscale("log")
        least, most = max(size.min(), 0.5) / 1.5, 1.5 * max(size.max(), 1.0)
        axis.set_xlim(least, most)
        ticks = [t for t in (1, 2, 5, 10, 20, 50, 100) if least < t < most]
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.minorticks_off()
        axis.set_title(name, fontsize=8)
    figure.supxlabel("effective number of columns (sparse to dense)")
    figure.supylabel("held-out score")
    return figure


def _fitted(rows: list[Row]) -> list[int]:
    """The candidates of the first row that were fitted to all rows of the data."""
    sizes = rows[0].result["effective_columns"] if rows else []
    return [i for i, x in enumerate(sizes) if x is not None]


EXPERIMENTS = [
    Experiment(
        name="choice",
        shows="confidences chosen by prediction beside Lasso and ridge, from sparse to dense data",
        where="beyond the paper",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.1, "quick": 3.0, "full": 15.0},
    ),
]
