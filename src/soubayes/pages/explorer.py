"""What the explorer shows of a fitted estimator: the path, the dial, held-out predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from soubayes.pages import number, render
from soubayes.pages.what_if import Categories, what_if_data
from soubayes.results import LEVEL
from soubayes.sparse.constants import PRESENCE, SET_LEVEL
from soubayes.sparse.estimators.logistic import SoULogisticRegression
from soubayes.sparse.posterior import Component, Mixture

Array = np.ndarray

MOST_POINTS = 1500  # held-out rows that are drawn
PROBABILITY_BINS = 10  # of predicted probabilities
LEVELS = np.arange(5, 100, 5) / 100.0
MOST_OTHERS = 10_000  # never selected columns that can be looked up
LOOKUP_DIGITS = 5  # digits of numbers that are only looked up
SMALL_LOCAL = 1e-6  # confidence in the local scales below which a column is free or zero
TABLE = ("estimate", "median", "lower", "upper")
SET_COLUMNS = ("probability", "least correlation", "effect of one sd")
CODE = "model = {estimator}.fit(X, y)\n"


def explorer_page(
    estimator: Any,
    *,
    title: str = "",
    notes: Iterable[str] = (),
    code: str = CODE,
    fitted: str = "model",
    level: float = LEVEL,
    X: Any = None,
    categories: Categories | None = None,
) -> str:
    """The explorer of a fitted estimator as one HTML page.

    ``code`` is Python that fits ``{estimator}``, after which it is named ``fitted``; ``notes`` are
    sentences about the data; ``X`` are rows that can be picked and changed, ``categories`` their
    columns of 0 and 1 that are chosen from together.
    """
    return render(
        "explorer.html",
        "to_html",
        title=title or f"{type(estimator).__name__}: explorer",
        notes=list(notes),
        data=explorer_data(estimator, code, fitted, level)
        | {"what_if": what_if_data(estimator, X, categories)},
    )


def explorer_data(
    estimator: Any, code: str = CODE, fitted: str = "model", level: float = LEVEL
) -> dict[str, Any]:
    """The numbers of the page, ready for JSON, but those of What if."""
    check_is_fitted(estimator)
    report = estimator.report()
    write = _Code(estimator, code, fitted)
    return {
        "estimator": type(estimator).__name__,
        "fitted": fitted,
        "level": level,
        "targets": [
            {"name": "" if report.single else str(name), **_target(estimator, t, level, write)}
            for t, name in enumerate(report.targets)
        ],
        "sets": _credible_sets(estimator),
        "confusion": _confusion(estimator),
    }


class _Code:
    """Python that gives the numbers that are shown."""

    def __init__(self, estimator: Any, code: str, fitted: str) -> None:
        self.estimator, self.code, self.fitted = estimator, code, fitted

    def __call__(self, **changes: Any) -> str:
        new = clone(self.estimator).set_params(**changes)
        text = new.__repr__(N_CHAR_MAX=100_000).replace("array(", "np.array(")
        first = "import numpy as np\n" if "np.array(" in text else ""
        first += f"from soubayes import {type(new).__name__}\n"
        return first + self.code.replace("{estimator}", text)

    def summary(self, view: str = "") -> str:
        """The coefficients of a posterior."""
        return f"{self()}\nprint({self.fitted}{view}.summary())\n"

    def table(self) -> str:
        """The candidates with their scores."""
        return f"{self()}\nprint({self.fitted}.candidates_)\n"

    def point(self, k: int, target: int) -> str:
        """A point is a row of the path: a fit at its confidence alone could keep other columns."""
        which = "" if self.estimator.report().single else f"[{target}]"
        return (
            f"{self()}\npath = {self.fitted}.sparse_.path_{which}.loc[{k}]\n"
            f"coef = {self.fitted}.sparse_.path_coef_{which}.loc[{k}]\n"
            f"coef_sd = {self.fitted}.sparse_.path_coef_sd_{which}.loc[{k}]\n"
            'print(path["gamma"], path["intercept"], coef[coef != 0], sep="\\n")\n'
        )

    def candidate(self, label: str, target: int) -> str:
        """A candidate is a part of the mixture."""
        return (
            f"{self()}\nmixture = {self.fitted}.mixtures_[{target}]\n"
            f"parts = [part for part in mixture.components if part.candidate == {label!r}]\n"
            "total = sum(part.weight for part in parts)\n"
            "coef = sum(part.weight * part.posterior.mean for part in parts) / total\n"
            f"coef = coef[: {self.fitted}.n_features_in_]\n"
        )


def _target(estimator: Any, t: int, level: float, write: _Code) -> dict[str, Any]:
    path = _PathFrames.of(estimator.sparse_, t)
    selected = np.atleast_2d(estimator.selected_)[t]
    ever = path.selected.any(axis=0) | selected
    report, mixture = estimator.report(), estimator.mixtures_[t]
    units = report.units[t]
    rest = np.flatnonzero(~ever)
    rest = rest[np.argsort(-np.abs(mixture.mean[rest] / units[rest]), kind="stable")]
    kept, rest = np.flatnonzero(ever), rest[:MOST_OTHERS]
    names = [str(name) for name in report.features]
    chosen = hasattr(estimator, "candidates_")
    said = getattr(estimator, "sparsity_", "")
    found: dict[str, Any] = {
        "columns": [names[j] for j in kept],
        "units": _numbers(units[kept]),
        "total": len(selected),
        "says": str(said[t] if isinstance(said, list) else said),
        "inclusion": _inclusion(estimator, t, kept),
        "sparse": _posterior(estimator.sparse_, t, kept, level)
        | {
            "selected": [bool(x) for x in selected[kept]],
            "gamma": number(float(np.atleast_1d(estimator.sparse_.confidence_coef_)[t])),
            "refitted": estimator.confidence_coef == "auto",
            "code": write.summary(".sparse_" if chosen else ""),
        },
        "mixture": None,
        "path": _path(estimator, path, kept, t, level, write),
        "dial": _dial(estimator, t, kept, level, write) if chosen else None,
        "held": _held_out(estimator, t),
        "others": {
            "columns": [names[j] for j in rest],
            "units": _numbers(units[rest], LOOKUP_DIGITS),
            "inclusion": _inclusion(estimator, t, rest),
        },
    }
    if chosen:
        own = _posterior(estimator, t, np.append(kept, rest), level)
        cut = {key: own[key][: len(kept)] for key in TABLE}
        found["mixture"] = own | cut | {"code": write.summary()}
        found["others"] |= {key: _numbers(own[key][len(kept) :], LOOKUP_DIGITS) for key in TABLE}
    return found


def _posterior(estimator: Any, t: int, columns: Array, level: float) -> dict[str, Any]:
    """What ``summary`` says, and the intercept with its interval."""
    q, x_mean = estimator.mixtures_[t], estimator.report().means
    ends = np.array([0.5 - level / 2.0, 0.5, 0.5 + level / 2.0])
    lower, median, upper = q.coefficient_quantiles(ends, len(x_mean))
    each = (q.mean, median, lower, upper)
    found = {key: _numbers(part[columns]) for key, part in zip(TABLE, each, strict=True)}
    if len(q.mean) == len(x_mean):
        return {**found, "intercept": None}
    at_zero = np.append(-x_mean, 1.0)[None]
    lower, median, upper = q.predictor_quantiles(at_zero, ends)[0]
    return {**found, "intercept": _numbers([(at_zero @ q.mean)[0], median, lower, upper])}


def _inclusion(estimator: Any, t: int, columns: Array) -> list[float | None] | None:
    if not hasattr(estimator, "supports_"):
        return None
    return _numbers(estimator.supports_.posteriors[t].probability[columns])


def _credible_sets(estimator: Any) -> dict[str, Any] | None:
    """Which columns could take each other's place, a row for each set."""
    if not hasattr(estimator, "supports_"):
        return None
    supports, least = estimator.supports_, f"{PRESENCE:.0%}"
    frame = supports.credible_sets().reset_index()
    several = ["target"] if "target" in frame else []
    said = (
        "One column of each set carries an effect, with the probability shown; the columns of a "
        f"set look alike. Effects that are less than {least} probable have no set. The effect is "
        "that of one standard deviation of the column."
    )
    if supports.groups is not None:
        said = (
            "Each column or category carries an effect, with the probability shown. Effects that "
            f"are less than {least} probable are not listed. The effect is that of one standard "
            "deviation of the column; a category with several columns has one for each of them."
        )
    if not len(frame):
        said = f"No column or group of columns carries an effect that is {least} probable."
    settled = "" if supports.converged else " Its probabilities had not settled."
    ends = [f"{end} {SET_LEVEL:.0%}" for end in ("lower", "upper")]
    shown = ["probability", "purity", "effect", "lower", "upper"]
    return {
        "says": f"{said} The numbers are of the posterior over supports, supports_.{settled}",
        "columns": ["columns", *several, *SET_COLUMNS, *ends],
        "rows": [
            [", ".join(row["features"]), *map(str, row[several]), *_numbers(row[shown], 5)]
            for _, row in frame.iterrows()
        ],
    }


