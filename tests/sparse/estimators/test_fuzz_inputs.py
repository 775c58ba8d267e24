"""Fits of what people pass by mistake: few rows, targets of another family, huge values, labels.

Every case ends within seconds of CPU time, in finite numbers or in an error of this library or of
scikit-learn's checks: an error that NumPy or SciPy raises far inside is a failure, and so is a
warning of theirs.
"""

import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning

import soubayes
from limits import within
from soubayes import (
    SoUCoxRegression,
    SoUGammaRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNegativeBinomialRegression,
    SoUOrdinalRegression,
    SoUPoissonRegression,
)

SECONDS = 30  # of CPU time; the slowest cases take 5
OURS = tuple(str(Path(module.__file__).parent) for module in (soubayes, sklearn))
MODELS = {
    "linear": SoULinearRegression(),
    "student": SoULinearRegression(noise="student"),
    "logistic": SoULogisticRegression(),
    "ordinal": SoUOrdinalRegression(),
    "poisson": SoUPoissonRegression(),
    "negative binomial": SoUNegativeBinomialRegression(),
    "gamma": SoUGammaRegression(),
    "cox": SoUCoxRegression(),
}
TARGETS = {
    "numbers": lambda rng, n: rng.normal(size=n),
    "positive": lambda rng, n: rng.lognormal(sigma=2.0, size=n),
    "counts": lambda rng, n: rng.poisson(3.0, n).astype(float),
    "classes": lambda rng, n: rng.integers(0, 3, n),
    "names": lambda rng, n: rng.choice(["a", "b", "c"], n),
    "two": lambda rng, n: rng.random(n) < 0.5,
    "constant": lambda rng, n: np.full(n, rng.choice([0.0, 1.0, 7.0])),
    "missing": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, 1.0 + rng.integers(0, 2, n)),
    "dates": lambda rng, n: pd.date_range("2020", periods=n).to_numpy(),
    "objects": lambda rng, n: np.array([None, *rng.choice([1, 2.5, "a"], n - 1)], object),
}
FITTING = {
    "linear": ["numbers"],
    "student": ["numbers"],
    "logistic": ["classes", "two", "names"],
    "ordinal": ["classes", "two"],
    "poisson": ["counts"],
    "negative binomial": ["counts"],
    "gamma": ["positive"],
    "cox": ["positive"],
}


@pytest.mark.parametrize("part", range(4))
def test_inputs(part):
    for number in range(25):
        attempt([part, number])


@pytest.mark.parametrize("seed", [(100, 19), (100, 86), (101, 6), (104, 51), (106, 51), (107, 37)])
def test_inputs_that_once_failed(seed):
    attempt(list(seed))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100, 120))
def test_many_inputs(part):
    for number in range(100):
        attempt([part, number])


def attempt(seed: list[int]) -> None:
    """One case: its kind decides what is wrong with it."""
    rng = np.random.default_rng(seed)
    name, kind = str(rng.choice(list(MODELS))), str(rng.choice(list(KINDS)))
    model = clone(MODELS[name]).set_params(choice=rng.choice(["path", "path", "prediction"]))
    if rng.random() < 0.2:
        model.set_params(confidence_coef=float(rng.choice([0.1, 1.0, 10.0])))
    X, y, said = KINDS[kind](rng, name)
    context = f"case {seed}: {name}, {kind}, X of {np.shape(X)}, {model.choice}"
    with warnings.catch_warnings(), within(SECONDS, context):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataConversionWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module=__name__)
        try:
            model.fit(X, y)
            check_numbers(model, X)
        except Exception as error:
            error.add_note(context)
            check_error(error, said)
        else:
            assert said is None, f"{context}: fitted without {said}"


def check_error(error: Exception, said: str | None) -> None:
    """The message is written for the user, and is the one that this mistake has."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    if type(error) not in (ValueError, TypeError) or not last.startswith(OURS):
        raise error
    if said is not None and said not in str(error):
        raise error


def check_numbers(model: Any, X: Any) -> None:
    for name in ("coef_", "coef_sd_", "intercept_", "intercept_sd_", "noise_variance_"):
        assert np.isfinite(getattr(model, name, 0.0)).all(), name
    assert (model.coef_sd_ >= 0.0).all()
    found = np.asarray(model.predict(X))
    if hasattr(model, "classes_"):
        assert np.isin(found, model.classes_).all()
        chance = model.predict_proba(X)
        assert chance.shape == (len(X), len(model.classes_))
        assert (chance >= 0.0).all()
        np.testing.assert_allclose(chance.sum(axis=1), 1.0, atol=1e-9)
    else:
        assert np.isfinite(found).all()


def few(rng: np.random.Generator, name: str) -> tuple[Any, Any, str | None]:
    """A target of the right family, in 2 to 12 rows."""
    X = _columns(rng, int(rng.integers(2, 13)))
    return X, _target(rng, name, str(rng.choice(FITTING[name])), len(X)), None


def another_family(rng: np.random.Generator, name: str) -> tuple[Any, Any, str | None]:
    """Any target."""
    X = _columns(rng, int(rng.integers(5, 40)))
    return X, _target(rng, name, str(rng.choice(list(TARGETS))), len(X)), None


def huge(rng: np.random.Generator, name: str) -> tuple[Any, Any, str | None]:
    """One value of any size in X or y, or all of a column in other units."""
    X = _columns(rng, int(rng.integers(5, 60)))
    y = _target(rng, name, str(rng.choice(FITTING[name])), len(X))
    size = 10.0 ** rng.uniform(*rng.choice([[3.0, 20.0], [20.0, 308.0], [-308.0, -5.0]]))
    row, column = rng.integers(len(X)), rng.integers(X.shape[1])
    where = rng.integers(4)
    values = y[1] if name == "cox" else y
    if where == 0:
        X[row, column] = size
    elif where == 1:
        X[:, column] *= size
    elif values.dtype.kind == "f" and where == 2:
        values[row] = np.floor(size) if (values % 1.0 == 0.0).all() else size
    elif values.dtype.kind == "f":
        values *= np.floor(size) if (values % 1.0 == 0.0).all() else size
    return X, y, None


def misaligned(rng: np.random.Generator, name: str) -> tuple[Any, Any, str | None]:
    """Labels of the rows, of any type, in another order."""
    X = _columns(rng, int(rng.integers(4, 30)))
    y = _target(rng, name, str(rng.choice(FITTING[name])), len(X))
    count = np.arange(len(X))
    kinds = [count, count.astype(str), pd.date_range("2020", periods=len(X)), count / 7.0]
    labels = pd.Index(kinds[rng.integers(len(kinds))])
    order = rng.permutation(len(X))
    order = order if (order != count).any() else order[::-1]
    values = y[1] if name == "cox" else y
    series = pd.Series(values, index=labels).iloc[order]
    frame = pd.DataFrame(X, index=labels, columns=[f"x{j}" for j in range(X.shape[1])])
    return frame, (y[0], series) if name == "cox" else series, "in another order"


KINDS = {each.__name__: each for each in (few, another_family, huge, misaligned)}


def _columns(rng: np.random.Generator, n: int) -> np.ndarray:
    X = rng.normal(size=(n, int(rng.integers(1, 7))))
    return np.round(X) if rng.random() < 0.3 else X


def _target(rng: np.random.Generator, name: str, kind: str, n: int) -> Any:
    values = TARGETS[kind](rng, n)
    return (rng.random(n) < 0.7, values) if name == "cox" else values
