"""Latent sites inside numpyro's scan: a block whose prior is a Markov chain."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import cond, scan
from scipy import stats

from soubayes import fit, sample_sou

Y = np.array([0.4, 1.1, 0.7, 2.0, 2.6])
INF = float("inf")


def walk(y):
    """A random walk, its last state used again after the scan."""

    def step(z, y_t):
        z = numpyro.sample("z", dist.Normal(z, 0.6))
        numpyro.sample("y", dist.Normal(z, 0.5), obs=y_t)
        return z, None

    last, _ = scan(step, 0.3, y)
    numpyro.sample("after", dist.Normal(last, 0.1))


@pytest.mark.parametrize("gamma", [1.0, 0.4])
def test_a_random_walk_against_its_closed_form(gamma):
    posterior = fit(walk, Y, confidence={"z": gamma, "after": INF}, guide="conditional", restarts=1)
    prior = 0.36 * np.minimum.outer(np.arange(1, 6), np.arange(1, 6))
    noise = 0.25 * gamma * np.eye(5)  # of y in exp(-loss / gamma)
    gain = prior @ np.linalg.inv(prior + noise)
    mean, covariance = 0.3 + gain @ (Y - 0.3), prior - gain @ prior
    log_z = stats.multivariate_normal(np.full(5, 0.3), prior + noise).logpdf(Y)
    constant = 2.5 * (np.log(2 * np.pi * 0.25) - gamma * np.log(2 * np.pi * 0.25 * gamma))
    assert abs(posterior.value - (constant - gamma * log_z)) < 3 * posterior.value_se + 1e-4
    error = np.sqrt(np.diag(covariance) / 2048)
    assert np.all(abs(posterior.mean("z") - mean) < 5 * error)
    np.testing.assert_allclose(posterior.sd("z"), np.sqrt(np.diag(covariance)), rtol=0.1)
    # what comes after the scan follows the guide's last state, not the prior's
    step = posterior.draws["after"] - posterior.draws["z"][:, -1]
    assert abs(step.mean()) < 5 * 0.1 / np.sqrt(2048)
    assert step.std() == pytest.approx(0.1, rel=0.1)


def two_states(y):
    def step(carry, y_t):
        level = numpyro.sample("level", dist.Normal(carry[0] + carry[1], 0.5))
        slope = numpyro.sample("slope", dist.Normal(carry[1], 0.1))
        numpyro.sample("y", dist.Normal(level, 0.5), obs=y_t)
        return (level, slope), None

    scan(step, (0.0, 0.0), y)


def bounded(y):
    def step(z, y_t):
        z = numpyro.sample("z", dist.Uniform(z - 1.0, z + 1.0))
        numpyro.sample("y", dist.Normal(z, 0.5), obs=y_t)
        return z, None

    scan(step, 0.0, y)


def branch(y):
    def draw(_):
        return numpyro.sample("z", dist.Normal(0.0, 1.0))

    z = cond(True, draw, draw, None)
    numpyro.sample("y", dist.Normal(z, 1.0).expand([5]).to_event(1), obs=y)


def fixed_inside(y):
    with numpyro.handlers.substitute(data={"z": 1.0}):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(z, 1.0).expand([5]).to_event(1), obs=y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (two_states, r"one scan draws the blocks \['level', 'slope'\].*groups="),
        (bounded, "site 'z' inside a scan has bounds"),
        (branch, "site 'z' has its value before the guide"),
        (fixed_inside, "site 'z' has its value before the guide"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(model, message):
    with pytest.raises(ValueError, match=message):
        fit(model, Y, restarts=1)


def test_two_states_of_a_scan_are_one_block():
    """The joint prior of the chain is normal, so the value is that of one tempered block."""
    posterior = fit(
        two_states,
        Y,
        groups={"state": ["level", "slope"]},
        confidence={"state": 0.5},
        guide="conditional",
        restarts=1,
    )
    jump = np.array([[1.0, 1.0], [0.0, 1.0]])
    state, rows = np.zeros((2, 0)), []
    for _ in range(5):  # every state as a linear map of the ten innovations
        state = np.hstack([jump @ state, np.diag([0.5, 0.1])])
        rows.append(np.pad(state[0], (0, 10 - state.shape[1])))
    prior = np.array(rows) @ np.array(rows).T
    noise = 0.25 * 0.5 * np.eye(5)
    log_z = stats.multivariate_normal(np.zeros(5), prior + noise).logpdf(Y)
    constant = 2.5 * (np.log(2 * np.pi * 0.25) - 0.5 * np.log(2 * np.pi * 0.125))
    assert abs(posterior.value - (constant - 0.5 * log_z)) < 3 * posterior.value_se + 1e-3


def test_nested_sampling_refuses_a_scan():
    with pytest.raises(ValueError, match=r"\['z'\] are drawn inside a scan"):
        sample_sou(walk, Y, confidence={})
