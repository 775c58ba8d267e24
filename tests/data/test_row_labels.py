"""Rows are joined by position, so pandas labels that say another order are an error everywhere."""

import inspect
from itertools import chain

import numpy as np
import pandas as pd
import pytest

import soubayes
from soubayes import SoUGeneralizedRegression, SoULinearRegression, select_confidence
from soubayes.data.rows import check_row_labels, row_arguments
from soubayes.networks.feeding import BatchSource
from soubayes.sparse.likelihoods.bernoulli import Bernoulli

ROWS = 24
RNG = np.random.default_rng(0)
LABELS = [f"row{i}" for i in range(ROWS)]
X = pd.DataFrame(RNG.normal(size=(ROWS, 3)), columns=list("abc"), index=LABELS)
Y = 0.5 * X["a"] + RNG.normal(size=ROWS)
SHUFFLE = RNG.permutation(ROWS)

RESPONSE = {
    "fit": ["y", "sample_weight", "groups", "offset", "exposure"],
    "predict": ["offset", "exposure"],
    "log_density": ["y", "offset", "exposure"],
    "log_score": ["y", "sample_weight", "offset", "exposure"],
    "score": ["y", "sample_weight", "offset", "exposure"],
}
NETWORK = {
    "fit": ["y", "sample_weight", "y_val"],
    "log_density": ["y"],
    "plot_predictive": ["y"],
    "score": ["y", "sample_weight"],
}
# every method that takes rows and something beside them, and the arguments that are beside them
ARGUMENTS = {
    "SoULinearRegression": {
        "fit": ["y", "sample_weight", "groups"],
        "partial_fit": ["y", "sample_weight"],
        "score": ["y", "sample_weight"],
    },
    "SoULogisticRegression": {
        "fit": ["y", "sample_weight", "groups"],
        "score": ["y", "sample_weight"],
    },
    "SoUOrdinalRegression": {
        "fit": ["y", "sample_weight", "groups", "offset"],
        "predict": ["offset"],
        "predict_proba": ["offset"],
        "predict_log_proba": ["offset"],
        "score": ["y", "sample_weight"],
    },
    "SoUPoissonRegression": RESPONSE,
    "SoUNegativeBinomialRegression": RESPONSE,
    "SoUGammaRegression": RESPONSE,
    "SoUGeneralizedRegression": RESPONSE,
    "SoUCoxRegression": {
        "fit": ["y", "sample_weight", "groups", "strata"],
        "predict_survival_function": ["strata"],
        "predict_cumulative_hazard": ["strata"],
        "score": ["y", "strata"],
        "log_score": ["y", "strata"],
        "integrated_brier_score": ["y", "strata"],
        "check_hazards": ["y", "sample_weight", "strata"],
        "schoenfeld_residuals": ["y", "sample_weight", "strata"],
    },
    "SoUNetRegressor": NETWORK,
    "SoUNetClassifier": NETWORK,
    "SoUNetEnsemble": {
        "fit": ["y", "sample_weight"],
        "log_density": ["y"],
        "score": ["y", "sample_weight"],
    },
}
CASES = [
    (name, method, argument)
    for name, methods in ARGUMENTS.items()
    for method, arguments in methods.items()
    for argument in arguments
]


def made(name):
    kind = getattr(soubayes, name)
    return kind(Bernoulli()) if kind is SoUGeneralizedRegression else kind()


def test_the_list_of_arguments_is_complete():
    """`transform` and its like get y for scikit-learn's interface and ignore it."""
    there = {}
    for name in soubayes.__all__:
        kind = getattr(soubayes, name)
        if not hasattr(kind, "fit") or "X" not in inspect.signature(kind.fit).parameters:
            continue
        found = {
            method: [*chain(*row_arguments(member).values())]
            for method, member in inspect.getmembers(kind, inspect.isfunction)
            if not method.startswith(("_", "set_")) and method != "fit_transform"
        }
        there[name] = {method: arguments for method, arguments in found.items() if arguments}
    there.pop("TableEncoder")  # it does not read y
    sort = {name: {m: sorted(a) for m, a in found.items()} for name, found in there.items()}
    assert sort == {
        name: {m: sorted(a) for m, a in found.items()} for name, found in ARGUMENTS.items()
    }


@pytest.mark.parametrize(("name", "method", "argument"), CASES)
def test_labels_in_another_order_are_an_error(name, method, argument):
    """Before anything else is looked at, whether it is fitted or not."""
    given = {parameter: Y for parameter in ARGUMENTS[name][method] if parameter != argument}
    given[argument] = Y.iloc[SHUFFLE]
    if "y_val" in given:
        given["X_val"] = X
    with pytest.raises(ValueError, match=r"in another order.*\.loc\[.*\.to_numpy\(\)"):
        getattr(made(name), method)(X, **given)


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_labels_of_times_and_events(wrong):
    y = [Y, Y, Y]
    y[wrong] = Y.iloc[SHUFFLE]
    model = soubayes.SoUCoxRegression()
    with pytest.raises(ValueError, match=rf"y\[{wrong}\] has the row labels of X"):
        model.fit(X, tuple(y))
    with pytest.raises(ValueError, match=r"y has the row labels of X"):
        model.fit(X, pd.concat([Y, Y], axis=1).iloc[SHUFFLE])


