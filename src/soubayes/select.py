"""Choosing confidences by how well what was held out is predicted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone, is_classifier

from soubayes._optional import require
from soubayes._types import Axes, Estimator, Splitter
from soubayes.data.rows import check_row_labels
from soubayes.progress import progress_line
from soubayes.results import Printable, Shown
from soubayes.sparse.choice.folds import check_folds, check_groups, make_folds
from soubayes.sparse.choice.scoring import predictive_weights

if TYPE_CHECKING:
    from soubayes.blackbox.mixture import MixturePosterior
    from soubayes.blackbox.posterior import SoUPosterior

Score = str | Callable[..., ArrayLike]
ETA = "eta:"  # before the name of a block in a grid: its feedback


def select_confidence(
    model: Callable | Estimator,
    data: Sequence[ArrayLike],
    grid: Mapping[str, Sequence[float]],
    score: Score = "elpd",
    *,
    cv: int | Splitter = 5,
    groups: ArrayLike | None = None,
    rule: str = "best",
    random_state: int = 0,
    progress: bool = False,
    **settings: Any,
) -> "Selection":
    r"""Choose confidences by cross-validation over a grid, and refit at the best.

    Parameters
    ----------
    model : callable or estimator
        A NumPyro model, which is fitted by :func:`fit`, or an unfitted estimator of this library.
    data : sequence
        The arguments of the model, or (X, y). Arrays as long as the last one are split by rows, and
        these rows are scored: of several tables, put the one that you want to predict last. A
        NumPyro model must draw its latent sites alike for any number of rows.
    grid : mapping of str to sequence of float
        The confidences to try: names of blocks for a NumPyro model, parameters ``confidence_*`` for
        an estimator. Several names make a product. ``"eta:block"`` is the feedback of a block of a
        NumPyro model to the earlier ones (``eta`` of :func:`fit`).
    score : {"elpd", "cv"} or callable, default="elpd"
        ``"elpd"`` is the mean log predictive density of a held-out row. ``"cv"`` is minus its mean
        expected loss (for an estimator its own ``score``). A function ``score(fitted, *held_out)``
        returns a number, or one for each row. Larger is better.
    cv : int or splitter, default=5
        Number of folds, or a scikit-learn splitter.
    groups : array-like, optional
        Which rows belong together; folds hold out whole groups.
    rule : {"best", "one_se", "mixture"}, default="best"
        ``"one_se"`` takes the largest confidences within one standard error of the best score.
        ``"mixture"``, for a NumPyro model with ``score="elpd"``, returns a
        :class:`MixturePosterior` of all points.
    random_state : int, default=0
        Seed of the folds and fits.
    progress : bool, default=False
        Whether to show how far it is.
    **settings : object
        Passed on to :func:`fit`.

    Returns
    -------
    selection : Selection
        The scores, the chosen point, and the fit to all data there.

    Notes
    -----
    Every row is scored once, by a fit that has not seen it. The two scores are

    .. math:: \log E_q\,p(y_i \mid \theta) \quad\text{and}\quad -E_q[L_i],

    the second of which is the expected loss of section 3 of [1]_. WAIC and PSIS-LOO are not
    offered, because they are derived for all confidences 1.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> import numpy as np
    >>> from soubayes import SoULinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 4))
    >>> y = X[:, 0] + rng.normal(size=40)
    >>> grid = {"confidence_coef": [1.0, 4.0]}
    >>> chosen = select_confidence(SoULinearRegression(), (X, y), grid, cv=2)
    >>> list(chosen.table)
    ['confidence_coef', 'score', 'standard_error']
    >>> bool(chosen.fitted.selected_[0])
    True
    """
    if rule not in ("best", "one_se", "mixture"):
        raise ValueError(f"rule is {rule!r}, but it must be 'best', 'one_se' or 'mixture'.")
    if rule == "mixture" and (isinstance(model, BaseEstimator) or score != "elpd"):
        raise ValueError(
            "rule='mixture' is for NumPyro models with score='elpd', whose weights come from the "
            "density of held-out rows. The estimators of this library mix by themselves."
        )
    check_folds(cv)
    if not grid or any(len(values) == 0 for values in grid.values()):
        raise ValueError("grid must name at least one confidence, each with at least one value.")
    names = {f"data[{i}]": part for i, part in enumerate(data)}
    check_row_labels({**names, "groups": groups})
    engine: _Engine
    if isinstance(model, BaseEstimator):
        engine = _EstimatorEngine(model, data, grid, score, settings)
    else:
        engine = _NumPyroEngine(
            model, data, grid, score, {"random_state": random_state, **settings}
        )
    target = np.asarray(data[-1]) if engine.stratified else np.zeros(len(np.asarray(data[-1])))
    labels = check_groups(groups, target)
    folds = make_folds(cv, target, labels, engine.stratified, 0)
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    by_row: list[np.ndarray] = []
    with progress_line("select_confidence: point", len(points), progress) as line:
        for point in points:
            parts = [np.ravel(np.asarray(engine.held_out(point, *fold), float)) for fold in folds]
            several = len(parts[0]) > 1
            by_row.append(np.concatenate(parts) if several else np.array([p.mean() for p in parts]))
            line(len(by_row), f"score {by_row[-1].mean():.4f} at {point}")
    scores = [float(rows.mean()) for rows in by_row]
    errors = [float(rows.std(ddof=1) / np.sqrt(len(rows))) for rows in by_row]
    if not np.any(np.isfinite(scores)):
        raise ValueError("no point of the grid has a finite score. Check the data and the score.")
    columns = {name: [point[name] for point in points] for name in grid}
    table = pd.DataFrame({**columns, "score": scores, "standard_error": errors})
    best = points[_choose(table, list(grid), rule)]
    if rule == "mixture":
        table, best, mixed = _mixed(engine, points, np.stack(by_row, axis=1), table)
        return Selection(table, best, mixed, rule)
    return Selection(table, best, engine.fit(best, None), rule)


def _mixed(
    engine: "_Engine", points: list[dict[str, float]], scores: np.ndarray, table: pd.DataFrame
) -> tuple[pd.DataFrame, dict[str, float], Any]:
    """The table with weights, the point of the largest one, and the mixture of the fits."""
    from soubayes.blackbox.mixture import MixturePosterior

    weights = predictive_weights(np.where(np.isfinite(scores), scores, -1e6))
    kept = np.flatnonzero(weights)
    fits = tuple(engine.fit(points[k], None) for k in kept)
    best = points[int(np.argmax(weights))]
    return table.assign(weight=weights), best, MixturePosterior(weights[kept], fits)


@dataclass(frozen=True, repr=False)
class Selection(Printable):
    """Scores along a grid of confidences, and the fit at the chosen point.

    Parameters
    ----------
    table : pandas.DataFrame
        A column for each confidence, ``score`` and ``standard_error``, and ``weight`` for a
        mixture.
    best : dict of str to float
        The chosen point.
    fitted : posterior or estimator
        The fit to all data at the chosen point, or the mixture.
    rule : str
        How the point was chosen.

    See Also
    --------
    select_confidence : Makes it.

    Notes
    -----
    The score is the mean over rows that were held out; its standard error treats rows as
    independent [1]_.

    References
    ----------
    .. [1] A. Vehtari, A. Gelman and J. Gabry (2017), "Practical Bayesian model evaluation using
       leave-one-out cross-validation and WAIC", Statistics and Computing 27.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"gamma": [0.1, 1.0], "score": [-1.2, -1.0], "standard_error": 0.1})
    >>> Selection(table, {"gamma": 1.0}, None, "best").best
    {'gamma': 1.0}
    """

    table: pd.DataFrame
    best: dict[str, float]
    fitted: "SoUPosterior | MixturePosterior | Estimator | None"
    rule: str

    def _shown(self) -> Shown:
        best = ", ".join(f"{name} = {value:g}" for name, value in self.best.items())
        return [f"Selection({best}; rule {self.rule!r})", self.table]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the score with its standard error along the first confidence.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ax : matplotlib.axes.Axes
            One line for each combination of the other confidences.
        """
        pyplot = require("matplotlib.pyplot", "Selection.plot")
        ax = pyplot.subplots()[1] if ax is None else ax
        first, *others = list(self.best)
        rest = list(zip(*(self.table[name] for name in others), strict=True))
        rest = rest or [()] * len(self.table)
        values = np.unique(self.table[first])
        logarithmic = values[0] > 0 and values[-1] > 10 * values[0]
        lines = list(dict.fromkeys(rest))
        for i, point in enumerate(lines):
            rows = np.array([r == point for r in rest])
            label = ", ".join(f"{n} = {v:g}" for n, v in zip(others, point, strict=True)) or None
            score, error = self.table["score"][rows], self.table["standard_error"][rows]
            # side by side, so the bars can be told apart
            shift = (i - (len(lines) - 1) / 2) * 0.02
            at = self.table[first][rows]
            at = (
                at * (values[-1] / values[0]) ** shift
                if logarithmic
                else at + shift * np.ptp(values)
            )
            ax.errorbar(at, score, error, marker="o", capsize=3, label=label)
        ax.axvline(self.best[first], color="0.6", linestyle="--", zorder=0, label="chosen")
        if logarithmic:
            ax.set_xscale("log")
        if len(values) <= 8:
            ax.set_xticks(values, [f"{v:g}" for v in values])
            ax.set_xticks([], minor=True)
        kind = "feedback" if first.startswith(ETA) else "confidence"
        ax.set_xlabel(f"{kind} {first.removeprefix('confidence_').removeprefix(ETA)}")
        ax.set_ylabel("held-out score ± standard error")
        ax.legend()
        return ax


