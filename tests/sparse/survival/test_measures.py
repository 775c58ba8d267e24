"""Concordance, Kaplan-Meier, piecewise hazards: measures, hazard, responses, residuals."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad

from soubayes.sparse.survival.hazard import PiecewiseHazard
from soubayes.sparse.survival.measures import KaplanMeier, concordance
from soubayes.sparse.survival.risk_sets import subjects


def example(n=60, late=False, strata=1, seed=0):
    rng = np.random.default_rng(seed)
    stop = np.ceil(8.0 * rng.exponential(size=n)) / 8.0
    start = stop * rng.uniform(-1.0, 0.9, size=n) if late else -np.inf
    start = np.where(np.asarray(start) <= 0.0, -np.inf, start)
    y = subjects(stop, rng.uniform(size=n) < 0.6, start, rng.integers(strata, size=n))
    return y, rng.normal(size=n).round(1)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("strata", [1, 3])
def test_concordance_by_pairs(late, strata):
    y, risk = example(late=late, strata=strata)
    right = pairs = 0.0
    for i in np.flatnonzero(y["event"]):
        for j in range(len(y)):
            same = y["stratum"][i] == y["stratum"][j] and y["start"][j] < y["stop"][i]
            tied = y["stop"][j] == y["stop"][i] and not y["event"][j]
            if same and i != j and (y["stop"][j] > y["stop"][i] or tied):
                pairs += 1
                right += 1.0 if risk[i] > risk[j] else 0.5 * (risk[i] == risk[j])
    assert concordance(y, risk) == pytest.approx(right / pairs, rel=1e-14)


def test_concordance_needs_a_pair():
    with pytest.raises(ValueError, match="no two rows"):
        concordance(subjects(np.ones(2), np.array([False, False])), np.zeros(2))


@pytest.mark.parametrize("censoring", [False, True])
def test_kaplan_meier_by_definition(censoring):
    y, _ = example()
    found = KaplanMeier.of(y, np.ones(len(y)), censoring)
    for t in (0.1, 0.5, 1.0, 3.0):
        expected = 1.0
        for s in np.unique(y["stop"]):
            if s > t:
                break
            left = (y["stop"] >= s).sum()
            if censoring:
                left -= ((y["stop"] == s) & y["event"]).sum()
            gone = ((y["stop"] == s) & (y["event"] != censoring)).sum()
            expected *= 1.0 - gone / left if left else 1.0
        assert found.at(np.array([t]))[0] == pytest.approx(expected, rel=1e-12)


def test_piecewise_density_integrates_to_one_and_counts_events():
    y, eta = example(n=300)
    hazard = PiecewiseHazard.of(y, np.ones(300), np.exp(eta))

    def density(t):
        one = subjects(np.array([t]), np.array([True]))
        return float(np.exp(-hazard.derivatives(np.array([0.3]), one)[0][0]))

    ends = [0.0, *hazard.edges[1:-1], 60.0]
    total = sum(quad(density, a, b)[0] for a, b in pairwise(ends))
    assert total == pytest.approx(1.0, abs=1e-6)
    # events and expected events agree, half an event for each piece apart
    expected = hazard.derivatives(eta, y)[2].sum()
    assert expected == pytest.approx(y["event"].sum(), rel=0.05)


def test_piecewise_hazard_has_the_right_derivatives():
    y, eta = example(strata=2, late=True)
    hazard = PiecewiseHazard.of(y, np.ones(len(y)), np.exp(eta))
    loss, slope, curvature = hazard.derivatives(eta, y)
    up, down = (hazard.derivatives(eta + s, y) for s in (1e-5, -1e-5))
    np.testing.assert_allclose(slope, (up[0] - down[0]) / 2e-5, atol=1e-8)
    np.testing.assert_allclose(curvature, (up[1] - down[1]) / 2e-5, atol=1e-8)
    assert np.isfinite(loss).all()
    other = subjects(np.array([1.0]), np.array([True]), stratum=9)
    assert np.isfinite(hazard.log_density(np.zeros(1), np.ones(1), other)).all()
