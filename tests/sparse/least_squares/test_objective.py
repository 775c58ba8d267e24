"""J of the Gaussian models: against the printed formulas, Monte Carlo and the exact engine.

Covers state, costs and the likelihood gaussian.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, psi

from soubayes import Block, SoULinearRegression, SoUNormalMeans, solve_exact
from soubayes import Model as ExactModel
from soubayes.datasets import experiment1
from soubayes.sparse.least_squares.coordinate import solve_coordinate
from soubayes.sparse.least_squares.designs import Diagonal, Gram
from soubayes.sparse.least_squares.state import (
    LeastSquaresModel,
    Noise,
    NoisePrior,
    objective_value,
)
from soubayes.sparse.scales.balance import Groups
from soubayes.sparse.scales.base import Scale
from soubayes.sparse.scales.priors import Exponential, HalfCauchy

RATE, A0, B0 = 10.0, 3.0, 2.0


def toy(n=12, p=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, X @ np.array([2.0, 0, -1, 0])[:p] + rng.normal(size=n)


def make_model(p, *, gamma=1.0, local=0.2, scaled=True, **other):
    variance = other.pop("variance", np.full(p, np.nan))
    settings = {
        "confidence": np.full(p, gamma),
        "local_confidence": np.full(p, local),
        "global_confidence": 0.7,
        "local_prior": Exponential(RATE),
        "global_prior": Exponential(RATE),
        "noise": NoisePrior(A0, B0, 1.3),
        "variance": variance,
        "sources": (("coef", np.arange(p)),),
        "groups": Groups.single(int(np.isnan(variance).sum())),
        "scaled": scaled,
    }
    return LeastSquaresModel(**{**settings, **other})


def scale_kl(a, b):
    """The printed bracket of tau and nu."""
    return (
        a * np.log(b) - gammaln(a) - (a + 1) * (np.log(b) - psi(a)) - a - np.log(RATE)
        + RATE * b / (a - 1)
    )  # fmt: skip


def noise_bracket(a, b):
    return (
        a * np.log(b) - A0 * np.log(B0) + gammaln(A0) - gammaln(a)
        + (np.log(b) - psi(a)) * (A0 - a) + (a / b) * (B0 - b)
    )  # fmt: skip


@pytest.mark.parametrize("gamma", [1.0, 2.5])
def test_linear_objective_is_the_printed_one(gamma):
    """Supplement C.4.2, term by term, with an intercept."""
    X, y = toy()
    n, p = X.shape
    Xc, yc = X - X.mean(axis=0), y - y.mean()
    model = make_model(p, gamma=gamma, intercept_variance=10.0, intercept_confidence=0.9)
    design = Gram(Xc.T @ Xc, Xc.T @ yc, float(yc @ yc), n)
    s = solve_coordinate(design, model, tol=1e-30, max_iter=7)
    a_s, v = s.noise
    b_s, (a_t, r_t), (a_n, r_n) = a_s * v, s.tau, s.nu
    b_t, b_n = a_t * r_t, a_n * r_n
    D = np.diag(a_t / b_t)
    A = Xc.T @ Xc + gamma * a_n / b_n * D
    m = np.linalg.solve(A, Xc.T @ yc)
    S = gamma * b_s / a_s * np.linalg.inv(A)
    spread = 1 / (n * a_s / (0.9 * b_s) + 1 / 10.0)
    J = n / 2 * (np.log(2 * np.pi) + np.log(b_s) - psi(a_s))
    ssr = np.sum((yc - Xc @ m) ** 2) + np.trace(Xc.T @ Xc @ S) + n * spread
    J += a_s / (2 * b_s) * ssr
    J += 0.9 / 2 * (spread / 10.0 - np.log(spread / 10.0) - 1)
    precision = a_s / b_s * a_t / b_t * a_n / b_n
    J += gamma / 2 * (
        np.sum((np.diag(S) + m**2) * precision) - np.linalg.slogdet(S)[1]
        + p * (np.log(b_s) - psi(a_s)) + np.sum(np.log(b_t) - psi(a_t))
        + p * (np.log(b_n) - psi(a_n)) - p
    )  # fmt: skip
    J += 0.2 * scale_kl(a_t, b_t).sum() + 0.7 * scale_kl(a_n, b_n) + 1.3 * noise_bracket(a_s, b_s)
    assert s.value.value == pytest.approx(J, rel=1e-12)
    np.testing.assert_allclose(s.coef, m, rtol=1e-9)


def test_normal_means_objective_is_the_printed_one():
    """Supplement C.4.1: the prior is not multiplied by sigma^2."""
    rng = np.random.default_rng(1)
    Y = rng.normal(size=(6, 3)) + 4.0 * (np.arange(6) < 2)[:, None]
    units, n = Y.shape
    model = make_model(units, gamma=1.4, scaled=False)
    design = Diagonal(np.full(units, float(n)), Y.sum(axis=1), float(np.sum(Y**2)), Y.size)
    s = solve_coordinate(design, model, tol=1e-30, max_iter=5)
    a_s, v = s.noise
    b_s, (a_t, r_t), (a_n, r_n) = a_s * v, s.tau, s.nu
    b_t, b_n = a_t * r_t, a_n * r_n
    prior = a_n * a_t / (b_n * b_t)
    spread = 1 / (a_s * n / (b_s * 1.4) + prior)
    m = spread * a_s * n / (b_s * 1.4) * Y.mean(axis=1)
    J = units * n / 2 * (np.log(2 * np.pi) + np.log(b_s) - psi(a_s))
    J += a_s / (2 * b_s) * np.sum((Y - m[:, None]) ** 2 + spread[:, None])
    J += 1.4 / 2 * np.sum(
        prior * (m**2 + spread) - np.log(spread) + np.log(b_n) - psi(a_n)
        + np.log(b_t) - psi(a_t) - 1
    )  # fmt: skip
    J += 0.2 * scale_kl(a_t, b_t).sum() + 0.7 * scale_kl(a_n, b_n) + 1.3 * noise_bracket(a_s, b_s)
    assert s.value.value == pytest.approx(J, rel=1e-12)
    np.testing.assert_allclose(s.coef, m, rtol=1e-9)


def test_objective_against_monte_carlo():
    """J from draws of q: expected loss and the KL of every block, under ordered sources."""
    X, y = toy(n=15)
    p = X.shape[1]
    variance = np.array([np.nan, np.nan, np.nan, 2.0])
    sources = (("coef", np.array([0, 2])), ("own", np.array([1])), ("plain", np.array([3])))
    gamma = np.array([2.0, 0.6, 2.0, 1.0])
    model = make_model(p, variance=variance, sources=sources, confidence=gamma)
    design = Gram(X.T @ X, X.T @ y, float(y @ y), len(y))
    s = solve_coordinate(design, model, tol=1e-30, max_iter=6)
    rng = np.random.default_rng(0)
    draws = 200_000
    S = s.noise.variance * model.covariance(lambda own: design.take(own).inverse(s.w[own]))
    np.testing.assert_allclose(np.diag(S), gamma * s.noise.variance * s.variance, rtol=1e-10)
    beta = rng.multivariate_normal(s.coef, S, size=draws)
    noise = 1 / rng.gamma(s.noise.shape, 1 / (s.noise.shape * s.noise.variance), size=draws)
    tau = [1 / rng.gamma(a, 1 / (a * r), size=draws) for a, r in zip(*s.tau, strict=True)]
    nu = 1 / rng.gamma(float(s.nu.shape), 1 / float(s.nu.shape * s.nu.ratio), size=draws)
    residual = y - beta @ X.T
    loss = 0.5 * (len(y) * np.log(2 * np.pi * noise) + np.sum(residual**2, axis=1) / noise)

    def check(samples, value):
        assert value == pytest.approx(samples.mean(), abs=5 * samples.std() / np.sqrt(draws))

    check(loss, s.value.expected_loss)
    # q of the first source, then of the later ones given the earlier: a Gaussian chain
    order, prior = [0, 2, 1, 3], {0: tau[0], 1: tau[1], 2: tau[2]}
    log_q, total = {}, {}
    for name, columns, before in (
        ("coef", [0, 2], []),
        ("own", [1], [0, 2]),
        ("plain", [3], [0, 2, 1]),
    ):
        gain = (
            S[np.ix_(columns, before)] @ np.linalg.pinv(S[np.ix_(before, before)]) if before else 0
        )
        mean = s.coef[columns] + ((beta[:, before] - s.coef[before]) @ gain.T if before else 0)
        cov = S[np.ix_(columns, columns)] - (gain @ S[np.ix_(before, columns)] if before else 0)
        log_q[name] = stats.multivariate_normal(np.zeros(len(columns)), cov).logpdf(
            beta[:, columns] - mean
        )
        sd = [np.sqrt(prior[j] * nu * noise) if j in prior else np.sqrt(2.0) for j in columns]
        log_p = sum(
            stats.norm.logpdf(beta[:, j], scale=c) for j, c in zip(columns, sd, strict=True)
        )
        total[name] = log_q[name] - log_p
        check(total[name], s.value.kl[name])
    assert order == [0, 2, 1, 3]
    local = sum(
        stats.invgamma(a, scale=a * r).logpdf(t) - stats.expon(scale=1 / RATE).logpdf(t)
        for a, r, t in zip(*s.tau, tau, strict=True)
    )
    check(local, s.value.kl["local"])
    q_noise = stats.invgamma(s.noise.shape, scale=s.noise.shape * s.noise.variance)
    check(q_noise.logpdf(noise) - stats.invgamma(A0, scale=B0).logpdf(noise), s.value.kl["noise"])
    costs = s.value.kl
    J = s.value.expected_loss + 2.0 * costs["coef"] + 0.6 * costs["own"] + costs["plain"]
    J += 0.2 * costs["local"] + 0.7 * costs["global"] + 1.3 * costs["noise"]
    assert s.value.value == pytest.approx(J, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.5, 3.0])
def test_plain_prior_with_known_noise_is_the_exact_engine(gamma):
    """One Gaussian block: J at our q is V, the value of Theorem 1."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=8), rng.normal(size=8) + 1.0
    variance = 1.5
    model = make_model(1, gamma=gamma, variance=np.array([variance]))
    design = Gram(np.array([[x @ x]]), np.array([x @ y]), float(y @ y), 8)
    known, w = Noise(1e14, 1.0), np.array([gamma / variance])
    none, nu = Scale(np.zeros(0), np.zeros(0)), Scale(np.array(2.0), np.array(1.0))
    scales = model.scales.costs(none, nu)
    ridge = design.ridge(w)
    value = objective_value(model, 8, ridge, w, scales, known, np.array([ridge.log_det]))
    exact = solve_exact(
        ExactModel(
            [Block("beta", stats.norm(0, np.sqrt(variance)))],
            loss=lambda beta: 0.5 * ((y - beta[..., None] * x) ** 2 + np.log(2 * np.pi)).sum(-1),
        ),
        {"beta": gamma},
    )
    assert value.expected_loss + gamma * value.kl["coef"] == pytest.approx(exact.value, abs=1e-6)


