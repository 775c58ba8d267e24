"""What a page needs to predict a row that its reader enters: the posteriors of some columns.

A row is a base (the mean of the data, or a row of a table) with changes d in the columns that can
be edited. Of a normal posterior with mean b and covariance S its predictor x'beta then has

    mean x_r'b + d'b,   variance x_r'S x_r + 2 d'S x_r + d'S d,

which need b and S of the edited columns, and two numbers and S x_r of every base. So the page
predicts what ``predict`` does, however many columns there are. A softmax model of several classes
has a predictor for each of its coordinates, and covariances between them.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import validate_data

from soubayes.pages import number
from soubayes.sparse.designs.standardise import as_dense
from soubayes.sparse.estimators.cox import SoUCoxRegression
from soubayes.sparse.estimators.linear import SoULinearRegression
from soubayes.sparse.estimators.response import ResponseEstimator
from soubayes.sparse.likelihoods.base import HERMITE_NODES, HERMITE_WEIGHTS
from soubayes.sparse.likelihoods.bernoulli import PROBIT_SCALES, PROBIT_WEIGHTS
from soubayes.sparse.likelihoods.gamma import Gamma
from soubayes.sparse.likelihoods.negative_binomial import NegativeBinomial
from soubayes.sparse.likelihoods.ordinal import Ordinal
from soubayes.sparse.likelihoods.poisson import Poisson
from soubayes.sparse.likelihoods.softmax import class_basis, normal_nodes
from soubayes.sparse.posterior import Mixture, centred, scale_share
from soubayes.sparse.rows.classes import JointClasses, ProductClasses
from soubayes.sparse.survival.hazard import DRAWS

Array = np.ndarray
Categories = Mapping[str, Mapping[str, str]]  # label -> its column of 0 and 1, "" of the reference

MOST_COLUMNS = 40  # that can be edited
MOST_ROWS = 100  # to pick from
MOST_NUMBERS = 40_000  # of covariances, and as many of rows: 430 kB each in base 64


def what_if_data(
    estimator: Any, X: Any = None, categories: Categories | None = None
) -> dict[str, Any] | None:
    """Everything the page predicts from; None for a likelihood that the page does not know.

    ``X`` are rows to pick from; columns of 0 and 1 in ``categories`` are chosen from together.
    """
    kind = _kind(estimator)
    if kind is None:
        return None
    views = [("mixture", estimator)] if hasattr(estimator, "candidates_") else []
    views.append(("sparse point", estimator.sparse_))
    mixtures = [_mixtures(each) for _, each in views]
    shapes = sum(len({_key(part) for part in m.components}) for own in mixtures for m in own)
    size = int(np.atleast_2d(mixtures[0][0].mean.T).shape[0])  # coordinates of a predictor
    columns = _edited(estimator, int(np.sqrt(MOST_NUMBERS / shapes) / size))
    numbers = shapes * len(columns) * size**2 + (2 * DRAWS if kind["kind"] == "risk" else 0)
    names, rows = _rows(estimator, X, MOST_NUMBERS // numbers)
    report = estimator.report()
    edited = report.features[columns]
    return {
        **kind,
        "columns": [str(name) for name in edited],
        "categories": _chosen_together(categories or {}, edited),
        "others": len(report.means) - len(columns),
        "size": size,
        "steps": _steps(estimator, columns),
        "rows": names,
        "values": packed(rows[:, columns]),
        "views": [
            {
                "name": name,
                "targets": [_target(estimator, m, columns, rows) for m in own],
                "curves": _curves(view, columns, rows),
            }
            for (name, view), own in zip(views, mixtures, strict=True)
        ],
    }


def _chosen_together(categories: Categories, columns: Array) -> list[dict[str, Any]]:
    """Categories whose columns can all be edited: labels, and the column of each (-1: none)."""
    place = {str(name): k for k, name in enumerate(columns)} | {"": -1}
    return [
        {"name": name, "labels": list(levels), "columns": [place[each] for each in levels.values()]}
        for name, levels in categories.items()
        if set(levels.values()) <= set(place)
    ]


def packed(values: Any) -> str:
    """Numbers to the last digit: float64, little end first, in base 64.

    >>> packed([1.0])
    'AAAAAAAA8D8='
    """
    return base64.b64encode(np.ascontiguousarray(values, "<f8").tobytes()).decode()


def _kind(estimator: Any) -> dict[str, Any] | None:
    """Which predictive distribution it is, with the constants of its formulas."""
    classes = [str(label) for label in getattr(estimator, "classes_", [])]
    probits = {"weights": packed(PROBIT_WEIGHTS), "points": packed(PROBIT_SCALES)}
    if (joint := estimator.report().classes) is not None:
        points, weights = normal_nodes(len(classes) - 1, False)
        basis = class_basis(len(classes))[joint.rank]
        nodes = {"weights": packed(weights), "points": packed(points), "basis": packed(basis)}
        return {"kind": "softmax", "classes": classes, **nodes}
    likelihood = getattr(estimator.sparse_, "likelihood_", None)
    if isinstance(likelihood, Ordinal):
        return {"kind": "ordered", "classes": classes, **probits}
    if classes:
        return {"kind": "odds", "classes": classes, **probits}
    if isinstance(estimator, SoUCoxRegression):
        return {"kind": "risk"}
    if isinstance(estimator, SoULinearRegression):
        return {"kind": "number"}
    known: dict[Any, str] = {
        Poisson: "poisson",
        NegativeBinomial: "negative binomial",
        Gamma: "gamma",
    }
    if type(likelihood) not in known:
        return None
    nodes = {"weights": packed(HERMITE_WEIGHTS), "points": packed(HERMITE_NODES)}
    return {"kind": known[type(likelihood)], **nodes}


def _mixtures(estimator: Any) -> list[Mixture]:
    """One for each target, or the one of all classes."""
    whole = estimator.report().classes
    return estimator.mixtures_ if whole is None else [whole.mixture]


def _edited(estimator: Any, most: int) -> Array:
    """The columns that matter most in any target, of the mixture or the sparse point."""
    both = [np.abs(np.atleast_2d(each.coef_)) for each in (estimator, estimator.sparse_)]
    size = (np.maximum(*both) / estimator.report().units).max(axis=0)
    return np.argsort(-size, kind="stable")[: max(1, min(most, MOST_COLUMNS))]


def _rows(estimator: Any, X: Any, most: int) -> tuple[list[str], Array]:
    """Names and values of the bases; the first is the mean of the data."""
    # a few digits of the means: the row is what its fields show. Rounding leaves a centred column
    # with a mean of some 1e-17, which is shown as 0
    means = estimator.report().means
    steps = _steps(estimator, np.arange(len(means)))
    pairs = zip(means, steps, strict=True)
    mean = [float(f"{x:.5g}") if abs(x) > 1e-6 * step else 0.0 for x, step in pairs]
    names, values = ["mean of the data"], np.array([mean])
    if X is None:
        return names, values
    index = X.index if isinstance(X, pd.DataFrame) else range(X.shape[0])
    X = validate_data(estimator, X, reset=False, accept_sparse=["csr"], dtype=np.float64)
    dense = as_dense(X[: min(most, MOST_ROWS)])
    return names + [f"row {name}" for name in index[: len(dense)]], np.vstack([values, dense])


def _steps(estimator: Any, columns: Array) -> list[float]:
    """Of the inputs: a power of ten below half the standard deviation of a column, about."""
    unit = 1.0 / estimator.report().units[0][columns]
    if isinstance(estimator, SoULinearRegression):  # its units have sd(y), at least that of noise
        unit = unit * np.sqrt(np.atleast_1d(estimator.noise_variance_)[0])
    return [float(10.0 ** np.floor(np.log10(x / 2.0))) if x > 0.0 else 1.0 for x in unit]


def _target(estimator: Any, mixture: Mixture, columns: Array, rows: Array) -> dict[str, Any]:
    """The components of a mixture, at the edited columns and at the bases."""
    bases = centred(rows, estimator.report().means, mixture)
    edits = np.zeros((len(columns), bases.shape[1]))
    edits[np.arange(len(columns)), columns] = 1.0
    shapes = {_key(part): part.posterior for part in mixture.components}
    place = {key: k for k, key in enumerate(shapes)}
    return {
        "power": mixture.power,
        "widen": mixture.widen,
        "shapes": [_shape(q, edits, bases) for q in shapes.values()],
        "parts": [
            {
                "shape": place[_key(part)],
                "weight": part.weight,
                "noise": part.noise,
                "inflation": part.inflation,
                "share": float(scale_share(np.asarray(part.noise_degrees))),
                "degrees": number(part.predictive_degrees),
                "coef": packed(edits @ part.posterior.mean),
                "mean": packed(bases @ part.posterior.mean),
                **_nuisance(estimator, part.likelihood),
            }
            for part in mixture.components
        ],
    }


def _curves(view: Any, columns: Array, rows: Array) -> dict[str, Any] | None:
    """The draws behind survival curves, at the quartiles of the event times; of one stratum."""
    if not isinstance(view, SoUCoxRegression) or len(view.strata_) > 1:
        return None
    times = np.quantile(view.event_times_, [0.25, 0.5, 0.75])
    baseline, coef = view.curve_draws()
    return {
        "times": times.tolist(),
        "expected": packed(baseline.at(times, 0, baseline.expected)),
        "drawn": packed(baseline.at(times, 0, baseline.drawn)),
        "coef": packed(coef[:, columns]),
        "base": packed((rows - view.report().means) @ coef.T),
    }


def _key(part: Any) -> int:
    """Components along a path share their covariance."""
    return id(getattr(part.posterior, "variance", part.posterior))


def _shape(q: Any, edits: Array, bases: Array) -> dict[str, str]:
    """S of the edited columns, S x of the bases, and x'S x."""
    inside, across = _times(q, edits), _times(q, bases)
    return {
        "inside": packed(np.einsum("ijab,kj->iakb", inside, edits)),
        "across": packed(np.einsum("rjab,kj->rkab", across, edits)),
        "base": packed(np.einsum("rjab,rj->rab", across, bases)),
    }


