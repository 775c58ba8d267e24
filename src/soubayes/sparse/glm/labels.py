"""Labels of rows that are walked in blocks: which classes there are, and what they weigh."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from soubayes.data.streams import RowBlock, RowSource
from soubayes.sparse.designs.moments import Gathered, GatherPlan, gather_block, join

Array = np.ndarray


class Labels(NamedTuple):
    """The classes of positive weight, with the number and the weight of their rows."""

    names: Array
    rows: Array
    weight: Array


class Survey(NamedTuple):
    """What the first pass of a classifier finds."""

    gathered: Gathered
    labels: Labels
    weights: dict[Any, float] | None  # of the classes


def survey(rows: RowSource, class_weight: Any, keep: int) -> Survey:
    """Classes and column statistics; a second pass where the weights depend on the classes.

    Fewer rows than ``keep`` are kept as rows.
    """
    plan = GatherPlan(_no_targets, keep=keep)
    found = rows.reduce(partial(_survey_block, plan, None), partial(_join_surveys, plan))
    if class_weight is None or found.gathered.statistics is None:
        return found
    weights = class_weights(class_weight, found.labels)
    return rows.reduce(partial(_survey_block, plan, weights), partial(_join_surveys, plan))


def class_weights(class_weight: Any, labels: Labels) -> dict[Any, float]:
    """scikit-learn's weight of every class."""
    if class_weight == "balanced":
        balanced = labels.rows.sum() / (len(labels.names) * labels.rows)
        return dict(zip(labels.names.tolist(), balanced.tolist(), strict=True))
    values = compute_class_weight(class_weight, classes=labels.names, y=labels.names)
    return dict(zip(labels.names.tolist(), values.tolist(), strict=True))


def weigh_block(weights: dict[Any, float] | None, block: RowBlock) -> Array:
    """The weights of a block's rows, those of their classes included."""
    weight = np.ones(len(block.y)) if block.weight is None else block.weight
    if weights is None:
        return weight
    names, place = np.unique(block.y, return_inverse=True)
    return weight * np.array([weights[name] for name in names.tolist()])[place.ravel()]


def _survey_block(plan: GatherPlan, weights: dict[Any, float] | None, block: RowBlock) -> Survey:
    check_classification_targets(block.y)
    weight = weigh_block(weights, block)
    names, place, rows = np.unique(block.y, return_inverse=True, return_counts=True)
    labels = Labels(names, rows, np.bincount(place.ravel(), weight, len(names)))
    gathered = gather_block(plan, RowBlock(block.X, block.y, weight))
    return Survey(gathered, labels, weights)


def _join_surveys(plan: GatherPlan, a: Survey, b: Survey) -> Survey:
    names = np.union1d(a.labels.names, b.labels.names)
    rows, weight = np.zeros(len(names), int), np.zeros(len(names))
    for labels in (a.labels, b.labels):
        place = np.searchsorted(names, labels.names)
        rows[place] += labels.rows
        weight[place] += labels.weight
    gathered = join(plan, a.gathered, b.gathered)
    return Survey(gathered, Labels(names, rows, weight), a.weights)


def _no_targets(y: Array) -> Array:
    return np.zeros((len(y), 0))
