"""Smoothed importance weights beside their theory and beside ArviZ."""

import numpy as np
import pytest
from scipy import stats

from soubayes.pareto import pareto_smoothed


@pytest.mark.parametrize(("sd", "reliable"), [(0.7, True), (1.3, True), (4.0, False)])
def test_khat_of_normal_weights(sd, reliable):
    """N(0, sd) from draws of N(0, 1): k = 1 - 1 / sd^2 for sd > 1 (Vehtari et al. 2024)."""
    x = np.random.default_rng(0).normal(size=20_000)
    log_weights = stats.norm(0, sd).logpdf(x) - stats.norm(0, 1).logpdf(x)
    weights, khat = pareto_smoothed(log_weights)
    assert (khat < 0.7) == reliable
    if sd > 1:
        assert khat == pytest.approx(1 - 1 / sd**2, abs=0.2)
    assert weights.sum() == pytest.approx(1.0)
    logs, same = pytest.importorskip("arviz_stats.base").array_stats.psislw(-log_weights)
    assert khat == pytest.approx(same)
    np.testing.assert_allclose(weights, np.exp(logs) / np.exp(logs).sum(), rtol=1e-6)


def test_khat_of_weights_that_are_all_alike():
    assert pareto_smoothed(np.zeros(1000))[1] == -np.inf