@pytest.mark.parametrize("prior", [Exponential(2.0), HalfCauchy()], ids=str)
def test_two_blocks_lie_above_the_exact_value_and_meet_it(prior):
    """tau^2, then beta | tau^2, known noise: J(q) >= V, with equality as gamma_tau -> 0."""
    y = np.array([2.0, 2.6, 1.7])
    density = stats.expon(scale=0.5)
    if isinstance(prior, HalfCauchy):

        class Squared(stats.rv_continuous):
            def _ppf(self, u):
                return np.tan(np.pi * u / 2) ** 2

            def _pdf(self, x):
                return 1 / (np.pi * np.sqrt(x) * (1 + x))

            def _cdf(self, x):
                return 2 / np.pi * np.arctan(np.sqrt(x))

        density = Squared(a=0.0, name="squared_half_cauchy")()
    gaps = []
    for local in (1.0, 0.1, 0.01):
        q, precision = None, 1.0
        for _ in range(500):
            spread = 1 / (len(y) + precision)
            mean = spread * y.sum()
            q = prior.fit(0.5, 0.5 * (mean**2 + spread), local)
            precision = float(q.mean_inverse)
        spread = 1 / (len(y) + precision)
        mean = spread * y.sum()
        loss = 0.5 * np.sum((y - mean) ** 2 + spread + np.log(2 * np.pi))
        kl_beta = 0.5 * (precision * (mean**2 + spread) - 1 - np.log(spread) + float(q.mean_log))
        J = loss + kl_beta + local * float(prior.kl(q))
        exact = solve_exact(
            ExactModel(
                [Block("tau2", density), Block("beta", lambda tau2: stats.norm(0, np.sqrt(tau2)))],
                loss=lambda tau2, beta: (
                    0.5 * ((y - beta[..., None]) ** 2 + np.log(2 * np.pi)).sum(-1)
                ),
            ),
            {"tau2": local},
            tolerance=1e-6,
        )
        gaps.append(J - exact.value)
    assert min(gaps) > -1e-6
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.05


