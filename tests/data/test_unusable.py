"""Columns that are not finite numbers: the message names them and says what to do, everywhere."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

import soubayes
from soubayes import SoUGeneralizedRegression, SoULinearRegression, TableEncoder
from soubayes.data.names import TableError
from soubayes.data.unusable import why_unusable
from soubayes.sparse.likelihoods.bernoulli import Bernoulli

ROWS = 40
RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
ETA = X["a"].to_numpy() + RNG.normal(size=ROWS)
DAYS = pd.Series(pd.date_range("2026-01-01", periods=ROWS))
TARGETS = {
    "SoULinearRegression": ETA,
    "SoULogisticRegression": ETA > 0,
    "SoUOrdinalRegression": np.digitize(ETA, [-0.5, 0.5]),
    "SoUPoissonRegression": np.round(np.exp(ETA)),
    "SoUNegativeBinomialRegression": np.round(np.exp(ETA)),
    "SoUGammaRegression": np.exp(ETA),
    "SoUGeneralizedRegression": (ETA > 0).astype(float),
    "SoUCoxRegression": (ETA > 0, np.exp(ETA)),
    "SoUNetRegressor": ETA,
    "SoUNetClassifier": ETA > 0,
    "SoUNetEnsemble": ETA,
}
REGRESSORS = [
    name for name in TARGETS if not name.startswith(("SoULog", "SoUOrd", "SoUCox", "SoUNetC"))
]


def made(name):
    kind = getattr(soubayes, name)
    return kind(Bernoulli()) if kind is SoUGeneralizedRegression else kind()


def column(values):
    return X.assign(b=values)


WRONG = {
    "text": (column(["u", "v"] * 20), r"text in the column 'b'.*TableEncoder"),
    "two columns": (
        column("u").assign(c="v"),
        r"text in the columns 'b', 'c'.*TableEncoder",
    ),
    "category": (column(pd.Categorical(["u", "v"] * 20)), r"text in the column 'b'.*TableEncoder"),
    "text array": (column(["u", "v"] * 20).to_numpy(), r"text in the column 1.*TableEncoder"),
    "nested lists": (column(["u", "v"] * 20).to_numpy().tolist(), r"text in the column 1"),
    "NaN": (column(np.r_[np.nan, np.ones(39)]), r"NaN\) in the column 'b'.*TableEncoder"),
    "NaN array": (column(np.r_[np.nan, np.ones(39)]).to_numpy(), r"NaN\) in the column 1:"),
    "None": (column(pd.Series([None, *[1.0] * 39], dtype=object)), r"NaN\) in the column 'b'"),
    "NA": (column(pd.array([None, *[1.0] * 39], "Float64")), r"NaN\) in the column 'b'"),
    "infinity": (column(np.r_[np.inf, np.ones(39)]), r"infinite values in the column 'b'"),
    "dates": (column(DAYS), r"dates in the column 'b'.*TableEncoder"),
    "dates of a zone": (column(DAYS.dt.tz_localize("UTC")), r"dates in the column 'b'"),
    "dates as objects": (column(DAYS.astype(object)), r"dates in the column 'b'"),
    "dates alone": (DAYS.to_frame("day"), r"dates in the column 'day'"),
    "an array of dates": (DAYS.to_frame("day").to_numpy(), r"dates in the column 0"),
    "months": (column(DAYS.dt.to_period("M")), r"dates in the column 'b'"),
    "durations": (column(DAYS - DAYS[0]), r"durations in the column 'b'"),
    "durations alone": ((DAYS - DAYS[0]).to_frame("t"), r"durations in the column 't'"),
}


@pytest.mark.parametrize("given", WRONG)
@pytest.mark.parametrize("name", TARGETS)
def test_columns_that_are_not_numbers_are_named(name, given):
    table, message = WRONG[given]
    with pytest.raises(ValueError, match=message) as caught:
        made(name).fit(table, TARGETS[name])
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("name", TARGETS)
def test_new_rows_too(name):
    with pytest.raises(NotFittedError):
        made(name).predict(WRONG["NaN"][0])
    if "Net" in name:
        return  # the same check, and seconds of training
    model = made(name).set_params(choice="path").fit(X, TARGETS[name])
    for given in ("text", "NaN", "dates"):
        with pytest.raises(ValueError, match=WRONG[given][1]):
            model.predict(WRONG[given][0])


@pytest.mark.parametrize("given", ["text", "NaN", "infinity", "dates", "durations"])
def test_blocks_too(given):
    table, message = WRONG[given]
    with pytest.raises(ValueError, match=message):
        SoULinearRegression(choice="path").fit([(X, ETA), (table, ETA)])


def test_sparse_columns_too():
    table = sp.csr_matrix(np.eye(ROWS, 3))
    table.data[1] = np.nan
    with pytest.raises(ValueError, match=r"NaN\) in the column 1:"):
        SoULinearRegression(choice="path").fit(table, ETA)


def test_tables_of_polars_too():
    polars = pytest.importorskip("polars")
    for given in ("text", "NaN", "dates", "durations"):
        table, message = WRONG[given]
        with pytest.raises(ValueError, match=message):
            SoULinearRegression(choice="path").fit(polars.from_pandas(table), ETA)
    for name, target in TARGETS.items():
        lazy = polars.DataFrame({"y": ETA}).lazy()
        with pytest.raises(TypeError, match=r"y is a LazyFrame.*y\.collect\(\)"):
            made(name).fit(X, lazy)
        with pytest.raises(TypeError, match=r"sample_weight is a LazyFrame"):
            made(name).fit(X, target, sample_weight=lazy)


LABELS = ["a", "b"] * 19


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "SoUCoxRegression"])
@pytest.mark.parametrize(
    "y",
    [
        pd.Series([None, *LABELS, "a"], dtype=object),
        pd.Series([None, *LABELS, "a"]),
        pd.Series([None, *LABELS, "a"]).astype("category"),
        [None, *LABELS, "a"],
        np.array([np.nan, *[1.0, 2.0] * 19, 1.0]),
        pd.array([None, *[True, False] * 19, True], "boolean"),
        pd.Series(pd.array([None, *[1, 2] * 19, 1], "Int64")),
    ],
    ids=["objects", "text", "category", "list", "float", "boolean", "Int64"],
)
def test_labels_and_targets_that_are_missing(name, y):
    with pytest.raises(ValueError, match=r"y holds missing values \(NaN\) in 1 of 40 rows.* row 0"):
        made(name).fit(X, y)


@pytest.mark.parametrize("name", REGRESSORS)
def test_targets_that_are_not_numbers(name):
    polars = pytest.importorskip("polars")
    index = pd.DatetimeIndex(DAYS)
    for y in (DAYS, DAYS.to_numpy(), DAYS.astype(object), index, index.array, polars.Series(DAYS)):
        with pytest.raises(ValueError, match=r"y holds dates: .*\.dt\.days"):
            made(name).fit(X, y)
    with pytest.raises(ValueError, match="y holds durations"):
        made(name).fit(X, DAYS - DAYS[0])
    with pytest.raises(ValueError, match=r"y holds (text|values such as 'a')|y has dtype <U1"):
        made(name).fit(X, ["a", "b"] * 20)


def test_text_of_numbers_is_numbers():
    assert why_unusable(pd.DataFrame({"a": ["1.5", "2"]}), ["1", "2"]) is None


def test_an_encoder_asks_for_the_names_of_dates():
    with pytest.raises(TableError, match=r"'b' holds dates: name it in dates=\['b'\]"):
        TableEncoder().fit(column(DAYS))
    with pytest.raises(TableError, match="'b' holds durations"):
        TableEncoder().fit(column(DAYS - DAYS[0]))
    model = make_pipeline(TableEncoder(dates=["b"]), SoULinearRegression(choice="path"))
    assert np.isfinite(model.fit(column(DAYS), ETA).predict(column(DAYS))).all()
