"""The start at the scale of the posterior, flat priors and the verdict."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.reparam import LocScaleReparam
from scipy import optimize, stats

from soubayes import fit
from soubayes.blackbox.frame import FrameBlocks, best_diagonal, best_gaussian, root_of
from soubayes.blackbox.verdict import guide_log_weights, quality

REAL, POSITIVE = dist.constraints.real, dist.constraints.positive


def objective(flat, hessian, centre, places, gammas):
    """J of N(mean, L L'), with U = (u - centre)' H (u - centre) / 2, up to constants."""
    d = len(centre)
    mean, root = flat[:d], np.zeros((d, d))
    root[np.tril_indices(d)] = flat[d:]
    energy = 0.5 * np.trace(root.T @ hessian @ root) + 0.5 * (mean - centre) @ hessian @ (
        mean - centre
    )
    entropy = sum(
        g * np.log(abs(np.diag(root)[p])).sum() for p, g in zip(places, gammas, strict=True)
    )
    return energy - entropy


@pytest.mark.parametrize("gammas", [(1.0, 1.0), (0.2, 3.0), (5.0, 0.5)], ids=str)
def test_the_best_gaussian_of_a_quadratic_minimises_j(gammas):
    rng = np.random.default_rng(1)
    a = rng.normal(size=(4, 4))
    hessian, centre = a @ a.T + 0.1 * np.eye(4), rng.normal(size=4) * 100
    blocks = FrameBlocks((np.arange(2), np.arange(2, 4)), gammas, "chain")

    def moments(mean, root, noise):
        u = mean + noise @ root.T - centre
        return 0.5 * np.sum(u @ hessian * u, axis=1), hessian @ u.mean(axis=0), hessian

    values = []
    found = best_gaussian(
        moments, np.zeros(4), np.full(4, 1e-3), blocks, lambda row: values.append(row[0])
    )
    assert found.converged
    np.testing.assert_allclose(found.mean, centre, rtol=1e-6)
    start = np.concatenate([centre, np.eye(4)[np.tril_indices(4)]])
    given = (hessian, centre, blocks.places, gammas)
    least = optimize.minimize(objective, start, given, tol=1e-12)
    exact = np.zeros((4, 4))
    exact[np.tril_indices(4)] = least.x[4:]
    np.testing.assert_allclose(found.root @ found.root.T, exact @ exact.T, rtol=2e-3)
    assert np.all(np.diff(values) <= 0)


def test_guides_with_less_structure_ignore_the_rest_of_the_hessian():
    hessian = np.array([[4.0, 1.0, 0.5], [1.0, 2.0, 0.3], [0.5, 0.3, 1.0]])
    places, gammas = (np.arange(2), np.arange(2, 3)), (0.5, 2.0)
    alone = root_of(hessian, FrameBlocks(places, gammas, "none"))
    np.testing.assert_allclose(alone, np.diag(np.sqrt([0.5 / 4, 0.5 / 2, 2.0])))
    block = root_of(hessian, FrameBlocks(places, gammas, "block"))
    np.testing.assert_allclose((block @ block.T)[:2, :2], 0.5 * np.linalg.inv(hessian[:2, :2]))
    assert not block[2, :2].any()
    point = root_of(hessian, FrameBlocks(places, (0.0, 2.0), "chain"))
    assert not point[:2].any()
    assert point[2, 2] == pytest.approx(np.sqrt(2.0))


def line(x, y, width):
    beta = numpyro.sample("beta", dist.Normal(0.0, width).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("y", dist.Normal(beta[0] + beta[1] * x, sigma).to_event(1), obs=y)


def flat_line(x, y):
    beta = numpyro.sample("beta", dist.ImproperUniform(dist.constraints.real_vector, (), (2,)))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(POSITIVE, (), ()))
    numpyro.sample("y", dist.Normal(beta[0] + beta[1] * x, sigma).to_event(1), obs=y)


def line_data(shift=0.0):
    rng = np.random.default_rng(5)
    x = rng.uniform(80, 120, 200)
    return x + shift, 20 + 0.6 * x + 15 * rng.normal(size=200)


def by_quadrature(x, y, width):
    """Moments of beta and sigma: sigma on a grid, beta given it in closed form."""
    design = np.column_stack([np.ones(len(x)), x])
    sigma = np.linspace(10, 60, 4001)
    log_p, means, covariances = [], [], []
    for s in sigma:
        precision = design.T @ design / s**2 + np.eye(2) / width**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ design.T @ y / s**2
        residual = y - design @ mean
        half = 0.5 * np.linalg.slogdet(covariance)[1]
        quadratic = residual @ residual / s**2 + mean @ mean / width**2
        log_p.append(half - len(y) * np.log(s) - 0.5 * quadratic - np.log1p((s / 2.5) ** 2))
        means.append(mean)
        covariances.append(np.diag(covariance))
    share = np.exp(np.array(log_p) - max(log_p))
    share /= share.sum()
    mean = share @ np.array(means)
    variance = share @ (np.array(covariances) + (np.array(means) - mean) ** 2)
    centre = share @ sigma
    return mean, np.sqrt(variance), centre, np.sqrt(share @ (sigma - centre) ** 2)


@pytest.mark.parametrize(
    "width", [pytest.param(1.0, marks=pytest.mark.slow), 1e2, 1e4, 1e6], ids=str
)
def test_the_width_of_a_prior_does_not_set_the_pace(width):
    x, y = line_data()
    posterior = fit(line, x, y, width, num_draws=8192)
    assert posterior.verdict == "trusted"
    mean, sd, sigma, sigma_sd = by_quadrature(x, y, width)
    error = 4 / np.sqrt(8192)
    assert np.all(abs(posterior.mean("beta") - mean) < (0.05 + error) * sd)
    assert abs(posterior.mean("sigma") - sigma) < (0.05 + error) * sigma_sd
    np.testing.assert_allclose(posterior.sd("beta"), sd, rtol=0.07)
    np.testing.assert_allclose(posterior.sd("sigma"), sigma_sd, rtol=0.07)


def test_flat_priors_and_columns_that_are_not_centred():
    """Least squares is the reference; a shift of x by 10,000 of its sds changes the intercept."""
    for shift in (0.0, 11.5e4):
        x, y = line_data(shift)
        posterior = fit(flat_line, x, y, restarts=1)
        assert posterior.verdict == "trusted"
        assert posterior.flat == ("beta", "sigma")
        assert "KL of beta, sigma up to a constant" in repr(posterior)
        slope = stats.linregress(x - shift, y)
        residual = np.sum((y - slope.intercept - slope.slope * (x - shift)) ** 2)
        # sigma^2 ~ Inv-Gamma((n - 3) / 2, residual / 2) under a flat prior of sigma
        sigma = np.sqrt(stats.invgamma((len(y) - 3) / 2, scale=residual / 2).rvs(20_000, 0))
        sd = np.sqrt(np.mean(sigma**2) / np.sum((x - x.mean()) ** 2))
        assert abs(posterior.mean("beta")[1] - slope.slope) < (0.05 + 4 / 64) * sd
        assert posterior.sd("beta")[1] == pytest.approx(sd, rel=0.07)
        assert abs(posterior.mean("sigma") - sigma.mean()) < (0.05 + 5 / 64) * sigma.std()


def masked(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0).mask(False))
    numpyro.sample("y", dist.Normal(mu, 0.1), obs=y)


def improper(y):
    mu = numpyro.sample("mu", dist.ImproperUniform(REAL, (), ()))
    numpyro.sample("y", dist.Normal(mu, 0.1), obs=y)


def unidentified(y):
    a, b = (numpyro.sample(n, dist.ImproperUniform(REAL, (), ())) for n in "ab")
    numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)


def dependent(y):
    a = numpyro.sample("a", dist.HalfNormal(1.0))
    support = dist.constraints.interval(0.0, a)
    b = numpyro.sample("b", dist.ImproperUniform(support, (), ()))
    numpyro.sample("y", dist.Normal(b, 1.0), obs=y)


@pytest.mark.parametrize("model", [masked, improper], ids=["masked", "improper"])
def test_a_flat_prior_is_one_however_it_is_written(model):
    """q = N(y, 0.01 gamma); its KL from the density 1 is minus its entropy, which is below 0."""
    for gamma in (1.0, 0.25):
        posterior = fit(model, 2.0, confidence={"mu": gamma}, restarts=1)
        exact = stats.norm(2.0, 0.1 * np.sqrt(gamma))
        assert posterior.mean("mu") == pytest.approx(2.0, abs=4 * exact.std() / 64)
        assert posterior.sd("mu") == pytest.approx(exact.std(), rel=0.05)
        assert posterior.kl["mu"] == pytest.approx(-exact.entropy(), abs=0.1)
        assert posterior.flat == ("mu",)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (unidentified, r"posterior of \['a', 'b'\] is improper"),
        (dependent, r"flat prior of 'b' has a support that depends on \['a'\]"),
    ],
)
def test_flat_priors_that_mean_nothing_are_refused(model, message):
    with pytest.raises(ValueError, match=message):
        fit(model, 1.0, restarts=1)


def test_a_reparametrised_block_keeps_its_name():
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with (
            numpyro.plate("rows", 2),
            numpyro.handlers.reparam(config={"theta": LocScaleReparam(0.0)}),
        ):
            theta = numpyro.sample("theta", dist.Normal(mu, 0.5))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    posterior = fit(model, np.array([1.0, 2.0]), confidence={"theta": 0.5}, restarts=1)
    assert posterior.names == ("mu", "theta")
    assert posterior.confidence["theta"] == 0.5
    # V of mu is 0.5 (y - mu)^2 / (2 (0.25 + 0.5)) for each y (Theorem 1)
    variance = 1 / (1 + 2 * 0.5 / (0.25 + 0.5))
    mean = variance * 0.5 * 3.0 / (0.25 + 0.5)
    assert posterior.mean("mu") == pytest.approx(mean, abs=5 * np.sqrt(variance) / 64)


def test_weights_see_a_shift_and_a_stretch():
    rng = np.random.default_rng(0)
    for shift, sd, verdict in [(0.0, 1.0, "trusted"), (0.15, 1.0, "rough"), (1.0, 0.5, "not")]:
        x = rng.normal(shift, sd, 4096)
        log_w = stats.norm.logpdf(x) - stats.norm.logpdf(x, shift, sd)
        found = quality(log_w, {"x": x})
        assert found.verdict.startswith(verdict)
        if verdict != "not":
            assert found.mean_error == pytest.approx(shift, abs=0.03)
    narrow = rng.normal(0.0, 0.85, 4096)
    log_w = stats.norm.logpdf(narrow) - stats.norm.logpdf(narrow, 0, 0.85)
    assert quality(log_w, {"x": narrow}).verdict != "trusted"
    assert quality(log_w, {"x": narrow}).least_sd == pytest.approx(0.85, abs=0.05)


def test_a_tail_that_the_fit_does_not_reach_is_not_trusted():
    """q is normal, p has three times its mass beyond the lowest 1 %: means and sds hardly move."""
    x = np.random.default_rng(4).normal(size=4096)
    log_w = np.where(x < stats.norm.ppf(0.01), np.log(3.0), 0.0)
    found = quality(log_w, {"x": x})
    assert found.tail == pytest.approx(3.0, rel=0.1)
    assert found.verdict == "rough"
    assert "a tail 2.9 times" in found.reason or "a tail 3.0 times" in found.reason
    assert quality(np.zeros(4096), {"x": x}).tail == pytest.approx(1.0, abs=0.03)


def test_weights_at_unequal_confidences_are_right_to_first_order():
    """q is off by a little in both blocks; the integrand is sum_k gamma_k log(q_k / p_k)."""
    rng = np.random.default_rng(2)
    gammas = {"a": 0.3, "b": 2.0}
    a = rng.normal(0.1, 1.0, 8192)
    b = rng.normal(0.5 * a - 0.1, 1.0)
    parts = {
        "a": stats.norm.logpdf(a, 0.1, 1.0) - stats.norm.logpdf(a, 0.0, 1.0),
        "b": stats.norm.logpdf(b, 0.5 * a - 0.1, 1.0) - stats.norm.logpdf(b, 0.5 * a, 1.0),
    }
    integrand = 7.0 + sum(gammas[k] * part for k, part in parts.items())
    found = guide_log_weights(integrand, {"a": a, "b": b}, {"a": "a", "b": "b"}, gammas)
    exact = -parts["a"] - parts["b"]
    assert np.corrcoef(found, exact)[0, 1] > 0.99
    seen = quality(found, {"a": a, "b": b})
    assert seen.mean_error == pytest.approx(0.1, abs=0.04)
    kept = guide_log_weights(
        integrand, {"a": a, "b": b}, {"a": "a", "b": "b"}, {"a": np.inf, "b": 2.0}
    )
    assert abs(np.corrcoef(kept, a)[0, 1]) < 0.1  # a block at its prior is not off


@pytest.mark.slow
def test_nuts_beside_the_fit_decides_where_it_is_asked():
    def funnel(y):
        s = numpyro.sample("s", dist.Normal(0.0, 1.5))
        x = numpyro.sample("x", dist.Normal(0.0, np.e**s))
        numpyro.sample("y", dist.Normal(x, 1.0), obs=y)

    good = fit(improper, 2.0, check="nuts")
    assert good.verdict == "trusted"
    assert good.quality.reason.startswith("beside 500 draws of NUTS")
    bad = fit(funnel, 1.0, guide="meanfield", check="nuts")
    assert bad.verdict == "not to be used"
    with pytest.raises(ValueError, match="all confidences, feedbacks and weights 1"):
        fit(improper, 2.0, confidence={"mu": 0.5}, check="nuts")


def test_loo_runs_on_the_export():
    arviz_stats = pytest.importorskip("arviz_stats")

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        numpyro.sample("y", dist.Normal(mu, 1.0).expand([6]).to_event(1), obs=y)

    y = np.linspace(-1, 2, 6)
    posterior = fit(model, y, restarts=1)
    data = posterior.to_arviz(draws=2000, random_state=1)
    by_hand = stats.norm(data.posterior["mu"].values[..., None], 1).logpdf(y)
    np.testing.assert_allclose(data.log_likelihood["y"].values, by_hand)
    # leaving one out in closed form
    total = 0.0
    for i in range(6):
        rest = np.delete(y, i)
        variance = 1 / (1 / 9 + 5)
        total += stats.norm(variance * rest.sum(), np.sqrt(1 + variance)).logpdf(y[i])
    assert arviz_stats.loo(data).elpd == pytest.approx(total, abs=0.1)


def test_independent_coordinates_by_lbfgs_whatever_their_units():
    """Of a quadratic U the means are exact, and the precisions are the diagonal of the Hessian."""
    rng = np.random.default_rng(0)
    size = 30
    unit = np.exp(2 * rng.normal(size=size))
    root = rng.normal(size=(size, 60))
    hessian = (root @ root.T / 60 + np.eye(size)) / np.outer(unit, unit)
    centre = 100 * unit * rng.normal(size=size)

    def slopes(at):
        off = at - centre
        return 0.5 * np.einsum("ri,ij,rj->r", off, hessian, off), off @ hessian

    gammas = (0.5, 2.0, 0.0)
    places = tuple(np.array_split(np.arange(size), 3))
    found = best_diagonal(
        slopes,
        np.zeros(size),
        np.full(size, 0.1),
        FrameBlocks(places, gammas, "none"),
        [].append,
    )
    assert found.converged
    every = np.repeat(gammas, 10)
    sd = np.sqrt(every / np.diag(hessian))
    np.testing.assert_allclose((found.mean - centre) / unit, 0.0, atol=0.05)
    np.testing.assert_allclose(found.root[every > 0], sd[every > 0], rtol=0.3)  # 32 fixed draws
    assert np.all(found.root[every == 0] == 0)
    assert (
        best_diagonal(
            lambda at: (np.full(len(at), np.nan), at),
            np.zeros(size),
            np.ones(size),
            FrameBlocks(places, gammas, "none"),
            [].append,
        )
        is None
    )


def test_more_than_200_coordinates_start_at_the_scale_of_the_posterior():
    def many(y):
        theta = numpyro.sample("theta", dist.Normal(0.0, 1e6).expand([len(y)]).to_event(1))
        numpyro.sample("y", dist.Normal(theta, scale).to_event(1), obs=y)

    rng = np.random.default_rng(1)
    scale = np.exp(rng.normal(size=230))
    y = 1e3 + scale * rng.normal(size=230)
    posterior = fit(many, y, restarts=1)
    assert posterior.verdict == "trusted"
    assert np.max(abs(posterior.mean("theta") - y) / scale) < 0.1
    np.testing.assert_allclose(posterior.sd("theta"), scale, rtol=0.07)


def two_means(y, ordered):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    places = jnp.stack([mu[0], mu[0] + jnp.exp(mu[1])]) if ordered else mu
    mixing = dist.Categorical(probs=jnp.array([0.5, 0.5]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(places, 1.0)), obs=y)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_mode_that_another_start_has_found_is_not_forgotten(ordered):
    """Two means that can be exchanged have two modes, and a Gaussian is at one of them."""
    rng = np.random.default_rng(3)
    y = np.concatenate([rng.normal(-1.5, 1.0, 30), rng.normal(2.5, 1.0, 30)])
    found = fit(two_means, y, ordered)
    assert found.verdict == ("trusted" if ordered else "not to be used")
    assert ("another mode has about 50%" in str(found)) == (not ordered)
    assert found.stages["verdict"].tolist() == [found.verdict]