INDEXES = {
    "text": pd.Index(LABELS),
    "numbers": pd.RangeIndex(ROWS),
    "sparse numbers": pd.Index(range(0, 7 * ROWS, 7)),
    "floats with a gap": pd.Index([np.nan, *range(1, ROWS)]),
    "days": pd.date_range("2026-01-01", periods=ROWS),
    "hours elsewhere": pd.date_range("2026-01-01", periods=ROWS, freq="h", tz="Asia/Tokyo"),
    "months": pd.period_range("2026-01", periods=ROWS, freq="M"),
    "durations": pd.timedelta_range("1h", periods=ROWS),
    "categories": pd.CategoricalIndex(LABELS),
    "intervals": pd.interval_range(0, ROWS),
    "two levels": pd.MultiIndex.from_product([range(2), LABELS[: ROWS // 2]]),
    "two levels with a gap": pd.MultiIndex.from_arrays([[None] * ROWS, LABELS]),
    "repeated": pd.Index([0, 1] * (ROWS // 2)),
    "repeated levels": pd.MultiIndex.from_product([range(2), [1] * (ROWS // 2)]),
    "of several types": pd.Index([1, "one", None, *LABELS[3:]], dtype=object),
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=list(INDEXES))
def test_any_index(index):
    whole = pd.Series(range(ROWS), index=index)
    check_row_labels({"X": whole, "y": whole.copy()})
    check_row_labels({"X": whole, "y": pd.Series(range(ROWS), index=index.copy(deep=True))})
    check_row_labels({"X": whole.to_numpy(), "y": whole, "offset": whole.to_numpy()})
    check_row_labels({"X": whole, "y": whole.reset_index(drop=True).add_prefix("other")})
    for other in (whole.iloc[SHUFFLE], whole.iloc[SHUFFLE].set_axis(index[SHUFFLE].astype(object))):
        with pytest.raises(ValueError, match="in another order"):
            check_row_labels({"X": whole, "y": other})
        with pytest.raises(ValueError, match="in another order"):  # of arguments among each other
            check_row_labels({"X": whole.to_numpy(), "y": whole, "sample_weight": other})


def test_repeated_labels_are_not_joined_by_loc():
    whole = pd.Series(range(4), index=[0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"sort both.*\.loc cannot.*y\.to_numpy\(\)"):
        check_row_labels({"X": whole, "y": whole.iloc[::-1]})
    check_row_labels({"X": whole, "y": pd.Series(range(4), index=[1, 1, 1, 0])})  # other labels


def test_other_labels_are_taken_by_position():
    plain = SoULinearRegression(choice="path").fit(X.to_numpy(), Y.to_numpy())
    for index in (range(ROWS), [f"other{i}" for i in SHUFFLE], [*LABELS[1:], "new"]):
        fitted = SoULinearRegression(choice="path").fit(X, Y.set_axis(list(index)))
        np.testing.assert_array_equal(fitted.coef_, plain.coef_)
    for y in (Y.iloc[SHUFFLE].loc[X.index], Y.iloc[SHUFFLE].to_numpy()[np.argsort(SHUFFLE)]):
        np.testing.assert_array_equal(
            SoULinearRegression(choice="path").fit(X, y).coef_, plain.coef_
        )


def test_equal_labels_cost_no_hashing(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    monkeypatch.setattr(pd.Index, "factorize", refuse)
    check_row_labels({"X": X, "y": Y, "groups": pd.Series(0, index=list(LABELS))})


def test_blocks_and_grids():
    blocks = [(X, Y), (X, Y.iloc[SHUFFLE])]
    with pytest.raises(ValueError, match="in another order"):
        SoULinearRegression(choice="path").fit(blocks)
    with pytest.raises(ValueError, match="in another order"):
        list(BatchSource(blocks).raw())
    weighed = [(X, Y, Y.iloc[SHUFFLE])]
    with pytest.raises(ValueError, match="sample_weight has the row labels of X in another order"):
        list(BatchSource(weighed).raw())
    grid = {"confidence_coef": [1.0]}
    model = SoULinearRegression()
    with pytest.raises(ValueError, match=r"data\[1\] has the row labels of data\[0\]"):
        select_confidence(model, (X, Y.iloc[SHUFFLE]), grid)
    with pytest.raises(ValueError, match=r"groups has the row labels of data\[0\]"):
        select_confidence(model, (X, Y), grid, groups=Y.iloc[SHUFFLE])
    with pytest.raises(ValueError, match=r"data\[2\] has the row labels of data\[1\]"):
        select_confidence(lambda table, X, y: None, (X.head(3), X, Y.iloc[SHUFFLE]), {"a": [1.0]})
