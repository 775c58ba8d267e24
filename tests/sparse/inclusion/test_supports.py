"""supports: credible sets, intervals and discoveries from a posterior that is written down."""

import numpy as np
import pytest
from scipy import stats

from soubayes.sparse.inclusion.supports import SupportPosterior, quantiles, share_of_wrong


def posterior():
    """Effect 0 in columns 0 and 1 (opposite signs), effect 1 too weak, column 3 faint."""
    return SupportPosterior(
        probability=np.array([0.7, 0.27, 0.6, 0.1]),
        mean=np.zeros(4),
        held=0.9,
        converged=True,
        effect=np.array([0, 0, 1, -1]),
        column=np.array([0, 1, 2, 3]),
        weight=np.array([0.7, 0.27, 0.6, 0.1]),
        centre=np.array([1.0, -1.0, 0.5, 0.2]),
        sd=np.array([0.1, 0.1, 0.2, 0.3]),
        alike=[np.array([[1.0, -0.9], [-0.9, 1.0]]), np.ones((1, 1))],
        units=np.array([2.0, 1.0, 1.0, 1.0]),
        x_scale=np.array([0.5, 1.0, 1.0, 1.0]),
        degrees=np.inf,
    )


def test_sets_hold_their_effect_with_the_level():
    (one,) = posterior().credible_sets(0.95)
    assert one.columns.tolist() == [0, 1]
    assert one.probability == pytest.approx(0.97)
    assert one.purity == pytest.approx(0.9)
    # both columns say +1 for a standard deviation of column 0
    assert one.effect == pytest.approx(1.0)
    assert (one.lower, one.upper) == pytest.approx((1 - 0.196, 1 + 0.196), abs=1e-3)
    assert posterior().credible_sets(0.95, purity=0.95) == []
    assert posterior().credible_sets(0.95, presence=0.98) == []
    assert [s.columns.tolist() for s in posterior().credible_sets(0.5, presence=0.5)] == [[0], [2]]
    # 0.7 of 0.97 is 0.722 of the effect if it is there
    assert [s.columns.tolist() for s in posterior().credible_sets(0.72)] == [[0]]
    assert [s.columns.tolist() for s in posterior().credible_sets(0.73)] == [[0, 1]]
    assert posterior().set_numbers().tolist() == [1, 1, 0, 0]


def test_intervals_have_zero_where_the_column_may_be_out():
    lower, upper = posterior().interval(0.9)
    # column 0: 30 % at 0; the 95 % point leaves 5/70 of its normal part above
    assert lower[0] == 0.0
    assert upper[0] == pytest.approx(2.0 * stats.norm.ppf(1 - 0.05 / 0.7, 1.0, 0.1), abs=1e-6)
    assert lower[1] == pytest.approx(stats.norm.ppf(0.05 / 0.27, -1.0, 0.1), abs=1e-6)
    assert upper[1] == 0.0


def test_quantiles_of_a_mixture():
    column, weight = np.array([0, 0, 1]), np.array([0.4, 0.5, 1.0])
    centre, sd = np.array([-1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    low, high = quantiles(np.array([0.2, 0.8]), column, weight, centre, sd, 2, 7.0)
    for x, level in ((low[0], 0.2), (high[0], 0.8)):
        below = 0.4 * stats.t.cdf((x + 1) / 0.5, 7) + 0.5 * stats.t.cdf(x - 2, 7) + 0.1 * (x >= 0)
        assert below == pytest.approx(level, abs=1e-9)
    assert (low[1], high[1]) == pytest.approx(stats.t.ppf([0.2, 0.8], 7, 3.0, 2.0))


def test_discoveries():
    p = np.array([0.2, 0.99, 0.85, 0.95])
    assert share_of_wrong(p, 0.02).tolist() == [False, True, False, False]
    assert share_of_wrong(p, 0.1).tolist() == [False, True, True, True]
    assert not share_of_wrong(p, 0.001).any()
    assert share_of_wrong(np.ones(3), 0.1).all()
