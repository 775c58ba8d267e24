"""The solvers of least squares: stationarity, monotonicity, limits, the three forms of the data.

Covers path, descent, state, intake, coordinate, model and the designs gram, wide, diagonal
and woodbury.
"""

import numpy as np
import pytest

from soubayes import SoULinearRegression
from soubayes.datasets import experiment1, wide_design
from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.least_squares import path
from soubayes.sparse.least_squares.coordinate import solve_coordinate
from soubayes.sparse.least_squares.designs import Diagonal, Gram, Wide
from soubayes.sparse.least_squares.state import (
    LeastSquaresModel,
    Noise,
    NoisePrior,
    objective_value,
    restricted,
)
from soubayes.sparse.scales.balance import Groups
from soubayes.sparse.scales.priors import Exponential, HalfCauchy


def make_model(p, **other):
    settings = {
        "confidence": np.ones(p),
        "local_confidence": np.full(p, 1e-9),
        "global_confidence": 1.0,
        "local_prior": Exponential(10.0),
        "global_prior": Exponential(10.0),
        "noise": NoisePrior(1e-3, 1e-6),
        "variance": np.full(p, np.nan),
        "sources": (("coef", np.arange(p)),),
        "groups": Groups.single(p),
    }
    return LeastSquaresModel(**{**settings, **other})


def make_design(data):
    X = data.X / np.sqrt(np.mean(data.X**2, axis=0))
    y = data.y / np.sqrt(np.mean(data.y**2))
    return X, y, Gram(X.T @ X, X.T @ y, float(y @ y), len(y))


def solve(design, model, confidence=None, tol=1e-8, max_iter=3000):
    free = np.ones(len(model.confidence), bool)
    return path.solve_path(design, model, free, confidence, tol=tol, max_iter=max_iter)


def value_at(design, model, w, noise):
    """J at precisions w, every column in, recomputed from scratch."""
    ridge = design.ridge(w)
    parts = model.nested(restricted(design, w, ridge))
    ridge = ridge._replace(variance=model.variances(parts) / model.confidence)
    tau, nu = model.scales.split(model.groups.first(w / model.confidence))
    dets = model.log_determinants(parts)
    return objective_value(
        model, design.n, ridge, w, model.scales.costs(tau, nu), noise, dets
    ).value


@pytest.mark.parametrize("prior", [Exponential(10.0), HalfCauchy()], ids=str)
@pytest.mark.parametrize("local", [1e-9, 1e-3, 0.1])
def test_path_solution_is_a_minimum_of_j_at_its_noise(prior, local):
    _, _, design = make_design(experiment1(25, 20, 10, random_state=3))
    model = make_model(
        20, local_confidence=np.full(20, local), local_prior=prior, global_prior=prior
    )
    _, _, s = solve(design, model, confidence=2.0)
    assert s.converged
    best = value_at(design, s.model, s.w, s.noise)
    assert s.value.value == pytest.approx(best, abs=1e-6)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-2, 0.3):
        for _ in range(30):
            moved = s.w * np.exp(size * rng.normal(size=20))
            assert value_at(design, s.model, moved, s.noise) > best - 1e-8
    for j in range(20):  # every coordinate alone, both ways
        for step in (-0.05, 0.05):
            moved = s.w * np.exp(step * (np.arange(20) == j))
            assert value_at(design, s.model, moved, s.noise) > best - 1e-9


def test_path_history_never_rises_and_noise_is_the_unit_confidence_estimate():
    for seed in range(5):
        _, _, design = make_design(experiment1(55, 50, 20, random_state=seed))
        points, chosen, s = solve(design, make_model(50))
        assert np.all(np.diff(s.history) <= 0)
        assert 0 <= chosen < len(points)
        kappa = s.w * s.variance
        rss = design.yy - s.coef @ design.scores - s.coef @ (s.w * s.coef)
        left = s.model.noise_degrees(55, np.sum(1 - kappa))
        assert s.noise.variance == pytest.approx((2e-6 + rss) / (2e-3 + left), rel=1e-4)
        assert s.noise.shape == pytest.approx(1e-3 + left / 2, rel=1e-6)


def test_limit_is_the_fixed_point_of_automatic_relevance_determination():
    """Note 1: u_j E[1/sigma^2] (S_jj + m_j^2) = 1 on the active columns at confidence 1."""
    _, _, design = make_design(experiment1(55, 50, 10, random_state=1))
    model = make_model(50, local_confidence=np.full(50, 1e-13))
    _, _, s = solve(design, model, confidence=1.0, tol=1e-10)
    active = np.flatnonzero(s.selected)
    A = design.gram[np.ix_(active, active)] + np.diag(s.w[active])
    S = s.noise.variance * np.linalg.inv(A)
    m = np.linalg.solve(A, design.scores[active])
    np.testing.assert_allclose(s.w[active] * (np.diag(S) + m**2) / s.noise.variance, 1.0, atol=2e-6)
    others = np.flatnonzero(~s.selected)  # and no dropped column wants to come back (note 3)
    loo, score = design.outside(active, s.w[active], others)
    assert np.all(score**2 / (s.noise.variance * loo) < 1.06)