def bayesian_lasso_value(X, y, rate, sweeps=400):
    """Mean-field optimum with generalised-inverse-Gaussian q(tau^2), nu = 1, all confidences 1."""
    n, p = X.shape
    shape = A0 + (n + p) / 2
    b, inverse_tau = shape, np.ones(p)
    for _ in range(sweeps):
        A = X.T @ X + np.diag(inverse_tau)
        V = np.linalg.inv(A)
        m, S = V @ X.T @ y, V * b / shape
        second = (np.diag(S) + m**2) * shape / b  # chi of the GIG
        inverse_tau = np.sqrt(2 * rate / second)
        rest = np.sum((y - X @ m) ** 2) + np.trace(X.T @ X @ S)
        rest += np.sum(inverse_tau * (np.diag(S) + m**2))
        b = B0 + rest / 2
    # q(tau^2) = GIG(1/2, 2 rate, chi): log normaliser of tau^(-1/2) exp(-rate tau - chi/(2 tau))
    V = np.linalg.inv(X.T @ X + np.diag(inverse_tau))
    m, S = V @ X.T @ y, V * b / shape
    chi = (np.diag(S) + m**2) * shape / b
    log_normaliser = 0.5 * np.log(np.pi / rate) - np.sqrt(2 * rate * chi)
    # min over q(tau) of 1/2 E[log tau] + chi/2 E[1/tau] + KL(q || Exp(rate))
    return gaussian_part(X, y, m, S, shape, b) + np.sum(-log_normaliser - np.log(rate))


