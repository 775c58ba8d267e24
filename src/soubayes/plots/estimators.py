"""Figures of a fitted sparse estimator; each returns the matplotlib Axes (extra ``plot``)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from soubayes._optional import require
from soubayes._types import Axes, Estimator, Label, Matrix
from soubayes.results import LEVEL
from soubayes.sparse.constants import SET_LEVEL

MOST_NAMED = 40  # columns on an axis


def plot_path(
    estimator: Estimator, *, standardised: bool = True, target: int = 0, ax: Axes | None = None
) -> Axes:
    r"""Draw the coefficients along the confidence path.

    Parameters
    ----------
    estimator : fitted estimator
        One with a path: :class:`SoULinearRegression`, :class:`SoULogisticRegression`,
        :class:`SoUGeneralizedRegression` or :class:`SoUNormalMeans`.
    standardised : bool, default=True
        Whether coefficients are those of columns with standard deviation 1 (and, in linear
        regression, of a target with standard deviation 1), so they can be compared.
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
    The path raises :math:`\gamma_\beta` of section 4.2 of [1]_ from 1; a column leaves where its
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
    report = estimator.report()
    coef = report.each(estimator.sparse_.path_coef_)[target].to_numpy()
    coef = coef / report.units[target] if standardised else coef
    for j in np.flatnonzero(~selected & (coef != 0).any(axis=0)):
        ax.plot(table["gamma"], coef[:, j], color="0.75", lw=0.8, zorder=1)
    at = int(np.argmax(table["chosen"]))
    kept = np.flatnonzero(selected)
    kept = kept[np.argsort(-coef[at, kept], kind="stable")]
    names = report.features
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
    ax.set_ylabel("standardised coefficient" if standardised else "coefficient")
    ticks = [t for t in (1, 1.5, 2, 3, 5, 8, 12, 20, 30) if t <= table["gamma"].max() * 1.01]
    ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
    ax.minorticks_off()
    return ax


def plot_coefficients(
    estimator: Estimator,
    *,
    level: float = LEVEL,
    standardised: bool = True,
    most: int = 30,
    target: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw medians and intervals of the coefficients: a forest plot.

    Parameters
    ----------
    estimator : fitted estimator
        A sparse one, such as :class:`SoULinearRegression`, or its ``sparse_``.
    level : float, default=0.9
        Level of the intervals.
    standardised : bool, default=True
        Whether coefficients are those of columns with standard deviation 1 (and, in linear
        regression, of a target with standard deviation 1), so they can be compared.
    most : int, default=30
        How many columns are drawn: those with the largest standardised medians.
    target : int, default=0
        Which target, or which class against the rest.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        The numbers of ``estimator.summary(level)``, the largest at the top. Columns that the sparse
        point does not keep are grey.

    See Also
    --------
    plot_path : Coefficients along the path.

    Notes
    -----
    The intervals are those of the posterior that the label of the axis names. Those of the sparse
    point (``estimator.sparse_``) take the selected columns as given.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from soubayes import SoULinearRegression
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10)
    >>> model = SoULinearRegression().fit(data.X, data.y)
    >>> plot_coefficients(model, most=12).get_xlabel()
    'standardised coefficient, full model'
    """
    table = estimator.summary(level)
    shown = f"coefficient, {table.columns.name.split(',')[0]}"
    report = estimator.report()
    if not report.single:
        table = table.loc[report.targets[target]]
    units = report.units[target]
    order = np.argsort(-np.abs(table["median"] / units), kind="stable")[:most]
    part, scale = table.iloc[order], units[order] if standardised else np.ones(len(order))
    ax = _axes(ax, (6.4, 1.2 + 0.27 * len(part)))
    place = np.arange(len(part))
    lower, median, upper = (part[key].to_numpy() / scale for key in ("lower", "median", "upper"))
    ax.axvline(0.0, color="0.7", lw=1, zorder=1)
    kept = part["selected"].to_numpy()
    for mask, colour in ((kept, "C0"), (~kept, "0.6")):
        ax.hlines(place[mask], lower[mask], upper[mask], color=colour, lw=2, zorder=2)
        ax.plot(median[mask], place[mask], "o", color=colour, ms=5, zorder=3)
    ax.set_yticks(place, [_short(str(name)) for name in part.index], parse_math=False)
    ax.set_ylim(len(part) - 0.5, -0.5)
    ax.set_xlabel(f"standardised {shown}" if standardised else shown)
    return ax


def plot_confidences(estimator: Estimator, *, target: int = 0, ax: Axes | None = None) -> Axes:
    r"""Draw the held-out score of every candidate, from sparse to dense.

    Parameters
    ----------
    estimator : SoULinearRegression or SoULogisticRegression
        Fitted with confidences chosen by prediction, so it has ``candidates_``.
    target : int, default=0
        Which target, or which class against the rest.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ax : matplotlib.axes.Axes
        A row for each candidate, the sparsest at the top: its held-out log score behind the best,
        with a standard error. The area of a mark is the weight of the candidate in the mixture.

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
    'held-out log score, behind the best'
    """
    check_is_fitted(estimator)
    tables = getattr(estimator, "candidates_", None)
    if tables is None:
        raise ValueError(
            f"this {type(estimator).__name__} has no candidates_, because its confidences were not "
            "chosen by prediction; fit with choice='prediction' and a cv."
        )
    table = tables[target] if isinstance(tables, list) else tables
    table = table[np.isfinite(table["effective_columns"])].sort_values("effective_columns")
    ax = _axes(ax, (6.4, 1.2 + 0.45 * len(table)))
    place = np.arange(len(table))
    behind = table["score"] - table["score"].max()
    ax.errorbar(behind, place, xerr=table["score_se"], fmt="none", ecolor="0.75", zorder=1)
    ax.scatter(behind, place, 20.0 + 300.0 * table["weight"], zorder=2)
    names = [
        f"{row['candidate']}\n{row['effective_columns']:.3g} columns, weight {row['weight']:.2f}"
        for _, row in table.iterrows()
    ]
    ax.set_yticks(place, names, fontsize=8)
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlabel("held-out log score, behind the best")
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
        Inclusion probabilities of the columns in their order. Up to 40 columns are named on the
        axis, beyond that the first column of every set.

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
    names, sets = estimator.report().features, supports.credible_sets(level)
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
    named = range(len(inside)) if len(inside) <= MOST_NAMED else [one.columns[0] for one in sets]
    labels = [_short(str(names[j])) for j in named]
    ax.set_xticks(list(named), labels, rotation=90, fontsize=8, parse_math=False)
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
    names, kept = estimator.report().features, np.flatnonzero(estimator.selected_).tolist()
    numbers = [j for j in kept if feature in (j, names[j])]
    if not numbers:
        raise ValueError(
            f"{feature!r} is not a selected column; selected are {', '.join(names[kept])}."
        )
    j = numbers[0]
    found = estimator.schoenfeld_residuals(X, y, strata=strata, clock=clock)
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
    table = estimator.report().each(point.path_)[target]
    selected = np.atleast_2d(point.selected_)[target]
    return table, selected, float(np.atleast_1d(point.confidence_coef_)[target])


def _short(name: str, most: int = 24) -> str:
    half = most // 2
    return name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}"


def _axes(ax: Any, size: tuple[float, float] | None = None) -> Any:
    if ax is not None:
        return ax
    return require("matplotlib.pyplot", "plotting").subplots(figsize=size, layout="constrained")[1]
