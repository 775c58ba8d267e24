"""The export to ArviZ: what the user has installed decides, and nothing warns."""

import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from soubayes import results


def installed(monkeypatch, number):
    def version(name):
        assert name == "arviz"
        if number is None:
            raise PackageNotFoundError(name)
        return number

    monkeypatch.setattr(results, "version", version)


@pytest.mark.parametrize("number", [None, "1.0.0", "1.2.0rc1"])
def test_a_datatree_without_arviz_or_with_a_new_one(monkeypatch, number):
    installed(monkeypatch, number)
    data = results.to_inference_data({"mu": np.arange(3.0)}, engine="exact")
    assert type(data).__name__ == "DataTree"
    assert data.posterior["mu"].dims == ("chain", "draw")
    assert data.posterior.attrs["engine"] == "exact"
    statistics = pytest.importorskip("arviz_stats")
    assert len(statistics.summary(results.to_inference_data({"mu": np.arange(9.0)}))) == 1


def test_the_object_of_an_old_arviz(monkeypatch):
    installed(monkeypatch, "0.23.4")
    made = []

    def from_dict(posterior):
        made.append(posterior)
        return SimpleNamespace(posterior=SimpleNamespace(attrs={}))

    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=from_dict))
    data = results.to_inference_data({"mu": np.arange(3.0)}, value=2.0)
    assert made[0]["mu"].shape == (1, 3)
    assert data.posterior.attrs == {"value": 2.0}


@pytest.mark.parametrize(("sd", "reliable"), [(0.7, True), (1.3, True), (4.0, False)])
def test_khat_of_normal_weights(sd, reliable):
    """N(0, sd) from draws of N(0, 1): k = 1 - 1 / sd^2 for sd > 1 (Vehtari et al. 2024)."""
    x = np.random.default_rng(0).normal(size=20_000)
    log_weights = stats.norm(0, sd).logpdf(x) - stats.norm(0, 1).logpdf(x)
    weights, khat = results.pareto_smoothed(log_weights)
    assert (khat < 0.7) == reliable
    if sd > 1:
        assert khat == pytest.approx(1 - 1 / sd**2, abs=0.2)
    assert weights.sum() == pytest.approx(1.0)
    logs, same = pytest.importorskip("arviz_stats.base").array_stats.psislw(-log_weights)
    assert khat == pytest.approx(same)
    np.testing.assert_allclose(weights, np.exp(logs) / np.exp(logs).sum(), rtol=1e-6)


def test_khat_of_weights_that_are_all_alike():
    assert results.pareto_smoothed(np.zeros(1000))[1] == -np.inf
