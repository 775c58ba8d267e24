"""The exact engine on targets with known answers, at extreme confidences, and on bad input.

Covers `solve.py`, and `stages.py` and `nodes.py`, which turn a model into the tree it is solved on.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import betaln, gammaln

from scenarios import SCENARIOS, normal_mean
from soubayes import Block, Discrete, Model, QuadratureWarning, solve_exact


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_known_answers(scenario):
    posterior = solve_exact(scenario.model, scenario.confidence)
    assert posterior.value == pytest.approx(scenario.value, rel=1e-8, abs=1e-8)
    assert posterior.expected_loss == pytest.approx(scenario.expected_loss, rel=1e-7)
    for name in scenario.model.names:
        assert posterior.kl[name] == pytest.approx(scenario.kl[name], rel=1e-7, abs=1e-9)
        assert posterior.mean(name) == pytest.approx(scenario.mean[name], rel=1e-7)
        assert posterior.sd(name) == pytest.approx(scenario.sd[name], rel=1e-7)


@pytest.mark.parametrize("gamma", [1e-9, 1e-5, 1e4, 1e6])
def test_extreme_confidences_neither_overflow_nor_lose_the_answer(gamma):
    known = normal_mean(gamma)
    posterior = solve_exact(known.model, known.confidence)
    assert posterior.value == pytest.approx(known.value, rel=1e-10)
    assert posterior.mean("mu") == pytest.approx(known.mean["mu"], rel=1e-7)
    assert posterior.sd("mu") == pytest.approx(known.sd["mu"], rel=1e-4)
    if gamma < 1:  # the formula in the scenario cancels at 1e6
        assert posterior.kl["mu"] == pytest.approx(known.kl["mu"], rel=1e-5)


def test_quadrature_agrees_with_scipy_integration_for_unequal_confidences():
    """A robust, non-additive loss; V_1 and V_0 by nested scipy quadrature."""
    data, g_mu, g_scale = [0.3, 1.1, 4.0], 0.7, 2.5

    def weight(log_scale, mu):  # exp(-L / gamma) pi, with scale = exp(log_scale)
        scale = math.exp(log_scale)
        loss = 3 * log_scale + sum(math.log1p(((y - mu) / scale) ** 2) for y in data)
        return math.exp(-loss / g_scale) * 2 / (math.pi * (1 + scale**2)) * scale

    def outer(mu):
        z = integrate.quad(weight, -30, 30, args=(mu,), points=[0.0], epsabs=1e-12)[0]
        return z ** (g_scale / g_mu) * math.exp(-(mu**2) / 8) / math.sqrt(8 * math.pi)

    z = sum(integrate.quad(outer, a, b, epsabs=1e-10)[0] for a, b in [(-14, 0), (0, 2), (2, 14)])
    y = np.array(data)
    model = Model(
        [Block("mu", stats.norm(0, 2)), Block("scale", stats.halfcauchy(0, 1))],
        lambda mu, scale: (
            3 * np.log(scale) + np.log1p(((y - mu[..., None]) / scale[..., None]) ** 2).sum(axis=-1)
        ),
    )
    posterior = solve_exact(model, {"mu": g_mu, "scale": g_scale})
    assert posterior.value == pytest.approx(-g_mu * math.log(z), abs=1e-7)


def quad_value(prior, loss, gamma, cuts):
    pieces = [
        integrate.quad(
            lambda x: prior.pdf(x) * np.exp(-loss(x) / gamma), a, b, epsabs=1e-14, epsrel=1e-12
        )[0]
        for a, b in pairwise(cuts)
    ]
    return -gamma * np.log(sum(pieces))


@pytest.mark.parametrize(
    ("prior", "loss", "gamma", "cuts"),
    [
        (stats.norm(0, 1), lambda x: 5 * np.abs(x - 0.3), 1.0, [-9, 0.3, 9]),
        (stats.norm(0.4, 1), lambda x: 50 * np.abs(x - 0.3), 1.0, [-0.6, 0.3, 1.2]),
        (stats.norm(0, 1), lambda x: np.where(x > 0.1234, x, np.inf), 1.0, [0.1234, 1, 9]),
        (stats.cauchy(0, 1), lambda x: np.log1p(x**2 / 4), 0.5, [-1e5, -30, -1, 1, 30, 1e5]),
        (stats.halfcauchy(0, 1), lambda x: 0.0 * x + 2.0, 1.0, [0, 1, 50, np.inf]),
        (stats.halfcauchy(0, 1), lambda x: 2 / x + np.log(x), 1.0, [0, 0.5, 3, 30, np.inf]),
        (stats.beta(0.5, 0.5), lambda x: 3 * x, 0.2, [0, 0.01, 0.2, 1]),
        (stats.uniform(-1, 3), lambda x: -4 * x, 1.0, [-1, 0, 1, 2]),
        (stats.gamma(0.3), lambda x: (x - 2) ** 2, 0.1, [0, 1e-3, 1, 2, 3, 6]),
        (stats.norm(0, 1), lambda x: (np.abs(x) - 2) ** 2, 0.02, [-3, -2, -1, 0, 1, 2, 3]),
        (stats.expon(), lambda x: np.cos(9 * x), 0.3, list(np.linspace(0, 40, 200))),
    ],
    ids=[
        "kink", "kink at the median", "jump to inf", "heavy tails", "flat on half-Cauchy",
        "scale", "beta ends", "uniform", "gamma spike at 0", "two far modes", "many modes",
    ],
)  # fmt: skip
def test_one_block_against_scipy(prior, loss, gamma, cuts):
    posterior = solve_exact(Model([Block("x", prior)], loss), {"x": gamma})
    assert posterior.value == pytest.approx(quad_value(prior, loss, gamma, cuts), abs=2e-7)


def test_data_far_outside_the_prior_are_found():
    model = Model([Block("x", stats.norm(0, 1))], lambda x: (x - 6000.0) ** 2 / 2)
    posterior = solve_exact(model)
    assert posterior.value == pytest.approx(6000.0**2 / 4 + np.log(2) / 2, rel=1e-12)
    assert posterior.mean("x") == pytest.approx(3000.0)


@pytest.mark.parametrize("gammas", [(1e-9, 1e-9), (1e-9, 1.0), (1.0, 1e-9), (1e6, 1e-9), (1, 1e6)])
def test_two_blocks_at_extreme_confidences(gammas):
    """tau ~ half-Cauchy, theta | tau ~ N(0, tau^2), (theta - 3)^2 / 2: V_1 in closed form."""
    g_tau, g_theta = gammas
    prior = stats.halfcauchy(0, 1)
    model = Model(
        [Block("tau", prior), Block("theta", lambda tau: stats.norm(0, tau))],
        lambda tau, theta: (theta - 3) ** 2 / 2,
    )

    def v1(tau):
        r = tau**2 / g_theta
        return g_theta / 2 * np.log1p(r) + 4.5 / (1 + r)

    posterior = solve_exact(model, {"tau": g_tau, "theta": g_theta})
    # V_0 on 2e6 points of log tau, as log1p near 1: enough for a width of 1e-5
    grid = np.linspace(-60, 60, 2_000_001)
    log_w = np.log(grid[1] - grid[0]) + grid - np.log(np.pi / 2) - np.log1p(np.exp(2 * grid))
    exponent = -v1(np.exp(grid)) / g_tau
    log_z = np.logaddexp.reduce(log_w + exponent)
    if log_z > -0.5:
        log_z = np.log1p((np.exp(log_w) * np.expm1(exponent)).sum())
    assert posterior.value == pytest.approx(-g_tau * log_z, rel=1e-6, abs=1e-8)


def test_infinite_confidence_passes_on_the_prior_mean_of_the_value():
    model = Model(
        [Block("a", stats.norm(1, 2)), Block("b", lambda a: stats.norm(a, 1))],
        lambda a, b: (b - 3) ** 2 / 2,
    )
    both = solve_exact(model, {"a": np.inf, "b": np.inf})
    assert both.value == pytest.approx((4 + 4 + 1) / 2)
    assert both.kl == {"a": 0.0, "b": 0.0}
    # only b fixed: V_1(a) = ((a - 3)^2 + 1) / 2 and a ~ N(1, 4) at confidence 1
    one = solve_exact(model, {"b": np.inf})
    assert one.value == pytest.approx(0.5 + 0.5 * np.log(5) + 4 / (2 * 5))
    # only a fixed: V_0 = E_a[V_1(a)], V_1(a) = (a - 3)^2 / 4 + log(2) / 2
    other = solve_exact(model, {"a": np.inf})
    assert other.value == pytest.approx(8 / 4 + np.log(2) / 2)
    assert other.kl["a"] == 0.0


def test_block_order_matters():
    """The same joint prior and loss, two orders, unequal confidences: two posteriors."""
    rho, g_x, g_y = 0.8, 0.1, 2.0

    def given(other):
        return stats.norm(rho * other, np.sqrt(1 - rho**2))

    def loss(x, y):
        return (x - 1) ** 2 + (y + 1) ** 2

    x_first = Model([Block("x", stats.norm()), Block("y", given)], loss)
    y_first = Model([Block("y", stats.norm()), Block("x", given)], lambda y, x: loss(x, y))
    confidence = {"x": g_x, "y": g_y}
    one, two = solve_exact(x_first, confidence), solve_exact(y_first, confidence)
    assert abs(one.value - two.value) > 0.1
    assert abs(one.mean("x") - two.mean("x")) > 0.1
    same = {"x": 1.0, "y": 1.0}  # and with equal confidences the order is immaterial
    assert solve_exact(x_first, same).value == pytest.approx(solve_exact(y_first, same).value)


def test_blocks_of_two_dimensions():
    cov = np.array([[1.0, 0.6], [0.6, 2.0]])
    model = Model(
        [Block("b", stats.multivariate_normal([0.5, -1.0], cov))],
        lambda b: ((b - np.array([1.0, 2.0])) ** 2).sum(axis=-1) / 2,
    )
    gamma = 0.4
    posterior = solve_exact(model, {"b": gamma})
    precision = np.linalg.inv(cov) + np.eye(2) / gamma
    mean = np.linalg.solve(
        precision, np.linalg.solve(cov, [0.5, -1.0]) + np.array([1.0, 2.0]) / gamma
    )
    assert posterior.mean("b") == pytest.approx(mean)
    assert posterior.sd("b") == pytest.approx(np.sqrt(np.diag(np.linalg.inv(precision))))
    assert posterior.quantile("b", [0.1, 0.9]).shape == (2, 2)
    assert posterior.sample(5, 0)["b"].shape == (5, 2)
    variance = np.diag(np.linalg.inv(precision))
    for each, centre, sd in zip(posterior.marginal("b"), mean, np.sqrt(variance), strict=True):
        normal = stats.norm(centre, sd)
        assert each.mean() == pytest.approx(centre)
        assert each.std() == pytest.approx(sd)
        assert each.cdf(normal.ppf([0.1, 0.5, 0.8])) == pytest.approx([0.1, 0.5, 0.8], abs=1e-3)
    pair = Model(
        [
            Block("m", stats.norm()),
            Block("b", lambda m: (stats.norm(m, 1), stats.expon(scale=2.0))),
        ],
        lambda m, b: (b[..., 0] - 1) ** 2 / 2 + b[..., 1],
    )
    split = solve_exact(pair)
    # m + b0: evidence N(1; 0, 3); b1: Exp tilted by e^-x
    evidence = -0.5 * np.log(2 * np.pi) - stats.norm(0, np.sqrt(3)).logpdf(1) - np.log(1 / 3)
    assert split.value == pytest.approx(evidence, abs=1e-8)
    assert split.mean("b")[1] == pytest.approx(2 / 3)


def test_discrete_and_continuous_blocks_mix():
    model = Model(
        [
            Block("k", stats.poisson(3)),
            Block("kind", Discrete(["narrow", "wide"], [0.5, 0.5])),
            Block("x", lambda k, kind: stats.norm(k, np.where(kind == "narrow", 0.5, 2.0))),
        ],
        lambda k, kind, x: (x - 4.2) ** 2 / 2 + 0.5 * np.log(2 * np.pi),
    )
    k = np.arange(60)[:, None]
    joint = stats.poisson(3).pmf(k) * 0.5 * stats.norm(k, np.sqrt(1 + np.array([0.25, 4]))).pdf(4.2)
    posterior = solve_exact(model)
    assert posterior.value == pytest.approx(-np.log(joint.sum()))
    assert posterior.marginal("kind").pmf("wide") == pytest.approx(
        (joint / joint.sum())[:, 1].sum()
    )
    assert posterior.quantile("k", 0.5) == 4
    draws = posterior.sample(50, 1)
    assert set(draws["kind"]) <= {"narrow", "wide"}
    with pytest.raises(TypeError, match="labels"):
        posterior.mean("kind")
    assert "narrow" not in repr(posterior)  # it prints, with nan for the labels' mean


def test_integers_are_followed_where_the_loss_sends_them():
    model = Model([Block("n", stats.poisson(2))], lambda n: (n - 300.0) ** 2 / 2)
    posterior = solve_exact(model, {"n": 0.01})
    n = np.arange(400)
    weight = stats.poisson(2).logpmf(n) - (n - 300.0) ** 2 / 2 / 0.01
    assert posterior.mean("n") == pytest.approx(n[weight.argmax()], abs=1e-6)


def test_a_tighter_tolerance_gives_a_closer_value():
    model = Model([Block("x", stats.norm())], lambda x: 5 * np.abs(x - 0.3))
    truth = quad_value(stats.norm(), lambda x: 5 * np.abs(x - 0.3), 1.0, [-9, 0.3, 9])
    loose, tight = (abs(solve_exact(model, tolerance=t).value - truth) for t in (1e-2, 1e-10))
    assert tight < 1e-9
    assert tight < loose < 1e-2


def test_grid_overrides_the_nodes_and_warns_when_it_misses_the_mass():
    model = Model([Block("mu", stats.norm())], lambda mu: (mu - 2) ** 2 / 2)
    fine = solve_exact(model, grid={"mu": np.linspace(-6, 8, 401)})
    assert fine.value == pytest.approx(solve_exact(model).value, abs=1e-6)
    assert len(np.unique(fine.levels()[0][1].theta)) == 401
    with pytest.warns(QuadratureWarning, match=r"'mu'.*widen or refine its grid"):
        solve_exact(model, grid={"mu": np.linspace(-6, 0, 101)})
    with pytest.warns(QuadratureWarning, match=r"known only to about"):
        solve_exact(model, grid={"mu": np.linspace(-20, 20, 12)})
    with pytest.raises(ValueError, match="NaN"):
        solve_exact(model, grid={"mu": [0.0, np.nan, 1.0]})
    with pytest.raises(ValueError, match="grid names"):
        solve_exact(model, grid={"nu": [0.0, 1.0]})


def normal_block(name="mu"):
    return Block(name, stats.norm())


@pytest.mark.filterwarnings("error")  # also where the suite runs with -W default
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            Model(
                [normal_block()], lambda mu: ((np.array([1, np.nan]) - mu[..., None]) ** 2).sum(-1)
            ),
            "loss is nan at mu = .*check the data",
        ),
        (Model([normal_block()], lambda mu: np.inf + 0 * mu), "infinite wherever the priors"),
        (Model([Block("mu", stats.norm(0, np.inf))], lambda mu: mu**2), "proper distribution"),
        (Model([Block("mu", stats.uniform(0, np.inf))], lambda mu: mu**2), "proper distribution"),
        (Model([Block("mu", stats.norm(0, -1))], lambda mu: mu**2), "proper distribution"),
        (
            Model([normal_block(), Block("x", lambda mu: stats.norm(0, mu))], lambda mu, x: x**2),
            "'x' is not a proper distribution when mu = 0",
        ),
        (Model([normal_block()], lambda mu: ((np.arange(7) - mu) ** 2).sum()), "extra last axis"),
        (Model([normal_block()], lambda mu: (mu**2).sum()), "element by element"),
        (Model([normal_block()], lambda mu: np.zeros((3, 2))), "shape .3, 2."),
        (Model([normal_block()], lambda mu, nu: mu), "loss failed"),
        (
            Model([normal_block(), Block("x", lambda: 1)], lambda mu, x: x),
            "prior of block 'x' failed",
        ),
        (Model([normal_block()], lambda mu: -(mu**4)), "end where the posterior|infinite|-inf"),
    ],
)
def test_bad_models_are_explained(model, message):
    with pytest.raises((ValueError, TypeError, QuadratureWarning), match=message):
        solve_exact(model)


def test_infinite_loss_under_a_block_kept_at_its_prior_is_an_error():
    model = Model([normal_block()], lambda mu: np.where(mu > 0, mu, np.inf))
    assert np.isfinite(solve_exact(model).value)
    with pytest.raises(ValueError, match="Confidence inf keeps"):
        solve_exact(model, {"mu": np.inf})
    heavy = Model([Block("s", stats.halfcauchy())], lambda s: s**2)  # E s^2 = inf
    with pytest.raises(ValueError, match="Confidence inf keeps"):
        solve_exact(heavy, {"s": np.inf})


@pytest.mark.parametrize("gamma", [0, -1, np.nan, "1", True])
def test_confidences_are_checked(gamma):
    model = Model([normal_block()], lambda mu: mu**2)
    with pytest.raises((ValueError, TypeError), match="confidence of 'mu'"):
        solve_exact(model, {"mu": gamma})
    with pytest.raises(ValueError, match="'nu'"):
        solve_exact(model, {"nu": 1.0})


def test_memory_stays_bounded_with_three_blocks():
    """The loss never sees more points at once than the engine's chunk."""
    seen = []

    def loss(a, b, c):
        seen.append(a.size)
        return (a + b + c - 1) ** 2

    blocks = [Block(name, stats.norm()) for name in "abc"]
    solve_exact(Model(blocks, loss), tolerance=1e-4)
    assert max(seen) <= 2**15


