"""`real`, beyond the paper: cross-validated predictions on two data sets of scikit-learn."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import ARDRegression, LassoCV, LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, View, cell, select


def _sou(name: str, **settings: Any) -> Any:
    import soubayes

    return getattr(soubayes, name)(**settings)


def _l1() -> Any:
    model = LogisticRegression(l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0)
    return GridSearchCV(model, {"C": np.logspace(-2, 2, 9)}, scoring="neg_log_loss")


# data set -> method -> its title, and what makes the estimator; columns are standardised
MODELS: dict[str, dict[str, tuple[str, Callable[[], Any]]]] = {
    "diabetes": {
        "chosen": ("SoU, chosen by prediction", partial(_sou, "SoULinearRegression")),
        "sou": ("SoU-SGL", partial(_sou, "SoULinearRegression", choice="path")),
        "lasso": ("Lasso", LassoCV),
        "ard": ("ARD", ARDRegression),
        "ols": ("least squares", LinearRegression),
    },
    "breast_cancer": {
        "chosen": ("SoU, chosen by prediction", partial(_sou, "SoULogisticRegression")),
        "sou": ("SoU-SGL", partial(_sou, "SoULogisticRegression", confidence_coef=1.0)),
        "sou_auto": ("SoU-SGL, path", partial(_sou, "SoULogisticRegression", choice="path")),
        "l1": ("LR-L1", _l1),
        "l2": ("LR-L2", LogisticRegression),
    },
}
LOAD = {"diabetes": load_diabetes, "breast_cancer": load_breast_cancer}


def grid(size: str) -> list[Task]:
    """Repeats of 5-fold cross-validation, each shuffled by its seed."""
    seeds = {"toy": 1, "quick": 3, "full": 20}[size]
    return [
        Task(1000 + seed, {"data": data, "method": method})
        for seed in range(seeds)
        for data, methods in MODELS.items()
        for method in methods
        if size != "toy" or method == "sou"
    ]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Out-of-fold predictions of one repeat, and how many columns the fits kept."""
    X, y = LOAD[parameters["data"]](return_X_y=True)
    make = MODELS[parameters["data"]][parameters["method"]][1]
    predicted, kept = np.empty(len(y)), []
    for train, test in KFold(5, shuffle=True, random_state=seed).split(X):
        model = make_pipeline(StandardScaler(), make()).fit(X[train], y[train])
        last = getattr(model[-1], "best_estimator_", model[-1])
        kept.append(np.count_nonzero(np.abs(np.ravel(last.coef_)) > 1e-8))
        if parameters["data"] == "breast_cancer":
            predicted[test] = model.predict_proba(X[test])[:, 1]
        else:
            predicted[test] = model.predict(X[test])
    row = {"columns": float(np.mean(kept))}
    if parameters["data"] == "breast_cancer":
        chance = np.clip(predicted, 1e-15, 1 - 1e-15)
        row |= {"log_loss": log_loss(y, chance), "accuracy": accuracy_score(y, predicted > 0.5)}
    else:
        row |= {"rmse": mean_squared_error(y, predicted) ** 0.5, "r2": r2_score(y, predicted)}
    return {name: float(value) for name, value in row.items()}


def report(rows: list[Row]) -> Content:
    """A table a data set: error, and the columns that were kept."""
    shown = {
        "diabetes": (("rmse", "RMSE", 2), ("r2", "R²", 3), ("columns", "columns kept", 1)),
        "breast_cancer": (
            ("log_loss", "log loss", 4),
            ("accuracy", "accuracy", 4),
            ("columns", "columns kept", 1),
        ),
    }
    views: Content = []
    for data, metrics in shown.items():
        body: list[list[str | Cell]] = []
        for method, (title, _) in MODELS[data].items():
            found = select(rows, data=data, method=method)
            if found:
                body.append([title, *(cell(found, name, digits=d) for name, _, d in metrics)])
        if body:
            n, p = LOAD[data](return_X_y=True)[0].shape
            note = f"{n} rows, {p} columns; means over repeats of 5-fold cross-validation."
            columns = ["method", *(title for _, title, _ in metrics)]
            views.append(View(data.replace("_", " "), note, columns, body))
    return views


EXPERIMENTS = [
    Experiment(
        name="real",
        shows="diabetes and breast cancer, cross-validated, beside Lasso, ARD and LR-L1",
        where="beyond the paper",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.05, "quick": 0.5, "full": 5.0},
    ),
]
