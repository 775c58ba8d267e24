"""What draws may come in: pandas, the order of a PyMC model or a Stan program, a joint prior."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

from soubayes import fit, reweight, sensitivity_from_draws
from soubayes.draws.order import block_order, stan_parameters

STAN = """
data { int J; }
transformed data { real x = 1; }
parameters {
  real<lower=0, upper=a[1]> tau; // tau, not mu
  /* vector[3] gone; */
  array[2] real mu;
  vector<lower=0>[J] z;
  real old[3];
  cholesky_factor_corr[J] L;
}
transformed parameters { vector[J] theta = tau * z; }
model { z ~ normal(0, 1); }
"""


def test_a_stan_program_declares_the_order():
    assert stan_parameters(STAN) == ["tau", "mu", "z", "old", "L"]
    assert block_order(STAN, ["z", "tau", "mu"], {}) == ["tau", "mu", "z"]
    assert block_order(STAN, ["z", "tau", "mu"], {"top": ["tau", "mu"]}) == ["top", "z"]


def test_a_pymc_model_has_an_order(tmp_path):
    model = SimpleNamespace(free_RVs=[SimpleNamespace(name=n) for n in ("tau", "mu", "z")])
    assert block_order(model, ["mu", "z", "tau"], {}) == ["tau", "mu", "z"]
    path = tmp_path / "model.stan"
    path.write_text(STAN)
    assert block_order(Path(path), ["mu", "tau"], {}) == ["tau", "mu"]
    assert block_order("mu", ["mu"], {}) == ["mu"]


def frames(seed=0, n=4000):
    """mu ~ N(0, 2^2), x_j | mu ~ N(mu, 1), y = (3, 2) with sd 0.5, as three DataFrames."""
    rng = np.random.default_rng(seed)
    y = np.array([3.0, 2.0])
    variance = 1 / (1 / 4 + 2 / 1.25)
    mu = rng.normal(variance * y.sum() / 1.25, np.sqrt(variance), n)
    x = rng.normal(mu[:, None] + 0.8 * (y - mu[:, None]), np.sqrt(0.2))
    chain = np.tile([1, 2, 3, 4], n // 4)  # chains are mixed in the rows
    posterior = pd.DataFrame({"lp__": 0.0, "chain__": chain, "x[1]": x[:, 0], "x[2]": x[:, 1]})
    posterior["mu"] = mu
    prior = {"mu": stats.norm(0, 2).logpdf(mu), "x": stats.norm(mu[:, None], 1).logpdf(x).sum(1)}
    likelihood = stats.norm(x, 0.5).logpdf(y)
    columns = {f"log_lik[{j + 1}]": likelihood[:, j] for j in range(2)}
    return {
        "posterior": posterior,
        "log_prior": pd.DataFrame(prior),
        "log_likelihood": pd.DataFrame(columns),
    }


def test_three_data_frames_are_enough():
    """d E[mu] / d gamma_mu by hand: mu is normal with precision gamma / 4 + 2 / 1.25."""
    given = frames()
    program = "parameters { real mu; vector[2] x; }"
    found = sensitivity_from_draws(given, order=program, quantities=["mu"])
    assert found.derivatives["block"].tolist() == ["mu", "x"]
    precision = 1 / 4 + 2 / 1.25
    slope = -(5.0 / 1.25) / precision**2 / 4 * np.sqrt(precision)
    error = found.derivatives["mean_se"][0]
    assert abs(found.derivatives["mean"][0] - slope) < 4 * error
    again = reweight(given, confidence={"mu": 0.8}, order=["mu", "x"])
    exact = (5.0 / 1.25) / (0.8 / 4 + 2 / 1.25)
    assert abs(again.mean("mu") - exact) < 4 * again.mean_se("mu")


def test_a_joint_prior_is_explained():
    given = frames()
    total = given["log_prior"].sum(axis=1)
    given["log_prior"] = pd.DataFrame({"lprior": total})
    with pytest.raises(ValueError, match=r"\['lprior'\] alone.*Each prior is needed on its own"):
        sensitivity_from_draws(given, order=["lprior"])


def conflicts(n, truth, sets, seed):
    """How often mu ~ N(0, 1), y ~ N(mu, 1), is called a conflict; truth None: from the prior."""
    count = 0
    for i in range(sets):
        rng = np.random.default_rng([seed, n, i])
        mu = rng.normal() if truth is None else truth
        y = rng.normal(mu, 1.0, n)
        variance = 1 / (n + 1)
        draws = rng.normal(variance * y.sum(), np.sqrt(variance), 2000)
        given = {
            "posterior": pd.DataFrame({"mu": draws}),
            "log_prior": pd.DataFrame({"mu": stats.norm.logpdf(draws)}),
            "log_likelihood": pd.DataFrame({"y": -0.5 * ((y - draws[:, None]) ** 2).sum(axis=1)}),
        }
        words = sensitivity_from_draws(given, order=["mu"]).blocks["diagnosis"][0]
        count += words == "prior-data conflict"
    return count / sets


@pytest.mark.parametrize(
    "sets", [40, pytest.param(200, marks=pytest.mark.slow)], ids=["forty", "many"]
)
@pytest.mark.parametrize("n", [1, 4, 20])
def test_a_conflict_is_called_where_there_is_one(n, sets):
    assert conflicts(n, None, sets, seed=1) <= 0.10
    assert conflicts(n, 4.0, sets, seed=2) >= (0.80 if n == 1 else 0.90)


def test_discrete_sites_that_were_summed_out_are_named():
    def mixture(y):
        share = numpyro.sample("share", dist.Beta(1.0, 1.0))
        kind = numpyro.sample("kind", dist.Bernoulli(share), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(2.0 * kind, 1.0), obs=y)

    draws = {"share": np.random.default_rng(0).beta(1, 2, 2000)}
    with pytest.raises(ValueError, match=r"discrete sites \['kind'\].*Sum them out of the model"):
        sensitivity_from_draws(draws, mixture, 1.0)


def test_series_are_arguments_like_arrays():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y = pd.Series([0.3, 0.8, 1.4], index=[7, 8, 9])
    draws = {"mu": np.random.default_rng(0).normal(y.sum() / 4, 0.5, 2000)}
    one, two = (sensitivity_from_draws(draws, model, given).blocks for given in (y, y.to_numpy()))
    pd.testing.assert_frame_equal(one, two)
    assert fit(model, y).mean("mu") == pytest.approx(y.sum() / 4, abs=0.05)
