"""Figures of the foundation: prior against confidence, and event trees (extra ``plot``)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from soubayes._optional import require
from soubayes._types import Axes, Figure
from soubayes.exact.conjugate import conjugate_update
from soubayes.exact.decision import Act, EventTree

# readable in grey: light to dark within a panel
SHADES = ("#9ecae1", "#4292c6", "#08306b")


def plot_prior_vs_confidence(
    data: ArrayLike = (1.6, 2.3, 1.9, 2.7, 1.5),
    *,
    prior_mean: float = 0.0,
    prior_sd: float = 1.0,
    noise_sd: float = 1.5,
    prior_sds: Sequence[float] = (0.25, 0.5, 1.0),
    confidences: Sequence[float] = (5.0, 1.0, 0.1),
) -> Figure:
    r"""Draw what the width of a prior does beside what the confidence in it does.

    Parameters
    ----------
    data : array-like, default=(1.6, 2.3, 1.9, 2.7, 1.5)
        Observations of a normal mean with known standard deviation.
    prior_mean : float, default=0.0
        Mean of the prior.
    prior_sd : float, default=1.0
        Standard deviation of the prior in the right panel.
    noise_sd : float, default=1.5
        The known standard deviation of an observation.
    prior_sds : sequence of float, default=(0.25, 0.5, 1.0)
        Standard deviations of the prior, one for each curve of the left panel.
    confidences : sequence of float, default=(5.0, 1.0, 0.1)
        Confidences, one for each curve of the right panel.

    Returns
    -------
    figure : matplotlib.figure.Figure
        Left: priors (dashed) and posteriors (solid) of different widths at confidence 1. Right: one
        prior and its posteriors at different confidences.

    Notes
    -----
    Figure ``fig:oneParameter`` of [1]_. The posterior mean and variance are (supplement C.3)

    .. math::

        \mu_n = \alpha_n \mu_0 + (1 - \alpha_n) \bar y, \qquad
        \sigma_n^2 = \frac{\sigma^2}{\sigma^2/\sigma_0^2 + n/\gamma}, \qquad
        \alpha_n = \frac{\sigma^2/\sigma_0^2}{\sigma^2/\sigma_0^2 + n/\gamma}.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> figure = plot_prior_vs_confidence()
    >>> len(figure.axes)
    2
    """
    pyplot = require("matplotlib.pyplot", "plot_prior_vs_confidence")
    data = np.asarray(data, dtype=float)
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharex=True, sharey=True)
    known = {"mean": prior_mean, "noise_sd": noise_sd}
    ends = [prior_mean - 2.5 * prior_sd, max(prior_mean + 2.5 * prior_sd, data.mean() + prior_sd)]
    x = np.linspace(min(ends[0], data.mean() - prior_sd), ends[1], 600)
    curves = [
        [(sd, 1.0, rf"$\sigma_0 = {sd:g}$") for sd in prior_sds],
        [(prior_sd, gamma, rf"$\gamma_\mu = {gamma:g}$") for gamma in confidences],
    ]
    titles = ["(a) prior scale varies, confidence 1", "(b) confidence varies, prior fixed"]
    for axis, panel, title in zip(axes, curves, titles, strict=True):
        colours = shades(len(panel))
        for (sd, gamma, label), colour in zip(panel, colours, strict=True):
            update = conjugate_update("normal", data, confidence=gamma, sd=sd, **known)
            if axis is axes[0]:
                axis.plot(x, update.prior.pdf(x), "--", color=colour, lw=1.2)
            axis.plot(x, update.posterior.pdf(x), color=colour, lw=2, label=label)
        if axis is axes[1]:
            axis.plot(x, update.prior.pdf(x), "--", color="0.4", lw=1.2, label="prior")
        axis.axvline(data.mean(), color="0.6", lw=1, ls=":", zorder=0, label="data mean")
        axis.set(title=title, xlabel=r"$\mu$")
        axis.legend(frameon=False, loc="upper left")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set(ylabel="density", ylim=(0, None))
    figure.tight_layout()
    return figure


def shades(count: int) -> list[Any]:
    """``count`` colours from light to dark."""
    colours = require("matplotlib.colors", "plots")
    scale = colours.LinearSegmentedColormap.from_list("confidence", SHADES)
    return [scale(i / max(count - 1, 1)) for i in range(count)]


def plot_event_tree(
    tree: EventTree,
    act: Act,
    confidence: Mapping[str, float] | None = None,
    *,
    axis: Axes | None = None,
) -> Axes:
    """Draw an event tree with reference and worst-case probabilities.

    Parameters
    ----------
    tree : EventTree
        The tree.
    act : mapping of tuple to float, or callable
        The utility of every complete path, or a function of the steps of a path.
    confidence : mapping of str to float, optional
        The confidence of each stage. A stage that is not named has confidence 1.
    axis : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    axis : matplotlib.axes.Axes
        Nodes carry their value. A branch carries its probability under the reference and, after an
        arrow, the one that minimises.

    Notes
    -----
    Figure ``fig:tree`` of [1]_ with numbers. Values are those of ``eq:dynamic_MP`` with one-step
    divergences; see :class:`soubayes.EventTree`.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> tree = EventTree({("u", "l"): 1, ("u", "r"): 1, ("d", "l"): 2}, stages=("first", "second"))
    >>> axis = plot_event_tree(tree, lambda first, second: float(second == "l"))
    >>> axis.get_title()
    'V = 0.643'
    """
    pyplot = require("matplotlib.pyplot", "plot_event_tree")
    solution = tree.solve(act, confidence)
    leaves = len(tree.nodes[-1])
    if axis is None:
        size = (2.6 * len(tree.stages) + 1.6, max(2.4, 0.5 * leaves + 1.0))
        axis = pyplot.subplots(figsize=size, layout="constrained")[1]
    height = {path: -float(i) for i, path in enumerate(tree.nodes[-1])}
    for depth in range(len(tree.stages) - 1, -1, -1):
        for node in tree.nodes[depth - 1] if depth else [()]:
            below = [
                h for path, h in height.items() if len(path) == len(node) + 1 and path[:-1] == node
            ]
            height[node] = float(np.mean(below))
    for k, nodes in enumerate(tree.nodes):
        share = np.exp(tree.levels[k].log_weight)
        worst = np.exp(solution.log_conditional[k])
        for i, node in enumerate(nodes):
            low, high = height[node[:-1]], height[node]
            axis.plot(
                [k, k + 1],
                [low, high],
                color=SHADES[1],
                lw=0.6 + 4 * worst[i],
                zorder=1,
                solid_capstyle="round",
            )
            axis.annotate(
                f"{node[-1]}  {share[i]:.2f}→{worst[i]:.2f}",
                (k + 0.62, low + 0.62 * (high - low)),
                ha="center",
                va="bottom",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
            )
            last = k == len(tree.nodes) - 1
            draw_node(axis, k + 1, high, solution.values[k][i], beside=last)
    draw_node(axis, 0, height[()], solution.value, beside=False)
    gammas = {**dict.fromkeys(tree.stages, 1.0), **(confidence or {})}
    for k, stage in enumerate(tree.stages):
        axis.annotate(
            f"{stage}\n$\\gamma$ = {gammas[stage]:g}".replace("inf", r"$\infty$"),
            (k + 0.5, 0.75),
            ha="center",
            va="bottom",
            fontsize=9,
            color="0.3",
        )
    axis.set(xlim=(-0.3, len(tree.stages) + 0.5), ylim=(-leaves + 0.4, 1.7))
    axis.set_title(f"V = {solution.value:.3f}", fontsize=11)
    axis.axis("off")
    return axis


def draw_node(axis: Any, x: float, y: float, value: float, *, beside: bool) -> None:
    if beside:
        axis.annotate(f"u = {value:.3g}", (x + 0.05, y), va="center", fontsize=8)
        axis.plot(x, y, "o", color=SHADES[2], ms=4, zorder=3)
        return
    axis.annotate(
        f"{value:.3f}",
        (x, y),
        ha="center",
        va="center",
        fontsize=8,
        zorder=4,
        color="white",
        bbox={"boxstyle": "round,pad=0.35", "facecolor": SHADES[2], "edgecolor": "none"},
    )
