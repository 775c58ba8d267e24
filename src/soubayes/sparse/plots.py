"""Figures of a fitted sparse estimator; each returns the matplotlib Axes (extra ``plot``)."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from soubayes._optional import require


def plot_path(estimator: Any, *, target: int = 0, ax: Any = None) -> Any:
    """Coefficients along the confidence path, the reported point marked.

    Columns kept at the reported point are coloured and, up to ten, named.

    >>> from soubayes import SoULinearRegression
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10)
    >>> plot_path(SoULinearRegression().fit(data.X, data.y)).get_xscale()
    'log'
    """
    table, selected, gamma = _of_target(estimator, target)
    ax = _axes(ax)
    scale = _unit_free(table["coef"])
    for j in np.flatnonzero(~selected & (table["coef"] != 0).any(axis=0)):
        ax.plot(table["gamma"], scale[:, j], color="0.75", lw=0.8, zorder=1)
    kept = np.flatnonzero(selected)
    names = estimator._feature_names()
    for j in kept:
        (line,) = ax.plot(table["gamma"], scale[:, j], lw=1.4, zorder=2)
        if len(kept) <= 10:
            ax.annotate(
                str(names[j]),
                (table["gamma"][0], scale[0, j]),
                xytext=(-4, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=8,
                color=line.get_color(),
            )
    ax.axvline(gamma, color="k", lw=1, ls="--")
    ax.annotate(
        f"{int(selected.sum())} selected",
        (gamma, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )
    ax.set_xscale("log")
    ax.set_xlabel("confidence in the coefficients, $\\gamma_\\beta$")
    ax.set_ylabel("coefficient")
    ticks = [t for t in (1, 1.5, 2, 3, 5, 8, 12, 20, 30) if t <= table["gamma"].max() * 1.01]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    return ax


def plot_shrinkage(estimator: Any, *, target: int = 0, ax: Any = None) -> Any:
    """The shrinkage factors kappa_j, sorted: 0 keeps a coefficient, 1 removes it.

    >>> from soubayes import SoUNormalMeans
    >>> Y = np.random.default_rng(0).normal(size=(25, 4)) + 9.0 * (np.arange(25) < 5)[:, None]
    >>> plot_shrinkage(SoUNormalMeans().fit(Y)).get_ylabel()
    'shrinkage factor $\\\\kappa_j$'
    """
    _, selected, _ = _of_target(estimator, target)
    kappa = np.atleast_2d(estimator.shrinkage_)[target]
    order = np.argsort(kappa, kind="stable")
    ax = _axes(ax)
    rank = np.arange(len(kappa))
    for mask, colour, label in ((selected, "C0", "selected"), (~selected, "0.6", "dropped")):
        inside = mask[order]
        ax.plot(
            rank[inside], kappa[order][inside], ".", color=colour, label=f"{label} ({mask.sum()})"
        )
    ax.set_ylim(-0.05, 1.05)
    ax.set_xlabel("coefficient, sorted by shrinkage")
    ax.set_ylabel("shrinkage factor $\\kappa_j$")
    ax.legend(frameon=False)
    return ax


def _of_target(estimator: Any, target: int) -> tuple[Any, np.ndarray, float]:
    check_is_fitted(estimator)
    table = estimator.path_ if estimator._single else estimator.path_[target]
    selected = np.atleast_2d(estimator.selected_)[target]
    return table, selected, float(np.atleast_1d(estimator.confidence_coef_)[target])


def _unit_free(coef: np.ndarray) -> np.ndarray:
    """Coefficients as they are, or each over its largest value when units differ too much."""
    size = np.abs(coef).max(axis=0)
    shown = size[size > 0]
    if len(shown) and shown.max() / np.median(shown) > 1e3:
        return coef / np.where(size > 0, size, 1.0)
    return coef


def _axes(ax: Any) -> Any:
    return ax if ax is not None else require("matplotlib.pyplot", "plotting").subplots()[1]
