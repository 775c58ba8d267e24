"""Row-wise models under the paper's bound: the printed formulas, and the two solvers.

Covers passes, state, newton, dropped, path and coordinate.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sps
from scipy.special import expit, gammaln, psi

from soubayes.sparse.likelihoods.bernoulli import Bernoulli, JaakkolaBernoulli
from soubayes.sparse.rows import dropped
from soubayes.sparse.rows.coordinate import prior_start, solve_sweeps
from soubayes.sparse.rows.newton import solve
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory, gram_of
from soubayes.sparse.rows.starts import ridge_start
from soubayes.sparse.rows.state import RowModel, covariance_root, make_state, prior_value
from soubayes.sparse.scales.balance import Groups
from soubayes.sparse.scales.priors import Exponential, HalfCauchy


def problem(n=120, p=8, seed=1, signals=(2.0, -1.5, 1.0)):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n, 1))
    X = (X - X.mean(0)) / X.std(0)
    coef = np.zeros(p)
    coef[: len(signals)] = signals
    y = (rng.random(n) < expit(X @ coef + 0.3)).astype(float)
    return X, y, rng.uniform(0.5, 1.5, n)


def columns(p, gamma_t=1e-2, gamma_b=1.0, prior=None, groups=None, sources=None):
    prior = prior or Exponential(10.0)
    return RowModel(
        confidence=np.append(np.full(p, gamma_b), 0.7),
        variance=np.append(np.full(p, np.nan), 10.0),
        local_confidence=np.full(p + 1, gamma_t),
        global_confidence=1.3,
        local_prior=prior,
        global_prior=prior,
        sources=sources or (("coef", np.arange(p)),),
        groups=groups or Groups.single(p),
    )


def rows_of(X, y, weight, likelihood=None, **design):
    design = RowsInMemory(X, **design)
    return RowProblem(likelihood or JaakkolaBernoulli(), design, y, weight)


def sweep(design, y, weight, mean, root):
    return RowProblem(JaakkolaBernoulli(), design, y, weight).sweep(mean, root)


def quarter_gram(X, weight):
    return gram_of(RowsInMemory(X), weight) / 4.0


def start_of(X, y, weight, model, likelihood=None):
    problem, precision = rows_of(X, y, weight, likelihood), np.append(np.full(X.shape[1], 100), 0.1)
    return ridge_start(problem, model, precision, quarter_gram(X, weight))


def newton(X, y, weight, model, likelihood=None, **options):
    options = {"tol": 1e-12, **options}
    start = start_of(X, y, weight, model, likelihood)
    return solve(rows_of(X, y, weight, likelihood), model, start, **options)


def coordinate(X, y, weight, model, start, **options):
    return solve_sweeps(rows_of(X, y, weight), model, start, **options)


def row_terms(eta, variance, y):
    return JaakkolaBernoulli().terms(eta, variance, y)


def printed_objective(X, y, weight, model, m, S, m_a, s2_a, xi, a, b, a_nu, b_nu):
    """J of supplement C.4.3 letter by letter, but -xi/2 + log sigma(xi) for both classes."""
    p = X.shape[1]
    lam = (expit(xi) - 0.5) / (2.0 * xi)
    eta = m_a + X @ m
    second = eta**2 + s2_a + np.einsum("ij,jk,ik->i", X, S, X)
    J = -np.sum(
        weight * ((y - 0.5) * eta - lam * second - xi / 2.0 + lam * xi**2 + np.log(expit(xi)))
    )
    variance = model.variance[-1]
    J += model.confidence[-1] / 2.0 * ((m_a**2 + s2_a) / variance - np.log(s2_a / variance) - 1.0)
    gamma_b, gamma_t, gamma_n = model.confidence[0], model.local_confidence[0], 1.3
    inner = np.sum((np.diag(S) + m**2) * a / b) * a_nu / b_nu - np.linalg.slogdet(S)[1]
    inner += np.sum(np.log(b) - psi(a)) + p * (np.log(b_nu) - psi(a_nu)) - p
    J += gamma_b / 2.0 * inner

    def kl(a, b, rate=10.0):
        value = a * np.log(b) - gammaln(a) - (a + 1.0) * (np.log(b) - psi(a)) - a
        return value - np.log(rate) + rate * b / (a - 1.0)

    return J + gamma_t * np.sum(kl(a, b)) + gamma_n * kl(a_nu, b_nu)


def parameters(X, state):
    """The state in the paper's letters, xi at its optimum."""
    p = X.shape[1]
    S = state.root @ state.root.T
    eta = X @ state.mean[:p] + state.mean[p]
    second = eta**2 + S[p, p] + np.einsum("ij,jk,ik->i", X, S[:p, :p], X)
    (a, r), (a_nu, r_nu) = state.local, state.top
    return [state.mean[:p], S[:p, :p], state.mean[p], S[p, p], np.sqrt(second), a, a * r, a_nu,
            a_nu * r_nu]  # fmt: skip


