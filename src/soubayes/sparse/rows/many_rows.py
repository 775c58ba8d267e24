"""The choice on many rows: both ends of one path, scored without holding rows out.

With far more rows than columns the loss of new rows is the loss of the fitted rows plus the degrees
of freedom, and one path gives a dense and a sparse fit: where it begins, at confidence 1, and where
it is reported. The rows are read no further time, so streams choose as arrays do.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import norm

from soubayes.sparse.choice.race import PATH, Choice
from soubayes.sparse.choice.scoring import predictive_weights
from soubayes.sparse.constants import CLASSES_POWER
from soubayes.sparse.designs.standardise import ColumnUnits
from soubayes.sparse.posterior import Component, Mixture, SparsePoint
from soubayes.sparse.rows.path import PathRows, RowOutcome
from soubayes.sparse.rows.report import row_sparse_point

Array = np.ndarray


class End(NamedTuple):
    """A fit at one end of a path."""

    label: str
    component: Component
    loss: float  # of the fitted rows at the posterior mean
    degrees: float  # of freedom
    effective: float  # sum_j (1 - kappa_j)


def choose_ends(
    each_rows: Sequence[PathRows], back: Array, units: ColumnUnits, solved: Sequence[Any]
) -> list[Choice] | None:
    """A mixture of both ends of the path of every target, where there is a path."""
    if any(one.outcome.first is None for one in solved):
        return None
    return [
        mix_ends(_ends(rows, one.outcome, one.points[0], back, units), rows.n)
        for rows, one in zip(each_rows, solved, strict=True)
    ]


def _ends(
    rows: PathRows, outcome: RowOutcome, point: SparsePoint, back: Array, units: ColumnUnits
) -> list[End]:
    """The sparse point, and where its path began."""
    assert outcome.first is not None
    begin = outcome._replace(fit=outcome.first)
    first = row_sparse_point(begin, units, back, point.solver)
    return [
        End(
            PATH.name,
            point.component,
            rows.loss(outcome.fit),
            degrees_of_freedom(point.shrinkage, point.confidence),
            point.effective,
        ),
        End(
            "confidence 1",
            first.component,
            rows.loss(outcome.first),
            degrees_of_freedom(first.shrinkage),
            first.effective,
        ),
    ]


def degrees_of_freedom(shrinkage: Array, threshold: float = 1.0) -> float:
    """Of coefficients with these shrinkage factors kappa, 1 where dropped, and of an intercept.

    At confidence gamma the estimate is z - gamma/z where z^2 > gamma and 0 elsewhere. That is
    continuous, so Stein's formula gives the sum of the slopes, 1 + gamma/z^2 = 1 + kappa. A
    support that was searched with a ``threshold`` t^2 and refitted at confidence 1 jumps there by
    t - 1/t, which a null column does with the density 2 phi(t).

    >>> degrees_of_freedom(np.array([0.25, 1.0, 1.0]))
    2.25
    """
    kept = shrinkage < 1.0
    t = math.sqrt(max(threshold, 1.0))
    jumps = 2.0 * float(norm.pdf(t)) * (t - 1.0 / t) * int((~kept).sum())
    return 1.0 + float(np.sum(1.0 + shrinkage[kept])) + jumps


def mix_ends(ends: list[End], n: float) -> Choice:
    """The mixture of the ends; ``n`` is the sum of the weights."""
    # the loss of as many new rows exceeds that of the fitted ones by the degrees of freedom
    cost = np.array([end.loss + end.degrees for end in ends])
    weights = predictive_weights(-cost[None], CLASSES_POWER)
    parts = tuple(
        replace(end.component, weight=float(weight), candidate=end.label)
        for end, weight in zip(ends, weights, strict=True)
        if weight > 0.0
    )
    unknown = np.full(len(ends), np.nan)
    table = {
        "candidate": [end.label for end in ends],
        "prior": [""] * len(ends),
        "confidence_local": unknown,
        "confidence_coef": unknown,
        "score": -cost,
        "score_se": unknown,
        "error": cost / n,
        "mixture_error": np.full(len(ends), float(weights @ cost) / n),  # at most, by convexity
        "weight": weights,
        "effective_columns": [end.effective for end in ends],
        "inflation": np.ones(len(ends)),
        "coverage": unknown,
        "coverage_recalibrated": unknown,
    }
    gap = float(cost[0] - weights @ cost) / n, np.nan
    return Choice(
        Mixture(parts), pd.DataFrame(table), None, "log loss", gap, "new rows, by an estimate,"
    )