class _Engine:
    """Fits at a point of the grid and scores rows that the fit has not seen."""

    stratified = False

    def fit(self, point: dict[str, float], rows: Any) -> Any:
        raise NotImplementedError

    def held_out(self, point: dict[str, float], train: Any, test: Any) -> ArrayLike:
        raise NotImplementedError


class _EstimatorEngine(_Engine):
    def __init__(self, estimator: Any, data: Any, grid: Any, score: Score, settings: Any) -> None:
        allowed = [name for name in estimator.get_params() if name.startswith("confidence_")]
        unknown = [name for name in grid if name not in allowed]
        if unknown:
            raise ValueError(
                f"grid names {unknown}, but this estimator's confidences are {allowed}."
            )
        if settings:
            raise ValueError(
                f"settings {list(settings)} are for NumPyro models; set them on the estimator."
            )
        if len(data) != 2:
            raise ValueError(f"data has {len(data)} parts, but an estimator needs (X, y).")
        _check_score(score)
        self.estimator, self.data, self.score = estimator, data, score
        self.stratified = is_classifier(estimator)

    def fit(self, point: dict[str, float], rows: Any) -> Any:
        X, y = self.data if rows is None else [_rows(part, rows) for part in self.data]
        return clone(self.estimator).set_params(**point).fit(X, y)

    def held_out(self, point: dict[str, float], train: Any, test: Any) -> ArrayLike:
        fitted = self.fit(point, train)
        X, y = (_rows(part, test) for part in self.data)
        if callable(self.score):
            return self.score(fitted, X, y)
        if self.score == "cv":
            return fitted.score(X, y)
        if self.stratified:
            column = np.searchsorted(fitted.classes_, np.asarray(y))
            return np.log(
                np.maximum(fitted.predict_proba(X)[np.arange(len(column)), column], 1e-300)
            )
        mean, sd = fitted.predict(X, return_std=True)
        return -0.5 * (np.log(2 * np.pi * sd**2) + ((np.asarray(y) - mean) / sd) ** 2)


