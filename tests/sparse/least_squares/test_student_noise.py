"""Student's t noise: derivatives, limits, the exact engine, outliers, containers."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from soubayes import (
    Block,
    Discrete,
    Model,
    SoULinearRegression,
    load_model,
    save_model,
    solve_exact,
)
from soubayes.sparse.choice.scoring import HeldOut, score_numbers
from soubayes.sparse.least_squares.student_noise import (
    DEGREES_NODES,
    Around,
    RowUnits,
    StudentPrior,
    Tail,
    TailRows,
    log_constant,
)
from soubayes.sparse.posterior import Component, Mixture, Posterior

RNG = np.random.default_rng(0)
N, P = 120, 12
X = RNG.normal(size=(N, P)) + 3.0
COEF = np.append([1.5, -1.0, 0.7], np.zeros(P - 3))
Y = 2.0 + X @ COEF + RNG.standard_t(3, size=N)


@pytest.fixture(scope="module")
def fitted():
    return SoULinearRegression(noise="student").fit(X, Y)


def _loss(residual, spread, log_scale, d):
    """-log of the t density with the factor of the row's scale at its best."""
    z = (residual**2 + spread) / np.exp(log_scale)
    return log_constant(d) + 0.5 * log_scale + 0.5 * (d + 1) * np.log1p(z / d)


def test_constant_is_that_of_the_density():
    d = np.array([2.5, 7.0, 100.0])
    np.testing.assert_allclose(-log_constant(d), stats.t.logpdf(0.0, d), rtol=1e-12)


def test_sums_are_derivatives_of_the_loss():
    units = RowUnits(X.mean(axis=0), X.std(axis=0), float(Y.mean()), float(Y.std()))
    weight, coef = RNG.uniform(0.5, 2.0, N), 0.1 * RNG.normal(size=P)
    nodes, scale = np.array([3.0, 8.0]), np.log([0.2, 0.5])
    tail = Tail(scale, 4.0, 0.3)
    at = Around(coef, 0.05, 0.02, tail, nodes)
    sums, u = TailRows(X, Y, weight, units).read(at)

    def total(step, direction=None, d=4.0, log_scale=-1.2039728043259361):  # log 0.3
        move = 0.0 if direction is None else step * direction
        shift = step if direction is None else 0.0
        residual = units.residual(X, Y, coef + move, 0.05 + shift)
        return float(weight @ _loss(residual, 0.02, log_scale, d))

    h = 1e-4
    slope = (total(h) - total(-h)) / (2 * h)
    bend = (total(h) - 2 * total(0.0) + total(-h)) / h**2
    assert slope == pytest.approx(-sums.u / 0.3, rel=1e-5)
    assert bend == pytest.approx(sums.curvature / 0.3, rel=1e-4)
    own = np.eye(P)[2]
    slope = (total(h, own) - total(-h, own)) / (2 * h)
    assert slope == pytest.approx(-sums.xu[2] / 0.3, rel=1e-5)
    assert sums.uu == pytest.approx(weight @ u**2)
    for k, d in enumerate(nodes):
        up, down = (total(0.0, d=d, log_scale=scale[k] + step) for step in (h, -h))
        middle = total(0.0, d=d, log_scale=scale[k])
        assert (up - down) / (2 * h) == pytest.approx(
            0.5 * (weight.sum() - sums.fitted[k]), rel=1e-4
        )
        assert (up - 2 * middle + down) / h**2 == pytest.approx(0.5 * sums.slope[k], rel=1e-3)
        constant = weight.sum() * (log_constant(d) + 0.5 * scale[k])
        assert middle == pytest.approx(constant + 0.5 * (d + 1) * sums.logs[k])


