"""The evidence of supports with groups, recomputed from the marginal distribution of y.

Covers group_evidence, and how the path of linear regression counts a group.
"""

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from soubayes import SoULinearRegression, SoUPoissonRegression
from soubayes.sparse.least_squares.criterion import choose_support
from soubayes.sparse.least_squares.designs import Gram
from soubayes.sparse.least_squares.group_evidence import GroupPosterior, _Profile, group_evidence


def design(seed=0, n=40):
    """Two groups of four and three columns, and two columns of their own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 9)) + 0.4 * rng.normal(size=(n, 1))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = X[:, :4] @ rng.normal(size=4) * 0.5 + X[:, 7] + rng.normal(size=n)
    return X, y, np.repeat([0, 1, -1], [4, 3, 2])


def marginal(X, y, w, single, left):
    """log p(y | w) but for a constant: K = I + sum X_g X_g'/w_g, flat priors integrated by GLS."""
    K = np.eye(len(y)) + (X[:, ~single] / w[~single]) @ X[:, ~single].T
    Z, inverse = X[:, single], np.linalg.inv(K)
    inside = Z.T @ inverse @ Z
    fitted = Z @ np.linalg.solve(inside, Z.T @ inverse @ y)
    rss = (y - fitted) @ inverse @ (y - fitted)
    log_det = np.linalg.slogdet(K)[1] + np.linalg.slogdet(inside)[1]
    return -0.5 * (left * np.log(rss) + log_det)


def test_the_density_of_a_group_is_the_marginal_likelihood():
    X, y, groups = design()
    left, w = 38.0, np.where(groups < 0, 1e-9, 2.0)
    at = GroupPosterior.of(Gram(X.T @ X, X.T @ y, float(y @ y), 40.0), w, left)
    profile = _Profile.of(at, np.arange(4))
    several = np.array([0.1, 1.0, 2.0, 30.0])
    direct = []
    for own in several:
        w[:4] = own
        direct.append(marginal(X, y, w, groups < 0, left))
    ours = profile.log_density(several, left)
    np.testing.assert_allclose(ours - ours[0], np.array(direct) - direct[0], atol=1e-6)


def test_tau_is_integrated_over_the_slab():
    X, y, groups = design()
    part = Gram(X.T @ X, X.T @ y, float(y @ y), 40.0)
    found = group_evidence(part, groups, groups < 0, 1e-9, 38.0, 1.0)
    mean, spread = found.log_size.mean(), max(found.log_size.var(), 1.0)
    total, noise = 0.0, found.rss / 38.0
    for g in (0, 1):
        here = marginal(X, y, found.w, groups < 0, 38.0)

        def density(t, g=g, here=here):
            w = np.where(groups == g, noise * np.exp(-2.0 * t), found.w)
            slab = stats.norm(mean, np.sqrt(spread)).pdf(t)
            return slab * np.exp(marginal(X, y, w, groups < 0, 38.0) - here)

        total += np.log(integrate.quad(density, mean - 8.0, mean + 8.0, limit=200)[0])
    assert found.log_integral == pytest.approx(total, abs=2e-3)
    # the ratio of effects to noise at which the marginal likelihood times the slab is largest
    assert found.log_size[-2] > found.log_size[-1]
    assert 3.0 < found.used < 7.0


def test_a_group_of_one_column_is_a_column():
    X, y, _ = design()
    part, every = Gram(X.T @ X, X.T @ y, float(y @ y), 40.0), np.ones(9, bool)
    supports = [np.arange(9), np.array([0, 7]), np.zeros(0, int)]
    alone = choose_support(part, supports, every, every, True)
    assert choose_support(part, supports, every, every, True, groups=np.full(9, -1)) == alone


def units(tau, seed, per=6, count=15):
    rng = np.random.default_rng(seed)
    x, effects = rng.normal(size=count * per), tau * rng.normal(size=count)
    unit = np.repeat(np.arange(count), per)
    X = np.column_stack([x, np.eye(count)[unit]])
    return X, 2.0 * x + effects[unit], rng, np.append(0, np.ones(count, int))


def test_a_random_intercept_is_that_of_reml():
    """Kept by the path, and its variance and the noise maximise the restricted likelihood."""
    X, mean, rng, groups = units(1.0, 1)
    y = mean + rng.normal(size=len(mean))
    model = SoULinearRegression(choice="path", feature_groups=groups).fit(X, y)
    assert model.selected_.all()
    x, Z = np.column_stack([np.ones(len(y)), X[:, 0]]), X[:, 1:]

    def restricted(logs):
        noise, tau2 = np.exp(logs)
        V = noise * np.eye(len(y)) + tau2 * Z @ Z.T
        inverse = np.linalg.inv(V)
        inside = x.T @ inverse @ x
        off = y - x @ np.linalg.solve(inside, x.T @ inverse @ y)
        return 0.5 * (np.linalg.slogdet(V)[1] + np.linalg.slogdet(inside)[1] + off @ inverse @ off)

    reml = np.exp(optimize.minimize(restricted, np.zeros(2), tol=1e-10).x)
    # x is shrunk by the prior of its own scale, which moves the noise a little
    assert model.noise_variance_ == pytest.approx(reml[0], rel=0.01)
    ratio = reml[1] / reml[0]
    residual = y - y.mean() - X[:, 0] * model.coef_[0]
    blup = np.array([residual[u * 6 : u * 6 + 6].sum() / (6.0 + 1.0 / ratio) for u in range(15)])
    ours = model.coef_[1:] - model.coef_[1:].mean()
    np.testing.assert_allclose(ours, blup - blup.mean(), atol=0.03)


@pytest.mark.parametrize(("tau", "kept"), [(0.0, 0.2), (1.0, 1.0)])
def test_units_are_kept_where_they_differ(tau, kept):
    gaussian, counts = [], []
    for seed in range(10):
        X, mean, rng, groups = units(tau, seed)
        y = mean + rng.normal(size=len(mean))
        model = SoULinearRegression(choice="path", feature_groups=groups).fit(X, y)
        gaussian.append(bool(model.selected_[1:].any()))
        y = rng.poisson(np.exp(0.5 + mean / 4.0 + 0.75 * (mean - 2.0 * X[:, 0])))
        model = SoUPoissonRegression(choice="path", feature_groups=groups).fit(X, y)
        counts.append(bool(model.selected_[1:].any()))
    for share in (np.mean(gaussian), np.mean(counts)):
        assert share <= kept if tau == 0.0 else share == kept
