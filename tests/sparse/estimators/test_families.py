"""Every family beside the exact engine and at its limits."""

import re
import warnings

import numpy as np
import pytest
from scipy import stats

from soubayes import (
    Block,
    Model,
    SoUGammaRegression,
    SoULinearRegression,
    SoUNegativeBinomialRegression,
    SoUPoissonRegression,
    solve_exact,
)

FIXED = {"confidence_coef": 4.0, "confidence_local": 1e-3, "tol": 1e-10}
NORMAL = {"all": {"columns": slice(None), "prior": "normal", "variance": 1.0}}


def made(family, n=60, p=2, seed=0):
    """X with mean square 1, y, and the log likelihood of predictors (..., n)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.sqrt((X**2).mean(axis=0))
    eta = X @ np.array([0.6, -0.4, 0.0, 0.0])[:p]
    if family == "poisson":
        y = rng.poisson(np.exp(eta))
        return X, y, lambda at: stats.poisson.logpmf(y, np.exp(at))
    if family == "negative binomial":
        y = rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n))
        return X, y, lambda at: stats.nbinom.logpmf(y, 2.0, 1.0 / (1.0 + 0.5 * np.exp(at)))
    y = rng.gamma(3.0, np.exp(eta) / 3.0)
    return X, y, lambda at: stats.gamma.logpdf(y, 3.0, scale=np.exp(at) / 3.0)


ESTIMATORS = {
    "poisson": SoUPoissonRegression(),
    "negative binomial": SoUNegativeBinomialRegression(dispersion=0.5),
    "gamma": SoUGammaRegression(shape=3.0),
}


@pytest.mark.parametrize("confidence", [0.5, 2.0])
@pytest.mark.parametrize("family", ESTIMATORS)
def test_one_column_is_the_exact_posterior(family, confidence):
    X, y, log_likelihood = made(family, p=1)
    exact = solve_exact(
        Model(
            [Block("beta", stats.norm(0.0, 1.0))],
            loss=lambda beta: -log_likelihood(np.asarray(beta)[..., None] * X[:, 0]).sum(axis=-1),
        ),
        confidence={"beta": confidence},
    )
    block = {"all": {**NORMAL["all"], "confidence": confidence}}
    model = ESTIMATORS[family].set_params(
        feature_blocks=block, fit_intercept=False, choice="path", tol=1e-10
    )
    model.fit(X, y)
    assert model.coef_[0] == pytest.approx(exact.mean("beta"), abs=0.05 * exact.sd("beta"))
    assert model.coef_sd_[0] == pytest.approx(exact.sd("beta"), rel=0.03)


@pytest.mark.parametrize("family", ESTIMATORS)
def test_two_columns_are_the_exact_posterior(family):
    X, y, log_likelihood = made(family, p=2)
    X[:, 1] = 0.6 * X[:, 0] + 0.8 * X[:, 1]
    X[:, 1] /= np.sqrt((X[:, 1] ** 2).mean())

    def loss(first, second):
        return -log_likelihood(
            np.asarray(first)[..., None] * X[:, 0] + np.asarray(second)[..., None] * X[:, 1]
        ).sum(axis=-1)

    one = stats.norm(0.0, 1.0)
    exact = solve_exact(Model([Block("first", one), Block("second", one)], loss=loss))
    model = ESTIMATORS[family].set_params(
        feature_blocks=NORMAL, fit_intercept=False, choice="path", tol=1e-10
    )
    model.fit(X, y)
    for j, name in enumerate(("first", "second")):
        assert model.coef_[j] == pytest.approx(exact.mean(name), abs=0.06 * exact.sd(name))
        assert model.coef_sd_[j] == pytest.approx(exact.sd(name), rel=0.04)


@pytest.mark.parametrize("settings", [FIXED, {}])
def test_the_gamma_fit_does_not_depend_on_the_units_of_y(settings):
    X, y, _ = made("gamma", n=120, p=4)
    one = SoUGammaRegression(**settings).fit(X, y)
    other = SoUGammaRegression(**settings).fit(X, 1e6 * y)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-8, atol=1e-10)
    assert other.intercept_ == pytest.approx(one.intercept_ + np.log(1e6), rel=1e-8)
    assert other.shape_ == pytest.approx(one.shape_, rel=1e-8)


def test_estimated_nuisance_parameters_are_near_those_of_the_data():
    X, y, _ = made("gamma", n=500, p=4)
    gamma = SoUGammaRegression(**FIXED).fit(X, y)
    assert gamma.shape_ == pytest.approx(3.0, rel=0.2)
    assert gamma.kl_["shape"] > 0.0
    X, y, _ = made("negative binomial", n=1500, p=4)
    counts = SoUNegativeBinomialRegression(**FIXED).fit(X, y)
    assert counts.dispersion_ == pytest.approx(0.5, rel=0.3)
    assert counts.kl_["dispersion"] > 0.0
    assert (np.diff(counts.objective_) <= 1e-9 * abs(counts.objective_[0])).all()


def test_no_dispersion_is_poisson():
    X, y, _ = made("poisson", n=200, p=4)
    poisson = SoUPoissonRegression(**FIXED).fit(X, y)
    known = SoUNegativeBinomialRegression(dispersion=1e-7, **FIXED).fit(X, y)
    np.testing.assert_allclose(known.coef_, poisson.coef_, atol=1e-4)
    np.testing.assert_allclose(known.coef_sd_[:2], poisson.coef_sd_[:2], rtol=1e-3)


def test_large_counts_are_normal_about_their_logarithm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = rng.poisson(np.exp(14.0 + 0.01 * X[:, 0]))
    model = SoUPoissonRegression(feature_blocks=NORMAL, choice="path").fit(X, y)
    # log y is normal with variance 1/mean, all but equal here
    design = np.column_stack([X, np.ones(100)])
    weight = y.astype(float)
    coef = np.linalg.solve(design.T @ (weight[:, None] * design), design.T @ (weight * np.log(y)))
    sd = np.sqrt(np.diag(np.linalg.inv(design.T @ (weight[:, None] * design))))
    np.testing.assert_allclose(model.coef_, coef[:3], atol=0.1 * sd[0])
    np.testing.assert_allclose(model.coef_sd_, sd[:3], rtol=0.02)
    linear = SoULinearRegression(choice="path").fit(X, np.log(y))
    assert abs(linear.predict(X) - np.log(model.predict(X))).max() < 5.0 * sd[0]


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (SoUGammaRegression(), [0.0, 1.0, 2.0], "values of 0 or less"),
        (SoUGammaRegression(shape=0.0), [1.0, 1.0, 2.0], "shape is 0.0"),
        (SoUNegativeBinomialRegression(dispersion=-1.0), [1, 1, 2], "dispersion is -1.0"),
        (SoUNegativeBinomialRegression(), [0.5, 1.0, 2.0], "whole numbers"),
    ],
)
def test_bad_input(model, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(3), y)


@pytest.mark.parametrize("kind", [SoUPoissonRegression, SoUGammaRegression])
def test_candidates_that_overflow_where_columns_outnumber_rows_only_lose_the_choice(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 400))
    eta = 1.0 + X[:, :3] @ np.array([1.2, -1.2, 1.0])
    y = rng.poisson(np.exp(eta)) if kind is SoUPoissonRegression else rng.gamma(2.0, np.exp(eta))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = kind(cv=3).fit(X, y)
    assert model.candidates_["weight"].sum() == pytest.approx(1.0)
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("outlier", [1e6, 1e9])
def test_one_row_in_wrong_units_does_not_stop_the_fit(outlier):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = rng.gamma(2.0, np.exp(X[:, 0]))
    model = SoUGammaRegression().fit(X, np.append(outlier, y[1:]))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("model", [SoUPoissonRegression(), SoUNegativeBinomialRegression()])
def test_counts_that_floats_do_not_tell_apart_are_named(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.poisson(3.0, 30) * 2.0**60
    with pytest.raises(ValueError, match="tells whole numbers apart"):
        model.fit(X, y)


@pytest.mark.parametrize("value", [1e15, 1e40, 1e300])
@pytest.mark.parametrize(
    "model", [SoUPoissonRegression(), SoUNegativeBinomialRegression(), SoUGammaRegression()]
)
def test_a_value_beside_which_the_others_are_rounding_is_named(model, value):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 4)), 1.0 + rng.poisson(3.0, 80)
    y[7] = value
    named = re.escape(f"y has the value {value:.6g}")
    if value > 2.0**53 and not isinstance(model, SoUGammaRegression):
        named = "tells whole numbers apart"
    with pytest.raises(ValueError, match=named):
        model.fit(X, y)
    with pytest.raises(ValueError, match=named):
        model.fit([(X[:40], y[:40]), (X[40:], y[40:])])