DATA = np.array([0.3, -1.0, 2.0, 0.5])
HALF_SQUARES = 0.5 * float(DATA @ DATA)


def _variance(a):
    """InvGamma(a, a) of a variance, four normal observations of mean 0."""
    loss = lambda v: HALF_SQUARES / v + 2.0 * np.log(v)  # noqa: E731
    after, scale = a + 2.0, a + HALF_SQUARES
    exact = gammaln(a) - a * np.log(a) - gammaln(after) + after * np.log(scale)
    return stats.invgamma(a, scale=a), loss, exact


def _rate(a):
    """Gamma(a, a) of a rate, three events in a time of 10."""
    loss = lambda rate: 10.0 * rate - 3.0 * np.log(rate)  # noqa: E731
    exact = gammaln(a) - a * np.log(a) - gammaln(a + 3.0) + (a + 3.0) * np.log(a + 10.0)
    return stats.gamma(a, scale=1.0 / a), loss, exact


def _share(a, low=0.0, width=1.0):
    """Beta(a, a) of a share between two ends, 3 of 10."""

    def loss(share):
        part = (share - low) / width
        return -3.0 * np.log(part) - 7.0 * np.log1p(-part)

    exact = betaln(a, a) - betaln(a + 3.0, a + 7.0)
    return stats.beta(a, a, low, width), loss, exact


