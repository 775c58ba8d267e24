"""The mode at held prior variances by its stationary equation, and the posterior about it: rows."""

import numpy as np
import pytest

from soubayes import SoUCoxRegression
from soubayes.sparse.survival.risk_sets import PartialLoss, RiskSets, subjects
from soubayes.sparse.survival.rows import SurvivalRows


@pytest.mark.parametrize(("n", "p"), [(60, 5), (40, 400)])
@pytest.mark.parametrize("variance", [0.3, 100.0])
def test_the_mode_is_stationary_though_plain_newton_steps_run_off(n, p, variance):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, p))
    y = subjects(rng.exponential(np.exp(-2.0 * X[:, 0])), rng.random(n) < 0.8)
    sets = RiskSets.of(y, np.ones(n))
    rows = SurvivalRows(X, sets)
    prior = np.full(p, variance / p)
    prior[1] = 4.0  # a column with a variance of its own
    mode = rows._mode(prior)
    slope = X.T @ PartialLoss.at(sets, X @ mode).score - mode / prior
    np.testing.assert_allclose(slope * np.sqrt(prior), 0.0, atol=2e-3)
    assert np.std(X @ mode) > 0.1


def test_dense_candidates_of_wide_data_keep_one_matrix():
    rng = np.random.default_rng(3)
    n, p = 40, 320
    X = rng.normal(size=(n, p))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    time, event = rng.exponential(np.exp(-X[:, 0])), rng.random(n) < 0.8
    model = SoUCoxRegression().fit(X, (event, time))
    sets = RiskSets.of(subjects(time, event), np.ones(n))
    parts = [part for part in model.mixtures_[0].components if part.candidate[:5] == "dense"]
    assert len(parts) > 2
    assert len({id(part.posterior.X) for part in parts}) == 1
    for part in parts:
        M = PartialLoss.at(sets, X @ part.posterior.mean).second()
        inverse = X.T @ M @ X + p / float(part.candidate.split()[1]) * np.eye(p)
        np.testing.assert_allclose(part.posterior.full(), np.linalg.inv(inverse), atol=1e-5)
