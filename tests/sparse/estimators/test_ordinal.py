"""Ordered classes as an estimator: limits, order of the levels, files, bad input."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.special import expit

from soubayes import (
    SoULogisticRegression,
    SoUOrdinalRegression,
    load_model,
    save_model,
)

FIXED = {"confidence_coef": 4.0, "confidence_local": 1e-3, "tol": 1e-11}


def ordered(n=200, p=6, cuts=(-1.0, 1.0), seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    eta = X @ np.array([1.0, -0.8, 0.0, 0.0, 0.0, 0.0])[:p]
    return X, np.digitize(eta + rng.logistic(size=n), cuts)


def test_two_classes_are_logistic_regression():
    X, y = ordered(cuts=(0.3,))
    ours = SoUOrdinalRegression(**FIXED).fit(X, y)
    theirs = SoULogisticRegression(**FIXED).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_[0], atol=1e-4)
    np.testing.assert_allclose(ours.coef_sd_, theirs.coef_sd_[0], atol=1e-4)
    assert ours.cuts_[0] == pytest.approx(-theirs.intercept_[0], abs=1e-3)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)


def test_one_column_is_the_exact_posterior():
    X, y = ordered(n=60, p=1)
    X = (X - X.mean()) / X.std()

    first, gap, beta = (
        part.ravel()
        for part in np.meshgrid(
            np.linspace(-3.0, 1.0, 50), np.linspace(-1.5, 2.5, 50), np.linspace(-1.0, 3.0, 50)
        )
    )
    log_q = stats.norm.logpdf(first, 0.0, np.sqrt(10.0)) + stats.norm.logpdf(gap, 0.0, 2.0)
    log_q += stats.norm.logpdf(beta)
    for x, k in zip(X[:, 0], y, strict=True):
        below = expit(first - beta * x), expit(first + np.exp(gap) - beta * x)
        log_q += np.log([below[0], below[1] - below[0], 1.0 - below[1]][k])
    q = np.exp(log_q - log_q.max())
    q /= q.sum()
    middle = {"first": q @ first, "beta": q @ beta}
    sd = {"first": np.sqrt(q @ (first - middle["first"]) ** 2)}
    sd["beta"] = np.sqrt(q @ (beta - middle["beta"]) ** 2)
    block = {"all": {"columns": [0], "prior": "normal", "variance": 1.0}}
    model = SoUOrdinalRegression(feature_blocks=block, choice="path").fit(X, y)
    # q has cuts and coefficients apart
    assert model.coef_[0] == pytest.approx(middle["beta"], abs=0.15 * sd["beta"])
    assert model.coef_sd_[0] == pytest.approx(sd["beta"], rel=0.1)
    assert model.cuts_[0] == pytest.approx(middle["first"], abs=0.15 * sd["first"])


def test_the_order_is_that_of_levels_or_of_a_categorical():
    X, y = ordered()
    names = np.array(["low", "middle", "high"])[y]
    numbers = SoUOrdinalRegression(choice="path").fit(X, y)
    listed = SoUOrdinalRegression(levels=["low", "middle", "high"], choice="path").fit(X, names)
    kind = pd.CategoricalDtype(["low", "middle", "high"], ordered=True)
    categorical = SoUOrdinalRegression(choice="path").fit(X, pd.Series(names, dtype=kind))
    polars = pytest.importorskip("polars")
    series = polars.Series(names.tolist(), dtype=polars.Enum(["low", "middle", "high"]))
    enum = SoUOrdinalRegression(choice="path").fit(X, series)
    for other in (listed, categorical, enum):
        np.testing.assert_allclose(other.coef_, numbers.coef_)
        assert other.classes_.tolist() == ["low", "middle", "high"]
    assert (listed.predict(X) == np.array(["low", "middle", "high"])[numbers.predict(X)]).all()
    assert listed.score(X, names) > 0.4


def test_text_without_an_order_is_named():
    X, y = ordered()
    names = np.array(["low", "middle", "high"])[y]
    unordered = pd.Series(names, dtype="category")
    for labels in (names, names.astype(object), unordered):
        with pytest.warns(UserWarning, match="'high', 'low', 'middle'.*Pass levels") as caught:
            SoUOrdinalRegression(choice="path").fit(X, labels)
        assert caught[0].filename == __file__
    two = np.array(["no", "yes"])[(y > 0).astype(int)]
    SoUOrdinalRegression(choice="path").fit(X, two)  # the order is a matter of sign


def test_probabilities_choice_and_a_file(tmp_path):
    X, y = ordered(n=300, cuts=(-1.0, 0.0, 1.5))
    model = SoUOrdinalRegression(inclusion=True).fit(X[:200], y[:200])
    chance = model.predict_proba(X[200:])
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(chance), model.predict_log_proba(X[200:]))
    shares = np.bincount(y[:200]) / 200
    loss = -np.log(chance[np.arange(100), y[200:]]).mean()
    assert loss < -np.log(shares[y[200:]]).mean() - 0.05
    assert np.array_equal(np.flatnonzero(model.supports_.inclusion > 0.9), [0, 1])
    assert np.isfinite(model.out_of_fold_["sd"]).all()
    save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict_proba(X[200:]), chance)


def test_blocks_of_rows_need_levels():
    X, y = ordered()
    blocks = [(X[:90], y[:90]), (X[90:], y[90:])]
    with pytest.raises(ValueError, match="pass levels"):
        SoUOrdinalRegression(**FIXED).fit(blocks)
    streamed = SoUOrdinalRegression(levels=[0, 1, 2], **FIXED).fit(blocks)
    np.testing.assert_allclose(
        streamed.coef_, SoUOrdinalRegression(**FIXED).fit(X, y).coef_, atol=1e-5
    )


@pytest.mark.parametrize("choice", ["prediction", "path"])
@pytest.mark.parametrize("empty", [0, 1, 3])
def test_a_level_without_rows_has_a_column_of_probabilities(empty, choice):
    """The others are shared as in the fit that does not know of it."""
    X, y = ordered()
    known = [level for level in range(4) if level != empty]
    found = SoUOrdinalRegression(levels=range(4), choice=choice).fit(X, np.array(known)[y])
    three = SoUOrdinalRegression(choice=choice).fit(X, y)
    chance = found.predict_proba(X)
    assert found.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    assert chance[:, empty].mean() < 2.0 / len(y)
    np.testing.assert_allclose(np.delete(chance, empty, axis=1), three.predict_proba(X), atol=0.05)
    np.testing.assert_allclose(found.coef_, three.coef_, atol=0.5 * three.coef_sd_.max())


@pytest.mark.parametrize("choice", ["prediction", "path"])
@pytest.mark.parametrize("cuts", [[0.0], [-0.5, 2.0]])
def test_a_column_that_orders_the_classes_ends_in_numbers(cuts, choice):
    """The quadratic form of the cuts is flat beyond the rows, so logarithms of gaps ran away."""
    X = np.random.default_rng(0).normal(size=(80, 4))
    y = np.digitize(X[:, 0], cuts)
    model = SoUOrdinalRegression(choice=choice).fit(X, y)
    assert np.isfinite(model.coef_sd_).all()
    assert np.isfinite(model.cuts_).all()
    assert np.mean(model.predict(X) == y) > 0.95


@pytest.mark.parametrize(
    ("levels", "y", "message"),
    [
        ([1, 3, 2], [1, 2, 3], "numbers out of order"),
        ([1, 2, 2], [1, 2, 2], "listed twice"),
        (["a", "b"], ["a", "b", "c"], "'c', which is not among the levels"),
        (None, [1, 1, 1], "the one class 1"),
    ],
)
def test_bad_levels(levels, y, message):
    with pytest.raises(ValueError, match=message):
        SoUOrdinalRegression(levels=levels).fit(np.eye(3), y)


def test_nothing_is_kept_of_noise():
    """A path whose points have no column at all, and no intercept either."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    model = SoUOrdinalRegression(choice="path").fit(X, np.arange(60) % 3)
    assert not model.selected_.any()
    assert model.path_coef_sd_.shape == model.path_coef_.shape
