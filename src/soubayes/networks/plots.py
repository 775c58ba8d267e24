"""Figures of a fitted network, each one function of the estimator."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection
from numpy.typing import ArrayLike

from soubayes.networks.layers import mean_weights

_MOST_LINES = 2000  # connections drawn between two layers, strongest first
_MOST_INPUTS = 40


def plot_history(net: Any, ax: Any = None) -> Any:
    """Objective, active units and sparsity of the effective weights, by epoch; three axes."""
    history = net.history_
    if ax is None:
        _, ax = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
    ax = np.ravel(ax)
    if len(ax) != 3:
        raise ValueError(f"plot_history was given {len(ax)} axes, but it draws on 3.")
    objective, units, sparsity = ax
    objective.plot(history["epoch"], history["objective"], label="objective J")
    objective.plot(history["epoch"], history["loss"], label="expected loss")
    if (history["loss"] > 0).all():
        objective.set_yscale("log")
    objective.set_ylabel("nats")
    for i, step in enumerate(net._network.spec.steps[:-1], start=1):
        units.plot(history["epoch"], history[f"active_{i}"], label=f"layer {i} of {step.units}")
        sparsity.plot(history["epoch"], history[f"sparsity_{i}"], label=f"layer {i}")
    units.set_ylim(bottom=0)
    units.set_ylabel("active units")
    sparsity.set_ylabel("part of |E[w]| below 1e-5")
    for axis in ax:
        axis.set_xlabel("epoch")
        axis.legend(frameon=False, loc="best" if axis is not objective else "center right")
    scores = [name for name in history if name.startswith("validation_")]
    for name in scores:
        beside = objective.twinx()
        beside.plot(history["epoch"], history[name], color="tab:green", lw=1)
        beside.set_ylabel(name.replace("_", " "), color="tab:green")
    return ax


def plot_architecture(net: Any, ax: Any = None) -> Any:
    """Units that are left, with lines for the effective weights between them.

    Many inputs are shown as at most 40, the ones with the largest weights.
    """
    ax = ax if ax is not None else plt.subplots(figsize=(6, 4), layout="constrained")[1]
    weights = _connections(net._network)
    strength = np.abs(weights[0]).sum(axis=1)
    shown = np.sort(np.argsort(-strength, kind="stable")[:_MOST_INPUTS])
    hidden_inputs = len(strength) - len(shown)
    weights[0] = weights[0][shown]
    heights = [_heights(len(w)) for w in weights] + [_heights(weights[-1].shape[1])]
    for i, weight in enumerate(weights):
        size = np.abs(weight) / max(np.abs(weight).max(), 1e-30)
        rows, columns = np.unravel_index(np.argsort(-size, axis=None)[:_MOST_LINES], size.shape)
        ends = zip(heights[i][rows], heights[i + 1][columns], strict=True)
        lines = [((i, low), (i + 1, high)) for low, high in ends]
        colors = np.where(weight[rows, columns] > 0, "tab:blue", "tab:red")
        ax.add_collection(
            LineCollection(lines, colors=colors, alpha=size[rows, columns], linewidths=1.0)
        )
    whole = [len(strength), *(step.units for step in net._network.spec.steps)]
    if net._network.spec.gate == 0:
        whole[0] = net.n_features_in_
    left = [len(strength), *(weight.shape[1] for weight in weights)]
    for i, (before, after) in enumerate(zip(whole, left, strict=True)):
        ax.plot(np.full(len(heights[i]), i), heights[i], "o", color="black", ms=4, zorder=3)
        hidden = 0 < i < len(weights)
        text = f"{after} of {before}" if hidden or before > after else f"{after}"
        ax.annotate(text, (i, 1.08), ha="center", annotation_clip=False)
    names = [f"layer {i}" for i in range(1, len(weights))]
    first = "inputs" if not hidden_inputs else f"inputs\n({len(shown)} shown)"
    ax.set_xticks(range(len(heights)), [first, *names, "outputs"])
    ax.set_yticks([])
    ax.set_xlim(-0.3, len(weights) + 0.3)
    ax.set_ylim(-0.05, 1.15)
    ax.spines[:].set_visible(False)
    return ax


def _connections(network: Any) -> list[np.ndarray]:
    """Effective weights between units; between channels their size over offsets and places."""
    matrices = []
    for i, weight in enumerate(mean_weights(network.layers)):
        step, weight = network.spec.steps[i], np.asarray(weight[:-1])
        if step.kernel:
            by_offset = weight.reshape(step.kernel ** len(step.space), -1, weight.shape[1])
            weight = np.sqrt((by_offset**2).sum(axis=0))
        elif step.positions:
            channels = network.kept.units[i - 1]
            owner = np.searchsorted(channels, network.kept.inputs % network.spec.steps[i - 1].units)
            squares = np.zeros((len(channels), weight.shape[1]))
            np.add.at(squares, owner, weight**2)
            weight = np.sqrt(squares)
        matrices.append(weight)
    return matrices


def plot_network_path(net: Any, ax: Any = None) -> Any:
    """Error on the rows held out against multiply–adds for each confidence; the chosen is ringed.

    Without rows held out, the objective J takes the place of the error.
    """
    ax = ax if ax is not None else plt.subplots(figsize=(6, 4), layout="constrained")[1]
    path = net.path_
    names = {
        "validation_accuracy": ("error on held-out rows (%)", lambda v: 100 * (1 - v)),
        "validation_rmse": ("RMSE on held-out rows", lambda v: v),
        "value": ("objective J (nats)", lambda v: v),
    }
    name = next(name for name in names if name in path)
    label, of = names[name]
    size, score = path["multiply_adds"], of(path[name])
    ax.plot(size, score, "o-", color="tab:blue")
    for x, y, confidence in zip(size, score, path["confidence"], strict=True):
        ax.annotate(f"{confidence:g}", (x, y), xytext=(6, 5), textcoords="offset points")
    ax.plot(size[net._chosen], score[net._chosen], "o", ms=13, mfc="none", color="tab:red")
    ax.set_xscale("log")
    ax.set(xlabel="multiply–adds of a row", ylabel=label)
    return ax


def plot_inputs(net: Any, ax: Any = None) -> Any:
    """Root mean square of each input's effective weights: an image, or a bar a column of X."""
    weights = np.asarray(mean_weights(net._network.layers)[0][:-1])
    if net._network.spec.steps[0].kernel:
        raise ValueError("plot_inputs draws the inputs of a dense layer, not of a convolution.")
    size = np.zeros(net.n_features_in_)
    size[net.selected_inputs_] = np.sqrt((weights**2).mean(axis=1))
    shape = net._input_shape[:2] if len(net._input_shape) > 2 else ()
    ax = ax if ax is not None else plt.subplots(figsize=(5, 4), layout="constrained")[1]
    if shape:
        shown = np.where(net.get_support(), size, np.nan).reshape(*shape, -1).max(axis=-1)
        ax.set_facecolor("0.9")
        drawn = ax.imshow(shown, cmap="viridis")
        ax.figure.colorbar(drawn, ax=ax, label="size of the input's weights")
        ax.set_xticks([])
        ax.set_yticks([])
    else:
        ax.bar(np.arange(len(size)), size, color="tab:blue")
        names = getattr(net, "feature_names_in_", None)
        if names is not None:
            labels = [str(name).replace("$", r"\$") for name in names]
            ax.set_xticks(range(len(names)), labels, rotation=90)
        ax.set(xlabel="column of X", ylabel="size of the input's weights")
    ax.set_title(f"{len(net.selected_inputs_)} of {net.n_features_in_} inputs are read")
    return ax