@pytest.mark.parametrize("a", [0.5, 0.1, 0.03, 0.01, 0.003, 0.001])
@pytest.mark.parametrize(
    "case",
    [
        _variance,
        _rate,
        _share,
        lambda a: _share(a, 1.0),
        lambda a: _share(a, -3.0, 3.0),
        lambda a: _share(a, 5.0, 100.0),
    ],
)
def test_priors_whose_mass_lies_beyond_all_floats(a, case):
    """Half of gamma(0.001) is below 1e-301, of invgamma above 1e298, of beta within 1e-301 of 0."""
    prior, loss, exact = case(a)
    posterior = solve_exact(Model([Block("theta", prior)], loss))
    assert posterior.value == pytest.approx(exact, abs=1e-7)
    half = solve_exact(Model([Block("theta", prior)], loss), {"theta": 0.5})
    slope = (
        half.value - solve_exact(Model([Block("theta", prior)], loss), {"theta": 0.4999}).value
    ) / 1e-4
    assert slope == pytest.approx(half.kl["theta"], rel=1e-3)  # dV/dgamma = KL


def test_a_wide_prior_under_another_block():
    """A variance of InvGamma(0.001, 0.001) before a mean, against the scale that is regular."""
    model = Model(
        [Block("variance", stats.invgamma(0.001, scale=0.001)), Block("mean", stats.norm(0, 10))],
        lambda variance, mean: (
            ((DATA - mean[..., None]) ** 2).sum(axis=-1) / (2.0 * variance) + 2.0 * np.log(variance)
        ),
    )

    def evidence(log_variance):
        variance = np.exp(log_variance)
        # the mean integrated out: DATA ~ N(0, variance I + 100)
        n, total = len(DATA), DATA.sum()
        log = -0.5 * (2 * HALF_SQUARES - 100.0 * total**2 / (variance + n * 100.0)) / variance
        log += -0.5 * n * log_variance - 0.5 * np.log1p(n * 100.0 / variance)
        return np.exp(log + stats.invgamma(0.001, scale=0.001).logpdf(variance) + log_variance)

    exact = -np.log(integrate.quad(evidence, -20.0, 60.0, limit=500, epsabs=0.0)[0])
    assert solve_exact(model).value == pytest.approx(exact, abs=1e-6)


def test_mass_that_no_float_reaches_is_said():
    with pytest.warns(QuadratureWarning, match="end where the posterior still has mass"):
        solve_exact(Model([Block("rate", stats.gamma(0.001))], lambda rate: rate))
    with pytest.raises(ValueError, match="half of their mass beyond the largest float"):
        solve_exact(Model([Block("v", stats.invgamma(1e-4))], lambda v: v))