def _confusion(estimator: Any) -> dict[str, Any] | None:
    """How many held-out rows of each class were predicted to be of each."""
    if not isinstance(estimator, SoULogisticRegression) or not hasattr(estimator, "out_of_fold_"):
        return None
    count, report = len(estimator.classes_), estimator.report()
    tables = report.each(estimator.out_of_fold_)
    held = tables[0]["fold"] >= 0
    truth, chance = (np.stack([each[k][held] for each in tables], axis=1) for k in ("y", "mean"))
    if report.single:
        truth, chance = (np.hstack([1.0 - part, part]) for part in (truth, chance))
    place = truth.argmax(axis=1) * count + chance.argmax(axis=1)
    counts = np.bincount(place, minlength=count**2).reshape(count, count)
    return {"classes": [str(name) for name in estimator.classes_], "counts": counts.tolist()}


class _PathFrames(NamedTuple):
    """The path of a target: the table of its points, and (points, p) arrays."""

    table: pd.DataFrame
    coef: Array
    coef_sd: Array

    @classmethod
    def of(cls, estimator: Any, t: int) -> Self:
        """One target of a fitted estimator."""
        frames = (estimator.path_, estimator.path_coef_, estimator.path_coef_sd_)
        table, coef, sd = (estimator.report().each(frame)[t] for frame in frames)
        return cls(table, coef.to_numpy(), sd.to_numpy())

    @property
    def selected(self) -> Array:
        """A dropped column has the coefficient 0 and no standard deviation."""
        return (self.coef != 0.0) | np.isfinite(self.coef_sd)


