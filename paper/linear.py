"""table1 with fig3, tableS1, tableS2: sparse linear regression (section 4.2, supplement A.2)."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from paper.linear_methods import METHODS
from paper.printed import printed_number, printed_rows
from paper.runner import Experiment
from paper.storage import Row, Task
from paper.views import (
    STYLE,
    Cell,
    Content,
    Picture,
    View,
    cell,
    name_of,
    new_figure,
    select,
)
from soubayes import datasets

FIRST_SEED = 1000  # settings were chosen on seeds below it
COMPARED = tuple(METHODS)
_MOST = {"toy": 1, "quick": 5, "full": 100}
_DESIGN = {"table1": "experiment1", "tableS1": "experiment2", "tableS2": "experiment3"}
_TOLERANCES = {"below_1e-1": 1e-1, "below_1e-2": 1e-2, "below_1e-3": 1e-3}


def grid(table: str, size: str) -> list[Task]:
    """The rows of a table, every method, seed by seed: a part of a run is then a small table."""
    designs = printed_rows(table)
    if size == "toy":
        designs = designs[:1]
    seeds = _MOST[size]
    return [
        Task(FIRST_SEED + seed, task_of(_DESIGN[table], row, method))
        for seed in range(seeds)
        for row in designs
        for method in COMPARED
        if seed < data_sets(method, row, size)
    ]


def task_of(design: str, row: Mapping[str, Any], method: str) -> dict[str, Any]:
    """The parameters of a row: the design, its sizes, the method and its settings."""
    return {"design": design, **row, "method": method, **METHODS[method].settings}


def data_sets(method: str, row: Mapping[str, Any], size: str) -> int:
    """On how many data sets of a design a method runs."""
    p, how = row.get("p", 50), METHODS[method]
    if size == "full":
        return how.at_400 if p > 200 else how.at_200 if p > 100 else 100
    if p > how.quick_p:
        return 0
    return min(3, _MOST[size]) if how.at_400 < 100 else _MOST[size]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One data set and one method: the error, the nulls below each tolerance, the coverage."""
    settings = dict(parameters)
    method = settings.pop("method")
    design = getattr(datasets, settings.pop("design"))
    names = ("n", "p", "signals", "signal_share")
    shape = {name: settings.pop(name) for name in names if name in settings}
    data = design(**shape, random_state=seed)
    fit = METHODS[method].fit(data, seed, **settings)
    row = measure(data, fit)
    if _in_fig3(parameters):
        null = fit.coef[~data.support]
        row["false_positives"] = null[np.abs(null) > 1e-3].round(6)
    return row


def measure(data: datasets.Regression, fit: Any) -> dict[str, Any]:
    """What the tables report of an estimate."""
    null = ~data.support
    size = np.abs(fit.coef[null])
    share = {
        k: float(np.mean(size < t)) if null.any() else math.nan for k, t in _TOLERANCES.items()
    }
    found = np.abs(fit.coef[data.support]) >= 1e-3
    row = {"rmse": datasets.prediction_rmse(fit.coef, data.coef), **share}
    row["signals_found"] = float(found.mean()) if len(found) else math.nan
    if fit.interval is not None and data.support.any():
        low, high = (bound[data.support] for bound in fit.interval)
        truth = data.coef[data.support]
        row["coverage"] = float(np.mean(found & (low <= truth) & (truth <= high)))
    return row


def _in_fig3(parameters: Mapping[str, Any]) -> bool:
    """Whether fig3 shows the false positives of this row."""
    at_400 = (parameters.get("n"), parameters.get("p")) == (405, 400)
    return at_400 and parameters["method"] in ("lasso", "sou")


def report(table: str, rows: list[Row]) -> Content:
    """Root mean squared error, then the shares of nulls below each tolerance, then coverage."""
    shown = [m for m in COMPARED if select(rows, method=m)]
    titles = {
        "rmse": "RMSE, sqrt(1 + |estimate - truth|²)",
        "below_1e-3": "Share of null coefficients below 1e-3",
        "below_1e-2": "Share of null coefficients below 1e-2",
        "below_1e-1": "Share of null coefficients below 1e-1",
        "coverage": "Share of true signals inside their 90 % interval",
    }
    views: Content = []
    for metric, title in titles.items():
        methods = [m for m in shown if metric != "coverage" or METHODS[m].has_intervals]
        if metric.startswith("below"):
            methods = [m for m in methods if m != "oracle"]
        body: list[list[str | Cell]] = []
        for row in printed_rows(table):
            cells = [
                cell(
                    select(rows, method=m, **row),
                    metric,
                    paper=printed_number(table, row, m, metric),
                    better="lower" if metric == "rmse" else "higher",
                )
                for m in methods
            ]
            if any(c.data_sets for c in cells):
                body.append([name_of(row), *cells])
        columns = ["design", *(METHODS[m].title for m in methods)]
        note = _NOTES.get(metric, "")
        views.append(
            View(title, note, columns, body, folded=metric in ("below_1e-1", "below_1e-2"))
        )
    return [*views, *_far_from_the_oracle(table, rows, shown)]


