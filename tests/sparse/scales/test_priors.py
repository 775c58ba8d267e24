"""Every formula of the scale priors against an independent computation.

Covers base, exponential, half_cauchy, balance, functions and roots.
"""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from soubayes.sparse.scales import base as functions
from soubayes.sparse.scales.balance import ScaleModel, stationary_precision
from soubayes.sparse.scales.base import Scale
from soubayes.sparse.scales.priors import Exponential, HalfCauchy, make_prior

PRIORS = [Exponential(10.0), Exponential(0.3), HalfCauchy()]
SHAPES = [1.0001, 1.5, 7.0, 29.9, 30.1, 400.0, 1e6, 5e8]


def high_precision(a):
    """log Gamma, psi, psi' and psi'' to 50 digits: recurrence up to a + 300, then Stirling."""
    a = Decimal(a)
    x = a + 300
    bernoulli = [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)]
    terms = [(2 * i + 2, Decimal(n) / d) for i, (n, d) in enumerate(bernoulli)]
    two_pi = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    log_gamma = (x - Decimal("0.5")) * x.ln() - x + two_pi.ln() / 2
    log_gamma += sum(b / (k * (k - 1) * x ** (k - 1)) for k, b in terms)
    digamma = x.ln() - 1 / (2 * x) - sum(b / (k * x**k) for k, b in terms)
    trigamma = 1 / x + 1 / (2 * x**2) + sum(b / x ** (k + 1) for k, b in terms)
    tetragamma = -1 / x**2 - 1 / x**3 - sum((k + 1) * b / x ** (k + 2) for k, b in terms)
    for i in range(300):
        log_gamma -= (a + i).ln()
        digamma -= 1 / (a + i)
        trigamma += 1 / (a + i) ** 2
        tetragamma -= 2 / (a + i) ** 3
    return log_gamma, digamma, trigamma, tetragamma


@pytest.mark.parametrize("a", SHAPES)
def test_special_functions_against_high_precision(a):
    with localcontext() as context:
        context.prec = 60
        x = Decimal(a)
        log_gamma, digamma, trigamma, tetragamma = high_precision(a)
        expected = [
            x.ln() - digamma,
            1 / x - trigamma,
            -1 / x**2 - tetragamma,
            (x + 1) * digamma - x.ln() - log_gamma - x,
        ]
    computed = [
        functions.log_minus_psi(a),
        functions.delta1(np.array(a)),
        functions.delta2(np.array(a)),
        functions.negative_entropy(np.array(a)),
    ]
    np.testing.assert_allclose(computed, [float(v) for v in expected], rtol=2e-12)


def kl_by_quadrature(prior, q):
    """The same KL by integration; for the half-Cauchy over the pair (x, auxiliary)."""
    density = stats.invgamma(float(q.shape), scale=float(q.shape * q.ratio))

    def over_x(function):
        return integrate.quad(lambda u: function(density.ppf(u)), 0.0, 1.0, epsabs=1e-9, limit=400)[
            0
        ]

    if isinstance(prior, Exponential):
        return over_x(lambda x: density.logpdf(x) - stats.expon(scale=1 / prior.rate).logpdf(x))
    auxiliary = stats.invgamma(1.0, scale=1.0 + float(q.mean_inverse))
    # E log p(x | w) p(w) - log q(w), in the moments of two independent inverse gammas
    mean_log_w = np.log(1.0 + float(q.mean_inverse)) - special.psi(1.0)
    mean_inverse_w = 1.0 / (1.0 + float(q.mean_inverse))
    entropy_w = float(auxiliary.entropy())
    log_x, inverse_x = over_x(np.log), over_x(lambda x: 1.0 / x)
    joint = -np.log(np.pi) - 1.5 * log_x - 2.0 * mean_log_w - (1.0 + inverse_x) * mean_inverse_w
    return -float(density.entropy()) - joint - entropy_w


@pytest.mark.parametrize("prior", PRIORS, ids=str)
@pytest.mark.parametrize(("a", "rho"), [(1.6, 0.2), (4.0, 3.0), (60.0, 0.01)])
def test_kl_against_quadrature(prior, a, rho):
    q = Scale(np.array(a), np.array(rho))
    assert prior.kl(q) == pytest.approx(kl_by_quadrature(prior, q), rel=2e-5, abs=1e-6)


def test_half_cauchy_kl_bounds_the_exact_one():
    q = Scale(np.array(3.0), np.array(0.7))
    density = stats.invgamma(3.0, scale=2.1)
    exact = density.expect(
        lambda x: density.logpdf(x) + np.log(np.pi) + 0.5 * np.log(x) + np.log1p(x)
    )
    assert 0 < exact < HalfCauchy().kl(q)


