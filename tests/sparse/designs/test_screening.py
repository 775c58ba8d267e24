"""Columns that cannot be active are left out of the work: the answer is that of the whole.

Without screening every column stays in every matrix to the end. J has more than one minimum, and
at lower confidences the two ways may end in different ones on wide data.
"""

import numpy as np
import pytest

from soubayes import SoULinearRegression, SoULogisticRegression
from soubayes.datasets import wide_design
from soubayes.sparse.least_squares import descent, path
from soubayes.sparse.rows import dropped, newton


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("confidence", [5.0, 10.0])
def test_linear_fit_is_that_of_all_columns(seed, confidence, monkeypatch):
    data = wide_design(60, 300, 8, random_state=seed)
    screened = SoULinearRegression(confidence_coef=confidence).fit(data.X, data.y)
    for module in (descent, path):
        monkeypatch.setattr(module, "DROPPED", np.inf)
    whole = SoULinearRegression(confidence_coef=confidence).fit(data.X, data.y)
    assert whole.selected_.all()
    assert screened.selected_.sum() < 12
    _same(screened, whole)
    np.testing.assert_allclose(screened.noise_variance_, whole.noise_variance_, rtol=1e-5)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("confidence", [2.0, 3.0])
def test_logistic_fit_is_that_of_all_columns(seed, confidence, monkeypatch):
    data = wide_design(120, 60, 8, random_state=seed)
    rng = np.random.default_rng(seed)
    score = 4.0 * data.X @ data.coef / np.linalg.norm(data.coef)
    label = score + rng.logistic(size=120) > 0
    given = {"confidence_coef": confidence, "tol": 1e-10, "bound": "jaakkola"}
    screened = SoULogisticRegression(**given).fit(data.X, label)
    for module in (dropped, newton):
        monkeypatch.setattr(module, "FAR", np.inf)
    monkeypatch.setattr(dropped.runs_away, "__defaults__", (np.inf,))
    whole = SoULogisticRegression(**given).fit(data.X, label)
    assert whole.selected_.all()
    assert screened.selected_.sum() < 50
    _same(screened, whole)


def _same(screened, whole):
    atol = 1e-5 * np.abs(screened.coef_).max()
    np.testing.assert_allclose(screened.coef_, whole.coef_, atol=atol)
    np.testing.assert_allclose(screened.objective_[-1], whole.objective_[-1], rtol=1e-7)
