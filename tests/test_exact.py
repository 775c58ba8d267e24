"""The exact engine on targets with known answers, at extreme confidences, and on bad input."""

import pytest

from scenarios import SCENARIOS, normal_mean
from soubayes import solve_exact


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_known_answers(scenario):
    posterior = solve_exact(scenario.model, scenario.confidence)
    assert posterior.value == pytest.approx(scenario.value, rel=1e-8, abs=1e-8)
    assert posterior.expected_loss == pytest.approx(scenario.expected_loss, rel=1e-7)
    for name in scenario.model.names:
        assert posterior.kl[name] == pytest.approx(scenario.kl[name], rel=1e-7, abs=1e-9)
        assert posterior.mean(name) == pytest.approx(scenario.mean[name], rel=1e-7)
        assert posterior.sd(name) == pytest.approx(scenario.sd[name], rel=1e-7)


@pytest.mark.parametrize("gamma", [1e-9, 1e-5, 1e4, 1e6])
def test_extreme_confidences_neither_overflow_nor_lose_the_answer(gamma):
    known = normal_mean(gamma)
    posterior = solve_exact(known.model, known.confidence)
    assert posterior.value == pytest.approx(known.value, rel=1e-10)
    assert posterior.mean("mu") == pytest.approx(known.mean["mu"], rel=1e-7)
    assert posterior.sd("mu") == pytest.approx(known.sd["mu"], rel=1e-4)
    if gamma < 1:  # the formula in the scenario cancels at 1e6
        assert posterior.kl["mu"] == pytest.approx(known.kl["mu"], rel=1e-5)