def test_bayesian_lasso_bounds_ours_and_meets_it_for_large_signals():
    """Inverse-gamma scales cannot do better than generalised inverse Gaussian ones."""
    gaps = []
    for signal in (1.0, 30.0, 1000.0):
        rng = np.random.default_rng(3)
        X = rng.normal(size=(30, 3))
        y = X @ np.full(3, signal) + rng.normal(size=30)
        gaps.append((our_lasso_value(X, y, 0.05) - bayesian_lasso_value(X, y, 0.05)) / 3)
    assert min(gaps) > -1e-8
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.01  # the rest falls as (E[beta^2]/sigma^2)^(-1/2)


def our_lasso_value(X, y, rate):
    """The same model with inverse-gamma q(tau^2), from the methods of the prior."""
    n, p = X.shape
    shape = A0 + (n + p) / 2
    b, tau = shape, Scale(2.0 * np.ones(p), np.ones(p))
    for _ in range(400):
        V = np.linalg.inv(X.T @ X + np.diag(tau.mean_inverse))
        m, S = V @ X.T @ y, V * b / shape
        second = np.diag(S) + m**2
        tau = Exponential(rate).fit(0.5, second * shape / b / 2, 1.0)
        rest = np.sum((y - X @ m) ** 2) + np.trace(X.T @ X @ S)
        b = B0 + (rest + np.sum(tau.mean_inverse * second)) / 2
    V = np.linalg.inv(X.T @ X + np.diag(tau.mean_inverse))
    m, S = V @ X.T @ y, V * b / shape
    energy = (np.diag(S) + m**2) * shape / b
    local = Exponential(rate).objective(tau, 0.5, energy / 2, 1.0).sum()
    return gaussian_part(X, y, m, S, shape, b) + local


def gaussian_part(X, y, m, S, a, b):
    """J without the terms of tau: likelihood, entropy of beta, noise."""
    n, p = X.shape
    e_log = np.log(b) - psi(a)
    J = n / 2 * (np.log(2 * np.pi) + e_log)
    J += a / (2 * b) * (np.sum((y - X @ m) ** 2) + np.trace(X.T @ X @ S))
    return J + 0.5 * (p * e_log - np.linalg.slogdet(S)[1] - p) + noise_bracket(a, b)


def test_objective_of_the_estimators_is_in_the_users_units():
    """J is minus a log density of y: scaling y by c adds n log c, and nothing else changes."""
    data = experiment1(25, 20, 10)
    one = SoULinearRegression(choice="path", priors={"noise_scale": 0.5}).fit(data.X, data.y)
    two = SoULinearRegression(choice="path", priors={"noise_scale": 0.5 * 49}).fit(
        data.X, 7 * data.y
    )
    assert two.objective_[-1] - one.objective_[-1] == pytest.approx(25 * np.log(7), rel=1e-8)
    means = SoUNormalMeans(confidence_coef=2.0).fit(data.X)
    assert means.kl_["coef"] >= 0
    assert means.kl_["noise"] >= 0
