"""fit against closed forms and quadrature, its result surface, and its honesty."""

import signal
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.autoguide import AutoMultivariateNormal
from scipy import integrate, optimize, stats
from sklearn.exceptions import ConvergenceWarning

from soubayes import Renyi, beta_loss, fit, huber_loss
from soubayes.blackbox.descent import Descent
from soubayes.blackbox.program import Program, compiled

Y = np.array([1.0, 2.0, -0.5])
INF = float("inf")


def schools(y):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    with numpyro.plate("groups", len(Y)):
        b = numpyro.sample("b", dist.Normal(a, 1.0))
        numpyro.sample("y", dist.Normal(b, 0.5), obs=y)


def location(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("rows", None if y is None else len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def prior_only(y):
    numpyro.sample("mu", dist.Normal(0.0, 3.0))


def value_after_b(a, gamma):
    """V_1(a) of `schools`: the groups integrated out at confidence gamma (Theorem 1)."""
    a = np.asarray(a)[..., None]
    constant = 0.5 * np.log(2 * np.pi * 0.25)
    variance = 0.25 * gamma  # of y around b in exp(-loss / gamma)
    log_z = 0.5 * np.log(variance / (1 + variance)) - (Y - a) ** 2 / (2 * (1 + variance))
    return np.sum(constant - gamma * log_z, axis=-1)


def exact_value(gamma_a, gamma_b):
    prior = stats.norm(0, 2)
    if gamma_a == INF:
        return integrate.quad(lambda a: prior.pdf(a) * value_after_b(a, gamma_b), -30, 30)[0]
    a = np.linspace(-20, 20, 400_001)
    log_terms = -value_after_b(a, gamma_b) / gamma_a + prior.logpdf(a)
    return -gamma_a * (np.logaddexp.reduce(log_terms) + np.log(a[1] - a[0]))


@pytest.mark.slow  # test_scenarios has the same in the fast run
@pytest.mark.parametrize(
    "gammas", [(1.0, 1.0), (0.1, 1.0), (3.0, 0.1), (1e-9, 1.0), (0.7, 20.0)], ids=str
)
def test_conditional_guide_reaches_the_exact_value(gammas):
    """One compiled program for all of these."""
    confidence = dict(zip("ab", gammas, strict=True))
    posterior = fit(schools, Y, confidence=confidence, guide="conditional", restarts=1)
    assert posterior.converged
    gap = posterior.value - exact_value(*gammas)
    assert abs(gap) < 3 * posterior.value_se + 1e-5
    weighted = sum(confidence[b] * kl for b, kl in posterior.kl.items())
    assert posterior.value == pytest.approx(posterior.expected_loss + weighted)


@pytest.mark.slow
@pytest.mark.parametrize("gammas", [(1.0, 1.0), (3.0, 0.1)], ids=str)
def test_mean_field_lies_above_by_what_it_cannot_say(gammas):
    """Mean field misses the dependence of b on a: a gap, and never below the minimum."""
    confidence = dict(zip("ab", gammas, strict=True))
    posterior = fit(schools, Y, confidence=confidence, guide="meanfield", restarts=1)
    gap = posterior.value - exact_value(*gammas)
    assert gap > 3 * posterior.value_se

    # the mean-field optimum by hand: b_j ~ N(m_j, s2), a ~ N(m, v), coordinate by coordinate
    (gamma_a, gamma_b), m = gammas, 0.0
    v = gamma_a / (gamma_a / 4 + 3 * gamma_b)
    s2 = gamma_b / (4 + gamma_b)
    for _ in range(500):
        each = (4 * Y + gamma_b * m) / (4 + gamma_b)
        m = gamma_b * each.sum() / (gamma_a / 4 + 3 * gamma_b)
    loss = np.sum(0.5 * np.log(2 * np.pi * 0.25) + ((Y - each) ** 2 + s2) / 0.5)
    kl_a = 0.5 * (v / 4 + m**2 / 4 - 1 - np.log(v / 4))
    kl_b = 0.5 * np.sum(s2 + (each - m) ** 2 + v - 1 - np.log(s2))
    assert abs(posterior.value - (loss + gamma_a * kl_a + gamma_b * kl_b)) < (
        3 * posterior.value_se + 1e-4
    )


@pytest.mark.slow
def test_a_block_of_confidence_inf_stays_at_its_prior():
    posterior = fit(schools, Y, confidence={"a": INF}, guide="conditional")
    assert abs(posterior.value - exact_value(INF, 1.0)) < 3 * posterior.value_se
    assert posterior.kl["a"] == 0
    assert stats.kstest(posterior.sample(2000)["a"], stats.norm(0, 2).cdf).pvalue > 1e-3


def test_confidence_zero_is_a_point_estimate():
    for gamma in (0.0, 1e-30):  # below the smallest usable one: the same thing, the same program
        posterior = fit(location, Y, confidence={"mu": gamma}, restarts=1)
        np.testing.assert_allclose(posterior.mean("mu"), Y.mean(), atol=1e-3)
        assert posterior.sd("mu") < 1e-12
        assert posterior.confidence == {"mu": 0.0}
        assert posterior.sensitivity() == {"mu": INF}
        least = -stats.norm(Y.mean(), 1).logpdf(Y).sum()
        np.testing.assert_allclose(posterior.value, least, atol=1e-4)


@pytest.fixture(scope="module")
def located():
    return fit(location, Y, confidence={"mu": 0.5}, restarts=1)


def test_the_result_surface(located):
    exact_var = 0.5 / (3 + 0.5 / 9)  # gamma / (n + gamma / 9)
    exact_mean = exact_var / 0.5 * Y.sum()
    draws = located.sample(5000, random_state=1)["mu"]
    assert abs(draws.mean() - exact_mean) < 4 * np.sqrt(exact_var / 5000) + 1e-3
    assert abs(draws.var() / exact_var - 1) < 4 * np.sqrt(2 / 5000) + 1e-3
    np.testing.assert_array_equal(draws, located.sample(5000, random_state=1)["mu"])
    assert not np.array_equal(draws, located.sample(5000, random_state=2)["mu"])
    assert located.names == ("mu",)
    assert located.quantile("mu", 0.5) == pytest.approx(exact_mean, abs=0.05)
    table = located.summary()
    assert list(table) == ["block", "confidence", "mean", "sd", "lower", "upper", "kl"]
    assert table["lower"][0] < table["mean"][0] < table["upper"][0]
    assert "conditional guide: trusted" in repr(located)
    data = located.to_arviz()
    assert data.posterior["mu"].shape == (1, 4096)
    assert data.posterior.attrs["value"] == located.value
    with pytest.raises(ValueError, match="no site 'nu'"):
        located.mean("nu")


def test_predictive_and_log_likelihood(located):
    drawn = located.predictive(Y)
    assert drawn["y"].shape == (4096, 3)
    pointwise = located.log_likelihood(Y)["y"]
    by_hand = stats.norm(located.draws["mu"][:, None], 1).logpdf(Y)
    np.testing.assert_allclose(pointwise, by_hand, rtol=1e-10)


def far(y):
    numpyro.sample("mu", dist.Normal(numpyro.param("loc", -20.0), 1.0))


def test_running_out_of_steps_is_said():
    with pytest.warns(ConvergenceWarning, match="more steps="):
        posterior = fit(location, Y, guide=far, steps=100, polish=0)
    assert not posterior.converged
    assert posterior.verdict == "not to be used"
    assert "custom guide: not to be used" in repr(posterior)
    assert "J still fell" in repr(posterior)


def interrupt(*args, **kwargs):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("stage", ["moments", "window", "draws", "fixed_hessian", "progress"])
def test_an_interrupt_is_raised_from_every_phase(located, monkeypatch, stage):
    settings = {"confidence": {"mu": 0.5}, "restarts": 1, "steps": 100, "polish": 256}
    plan = located._program.plan
    program = compiled(plan._replace(framed=stage != "moments"))
    if stage == "progress":
        settings["progress"] = interrupt
    else:
        monkeypatch.setattr(program, stage, interrupt)
    if stage == "fixed_hessian":
        at = lambda params, *_: (0.0, params)  # noqa: E731
        monkeypatch.setattr(program, "fixed_value_and_gradient", at)
    with pytest.raises(KeyboardInterrupt):
        fit(location, Y, **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": np.nan}, "value is nan: the objective has no finite minimum"),
        ({"value": -1e214}, "value is -1e\\+214"),
        ({"value_se": INF}, "value_se is inf"),
        ({"expected_loss": -INF}, "loss is -inf"),
        ({"kl": {"mu": INF}}, "the KL of 'mu' is inf"),
        ({"draws": {"mu": np.array([0.0, INF])}}, "50.0% of the draws of 'mu' are not finite"),
    ],
)
def test_a_result_that_is_no_answer_cannot_be_made(located, change, message):
    with pytest.raises(ValueError, match=message):
        replace(located, **change)


def test_a_negative_kl_is_an_error():
    class Wrong(dist.Normal):
        def log_prob(self, value):
            return super().log_prob(value) - 50.0

    def guide(y):
        numpyro.sample("mu", Wrong(numpyro.param("loc", 0.0), 1.0))

    with pytest.raises(ValueError, match=r"KL of 'mu' is -4.* never negative"):
        fit(location, Y, guide=guide, restarts=1, steps=100)
    minus = lambda q, prior, key: -Renyi(0.5)(q, prior, key)  # noqa: E731
    with pytest.raises(ValueError, match=r"KL of 'mu' is -.* is not a divergence"):
        fit(location, Y, divergence={"mu": minus}, restarts=1, steps=100)


def test_a_standard_error_that_overflows_is_an_error():
    steep = lambda values, y: 1e170 * jnp.abs(values["mu"])  # noqa: E731
    with pytest.raises(ValueError, match="no finite minimum"):
        fit(prior_only, Y, loss=steep, restarts=1, steps=100)


def test_an_objective_that_is_lost_on_the_way_is_not_convergence(located, monkeypatch):
    values = iter([3.0, 3.0, 3.0])
    monkeypatch.setattr(Descent, "value", lambda self, params: next(values, np.nan))
    with pytest.raises(ValueError, match="is not finite"):
        fit(location, Y, confidence={"mu": 0.5}, restarts=1, guide=far)


def test_same_random_state_same_answer_and_only_numbers_changed_compile_nothing(
    located, monkeypatch
):
    monkeypatch.setattr(Program, "_moments", None)  # a new program could not even start
    again = fit(location, Y, confidence={"mu": 0.5}, restarts=1)
    assert again.value == located.value
    other = fit(location, Y + 1.0, confidence={"mu": 0.25}, restarts=1, start=located.params)
    assert other.value != located.value


def test_scores_replace_the_likelihood():
    """A beta score shrugs off the outlier that drags the likelihood's mean."""
    y = np.append(np.linspace(-1, 1, 20), 30.0)
    loss = {"y": partial(beta_loss, beta=0.5)}
    robust = fit(location, y, loss=loss, guide="conditional", restarts=1)
    assert abs(robust.mean("mu")) < 0.2

    def expected(p):  # J of N(m, s^2), its expectation by quadrature
        x, w = np.polynomial.hermite_e.hermegauss(60)
        at = p[0] + np.exp(p[1]) * x
        f = stats.norm(at[:, None], 1).pdf(y)
        power = (2 * np.pi) ** -0.25 / np.sqrt(1.5)
        loss = np.sum((1 - f**0.5) / 0.5 + power / 1.5 - 1, axis=1)
        kl = 0.5 * (np.exp(2 * p[1]) / 9 + p[0] ** 2 / 9 - 1 - 2 * p[1] + 2 * np.log(3))
        return w @ loss / w.sum() + kl

    least = optimize.minimize(expected, [0.0, -1.0], tol=1e-10)
    assert abs(robust.value - least.fun) < 3 * robust.value_se + 1e-4


def test_a_loss_function_needs_no_likelihood():
    y = np.array([-0.5, 0.0, 0.5, 40.0])
    loss = lambda values, y: huber_loss(values["mu"], y)  # noqa: E731
    posterior = fit(prior_only, y, loss=loss, confidence={"mu": 1e-6}, restarts=1)
    # the Huber estimate: the outlier pulls with force 1
    estimate = optimize.brentq(lambda m: np.clip(y - m, -1, 1).sum(), -1, 1)
    assert posterior.mean("mu") == pytest.approx(estimate, abs=0.01)


def test_another_divergence_for_a_block():
    posterior = fit(location, Y, divergence={"mu": Renyi(0.5)}, restarts=1)

    def objective(p):
        variance = np.exp(2 * p[1])
        loss = np.sum(0.5 * np.log(2 * np.pi) + ((Y - p[0]) ** 2 + variance) / 2)
        mixed = 0.5 * 9 + 0.5 * variance
        renyi = np.log(3) - p[1] - np.log(9 / mixed) + p[0] ** 2 / (4 * mixed)
        return loss + renyi

    least = optimize.minimize(objective, [0.0, 0.0], tol=1e-10)
    assert abs(posterior.value - least.fun) < 3 * posterior.value_se + 1e-3
    np.testing.assert_allclose(posterior.mean("mu"), least.x[0], atol=0.05)


@pytest.mark.slow
def test_custom_guides_and_parameters_of_the_model():
    """An AutoGuide over one block of all sites is ordinary variational Bayes, exact here."""

    def learned(y):
        scale = numpyro.param("scale", 1.0, constraint=dist.constraints.positive)
        a = numpyro.sample("a", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(a, 0.5).expand([3]).to_event(1), obs=y)

    posterior = fit(schools, Y, groups={"all": ["a", "b"]}, guide=AutoMultivariateNormal(schools))
    assert posterior.names == ("all",)
    assert abs(posterior.value - exact_value(1.0, 1.0)) < 3 * posterior.value_se + 1e-2
    empirical = fit(learned, Y)

    def evidence(scale):
        return -stats.multivariate_normal(np.zeros(3), 0.25 * np.eye(3) + scale**2).logpdf(Y)

    least = optimize.minimize_scalar(evidence, (0.1, 3.0))
    assert abs(empirical.value - least.fun) < 3 * empirical.value_se + 1e-3


@pytest.mark.slow
def test_latent_rows_of_a_subsampled_plate():
    y = np.linspace(-1.0, 2.0, 12)

    def model(y, size):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", 12, subsample_size=size):
            effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
            rows = numpyro.subsample(y, event_dim=0)
            numpyro.sample("y", dist.Normal(effect, 0.5), obs=rows)

    whole = fit(model, y, 12, confidence={"effect": 0.5}, guide="meanfield")
    parts = fit(model, y, 6, confidence={"effect": 0.5})
    origin, unit, loc = (whole.params[f"effect:{part}"] for part in ("origin", "unit", "loc"))
    np.testing.assert_allclose(parts.params["effect:loc"], origin + unit * loc, atol=0.1)
    assert abs(parts.value - whole.value) < 4 * parts.value_se + 0.1
    assert parts.guide == "meanfield"
    assert parts.guide_reason == "'effect' lives in a subsampled plate"
    with pytest.raises(ValueError, match="subsampled plate"):
        fit(model, y, 6, guide="blockwise")


@pytest.mark.slow
def test_blockwise_guide_holds_the_covariance_within_a_block():
    x = np.random.default_rng(0).normal(size=(30, 3)) @ np.array(
        [[1.0, 0.9, 0.0], [0.0, 0.4, 0.0], [0.0, 0.0, 1.0]]
    )
    y = x @ [1.0, -1.0, 0.5] + 0.3

    def regression(x, y):
        w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ w, 1.0).to_event(1), obs=y)

    gamma = 0.5
    posterior = fit(regression, x, y, confidence={"w": gamma}, guide="blockwise")
    precision = x.T @ x + gamma * np.eye(3)
    covariance = gamma * np.linalg.inv(precision)
    found = np.cov(posterior.sample(8192)["w"].T)
    np.testing.assert_allclose(found, covariance, atol=6 * covariance.max() / np.sqrt(8192))
    evidence = stats.multivariate_normal(np.zeros(30), gamma * np.eye(30) + x @ x.T).logpdf(y)
    normaliser = 15 * (np.log(2 * np.pi) - gamma * np.log(2 * np.pi * gamma))
    assert abs(posterior.value - (normaliser - gamma * evidence)) < 3 * posterior.value_se + 1e-4