def random_problem(rng):
    gamma = 10 ** rng.uniform(-6, 1)
    coef = rng.choice([1.0, 3.0])
    count = rng.choice([1, 1, 30])
    return coef * count / 2, coef / 2 * count * 10 ** rng.uniform(-6, 3), gamma


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_fit_scale_is_the_joint_minimum(prior):
    floor = 1.0 if isinstance(prior, Exponential) else 0.0
    rng = np.random.default_rng(0)
    for _ in range(40):
        A, E, gamma = random_problem(rng)
        q = prior.fit(A, E, gamma)

        def value(x, A=A, E=E, gamma=gamma):
            moved = Scale(floor + np.exp(x[0]), np.exp(x[1]))
            return float(prior.objective(moved, A, E, gamma))

        at = np.array([np.log(q.shape - floor), np.log(q.ratio)])
        best = value(at)
        found = optimize.minimize(value, at, method="Nelder-Mead", options={"xatol": 1e-9})
        elsewhere = optimize.minimize(value, at + rng.normal(size=2), method="Nelder-Mead")
        assert best <= min(found.fun, elsewhere.fun) + 1e-9 * (1 + abs(best))
        for i in range(2):  # both partial derivatives vanish
            step = np.eye(2)[i] * 1e-4
            slope = (value(at + step) - value(at - step)) / 2e-4
            assert abs(slope) < 1e-5 * (A + gamma + abs(best))


def test_fit_scale_takes_arrays_and_the_smallest_confidences():
    E = 10 ** np.linspace(-12, 2, 8)
    for prior in PRIORS:
        q = prior.fit(0.5, E, 1e-9)
        np.testing.assert_allclose(q.ratio, 2 * E, rtol=1e-4)  # u E[beta^2] -> 1 (note 1)
        np.testing.assert_allclose(q.shape, 5e8, rtol=1e-3)
        one = prior.fit(0.5, E[3], 1e-9)
        np.testing.assert_allclose([one.shape, one.ratio], [q.shape[3], q.ratio[3]], rtol=1e-12)


@pytest.mark.parametrize("prior", PRIORS, ids=str)
def test_algorithm_1_never_raises_j(prior):
    rng = np.random.default_rng(1)
    for _ in range(40):
        A, E, gamma = random_problem(rng)
        q = Scale(np.array(1.0 + 10 ** rng.uniform(-2, 4)), np.array(10 ** rng.uniform(-4, 2)))
        before = prior.objective(q, A, E, gamma)
        for _ in range(4):
            q = prior.coordinate_step(q, A, E, gamma)
            after = prior.objective(q, A, E, gamma)
            assert after <= before + 1e-10 * (1 + abs(before))
            before = after


def test_algorithm_1_solves_the_printed_equations():
    """Supplement C.4: b_tau's closed form and
    0 = -gb/2 [e/b - psi'(a)] - gt [psi'(a)(a+1) - 1 - rate b/(a-1)^2]."""
    old, e, gamma, rate = 2.0, 0.7, 0.02, 10.0
    q = Exponential(rate).coordinate_step(Scale(np.array(old), np.array(0.4)), 0.5, e / 2, gamma)
    a, b = float(q.shape), float(q.shape * q.ratio)
    half = gamma - 0.5
    root = np.sqrt(half**2 + 2 * rate * gamma * old / (old - 1) * e)
    assert b == pytest.approx((old - 1) * (half + root) / (2 * rate * gamma))
    tri = special.polygamma(1, a)
    printed = -0.5 * (e / b - tri) - gamma * (tri * (a + 1) - 1 - rate * b / (a - 1) ** 2)
    assert abs(printed) < 1e-12


def test_algorithm_1_converges_to_the_joint_minimum():
    q = Scale(np.array(2.0), np.array(0.4))
    for _ in range(400):
        q = Exponential(10.0).coordinate_step(q, 0.5, 0.2, 0.1)
    best = Exponential(10.0).fit(0.5, 0.2, 0.1)
    np.testing.assert_allclose([q.shape, q.ratio], [best.shape, best.ratio], rtol=1e-6)


def test_shape_grows_by_one_half_a_step_when_confidence_is_small():
    """Note 4: why Algorithm 1 needs so many sweeps."""
    q = Scale(np.array(20.0), np.array(1.0))
    grown = Exponential(10.0).coordinate_step(q, 0.5, 0.3, 1e-9)
    assert grown.shape - q.shape == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("prior", [Exponential(10.0), HalfCauchy()], ids=str)
