"""The built-in guides: the flow and its spline, what "auto" means, the bar, and diagnose."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from soubayes import diagnose, fit
from soubayes.blackbox.flows import (
    END,
    SPLINE_BINS,
    Affine,
    Spline,
    carried,
    chain_start,
    initial_flow,
    network,
)
from soubayes.blackbox.guides import MOST_WEIGHTS, choose_guide
from soubayes.blackbox.program import abstract_trace, numerics
from soubayes.blackbox.progress import PLATEAUS, WINDOW, reporting


def test_the_spline_is_a_bijection_with_its_derivative():
    rng = np.random.default_rng(0)

    @jax.jit
    def look(free, x):
        spline = Spline(free)
        y = spline(x)
        slope = jax.vmap(jax.jacfwd(spline))(x)
        return y, spline._inverse(y), slope, spline.log_abs_det_jacobian(x, y)

    with numerics():
        free = rng.normal(size=(3, 3 * SPLINE_BINS - 1))
        x = rng.uniform(-END - 2, END + 2, size=(50, 3))
        x[:, 0].sort()
        y, back, slope, log_det = look(free, x)
        np.testing.assert_allclose(back, x, atol=1e-9)
        each = np.log(np.diagonal(np.asarray(slope), axis1=1, axis2=2)).sum(axis=1)
        np.testing.assert_allclose(log_det, each, atol=1e-9)
        assert np.all(np.diff(np.asarray(y)[:, 0]) > 0)
        same, _, _, zero = look(np.zeros_like(free), x)
        np.testing.assert_allclose(same, x, atol=1e-12)
        np.testing.assert_allclose(zero, 0.0, atol=1e-12)


def test_a_flow_starts_as_the_identity():
    params = initial_flow(np.random.default_rng(0), 2, 3, chain=True)
    for chain, bends, sizes in ((True, False, (2, 2, 2, 0)), (False, False, (2, 2, 0, 0))):
        both = initial_flow(np.random.default_rng(0), 2, 3, chain=chain, bends=bends)
        parts = network(both["hidden"], both["out"], jnp.ones(3), 2)
        assert tuple(part.size for part in parts) == sizes
    bent = initial_flow(np.random.default_rng(0), 2, 3, chain=False, bends=True)
    parts = network(bent["hidden"], bent["out"], jnp.ones(3), 2)
    assert parts.spline.shape == params["spline"].shape
    assert not any(np.any(part) for part in parts)
    assert not np.any(params["carry"])
    assert set(initial_flow(np.random.default_rng(0), 2, 0, chain=True)) == {"spline", "carry"}
    assert "carry" not in initial_flow(np.random.default_rng(0), 2, 3, chain=False)


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("chain", [False, True])
def test_an_affine_map_by_its_factors_is_that_of_its_matrix(framed, chain):
    rng = np.random.default_rng(5)
    loc, log_scale, ahead, carry = rng.normal(size=(4, 6))
    lower, root = rng.normal(size=(6, 6)), np.tril(rng.normal(size=(6, 6)), -1) + 2 * np.eye(6)
    matrix = np.exp(log_scale)[:, None] * (np.tril(lower, -1) + np.eye(6))
    matrix = np.exp(ahead)[:, None] * (root @ matrix if framed else matrix)
    x = rng.normal(size=(9, 6))
    with jax.enable_x64(True):
        map_ = Affine(loc, lower, log_scale, jnp.asarray(root) if framed else None, ahead)
        np.testing.assert_allclose(map_.tril(), matrix, rtol=1e-12)
        if chain:
            map_ = map_.chained(jnp.asarray(carry), 2)
            matrix = np.linalg.solve(np.eye(6) - np.diag(carry[2:], -2), matrix)
        y = map_(jnp.asarray(x))
        np.testing.assert_allclose(y, loc + x @ matrix.T, rtol=1e-10)
        np.testing.assert_allclose(jax.vmap(map_)(jnp.asarray(x)), y, rtol=1e-10)
        np.testing.assert_allclose(map_.inv(y), x, rtol=1e-8)
        stretch = np.log(abs(np.linalg.det(matrix)))
        np.testing.assert_allclose(map_.log_abs_det_jacobian(x, y), stretch, rtol=1e-12)


@pytest.mark.parametrize("step", [1, 2])
def test_a_chain_starts_at_the_covariance_of_the_conditional_guide(step):
    rng = np.random.default_rng(step)
    log_scale, lower = rng.normal(size=6), np.tril(rng.normal(size=(6, 6)), -1)
    whole = np.exp(log_scale)[:, None] * (np.eye(6) + lower)
    given = {"z:log_scale": log_scale, "z:lower": lower}
    begun = chain_start(given, {"z": step})
    rest = np.exp(log_scale)[:, None] * (np.eye(6) + begun["z:lower"])
    with jax.enable_x64(True):
        again = carried(jnp.asarray(rest), jnp.asarray(begun["z:carry"]), step)
    np.testing.assert_allclose(again, whole, atol=1e-9)
    # a Markov chain, z_t = b_t z_(t-step) + e_t, is carried over by b, and nothing else is left
    b = rng.uniform(0.3, 0.9, 6)
    markov = np.linalg.inv(np.eye(6) - np.diag(b[step:], -step)) * np.exp(0.2)
    of_chain = {"z:log_scale": np.full(6, 0.2), "z:lower": np.tril(markov / np.exp(0.2), -1)}
    begun = chain_start(of_chain, {"z": step})
    np.testing.assert_allclose(begun["z:carry"][step:], b[step:], atol=1e-12)
    np.testing.assert_allclose(begun["z:lower"], 0.0, atol=1e-12)
    assert chain_start({"z:loc": np.zeros(6)}, {"z": 1}) == {"z:loc": pytest.approx(np.zeros(6))}


def skewed(y):
    """One positive block with an observation: far from normal on the log scale."""
    rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0))
    numpyro.sample("y", dist.Normal(rate, 1.0), obs=y)


def exact_skewed(gamma, y=0.2):
    def moment(power):
        at = lambda r: r**power * np.exp(-r - (r - y) ** 2 / (2 * gamma))  # noqa: E731
        return integrate.quad(at, 0, 30)[0]

    mean = moment(1) / moment(0)
    value = -gamma * np.log(moment(0)) + 0.5 * np.log(2 * np.pi)
    return value, mean, np.sqrt(moment(2) / moment(0) - mean**2)


def test_auto_goes_on_to_a_flow_where_the_conditional_guide_is_too_small(capsys):
    settings = {"restarts": 1, "confidence": {"rate": 0.7}}
    plain = fit(skewed, 0.2, guide="conditional", **settings)
    flow = fit(skewed, 0.2, progress=True, **settings)
    assert (plain.guide, plain.guide_reason) == ("conditional", "as asked")
    assert flow.guide == "flow"
    assert "under the best Gaussian" in flow.guide_reason
    assert "flow guide: trusted" in repr(flow)
    assert any("try guide='flow'" in note for note in diagnose(plain).notes)
    assert diagnose(flow).flatness < diagnose(plain).flatness
    value, mean, sd = exact_skewed(0.7)
    assert value - 4 * flow.value_se < flow.value < plain.value
    assert abs(flow.value - value) < abs(plain.value - value) / 4
    assert abs(flow.mean("rate") - mean) < 0.1 * sd
    assert flow.sd("rate") == pytest.approx(sd, rel=0.07)
    bar = capsys.readouterr().err
    assert "fit: step " in bar
    assert f"J {flow.history['value'].iloc[-1]:.4f}" in bar


def test_the_bar_expects_the_plateaus_to_come():
    with reporting(True) as report:
        report({"step": 400.0, "value": 1.0, "learning_rate": 0.05})
        first = report.line.total
        for step in (500.0, 600.0, 700.0, 800.0):
            report({"step": step, "value": 1.0, "learning_rate": 0.015})
        report({"step": 900.0, "value": 1.0, "learning_rate": 0.0045})
        # four windows on the plateau that is over, so four on each that is left
        assert report.line.total == 900 + 4 * WINDOW * (PLATEAUS - 3)
        assert first > 400
        report({"newton_step": 1.0, "value": 2.0, "gain": 0.1})
        assert "Newton 1" in report.line.text
    rows = []
    with reporting(rows.append) as report:
        report({"step": 1.0})
    assert rows == [{"step": 1.0}]


def many(sizes):
    for i, size in enumerate(sizes):
        numpyro.sample(f"x{i}", dist.Normal(0.0, 1.0).expand([size]).to_event(1))


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [((5, 5), "conditional"), ((200,), "conditional"), ((150, 100), "blockwise"),
     ((10, 400), "meanfield")],
)  # fmt: skip
def test_what_auto_means(sizes, kind):
    sites = abstract_trace(many, (sizes,), {})
    chosen, reason = choose_guide(sites, {name: name for name in sites})
    assert chosen == kind
    assert str(MOST_WEIGHTS) in reason


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_a_flow_on_a_funnel_at_other_confidences(gamma):
    """Eight schools with theta integrated out by hand: tau and mu by quadrature."""
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])

    def schools(effect, error):
        mu = numpyro.sample("mu", dist.Normal(0.0, 20.0))
        tau = numpyro.sample("tau", dist.HalfNormal(10.0))
        with numpyro.plate("schools", 8):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("effect", dist.Normal(theta, error), obs=effect)

    found = fit(schools, effect, error, confidence={"theta": gamma}, guide="flow")
    tau = np.linspace(1e-4, 120, 60_001)
    noise = gamma * error**2
    variance = tau[:, None] ** 2 + noise
    # exp(-V_1) = prod_j (noise/variance)^(gamma/2) exp(-gamma (y_j - mu)^2 / (2 variance))
    precision = gamma * (1 / variance).sum(axis=1) + 1 / 400
    centre = gamma * (effect / variance).sum(axis=1) / precision
    log_p = stats.halfnorm(scale=10).logpdf(tau) - 0.5 * np.log(precision)
    log_p += 0.5 * gamma * np.log(noise / variance).sum(axis=1)
    log_p += 0.5 * (precision * centre**2 - gamma * (effect**2 / variance).sum(axis=1))
    share = np.exp(log_p - log_p.max())
    share /= share.sum()
    for name, values in {"tau": tau, "mu": centre}.items():
        mean = share @ values
        within = share @ (1 / precision) if name == "mu" else 0.0
        sd = np.sqrt(share @ (values - mean) ** 2 + within)
        assert abs(found.mean(name) - mean) < 0.1 * sd
        assert found.sd(name) == pytest.approx(sd, rel=0.07)