def test_the_degrees_of_freedom_are_a_block():
    """q minimises E[loss] + gamma KL, whose derivative in gamma is the KL."""
    loss = 0.1 * (DEGREES_NODES - 6.0) ** 2 / (1.0 + DEGREES_NODES)

    def value(gamma):
        q, kl = StudentPrior(None, gamma).posterior(loss)
        return q @ loss + gamma * kl, kl

    (low, _), (high, _), (_, kl) = value(0.999), value(1.001), value(1.0)
    assert (high - low) / 0.002 == pytest.approx(kl, rel=1e-5)
    prior = np.exp(StudentPrior().log_prior)
    assert prior.sum() == pytest.approx(1.0)
    own = stats.gamma(2.0, scale=10.0).pdf(DEGREES_NODES - 2.0) * (DEGREES_NODES - 2.0)
    np.testing.assert_allclose(prior, own / own.sum(), rtol=1e-12)
    sure = StudentPrior(None, 1e-6).posterior(loss)[0]
    assert sure[np.argmin(loss)] == pytest.approx(1.0)


def test_many_degrees_of_freedom_are_normal_noise():
    kwargs = {"noise": "student", "degrees_of_freedom": 1e9}
    normal = SoULinearRegression(choice="path").fit(X, Y)
    student = SoULinearRegression(choice="path", **kwargs).fit(X, Y)
    for name in ("coef_", "coef_sd_", "intercept_", "noise_variance_", "shrinkage_"):
        np.testing.assert_allclose(getattr(student, name), getattr(normal, name), rtol=1e-6)
    assert student.objective_[-1] == pytest.approx(normal.objective_[-1], abs=1e-3)
    normal, student = SoULinearRegression().fit(X, Y), SoULinearRegression(**kwargs).fit(X, Y)
    np.testing.assert_allclose(student.coef_, normal.coef_, rtol=1e-3, atol=1e-5)
    levels = [0.05, 0.5, 0.95]
    np.testing.assert_allclose(
        student.predict(X, quantiles=levels),
        normal.predict(X, quantiles=levels),
        rtol=1e-3,
        atol=1e-5,
    )


@pytest.mark.parametrize("columns", [1, 2])
def test_against_the_exact_engine(columns):
    """Posterior means and sds of the coefficients for one and two columns with a normal prior."""
    d, n = 3.0, 40
    rng = np.random.default_rng(columns)
    Z = rng.normal(size=(n, columns))
    Z = Z - Z.mean(axis=0)
    y = Z @ [1.0, -0.5][:columns] + rng.standard_t(d, size=n)
    unit = np.sqrt((y**2).mean())

    def loss(scale, *beta):
        eta = sum(np.multiply.outer(b, z) for b, z in zip(beta, Z.T, strict=True))
        z = (y - eta) / np.exp(scale)[..., None]
        return 0.5 * (d + 1.0) * np.log1p(z * z / d).sum(axis=-1) + n * scale

    grid = np.log(unit) + np.linspace(-2.0, 1.0, 25)
    blocks = [Block("scale", Discrete(grid, np.ones(25)))]
    blocks += [Block(f"b{j}", stats.norm(0.0, 3.0)) for j in range(columns)]
    exact = solve_exact(Model(blocks, loss), tolerance=1e-3)
    z_scale = np.sqrt((Z**2).mean(axis=0))
    model = SoULinearRegression(
        noise="student", degrees_of_freedom=d, fit_intercept=False, choice="path",
        feature_blocks={
            f"b{j}": {
                "columns": [j], "prior": "normal", "variance": 9.0 * (z_scale[j] / unit) ** 2
            }
            for j in range(columns)
        },
    ).fit(Z, y)  # fmt: skip
    for j in range(columns):
        mean, sd = exact.mean(f"b{j}"), exact.sd(f"b{j}")
        assert abs(model.coef_[j] - mean) < 0.15 * sd
        assert model.coef_sd_[j] == pytest.approx(sd, rel=0.15)


