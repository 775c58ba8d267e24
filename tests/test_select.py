"""Choosing confidences: the scores by hand, the rules, estimators and NumPyro models alike."""

import importlib
import inspect
import signal
from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import KFold

from soubayes import MixturePosterior, Selection, SoULinearRegression, select_confidence
from soubayes.sparse.choice.scoring import predictive_weights

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = 2 * X[:, 0] + RNG.normal(size=24)


class Ridge(RegressorMixin, BaseEstimator):
    """An estimator that keeps the contract and costs nothing."""

    def __init__(self, confidence_coef=1.0, confidence_noise=1.0):
        self.confidence_coef = confidence_coef
        self.confidence_noise = confidence_noise

    def fit(self, X, y):
        self.coef_ = np.linalg.solve(X.T @ X + self.confidence_coef * np.eye(3), X.T @ y)
        return self

    def predict(self, X, return_std=False):
        mean = X @ self.coef_
        return (mean, np.full(len(X), self.confidence_noise)) if return_std else mean


def test_elpd_of_an_estimator_by_hand():
    folds = KFold(2, shuffle=True, random_state=3)
    chosen = select_confidence(
        SoULinearRegression(choice="path"), (X, Y), {"confidence_coef": [1.0, 2.0]}, cv=folds
    )
    by_hand = []
    for gamma in (1.0, 2.0):
        rows = []
        for train, test in folds.split(X):
            fitted = SoULinearRegression(confidence_coef=gamma).fit(X[train], Y[train])
            mean, sd = fitted.predict(X[test], return_std=True)
            rows.append(stats.norm(mean, sd).logpdf(Y[test]))
        by_hand.append(np.concatenate(rows))
    np.testing.assert_allclose(chosen.table["score"], [r.mean() for r in by_hand])
    errors = [r.std(ddof=1) / np.sqrt(24) for r in by_hand]
    np.testing.assert_allclose(chosen.table["standard_error"], errors)
    best = [1.0, 2.0][int(np.argmax(chosen.table["score"]))]
    assert chosen.best == {"confidence_coef": best}
    assert chosen.fitted.confidence_coef == best


def test_scores_of_an_estimator_and_a_product_of_grids():
    grid = {"confidence_coef": [1.0, 5.0], "confidence_noise": [0.5, 1.0]}
    by_r2 = select_confidence(Ridge(), (X, Y), grid, score="cv", cv=2)
    assert len(by_r2.table) == 4
    error = lambda fitted, X, y: -((fitted.predict(X) - y) ** 2)  # noqa: E731
    by_row = select_confidence(Ridge(), (X, Y), grid, score=error, cv=2)
    assert np.all(by_row.table["score"] < 0)
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = by_r2.plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["chosen", "confidence_noise = 0.5", "confidence_noise = 1"]
    matplotlib.pyplot.close("all")


def test_one_standard_error_takes_the_largest_confidence_nearby():
    scores = {0.1: -1.0, 1.0: -0.9, 10.0: -1.0, 100.0: -3.0}
    noise = np.where(np.arange(24) % 2, 0.8, -0.8)  # a standard error of 0.17
    score = lambda fitted, X, y: scores[fitted.confidence_coef] + noise[: len(y)]  # noqa: E731
    data, grid = (X, Y), {"confidence_coef": list(scores)}
    settings = {"score": score, "cv": 2}
    best = select_confidence(Ridge(), data, grid, **settings)
    assert best.best == {"confidence_coef": 1.0}
    larger = select_confidence(Ridge(), data, grid, rule="one_se", **settings)
    assert larger.best == {"confidence_coef": 10.0}
    assert isinstance(larger, Selection)
    assert isinstance(larger.table, pd.DataFrame)


