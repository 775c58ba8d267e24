"""Reports of every family: draws, ArviZ, plots, the explorer, groups of columns."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import soubayes
from soubayes import (
    SoUGammaRegression,
    SoUNegativeBinomialRegression,
    SoUOrdinalRegression,
    SoUPoissonRegression,
)

ESTIMATORS = {
    SoUPoissonRegression: lambda eta, rng: rng.poisson(np.exp(eta)),
    SoUNegativeBinomialRegression: lambda eta, rng: rng.poisson(
        np.exp(eta) * rng.gamma(2.0, 0.5, len(eta))
    ),
    SoUGammaRegression: lambda eta, rng: rng.gamma(2.0, np.exp(eta) / 2.0),
    SoUOrdinalRegression: lambda eta, rng: np.digitize(eta + rng.logistic(size=len(eta)), [-1, 1]),
}


@pytest.mark.parametrize("kind", ESTIMATORS, ids=lambda kind: kind.__name__)
def test_every_family_has_every_report(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = ESTIMATORS[kind](X[:, 0] - 0.5 * X[:, 1], rng)
    groups = ["a", "a", "b", "b"]
    model = kind(inclusion=True, feature_groups=groups, cv=2).fit(X, y)
    selected = model.selected_.reshape(2, 2)
    assert (selected[:, 0] == selected[:, 1]).all()
    assert model.summary().shape[0] == 4
    draws = model.sample(200, random_state=0)["coef"]
    assert draws.mean(axis=0) == pytest.approx(model.coef_, abs=6.0 * model.coef_sd_.max() / 14.0)
    assert "coef" in model.to_arviz(20, random_state=0).posterior
    model.to_html(tmp_path / "page.html")
    assert "explorer" in (tmp_path / "page.html").read_text(encoding="utf8")
    for name in ("coefficients", "path", "confidences", "credible_sets", "shrinkage"):
        getattr(soubayes, f"plot_{name}")(model)
        plt.close("all")
    soubayes.save_model(model, tmp_path / "model")
    np.testing.assert_array_equal(
        soubayes.load_model(tmp_path / "model").predict(X), model.predict(X)
    )
