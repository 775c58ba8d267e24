"""The Gibbs horseshoe against quadrature, a joint-distribution test and its own two branches."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from soubayes import horseshoe_gibbs
from soubayes.datasets import normal_means, wide_design
from soubayes.horseshoe import (
    GibbsState,
    _draw_tall,
    _draw_wide,
    normal_means_step,
    regression_step,
)


def log_marginal(X, y, variance, a, b):
    """log p(y | scales) with beta and sigma^2 integrated out: a multivariate t, one per row."""
    n = len(y)
    cov = np.eye(n) + np.einsum("ij,kj,mj->kim", X, variance, X)
    quad = np.einsum("i,kim,m->k", y, np.linalg.inv(cov), y)
    return -0.5 * np.linalg.slogdet(cov)[1] - (a + n / 2) * np.log(b + quad / 2)


def test_one_coefficient_against_quadrature():
    """For p = 1 only s = tau nu matters, with density 4 log(s) / (pi^2 (s^2 - 1))."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((6, 1))
    y = 0.8 * X[:, 0] + rng.standard_normal(6)
    logs = np.linspace(-14, 14, 20_000)  # even number: log s = 0 is not a node
    s = np.exp(logs)
    log_prior = np.log(logs / (s**2 - 1)) + logs
    log_weight = log_prior + log_marginal(X, y, s[:, None] ** 2, 3, 2)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    xx, xy = X[:, 0] @ X[:, 0], X[:, 0] @ y
    mean = xy * s**2 / (1 + xx * s**2)
    rate = 2 + 0.5 * (y @ y - xy * mean)
    noise = rate / (3 + 3 - 1)  # E[sigma^2 | s], Inv-Gamma(3 + n/2, rate)
    expected = {
        "coef": weight @ mean,
        "square": weight @ (mean**2 + noise * s**2 / (1 + xx * s**2)),
        "noise": weight @ noise,
    }
    draws = horseshoe_gibbs(X, y, draws=4000, chains=2, random_state=1, warmup=500).posterior
    got = {
        "coef": draws["coef"].values[..., 0],
        "square": draws["coef"].values[..., 0] ** 2,
        "noise": draws["noise_variance"].values,
    }
    for name, value in expected.items():
        assert abs(got[name].mean() - value) < 4 * array_stats.mcse(got[name]), name


def test_more_columns_than_rows_against_quadrature():
    """n = 1, p = 2: a three-dimensional sum over the logs of tau_1, tau_2 and nu."""
    X, y = np.array([[1.0, -0.5]]), np.array([3.0])
    grid = np.linspace(-12, 12, 61)
    log_cauchy = grid - np.log1p(np.exp(2 * grid))
    t1, t2, v = (m.ravel() for m in np.meshgrid(grid, grid, grid, indexing="ij"))
    prior = sum(m.ravel() for m in np.meshgrid(log_cauchy, log_cauchy, log_cauchy, indexing="ij"))
    d1, d2 = np.exp(2 * (t1 + v)), np.exp(2 * (t2 + v))
    total = 1 + d1 + 0.25 * d2  # variance of y over sigma^2
    log_weight = prior - 0.5 * np.log(total) - 3.5 * np.log(2 + 4.5 / total)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    expected = [weight @ (3 * d1 / total), weight @ (-1.5 * d2 / total)]
    draws = (
        horseshoe_gibbs(X, y, draws=4000, chains=2, random_state=2, warmup=500)
        .posterior["coef"]
        .values
    )
    for j in range(2):
        assert abs(draws[..., j].mean() - expected[j]) < 4 * array_stats.mcse(draws[..., j])


def departures_from_the_prior(rng, p, make_step, simulate, scaled, repeats=4000):
    """z-scores of the change that sweeps make to (theta, y) drawn from the joint distribution.

    theta from the prior, y given theta, then sweeps: theta must still follow the prior. The
    repeats are independent; one long chain with the data redrawn would be stuck in the
    half-Cauchy's tails for longer than any run.
    """

    def prior():
        aux, global_aux = 1 / rng.standard_gamma(0.5, p), 1 / rng.standard_gamma(0.5)
        local = 1 / aux / rng.standard_gamma(0.5, p)
        global_ = 1 / global_aux / rng.standard_gamma(0.5)
        noise = 2 / rng.standard_gamma(3)
        sd = np.sqrt(local * global_ * (noise if scaled else 1))
        return GibbsState(sd * rng.standard_normal(p), noise, local, aux, global_, global_aux)

    def functions(state):
        product = state.coef[0] * state.coef[-1]
        positive = [state.noise, state.local[0], state.global_, state.local[0] * state.global_]
        positive += [state.local_aux[0], state.global_aux, product**2 / state.noise]
        logs = np.log(positive)
        bounded = np.tanh([state.coef[0], product])
        return np.concatenate([logs, np.tanh(logs / 4) ** 2, bounded, bounded**2])

    changes = []
    for _ in range(repeats):
        start = state = prior()
        step = make_step(simulate(start))
        for _ in range(2):
            state = step(state, rng)
        changes.append(functions(state) - functions(start))
    return np.mean(changes, axis=0) / np.std(changes, axis=0) * np.sqrt(repeats)


@pytest.mark.parametrize("shape", [(3, 2), (2, 3)], ids=["tall", "wide"])
def test_joint_distribution_of_regression(shape):
    n, p = shape
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape)

    def simulate(state):
        return X @ state.coef + np.sqrt(state.noise) * rng.standard_normal(n)

    z = departures_from_the_prior(
        rng, p, lambda y: regression_step(X, y, 3, 2), simulate, scaled=True
    )
    assert np.abs(z).max() < 4