@pytest.mark.parametrize("gamma_b", [1.0, 2.0])
def test_objective_is_the_printed_one_with_the_sign_corrected(gamma_b):
    X, y, weight = problem()
    model = columns(8, gamma_b=gamma_b)
    state = start_of(X, y, weight, model)
    loss = rows_of(X, y, weight).sweep(state.mean, state.root).loss
    value = loss + prior_value(model, state)
    expected = printed_objective(X, y, weight, model, *parameters(X, state))
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gamma_t", [5e-2, 1.0])
@pytest.mark.parametrize("method", ["newton", "coordinate"])
def test_solution_is_stationary_in_every_printed_parameter(method, gamma_t):
    X, y, weight = problem(n=60, p=4)
    model = columns(4, gamma_t=gamma_t, gamma_b=1.5)
    if method == "newton":
        state = newton(X, y, weight, model).state
    else:
        start = prior_start(model, quarter_gram(X, weight), np.append(np.full(4, 9.0), 0.1))
        state = coordinate(X, y, weight, model, start, max_iter=20_000, tol=1e-14).state
    at = parameters(X, state)
    J = printed_objective(X, y, weight, model, *at)
    for index, value in enumerate(at):
        for place in np.ndindex(np.shape(value)):
            if index == 1:  # S: along the symmetric direction, in units of its size
                unit = np.zeros_like(value)
                size = np.sqrt(value[place[0], place[0]] * value[place[1], place[1]])
                unit[place] = unit[place[::-1]] = size
            elif index in (0, 2):  # a mean: in units of its standard deviation
                unit = np.zeros_like(value)
                unit[place] = np.sqrt(at[3] if index == 2 else at[1][place[0], place[0]])
            else:  # positive parameters: relative
                unit = np.zeros_like(value)
                unit[place] = np.asarray(value)[place]
            h = 1e-4
            up, down = (
                printed_objective(
                    X, y, weight, model, *at[:index], value + s * unit, *at[index + 1 :]
                )
                for s in (h, -h)
            )
            assert abs(up - down) / (2 * h) < 2e-5 * max(1.0, abs(J) / 100), (index, place)


@pytest.mark.parametrize("prior", [Exponential(10.0), HalfCauchy()])
@pytest.mark.parametrize(("gamma_t", "gamma_b"), [(5e-2, 1.0), (1.0, 1.0), (0.1, 3.0)])
def test_solvers_agree_and_never_raise_the_objective(prior, gamma_t, gamma_b):
    X, y, weight = problem()
    model = columns(8, gamma_t, gamma_b, prior)
    fast = newton(X, y, weight, model)
    start = prior_start(model, quarter_gram(X, weight), np.append(np.full(8, 100.0), 0.1))
    slow = coordinate(X, y, weight, model, start, max_iter=20_000, tol=1e-12)
    assert fast.converged
    assert slow.converged
    assert np.all(np.diff(fast.history) <= 0.0)
    assert np.all(np.diff(slow.history) <= 1e-12 * abs(slow.history[-1]))
    assert fast.history[-1] <= slow.history[-1] + 1e-9 * abs(slow.history[-1])
    np.testing.assert_allclose(fast.state.mean, slow.state.mean, atol=5e-5)


def whole(X, y, weight, model, fit):
    """A state of all columns at the solver's precisions, after one more look at the rows."""
    p = X.shape[1] + 1
    mean, root = np.zeros(p), np.zeros((p, p))
    active = fit.state.active
    mean[active], root[np.ix_(active, active)] = fit.state.mean, fit.state.root
    out = np.setdiff1d(np.arange(p), active)
    s, q = dropped.leave_one_out(rows_of(X, y, weight), model, fit.state, out)
    mean[out] = q / (s + model.confidence[out] * fit.state.precision[out])
    data = rows_of(X, y, weight).sweep(mean, root)
    return make_state(model, np.arange(p), mean, data.information, fit.state.precision, np.zeros(p))


def test_newton_ends_at_a_fixed_point_of_algorithm_1_where_it_dropped_columns():
    X, y, weight = problem(n=200, p=12, seed=3)
    model = columns(12, gamma_t=1e-6)
    fit = newton(X, y, weight, model)
    assert fit.converged
    assert len(fit.state.active) < 10
    before = whole(X, y, weight, model, fit)
    after = coordinate(X, y, weight, model, before, max_iter=50, tol=0.0)
    # the value reported for the state with dropped columns is that of the whole one
    assert after.history[0] == pytest.approx(fit.history[-1], rel=1e-9)
    assert after.history[-1] == pytest.approx(fit.history[-1], rel=1e-9)
    np.testing.assert_allclose(after.state.mean, before.mean, atol=1e-4)


