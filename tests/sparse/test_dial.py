"""The solver for the points between dense and sparse, against the objective itself.

Covers majorise, row_evidence, least_squares_evidence, dial, row_dial and least_squares_dial.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.dial import DialPoint, Prior, minimise
from soubayes.sparse.least_squares.designs import Gram, Wide
from soubayes.sparse.least_squares.dial import RIDGE, LeastSquaresDial, least_squares_evidence
from soubayes.sparse.least_squares.state import LeastSquaresModel, NoisePrior
from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.rows.dial import fit_rows_at, row_evidence
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory
from soubayes.sparse.rows.state import RowModel
from soubayes.sparse.scales.balance import Groups
from soubayes.sparse.scales.base import Scale
from soubayes.sparse.scales.priors import make_prior


def columns(p, coef, local, prior, kind=LeastSquaresModel, **more):
    return kind(
        confidence=np.full(p, coef),
        variance=np.full(p, np.nan),
        local_confidence=np.full(p, local),
        global_confidence=1.0,
        local_prior=make_prior(prior, 10.0),
        global_prior=make_prior("horseshoe", 1.0),
        sources=(("coef", np.arange(p)),),
        groups=Groups.single(p),
        **more,
    )


def linear(p, coef, local, prior):
    noise = NoisePrior(1e-3, 1e-6)
    return columns(p, coef, local, prior, noise=noise, intercept_variance=10.0)


def data(n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = 2.0 * X[:, 0] - X[:, 1] + 0.3 * X[:, 2:6].sum(axis=1) + rng.normal(size=n)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, (y - y.mean()) / y.std()


def both_designs(X, y):
    n = len(y)
    wide = Wide(StandardColumns(X, None, None, np.ones(n)), y, n)
    return Gram(X.T @ X, X.T @ y, float(y @ y), n), wide


def direct_value(X, y, model, noise, log_P, log_rho):
    """J recomputed from its definition with dense matrices, up to the solver's constants."""
    gamma, P, rho = float(model.confidence[0]), np.exp(log_P), np.exp(log_rho)
    n = len(y) - 1 + 2.0 * model.noise.shape
    K = np.eye(len(y)) + (X * P) @ X.T
    quadratic = y @ np.linalg.solve(K, y) + 2.0 * model.noise.scale
    v = quadratic / n if noise is None else noise
    value = 0.5 * (n * np.log(v) + quadratic / v + gamma * np.linalg.slogdet(K)[1])
    scales = model.scales
    ratio = gamma * P / rho
    a = scales.local_prior.best_shape(ratio, scales.weight / 2.0, scales.local_confidence)
    top = scales.global_prior.best_shape(np.asarray(rho), scales.weight.sum() / 2.0, 1.0)
    local, nu = Scale(a, ratio), Scale(top, np.asarray(rho))
    return value + scales.value(local, nu) - 0.5 * scales.weight @ np.log(gamma * P)


@pytest.mark.parametrize("prior", ["exponential", "horseshoe"])
@pytest.mark.parametrize(("coef", "local", "held"), [(1.0, 1.0, None), (2.0, 0.2, 0.3)])
@pytest.mark.parametrize("form", [0, 1])
def test_the_end_is_a_minimum_of_the_objective(prior, coef, local, held, form):
    X, y = data(30, 8) if form == 0 else data(12, 20)
    model = linear(X.shape[1], coef, local, prior)
    evidence = least_squares_evidence(both_designs(X, y)[form], model, held)
    found = minimise(evidence, Prior(model.scales, model.groups, coef), tol=1e-9, max_iter=3000)
    assert found.converged
    assert np.all(np.diff(found.history) <= 1e-9 * np.abs(found.history[:-1]))
    start = np.append(np.log(found.variance), np.log(found.top.ratio))

    def value(t):
        return direct_value(X, y, model, held, t[:-1], t[-1])

    assert value(start) == pytest.approx(found.value, rel=1e-9)
    better = minimize(value, start, method="L-BFGS-B")
    assert better.fun > found.value - 1e-3


def test_gram_and_wide_designs_agree():
    X, y = data(25, 25)
    model = linear(25, 2.0, 0.2, "exponential")
    prior = Prior(model.scales, model.groups, 2.0)
    ends = [
        minimise(least_squares_evidence(design, model, 0.2), prior, tol=1e-10, max_iter=2000)
        for design in both_designs(X, y)
    ]
    np.testing.assert_allclose(ends[0].value, ends[1].value, rtol=1e-9)
    np.testing.assert_allclose(ends[0].evidence.mean, ends[1].evidence.mean, atol=1e-5)