def test_confidence_is_the_threshold_on_z_squared():
    """Note 3, where it is exact: orthogonal columns."""
    n, z = 100.0, np.array([1.2, 1.6, 2.2, 3.0, 5.0, 0.3])
    model = make_model(6, noise=NoisePrior(1e9, 1e9))  # noise known to be 1
    design = Diagonal(np.full(6, n), z * np.sqrt(n), float(z @ z) + 94.0, n)
    for gamma in (1.0, 2.0, 4.0):
        _, _, s = solve(design, model, confidence=gamma)
        np.testing.assert_array_equal(s.selected, z**2 > gamma)
        kept = z**2 > gamma
        np.testing.assert_allclose(
            s.coef[kept], (z / np.sqrt(n) * (1 - gamma / z**2))[kept], rtol=1e-5
        )


def test_gram_and_wide_forms_agree():
    data = wide_design(n=30, p=60, signals=5, random_state=2)
    X, y, gram = make_design(data)
    wide = Wide(StandardColumns(X, None, None, np.ones(30)), y, 30)
    rng = np.random.default_rng(0)
    w = np.exp(rng.normal(size=60))
    for one, two in zip(gram.ridge(w)[:6], wide.ridge(w)[:6], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-7)
    np.testing.assert_allclose(gram.inverse(w), wide.inverse(w), atol=1e-12)
    np.testing.assert_allclose(
        gram.ridge(w).variance, np.diag(np.linalg.inv(gram.gram + np.diag(w))), rtol=1e-9
    )
    for index in (np.arange(10), np.arange(45)):
        others = np.arange(50, 60)
        for one, two in zip(
            gram.outside(index, w[index], others),
            wide.outside(index, w[index], others),
            strict=True,
        ):
            np.testing.assert_allclose(one, two, rtol=1e-7)
    np.testing.assert_allclose(
        solve(gram, make_model(60))[2].coef, solve(wide, make_model(60))[2].coef, atol=1e-7
    )


def test_diagonal_form_agrees_with_gram():
    rng = np.random.default_rng(1)
    norms, scores, w = rng.uniform(1, 9, 5), rng.normal(size=5), rng.uniform(0.1, 3, 5)
    one = Diagonal(norms, scores, 9.0, 20).ridge(w)
    two = Gram(np.diag(norms), scores, 9.0, 20).ridge(w)
    for left, right in zip(one[:6], two[:6], strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-10)


def test_guard_holds_a_noise_that_jumps():
    """At (25, 20, 10) the end of the path drops a signal; without the guard it loses them all."""
    kept = []
    for guard in (path.GUARD, np.inf):
        path_guard, path.GUARD = path.GUARD, guard
        try:
            counts = []
            for seed in range(8):
                _, _, design = make_design(experiment1(25, 20, 10, random_state=seed))
                points, _, _ = solve(design, make_model(20), tol=1e-4)
                counts.append(len(points[-1].state.active))
        finally:
            path.GUARD = path_guard
        kept.append(np.mean(counts))
    assert kept[0] > kept[1] + 1


@pytest.mark.parametrize("prior", [Exponential(10.0), HalfCauchy()], ids=str)
@pytest.mark.parametrize(
    ("coef", "local", "top", "noise"),
    [(1.0, 1e-9, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0), (2.0, 0.3, 0.5, 3.0), (0.5, 1e-4, 4.0, 0.2)],
)
def test_coordinate_solver_never_raises_j(prior, coef, local, top, noise):
    _, _, design = make_design(experiment1(25, 20, 10, random_state=4))
    model = make_model(
        20,
        confidence=np.full(20, coef),
        local_confidence=np.full(20, local),
        global_confidence=top,
        noise=NoisePrior(1e-3, 1e-6, noise),
        local_prior=prior,
        global_prior=prior,
        intercept_variance=10.0,
    )
    s = solve_coordinate(design, model, tol=1e-12, max_iter=60)
    assert np.diff(s.history).max() <= 1e-9 * abs(s.history[0])
    assert s.history[0] == pytest.approx(
        solve_coordinate(design, model, tol=1, max_iter=1).history[0]
    )


