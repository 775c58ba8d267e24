"""`peers`, beyond the paper: other sparse methods on the same designs, and on held-out ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.linear_model import ARDRegression, ElasticNetCV
from sklearn.model_selection import GridSearchCV

from paper.linear import FIRST_SEED, measure
from paper.linear_methods import METHODS, Fit, Method
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import Cell, Content, View, cell, name_of, select
from soubayes import datasets


def _chosen(data: datasets.Regression, seed: int) -> Fit:
    from soubayes import SoULinearRegression

    return Fit(SoULinearRegression(fit_intercept=False).fit(data.X, data.y).coef_)


def _elastic_net(data: datasets.Regression, seed: int) -> Fit:
    shares = [0.5, 0.9, 0.99]
    model = ElasticNetCV(l1_ratio=shares, fit_intercept=False, max_iter=20_000)
    return Fit(model.fit(data.X, data.y).coef_)


def _ard(data: datasets.Regression, seed: int) -> Fit:
    model = ARDRegression(fit_intercept=False, max_iter=1000).fit(data.X, data.y)
    half = np.zeros_like(model.coef_)
    kept = model.lambda_ < model.threshold_lambda
    half[kept] = 1.6449 * np.sqrt(np.diag(model.sigma_))
    return Fit(model.coef_, (model.coef_ - half, model.coef_ + half))


def _abess(data: datasets.Regression, seed: int) -> Fit:
    from abess.linear import LinearRegression

    n, p = data.X.shape
    # every size of support; where the largest would interpolate, the range abess recommends
    sizes = range(p + 1) if p < n else None
    model = LinearRegression(support_size=sizes, fit_intercept=False)
    return Fit(np.asarray(model.fit(data.X, data.y).coef_, float))


def _mcp(data: datasets.Regression, seed: int) -> Fit:
    from skglm import MCPRegression

    largest = np.abs(data.X.T @ data.y).max() / len(data.y)
    alphas = {"alpha": np.geomspace(largest, 1e-3 * largest, 30)}
    search = GridSearchCV(MCPRegression(fit_intercept=False), alphas, cv=5)
    return Fit(search.fit(data.X, data.y).best_estimator_.coef_)


PEERS = {
    "oracle": METHODS["oracle"],
    "sou": METHODS["sou"],
    "chosen": Method("SoU, chosen by prediction", _chosen, at_200=20, at_400=10),
    "lasso": METHODS["lasso"],
    "elastic_net": Method("Elastic net", _elastic_net),
    "ard": Method("ARD", _ard, has_intervals=True, at_200=20, at_400=20, quick_p=100),
    "abess": Method("abess", _abess),
    "mcp": Method("MCP (skglm)", _mcp),
}
INSTALLED_APART = ("abess", "mcp")  # the extra `bench`; without it their rows say so
# a part of the paper's designs, and three on which no setting was tuned
DESIGNS: list[tuple[str, dict[str, Any]]] = [
    ("experiment1", {"n": 25, "p": 20, "signals": 10}),
    ("experiment1", {"n": 55, "p": 50, "signals": 20}),
    ("experiment1", {"n": 105, "p": 100, "signals": 50}),
    ("experiment1", {"n": 205, "p": 200, "signals": 10}),
    ("experiment1", {"n": 205, "p": 200, "signals": 100}),
    ("experiment1", {"n": 405, "p": 400, "signals": 100}),
    ("experiment2", {"n": 60, "p": 50, "signals": 20}),
    ("experiment2", {"n": 120, "p": 100, "signals": 50}),
    ("experiment3", {"signal_share": 0.1}),
    ("experiment3", {"signal_share": 0.3}),
    ("experiment3", {"signal_share": 0.5}),
    ("correlated_design", {}),
    ("wide_design", {}),
    ("weak_design", {}),
]


def grid(size: str) -> list[Task]:
    """Every peer on every design; ARD, which takes 20 s at p = 400, on fewer data sets there."""
    methods = [m for m in PEERS if size != "toy" or m not in INSTALLED_APART]
    designs = DESIGNS[:1] + DESIGNS[-1:] if size == "toy" else DESIGNS
    seeds = {"toy": 1, "quick": 3, "full": 30}[size]
    return [
        Task(FIRST_SEED + seed, {"design": design, **row, "method": method})
        for seed in range(seeds)
        for design, row in designs
        for method in methods
        if seed < _data_sets(PEERS[method], row.get("p", 50), size, seeds)
    ]


def _data_sets(method: Method, p: int, size: str, seeds: int) -> int:
    if size == "full":
        return method.at_400 if p > 100 else seeds
    return seeds if p <= method.quick_p else 0


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One data set and one peer, measured as in the paper's tables."""
    shape = dict(parameters)
    method, design = shape.pop("method"), shape.pop("design")
    data = getattr(datasets, design)(**shape, random_state=seed)
    return measure(data, PEERS[method].fit(data, seed))


def report(rows: list[Row]) -> Content:
    """Errors, then selection of nulls and signals, then coverage."""
    titles = {
        "rmse": ("RMSE, sqrt(1 + |estimate - truth|²)", tuple(PEERS)),
        "below_1e-3": ("Share of null coefficients below 1e-3", tuple(PEERS)[1:]),
        "signals_found": ("Share of signals found", tuple(PEERS)[1:]),
        "coverage": ("Share of signals inside their 90 % interval", ("sou", "ard")),
    }
    absent = {m for m in PEERS if not select(rows, method=m)}
    note = "Correlated: columns with correlation 0.7^|i-j|; wide: n < p; weak: signals of 0.5. "
    note += "These three were used for no choice of a setting."
    views: Content = []
    for metric, (title, methods) in titles.items():
        methods = tuple(m for m in methods if m not in absent)
        body: list[list[str | Cell]] = []
        for design, row in DESIGNS:
            cells = [cell(select(rows, design=design, method=m, **row), metric) for m in methods]
            if any(c.data_sets for c in cells):
                body.append([_name(design, row), *cells])
        if body:
            columns = ["design", *(PEERS[m].title for m in methods)]
            views.append(View(title, note if metric == "rmse" else "", columns, body))
    return views


def _name(design: str, row: Mapping[str, Any]) -> str:
    name = design.replace("experiment", "Experiment ").replace("_design", "")
    return f"{name}: {name_of(row)}" if row else name


EXPERIMENTS = [
    Experiment(
        name="peers",
        shows="SoU-SGL beside abess, ARD, MCP and the elastic net, on 14 designs",
        where="beyond the paper",
        grid=grid,
        row=compute,
        report=report,
        minutes={"toy": 0.1, "quick": 3.0, "full": 30.0},
    ),
]
