"""supports: credible sets, intervals and discoveries from a posterior that is written down."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from soubayes import SoULinearRegression
from soubayes.sparse.inclusion.supports import SupportPosterior, largest_set, quantiles


def posterior():
    """Effect 0 in columns 0 and 1 (opposite signs), effect 1 too weak, column 3 faint."""
    return SupportPosterior(
        probability=np.array([0.7, 0.27, 0.6, 0.1]),
        mean=np.zeros(4),
        p_value=np.zeros(4),
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


def test_sets_come_by_probability_then_by_size():
    sure = replace(
        posterior(),
        effect=np.array([0, 1, 2]),
        column=np.array([0, 1, 2]),
        weight=np.array([1.0, 1.0 - 1e-15, 0.97]),
        centre=np.array([0.4, -0.5, 3.0]),
        sd=np.full(3, 0.1),
        alike=[np.ones((1, 1))] * 3,
    )
    assert [one.columns.tolist() for one in sure.credible_sets()] == [[1], [0], [2]]


def test_intervals_have_zero_where_the_column_may_be_out():
    lower, upper = posterior().quantiles(np.array([0.05, 0.95]))
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


def test_discoveries_hold_the_expected_share():
    p, sure = np.array([0.2, 0.99, 0.85, 0.95]), np.zeros(4)
    assert largest_set(p, sure, 0.02).tolist() == [False, True, False, False]
    assert largest_set(p, sure, 0.1).tolist() == [False, True, True, True]
    assert not largest_set(p, sure, 0.001).any()
    assert largest_set(np.ones(3), np.zeros(3), 0.1).all()


def test_discoveries_are_no_more_than_those_of_benjamini_and_hochberg():
    p_value = np.array([0.001, 0.2, 0.03, 0.04, 0.9])
    likely = np.array([0.99, 0.97, 0.98, 0.975, 0.96])
    # 5 x 0.001/1 = 0.005, 5 x 0.03/2 = 0.075, 5 x 0.04/3 = 0.067, 5 x 0.2/4 = 0.25
    assert largest_set(likely, p_value, 0.07).tolist() == [True, False, True, True, False]
    assert largest_set(likely, p_value, 0.06).tolist() == [True, False, False, False, False]


def test_p_values_of_noise_are_uniform():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 300)), rng.normal(size=400)
    model = SoULinearRegression(choice="path", inclusion=True).fit(X, y)
    found = model.supports_.posteriors[0].p_value
    assert stats.kstest(found, "uniform").pvalue > 0.01