def test_joint_distribution_of_normal_means():
    rng = np.random.default_rng(0)

    def simulate(state):
        return state.coef[:, None] + np.sqrt(state.noise) * rng.standard_normal((2, 3))

    z = departures_from_the_prior(
        rng, 2, lambda Y: normal_means_step(Y, 3, 2), simulate, scaled=False
    )
    assert np.abs(z).max() < 4


def test_both_branches_draw_from_the_same_conditional():
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((4, 3)), rng.standard_normal(4)
    scale = np.array([0.3, 1.0, 4.0])
    A = X.T @ X + np.diag(scale**-2)
    mean = np.linalg.solve(A, X.T @ y)
    rate = 2 + (y @ y - y @ X @ mean) / 2
    expected_noise = rate / (5 - 1)
    cov = expected_noise * np.linalg.inv(A)
    for make in (_draw_tall, _draw_wide):
        draw = make(X, y)
        pairs = [draw(scale, 5.0, 2.0, rng) for _ in range(8000)]
        coefs = np.array([coef for coef, _ in pairs])
        noises = np.array([noise for _, noise in pairs])
        assert np.all(np.abs(coefs.mean(0) - mean) < 4 * coefs.std(0) / np.sqrt(len(coefs)))
        assert abs(noises.mean() - expected_noise) < 4 * noises.std() / np.sqrt(len(noises))
        spread = np.sqrt(np.outer(np.diag(cov), np.diag(cov)))
        assert np.all(np.abs(np.cov(coefs.T) - cov) < 0.1 * spread)


def test_normal_means_of_the_paper_finds_the_signals():
    data = normal_means(random_state=0)
    posterior = horseshoe_gibbs(None, data.Y, draws=500, chains=2, random_state=0).posterior
    kappa = posterior["shrinkage"].mean(("chain", "draw")).values
    assert kappa.shape == (100,)
    assert kappa[:20].max() < 0.1
    assert 0.5 < np.median(kappa[20:]) < 0.9  # shrunk, but spread: the paper's point
    estimate = posterior["coef"].mean(("chain", "draw")).values
    assert np.sqrt(np.mean((estimate - data.coef) ** 2)) < np.sqrt(1 / 5)  # better than the means


def test_chains_agree_on_wide_data_and_a_seed_repeats():
    data = wide_design(60, 120, 6, random_state=0)
    first = horseshoe_gibbs(data.X, data.y, draws=400, chains=2, random_state=9)
    again = horseshoe_gibbs(data.X, data.y, draws=400, chains=2, random_state=9)
    np.testing.assert_array_equal(first.posterior["coef"], again.posterior["coef"])
    assert not np.array_equal(first.posterior["coef"][0], first.posterior["coef"][1])
    coef = np.moveaxis(first.posterior["coef"].values, -1, 0)[:6]  # (column, chain, draw)
    assert array_stats.rhat(coef).max() < 1.05
    assert array_stats.ess(coef).min() > 100
    estimate = first.posterior["coef"].mean(("chain", "draw")).values
    assert np.abs(estimate - data.coef).max() < 0.7


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_extreme_units_and_collinear_columns_stay_finite(scale):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    X = scale * np.column_stack([X, X[:, 0], np.zeros(20)])
    y = X[:, 0] + scale * rng.standard_normal(20)
    posterior = horseshoe_gibbs(X, y, draws=50, chains=1, random_state=0).posterior
    assert all(np.isfinite(posterior[name]).all() for name in posterior.data_vars)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"draws": 0}, "draws is 0"),
        ({"noise_scale": -1.0}, "greater than 0"),
        ({"y": [1.0, np.nan, 2.0]}, "NaN"),
        ({"y": [1.0, 2.0]}, "inconsistent numbers of samples"),
    ],
)
def test_bad_input_is_named(bad, message):
    with pytest.raises(ValueError, match=message):
        horseshoe_gibbs(**({"X": np.eye(3), "y": [1.0, 2.0, 3.0]} | bad))


@pytest.mark.slow
def test_against_nuts():
    """NumPyro's NUTS on the same model: posterior means of the coefficients and of sigma^2."""
    import jax
    import numpyro
    from numpyro import distributions as dist

    rng = np.random.default_rng(1)
    X = rng.standard_normal((15, 4))
    y = X @ [3.0, 0, 0, 1.0] + rng.standard_normal(15)

    def model():
        with numpyro.plate("columns", 4):
            tau = numpyro.sample("tau", dist.HalfCauchy(1.0))
            z = numpyro.sample("z", dist.Normal(0, 1))
        nu = numpyro.sample("nu", dist.HalfCauchy(1.0))
        noise = numpyro.sample("noise", dist.InverseGamma(3.0, 2.0))
        coef = numpyro.deterministic("coef", z * tau * nu * noise**0.5)
        numpyro.sample("y", dist.Normal(X @ coef, noise**0.5), obs=y)

    kernel = numpyro.infer.NUTS(model, target_accept_prob=0.98)
    mcmc = numpyro.infer.MCMC(kernel, num_warmup=2000, num_samples=8000, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0))
    nuts = mcmc.get_samples()
    ours = horseshoe_gibbs(X, y, draws=8000, chains=2, random_state=0).posterior
    pairs = [(ours["coef"].values[..., j], np.asarray(nuts["coef"])[None, :, j]) for j in range(4)]
    pairs.append((ours["noise_variance"].values, np.asarray(nuts["noise"])[None]))
    for a, b in pairs:
        assert abs(a.mean() - b.mean()) < 4 * np.hypot(array_stats.mcse(a), array_stats.mcse(b))