def _rows(part: Any, rows: Any) -> Any:
    """Some rows of a data frame, an array, a sparse matrix or a list."""
    if hasattr(part, "iloc"):
        return part.iloc[rows]
    return part[rows] if hasattr(part, "shape") else np.asarray(part)[rows]


class _NumPyroEngine(_Engine):
    def __init__(self, model: Any, data: Any, grid: Any, score: Score, settings: Any) -> None:
        if not callable(model):
            raise TypeError(
                f"model is {model!r}, but it must be a NumPyro model (a function) or an unfitted "
                "scikit-learn estimator."
            )
        fixed = {*(settings.get("confidence") or {}), *(ETA + n for n in settings.get("eta") or {})}
        clash = [name for name in grid if name in fixed]
        if clash:
            raise ValueError(f"{clash} are both in grid and in confidence or eta.")
        _check_score(score)
        if score != "cv" and settings.get("loss") is not None and not callable(score):
            raise ValueError(
                "score='elpd' needs a likelihood; with loss= give a function as score."
            )
        self.model, self.data, self.score, self.settings = model, data, score, settings
        self.rest = dict(settings.pop("confidence", None) or {})
        self.rest |= {ETA + name: eta for name, eta in (settings.pop("eta", None) or {}).items()}

    def _part(self, rows: Any) -> list[Any]:
        return [np.asarray(part)[rows] if self._is_split(part) else part for part in self.data]

    def _is_split(self, part: Any) -> bool:
        return np.ndim(part) > 0 and len(part) == len(self.data[-1])

    def fit(self, point: dict[str, float], rows: Any) -> Any:
        from soubayes.blackbox.variational import fit

        part = self.data if rows is None else self._part(rows)
        numbers = {**self.rest, **point}
        confidence = {name: x for name, x in numbers.items() if not name.startswith(ETA)}
        eta = {n.removeprefix(ETA): x for n, x in numbers.items() if n.startswith(ETA)}
        return fit(self.model, *part, confidence=confidence, eta=eta or None, **self.settings)

    def held_out(self, point: dict[str, float], train: Any, test: Any) -> ArrayLike:
        fitted, part = self.fit(point, train), self._part(test)
        if callable(self.score):
            return self.score(fitted, *part)
        whole = [len(x) for x in self.data if np.ndim(x) > 0 and not self._is_split(x)]
        if len(test) in whole:
            raise ValueError(
                f"{len(test)} rows are held out, and a table that is not split has as many, so its "
                "scores cannot be told apart. Use another cv, or give a function as score."
            )
        found = fitted.log_likelihood(*part)
        pointwise = [
            v.reshape(len(v), len(test), -1).sum(axis=2)
            for v in found.values()
            if v.shape[1:2] == (len(test),)  # other tables were seen by the fit
        ]
        if not pointwise:
            shapes = {name: v.shape[1:] for name, v in found.items()}
            raise ValueError(
                f"no observed site has one value for each of the {len(test)} held-out rows; their "
                f"shapes are {shapes}. Give a function as score."
            )
        log_p = np.sum(pointwise, axis=0)  # (draw, row)
        if self.score == "cv":
            return log_p.mean(axis=0)
        return np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p))


def _check_score(score: Score) -> None:
    if not callable(score) and score not in ("elpd", "cv"):
        raise ValueError(f"score is {score!r}, but it must be 'elpd', 'cv' or a function.")


def _choose(table: pd.DataFrame, names: list[str], rule: str) -> int:
    score = np.where(np.isfinite(table["score"]), table["score"], -np.inf)
    best = int(np.argmax(score))
    if rule != "one_se":
        return best
    near = np.flatnonzero(score >= score[best] - table["standard_error"][best])
    size = sum(np.log(np.maximum(table[name][near], 1e-300)) for name in names)
    return int(near[np.argmax(size)])
