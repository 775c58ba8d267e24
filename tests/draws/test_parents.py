"""Whether a log prior depends on later blocks is seen in the draws."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.block_order import HIERARCHIES, UNSEEN, advised, fits, refusal, wrong_order
from soubayes import reweight, sensitivity


@pytest.mark.parametrize("n", [500, 2000])
@pytest.mark.parametrize("title", [*HIERARCHIES, *UNSEEN])
def test_right_orders_pass_and_wrong_ones_are_refused(title, n):
    rng = np.random.default_rng([50, n])
    values, log_prior, parents = {**HIERARCHIES, **UNSEEN}[title](rng, n)
    names = list(values)
    assert refusal(values, log_prior, names) == ""
    if not parents or title in UNSEEN:
        return
    message = refusal(values, log_prior, wrong_order(rng, names, parents))
    order = advised(message)
    assert sorted(order) == sorted(names)
    assert fits(order, parents)
    assert refusal(values, log_prior, order) == ""


@pytest.mark.parametrize("title", ["two levels", "8 groups", "chain", "horseshoe, 5"])
def test_a_joint_log_prior_of_the_first_block_has_no_order(title):
    values, log_prior, _ = HIERARCHIES[title](np.random.default_rng(51), 1000)
    first = next(iter(values))
    joint = {**log_prior, first: np.sum(list(log_prior.values()), axis=0)}
    assert "it is a joint log prior" in refusal(values, joint, list(values))


def two_levels(n=1000):
    """mu ~ N(0, 1), x | mu ~ N(mu, 1), y = 3 with sd 1, as three DataFrames."""
    rng = np.random.default_rng(52)
    mu = rng.normal(1.0, np.sqrt(2 / 3), n)
    x = rng.normal((mu + 3) / 2, np.sqrt(1 / 2))
    log_prior = {"mu": stats.norm.logpdf(mu), "x": stats.norm(mu).logpdf(x)}
    return {
        "posterior": pd.DataFrame({"mu": mu, "x": x}),
        "log_prior": pd.DataFrame(log_prior),
        "log_likelihood": pd.DataFrame({"y": stats.norm(x).logpdf(3.0)}),
    }


def test_a_stan_program_that_declares_x_before_its_mean():
    program = "parameters { real x; real mu; }"
    message = r"log prior of 'x' depends on \['mu'\].*order that fits is \['mu', 'x'\]"
    with pytest.raises(ValueError, match=message):
        sensitivity(two_levels(), program)
    with pytest.raises(ValueError, match=message):
        reweight(two_levels(), confidence={"mu": 0.9}, order=["x", "mu"])
    both = sensitivity(two_levels(), order=["both"], groups={"both": ["x", "mu"]})
    assert both.blocks["block"].tolist() == ["both"]


def test_a_joint_log_prior_under_the_name_of_one_variable():
    given = two_levels()
    total = given["log_prior"].sum(axis=1)
    given["log_prior"] = pd.DataFrame({"x": total})
    with pytest.raises(ValueError, match=r"'x' depends on \['mu'\], which have no log prior"):
        sensitivity(given, order=["x"])


def test_a_joint_log_prior_of_the_last_block():
    """The integral of p(mu) p(x | mu) over x is p(mu); that of p(x | mu) is 1."""
    given = two_levels()
    total = given["log_prior"].sum(axis=1)
    given["log_prior"] = given["log_prior"].assign(x=total)
    with pytest.raises(ValueError, match=r"integral over 'x' is the prior of \['mu'\]"):
        sensitivity(given, order=["mu", "x"])


def test_computed_columns_are_no_parents():
    """Ten coordinates with a density that no regression has, and copies of its parts."""
    rng = np.random.default_rng(53)
    z = rng.standard_t(4, (1000, 10))
    each = stats.t(4).logpdf(z)
    names = [f"z[{i + 1}]" for i in range(10)]
    posterior = pd.DataFrame(z, columns=names)
    posterior = posterior.assign(lprior=each.sum(axis=1), first=each[:, :5].sum(axis=1))
    posterior = posterior.assign(rest=each[:, 5:].sum(axis=1), undefined=np.nan)
    given = {
        "posterior": posterior,
        "log_prior": pd.DataFrame({"z": each.sum(axis=1)}),
        "log_likelihood": pd.DataFrame({"y": -0.5 * (z[:, 0] - 1) ** 2}),
    }
    found = sensitivity(given, order=["z"], quantities=["z"])
    assert found.blocks["block"].tolist() == ["z"]