def test_selection_threshold_is_z_squared_above_the_confidence_in_the_coefficients():
    X, y, weight = problem(n=200, p=12, seed=3)
    for gamma_b in (1.0, 3.0, 6.0):
        model = columns(12, gamma_t=1e-7, gamma_b=gamma_b)
        fit = newton(X, y, weight, model)
        out = np.setdiff1d(np.arange(12), fit.state.active)
        s, q = dropped.leave_one_out(rows_of(X, y, weight), model, fit.state, out)
        assert np.all(q**2 / s < gamma_b)
        # active: w = gamma_b s^2/(q^2 - gamma_b s) with s and q from the bound's normal equations
        p = X.shape[1]
        active = fit.state.active[:-1]
        H = fit.data.information[:-1, :-1]
        w = gamma_b * fit.state.precision[active]
        C = np.linalg.inv(H + np.diag(w))
        s = 1.0 / np.diag(C) - w
        q = fit.state.mean[:-1] / np.diag(C)
        assert np.all(q**2 / s > gamma_b)
        np.testing.assert_allclose(w, gamma_b * s**2 / (q**2 - gamma_b * s), rtol=1e-3)
        assert len(active) + len(out) == p


def test_a_column_dropped_by_mistake_returns():
    X, y, weight = problem(n=200, p=12, seed=3)
    model = columns(12, gamma_t=1e-6)
    fit = newton(X, y, weight, model)
    state = fit.state
    keep = state.active != 0  # the strongest signal
    precision = state.precision.copy()
    precision[0] = 1e9
    H = fit.data.information[np.ix_(keep, keep)]
    bad = make_state(model, state.active[keep], state.mean[keep], H, precision, state.rest)
    again = solve(rows_of(X, y, weight), model, bad, tol=1e-12)
    assert again.converged
    assert np.all(np.diff(again.history) <= 0.0)
    assert again.history[-1] == pytest.approx(fit.history[-1], rel=1e-8)


def test_float32_sparse_and_subset_designs_give_the_same_pass():
    X, y, weight = problem(n=5000, p=10)
    rng = np.random.default_rng(0)
    mean, root = rng.normal(size=11), np.triu(rng.normal(size=(11, 11))) / 10
    full = sweep(RowsInMemory(X), y, weight, mean, root)
    # direct
    Z = np.column_stack([X, np.ones(len(X))])
    terms = row_terms(Z @ mean, np.sum((Z @ root) ** 2, 1), y)
    assert full.loss == pytest.approx(weight @ terms.loss, rel=1e-12)
    np.testing.assert_allclose(full.score, Z.T @ (weight * terms.score), rtol=1e-9)
    np.testing.assert_allclose(
        full.information, Z.T @ ((weight * terms.information)[:, None] * Z), rtol=1e-10
    )
    np.testing.assert_allclose(
        full.curvature, Z.T @ ((weight * terms.curvature)[:, None] * Z), rtol=1e-9, atol=1e-9
    )
    single = sweep(RowsInMemory(X.astype(np.float32)), y, weight, mean, root)
    np.testing.assert_allclose(single.information, full.information, rtol=2e-5, atol=1e-3)
    assert single.loss == pytest.approx(full.loss, rel=1e-6)
    raw = np.where(rng.random(X.shape) < 0.2, X, 0.0)
    centre, scale = raw.mean(0), raw.std(0)
    dense = sweep(RowsInMemory((raw - centre) / scale), y, weight, mean, root)
    lazy = sweep(RowsInMemory(sps.csr_array(raw), True, centre, scale), y, weight, mean, root)
    np.testing.assert_allclose(lazy.information, dense.information, rtol=1e-10, atol=1e-10)
    for pick in ([0, 3, 10], [0, 1, 2, 4, 5, 6, 7, 8, 9, 10], [2, 5]):
        pick = np.array(pick)
        inner = np.triu(rng.normal(size=(len(pick), len(pick)))) / 10
        some = sweep(RowsInMemory(X).take(pick), y, weight, mean[pick], inner)
        direct = sweep(
            RowsInMemory(np.ascontiguousarray(Z[:, pick]), intercept=False),
            y,
            weight,
            mean[pick],
            inner,
        )
        np.testing.assert_allclose(some.information, direct.information, rtol=1e-12)


