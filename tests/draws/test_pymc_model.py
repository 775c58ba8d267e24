"""Models of PyMC and Bambi give the log priors, the likelihood and the order of their draws.

PyMC is no part of the development environment: it takes as long to install as everything else.
Where it is installed these tests run.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from soubayes import reweight, sensitivity

pm = pytest.importorskip("pymc", reason="PyMC is not installed")
from soubayes.draws.pymc_model import pymc_groups  # noqa: E402

EFFECT = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERROR = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


@pytest.fixture(scope="module")
def schools():
    with pm.Model() as model:
        tau = pm.LogNormal("tau", 1.5, 0.3)
        mu = pm.Normal("mu", 0, 5)
        theta = pm.Normal("theta", mu, tau, shape=8)
        pm.Normal("y", theta, ERROR, observed=EFFECT)
        pm.Potential("pull", -0.5 * (mu - 1) ** 2)
        settings = {"chains": 2, "cores": 1, "progressbar": False}
        idata = pm.sample(500, tune=800, random_seed=1, **settings)
    return model, idata


def test_log_densities_are_those_of_the_model(schools):
    model, idata = schools
    groups, order = pymc_groups(idata, model)
    assert order == ["tau", "mu", "theta"]
    tau, mu, theta = (idata.posterior[name].to_numpy() for name in order)
    by_hand = {
        "tau": stats.lognorm(0.3, scale=np.exp(1.5)).logpdf(tau),
        "mu": stats.norm(0, 5).logpdf(mu),
        "theta": stats.norm(mu[..., None], tau[..., None]).logpdf(theta).sum(axis=-1),
    }
    for name, expected in by_hand.items():  # PyMC keeps 0.3 in single precision
        np.testing.assert_allclose(groups["log_prior"][name], expected, rtol=1e-6)
    likelihood = stats.norm(theta, ERROR).logpdf(EFFECT).sum(axis=-1) - 0.5 * (mu - 1) ** 2
    np.testing.assert_allclose(groups["log_likelihood"]["loss"], likelihood, rtol=1e-10)


def test_one_line(schools):
    model, idata = schools
    found = sensitivity(idata, model, quantities=["mu", "tau"])
    assert found.blocks["block"].tolist() == ["tau", "mu", "theta"]
    assert set(found.derivatives["block"]) == {"tau", "mu", "theta", "likelihood"}
    assert np.isfinite(reweight(idata, model, confidence={"mu": 0.9}).mean("mu"))
    few = type("Few", (), {"posterior": idata.posterior[["mu", "tau"]]})
    with pytest.raises(ValueError, match=r"the draws lack \['theta'\], free variables"):
        sensitivity(few, model)
    with pytest.raises(ValueError, match="Pass it as the model"):
        sensitivity(idata, order=model)


@pytest.mark.parametrize("formula", ["y ~ x + c + (x | g)", "y ~ x + (c | g)"])
def test_a_bambi_model(formula):
    bmb = pytest.importorskip("bambi")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"x": rng.normal(3, 2, 80), "c": rng.choice(list("abc"), 80)})
    rows = rows.assign(g=rng.choice(list("pqrs"), 80), y=0.5 * rows["x"] + rng.normal(size=80))
    model = bmb.Model(formula, rows)
    settings = {"chains": 2, "cores": 1, "progressbar": False}
    idata = model.fit(draws=300, tune=300, random_seed=2, **settings)
    model.compute_log_likelihood(idata)
    pointwise = idata.log_likelihood["y"].sum("__obs__").to_numpy()
    groups, order = pymc_groups(idata, model)
    np.testing.assert_allclose(groups["log_likelihood"]["loss"], pointwise, rtol=1e-8)
    assert "1|g_offset" in order
