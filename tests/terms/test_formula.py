"""formula: one line is the same as a list of terms."""

import numpy as np
import pandas as pd
import pytest

from soubayes import SoULinearRegression, SoUPoissonRegression, from_formula


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    found = pd.DataFrame({"x": rng.normal(size=80), "k": rng.choice(list("ab"), 80)})
    return found.assign(y=np.exp(found["x"] + 0.1 * rng.normal(size=80)))


def test_a_formula_is_its_list_of_terms(frame):
    model = from_formula("log(y) ~ s(x) + k + s(x):k", frame, SoULinearRegression(choice="path"))
    other = SoULinearRegression(terms=["s(x)", "k", "s(x):k"], choice="path")
    other.fit(frame[["x", "k"]], np.log(frame["y"]))
    np.testing.assert_array_equal(model.predict(frame), other.predict(frame))


def test_other_estimators_and_all_other_columns(frame):
    counts = frame.assign(y=np.random.default_rng(1).poisson(frame["y"]))
    model = from_formula("y ~ . + (1 | k)", counts, SoUPoissonRegression(choice="path"))
    assert model.terms == ["curves", "(1 | k)"]
    assert list(model.summary().index) == ["s(x)", "(1 | k)"]


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("s(x) + k", "must have a response"),
        ("z ~ x", "no such column"),
        ("exp(y) ~ x", "only log, log1p, sqrt"),
        ("log(x) ~ k", "not a finite number"),
        ("y ~ s(w)", "no column 'w'"),
    ],
)
def test_errors_are_one_sentence(frame, formula, reason):
    with pytest.raises(ValueError, match=reason):
        from_formula(formula, frame)