def coin(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def observes_all(y):
    numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "data", "settings", "message"),
    [
        (location, np.array([1.0, np.nan, 2.0]), {}, "the loss is not finite"),
        (coin, 1.0, {}, "'z' is discrete.*MixtureSameFamily"),
        (observes_all, 1.0, {}, "no latent sample site"),
        (location, Y, {"confidence": {"y": 0.5}}, "'y', which is observed"),
        (location, Y, {"confidence": {"mu": -0.5}}, "'mu' is -0.5, but it must be"),
        (location, Y, {"guide": "full"}, "guide is 'full', but it must be one of.*'flow'"),
        (location, Y, {"steps": 0}, "steps is 0"),
        (location, Y, {"restarts": 0}, "restarts is 0"),
        (location, Y, {"start": {"nu": 1.0}}, "start names \\['nu'\\]"),
        (location, Y, {"loss": lambda values, y: 0.0}, "the model observes 'y'"),
        (location, Y, {"loss": {"x": beta_loss}}, "loss names \\['x'\\].*\\['y'\\]"),
    ],
)
def test_errors_say_what_to_do(model, data, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(model, data, **{"restarts": 1, **settings})


def test_arrays_may_shape_the_model():
    """Data that the model's Python code reads cannot be traced; the fit still works."""

    def by_group(group, y):
        count = int(np.max(np.asarray(group))) + 1
        b = numpyro.sample("b", dist.Normal(0.0, 3.0).expand([count]).to_event(1))
        numpyro.sample("y", dist.Normal(b[group], 1.0).to_event(1), obs=y)

    posterior = fit(by_group, np.array([0, 1, 1]), jnp.array([3.0, 1.0, 2.0]), restarts=1)
    np.testing.assert_allclose(posterior.params["b:origin"], [2.7, 3 / (2 + 1 / 9)], atol=0.02)