def _path(
    estimator: Any, points: _PathFrames, kept: Array, t: int, level: float, write: _Code
) -> dict[str, Any]:
    """Every point; coefficients and half widths are lists for each column that is ever selected."""
    path = points.table
    degrees = path["degrees"] if "degrees" in path else np.full(len(path), np.inf)
    half = points.coef_sd * stats.t.ppf(0.5 + level / 2.0, degrees)[:, None]
    noise = np.sqrt(path["noise_variance"]) if "noise_variance" in path else None
    return {
        "gamma": _numbers(path["gamma"]),
        "chosen": int(np.argmax(path["chosen"])),
        "count": path["n_selected"].tolist(),
        "value": _numbers(path["value"]),
        "intercept": _numbers(path["intercept"]),
        "noise": None if noise is None else _numbers(noise),
        "selected": points.selected[:, kept].T.astype(int).tolist(),
        "coef": [_numbers(column) for column in points.coef[:, kept].T],
        "half": [_numbers(column) for column in half[:, kept].T],
        "reading": _reading(estimator, path["gamma"].to_numpy(), np.asarray(degrees)),
        "code": [write.point(k, t) for k in range(len(path))],
    }


def _reading(estimator: Any, gamma: Array, degrees: Array) -> dict[str, Any] | None:
    """The confidences of a path as thresholds of |t|, and how often a null column passes them.

    For a vanishing confidence in the local scales a column stays where z^2 > gamma (section 4.2);
    coefficients that share a scale (a group, or the classes of one softmax model) where the sum of
    q^2 exceeds gamma times that of s, z^2 = q^2/s: a mean of z^2. Otherwise there is no threshold.
    """
    local = estimator.confidence_local
    blocks = getattr(estimator, "feature_blocks", None)
    if (local != "auto" and local > SMALL_LOCAL) or blocks is not None:
        return None
    shared, what, report = 1, "columns whose |t|", estimator.report()
    if report.classes is not None:
        shared, what = len(estimator.classes_) - 1, "columns whose root mean square t over classes"
    elif report.grouped:
        what = "columns whose |t|, or groups of columns whose root mean square t"
    # that mean of a column without an effect is F-distributed; with 1 and many degrees it is t^2
    chance = stats.f.sf(gamma, shared, np.minimum(degrees, 1e9))
    return {
        "what": what,
        "threshold": _numbers(np.sqrt(gamma), LOOKUP_DIGITS),
        "chance": _numbers(chance, LOOKUP_DIGITS),
    }


def _dial(estimator: Any, t: int, kept: Array, level: float, write: _Code) -> dict[str, Any]:
    """Candidates by falling local confidence."""
    report = estimator.report()
    table = report.each(estimator.candidates_)[t]
    local = table["confidence_local"]  # NaN: the path, which is the sparse end
    order = np.argsort(np.where(np.isnan(local), 0.0, -local), kind="stable")
    parts = estimator.mixtures_[t].components
    points = [[part for part in parts if part.candidate == table["candidate"][k]] for k in order]
    own = [_of_parts(each, kept, len(report.means), level) for each in points]
    dial = {name: _numbers(table[name][order]) for name in ("score", "score_se", "error", "weight")}
    return {
        **dial,
        "label": [str(table["candidate"][k]) for k in order],
        "local": _numbers(table["confidence_local"][order]),
        "coefficients": _numbers(table["confidence_coef"][order]),
        "columns": _numbers(table["effective_columns"][order]),
        "coverage": _numbers(table["coverage_recalibrated"][order]),
        "error_name": report.each(estimator.sparsity_)[t].measure,
        "mixture_error": number(float(np.nanmin(table["mixture_error"][_widest(table)]))),
        **{key: [each and _numbers(each[k]) for each in own] for k, key in enumerate(TABLE)},
        "code": [
            _candidate_code(table, int(k), t, bool(each), write)
            for k, each in zip(order, points, strict=True)
        ],
    }


