"""Diagnostics: valid where they are valid, and silent elsewhere."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from scenarios import two_level_normal
from soubayes import diagnose, fit, simulation_based_calibration, solve_gaussian


def pair(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
    numpyro.sample("y", dist.Normal(effect, 0.5), obs=y)


def narrow(y=None):
    numpyro.sample("mu", dist.Normal(numpyro.param("a", 2.4), 0.3))
    numpyro.sample("effect", dist.Normal(numpyro.param("b", 2.8), 0.02))


@pytest.mark.slow
def test_at_confidence_one_khat_tells_a_good_guide_from_a_bad_one():
    good = diagnose(fit(pair, 3.0, guide="conditional"))
    assert good.khat < 0.7
    assert good.flatness < 0.01
    assert good.notes == ()
    bad = diagnose(fit(pair, 3.0, guide=narrow, restarts=1))
    assert bad.khat > 0.7
    assert bad.flatness > 0.3
    assert "misses the posterior" in bad.notes[0]
    assert "guide='flow' in the place of your own" in bad.notes[1]


@pytest.mark.slow
def test_at_other_confidences_the_exact_engine_is_the_judge():
    scenario = two_level_normal(3.0, 0.5)
    exact = solve_gaussian(scenario.gaussian, scenario.confidence)
    good = diagnose(fit(pair, 3.0, confidence=scenario.confidence, guide="conditional"), exact)
    assert np.isnan(good.khat)
    assert "not applicable" in good.notes[0]
    assert abs(good.gap) < 1e-3
    assert np.all(good.moments["mean_error_in_sd"] < 0.1)
    assert np.all(abs(good.moments["sd_ratio"] - 1) < 0.1)
    settings = {"confidence": scenario.confidence, "guide": "meanfield"}
    mean_field = diagnose(fit(pair, 3.0, **settings), exact)
    assert mean_field.gap > 0.01
    with pytest.raises(ValueError, match="exact was solved at"):
        diagnose(fit(pair, 3.0), exact)


@pytest.mark.slow
def test_simulation_based_calibration():
    settings = {"observed": {"y": "y"}, "restarts": 1, "simulations": 60}
    right = simulation_based_calibration(pair, guide="conditional", **settings)
    assert list(right["block"]) == ["mu", "effect"]
    assert [ranks.shape for ranks in right["ranks"]] == [(60,), (60,)]
    assert np.all(right["p_value"] > 0.005)
    wrong = simulation_based_calibration(pair, guide=narrow, **settings)
    assert wrong["p_value"][1] < 1e-4  # far too narrow: ranks pile up at the ends


def test_calibration_is_for_confidence_one():
    with pytest.raises(ValueError, match="all confidences 1"):
        simulation_based_calibration(pair, observed={"y": "y"}, confidence={"mu": 0.5})