def test_outliers_hardly_change_the_fit():
    rng = np.random.default_rng(3)
    n, p = 200, 40
    Z, new = rng.normal(size=(n, p)), rng.normal(size=(2000, p))
    beta = np.append(np.ones(6), np.zeros(p - 6))
    clean = Z @ beta + rng.normal(size=n)
    dirty = clean.copy()
    dirty[rng.choice(n, n // 10, replace=False)] += rng.choice([-30.0, 30.0], n // 10)
    truth = new @ beta + rng.normal(size=2000)

    def rmse(model, y):
        return np.sqrt(np.mean((model.fit(Z, y).predict(new) - truth) ** 2))

    without = rmse(SoULinearRegression(), clean)
    assert rmse(SoULinearRegression(noise="student"), dirty) < 1.05 * without
    assert rmse(SoULinearRegression(), dirty) > 1.2 * without


def test_reports(fitted, tmp_path):
    assert 2.0 < fitted.degrees_of_freedom_ < 20.0
    assert fitted.sparse_.kl_["degrees"] >= 0.0
    assert (
        "degrees"
        not in SoULinearRegression(noise="student", degrees_of_freedom=4.0, choice="path")
        .fit(X, Y)
        .kl_
    )
    assert np.all(np.diff(fitted.sparse_.objective_) <= 1e-9)
    assert fitted.sample(5, 0)["noise_variance"].shape == (5,)
    assert list(fitted.summary().index) == [f"x{i}" for i in range(P)]
    path = tmp_path / "model.soubayes"
    save_model(fitted, path)
    again = load_model(path)
    np.testing.assert_array_equal(
        again.predict(X, quantiles=[0.1]), fitted.predict(X, quantiles=[0.1])
    )
    assert again.degrees_of_freedom_ == fitted.degrees_of_freedom_
    supports = SoULinearRegression(noise="student", choice="path", inclusion=True).fit(X, Y)
    assert supports.supports_.inclusion[:3].min() > 0.9


def test_the_objective_is_the_expected_loss_and_the_divergences():
    """Recomputed from the residuals: the loss at q(sigma^2), sigma^2 and d as reported."""
    model = SoULinearRegression(noise="student", degrees_of_freedom=4.0, choice="path").fit(X, Y)
    component = model.mixtures_[0].components[0]
    scale = model.noise_variance_ / 2.0  # sigma^2 = variance (d - 2)/d
    spread = np.mean(np.einsum("ij,jk,ik->i", X - X.mean(0), model.covariance_, X - X.mean(0)))
    spread += float(component.posterior.variance[-1])
    loss = _loss(Y - model.predict(X), spread, np.log(scale), 4.0).sum()
    costs = sum(
        gamma * model.kl_[name]
        for name, gamma in (
            ("coef", 1.0), ("local", 1e-9), ("global", 1.0), ("noise", 1.0), ("intercept", 1.0)
        )
    )  # fmt: skip
    # the choice of the support takes degrees of freedom from the noise
    assert model.objective_[-1] == pytest.approx(loss + costs, abs=3.0)


def test_units_and_containers(fitted):
    other = SoULinearRegression(noise="student").fit(X * 7.0, Y * 1e3)
    np.testing.assert_allclose(other.coef_, fitted.coef_ * 1e3 / 7.0, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(other.noise_variance_, fitted.noise_variance_ * 1e6, rtol=1e-8)
    turned = SoULinearRegression(noise="student").fit(X[:, ::-1], Y)
    np.testing.assert_allclose(turned.coef_[::-1], fitted.coef_, rtol=1e-8, atol=1e-10)
    sparse = SoULinearRegression(noise="student").fit(sp.csr_array(X), Y)
    np.testing.assert_allclose(sparse.coef_, fitted.coef_, rtol=1e-8, atol=1e-10)
    both = SoULinearRegression(noise="student").fit(X, np.column_stack([Y, Y**2]))
    np.testing.assert_allclose(both.coef_[0], fitted.coef_, rtol=0.05, atol=0.02)
    twice = SoULinearRegression(noise="student", choice="path").fit(
        X, Y, sample_weight=np.full(N, 2.0)
    )
    copies = SoULinearRegression(noise="student", choice="path").fit(
        np.vstack([X, X]), np.append(Y, Y)
    )
    np.testing.assert_allclose(twice.coef_, copies.coef_, rtol=1e-8, atol=1e-10)


def test_few_rows_in_blocks_are_fitted_in_memory():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(900, 4)) + 1.0
    y = Z[:, 0] + rng.standard_t(3, size=len(Z))
    arrays = SoULinearRegression(noise="student").fit(Z, y)
    blocks = [(Z[i : i + 300], y[i : i + 300]) for i in range(0, len(Z), 300)]
    stream = SoULinearRegression(noise="student").fit(iter(blocks))
    np.testing.assert_allclose(stream.coef_, arrays.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(stream.degrees_of_freedom_, arrays.degrees_of_freedom_, rtol=1e-8)
    with pytest.raises(ValueError, match="needs the rows in memory, but X is streamed"):
        SoULinearRegression(noise="student").fit([(np.tile(Z, (12, 1)), np.tile(y, 12))])


def test_more_columns_than_rows():
    rng = np.random.default_rng(2)
    Z = rng.normal(size=(60, 100))
    y = 2.0 * Z[:, 0] - 2.0 * Z[:, 1] + rng.standard_t(3, size=60)
    model = SoULinearRegression(noise="student", choice="path").fit(Z, y)
    assert model.selected_[:2].all()
    assert model.selected_.sum() < 8


def test_quantiles_are_those_of_a_mixture_of_t():
    rng = np.random.default_rng(0)
    one = Posterior(np.array([0.0]), np.array([0.1]), np.array([0]), np.eye(1) * 0.1)
    two = Posterior(np.array([1.0]), np.array([0.2]), np.array([0]), np.eye(1) * 0.2)
    parts = (
        Component(one, noise=2.0, weight=0.7, noise_degrees=3.0),
        Component(two, noise=1.0, weight=0.3, noise_degrees=8.0),
    )
    found = Mixture(parts).quantiles(np.ones((1, 1)), np.array([0.05, 0.5, 0.95]))[0]
    which = rng.random(400_000) < 0.7
    draws = np.where(
        which,
        rng.standard_t(3.0, which.size) * np.sqrt(2.1 / 3.0),
        1.0 + rng.standard_t(8.0, which.size) * np.sqrt(1.2 * 6.0 / 8.0),
    )
    np.testing.assert_allclose(found, np.quantile(draws, [0.05, 0.5, 0.95]), atol=0.015)


def test_recalibration_is_not_decided_by_outliers():
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    ones = np.ones((200, 1))
    said = HeldOut.of_numbers(0.0 * ones, 1.25 * ones, ones)
    weight = np.ones(200)
    limit, normal = (score_numbers(y, said, weight, degrees=d) for d in (1e9, np.inf))
    np.testing.assert_allclose(limit.scale, normal.scale, rtol=1e-6)
    np.testing.assert_allclose(limit.coverage, normal.coverage)
    np.testing.assert_allclose(limit.scores, normal.scores, rtol=1e-6)
    y[0] = 1e6
    assert score_numbers(y, said, weight, degrees=3.0).scale[0] < 1.6
    assert score_numbers(y, said, weight).scale[0] > 1e6


def test_bad_input():
    with pytest.raises(ValueError, match="read again in every round"):
        SoULinearRegression(noise="student").partial_fit(X, Y)
    for value in (2.0, -1.0, "3", np.inf, True):
        with pytest.raises(ValueError, match=r"degrees_of_freedom is .* above 2"):
            SoULinearRegression(noise="student", degrees_of_freedom=value).fit(X, Y)
    with pytest.raises(ValueError, match="noise is 'cauchy'"):
        SoULinearRegression(noise="cauchy").fit(X, Y)
