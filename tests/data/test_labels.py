"""Targets that are no classes are refused by every classifier."""

import numpy as np
import pytest

from soubayes import (
    SoULogisticRegression,
    SoUNetClassifier,
    SoUNetEnsemble,
    SoUOrdinalRegression,
)
from soubayes.data.rows import check_labels

ROWS = 60
X = np.random.default_rng(0).normal(size=(ROWS, 3))
CLASSIFIERS = {
    "logistic": SoULogisticRegression(),
    "ordinal": SoUOrdinalRegression(),
    "network": SoUNetClassifier(),
    "ensemble": SoUNetEnsemble(SoUNetClassifier()),
}
TARGETS = {
    "numbers": X[:, 0],
    "names": np.array([f"row {i}" for i in range(ROWS)]),
    "pairs": np.arange(ROWS) // 2,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_class_for_each_row_or_two_is_refused_and_regressors_are_named(name, target):
    with pytest.raises(ValueError, match="SoULinearRegression"):
        CLASSIFIERS[name].fit(X, TARGETS[target])


@pytest.mark.parametrize(
    "y", [np.arange(20), np.arange(60) // 3, np.array(["a", "b"] * 30), np.arange(60.0) % 2]
)
def test_labels_are_taken(y):
    check_labels(y)