def _times(q: Any, X: Array) -> Array:
    """(rows, columns, d, d): S x, with S (columns, d, columns, d)."""
    if isinstance(q, ProductClasses):
        return np.stack([part.times(X) for part in q.parts], axis=2)[..., None] * np.eye(
            len(q.parts)
        )
    if not isinstance(q, JointClasses):
        return q.times(X)[:, :, None, None]
    rows = X * q.scale
    found = (rows[:, :, None] * q.variance)[..., None] * np.eye(q.variance.shape[1])
    inside = np.einsum("ni,iajb->njba", rows[:, q.active], q.covariance)
    found[:, q.active] = inside
    return found * q.scale[:, None, None]


def _nuisance(estimator: Any, likelihood: Any) -> dict[str, Any]:
    """Values of a nuisance parameter with their weights, or the cuts between ordered classes."""
    if not isinstance(estimator, ResponseEstimator):
        return {}
    own: Any = estimator.sparse_.likelihood_ if likelihood is None else likelihood.plain
    if isinstance(own, Ordinal):
        return {"cuts": packed(own.cut_mean), "cut_variances": packed(own.cut_variance)}
    if isinstance(own, Poisson):
        return {"variance": [1.0, 0.0]}
    if isinstance(own, NegativeBinomial):
        logs, weights = own.dispersion.nodes
        return {
            "variance": [1.0, own.dispersion.moment(1.0)],  # mu + a mu^2
            "values": packed(np.exp(-logs)),
            "value_weights": packed(weights),
        }
    logs, weights = own.shape.nodes
    return {
        "variance": [0.0, own.shape.moment(-1.0)],  # mu^2/k
        "values": packed(np.exp(logs)),
        "value_weights": packed(weights),
    }
