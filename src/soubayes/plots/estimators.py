"""Figures of a fitted sparse estimator; each returns the matplotlib Axes (extra ``plot``)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from soubayes._optional import require
from soubayes._types import Axes, Estimator, Label, Matrix
from soubayes.sparse.inclusion.supports import SET_LEVEL


def plot_path(estimator: Estimator, *, target: int = 0, ax: Axes | None = None) -> Axes:
    r"""Draw the coefficients along the confidence path.

    Parameters
    ----------
    estimator : fitted estimator
        One with a path: :class:`SoULinearRegression`, :class:`SoULogisticRegression`,
        :class:`SoUGeneralizedRegression` or :class:`SoUNormalMeans`.
    target : int, default=0
        Which target, or which class against the rest.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Coefficients against ``confidence_coef``, with the reported point marked. Columns kept there
        are coloured and, up to ten, named in the order of their size.

    Notes
    -----
    Coefficients are standardised, in units of sd(y) / sd(x), where the estimator knows these. The
    path raises :math:`\gamma_\beta` of section 4.2 of [1]_ from 1; a column leaves where its
    :math:`z_j^2` falls below it.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from soubayes import SoULinearRegression
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10)
    >>> plot_path(SoULinearRegression().fit(data.X, data.y)).get_xscale()
    'log'
    """
    table, selected, gamma = _of_target(estimator, target)
    ax = _axes(ax)
    units = getattr(estimator, "_coef_units", None)
    frames = estimator.sparse_.path_coef_
    coef = (frames if estimator._single else frames[target]).to_numpy()
    coef = coef if units is None else coef / units[target]
    for j in np.flatnonzero(~selected & (coef != 0).any(axis=0)):
        ax.plot(table["gamma"], coef[:, j], color="0.75", lw=0.8, zorder=1)
    at = int(np.argmax(table["chosen"]))
    kept = np.flatnonzero(selected)
    kept = kept[np.argsort(-coef[at, kept], kind="stable")]
    names = estimator._feature_names()
    for j in kept:
        ax.plot(table["gamma"], coef[:, j], lw=1.4, zorder=2, label=_short(str(names[j])))
    if 0 < len(kept) <= 10:
        ax.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.margins(y=0.1)  # room for the number of columns
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
    ax.set_ylabel("coefficient" if units is None else "standardised coefficient")
    ticks = [t for t in (1, 1.5, 2, 3, 5, 8, 12, 20, 30) if t <= table["gamma"].max() * 1.01]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    return ax


def plot_confidences(estimator: Estimator, *, target: int = 0, ax: Axes | None = None) -> Axes:
    r"""Draw the held-out score of every candidate, from sparse to dense.

    Parameters
    ----------
    estimator : SoULinearRegression or SoULogisticRegression
        Fitted with confidences chosen by prediction, so that it has ``candidates_``.
    target : int, default=0
        Which target, or which class against the rest.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Scores against the effective number of columns. The size of a mark is the weight of its
        candidate in the mixture.

    Notes
    -----
    The weight of a candidate is proportional to :math:`\exp(c S)`, with S its summed log score of
    the held-out rows and c = 1/4 (regression) or 1/10 (classification). With c = 1 these are the
    pseudo-BMA weights of [1]_.

    References
    ----------
    .. [1] Y. Yao, A. Vehtari, D. Simpson and A. Gelman (2018), "Using stacking to average Bayesian
       predictive distributions", Bayesian Analysis 13.

    Examples
    --------
    >>> from soubayes import SoULinearRegression
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10)
    >>> plot_confidences(SoULinearRegression().fit(data.X, data.y)).get_xlabel()
    'effective number of columns (sparse to dense)'
    """
    check_is_fitted(estimator)
    tables = getattr(estimator, "candidates_", None)
    if tables is None:
        raise ValueError(
            f"this {type(estimator).__name__} has no candidates_, because its confidences were not "
            "chosen by prediction; fit with choice='prediction' and a cv."
        )
    table = tables[target] if isinstance(tables, list) else tables
    ax = _axes(ax)
    table = table[np.isfinite(table["effective_columns"])]
    behind = table["score"] - table["score"].max()
    size = table["effective_columns"]
    columns = (size, behind, table["weight"], table["candidate"])
    ax.errorbar(size, behind, table["score_se"], fmt="none", ecolor="0.8", zorder=1)
    for i, (x, y, w, label) in enumerate(zip(*columns, strict=True)):
        ax.scatter(x, y, 20.0 + 300.0 * w, color=f"C{i}", zorder=2, label=f"{label}: {w:.2f}")
    legend = ax.legend(
        title="candidate: weight",
        fontsize=8,
        title_fontsize=8,
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    for handle in legend.legend_handles:
        handle.set_sizes([30.0])  # type: ignore[union-attr]
    ax.set_xscale("symlog", linthresh=1.0)
    ticks = [t for t in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if t <= 1.5 * size.max()]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.set_xlim(right=1.6 * size.max())  # room for the largest mark
    ax.minorticks_off()
    ax.set_xlabel("effective number of columns (sparse to dense)")
    ax.set_ylabel("held-out log score, behind the best")
    return ax


def plot_credible_sets(
    estimator: Estimator, *, level: float = SET_LEVEL, target: int = 0, ax: Axes | None = None
) -> Axes:
    """Draw the inclusion probability of every column, with the credible sets coloured.

    Parameters
    ----------
    estimator : SoULinearRegression, SoULogisticRegression or SoUGeneralizedRegression
        Fitted with ``inclusion=True``.
    level : float, default=0.95
        Level of the credible sets.
    target : int, default=0
        Which target, or which class against the rest.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Inclusion probabilities against the numbers of the columns.

    Notes
    -----
    The posterior over supports is that of a spike and slab; it is approximated by a product of
    single effects as in SuSiE [1]_.

    References
    ----------
    .. [1] G. Wang, A. Sarkar, P. Carbonetto and M. Stephens (2020), "A simple new approach to
       variable selection in regression, with application to genetic fine mapping", Journal of the
       Royal Statistical Society B 82.

    Examples
    --------
    >>> from soubayes import SoULinearRegression
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10)
    >>> model = SoULinearRegression(choice="path", inclusion=True).fit(data.X, data.y)
    >>> plot_credible_sets(model).get_ylabel()
    'inclusion probability'
    """
    check_is_fitted(estimator)
    supports = estimator.supports_.posteriors[target]
    names, sets = estimator._feature_names(), supports.credible_sets(level)
    ax = _axes(ax)
    inside = np.zeros(len(supports.probability), bool)
    for i, one in enumerate(sets):
        inside[one.columns] = True
        label = f"{i + 1}: {_short(str(names[one.columns[0]]))}"
        if len(one.columns) > 1:
            label += f" and {len(one.columns) - 1} alike"
        mark, colour = "osD^v"[i // 10 % 5], f"C{i % 10}"
        shown = supports.probability[one.columns]
        ax.plot(one.columns, shown, mark, ms=6, color=colour, label=label, zorder=3)
    rest = np.flatnonzero(~inside)
    ax.plot(rest, supports.probability[rest], ".", color="0.6", ms=4, zorder=2)
    if 0 < len(sets) <= 20:
        legend = ax.legend(
            title=f"{level:.0%} credible sets",
            fontsize=8,
            title_fontsize=8,
            frameon=False,
            loc="center left",
            bbox_to_anchor=(1.0, 0.5),
        )
        for text in legend.get_texts():
            text.set_parse_math(False)  # names of columns: a $ in them is a $
    ax.set_ylim(-0.03, 1.05)
    ax.set_xlabel("column" if sets else f"column (no {level:.0%} credible set)")
    ax.set_ylabel("inclusion probability")
    return ax


def plot_shrinkage(estimator: Estimator, *, target: int = 0, ax: Axes | None = None) -> Axes:
    r"""Draw the shrinkage factors of all columns, sorted.

    Parameters
    ----------
    estimator : fitted estimator
        A sparse one, such as :class:`SoULinearRegression` or :class:`SoUNormalMeans`.
    target : int, default=0
        Which target, or which class against the rest.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        The factors from small to large: 0 keeps a coefficient, 1 removes it.

    Notes
    -----
    The factor of a normal mean is :math:`\kappa_i = 1 / (1 + m \tau_i^2 \nu^2 / \sigma^2)` with m
    replicates (section 4.1 of [1]_). In regression it is the share of the prior in the posterior
    precision of the coefficient.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from soubayes import SoUNormalMeans
    >>> Y = np.random.default_rng(0).normal(size=(25, 4)) + 9.0 * (np.arange(25) < 5)[:, None]
    >>> plot_shrinkage(SoUNormalMeans().fit(Y)).get_ylabel()
    'shrinkage factor $\\kappa_j$'
    """
    _, selected, _ = _of_target(estimator, target)
    kappa = np.atleast_2d(estimator.sparse_.shrinkage_)[target]
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


def plot_hazards(
    estimator: Estimator,
    X: Matrix,
    y: Any,
    feature: Label,
    *,
    strata: ArrayLike | None = None,
    clock: str = "km",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw how the effect of a column changes with time.

    Parameters
    ----------
    estimator : SoUCoxRegression
        A fitted survival model.
    X : array-like of shape (n, p)
        The training rows.
    y : structured array, DataFrame or tuple
        Their times and events.
    feature : str or int
        The name or the number of a selected column.
    strata : array-like of shape (n,), optional
        The strata of the rows.
    clock : {"km", "rank", "log", "identity"}, default="km"
        The transform of time on the horizontal axis.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        Scaled Schoenfeld residuals against time, their running mean, and the coefficient of the
        sparse point. Under proportional hazards the mean stays at the coefficient.

    See Also
    --------
    SoUCoxRegression.check_hazards : A test for every column.

    Notes
    -----
    The residual of an event is its x minus the mean of its risk set, times the inverse information
    of an average event, plus the coefficient. At time t its mean is about :math:`\beta(t)` [1]_.

    References
    ----------
    .. [1] P. M. Grambsch and T. M. Therneau (1994), "Proportional hazards tests and diagnostics
       based on weighted residuals", Biometrika 81.

    Examples
    --------
    >>> import numpy as np
    >>> from soubayes import SoUCoxRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = np.ones(100, bool), rng.exponential(np.exp(-X[:, 0]))
    >>> model = SoUCoxRegression(choice="path").fit(X, y)
    >>> plot_hazards(model, X, y, 0).get_ylabel()
    'effect of x0'
    """
    check_is_fitted(estimator)
    names, kept = estimator._feature_names(), np.flatnonzero(estimator.selected_).tolist()
    numbers = [j for j in kept if feature in (j, names[j])]
    if not numbers:
        raise ValueError(
            f"{feature!r} is not a selected column; selected are {', '.join(names[kept])}."
        )
    j = numbers[0]
    found = estimator._schoenfeld(X, y, strata=strata, clock=clock)
    ax = _axes(ax)
    order = np.argsort(found.clock, kind="stable")
    at, effect = found.clock[order], found.scaled[order, kept.index(j)]
    ax.plot(at, effect, ".", color="0.7", ms=4)
    window = max(len(at) // 8, 5)
    if len(at) >= window:
        mean = np.convolve(effect, np.full(window, 1.0 / window), mode="valid")
        middle = np.convolve(at, np.full(window, 1.0 / window), mode="valid")
        ax.plot(middle, mean, color="C0", label="running mean")
    ax.axhline(estimator.sparse_.coef_[j], color="C1", ls="--", label="coefficient")
    words = {"km": "1 - survival", "rank": "rank of time", "log": "log time", "identity": "time"}
    ax.set(xlabel=words[clock], ylabel=f"effect of {names[j]}")
    ax.legend()
    return ax


def _of_target(estimator: Any, target: int) -> tuple[Any, np.ndarray, float]:
    check_is_fitted(estimator)
    point = estimator.sparse_
    table = point.path_ if estimator._single else point.path_[target]
    selected = np.atleast_2d(point.selected_)[target]
    return table, selected, float(np.atleast_1d(point.confidence_coef_)[target])


def _short(name: str, most: int = 24) -> str:
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    return require("matplotlib.pyplot", "plotting").subplots(layout="constrained")[1]