def _widest(table: Any) -> Array:
    """The candidates that were not left behind: their errors are on all rows that were held out."""
    inside = np.isfinite(table["score"])
    return inside if inside.any() else np.isfinite(table["error"])


def _candidate_code(table: Any, k: int, t: int, fitted: bool, write: _Code) -> str:
    if fitted:
        return write.candidate(str(table["candidate"][k]), t)
    local = float(table["confidence_local"][k])
    if np.isnan(local):
        return write(choice="path")
    if np.isinf(local):
        return write.table()  # no parameters say this point
    return write(
        prior=str(table["prior"][k]),
        priors={"global": "horseshoe"},
        confidence_local=local,
        confidence_coef=float(table["confidence_coef"][k]),
    )


def _of_parts(
    parts: Sequence[Component], kept: Array, p: int, level: float
) -> tuple[Array, ...] | None:
    """Mean, median and interval of a candidate's coefficients; None if it was left behind."""
    total = sum(part.weight for part in parts)
    if not total:
        return None
    own = Mixture(tuple(replace(part, weight=part.weight / total) for part in parts))
    ends = np.array([0.5, 0.5 - level / 2.0, 0.5 + level / 2.0])
    return own.mean[kept], *own.coefficient_quantiles(ends, p)[:, kept]


def _held_out(estimator: Any, t: int) -> dict[str, Any] | None:
    """Out-of-fold predictions of the mixture, and how well their probabilities hold."""
    if not hasattr(estimator, "out_of_fold_"):
        return None
    report = estimator.report()
    table = report.each(estimator.out_of_fold_)[t]
    if "y" not in table:  # survival times: log risks have no intervals to check
        return None
    rows = np.flatnonzero(table["fold"] >= 0)
    y, mean, sd = (table[name].to_numpy()[rows] for name in ("y", "mean", "sd"))
    classes = isinstance(estimator, SoULogisticRegression)
    names = [str(name) for name in estimator.classes_] if classes else []
    if classes and not report.single:
        names = ["other", names[t]]
    shown = np.arange(len(rows))
    if len(rows) > MOST_POINTS:
        shown = np.sort(np.random.default_rng(0).choice(len(rows), MOST_POINTS, replace=False))
    return {
        "rows": len(rows),
        "folds": int(table["fold"].max()) + 1,
        "classes": names,
        "y": _numbers(y[shown], 5),
        "mean": _numbers(mean[shown], 5),
        "calibration": _reliability(y, mean) if classes else _coverage(y, mean, sd),
    }


def _coverage(y: Array, mean: Array, sd: Array) -> dict[str, Any]:
    """The share of held-out rows inside the central interval of every level."""
    inside = np.abs(y - mean) / np.where(sd > 0, sd, np.inf)
    share = [float(np.mean(inside <= z)) for z in stats.norm.ppf(0.5 + LEVELS / 2.0)]
    return {"expected": _numbers(LEVELS), "observed": _numbers(np.array(share))}


def _reliability(y: Array, chance: Array) -> dict[str, Any]:
    """Bins of equal size by predicted probability: what was predicted, and how often it was so."""
    bins = np.array_split(np.argsort(chance, kind="stable"), min(PROBABILITY_BINS, len(y)))
    count = np.array([len(b) for b in bins])
    hits = np.array([y[b].sum() for b in bins])
    low, high = (stats.beta.ppf(q, hits + 0.5, count - hits + 0.5) for q in (0.05, 0.95))
    return {
        "expected": _numbers(np.array([chance[b].mean() for b in bins])),
        "observed": _numbers(hits / count),
        "lower": _numbers(low),
        "upper": _numbers(high),
    }


def _numbers(values: Any, digits: int = 9) -> list[float | None]:
    """For JSON: whole numbers short, what is not finite as None."""
    found = [number(float(value)) for value in np.asarray(values, float)]
    rounded = [x if x is None else float(f"{x:.{digits}g}") for x in found]
    return [int(x) if x is not None and x == int(x) and abs(x) < 1e15 else x for x in rounded]
