"""What a new user meets first: wrong containers, printed tables, and labels that stay as given."""

import numpy as np
import pandas as pd
import pytest

from soubayes import (
    SoUGeneralizedRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNormalMeans,
)
from soubayes.sparse.likelihoods.bernoulli import Bernoulli

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = X[:, 0] + 0.5 * RNG.normal(size=80)
LABELS = X[:, 0] - X[:, 1] + RNG.logistic(size=80) / 2 > 0
LINEAR = SoULinearRegression(choice="path").fit(X, Y)
LOGISTIC = SoULogisticRegression(confidence_coef=1.0).fit(X, LABELS)


def _message(function, *arguments):
    with pytest.raises((TypeError, ValueError)) as caught:
        function(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert text.count(". ") == 0
    return text


@pytest.mark.parametrize("model", [LINEAR, LOGISTIC])
def test_a_path_is_not_rows(model, tmp_path):
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        if hasattr(model, name):
            assert "'folder'" in _message(getattr(model, name), "folder")
            assert name in _message(getattr(model, name), tmp_path)
    fresh = type(model)()
    assert "pandas.read_csv" in _message(fresh.fit, "rows.csv", "y")
    assert "pandas.read_csv" in _message(fresh.fit, tmp_path / "rows.csv", Y)
    assert "no parquet file" in _message(fresh.fit, tmp_path, "y")
    assert "takes the rows themselves" in _message(SoUNormalMeans().fit, "rows.csv")


def test_a_query_is_not_a_table():
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame(X, schema=list("abcd")).lazy()
    for function in (
        lambda: SoULinearRegression(choice="path").fit(lazy, Y),
        lambda: SoULinearRegression(choice="path").fit(lazy),
        lambda: SoULogisticRegression(confidence_coef=1.0).fit(lazy, LABELS),
        lambda: SoUNormalMeans().fit(lazy),
        lambda: LINEAR.predict(lazy),
        lambda: LOGISTIC.predict_proba(lazy),
    ):
        assert "X.collect()" in _message(function)


@pytest.mark.parametrize(
    "model", [SoULinearRegression(choice="path"), SoULogisticRegression(confidence_coef=1.0)]
)
@pytest.mark.parametrize("rows", [[[1, 2], [3, 4]], [[1, 2, 3], [4, 5, 6]], [[1, 2, 3, 4]]])
def test_rows_without_y(model, rows):
    assert "pass y" in _message(model.fit, rows)


def test_one_dimension_of_normal_means():
    for given in (X[:, 0], list(X[:, 0]), pd.Series(X[:, 0])):
        assert "Y.reshape(-1, 1)" in _message(SoUNormalMeans().fit, given)


FLAGS = ("fit_intercept", "verbose", "inclusion")


def test_numpy_scalars_are_shown_as_numbers():
    wrong = [np.int64(-3), np.float32(-3), np.str_("none"), np.bool_(True)]
    for estimator in (SoULinearRegression, SoULogisticRegression, SoUNormalMeans):
        for name in estimator().get_params():
            if name in FLAGS or name in ("n_jobs", "feature_blocks"):
                continue
            for value in wrong:
                with pytest.raises((TypeError, ValueError)) as caught:
                    estimator(**{name: value}).fit(X, LABELS)
                assert "np." not in str(caught.value)
    for blocks in (
        {np.int64(3): {"columns": [np.int64(30)]}},
        {np.int64(3): {"columns": [0]}, np.int64(4): {"columns": [0]}},
        {np.int64(3): {"columns": [0], "prior": np.int64(3)}},
        {np.int64(3): {"columns": [0], "prior": "normal", "variance": np.float64(-1)}},
    ):
        assert "np." not in _message(
            SoULinearRegression(choice="path", feature_blocks=blocks).fit, X, Y
        )


@pytest.mark.parametrize(
    "dtype", ["boolean", "bool[pyarrow]", "Int64", "UInt8", "int64[pyarrow]", "category"]
)
def test_labels_of_pandas_types_keep_their_values(dtype):
    plain = LABELS if dtype in ("boolean", "bool[pyarrow]", "category") else LABELS.astype(int)
    y = pd.Series(plain).astype(dtype)
    for model in (
        SoULogisticRegression(confidence_coef=1.0).fit(X, y),
        SoULogisticRegression(confidence_coef=1.0).fit([(X[:40], y[:40]), (X[40:], y[40:])]),
    ):
        assert model.classes_.tolist() == np.unique(plain).tolist()
        assert model.classes_.dtype.kind in ("b" if plain is LABELS else "iu")
        assert model.predict(X).dtype == model.classes_.dtype
        np.testing.assert_allclose(model.coef_, LOGISTIC.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (SoULinearRegression(choice="path"), Y),
        (SoULinearRegression(confidence_coef=3.0), Y),
        (SoULinearRegression(choice="path", solver="coordinate", confidence_local=1.0), Y),
        (SoULogisticRegression(choice="path", confidence_coef="auto"), LABELS),
        (SoULogisticRegression(confidence_coef=3.0), LABELS),
        (SoUNormalMeans(), None),
    ],
)
def test_the_path_marks_the_reported_row(model, target):
    table = model.fit(X, target).path_
    assert table["chosen"].sum() == 1
    reported = float(np.ravel(model.confidence_coef_)[0])
    assert table["gamma"][table["chosen"]].item() == pytest.approx(reported)
    assert [*model.path_coef_] == [*model.path_coef_sd_] == [*model._feature_names()]
    assert len(model.path_coef_) == len(table)


