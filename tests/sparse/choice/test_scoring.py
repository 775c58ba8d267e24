"""Scores of counts."""

import numpy as np
import pytest
from sklearn.metrics import mean_poisson_deviance

from soubayes.sparse.choice.scoring import HeldOut, poisson_deviance, score_counts


def test_counts_are_judged_by_their_deviance_over_its_mean():
    rng = np.random.default_rng(0)
    mean = np.exp(rng.normal(1.0, 0.5, 400))
    y = rng.poisson(mean * rng.gamma(1.0, 1.0, 400)).astype(float)  # dispersion 1
    both = np.stack([mean, np.full(400, mean.mean())], axis=1)
    said = HeldOut(both, both, np.zeros_like(both), both)
    found = score_counts(np.column_stack([y, np.zeros(400)]), said, np.ones(400))
    each = [mean_poisson_deviance(y, both[:, k]) for k in range(2)]
    np.testing.assert_allclose(poisson_deviance(y, both).mean(axis=0), each)
    np.testing.assert_allclose(found.scores.sum(axis=0), -200.0 * np.array(each) / min(each))
    mixed = both @ found.weights
    between = (both - mixed[:, None]) ** 2 @ found.weights
    expected = np.mean((y - mixed) ** 2 / (mixed + between))
    assert found.widen == pytest.approx(expected)
    assert found.widen > 2.0
