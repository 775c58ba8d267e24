"""The figures hold what their captions say."""

import matplotlib
import numpy as np
import pytest

from soubayes import EventTree, plot_event_tree, plot_prior_vs_confidence

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
