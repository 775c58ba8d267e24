"""terms, term_reports: estimators with terms, their laws, and what they say."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score

from soubayes import (
    SoULinearRegression,
    SoULogisticRegression,
    SoUPoissonRegression,
    load_model,
    save_model,
)


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 240
    found = pd.DataFrame(
        {
            "age": rng.uniform(20, 70, n),
            "dose": rng.gamma(2.0, size=n),
            "sex": rng.choice(["m", "f"], n),
            "site": rng.choice(list("abcdefgh"), n),
        }
    )
    effect = dict(zip("abcdefgh", rng.normal(size=8), strict=True))
    y = np.sin(found["age"] / 8) + 0.5 * (found["sex"] == "m") + found["site"].map(effect)
    return found, y + 0.3 * rng.normal(size=n)


# what the folds of rows ask is said, and tested below
pytestmark = pytest.mark.filterwarnings("ignore:folds of rows were held out")

TERMS = ["s(age)", "sex", "dose", "(1 | site)"]


def test_terms_of_single_columns_are_the_columns():
    X, y = load_diabetes(return_X_y=True)
    for confidence in ("auto", 3.0):
        plain = SoULinearRegression(choice="path", confidence_coef=confidence).fit(X, y)
        names = [f"x{j}" for j in range(10)]
        model = SoULinearRegression(choice="path", confidence_coef=confidence, terms=names)
        model.fit(X, y)
        np.testing.assert_array_equal(model.selected_, plain.selected_)
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-8)
        np.testing.assert_allclose(model.objective_[-1], plain.objective_[-1], rtol=1e-10)
        np.testing.assert_allclose(model.path_coef_, plain.path_coef_, rtol=1e-8)


def test_a_random_intercept_is_reml(frame):
    """Against the closed form of a balanced one-way layout."""
    rng = np.random.default_rng(1)
    site, m, k = np.repeat(np.arange(12), 6), 6, 12
    y = 2.0 + rng.normal(size=k)[site] + 0.7 * rng.normal(size=k * m)
    X = pd.DataFrame({"site": site.astype(str)})
    model = SoULinearRegression(terms=["(1 | site)"]).fit(X, y)
    means = np.array([y[site == j].mean() for j in range(k)])
    within = np.sum((y - means[site]) ** 2) / (k * (m - 1))
    between = means.var(ddof=1) - within / m
    table = model.variance_components()
    np.testing.assert_allclose(table.loc["noise", "sd"] ** 2, within, rtol=1e-3)
    np.testing.assert_allclose(table.loc["(1 | site)", "sd"] ** 2, between, rtol=1e-3)
    # -2 log restricted likelihood of a balanced layout, at the estimates and without variance
    total = np.sum((y - y.mean()) ** 2)
    ratio = (k * m - 1) * np.log(total / (k * m - 1)) - k * (m - 1) * np.log(within)
    ratio -= (k - 1) * np.log(within + m * between)
    p = 0.5 * chi2.sf(ratio, 1)
    np.testing.assert_allclose(table.loc["(1 | site)", "p_value"], p, rtol=0.02)
    # the posterior of the standard deviation under a flat prior, by quadrature
    sds = np.linspace(1e-3, 8.0, 4_000)
    log_density = -0.5 * ((k - 1) * np.log(1 + m * sds**2) + (k * m - 1) * np.log(
        k * (m - 1) * within + m * means.var() * k / (1 + m * sds**2)
    ))  # fmt: skip
    weights = np.exp(log_density - log_density.max())
    ends = np.interp([0.05, 0.95], np.cumsum(weights) / weights.sum(), sds * np.sqrt(within))
    found = table.loc["(1 | site)", ["lower", "upper"]].to_numpy(float)
    np.testing.assert_allclose(found, ends, rtol=0.08)  # on a grid of 15 points
    effects = model.terms_["(1 | site)"].set_index("site")["estimate"]
    shrunk = between / (between + within / m) * (means - means.mean())
    np.testing.assert_allclose(effects[[str(j) for j in range(k)]], shrunk, rtol=0.05)
    # a site without rows: the variance between sites on top
    _, sd = model.predict(pd.DataFrame({"site": ["0", "z"]}), return_std=True)
    assert sd[1] ** 2 > between + within > sd[0] ** 2


def test_required_columns_are_least_squares(frame):
    X, y = frame
    given = X[["age", "dose"]]
    model = SoULinearRegression(terms=["required(age)", "required(dose)"]).fit(given, y)
    A = np.column_stack([np.ones(len(y)), given])
    coef, rss = np.linalg.lstsq(A, y, rcond=None)[:2]
    noise = float(rss[0]) / (len(y) - 3)
    np.testing.assert_allclose(model.coef_, coef[1:], rtol=1e-5)
    np.testing.assert_allclose(model.noise_variance_, noise, rtol=1e-3)
    sd = np.sqrt(noise * np.diag(np.linalg.inv(A.T @ A))[1:])
    np.testing.assert_allclose(model.coef_sd_, sd, rtol=1e-3)


def test_names_of_levels_and_their_order_change_nothing(frame):
    X, y = frame
    model = SoULinearRegression(terms=TERMS).fit(X, y)
    other = X.assign(site=X["site"].map(dict(zip("abcdefgh", "hgfedcba", strict=True))))
    again = SoULinearRegression(terms=TERMS).fit(other, y)
    np.testing.assert_allclose(model.predict(X), again.predict(other), atol=1e-6)


def test_a_weight_counts_rows(frame):
    X, y = frame
    weight = 1 + (np.arange(len(y)) < 60)
    model = SoULinearRegression(terms=TERMS, choice="path").fit(X, y, sample_weight=weight)
    twice = pd.concat([X, X[:60]], ignore_index=True), np.append(y, y[:60])
    other = SoULinearRegression(terms=TERMS, choice="path").fit(*twice)
    np.testing.assert_allclose(model.predict(X), other.predict(X), atol=1e-5)


def test_an_offset_is_part_of_the_predictor(frame):
    X, _ = frame
    rng = np.random.default_rng(2)
    log_time = rng.uniform(0.0, 2.0, len(X))
    y = rng.poisson(np.exp(0.03 * X["age"] - 1.0 + log_time))
    given = X.assign(log_time=log_time)
    model = SoUPoissonRegression(terms=["s(age)", "offset(log_time)"]).fit(given, y)
    other = SoUPoissonRegression(terms=["s(age)"]).fit(X, y, offset=log_time)
    np.testing.assert_allclose(model.predict(given), other.predict(X, offset=log_time))
    with pytest.raises(ValueError, match="takes none"):
        SoULinearRegression(terms=["age", "offset(dose)"]).fit(X, y)


def test_scikit_learn_and_files(frame, tmp_path):
    X, y = frame
    model = SoULinearRegression(terms=["curves", "(1 | site)"], cv=3)
    assert clone(model).terms == model.terms
    assert cross_val_score(model, X, y, cv=3).mean() > 0.6
    model.fit(X, y)
    assert list(model.feature_names_in_) == list(X)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    new = X.head(20).assign(site="new")
    np.testing.assert_array_equal(again.predict(new), model.predict(new))
    pd.testing.assert_frame_equal(again.summary(), model.summary())
    model.set_params(terms=None).fit(X[["age", "dose"]], y)
    assert model.coef_.shape == (2,)
    assert "kind" not in model.summary()


def test_arrays_have_columns_by_place(frame):
    X, y = frame
    numbers = X[["age", "dose"]]
    by_name = SoULinearRegression(terms="curves").fit(numbers, y)
    by_place = SoULinearRegression(terms="curves").fit(numbers.to_numpy(), y)
    ours = by_place.predict(numbers.to_numpy())
    np.testing.assert_array_equal(ours, by_name.predict(numbers))
    with pytest.raises(ValueError, match="expecting 2 features"):
        by_place.predict(np.zeros((3, 3)))


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"terms": ["s(weight)"]}, "no column 'weight'"),
        ({"terms": ["s(sex)"]}, "holds text"),
        ({"terms": ["age"], "feature_groups": {"a": ["age"]}}, "feature_groups and terms"),
    ],
)
def test_bad_input_is_one_sentence(frame, parameters, reason):
    X, y = frame
    with pytest.raises(ValueError, match=reason):
        SoULinearRegression(**parameters).fit(X, y)


def test_what_cannot_be_combined_says_so(frame):
    X, y = frame
    with pytest.raises(ValueError, match="partial_fit cannot be used with terms"):
        SoULinearRegression(terms="curves").partial_fit(X, y)
    with pytest.raises(ValueError, match="X comes in blocks"):
        SoULinearRegression(terms="curves").fit(iter([(X, y)]))
    with pytest.raises(ValueError, match="there are no terms"):
        SoULinearRegression().fit(X[["age"]], y).term_effects()
    with pytest.raises(AttributeError, match="has no terms; fit it with terms"):
        _ = SoULinearRegression().fit(X[["age"]], y).terms_


@pytest.mark.filterwarnings("error:folds of rows")
def test_units_say_what_the_folds_ask_and_what_differs_between_units(frame):
    X, y = frame
    with pytest.warns(UserWarning, match="asks about new rows of known units"):
        SoULinearRegression(terms=["age", "(1 | site)"]).fit(X, y)
    SoULinearRegression(terms=["age", "(1 | site)"]).fit(X, y, groups=X["site"])
    size = X["site"].map({s: float(k) for k, s in enumerate("abcdefgh")})
    terms = ["required(size)", "required(age)", "(1 | site)"]
    with pytest.warns(UserWarning, match="size hardly varies within the units") as caught:
        SoULinearRegression(terms=terms).fit(X.assign(size=size), y)
    assert len(caught) == 1


def test_classes_have_terms_too(frame):
    X, y = frame
    model = SoULogisticRegression(terms=["s(age)", "sex"]).fit(X, y > 0)
    assert list(model.classes_) == [False, True]
    assert model.predict_proba(X).shape == (len(X), 2)
    assert model.summary()["kind"]["s(age)"] in ("straight", "curved")


def test_a_unit_in_every_row_is_overdispersion_or_an_error(frame):
    X, y = frame
    each = X.assign(row=[f"r{i}" for i in range(len(X))])
    with pytest.raises(ValueError, match="one row at each level"):
        SoULinearRegression(terms=["age", "(1 | row)"]).fit(each, y)
    rng = np.random.default_rng(0)
    counts = rng.poisson(np.exp(1.0 + 0.8 * rng.normal(size=80)))
    model = SoUPoissonRegression(terms=["(1 | row)"]).fit(each.head(80), counts)
    assert model.variance_components()["sd"].iloc[0] == pytest.approx(0.8, abs=0.25)


def test_columns_may_have_the_names_of_bands(frame):
    X, y = frame
    given = X[["age", "dose"]].set_axis(["estimate", "lower"], axis=1)
    model = SoULinearRegression(terms="curves", choice="path").fit(given, y)
    band = model.terms_["s(estimate)"]
    assert list(band) == ["estimate_value", "estimate", "lower", "upper"]
    assert band["estimate_value"].max() > 60.0
    assert (band["lower"] <= band["estimate"] + 1e-12).all()


def test_selection_is_of_the_columns_that_kept_terms_read(frame):
    X, y = frame
    rng = np.random.default_rng(0)
    given = X.assign(noise=rng.normal(size=len(X)), other=rng.normal(size=len(X)))
    model = SoULinearRegression(terms=["curves", "(1 | site)"], choice="path").fit(given, y)
    kind = model.summary()["kind"]
    support = dict(zip(given, model.get_support(), strict=True))
    assert support["age"]
    assert support["site"] == (kind["(1 | site)"] != "absent")
    assert support["noise"] == (kind["s(noise)"] != "absent")
    kept = [name for name in given if support[name]]
    assert list(model.get_feature_names_out()) == kept
    frame_out = model.set_output(transform="pandas").transform(given)
    pd.testing.assert_frame_equal(frame_out, given[kept])