def test_converged_coordinate_solution_is_stationary_in_every_factor():
    _, _, design = make_design(experiment1(25, 20, 10, random_state=5))
    model = make_model(20, confidence=np.full(20, 1.5), local_confidence=np.full(20, 0.5))
    s = solve_coordinate(design, model, tol=1e-13, max_iter=5000)
    assert s.converged
    ridge = design.ridge(s.w)
    dets = np.array([ridge.log_det])

    def value(tau=s.tau, nu=s.nu, noise=s.noise):
        # S and m held: the terms of J that move are written out from the held second moments
        second = (s.model.confidence * s.noise.variance * ridge.variance + ridge.mean**2)[None]
        energy = second / noise.variance * tau.mean_inverse * nu.mean_inverse
        base = objective_value(
            model, design.n, ridge, s.w, model.scales.costs(tau, nu), noise, dets
        )
        w_moved = model.confidence * tau.mean_inverse * nu.mean_inverse
        kappa = s.w * ridge.variance
        # it takes S and m as the best for w; put the held ones in instead
        shift = (
            0.5
            * model.confidence
            @ (energy[0] - kappa - s.w * ridge.mean**2 / (model.confidence * noise.variance))
        )
        spread = (
            0.5 * float(model.confidence @ (1 - kappa)) * (s.noise.variance / noise.variance - 1)
        )
        entropy = 0.5 * model.confidence.sum() * np.log(noise.variance / s.noise.variance)
        assert w_moved.shape == s.w.shape
        return base.value + shift + spread + entropy

    best = value()
    assert best == pytest.approx(s.value.value, rel=1e-10)
    for factor in (1 - 1e-4, 1 + 1e-4):
        assert value(nu=s.nu._replace(ratio=s.nu.ratio * factor)) > best - 1e-9
        assert value(noise=Noise(s.noise.shape, s.noise.variance * factor)) > best - 1e-9
        assert value(noise=Noise(s.noise.shape * factor, s.noise.variance)) > best - 1e-9
        assert value(nu=s.nu._replace(shape=1 + (s.nu.shape - 1) * factor)) > best - 1e-9
        for j in range(20):
            move = np.where(np.arange(20) == j, factor, 1.0)
            assert value(tau=s.tau._replace(ratio=s.tau.ratio * move)) > best - 1e-9
            assert value(tau=s.tau._replace(shape=1 + (s.tau.shape - 1) * move)) > best - 1e-9


@pytest.mark.parametrize("prior", [Exponential(10.0), HalfCauchy()], ids=str)
@pytest.mark.parametrize("local", [1e-9, 1e-2])
def test_columns_that_share_a_tau_stay_or_go_together_at_a_minimum(prior, local):
    _, _, design = make_design(experiment1(25, 20, 10, random_state=3))
    groups = Groups.of(np.arange(20) // 2)
    model = make_model(
        20,
        local_confidence=np.full(20, local),
        local_prior=prior,
        global_prior=prior,
        groups=groups,
    )
    _, _, s = solve(design, model, confidence=2.0)
    assert s.converged
    pairs = s.w.reshape(-1, 2)
    np.testing.assert_allclose(pairs[:, 0], pairs[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(*s.selected.reshape(-1, 2).T)
    assert 0 < s.selected.sum() < (20 if local == 1e-9 else 21)
    best = value_at(design, s.model, s.w, s.noise)
    assert s.value.value == pytest.approx(best, abs=1e-6)
    for j in range(10):  # every tau alone, both ways
        for step in (-0.05, 0.05):
            moved = s.w * np.exp(step * (np.arange(20) // 2 == j))
            assert value_at(design, s.model, moved, s.noise) > best - 1e-9
    joint = solve_coordinate(design, model, tol=1e-10, max_iter=30)
    assert np.diff(joint.history).max() <= 1e-9 * abs(joint.history[0])


@pytest.mark.parametrize("stride", [1, path.FOLD_STRIDE])
def test_the_path_of_a_fold_is_the_path(stride, monkeypatch):
    """`path_fit` leaves out J, the polish and some points; what predicts hardly changes."""
    monkeypatch.setattr(path, "FOLD_STRIDE", stride)
    if stride == 1:
        monkeypatch.setattr(path, "FOLD_CHANGE", path.PATH_CHANGE)
    for data in (experiment1(55, 50, 10, random_state=4), wide_design(60, 150, 5, random_state=4)):
        X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
        y = (data.y - data.y.mean()) / data.y.std()
        n, p = X.shape
        design = Gram(X.T @ X, X.T @ y, float(y @ y), float(n))
        estimator = SoULinearRegression(choice="path").fit(X, y)
        model, free = estimator._settings().model(p, 1.0)
        points, chosen, whole = path.solve_path(design, model, free, None, tol=1e-8, max_iter=2000)
        states, fit = path.path_fit(design, model, free, max_iter=2000)
        coefs = np.array([path.coefficients_at(design, state) for state in states])
        if stride == 1:
            np.testing.assert_array_equal(fit.selected, whole.selected)
        near = 2e-3 if stride == 1 else 0.1  # another column may just pass
        np.testing.assert_allclose(fit.coef, whole.coef, atol=near * np.abs(whole.coef).max())
        assert fit.noise.variance == pytest.approx(whole.noise.variance, rel=10 * near)
        expected = np.array([point.coef for point in points])[::stride]
        np.testing.assert_allclose(coefs, expected, atol=1e-5 if stride == 1 else 0.1)
        assert chosen is not None
