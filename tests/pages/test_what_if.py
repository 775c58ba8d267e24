"""What-if in a real browser: the prediction of a row that is entered is that of ``predict``."""

import base64

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit

from soubayes import (
    RowLikelihood,
    SoUCoxRegression,
    SoUGammaRegression,
    SoUGeneralizedRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNegativeBinomialRegression,
    SoUNormalMeans,
    SoUOrdinalRegression,
    SoUPoissonRegression,
)
from soubayes.pages.explorer import explorer_page
from soubayes.pages.what_if import what_if_data

COLUMNS = 6
ENTERED = [0.7, -1.3, 2.0, 0.25, -0.5, 1.1]
READ = """() => [...document.querySelectorAll("#prediction tbody tr")].map((row) =>
    [...row.cells].map((cell) => [cell.dataset.label ?? "name", cell.textContent]))"""


def table(rows, columns=COLUMNS, seed=0):
    X = np.random.default_rng(seed).normal(size=(rows, columns))
    return pd.DataFrame(X, columns=[f"column {j}" for j in range(columns)])


X = table(120)
RNG = np.random.default_rng(1)
ETA = 1.2 * X["column 0"] - 0.7 * X["column 1"]
NUMBER = ETA + RNG.normal(size=120)
CLASS = np.digitize(NUMBER, [-0.6, 0.6])
TIMES = (RNG.uniform(size=120) < 0.8, RNG.exponential(np.exp(-ETA)))
WIDE = table(50, 60, seed=2)


def read(tab):
    """The rows of the prediction, as numbers."""
    rows = [dict(row) for row in tab.evaluate(READ)]
    return [
        {
            key.removesuffix(" 90 %"): text if key == "name" else number(text)
            for key, text in row.items()
        }
        for row in rows
    ]


def number(text):
    return float(text.replace("−", "-"))


def open_fit(model, rows, tmp_path, visit):
    page = tmp_path / "page.html"
    page.write_text(explorer_page(model, X=rows))
    tab = visit(page)
    tab.check("#digits")
    return tab


def enter(tab, values):
    """By keyboard: from field to field."""
    tab.focus("#value-0")
    for j in range(len(values)):
        name = tab.locator("#shares tbody th").nth(j).inner_text()
        tab.keyboard.press("Control+a")
        tab.keyboard.type(str(values[int(name.split()[-1])]))
        tab.keyboard.press("Tab")


def check_numbers(tab, model, row):
    (found,) = read(tab)
    mean, sd = model.predict(row, return_std=True)
    lower, upper = model.predict(row, quantiles=[0.05, 0.95])[0]
    expected = {"mean": mean[0], "sd": sd[0], "lower": lower, "upper": upper}
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-6, abs=1e-6)


def check_classes(tab, model, row):
    found = read(tab)
    assert [each["name"] for each in found] == [str(label) for label in model.classes_]
    assert [each["probability"] for each in found] == pytest.approx(
        model.predict_proba(row)[0], abs=1e-6
    )


def check_odds(tab, model, row):
    """The interval of a probability: quantiles of the posterior of the log odds, recalibrated."""
    check_classes(tab, model, row)
    found = read(tab)
    lone = len(model.mixtures_) == 1
    inside = np.append(row.to_numpy()[0] - model._x_mean, 1.0)[None]
    ends, chance = [], []
    for mixture in model.mixtures_:
        means, variances = (part[:, 0] for part in mixture.predictors(inside))

        def below(eta, q, m=means, v=variances, w=mixture.weights):
            return w @ stats.norm.cdf(eta, m, np.sqrt(v)) - q

        ends.append([expit(mixture.power * brentq(below, -80, 80, (q,))) for q in (0.05, 0.95)])
    if lone:
        chance = [[1.0 - ends[0][1], 1.0 - ends[0][0]], ends[0]]
    else:
        total = expit(model._log_odds(row.to_numpy())).sum()
        chance = [[low / total, min(high / total, 1.0)] for low, high in ends]
    for each, (low, high) in zip(found, chance, strict=True):
        assert (each["lower"], each["upper"]) == pytest.approx((low, high), abs=1e-6)
        assert each["lower"] <= each["probability"] + 1e-9


