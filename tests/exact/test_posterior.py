"""What the exact engines return: marginals, draws and their export."""

import numpy as np
import pytest
from scipy import stats

from scenarios import normal_mean
from soubayes import Block, Model, solve_exact


def test_marginals_and_samples_follow_the_posterior():
    model = Model(
        [Block("mu", stats.norm(0, 2)), Block("effect", lambda mu: stats.norm(mu, 1))],
        lambda mu, effect: (effect - 3) ** 2 / (2 * 0.25),
    )
    posterior = solve_exact(model, {"mu": 0.5, "effect": 2.0})
    draws = posterior.sample(4000, random_state=0)
    for name in model.names:
        normal = stats.norm(posterior.mean(name), posterior.sd(name))
        marginal = posterior.marginal(name)
        p = np.array([0.02, 0.3, 0.5, 0.9])
        assert (marginal.ppf(p) - normal.ppf(p)) / normal.std() == pytest.approx(0, abs=2e-3)
        x = normal.ppf([0.1, 0.5, 0.8])
        assert marginal.cdf(x) == pytest.approx([0.1, 0.5, 0.8], abs=1e-3)
        assert marginal.pdf(x) == pytest.approx(normal.pdf(x), rel=0.01)
        assert stats.kstest(draws[name], normal.cdf).pvalue > 0.01
    exact_cov = np.cov(draws["mu"], draws["effect"])[0, 1]
    # effect = mu + pull (3 - mu) + noise, pull = 1 / (1 + 2 * 0.25)
    expected = posterior.sd("mu") ** 2 * (1 - 1 / 1.5)
    assert exact_cov == pytest.approx(expected, abs=4 * posterior.sd("mu") / np.sqrt(4000))
    again = posterior.sample(10, random_state=3)["effect"]
    assert (again == posterior.sample(10, random_state=3)["effect"]).all()


def test_to_arviz_carries_the_draws_and_what_they_cost():
    known = normal_mean(1.0)
    data = solve_exact(known.model).to_arviz(draws=50)
    assert data.posterior["mu"].shape == (1, 50)
    assert data.posterior.attrs["kl_mu"] == pytest.approx(known.kl["mu"])
