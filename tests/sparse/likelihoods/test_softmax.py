"""The softmax loss averaged over normal predictors, and the rows and the dial made of it.

Covers softmax and coordinates; classes is covered by test_multinomial.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from soubayes import SoULogisticRegression
from soubayes.sparse.dial import DialPoint
from soubayes.sparse.estimators.parameters import intercept_prior
from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.likelihoods.softmax import Softmax, class_basis, normal_nodes, spread_root
from soubayes.sparse.rows.dial import row_evidence
from soubayes.sparse.rows.family import RowFamily


def normal(c, n=3, seed=0):
    """Means, covariances and their roots of n rows in c - 1 coordinates, and classes."""
    rng = np.random.default_rng(seed)
    root = np.tril(rng.normal(size=(n, c - 1, c - 1))) * 0.5
    mean, V = rng.normal(size=(n, c - 1)), root @ root.transpose(0, 2, 1)
    return mean, V, spread_root(V), rng.integers(c, size=n)


@pytest.mark.parametrize("d", [3, 8, 33, 100])
@pytest.mark.parametrize("coarse", [False, True])
def test_nodes_have_the_moments_of_a_standard_normal(d, coarse):
    points, weights = normal_nodes(d, coarse)
    np.testing.assert_allclose(weights @ points, 0.0, atol=1e-12)
    np.testing.assert_allclose((points.T * weights) @ points, np.eye(d), atol=0.005)


@pytest.mark.parametrize("c", [2, 3, 5, 9])
def test_the_basis_is_orthonormal_and_sums_to_0(c):
    A = class_basis(c)
    np.testing.assert_allclose(A.T @ A, np.eye(c - 1), atol=1e-14)
    np.testing.assert_allclose(A.sum(axis=0), 0.0, atol=1e-14)


@pytest.mark.parametrize("c", [3, 4, 6])
def test_terms_are_averages_over_draws(c):
    mean, V, root, y = normal(c)
    rng, draws = np.random.default_rng(1), 200_000
    terms, shares = Softmax(c).terms(mean, V, y), Softmax(c).log_mean_shares(mean, root)
    np.testing.assert_allclose(Softmax(c).predict(mean, V), np.exp(shares))
    exact = 1.0 if c <= 4 else 4.0  # 128 quasi-random nodes have an error of their own
    for i in range(3):
        u = mean[i] + rng.normal(size=(draws, c - 1)) @ root[i].T
        eta = u @ class_basis(c).T
        log_share = eta - np.logaddexp.reduce(eta, axis=1)[:, None]
        loss, share = -log_share[:, y[i]], np.exp(log_share)
        error = exact * 4.0 * loss.std() / np.sqrt(draws) + 0.002
        assert terms.loss[i] == pytest.approx(loss.mean(), abs=error)
        np.testing.assert_allclose(np.exp(shares[i]), share.mean(axis=0), atol=0.004 * exact)
        inside = share @ class_basis(c)
        curve = class_basis(c).T @ (share.mean(axis=0)[:, None] * class_basis(c))
        np.testing.assert_allclose(
            terms.information[i], curve - inside.T @ inside / draws, atol=0.006 * exact
        )


@pytest.mark.parametrize("c", [3, 4, 6])
def test_derivatives_of_the_mean_are_finite_differences(c):
    mean, V, _, y = normal(c)
    one, h = Softmax(c), 1e-5
    terms = one.terms(mean, V, y)
    for a in range(c - 1):
        step = h * np.eye(c - 1)[a]
        up, down = one.terms(mean + step, V, y), one.terms(mean - step, V, y)
        np.testing.assert_allclose(-terms.score[:, a], (up.loss - down.loss) / (2 * h), atol=1e-8)
        slope = (down.score - up.score) / (2 * h)
        np.testing.assert_allclose(terms.curvature[:, a], slope, atol=1e-7)


@pytest.mark.parametrize("c", [2, 3, 4])
def test_the_information_is_twice_the_slope_in_the_covariance(c):
    mean, V, _, y = normal(c)
    V, one, h = V + 0.1 * np.eye(c - 1), Softmax(c), 1e-5
    terms = one.terms(mean, V, y)
    np.testing.assert_allclose(terms.information, terms.curvature, atol=0.03)  # error of the rule
    for a in range(c - 1):
        for b in range(a + 1):
            step = np.zeros((c - 1, c - 1))
            step[a, b] = step[b, a] = h
            up, down = (one.terms(mean, V + s * step, y).loss for s in (1.0, -1.0))
            twice = 1.0 if a == b else 2.0
            np.testing.assert_allclose(
                twice * terms.information[:, a, b], (up - down) / h, atol=1e-6
            )


def test_two_classes_are_the_logistic_loss_of_their_contrast():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=20), rng.uniform(0.0, 2.0, size=20)
    y = rng.integers(2, size=20)
    ours = Softmax(2).terms(mean[:, None], variance[:, None], y)
    peer = Bernoulli().terms(np.sqrt(2.0) * mean, 2.0 * variance, 1.0 - y)  # the first class is 1
    np.testing.assert_allclose(ours.loss, peer.loss, atol=1e-6)
    np.testing.assert_allclose(ours.score[:, 0], np.sqrt(2.0) * peer.score, atol=1e-6)
    np.testing.assert_allclose(ours.information[:, 0, 0], 2.0 * peer.information, atol=1e-5)


def family(p, c, **settings):
    model = SoULogisticRegression(**settings)
    model.n_features_in_ = p
    return RowFamily(Softmax(c), model._row_settings(intercept_prior(model)))


def rows(n, p, c=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    W = np.zeros((p, c))
    W[:2] = rng.normal(size=(2, c))
    return X, np.argmax(X @ W + rng.gumbel(size=(n, c)), axis=1)


def test_a_pass_has_the_derivatives_of_the_expected_loss():
    X, y = rows(30, 2)
    intake = family(2, 3).design(X, [y], np.linspace(0.5, 1.5, 30))
    problem = intake.rows[0].problem()
    rng = np.random.default_rng(1)
    mean, root = rng.normal(size=6), np.triu(rng.normal(size=(6, 6))) * 0.1 + 0.2 * np.eye(6)
    at, h = problem.sweep(mean, root), 1e-5
    for i in range(6):
        step = h * np.eye(6)[i]
        up, down = problem.sweep(mean + step, root), problem.sweep(mean - step, root)
        assert -at.score[i] == pytest.approx((up.loss - down.loss) / (2 * h), abs=1e-5)
        np.testing.assert_allclose(at.curvature[i], (down.score - up.score) / (2 * h), atol=1e-5)
    np.testing.assert_allclose(at.information, at.curvature, atol=0.02)
    loss, slope = problem.plug_in(mean)
    sure = problem.sweep(mean, np.zeros((6, 6)))
    assert loss == pytest.approx(sure.loss, rel=1e-8)
    np.testing.assert_allclose(slope, -sure.score, atol=1e-6)


def test_columns_that_are_left_out_are_adjusted_for_those_inside():
    X, y = rows(40, 4)
    intake = family(4, 3).design(X, [y], np.ones(40))
    problem = intake.rows[0].problem()
    active, out = np.array([0, 1, 8, 9]), np.array([2, 3, 6, 7])
    mean, root = np.array([0.3, -0.2, 0.1, 0.0]), 0.2 * np.eye(4)
    cross, own, q = problem.one_out(active, out, mean, root)
    both = np.sort(np.concatenate([active, out]))
    inside = np.searchsorted(both, active)
    wide, deep = np.zeros(8), np.zeros((8, 8))
    wide[inside], deep[np.ix_(inside, inside)] = mean, root
    whole = problem.take(both).sweep(wide, deep)
    at = np.searchsorted(both, out)
    np.testing.assert_allclose(cross, whole.information[np.ix_(inside, at)], atol=1e-7)
    np.testing.assert_allclose(own, np.diag(whole.information)[at], atol=1e-7)
    np.testing.assert_allclose(q, whole.score[at], atol=1e-7)


@pytest.mark.parametrize(("n", "p"), [(80, 4), (30, 60)])
def test_a_sure_point_is_penalised_multinomial_regression(n, p):
    X, y = rows(n, p)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    intake = family(p, 3).design(X, [y], np.ones(n))
    for held in (0.01, 1.0):
        fit = intake.rows[0].fit_at(intake.plan.model, DialPoint.sure(held))
        # the intercepts' own penalty, as that of a column of another size
        size = np.append(np.ones(p), np.sqrt(intake.plan.model.variance[-1] / held))
        Z = np.hstack([X, np.ones((n, 1))]) * size
        peer = LogisticRegression(C=held, tol=1e-9, max_iter=5000, fit_intercept=False).fit(Z, y)
        coef = fit.posterior.mean @ class_basis(3).T
        wanted = (peer.coef_ * size).T
        np.testing.assert_allclose(coef[intake.plan.back], wanted[:p], atol=2e-3)
        assert fit.converged


@pytest.mark.parametrize(("n", "p"), [(60, 3), (20, 30)])
def test_the_evidence_ends_at_the_best_product(n, p):
    """Mean: no slope of J; covariances: the inverses of their own information."""
    X, y = rows(n, p)
    intake = family(p, 3).design(X, [y], np.ones(n))
    problem, gamma = intake.rows[0].problem(), 0.7
    sparse = intake.plan.model.sparse
    evidence = row_evidence(problem, gamma, sparse, np.full(2, 0.1))
    P, at = np.full(int(sparse.sum()), 0.3), None
    for _ in range(15):
        at = evidence(P, at)
    state = at.state
    terms = problem.likelihood.terms(state.eta, state.variance, y)
    Z = problem.design.matrix
    w = np.append(np.full(p, 1.0 / 0.3), 0.1 * gamma)
    np.testing.assert_allclose(Z.T @ terms.score, w[:, None] * state.means, atol=5e-3)
    for a, part in enumerate(state.posterior().parts):
        A = Z.T @ (terms.information[:, a, a][:, None] * Z) + np.diag(w)
        np.testing.assert_allclose(part.full(), gamma * np.linalg.inv(A), rtol=3e-2, atol=1e-3)


def test_roots_of_covariances_that_rounding_made_indefinite():
    V = np.array([[[4.0, 1.0], [1.0, 2.0]], [[1.0, 1.0 + 1e-6], [1.0 + 1e-6, 1.0]]])
    found = spread_root(V)
    np.testing.assert_allclose(found @ found.transpose(0, 2, 1), V, atol=2e-6)