def check_softmax(tab, model, row):
    check_classes(tab, model, row)
    sd = model.predict_proba(row, return_std=True)[1][0]
    assert [each["sd"] for each in read(tab)] == pytest.approx(sd, abs=1e-6)


def check_risk(tab, model, row):
    risk, ratio, *beyond = read(tab)
    times = np.quantile(model.event_times_, [0.25, 0.5, 0.75])
    curves = model.predict_survival_function(row, times, level=0.9)
    shown = [[each["mean"], each["lower"], each["upper"]] for each in beyond]
    np.testing.assert_allclose(shown, curves.to_numpy(), atol=1e-6)
    assert [each["name"] for each in beyond] == [f"survives {t:.4g}" for t in times]
    assert risk["mean"] == pytest.approx(model.predict(row)[0], abs=1e-6)
    assert risk["lower"] < risk["mean"] < risk["upper"]
    assert np.log([ratio["lower"], ratio["upper"]]) == pytest.approx(
        [risk["lower"], risk["upper"]], abs=1e-6
    )


FITS = {
    "linear": (SoULinearRegression(), NUMBER, check_numbers),
    "one point": (SoULinearRegression(choice="path"), NUMBER, check_numbers),
    "student": (SoULinearRegression(noise="student", cv=3), NUMBER, check_numbers),
    "two classes": (SoULogisticRegression(cv=3), CLASS > 0, check_odds),
    "classes": (SoULogisticRegression(cv=3, multi_class="ovr"), CLASS, check_odds),
    "softmax": (SoULogisticRegression(multi_class="multinomial", cv=3), CLASS, check_softmax),
    "counts": (SoUPoissonRegression(cv=3), RNG.poisson(np.exp(1.0 + ETA)), check_numbers),
    "dispersed": (
        SoUNegativeBinomialRegression(cv=3),
        RNG.negative_binomial(2, 1 / (1 + np.exp(ETA))),
        check_numbers,
    ),
    "positive": (SoUGammaRegression(cv=3), np.exp(NUMBER), check_numbers),
    "ordered": (SoUOrdinalRegression(cv=3), CLASS, check_classes),
    "survival": (SoUCoxRegression(cv=3), TIMES, check_risk),
}


@pytest.mark.filterwarnings("ignore::soubayes.sparse.choice.folds.ChoiceWarning")
@pytest.mark.parametrize("name", FITS)
def test_a_row_that_is_entered_has_the_prediction_of_predict(name, tmp_path, visit):
    estimator, y, check = FITS[name]
    model = estimator.fit(X, y)
    tab = open_fit(model, X, tmp_path, visit)
    enter(tab, ENTERED)
    row = pd.DataFrame([ENTERED], columns=X.columns)
    check(tab, model, row)
    tab.select_option("#row", "7")
    check(tab, model, X.iloc[[6]])
    if hasattr(model, "candidates_"):
        assert tab.inner_text("#view-says").startswith(
            "Predictions are from the full model, as model.predict"
        )
        tab.select_option("#view", label="sparse point")
        assert "model.sparse_.predict" in tab.inner_text("#view-says")
        check(tab, model.sparse_, X.iloc[[6]])


def test_of_many_columns_those_that_matter_can_be_changed_and_the_others_stay(tmp_path, visit):
    y = WIDE["column 3"] * 2.0 + WIDE.iloc[:, 10:40].sum(axis=1) / 3.0
    model = SoULinearRegression().fit(WIDE, y + RNG.normal(size=50))
    tab = open_fit(model, WIDE, tmp_path, visit)
    assert len(tab.locator("#shares tbody tr").all()) < 60
    tab.select_option("#row", label="row 4")
    check_numbers(tab, model, WIDE.iloc[[4]])
    tab.fill("#value-0", "1.75")
    tab.fill("#value-5", "-2")
    names = tab.locator("#shares tbody th").all_inner_texts()
    changed = WIDE.iloc[[4]].assign(**{names[0]: 1.75, names[5]: -2.0})
    check_numbers(tab, model, changed)


