"""What the explorer shows of a fitted estimator: the path, the dial, held-out predictions."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from soubayes.pages import number, render
from soubayes.results import LEVEL
from soubayes.sparse.choice.mixture import Mixture
from soubayes.sparse.posterior import Component

Array = np.ndarray

MOST_POINTS = 1500  # held-out rows that are drawn
PROBABILITY_BINS = 10  # of predicted probabilities
LEVELS = np.arange(5, 100, 5) / 100.0


def explorer_page(
    estimator: Any,
    *,
    title: str = "",
    notes: Iterable[str] = (),
    code: str = "model = {estimator}.fit(X, y)\n",
    fitted: str = "model",
) -> str:
    """The explorer of a fitted estimator as one HTML page.

    ``code`` is Python that fits ``{estimator}``, after which it is named ``fitted``; ``notes`` are
    sentences about the data.
    """
    return render(
        "explorer.html",
        "to_html",
        title=title or f"{type(estimator).__name__}: explorer",
        notes=list(notes),
        data=explorer_data(estimator, code, fitted),
    )


def explorer_data(
    estimator: Any, code: str = "model = {estimator}.fit(X, y)\n", fitted: str = "model"
) -> dict[str, Any]:
    """All numbers of the page, ready for JSON; a target or class each."""
    check_is_fitted(estimator)
    several = not estimator._single
    write = _Code(estimator, code, fitted)
    return {
        "estimator": type(estimator).__name__,
        "level": LEVEL,
        "targets": [
            {"name": str(name) if several else "", **_target(estimator, t, write)}
            for t, name in enumerate(estimator._target_names())
        ],
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

    def point(self, k: int, target: int) -> str:
        """A point is a row of the path: a fit at its confidence alone could keep other columns."""
        which = "" if self.estimator._single else f"[{target}]"
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


def _target(estimator: Any, t: int, write: _Code) -> dict[str, Any]:
    path = _PathFrames.of(estimator.sparse_, t)
    selected = np.atleast_2d(estimator.selected_)[t]
    kept = np.flatnonzero(path.selected.any(axis=0) | selected)
    names = estimator._feature_names()
    return {
        "columns": [str(names[j]) for j in kept],
        "units": _numbers(estimator._coef_units[t][kept]),
        "total": len(selected),
        "reported": _reported(estimator, t, kept, selected, write),
        "path": _path(path, kept, t, write),
        "dial": _dial(estimator, t, kept, write),
        "held": _held_out(estimator, t),
    }


def _reported(estimator: Any, t: int, kept: Array, selected: Array, write: _Code) -> dict[str, Any]:
    """The sparse point of a target."""
    point = estimator.sparse_
    q, ends = point.mixtures_[t], np.array([0.5 - LEVEL / 2.0, 0.5 + LEVEL / 2.0])
    lower, upper = q.coefficient_quantiles(ends, len(selected))
    inclusion = None
    if hasattr(estimator, "supports_"):
        inclusion = _numbers(estimator.supports_.posteriors[t].probability[kept])
    said = getattr(estimator, "sparsity_", "")
    return {
        "gamma": number(float(np.atleast_1d(point.confidence_coef_)[t])),
        "estimate": _numbers(q.mean[kept]),
        "lower": _numbers(lower[kept]),
        "upper": _numbers(upper[kept]),
        "selected": [bool(x) for x in selected[kept]],
        "inclusion": inclusion,
        "says": str(said[t] if isinstance(said, list) else said),
        "code": write(),
    }


class _PathFrames(NamedTuple):
    """The path of a target: the table of its points, and (points, p) arrays."""

    table: pd.DataFrame
    coef: Array
    coef_sd: Array

    @classmethod
    def of(cls, estimator: Any, t: int) -> Self:
        """One target of a fitted estimator."""
        frames = (estimator.path_, estimator.path_coef_, estimator.path_coef_sd_)
        table, coef, sd = frames if estimator._single else (each[t] for each in frames)
        return cls(table, coef.to_numpy(), sd.to_numpy())

    @property
    def selected(self) -> Array:
        """A dropped column has the coefficient 0 and no standard deviation."""
        return (self.coef != 0.0) | np.isfinite(self.coef_sd)


def _path(points: _PathFrames, kept: Array, t: int, write: _Code) -> dict[str, Any]:
    """Every point; coefficients and half widths are lists a column, empty where never selected."""
    path = points.table
    degrees = path["degrees"] if "degrees" in path else np.full(len(path), np.inf)
    half = points.coef_sd * stats.t.ppf(0.5 + LEVEL / 2.0, degrees)[:, None]
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
        "code": [write.point(k, t) for k in range(len(path))],
    }


def _dial(estimator: Any, t: int, kept: Array, write: _Code) -> dict[str, Any] | None:
    """Candidates by falling local confidence, then the mixture; None if nothing was compared."""
    if not hasattr(estimator, "candidates_"):
        return None
    table = estimator.candidates_ if estimator._single else estimator.candidates_[t]
    local = table["confidence_local"]  # NaN: the path, which is the sparse end
    order = np.argsort(np.where(np.isfinite(local), -local, 0.0), kind="stable")
    parts = estimator.mixtures_[t].components
    points = [[part for part in parts if part.candidate == table["candidate"][k]] for k in order]
    mixed = [_spread(own, kept) for own in [*points, list(parts)]]
    dial = {name: _numbers(table[name][order]) for name in ("score", "score_se", "error", "weight")}
    return {
        **dial,
        "label": [str(table["candidate"][k]) for k in order] + ["mixture"],
        "local": _numbers(table["confidence_local"][order]),
        "coefficients": _numbers(table["confidence_coef"][order]),
        "columns": _numbers(table["effective_columns"][order]),
        "coverage": _numbers(table["coverage_recalibrated"][order]),
        "error_name": _first(estimator.sparsity_).measure,
        "mixture_error": number(float(np.nanmin(table["mixture_error"][_widest(table)]))),
        "estimate": [each and _numbers(each[0]) for each in mixed],
        "half": [each and _numbers(each[1]) for each in mixed],
        "code": [
            _candidate_code(table, int(k), t, bool(own), write)
            for k, own in zip(order, points, strict=True)
        ]
        + [write()],
    }


def _first(each: Any) -> Any:
    return each[0] if isinstance(each, list) else each


def _widest(table: Any) -> Array:
    """The candidates that were not left behind: their errors are on all rows that were held out."""
    inside = np.isfinite(table["score"])
    return inside if inside.any() else np.isfinite(table["error"])


def _candidate_code(table: Any, k: int, t: int, fitted: bool, write: _Code) -> str:
    if fitted:
        return write.candidate(str(table["candidate"][k]), t)
    if not np.isfinite(table["confidence_local"][k]):
        return write(choice="path")
    return write(
        prior=str(table["prior"][k]),
        prior_global="horseshoe",
        confidence_local=float(table["confidence_local"][k]),
        confidence_coef=float(table["confidence_coef"][k]),
    )


def _spread(parts: Sequence[Component], kept: Array) -> tuple[Array, Array] | None:
    """Means and half widths of the coefficients; None without a fit to all rows."""
    total = sum(part.weight for part in parts)
    if not total:
        return None
    own = Mixture(tuple(parts))
    mean = own.mean / total
    second = sum(p.weight * (p.posterior.sd**2 + p.posterior.mean**2) for p in parts) / total
    sd = np.sqrt(np.maximum(second - mean**2, 0.0))
    return mean[kept], stats.norm.ppf(0.5 + LEVEL / 2.0) * sd[kept]


def _held_out(estimator: Any, t: int) -> dict[str, Any] | None:
    """Out-of-fold predictions of the mixture, and how well their probabilities hold."""
    if not hasattr(estimator, "out_of_fold_"):
        return None
    table = estimator.out_of_fold_ if estimator._single else estimator.out_of_fold_[t]
    if "y" not in table:  # survival times: log risks have no intervals to check
        return None
    rows = np.flatnonzero(table["fold"] >= 0)
    y, mean, sd = (table[name].to_numpy()[rows] for name in ("y", "mean", "sd"))
    classes = hasattr(estimator, "classes_")
    shown = np.arange(len(rows))
    if len(rows) > MOST_POINTS:
        shown = np.sort(np.random.default_rng(0).choice(len(rows), MOST_POINTS, replace=False))
    return {
        "rows": len(rows),
        "folds": int(table["fold"].max()) + 1,
        "classes": classes,
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


def _numbers(values: Array, digits: int = 9) -> list[float | None]:
    """For JSON: whole numbers short, what is not finite as None."""
    found = [number(float(value)) for value in np.asarray(values, float)]
    rounded = [x if x is None else float(f"{x:.{digits}g}") for x in found]
    return [int(x) if x is not None and x == int(x) and abs(x) < 1e15 else x for x in rounded]