def plot_predictive(net: Any, X: ArrayLike, y: ArrayLike | None = None, ax: Any = None) -> Any:
    """Predictions with the two parts of their uncertainty.

    One input, regression: the curve with bands. More inputs: predicted against observed, with
    bars (needs y). Classification: aleatoric against epistemic uncertainty, errors marked.
    """
    ax = ax if ax is not None else plt.subplots(figsize=(6, 4), layout="constrained")[1]
    if hasattr(net, "classes_"):
        return _classification(net, X, y, ax)
    X = np.asarray(X, float)
    if X.shape[1] == 1 and net._n_outputs == 1:
        return _curve(net, X, y, ax)
    if y is None:
        raise ValueError("with several inputs or outputs plot_predictive needs y to compare with.")
    mean, sd = net.predict(X, return_std=True)
    y = np.asarray(y, float)
    for k in range(net._n_outputs):
        columns = (np.reshape(v, (len(X), -1))[:, k] for v in (y, mean, sd))
        observed, predicted, bar = columns
        label = f"output {k + 1}" if net._n_outputs > 1 else "mean ± 1 sd"
        ax.errorbar(observed, predicted, bar, fmt="o", ms=3, lw=0.7, alpha=0.6, label=label)
    ends = [y.min(), y.max()]
    ax.plot(ends, ends, color="black", lw=1, zorder=3)
    ax.set(xlabel="observed", ylabel="predicted")
    ax.legend(frameon=False)
    return ax


def _curve(net: Any, X: np.ndarray, y: ArrayLike | None, ax: Any) -> Any:
    order = np.argsort(X[:, 0], kind="stable")
    x = X[order, 0]
    mean, parts = np.ravel(net.predict(X[order])), net.uncertainty(X[order])
    total, epistemic = np.ravel(parts.total), np.ravel(parts.epistemic)
    ax.fill_between(
        x, mean - 2 * total, mean + 2 * total, color="tab:blue", alpha=0.15, lw=0, label="± 2 sd"
    )
    ax.fill_between(
        x, mean - 2 * epistemic, mean + 2 * epistemic,
        color="tab:blue", alpha=0.4, lw=0, label="epistemic part",
    )  # fmt: skip
    ax.plot(x, mean, color="tab:blue", label="mean")
    if y is not None:
        ax.plot(x, np.ravel(y)[order], ".", color="black", ms=3, label="data", zorder=3)
    ax.set(xlabel="x", ylabel="y")
    ax.legend(frameon=False)
    return ax


def _classification(net: Any, X: ArrayLike, y: ArrayLike | None, ax: Any) -> Any:
    parts = net.uncertainty(X)
    right = np.ones(len(parts.total), bool) if y is None else net.predict(X) == np.asarray(y)
    label = "rows" if y is None else "right"
    ax.plot(parts.aleatoric[right], parts.epistemic[right], ".", alpha=0.4, label=label)
    if not right.all():
        ax.plot(
            parts.aleatoric[~right], parts.epistemic[~right], "x", color="tab:red", label="wrong"
        )
    ax.set(xlabel="aleatoric uncertainty (nats)", ylabel="epistemic uncertainty (nats)")
    ax.legend(frameon=False)
    return ax


def _heights(count: int) -> np.ndarray:
    return np.linspace(0, 1, count) if count > 1 else np.array([0.5])
