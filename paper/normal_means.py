"""fig2 and `robustness`: shrinkage factors in normal means (section 4.1)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

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
from soubayes.horseshoe import horseshoe_gibbs

FIRST_SEED = 1000
METHODS = ("horseshoe", "sou")
BINS = np.linspace(0.0, 1.0, 41)
PAPER = {"units": 100, "replicates": 5, "signals": 20, "size": 10.0}
# section 4.1: "varying I, n, and signal proportions/magnitudes"
CONFIGURATIONS: list[dict[str, Any]] = [
    PAPER,
    PAPER | {"units": 400, "signals": 80},
    PAPER | {"units": 1000, "signals": 200},
    PAPER | {"replicates": 2},
    PAPER | {"replicates": 20},
    PAPER | {"signals": 5},
    PAPER | {"signals": 50},
    PAPER | {"size": 3.0},
    PAPER | {"size": 100.0},
]
RATES = [1e-2, 1e-1, 1.0, 10.0, 1e2, 1e3]


def figure_grid(size: str) -> list[Task]:
    """The paper's design under both methods, on several data sets."""
    seeds = {"toy": 1, "quick": 5, "full": 20}[size]
    return [
        Task(FIRST_SEED + seed, {**PAPER, "method": method})
        for seed in range(seeds)
        for method in METHODS
    ]


def robustness_grid(size: str) -> list[Task]:
    """lambda_nu at the paper's design, then the other designs at its lambda_nu."""
    seeds = {"toy": 1, "quick": 5, "full": 100}[size]
    rates = [{**PAPER, "rate_global": rate} for rate in RATES]
    cases = rates + [{**c, "rate_global": 10.0} for c in CONFIGURATIONS[1:]]
    if size == "toy":
        cases = [rates[0], rates[-1]]
    return [
        Task(FIRST_SEED + seed, {**case, "method": "sou"})
        for seed in range(seeds)
        for case in cases
    ]