@pytest.mark.parametrize("form", [0, 1])
def test_derivatives_in_the_common_scale(form):
    X, y = data(20, 15)
    model = linear(15, 2.0, 0.5, "exponential")
    P = np.exp(np.random.default_rng(1).normal(size=15)) / 15
    for noise in (None, 0.4):
        at = least_squares_evidence(both_designs(X, y)[form], model, noise)
        h = 1e-4
        low, here, high = (at(P * np.exp(t), None) for t in (-h, 0.0, h))
        slope, curvature = here.slope, here.curvature()
        assert slope == pytest.approx((high.value - low.value) / (2 * h), rel=1e-5)
        second = (high.value - 2.0 * here.value + low.value) / h**2
        assert curvature == pytest.approx(second, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize(("n", "p"), [(80, 6), (25, 40)])
@pytest.mark.parametrize("coef", [0.1, 1.0, 3.0])
def test_rows_reach_a_stationary_point(n, p, coef):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, p))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = (X[:, 0] + rng.logistic(size=n) > 0).astype(float)
    problem = RowProblem(Bernoulli(), RowsInMemory(X, intercept=True), y, np.ones(n))
    model = linear(p, coef, 0.1 * coef, "exponential")
    sparse = np.append(np.ones(p, bool), False)
    at = row_evidence(problem, coef, sparse, np.array([0.1]))
    found = minimise(at, Prior(model.scales, model.groups, coef), tol=1e-8, max_iter=2000)
    assert found.converged
    assert np.all(np.diff(found.history) <= 1e-9 * np.abs(found.history[:-1]))
    q = found.evidence.state.posterior()
    Z = np.hstack([X, np.ones((n, 1))])
    terms = Bernoulli().terms(Z @ q.mean, q.spread(Z), y)
    w = np.append(1.0 / found.variance, 0.1 * coef)
    np.testing.assert_allclose(Z.T @ terms.score, w * q.mean, atol=2e-3)  # of the mean
    A = Z.T @ (terms.information[:, None] * Z) + np.diag(w)
    np.testing.assert_allclose(q.full(), coef * np.linalg.inv(A), rtol=2e-2, atol=1e-4)


def test_limits_of_the_dial():
    X, y = data(40, 6)
    design = both_designs(X, y)[0]
    dial = LeastSquaresDial(design, linear(6, 1.0, 1.0, "exponential"))
    ridge = dial.fit(RIDGE)
    assert np.ptp(np.log(ridge.w)) < 0.1  # one prior variance for all: ridge regression
    np.testing.assert_allclose(
        ridge.coef, np.linalg.solve(X.T @ X + np.diag(ridge.w), X.T @ y), atol=1e-10
    )
    sparse = dial.fit(DialPoint("a point", "exponential", 1e-6, 1.0))
    s = 1.0 / sparse.variance - sparse.w
    z = (sparse.coef / sparse.variance) ** 2 / s / dial.noise
    assert np.all(z[np.abs(sparse.coef) > 0.05] > 1.0)  # the threshold of the small confidence


def test_the_effective_number_of_columns_of_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    y = (X[:, 0] + rng.logistic(size=100) > 0).astype(float)
    problem = RowProblem(Bernoulli(), RowsInMemory(X, intercept=True), y, np.ones(100))
    variance = np.append(np.full(4, np.nan), 10.0)
    model = columns(5, 1.0, 1.0, "exponential", RowModel)
    model = type(model)(**{**vars(model), "variance": variance, "groups": Groups.single(4)})
    fit = fit_rows_at(problem, model, DialPoint("a point", "exponential", 1.0, 1.0))
    assert 0.5 < fit.effective < 4.0
    assert fit.converged


@pytest.mark.parametrize(("n", "p"), [(60, 5), (30, 60)])
def test_a_sure_point_is_penalised_logistic_regression(n, p):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, p))
    y = (X[:, 0] + rng.logistic(size=n) > 0).astype(float)
    problem = RowProblem(Bernoulli(), RowsInMemory(X, intercept=True), y, np.ones(n))
    variance = np.append(np.full(p, np.nan), 10.0)
    model = columns(p + 1, 1.0, 1.0, "exponential", RowModel)
    model = type(model)(**{**vars(model), "variance": variance, "groups": Groups.single(p)})
    for held in (0.01, 1.0):
        fit = fit_rows_at(problem, model, DialPoint.sure(held))
        # the intercept's own penalty, 1/10, as that of a column of another size
        size = np.append(np.ones(p), np.sqrt(10.0 / held))
        Z = np.hstack([X, np.ones((n, 1))])
        peer = LogisticRegression(C=held, tol=1e-8, max_iter=5000, fit_intercept=False)
        peer.fit(Z * size, y)
        assert fit.converged
        np.testing.assert_allclose(fit.posterior.mean, peer.coef_[0] * size, atol=1e-4)
        p_hat = peer.predict_proba(Z * size)[:, 1]
        A = Z.T @ (Z * (p_hat * (1.0 - p_hat))[:, None])
        A += np.diag(np.append(np.full(p, 1.0 / held), 0.1))
        np.testing.assert_allclose(fit.posterior.full(), np.linalg.inv(A), rtol=2e-3, atol=1e-5)
        assert fit.inflation < 1e-5  # predictions hardly average over it