def test_sources_of_unequal_confidence_are_ordered():
    # S = L^-T Gamma L^-1 minimises tr(A S)/2 - sum_k gamma_k/2 log|S_k given the later columns|
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4))
    model = replace(columns(4), confidence=np.array([0.5, 0.5, 2.0, 2.0, 1.0]))
    H = X.T @ X / 4
    H = np.pad(H, ((0, 1), (0, 1)))
    H[-1, -1] = 10.0
    d = np.full(5, 3.0)
    root = covariance_root(model, np.arange(5), H, d)
    S = (root @ root.T)[:4, :4]
    A = (H + np.diag(model.confidence * d))[:4, :4]

    def value(S):
        late = S[2:, 2:]
        early = S[:2, :2] - S[:2, 2:] @ np.linalg.solve(late, S[2:, :2])
        cost = 2.0 * np.linalg.slogdet(late)[1] + 0.5 * np.linalg.slogdet(early)[1]
        return (np.trace(A @ S) - cost) / 2

    for _ in range(20):
        move = rng.normal(size=(4, 4)) * 1e-3
        move = (move + move.T) * S.max()
        assert value(S + move) > value(S)
        slope = (value(S + 1e-2 * move) - value(S - 1e-2 * move)) / 2e-2
        assert abs(slope) < 1e-6


def value_of(X, y, weight, model, likelihood, mean, S, precision):
    """J recomputed from a mean, a full covariance (the intercept apart) and prior precisions."""
    p = X.shape[1]
    eta = X @ mean[:p] + mean[p]
    variance = np.einsum("ij,jk,ik->i", X, S[:p, :p], X) + S[p, p]
    loss = weight @ likelihood.terms(eta, variance, y).loss
    local, top = model.scales.split(model.groups.first(precision[:p]))
    gamma_b, gamma_a = model.confidence[0], model.confidence[p]
    second = np.diag(S)[:p] + mean[:p] ** 2
    cost = precision[:p] @ second - p - np.linalg.slogdet(S[:p, :p])[1]
    cost += np.sum(model.groups.each(local.mean_log) + top.mean_log)
    own = precision[p] * (S[p, p] + mean[p] ** 2) - 1.0 - np.log(S[p, p] * precision[p])
    total = loss + gamma_b / 2.0 * cost + gamma_a / 2.0 * own
    total += model.local_confidence[0] * model.local_prior.kl(local).sum()
    return total + model.global_confidence * model.global_prior.kl(top)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("likelihood", [Bernoulli(), JaakkolaBernoulli()], ids=["exact", "bound"])
def test_newton_ends_at_a_minimum_over_mean_covariance_and_scales(likelihood, paired):
    X, y, weight = problem(n=80, p=6)
    groups = Groups.of([0, 0, 1, 1, 2, 3]) if paired else None
    model = columns(6, gamma_t=0.05, gamma_b=1.5, groups=groups)
    fit = newton(X, y, weight, model, likelihood)
    assert fit.converged
    assert np.all(np.diff(fit.history) <= 0.0)
    state, S = fit.state, fit.state.root @ fit.state.root.T

    def value(mean=state.mean, S=S, precision=state.precision):
        return value_of(X, y, weight, model, likelihood, mean, S, precision)

    best = value()
    assert best == pytest.approx(fit.history[-1], rel=1e-7)
    rng = np.random.default_rng(0)
    for _ in range(40):
        move = 1e-2 * rng.normal(size=7) * np.sqrt(np.diag(S))
        assert value(mean=state.mean + move) > best - 1e-9
        turn = np.eye(7) + 1e-2 * rng.normal(size=(7, 7)) * np.sqrt(
            np.outer(np.diag(S), 1 / np.diag(S))
        )
        turn[6, :6] = turn[:6, 6] = 0.0
        assert value(S=turn @ S @ turn.T) > best - 1e-9
        step = np.append(model.groups.each(rng.normal(size=model.groups.n_groups)), 0.0)
        assert value(precision=state.precision * np.exp(1e-2 * step)) > best - 1e-9
    if paired:
        np.testing.assert_allclose(state.precision[[0, 2]], state.precision[[1, 3]], rtol=1e-10)


def test_separated_classes_converge_with_the_exact_expectation():
    """No bound majorises the loss here: J must fall all the same, to a finite solution."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 5))
    y = (X[:, 0] > 0).astype(float)
    model = columns(5, gamma_t=1e-3)
    fit = newton(X, y, np.ones(60), model, Bernoulli(), tol=1e-9, max_iter=400)
    assert fit.converged
    assert np.all(np.diff(fit.history) <= 0.0)
    assert np.isfinite(fit.state.mean).all()
    assert fit.state.active[0] == 0
