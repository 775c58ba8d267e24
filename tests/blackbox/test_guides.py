"""The built-in guides: the flow and its spline, what "auto" means, the bar, and diagnose."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

from soubayes import diagnose, fit
from soubayes.blackbox.flows import BINS, END, Spline, initial_flow, network
from soubayes.blackbox.guides import MOST_WEIGHTS, choose_guide
from soubayes.blackbox.program import abstract_trace, double_precision
from soubayes.blackbox.progress import PLATEAUS, WINDOW, reporting


def test_the_spline_is_a_bijection_with_its_derivative():
    rng = np.random.default_rng(0)
    with double_precision():
        free = jnp.asarray(rng.normal(size=(3, 3 * BINS - 1)))
        spline = Spline(free)
        x = jnp.asarray(rng.uniform(-END - 2, END + 2, size=(50, 3)))
        y = jax.jit(lambda x: spline(x))(x)
        np.testing.assert_allclose(jax.jit(spline._inverse)(y), x, atol=1e-9)
        slope = jax.vmap(jax.jacfwd(spline))(x)
        each = np.log(np.diagonal(np.asarray(slope), axis1=1, axis2=2)).sum(axis=1)
        np.testing.assert_allclose(spline.log_abs_det_jacobian(x, y), each, atol=1e-9)
        order = jnp.sort(x[:, 0])[:, None] * jnp.ones(3)
        assert np.all(np.diff(np.asarray(spline(order)), axis=0) > 0)
        same = Spline(jnp.zeros((3, 3 * BINS - 1)))
        np.testing.assert_allclose(same(x), x, atol=1e-12)
        np.testing.assert_allclose(same.log_abs_det_jacobian(x, x), 0.0, atol=1e-12)


def test_a_flow_starts_as_the_identity():
    params = initial_flow(np.random.default_rng(0), 2, 3, chain=True)
    shift, log_scale, along = network(params["hidden"], params["out"], jnp.ones(3), 2)
    assert not np.any(shift)
    assert not np.any(log_scale)
    assert np.all(along)  # or neither it nor what it multiplies could move
    assert not np.any(params["bend"])
    assert set(initial_flow(np.random.default_rng(0), 2, 0, chain=True)) == {"spline"}
    assert "bend" not in initial_flow(np.random.default_rng(0), 2, 3, chain=False)


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
    assert "under the conditional guide" in flow.guide_reason
    assert "flow guide, converged" in repr(flow)
    assert any("try guide='flow'" in note for note in diagnose(plain).notes)
    assert diagnose(flow).flatness < diagnose(plain).flatness
    value, mean, sd = exact_skewed(0.7)
    assert value - 4 * flow.value_se < flow.value < plain.value
    assert abs(flow.value - value) < abs(plain.value - value) / 4
    assert abs(flow.mean("rate") - mean) < 0.1 * sd
    assert flow.sd("rate") == pytest.approx(sd, rel=0.07)
    bar = capsys.readouterr().err
    assert "100%" in bar
    assert f"J {flow.history['value'][-1]:.4f}" in bar


def test_the_bar_expects_the_plateaus_to_come():
    with reporting(True) as report:
        report({"step": 400.0, "value": 1.0, "learning_rate": 0.05})
        first = report.bar.total
        for step in (500.0, 600.0, 700.0, 800.0):
            report({"step": step, "value": 1.0, "learning_rate": 0.015})
        report({"step": 900.0, "value": 1.0, "learning_rate": 0.0045})
        # four windows on the plateau that is over, so four on each that is left
        assert report.bar.total == 900 + 4 * WINDOW * (PLATEAUS - 3)
        assert first > 400
        report({"newton_step": 1.0, "value": 2.0, "gain": 0.1})
        assert "Newton 1" in str(report.bar)
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