def _far_from_the_oracle(table: str, rows: list[Row], shown: list[str]) -> Content:
    """The share of data sets where a method's RMSE is more than twice the oracle's."""
    body: list[list[str | Cell]] = []
    for row in printed_rows(table):
        best = {r.seed: r.result["rmse"] for r in select(rows, method="oracle", **row)}
        cells = []
        for method in shown[1:]:
            found = [r for r in select(rows, method=method, **row) if r.seed in best]
            far = [r._replace(result={"far": r.result["rmse"] > 2 * best[r.seed]}) for r in found]
            cells.append(cell(far, "far"))
        if any(c.data_sets for c in cells):
            body.append([name_of(row), *cells])
    columns = ["design", *(METHODS[m].title for m in shown[1:])]
    title = "Share of data sets with more than twice the oracle's RMSE"
    return [View(title, "", columns, body, folded=True)] if body else []


_NOTES = {
    "rmse": "The oracle is least squares on the true support. GL is the same model with all "
    "confidences 1; Algorithm 1 is the paper's, with its updates corrected; both stop after 300 "
    "sweeps. The horseshoe is sampled (Gibbs), on fewer data sets where p is large.",
    "coverage": "A signal that the method drops counts as missed.",
}


def draw_false_positives(rows: list[Row]) -> Any:
    """fig:reg_hist: densities of the null estimates above 1e-3 at (n, p) = (405, 400)."""
    panels = [10, 50, 100, 200]
    figure = new_figure(7, 5.2)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    edges = np.linspace(-0.6, 0.6, 41)
    for axis, signals in zip(axes.flat, panels, strict=True):
        for method in ("lasso", "sou"):
            found = select(rows, n=405, p=400, signals=signals, method=method)
            values = np.concatenate([r.result["false_positives"] for r in found] or [[]])
            style = STYLE[method]
            share = len(values) / max(len(found), 1)
            label = f"{style['label']} ({share:.3g} a data set)"
            if len(values) < 20:  # too few for a density: a tick each
                axis.plot(
                    values, 0 * values, "|", ms=10, mew=1.5, color=style["color"], label=label
                )
                continue
            axis.hist(
                np.clip(values, edges[0], edges[-1]),
                edges,
                density=True,
                alpha=0.55,
                color=style["color"],
                hatch=style["hatch"],
                edgecolor="black",
                linewidth=0.4,
                label=label,
            )
        axis.set_title(f"s = {signals}")
        axis.legend(fontsize=8, loc="upper center")
    axes[0, 0].set_ylim(top=axes[0, 0].get_ylim()[1] * 1.3)
    figure.supxlabel("estimate of a null coefficient")
    figure.supylabel("density given |estimate| > 1e-3")
    return figure


def report_false_positives(rows: list[Row]) -> Content:
    """fig3, from the rows of table1 at (405, 400)."""
    note = (
        "Normalised histograms of the estimates of null coefficients, given that they exceed "
        "1e-3 in size, (n, p) = (405, 400); the outermost bars hold what lies beyond. Fewer than "
        "20 in all data sets are a tick each."
    )
    shown = [row for row in select(rows, n=405, p=400) if "false_positives" in row.result]
    if not shown:
        return []
    draw = partial(draw_false_positives, shown)
    return [Picture("fig3", "False positives in linear regression", note, draw)]


def false_positive_grid(size: str) -> list[Task]:
    """The tasks of table1 that fig3 shows, Lasso and SoU only."""
    tasks = grid("table1", "quick" if size == "toy" else size)
    chosen = [t for t in tasks if t.parameters["p"] == 400]
    chosen = [t for t in chosen if t.parameters["method"] in ("lasso", "sou")]
    return chosen[:2] if size == "toy" else chosen


EXPERIMENTS = [
    *(
        Experiment(
            name=name,
            shows=shows,
            where=where,
            grid=partial(grid, name),
            row=compute,
            report=partial(report, name),
            minutes=minutes,
        )
        for name, shows, where, minutes in [
            (
                "table1",
                "linear regression, Experiment 1: coefficients 1..10 repeated",
                "section 4.2, tab:experiment2",
                {"toy": 0.1, "quick": 1.7, "full": 60.0},
            ),
            (
                "tableS1",
                "linear regression, Experiment 2: coefficients 2, ..., 2, 5, 20 repeated",
                "supplement A.2, tab:experiment1",
                {"toy": 0.1, "quick": 1.7, "full": 55.0},
            ),
            (
                "tableS2",
                "linear regression, Experiment 3: heavy-tailed signals",
                "supplement A.2, tab:experiment3",
                {"toy": 0.1, "quick": 0.6, "full": 24.0},
            ),
        ]
    ),
    Experiment(
        name="fig3",
        shows="false positives of Lasso and SoU-SGL in Experiment 1 (rows of table1)",
        where="section 4.2, fig:reg_hist",
        grid=false_positive_grid,
        row=compute,
        report=report_false_positives,
        minutes={"toy": 0.1, "quick": 0.3, "full": 5.0},
        rows_of="table1",
    ),
]
