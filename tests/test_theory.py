"""Theorems 2 and 3 of the paper, numerically."""

import numpy as np
import pytest
from scipy import stats

from soubayes import Block, Model, solve_exact


def test_theorem_2_the_objective_collapses_as_the_confidences_vanish():
    """E L -> min L, the weighted KL -> 0, and the mass goes to the minimiser (1, 2)."""
    model = Model(
        [Block("a", stats.norm(0, 1)), Block("b", lambda a: stats.norm(a, 1))],
        lambda a, b: 0.3 + (a - 1) ** 2 + np.log1p((b - 2) ** 2),
    )
    steps = [1e-1, 1e-3, 1e-5, 1e-7]
    posteriors = [solve_exact(model, {"a": g, "b": 3 * g}) for g in steps]
    losses = np.array([p.expected_loss for p in posteriors]) - 0.3
    costs = np.array(
        [g * p.kl["a"] + 3 * g * p.kl["b"] for g, p in zip(steps, posteriors, strict=True)]
    )
    assert (np.diff(losses) < 0).all()
    assert (np.diff(costs) < 0).all()
    assert 0 < losses[-1] < 1e-6
    assert 0 < costs[-1] < 1e-5
    # each KL itself grows like log(1 / gamma); only the weighted one vanishes
    assert posteriors[-1].kl["b"] > posteriors[0].kl["b"] + 5
    assert posteriors[-1].mean("a") == pytest.approx(1, abs=1e-3)
    assert posteriors[-1].mean("b") == pytest.approx(2, abs=1e-3)
    assert posteriors[-1].sd("b") < 1e-3


DATA = np.random.default_rng(5).normal(1.0, 1.0, size=100_000)
SIZES = (100, 1_000, 10_000, 100_000)
COMPACT, WHOLE_LINE = stats.uniform(-5, 10), stats.norm(-2, 1)


def mass_near_truth(n, gamma, prior, radius=0.25):
    """q*(|theta - theta_0| < radius) for the loss sum (theta - y_i)^2 / 2 and theta_0 = 1."""
    mean, rest = DATA[:n].mean(), 0.5 * n * DATA[:n].var()
    model = Model([Block("theta", prior)], lambda t: 0.5 * n * (t - mean) ** 2 + rest)
    marginal = solve_exact(model, {"theta": gamma}).marginal("theta")
    return float(marginal.cdf(1 + radius) - marginal.cdf(1 - radius))


@pytest.mark.parametrize("prior", [COMPACT, WHOLE_LINE], ids=["compact", "whole line"])
@pytest.mark.parametrize("growth", [lambda n: 2.0, np.sqrt], ids=["constant", "sqrt(n)"])
def test_theorem_3_consistency(prior, growth):
    mass = [mass_near_truth(n, float(growth(n)), prior) for n in SIZES]
    assert mass[-1] > 0.999
    assert mass[-1] >= mass[0]


def test_theorem_3_fails_when_the_confidence_grows_like_n():
    """Condition (iv) asks ||gamma_n|| / n -> 0; at gamma_n = n the limit keeps its spread.

    q*_n is proportional to pi exp(-R_n), whose limit is pi exp(-R): a distribution, not a point.
    """
    mass = [mass_near_truth(n, float(n), COMPACT) for n in SIZES]
    limit = stats.truncnorm(-6, 4, loc=1, scale=1)  # uniform on [-5, 5] times exp(-(t - 1)^2 / 2)
    assert mass[-1] == pytest.approx(limit.cdf(1.25) - limit.cdf(0.75), abs=2e-3)
    assert mass[-1] < 0.3