def test_shares_add_up_to_the_prediction(tmp_path, visit):
    model = SoULinearRegression().fit(X, NUMBER)
    tab = open_fit(model, X, tmp_path, visit)
    enter(tab, ENTERED)
    names = tab.locator("#shares tbody th").all_inner_texts()
    cells = tab.locator("#shares td[id^=share] > span:first-child").all_inner_texts()
    shares = dict(zip(names, map(number, cells), strict=True))
    mean = [float(f"{m:.5g}") for m in X.mean()]
    for j, name in enumerate(X):
        assert shares[name] == pytest.approx(model.coef_[j] * (ENTERED[j] - mean[j]), abs=1e-9)
    start = model.predict(pd.DataFrame([mean], columns=X.columns))[0]
    assert start + sum(shares.values()) == pytest.approx(read(tab)[0]["mean"], abs=1e-6)
    tab.fill("#value-2", "")
    assert "Enter a number" in tab.inner_text("#what-if-says")
    assert not tab.is_visible("#prediction")
    tab.click("#reset")
    assert read(tab)[0]["mean"] == pytest.approx(start, abs=1e-6)


def test_a_likelihood_of_ones_own_has_no_what_if():
    class Waiting(RowLikelihood):
        def derivatives(self, eta, y):
            ratio = y * np.exp(-eta)
            return eta + ratio, 1.0 - ratio, ratio

        def predict(self, mean, variance):
            return np.exp(mean + variance / 2.0)

    model = SoUGeneralizedRegression(Waiting(), choice="path").fit(X, np.exp(NUMBER))
    assert what_if_data(model) is None


def test_normal_means_have_a_page_without_rows_to_predict(tmp_path, visit):
    Y = RNG.normal(size=(25, 4)) + 9.0 * (np.arange(25) < 5)[:, None]
    model = SoUNormalMeans().fit(Y)
    model.to_html(tmp_path / "page.html")
    tab = visit(tmp_path / "page.html")
    assert not tab.is_visible("#what-if")
    assert len(tab.locator("#table tbody tr").all()) == model.selected_.sum()


def test_distribution_functions_of_the_page(tmp_path, visit):
    """Beside scipy's, also far out and for large counts."""
    model = SoULinearRegression(choice="path").fit(X, NUMBER)
    tab = open_fit(model, None, tmp_path, visit)
    cases = {
        "normal": (stats.norm.cdf, [(-6.0,), (-1.0,), (0.0,), (2.5,)]),
        "student": (stats.t.cdf, [(-3.0, 2.5), (0.5, 33.3), (4.0, 4.0)]),
        "poisson": (stats.poisson.cdf, [(0, 0.3), (12, 10.0), (100_200, 1e5)]),
        "negativeBinomial": (
            lambda k, mean, size: stats.nbinom.cdf(k, size, size / (size + mean)),
            [(0, 1.0, 0.5), (30, 25.0, 3.0), (40_000, 3e4, 1.5)],
        ),
        "gamma": (
            lambda y, shape, mean: stats.gamma.cdf(y, shape, scale=mean / shape),
            [(0.5, 0.3, 2.0), (3.0, 40.0, 2.5)],
        ),
    }
    for name, (exact, points) in cases.items():
        for at in points:
            found = tab.evaluate(f"(at) => Special.{name}(...at)", list(at))
            assert found == pytest.approx(float(exact(*at)), rel=1e-9, abs=1e-12)


def test_the_mean_of_a_centred_column_is_shown_as_0():
    rows = 1e6 * (X - X.mean())
    rows["column 5"] += 0.25
    model = SoULinearRegression(choice="path").fit(rows, NUMBER)
    data = what_if_data(model)
    values = np.frombuffer(base64.b64decode(data["values"]))
    shown = dict(zip(data["columns"], values, strict=True))
    assert shown == {name: 0.25 if name == "column 5" else 0.0 for name in rows}