def test_an_interrupt_is_raised(monkeypatch):
    """In the second fold, when there are scores that could pass for an answer."""
    calls = []

    def stop(*args, **kwargs):
        calls.append(args)
        if len(calls) > 1:
            signal.raise_signal(signal.SIGINT)
        return SimpleNamespace(log_likelihood=lambda y: {"y": np.zeros((5, len(y)))})

    score = lambda *_: stop() and 0.0  # noqa: E731
    with pytest.raises(KeyboardInterrupt):
        select_confidence(Ridge(), (X, Y), {"confidence_coef": [1.0]}, score=score, cv=2)
    pytest.importorskip("numpyro")
    calls.clear()
    monkeypatch.setattr(importlib.import_module("soubayes.blackbox.variational"), "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        select_confidence(lambda y: None, (Y,), {"mu": [1.0]}, cv=2)


def test_a_mixture_of_numpyro_fits(monkeypatch):
    """Weights from the held-out rows by hand; moments, quantiles and draws of two normals."""
    pytest.importorskip("numpyro")
    rng = np.random.default_rng(5)
    centres = {0.5: 0.0, 1.0: 1.0, 9.0: 40.0}

    class Posterior:
        """The part of `SoUPosterior` that a mixture uses: mu ~ N(centre, 1), y | mu ~ N(mu, 1)."""

        def __init__(self, confidence):
            self.confidence = confidence
            self.centre = centres[confidence["mu"]]
            self.draws = {"mu": rng.normal(self.centre, 1.0, 2000)}

        def mean(self, name):
            return self.draws[name].mean(axis=0)

        def sd(self, name):
            return self.draws[name].std(axis=0)

        def _values(self, name):
            return self.draws[name]

        def sample(self, n, random_state):
            return {"mu": self.draws["mu"][:n]}

        def predictive(self, n, random_state):
            return {"y": self.draws["mu"][:n] + 1.0}

        def log_likelihood(self, y):
            return {"y": stats.norm(self.draws["mu"][:, None], 1.0).logpdf(y)}

    module = importlib.import_module("soubayes.blackbox.variational")
    monkeypatch.setattr(module, "fit", lambda model, y, confidence, **_: Posterior(confidence))
    settings = {"cv": 3, "rule": "mixture"}
    chosen = select_confidence(lambda y: None, (Y,), {"mu": list(centres)}, **settings)
    scores = chosen.table["score"] * 24
    power = inspect.signature(predictive_weights).parameters["power"].default
    weight = np.exp(power * (scores - scores.max()))
    np.testing.assert_allclose(chosen.table["weight"], weight / weight.sum(), atol=1e-6)
    assert chosen.table["weight"][2] == 0
    assert chosen.best["mu"] == [0.5, 1.0][int(np.argmax(scores[:2]))]
    mixed, (a, b) = chosen.fitted, chosen.table["weight"][:2]
    assert isinstance(mixed, MixturePosterior)
    one, two = (each.draws["mu"] for each in mixed.components)
    mean = a * one.mean() + b * two.mean()
    assert mixed.mean("mu") == pytest.approx(mean)
    second = a * np.mean(one**2) + b * np.mean(two**2)
    assert mixed.sd("mu") == pytest.approx(np.sqrt(second - mean**2))
    half = mixed.quantile("mu", 0.5)
    assert a * np.mean(one <= half) + b * np.mean(two <= half) == pytest.approx(0.5, abs=1e-3)
    drawn = mixed.sample(1500)["mu"]
    assert len(drawn) == 1500
    assert abs(drawn.mean() - mean) < 5 * mixed.sd("mu") / np.sqrt(1500)
    assert abs(mixed.predictive(n=900)["y"].mean() - mean - 1) < 0.2
    assert mixed.summary()["quantity"].tolist() == ["mu"]
    assert f"{a:.2f} of" in repr(mixed)
    assert mixed.to_arviz(10).posterior["mu"].shape == (1, 10)
    with pytest.raises(ValueError, match="n is 0"):
        mixed.sample(0)
    for model, score in ((Ridge(), "elpd"), (lambda y: None, "cv")):
        with pytest.raises(ValueError, match="rule='mixture' is for NumPyro models"):
            select_confidence(model, (X, Y), {"mu": [1.0]}, score, rule="mixture")


@pytest.mark.slow
def test_numpyro_model_by_hand():
    """y_i ~ N(mu, 1), mu ~ N(0, 1): the tempered posterior and its predictive in closed form."""
    numpyro = pytest.importorskip("numpyro")
    dist = pytest.importorskip("numpyro.distributions")
    y = 3.0 + np.random.default_rng(1).normal(size=12)

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    folds = KFold(3)
    grid = {"mu": [0.05, 1.0, 20.0]}
    chosen = select_confidence(model, (y,), grid, cv=folds, restarts=1)
    expected = select_confidence(model, (y,), grid, score="cv", cv=folds, restarts=1)
    for i, gamma in enumerate(grid["mu"]):
        elpd, loss = [], []
        for train, test in folds.split(y):
            variance = gamma / (len(train) + gamma)
            mean = variance / gamma * y[train].sum()
            elpd.append(stats.norm(mean, np.sqrt(1 + variance)).logpdf(y[test]))
            loss.append(stats.norm(mean, 1).logpdf(y[test]) - variance / 2)
        # every fold has the same 2,048 draws, so their error does not average out
        error = 4 * np.sqrt(variance / 2048) * np.mean(abs(y - mean)) + 0.01
        assert chosen.table["score"][i] == pytest.approx(np.mean(elpd), abs=error)
        assert expected.table["score"][i] == pytest.approx(np.mean(loss), abs=error)
    assert chosen.best["mu"] == 0.05  # the prior is wrong by three standard deviations
    assert chosen.fitted.mean("mu") == pytest.approx(y.sum() / 12.05, abs=0.02)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grid": {}}, "at least one confidence"),
        ({"grid": {"confidence_x": [1.0]}}, r"'confidence_x'.*confidences are \['confidence_coef'"),
        ({"score": "loo"}, "score is 'loo'"),
        ({"rule": "smallest"}, "rule is 'smallest'"),
        ({"data": (X,)}, "needs \\(X, y\\)"),
        ({"steps": 10}, "are for NumPyro models"),
        ({"score": lambda *a: np.nan}, "no point of the grid has a finite score"),
    ],
)
def test_errors_say_what_to_do(change, message):
    settings = {"data": (X, Y), "grid": {"confidence_coef": [1.0]}, **change}
    with pytest.raises(ValueError, match=message):
        select_confidence(Ridge(), **settings)
    with pytest.raises(TypeError, match="must be a NumPyro model"):
        select_confidence(3, (X, Y), {"mu": [1.0]})


