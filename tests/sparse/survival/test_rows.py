"""The mode at held prior variances, by its stationary equation: rows."""

import numpy as np
import pytest

from soubayes.sparse.survival.partial import PartialLoss
from soubayes.sparse.survival.risk_sets import BaselinePrior, subjects
from soubayes.sparse.survival.rows import SurvivalRows


@pytest.mark.parametrize(("n", "p"), [(60, 5), (40, 400)])
@pytest.mark.parametrize("variance", [0.3, 100.0])
def test_the_mode_is_stationary_though_plain_newton_steps_run_off(n, p, variance):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, p))
    y = subjects(rng.exponential(np.exp(-2.0 * X[:, 0])), rng.random(n) < 0.8)
    rows = SurvivalRows(X, np.ones(n), "efron", BaselinePrior())
    prior = np.full(p, variance / p)
    prior[1] = 4.0  # a column with a variance of its own
    mode = rows._mode(rows.sets(y), prior)
    slope = X.T @ PartialLoss.at(rows.sets(y), X @ mode).score - mode / prior
    np.testing.assert_allclose(slope * np.sqrt(prior), 0.0, atol=2e-3)
    assert np.std(X @ mode) > 0.1
