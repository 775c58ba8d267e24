"""The figure of a fit with terms: curves with bands, factors, units and pairs."""

from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from soubayes._optional import require
from soubayes._types import Axes, Estimator
from soubayes.results import LEVEL

Array = np.ndarray

PANELS = 12  # terms that are drawn unless they are named
WIDE = 4  # panels in a row


def plot_terms(
    estimator: Estimator,
    *,
    terms: list[str] | None = None,
    level: float = LEVEL,
    target: int = 0,
) -> list[Axes]:
    """Draw the effects of terms: curves with bands, factors and units as dots, pairs as maps.

    Parameters
    ----------
    estimator : fitted estimator
        One that was fitted with ``terms``.
    terms : list of str, optional
        The terms to draw, as ``terms_`` names them. Left out: those with an effect, the largest
        first, at most 12.
    level : float, default=0.9
        Level of the bands.
    target : int, default=0
        Which target, or which class against the rest.

    Returns
    -------
    axes : list of matplotlib.axes.Axes
        A panel for each term.

    Notes
    -----
    A curve has ticks at 21 quantiles of its column, a rug. Units are sorted by their effects.

    References
    ----------
    .. [1] S. N. Wood (2017), "Generalized additive models: an introduction with R", chapter 4.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from soubayes import SoULinearRegression
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = SoULinearRegression(terms=["s(bmi)", "s(bp)", "C(sex)"]).fit(X, y)
    >>> [ax.get_title() for ax in plot_terms(model, terms=["s(bmi)"])]
    ['s(bmi)']
    """
    check_is_fitted(estimator)
    effects = estimator.term_effects(level, target)
    if terms is None:
        size = {name: float(np.ptp(frame["estimate"])) for name, frame in effects.items()}
        order = sorted((name for name in size if size[name] > 0.0), key=lambda k: -size[k])
        terms = order[:PANELS] or list(effects)[:1]
    for name in terms:
        if name not in effects:
            raise ValueError(f"there is no term {name!r}: the terms are {', '.join(effects)}.")
    plt = require("matplotlib.pyplot", "plot")
    wide = min(WIDE, len(terms))
    tall = -(-len(terms) // wide)
    figure, grid = plt.subplots(
        tall, wide, figsize=(3.2 * wide, 2.6 * tall), squeeze=False, layout="constrained"
    )
    axes = list(grid.ravel())
    for ax in axes[len(terms) :]:
        figure.delaxes(ax)
    for ax, name in zip(axes, terms, strict=False):
        _draw(ax, effects[name], estimator._expansion.grids)
        ax.set_title(name, fontsize=9)
        ax.tick_params(labelsize=7)
        legend = ax.get_legend()
        named = [ax.title, ax.xaxis.label, ax.yaxis.label, *(legend.get_texts() if legend else ())]
        for text in named:
            text.set_parse_math(False)  # names of columns: a $ in them is a $
    return axes[: len(terms)]


def _draw(ax: Any, frame: pd.DataFrame, grids: dict[str, Array]) -> None:
    """One term."""
    names = [name for name in frame if name not in ("estimate", "lower", "upper")]
    numbers = [name for name in names if pd.api.types.is_numeric_dtype(frame[name])]
    if len(names) == 1 and numbers:
        x = frame[names[0]]
        ax.plot(x, frame["estimate"], color="C0", lw=1.5)
        ax.fill_between(x, frame["lower"], frame["upper"], color="C0", alpha=0.25, lw=0)
        ax.plot(grids[names[0]], np.full(len(grids[names[0]]), 0.02), "|", color="0.4",
                transform=ax.get_xaxis_transform(), ms=5)  # fmt: skip
        ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
        ax.set_xlabel(names[0], fontsize=8)
    elif len(names) == 2 and len(numbers) == 2:
        table = frame.pivot(index=names[1], columns=names[0], values="estimate")
        most = float(np.abs(table.to_numpy()).max()) or 1.0
        ends = (table.columns[0], table.columns[-1], table.index[0], table.index[-1])
        image = ax.imshow(table, origin="lower", aspect="auto", extent=ends,
                          cmap="RdBu_r", vmin=-most, vmax=most)  # fmt: skip
        ax.figure.colorbar(image, ax=ax)
        ax.set_xlabel(names[0], fontsize=8)
        ax.set_ylabel(names[1], fontsize=8)
    elif len(names) == 2 and len(frame[numbers].drop_duplicates()) > 1 and numbers:
        category = next(name for name in names if name not in numbers)
        for level, part in frame.groupby(category, sort=False):
            ax.plot(part[numbers[0]], part["estimate"], lw=1.2, label=str(level))
        ax.legend(fontsize=6, frameon=False)
        ax.set_xlabel(numbers[0], fontsize=8)
    else:
        frame = frame.sort_values("estimate", kind="stable")
        place = np.arange(len(frame))
        ax.hlines(place, frame["lower"], frame["upper"], color="C0", lw=1)
        ax.plot(frame["estimate"], place, "o", color="C0", ms=3)
        categories = [name for name in names if name not in numbers]
        labels = frame[categories].astype(str).agg(", ".join, axis=1)
        few = len(frame) <= 30
        ax.set_yticks(place if few else [], labels if few else [], parse_math=False)
        ax.axvline(0.0, color="0.7", lw=0.8, zorder=0)