def compute(seed: int, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """One data set and method: the posterior of kappa among signals and among nulls."""
    shape = {name: parameters[name] for name in PAPER}
    data = datasets.normal_means(**shape, random_state=seed)
    if parameters["method"] == "horseshoe":
        kappa, estimate = _horseshoe(data, seed)
    else:
        kappa, estimate = _sou(data, seed, parameters.get("rate_global", 10.0))
    null = data.coef == 0
    mean = kappa.mean(axis=0)
    return {
        "nulls_above_0.99": float(np.mean(mean[null] > 0.99)),
        "signals_below_0.05": float(np.mean(mean[~null] < 0.05)),
        "null_mass_above_0.99": float(np.mean(kappa[:, null] > 0.99)),
        "rmse": float(np.sqrt(np.mean((estimate - data.coef) ** 2))),
        "signal_density": np.histogram(kappa[:, ~null], BINS, density=True)[0].round(4),
        "null_density": np.histogram(kappa[:, null], BINS, density=True)[0].round(4),
        "all_density": np.histogram(kappa, BINS, density=True)[0].round(4),
    }


def _horseshoe(data: datasets.NormalMeans, seed: int) -> tuple[np.ndarray, np.ndarray]:
    posterior = horseshoe_gibbs(None, data.Y, draws=2000, chains=2, random_state=seed).posterior
    units = len(data.coef)
    kappa, coef = (posterior[n].values.reshape(-1, units) for n in ("shrinkage", "coef"))
    return kappa, coef.mean(axis=0)


def _sou(data: datasets.NormalMeans, seed: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """kappa over q(sigma^2), with tau and nu at their estimates: (1 - kappa)/kappa ~ 1/sigma^2."""
    from soubayes import SoUNormalMeans

    fit = SoUNormalMeans(priors={"rate_global": rate}).fit(data.Y)
    noise = np.asarray(fit.sample(1000, random_state=seed)["noise_variance"]).reshape(-1, 1)
    odds = (1.0 - fit.shrinkage_) / np.maximum(fit.shrinkage_, 1e-300)
    return 1.0 / (1.0 + odds * fit.noise_variance_ / noise), fit.coef_


_TITLES = {
    "nulls_above_0.99": ("nulls with kappa above 0.99", "higher", 3),
    "signals_below_0.05": ("signals with kappa below 0.05", "higher", 3),
    "null_mass_above_0.99": ("posterior mass of nulls above 0.99", "higher", 3),
    "rmse": ("RMSE of the means", "lower", 3),
}


def report_figure(rows: list[Row]) -> Content:
    """fig2 and the shares that it shows."""
    note = (
        "Posterior densities of kappa for signals (left), nulls (middle) and all coordinates "
        "(right), over all data sets. For SoU-SGL over q(σ²), with τ and ν at their estimates."
    )
    title = "Shrinkage factors in normal means"
    picture = Picture("fig2", title, note, partial(draw_densities, rows))
    return [picture, _table("Kappa by its posterior mean", "", rows, "method")]


def report_robustness(rows: list[Row]) -> Content:
    """The global rate over five orders of magnitude, then the other designs."""
    paper_design = select(rows, **PAPER)
    note = "SoU-SGL under other rates of the exponential prior of ν² (paper: 10)."
    views: Content = [_table("The global rate lambda_nu", note, paper_design, "rate_global")]
    body: list[list[str | Cell]] = []
    for case in CONFIGURATIONS:
        found = select(rows, rate_global=10.0, **case)
        if found:
            body.append([name_of(case), *_cells(found)])
    if body:
        title = "Other numbers of units, replicates and signals"
        views.append(View(title, "", ["design", *(t for t, _, _ in _TITLES.values())], body))
    return views


def _table(title: str, note: str, rows: list[Row], key: str) -> View:
    values = sorted({row.parameters[key] for row in select(rows)})
    body: list[list[str | Cell]] = [
        [
            STYLE[value]["label"] if value in STYLE else f"{value:g}",
            *_cells(select(rows, **{key: value})),
        ]
        for value in values
    ]
    columns = [key.replace("_", " "), *(title for title, _, _ in _TITLES.values())]
    return View(title, note, columns, body)


def _cells(rows: list[Row]) -> list[Cell]:
    return [cell(rows, metric, digits=digits) for metric, (_, _, digits) in _TITLES.items()]


def draw_densities(rows: list[Row]) -> Any:
    """Two rows of panels (horseshoe, SoU-SGL), three columns (signals, nulls, all)."""
    figure = new_figure(7, 4.4)
    axes = figure.subplots(2, 3, sharex=True)
    groups = {"signal_density": "signals", "null_density": "nulls", "all_density": "all"}
    for line, method in zip(axes, METHODS, strict=True):
        style = STYLE[method]
        for axis, (name, title) in zip(line, groups.items(), strict=True):
            found = select(rows, method=method)
            if found:
                heights = np.mean([row.result[name] for row in found], axis=0)
                axis.stairs(
                    heights,
                    BINS,
                    fill=True,
                    color=style["color"],
                    alpha=0.6,
                    hatch=style["hatch"],
                    edgecolor="black",
                )
            axis.set_title(f"{style['label']}: {title}", fontsize=9)
        line[0].set_ylabel("density")
    for axis in axes[-1]:
        axis.set_xlabel("shrinkage factor κ")
    return figure


EXPERIMENTS = [
    Experiment(
        name="fig2",
        shows="posterior of the shrinkage factors of signals and nulls in normal means",
        where="section 4.1, fig:Simple_HS",
        grid=figure_grid,
        row=compute,
        report=report_figure,
        minutes={"toy": 0.05, "quick": 0.2, "full": 0.8},
    ),
    Experiment(
        name="robustness",
        shows="normal means under other global rates, sizes and signals",
        where="section 4.1, in words",
        grid=robustness_grid,
        row=compute,
        report=report_robustness,
        minutes={"toy": 0.02, "quick": 0.4, "full": 3.0},
    ),
]
