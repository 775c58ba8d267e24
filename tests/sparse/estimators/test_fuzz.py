"""Fits of random data of extreme shapes, scales and weights.

A fit ends within 10 seconds of CPU time, in finite numbers that are those of the same data in
ordinary units, or in an error of one sentence. Units are powers of two, so that the data in
ordinary units are the same numbers; warnings are errors, those of convergence apart.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from limits import within
from soubayes import SoULinearRegression, SoULogisticRegression, SoUNormalMeans

SECONDS = 30  # the slowest (separated rows counted 1e20 times) takes 9 on a loaded machine
MODELS = {
    "linear": SoULinearRegression(choice="path"),
    "linear, number": SoULinearRegression(confidence_coef=2.0, fit_intercept=False),
    "linear, horseshoe": SoULinearRegression(choice="path", prior="horseshoe"),
    "linear, dense": SoULinearRegression(confidence_coef=1.0, confidence_local=1.0, max_iter=20),
    "logistic": SoULogisticRegression(confidence_coef=1.0),
    "logistic, auto": SoULogisticRegression(choice="path", confidence_coef="auto"),
    "logistic, dense": SoULogisticRegression(
        confidence_coef=1.0, confidence_local=1.0, fit_intercept=False
    ),
    "means": SoUNormalMeans(),
    "means, number": SoUNormalMeans(confidence_coef=3.0),
}
SHAPES = [(1, 1), (1, 4), (2, 1), (2, 3), (3, 3), (5, 1), (8, 30), (30, 5), (40, 40), (12, 350)]
CONTAINERS = ["array", "float32", "csr", "csc", "frame", "list", "blocks", "fortran"]


@pytest.mark.parametrize("seed", range(6))
def test_fuzz(seed):
    assert _completed(seed, 20) == 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 116))
def test_long_fuzz(seed):
    assert _completed(seed, 200) == 200


def test_a_weight_of_1e20_on_a_constant_y_ends():
    X = np.random.default_rng(0).normal(size=(40, 3))
    with within(SECONDS, "constant y"):
        model = SoULinearRegression(choice="path").fit(
            X, np.ones(40), sample_weight=np.full(40, 1e20)
        )
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-9)
    assert model.intercept_ == pytest.approx(1.0)


@pytest.mark.parametrize("weight", [0.05, 1.0, 1e16, 1e20])
def test_equal_weights_of_any_size_do_not_make_a_column_constant(weight):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 3)) + 5.0
    y = X[:, 0] + 0.1 * rng.normal(size=50)
    model = SoULinearRegression(confidence_coef=1e-3).fit(X, y, sample_weight=np.full(50, weight))
    least_squares = np.linalg.lstsq(np.c_[X, np.ones(50)], y, rcond=None)[0]
    if weight >= 1.0:
        np.testing.assert_allclose(model.coef_, least_squares[:3], atol=0.05)
    assert np.isfinite(model.coef_sd_).all()


@pytest.mark.parametrize("container", ["array", "csr"])
@pytest.mark.parametrize("power", [-900, 900])
@pytest.mark.parametrize("name", MODELS)
def test_extreme_units_change_nothing(name, power, container):
    rng = np.random.default_rng(2)
    X, unit = rng.normal(size=(30, 4)), np.ldexp(1.0, [power, 0, 0, power])
    y = X[:, 0] + 0.3 * rng.normal(size=30)
    if name.startswith("logistic"):
        y = y > 0
    if name.startswith("means"):
        unit = np.full(4, np.ldexp(1.0, power // 3))  # its variance has to be a number
    y_unit = unit[0] if name.startswith("means") else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found, plain = (
            _outcome(name, X * by, y, 1.0, None, container, name) for by in (unit, np.ones(4))
        )
    _check_finite(found, X * unit, name)
    _check_equal(found, plain, X, y, None, unit, y_unit, name)


@pytest.mark.parametrize("weight", [1e-200, 1e-17, 1e200])
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_weights_that_float64_cannot_hold_are_refused(name, weight):
    X = np.random.default_rng(3).normal(size=(20, 2))
    message = _outcome(name, X, X[:, 0] > 0, 1.0, np.full(20, weight), "array", name)
    assert "sample_weight" in message
    mixed = np.where(np.arange(20) % 2, 1.0, 1e15)
    assert "1e+12 times" in _outcome(name, X, X[:, 0] > 0, 1.0, mixed, "blocks", name)


def _completed(seed, wanted):
    """Random cases until so many of them ended in numbers; a wrong one raises."""
    done, tried = 0, 0
    while done < wanted and tried < 3 * wanted:
        done += _try(np.random.SeedSequence([seed, tried]))
        tried += 1
    return done


def _try(seed):
    rng = np.random.default_rng(seed)
    name = str(rng.choice(list(MODELS)))
    n, p = SHAPES[rng.integers(len(SHAPES))]
    container = str(rng.choice(CONTAINERS))
    base, target, weight = _data(rng, name, n, p)
    limit = 100 if container == "float32" else 1000
    x_unit, y_unit = _units(rng, p, limit), _units(rng, 1, 1000)[0]
    if name.startswith("means"):
        x_unit = np.full(p, x_unit[0])
        y_unit = x_unit[0]
    elif name.startswith("logistic"):
        y_unit = 1.0
    context = f"{seed.entropy}: {name}, {n} x {p}, {container}, weight {_brief(weight)}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = _outcome(name, base * x_unit, target, y_unit, weight, container, context)
        if isinstance(found, str):
            return False
        _check_finite(found, base * x_unit, context)
        if (x_unit == 1.0).all() and y_unit == 1.0:
            return True
        plain = _outcome(name, base, target, 1.0, weight, container, context)
    assert not isinstance(plain, str), f"{context}: in ordinary units {plain}"
    _check_equal(found, plain, base, target, weight, x_unit, y_unit, context)
    return True


def _data(rng, name, n, p):
    X = rng.normal(size=(n, p))
    kind = rng.integers(6)
    if kind == 0:
        X = np.round(2.0 * X)
    elif kind == 1:
        X = X + 1000.0
    elif kind == 2:
        X[:, rng.integers(p)] = rng.choice([0.0, 1.0, 0.1])
    elif kind == 3:
        X[:, rng.integers(p)] = X[:, 0] * rng.choice([1.0, -2.0])
    elif kind == 4 and n > 2:
        X[: n // 2] = X[0]
    y = X[:, 0] + 0.5 * rng.normal(size=n)
    if name.startswith("logistic"):
        classes = rng.integers(2, 4)
        y = np.digitize(y, np.quantile(y, np.arange(1, classes) / classes))
    elif rng.random() < 0.1:
        y = np.full(n, rng.choice([0.0, 1.0, 0.1]))
    how = rng.integers(8)
    weight = None
    if how == 0:
        weight = rng.integers(0, 4, n).astype(float)
    elif how == 1:
        weight = np.full(n, 10.0 ** rng.integers(-20, 21))
    elif how == 2:
        weight = 10.0 ** rng.uniform(-20, 20, n)
    elif how == 3:
        weight = 10.0 ** rng.uniform(-300, 300, n)
    elif how == 4:
        weight = np.full(n, 1.0 / n)
    return X, y, None if name.startswith("means") else weight


def _units(rng, p, limit):
    """Powers of two: all 1, one for all columns, or each column its own."""
    kind = rng.integers(4)
    if kind == 0:
        return np.ones(p)
    wide = limit if kind == 1 else limit // 6
    powers = rng.integers(-wide, wide + 1, p if kind > 1 else 1)
    return np.ldexp(1.0, np.broadcast_to(powers, p))


def _outcome(name, X, y, y_unit, weight, container, context):
    """The fitted model, or the message of the error."""
    model = clone(MODELS[name])
    y = y * y_unit if not name.startswith("logistic") else y
    try:
        with within(SECONDS, context):
            if name.startswith("means"):
                return model.fit(_held(X, container if container in ("frame", "list") else "array"))
            if container == "blocks":
                half = (len(X) + 1) // 2
                parts = [slice(0, half), slice(half, None)]
                blocks = [
                    (X[i], y[i]) if weight is None else (X[i], y[i], weight[i]) for i in parts
                ]
                return model.fit(blocks)
            return model.fit(_held(X, container), y, sample_weight=weight)
    except ValueError as error:
        text = str(error)
        assert "\n" not in text, context + text
        assert text.endswith("."), context + text
        assert len(text) < 300, context + text
        return text
    except Exception as error:
        raise AssertionError(f"{context}: {type(error).__name__}: {error}") from error


def _held(X, container):
    if container == "frame":
        return pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    make = {
        "float32": lambda X: X.astype(np.float32),
        "csr": sp.csr_array,
        "csc": sp.csc_array,
        "list": lambda X: X.tolist(),
        "fortran": np.asfortranarray,
    }
    return make.get(container, np.asarray)(X)


def _check_finite(model, X, context):
    for name in vars(model):
        value = getattr(model, name)
        if not name.endswith("_") or not isinstance(value, float | np.ndarray):
            continue
        if name in ("local_scale_", "degrees_of_freedom_", "classes_", "feature_names_in_"):
            continue
        assert np.isfinite(value).all(), f"{context}: {name} = {value}"
    X = _held(X, "frame" if hasattr(model, "feature_names_in_") else "array")
    if not isinstance(model, SoUNormalMeans):
        assert np.isfinite(np.asarray(model.predict(X), float)).all(), context
    if isinstance(model, SoULogisticRegression):
        assert np.isfinite(model.predict_proba(X)).all(), context
    if isinstance(model, SoULinearRegression):
        assert np.isfinite(model.predict(X, return_std=True)[1]).all(), context


def _check_equal(found, plain, base, target, weight, x_unit, y_unit, context):
    """A constant has no unit: the sd of its coefficient and those of a constant y are left out."""
    count = slice(None) if weight is None else weight > 1e-12 * weight.max()
    seen, y = base[count], target[count]
    if isinstance(found, SoUNormalMeans):
        compared, unit, has_unit = np.ones(len(base), bool), y_unit, base.any()
    else:
        compared, has_unit = np.ptp(seen, axis=0) > 1e-9, np.ptp(y * 1.0) > 1e-9
        unit = np.exp(np.log(y_unit) - np.log(x_unit[compared]))
    mine, theirs = (model.coef_[..., compared] for model in (found, plain))
    my_sd, their_sd = (model.coef_sd_[..., compared] for model in (found, plain))
    if has_unit:
        np.testing.assert_allclose(my_sd / unit, their_sd, rtol=1e-6, err_msg=context)
        error = np.abs(mine / unit - theirs) / (np.abs(theirs) + their_sd)
        assert np.all(error < 1e-6), f"{context}: {mine / unit} and {theirs}"
    np.testing.assert_array_equal(found.selected_, plain.selected_, err_msg=context)


def _brief(weight):
    return "none" if weight is None else f"{weight.min():.1e} to {weight.max():.1e}"