def test_the_feedback_of_a_module_is_chosen_by_the_other_table():
    """A second table is off by 3, and its bias is believed to be small."""

    def model(second, first):
        a = numpyro.sample("a", dist.Normal(0.0, 3.0))
        with numpyro.plate("first", len(first)):
            numpyro.sample("x", dist.Normal(a, 1.0), obs=first)
        b = numpyro.sample("b", dist.Normal(0.0, 0.1))
        with numpyro.plate("second", 4):
            numpyro.sample("y", dist.Normal(a + b, 1.0), obs=second)

    data = (np.array([2.9, 3.1, 3.0, 3.0]), np.array([0.2, -0.3, 0.1, 0.4, -0.1, 0.0]))
    found = select_confidence(model, data, {"eta:b": [0.25, 1.0]}, cv=2)
    assert found.best == {"eta:b": 0.25}
    assert found.fitted.eta == {"a": 1.0, "b": 0.25}
    assert found.plot().get_xlabel() == "feedback b"
    with pytest.raises(ValueError, match=r"\['eta:b'\] are both in grid and in confidence or eta"):
        select_confidence(model, data, {"eta:b": [0.25]}, cv=2, eta={"b": 0.5})
    with pytest.raises(ValueError, match="4 rows are held out, and a table that is not split"):
        select_confidence(model, (data[0], np.zeros(8)), {"eta:b": [1.0]}, cv=2)
