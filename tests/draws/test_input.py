"""What draws may come in: files of Stan, JSON, pandas, dictionaries; and a joint prior."""

import json
import re

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

from soubayes import fit, reweight, sensitivity


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
    found = sensitivity(given, program, quantities=["mu"])
    assert found.derivatives["block"].tolist() == ["mu", "x", "likelihood"]
    precision = 1 / 4 + 2 / 1.25
    slope = -(5.0 / 1.25) / precision**2 / 4 * np.sqrt(precision)
    error = found.derivatives["mean_se"][0]
    assert abs(found.derivatives["mean"][0] - slope) < 4 * error
    again = reweight(given, confidence={"mu": 0.8}, order=["mu", "x"])
    exact = (5.0 / 1.25) / (0.8 / 4 + 2 / 1.25)
    assert abs(again.mean("mu") - exact) < 4 * again.mean_se("mu")


def assert_same(one, other):
    pd.testing.assert_frame_equal(one.derivatives, other.derivatives, rtol=1e-6)
    pd.testing.assert_frame_equal(one.blocks, other.blocks, rtol=1e-6)


def test_all_forms_of_the_same_draws_agree(tmp_path):
    """CmdStan's files, JSON as posteriordb has it, one DataFrame, a dictionary of dictionaries."""
    given, order = frames(), ["mu", "x"]
    wide = pd.concat([given["posterior"], given["log_prior"].add_prefix("lp_")], axis=1)
    wide = pd.concat([wide, given["log_likelihood"]], axis=1)
    wide = wide.sort_values("chain__", kind="stable", ignore_index=True)
    expected = sensitivity(wide, order=order)
    assert_same(sensitivity(given, order=order), expected)
    files, chains = [], []
    for number, chain in wide.groupby("chain__"):
        columns = {name: re.sub(r"\[(\d+)\]", r".\1", name) for name in chain.columns}
        stan = chain.drop(columns="chain__").rename(columns=columns).assign(divergent__=0)
        files.append(tmp_path / f"output_{number}.csv")
        lines = stan.to_csv(index=False, float_format="%.17g").split("\n")
        comments = ["# stan_version_major = 2", lines[0], "# Adaptation terminated", *lines[1:-1]]
        files[-1].write_text("\n".join([*comments, "#  Elapsed Time: 0.1 seconds", ""]))
        chains.append(chain.drop(columns="chain__").to_dict("list"))
    assert_same(sensitivity(files, order=order), expected)
    (tmp_path / "draws.json").write_text(json.dumps(chains))
    assert_same(sensitivity(tmp_path / "draws.json", order=order), expected)
    x = wide[["x[1]", "x[2]"]].to_numpy().reshape(4, -1, 2)
    groups = {
        "posterior": {"x": x, "mu": wide["mu"].to_numpy().reshape(4, -1)},
        "log_prior": {n: wide[f"lp_{n}"].to_numpy().reshape(4, -1) for n in order},
        "log_likelihood": {"y": wide.filter(like="log_lik").to_numpy().reshape(4, -1, 2)},
    }
    assert_same(sensitivity(groups, order=order), expected)
    bad = pd.read_csv(files[0], comment="#").assign(divergent__=1)
    with pytest.raises(ValueError, match="transitions diverged"):
        sensitivity(bad, order=order)


def test_a_joint_prior_is_explained():
    given = frames()
    total = given["log_prior"].sum(axis=1)
    given["log_prior"] = pd.DataFrame({"lprior": total})
    with pytest.raises(ValueError, match=r"\['lprior'\] alone.*Each prior is needed on its own"):
        sensitivity(given, order=["lprior"])


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
        words = sensitivity(given, order=["mu"]).blocks["diagnosis"][0]
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
        sensitivity(draws, mixture, 1.0)


def test_series_are_arguments_like_arrays():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y = pd.Series([0.3, 0.8, 1.4], index=[7, 8, 9])
    draws = {"mu": np.random.default_rng(0).normal(y.sum() / 4, 0.5, 2000)}
    one, two = (sensitivity(draws, model, given).blocks for given in (y, y.to_numpy()))
    pd.testing.assert_frame_equal(one, two)
    assert fit(model, y).mean("mu") == pytest.approx(y.sum() / 4, abs=0.05)