@pytest.mark.parametrize("model", ["linear", "targets", "logistic", "classes", "means"])
def test_the_interval_of_a_dropped_coefficient_is_as_good_as_0(model):
    many = RNG.normal(size=(80, 30))
    many[:, :4] = X
    if model == "means":
        fitted = SoUNormalMeans().fit(many + 9.0 * (np.arange(80) < 5)[:, None])
    elif model in ("logistic", "classes"):
        y = LABELS if model == "logistic" else np.digitize(Y, [-0.7, 0.7])
        fitted = SoULogisticRegression(confidence_coef=4.0).fit(many, y)
    else:
        fitted = SoULinearRegression(choice="path").fit(
            many, Y if model == "linear" else np.c_[Y, -Y]
        )
    table = fitted.summary()
    selected = table["selected"].to_numpy()
    assert selected.any()
    assert not selected.all()
    dropped, kept = table[~selected], table[selected]
    assert (dropped["estimate"] == 0.0).all()
    assert (dropped["upper"] - dropped["lower"]).max() < 0.01 * kept["sd"].min()
    assert (kept["lower"] < kept["estimate"]).all()
    assert (kept["estimate"] < kept["upper"]).all()


@pytest.mark.parametrize("where", ["X", "y"])
@pytest.mark.parametrize(
    "model",
    [
        SoULinearRegression(choice="path"),
        SoULogisticRegression(choice="path"),
        SoUGeneralizedRegression(Bernoulli()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_masked_values_are_missing_values(model, where):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40).astype(float)
    masked = {"X": np.ma.array(X, mask=X > 2.0), "y": np.ma.array(y, mask=np.arange(40) == 3)}
    with pytest.raises(ValueError, match=f"{where} is a masked array with [1-9]"):
        model.fit(masked["X"] if where == "X" else X, masked["y"] if where == "y" else y)
    unmasked = model.fit(np.ma.array(X), np.ma.array(y))  # nothing is masked
    with pytest.raises(ValueError, match="X is a masked array"):
        unmasked.predict(masked["X"])
    with pytest.raises(ValueError, match="sample_weight is a masked array"):
        model.fit(X, y, np.ma.array(np.ones(40), mask=np.arange(40) == 0))


def test_masked_values_of_other_doors():
    rng = np.random.default_rng(0)
    X = np.ma.array(rng.normal(size=(40, 3)))
    X[0, 0] = np.ma.masked
    with pytest.raises(ValueError, match="1 masked values"):
        SoUNormalMeans().fit(X)
    with pytest.raises(ValueError, match="1 masked values"):
        SoULinearRegression().partial_fit(X, np.zeros(40))
    with pytest.raises(ValueError, match="1 masked values"):
        SoULinearRegression().fit([(X, np.zeros(40))])


def test_a_standard_deviation_or_quantiles():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    model = SoULinearRegression(choice="path").fit(X, X[:, 0] + rng.normal(size=30))
    with pytest.raises(ValueError, match="return_std and quantiles were both given"):
        model.predict(X, return_std=True, quantiles=[0.5])
