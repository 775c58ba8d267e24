"""Regions of acceptance: their probability is exactly the level, whatever prior was fitted."""

import numpy as np
import pytest
from scipy import optimize, stats

from soubayes.sparse.intervals.estimates import ColumnEstimates
from soubayes.sparse.intervals.fab import fab_intervals


def design(rng, n, p):
    """Standard errors in units of the noise, and correlations, of least squares on some columns."""
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.4)
    V = np.linalg.inv(np.cov(X, rowvar=False) * (n - 1))
    root = np.sqrt(np.diag(V))
    return root, V / np.outer(root, root), n - p - 1


def accepted_probability(truth, noise, others, root, R, degrees, level):
    """P(column 0 covers) given the other columns and the noise of the hypothesis, by its edges.

    Under the truth sigma_theta^2 = (RSS + (b - theta)^2/V)/(df + 1) is independent of the pivot.
    """

    def covers(u):
        t = stats.t.ppf(u, degrees)
        s = noise * np.sqrt((degrees + 1.0) / (degrees + t**2))
        z = R[0] * (truth + t * s) + np.sqrt(np.maximum(1.0 - R[0] ** 2, 0.0)) * others
        z[0] = truth + t * s
        low, high = fab_intervals(ColumnEstimates("", z * root, s * root, degrees, R), level)
        return 1.0 if low[0] <= truth * root[0] <= high[0] else -1.0

    inside = np.linspace(0.0005, 0.9995, 12)
    known = np.array([covers(u) for u in inside])
    first, last = np.flatnonzero(known > 0)[[0, -1]]
    assert (known[first : last + 1] > 0).all()
    ends = [
        optimize.bisect(covers, inside[i], inside[j], xtol=2e-7)
        for i, j in ((first - 1, first), (last, last + 1))
    ]
    return ends[1] - ends[0]


def test_a_true_value_is_accepted_with_the_probability_of_the_level():
    rng = np.random.default_rng(0)
    for truth in np.append(0.0, np.geomspace(0.05, 12.0, 19) * rng.choice([-1, 1], 19)):
        root, R, degrees = design(rng, int(rng.integers(18, 60)), 8)
        level = rng.choice([0.5, 0.9, 0.95])
        others = rng.normal(size=8) * np.where(rng.random(8) < 0.3, 4.0, 1.0)
        noise = rng.uniform(0.6, 1.5)
        found = accepted_probability(truth, noise, others, root, R, degrees, level)
        assert abs(found - level) < 1e-6


def test_what_depends_on_the_estimate_itself_is_left_out_of_its_prior():
    # other columns that equal R_0k z_0 exactly are 0 once z_0 is taken out: the interval of
    # column 0 is that of a table in which they are 0
    rng = np.random.default_rng(1)
    _, R, degrees = design(rng, 40, 6)
    for z0 in (0.5, 3.0):
        z = R[0] * z0
        low, high = fab_intervals(ColumnEstimates("", z, np.ones(6), degrees, R), 0.9)
        plain = np.where(np.arange(6) == 0, z0, 0.0)
        alone = fab_intervals(ColumnEstimates("", plain, np.ones(6), degrees, np.eye(6)), 0.9)
        np.testing.assert_allclose([low[0], high[0]], [end[0] for end in alone], rtol=1e-10)


@pytest.mark.parametrize("degrees", [1.0, 3.0, 30.0, np.inf])
def test_intervals_hold_the_estimate_and_move_with_the_units(degrees):
    rng = np.random.default_rng(2)
    value, se = rng.normal(size=50) * 3.0, rng.uniform(0.5, 2.0, 50)
    unit = rng.uniform(1e-3, 1e3, 50) * rng.choice([-1.0, 1.0], 50)
    for level in (0.2, 0.5, 0.9, 0.99):
        low, high = fab_intervals(ColumnEstimates("", value, se, degrees), level)
        assert ((low <= value) & (value <= high)).all()
        moved = fab_intervals(ColumnEstimates("", value * unit, se * np.abs(unit), degrees), level)
        ends = np.sort(np.stack([low * unit, high * unit]), axis=0)
        np.testing.assert_allclose(np.stack(moved), ends, rtol=1e-7, atol=1e-9)


def test_null_columns_are_near_the_shortest_possible():
    # Pratt (1963): no interval that is valid for every value is shorter on average at 0 than
    # 2 phi(0)-weighted lengths allow; for level 0.9 that is 0.81 of the t interval
    z = np.random.default_rng(3).normal(size=400)
    low, high = fab_intervals(ColumnEstimates("", z, np.ones(400)), 0.9)
    ratio = np.mean(high - low) / (2.0 * stats.norm.ppf(0.95))
    assert 0.80 < ratio < 0.84
    far = np.append(z, 50.0)
    low, high = fab_intervals(ColumnEstimates("", far, np.ones(401)), 0.9)
    assert (high - low)[-1] < 1.1 * 2.0 * stats.norm.ppf(0.95)


def test_columns_without_an_estimate_have_no_bounds_and_a_noiseless_one_no_width():
    given = ColumnEstimates("", np.array([1.0, np.nan, 2.0]), np.array([1.0, np.inf, 0.0]), 5.0)
    low, high = fab_intervals(given, 0.9)
    assert (low[1], high[1]) == (-np.inf, np.inf)
    assert low[2] == high[2] == 2.0
