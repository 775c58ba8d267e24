"""The figures hold what their captions say."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import ConfusionMatrixDisplay, PredictionErrorDisplay

from soubayes import (
    EventTree,
    SoULinearRegression,
    SoULogisticRegression,
    plot_coefficients,
    plot_confidences,
    plot_credible_sets,
    plot_event_tree,
    plot_path,
    plot_prior_vs_confidence,
)

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def test_prior_vs_confidence_contrasts_the_two_ways_to_regularise():
    data = np.array([1.6, 2.3, 1.9, 2.7, 1.5])
    figure = plot_prior_vs_confidence(data)
    left, right = figure.axes

    def peaks(axis):
        solid = [line for line in axis.lines if line.get_linestyle() == "-"]
        return [line.get_xdata()[np.argmax(line.get_ydata())] for line in solid]

    by_scale, by_confidence = peaks(left), peaks(right)
    assert len(by_scale) == len(by_confidence) == 3
    assert by_scale == sorted(by_scale)  # tighter priors first: closest to the prior's mean, 0
    assert by_scale[0] < 0.3
    assert by_confidence == sorted(by_confidence)  # confidence falls: towards the data's mean
    assert by_confidence[-1] == pytest.approx(data.mean(), abs=0.1)
    dashed = [line for line in left.lines if line.get_linestyle() == "--"]
    assert len(dashed) == 3


def test_event_tree_shows_every_branch_and_the_value():
    tree = EventTree({("u", "l"): 1, ("u", "r"): 1, ("d", "l"): 2}, stages=("first", "second"))
    axis = plot_event_tree(tree, lambda first, second: float(second == "l"), {"first": np.inf})
    texts = [text.get_text() for text in axis.texts]
    assert sum("→" in text for text in texts) == 5
    assert "u  0.50→0.50" in texts
    assert any("infty" in text for text in texts)
    assert axis.get_title() == "V = 0.690"


RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(80, 5)) * [1e-3, 1, 1, 1, 1e3], columns=["$a$", *"bcde"])
Y = 900.0 * X["$a$"] - X["b"] + 0.002 * X["e"] + RNG.normal(size=80)


@pytest.fixture(scope="module")
def linear():
    return SoULinearRegression(inclusion=True).fit(X, Y)


@pytest.fixture(scope="module")
def classes():
    labels = np.array(["low", "mid", "high"])[np.digitize(Y, [-1, 1])]
    return SoULogisticRegression(cv=3).fit(X, labels)


def names(axis):
    return [label.get_text() for label in axis.get_yticklabels()]


def test_coefficients_are_those_of_the_summary(linear):
    summary = linear.summary(level=0.8)
    size = (summary["median"] / linear._coef_units[0]).abs().sort_values(ascending=False)
    for standardised, units in ((True, linear._coef_units[0]), (False, np.ones(5))):
        axis = plot_coefficients(linear, level=0.8, standardised=standardised)
        assert names(axis) == list(size.index)
        drawn = np.concatenate([line.get_xdata() for line in axis.lines[1:]])
        np.testing.assert_allclose(np.sort(drawn), np.sort(summary["median"] / units))
        ends = np.concatenate([part.get_segments() for part in axis.collections])[:, :, 0]
        expected = summary[["lower", "upper"]].to_numpy() / units[:, None]
        np.testing.assert_allclose(np.sort(ends, axis=0), np.sort(expected, axis=0))
    axis = plot_coefficients(linear.sparse_, most=2)
    assert names(axis) == list(size.index[:2])
    assert axis.get_xlabel() == "standardised coefficient, sparse point"
    axis.figure.canvas.draw()  # a $ in a name is a $


def test_coefficients_of_a_class(classes):
    axis = plot_coefficients(classes, target=1)
    median = classes.summary().loc[classes.classes_[1], "median"] / classes._coef_units[1]
    drawn = np.concatenate([line.get_xdata() for line in axis.lines[1:]])
    np.testing.assert_allclose(np.sort(drawn), np.sort(median))


def test_a_path_is_standardised_unless_raw_units_are_asked_for(linear):
    """Units of X differ by 1e6: standardised curves do not."""
    largest = [
        max(np.abs(line.get_ydata()).max() for line in plot_path(linear, standardised=s).lines[:-1])
        for s in (True, False)
    ]
    assert largest[0] < 1.5
    assert largest[1] > 500.0
    assert plot_path(linear, standardised=False).get_ylabel() == "coefficient"


def test_candidates_fill_the_axis(linear):
    """A row for each candidate with its name, and marks from end to end of the scores."""
    axis = plot_confidences(linear)
    table = linear.candidates_[np.isfinite(linear.candidates_["effective_columns"])]
    assert {name.split("\n")[0] for name in names(axis)} == set(table["candidate"])
    behind = table["score"] - table["score"].max()
    low, high = axis.get_xlim()
    spread = (behind + table["score_se"]).max() - (behind - table["score_se"]).min()
    assert spread > 0.8 * (high - low)


def test_credible_sets_have_names_on_the_axis(linear):
    axis = plot_credible_sets(linear)
    assert [label.get_text() for label in axis.get_xticklabels()] == list(X)
    wide = RNG.normal(size=(100, 60))
    y = 3.0 * wide[:, 7] - 3.0 * wide[:, 41] + RNG.normal(size=100)
    model = SoULinearRegression(choice="path", inclusion=True).fit(wide, y)
    found = {label.get_text() for label in plot_credible_sets(model).get_xticklabels()}
    assert found == {"x7", "x41"}


def test_displays_of_scikit_learn_take_the_estimators(linear, classes):
    assert PredictionErrorDisplay.from_estimator(linear, X, Y).ax_.get_xlabel()
    two = SoULogisticRegression(choice="path").fit(X, Y > 0)
    assert CalibrationDisplay.from_estimator(two, X, Y > 0, n_bins=3).prob_true.size == 3
    drawn = ConfusionMatrixDisplay.from_estimator(classes, X, classes.predict(X))
    assert np.trace(drawn.confusion_matrix) == len(X)
