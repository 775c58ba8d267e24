"""A warning names the line of the user's that led to it."""

import warnings

import numpy as np
import pytest

from soubayes import SoULinearRegression, SoULogisticRegression


@pytest.mark.parametrize("choice", ["prediction", "path"])
@pytest.mark.parametrize("kind", [SoULinearRegression, SoULogisticRegression])
def test_warnings_point_to_the_call_of_the_user(kind, choice):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    y = X[:, 0] + rng.normal(size=60)
    model = kind(choice=choice, max_iter=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(X, y > 0 if kind is SoULogisticRegression else y)
    assert seen
    assert {warning.filename for warning in seen} == {__file__}