def test_stationary_precision_minimises_the_profiled_objective(prior):
    """Note 2: the root of the cubic against direct minimisation over w, on random cases."""
    rng = np.random.default_rng(2)
    for _ in range(300):
        s, Q = 10 ** rng.uniform(-2, 3), 10 ** rng.uniform(-3, 4)
        g, limit = 10 ** rng.uniform(-9, np.log10(0.2)), 10 ** rng.uniform(-2, 2)
        w = float(stationary_precision(prior, s, Q, g, limit, 1e15))

        def profiled(t, s=s, Q=Q, g=g, limit=limit):
            # J / (gamma_b / 2) in w = exp(t); ratio rho = limit / w, shape large
            w, rho = np.exp(t), limit / np.exp(t)
            beta = np.log1p(s / w) - Q / (s + w)
            if isinstance(prior, Exponential):
                return beta + 2 * g * (-np.log(rho) + prior.rate * rho)
            return beta + 2 * g * (0.5 * np.log(rho) + np.log1p(1 / rho))

        t = np.log(w)
        grid = np.linspace(t - 25, t + 25, 4001)
        best = profiled(grid).min()
        scale = 1e-9 * (1 + abs(best))
        if profiled(t) > best + scale:  # another basin: the root must still be stationary
            assert isinstance(prior, HalfCauchy)
        assert (profiled(t + 1e-4) - profiled(t - 1e-4)) / 2e-4 == pytest.approx(
            0, abs=1e-6 * (1 + Q / s)
        )
        if isinstance(prior, Exponential):
            L = prior.rate * limit
            cubic = [
                2 * g,
                Q - s + 4 * g * s - 2 * g * L,
                -((1 - 2 * g) * s**2 + 4 * g * L * s),
                -2 * g * L * s**2,
            ]
            roots = np.roots(cubic)
            real = roots[(abs(roots.imag) < 1e-9 * abs(roots)) & (roots.real > 0)].real
            assert np.min(abs(np.log(real / w))) < 1e-6


def test_limits_of_the_stationary_precision():
    s, Q = np.array([1.0, 1.0, 50.0]), np.array([4.0, 0.25, 1000.0])
    w = stationary_precision(Exponential(10.0), s, Q, 1e-12, 1.0, 1e15)
    np.testing.assert_allclose(w, [1 / 3, 0.75 / 2e-12, 2500 / 950], rtol=1e-6)


def test_unknown_prior_is_refused():
    with pytest.raises(ValueError, match="'exponential', 'horseshoe' or a ScalePrior"):
        make_prior("laplace", 1.0)
    with pytest.raises(TypeError, match="'exponential', 'horseshoe' or a ScalePrior"):
        make_prior(3.0, 1.0)


@pytest.mark.parametrize("local", PRIORS, ids=str)
@pytest.mark.parametrize("top", PRIORS, ids=str)
@pytest.mark.parametrize("confidence", [1e-9, 1e-3, 0.7])
def test_a_precision_is_split_at_its_best(local, top, confidence):
    """Against direct minimisation of the two KL terms over rho, shapes at their best."""
    rng = np.random.default_rng(3)
    d, gb = 10 ** rng.uniform(-2, 3, size=7), 1.7
    tau, nu = ScaleModel(local, top, np.full(7, gb), np.full(7, confidence), 1.3).split(d)
    np.testing.assert_allclose(tau.ratio * nu.ratio * d, 1.0, rtol=1e-12)

    def value(t):
        rho = np.exp(t)
        r = 1.0 / (d * rho)
        tau = Scale(local.best_shape(r, gb / 2, confidence), r)
        nu = Scale(top.best_shape(rho, 7 * gb / 2, 1.3), rho)
        weight = gb / 2 * (tau.mean_log.sum() + 7 * nu.mean_log)
        return weight + confidence * local.kl(tau).sum() + 1.3 * top.kl(nu)

    best = optimize.minimize_scalar(value, bracket=(-3.0, 0.0), tol=1e-12)
    assert value(np.log(nu.ratio)) <= best.fun + 1e-9 * (1 + abs(best.fun))


@pytest.mark.parametrize("prior", PRIORS)
def test_slope_of_kl_in_the_log_ratio(prior):
    q, h = Scale(np.array([1.5, 40.0]), np.array([0.3, 2.0])), 1e-4
    up, here, down = (prior.kl(Scale(q.shape, q.ratio * np.exp(t))) for t in (h, 0.0, -h))
    one, two = prior.kl_slope(q)
    np.testing.assert_allclose(one, (up - down) / (2 * h), atol=1e-6)
    np.testing.assert_allclose(two, (up - 2 * here + down) / h**2, atol=1e-5)


@pytest.mark.parametrize("prior", PRIORS)
def test_balanced_global_ratio_is_the_minimum_for_held_shapes(prior):
    d, gt = np.array([3.0, 50.0, 400.0]), np.array([0.1, 1.0, 0.5])
    tau, nu = Scale(np.array([2.0, 5.0, 9.0]), np.ones(3)), Scale(np.array(4.0), np.array(0.2))
    tau, nu = ScaleModel(prior, prior, np.ones(3), gt, 1.3).balance(d, (tau, nu))

    def cost(factor):
        local = Scale(tau.shape, tau.ratio / factor)
        top = Scale(nu.shape, nu.ratio * factor)
        return gt @ prior.kl(local) + 1.3 * prior.kl(top)

    assert cost(1.0) <= min(cost(0.99), cost(1.01))
    assert abs(cost(1.001) - cost(0.999)) < 1e-6
