"""Paths in a confidence, and the confidences that meet KL radii."""

import numpy as np
import pytest
from scipy import stats

from scenarios import normal_mean, two_level_normal
from soubayes import (
    Block,
    Discrete,
    Model,
    confidence_for_kl,
    confidence_path,
    solve_exact,
    solve_gaussian,
)


def test_path_is_the_closed_form_along_gamma():
    gammas = [0.1, 1.0, 5.0, np.inf]
    path = confidence_path(normal_mean(1.0).model, "mu", gammas)
    assert list(path["gamma"]) == gammas
    for i, gamma in enumerate(gammas[:-1]):
        known = normal_mean(gamma)
        assert path["value"][i] == pytest.approx(known.value)
        assert path["kl_mu"][i] == pytest.approx(known.kl["mu"], abs=1e-8)
        assert path["mean_mu"][i] == pytest.approx(known.mean["mu"])
    assert path["kl_mu"].iloc[-1] == 0.0
    assert len(path) == 4


def test_path_with_other_confidences_and_the_gaussian_engine():
    scenario = two_level_normal(1.0, 0.2)
    path = confidence_path(
        scenario.gaussian, "mu", [0.2, 1.0], {"effect": 0.2}, solve=solve_gaussian
    )
    assert path["value"][1] == pytest.approx(scenario.value)
    with pytest.raises(ValueError, match="no block"):
        confidence_path(scenario.model, "tau", [1.0])
    with pytest.raises(ValueError, match="greater than 0"):
        confidence_path(scenario.model, "mu", [0.0])


@pytest.mark.parametrize("radii", [{"mu": 0.1}, {"effect": 1.0}, {"mu": 0.3, "effect": 0.5}])
def test_radii_are_met_by_both_engines(radii):
    scenario = two_level_normal(1.0, 1.0)
    found = confidence_for_kl(scenario.gaussian, radii, solve=solve_gaussian)
    posterior = solve_gaussian(scenario.gaussian, found)
    for name, radius in radii.items():
        assert posterior.kl[name] == pytest.approx(radius, rel=2e-4)
    for name in set(scenario.model.names) - set(radii):
        assert found[name] == 1.0
    if len(radii) == 1:
        assert confidence_for_kl(scenario.model, radii) == pytest.approx(found, rel=1e-3)


def test_the_posterior_at_the_radii_minimises_the_loss_under_the_constraint():
    """Lagrangian reading: no other normal within the KL ball has a lower expected loss."""
    model = Model([Block("mu", stats.norm(0, 1))], lambda mu: (mu - 2) ** 2 / 2)
    found = confidence_for_kl(model, {"mu": 0.3})
    best = solve_exact(model, found)
    m, s = np.meshgrid(np.linspace(-1, 3, 401), np.linspace(0.1, 1.5, 281))
    inside = 0.5 * (m**2 + s**2 - 1 - 2 * np.log(s)) <= 0.3
    loss = ((m - 2) ** 2 + s**2) / 2
    assert best.expected_loss <= loss[inside].min() + 1e-4


def test_radii_that_cannot_be_reached_are_explained():
    coin = Model([Block("c", Discrete([0.0, 1.0], [0.5, 0.5]))], lambda c: c)
    with pytest.raises(ValueError, match=r"'c' cannot be 1.0 nats: it is 0.693"):
        confidence_for_kl(coin, {"c": 1.0})
    flat = Model([Block("c", Discrete([0.0, 1.0], [0.5, 0.5]))], lambda c: 0 * c)
    with pytest.raises(ValueError, match="cannot be"):
        confidence_for_kl(flat, {"c": 0.1})
    assert confidence_for_kl(coin, {"c": 0.0}) == {"c": np.inf}
    with pytest.raises(ValueError, match=">= 0"):
        confidence_for_kl(coin, {"c": -0.1})
    with pytest.raises(ValueError, match="both a radius and a confidence"):
        confidence_for_kl(coin, {"c": 0.1}, {"c": 1.0})
    with pytest.raises(ValueError, match="'d'"):
        confidence_for_kl(coin, {"d": 0.1})
