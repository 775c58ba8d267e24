"""The rule behind "auto": its score, its threshold, and what it keeps of pure noise.

Covers supports and grid.
"""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from soubayes import SoULinearRegression, SoUNormalMeans
from soubayes.datasets import experiment1
from soubayes.sparse.least_squares import criterion
from soubayes.sparse.least_squares.designs import Diagonal, Gram


def make_design(X, y):
    return Gram(X.T @ X, X.T @ y, float(y @ y), float(len(y)))


def everything(p):
    return np.ones(p, bool), np.ones(p, bool)


def score(design, support, p=None, intercept=False):
    masks = everything(len(design.scores) if p is None else p)
    return criterion._score(design, np.asarray(support, int), *masks, intercept)


def test_score_recomputed():
    """Every term by another route: lstsq, slogdet, scipy's lognormal."""
    data = experiment1(55, 50, 10, random_state=2)
    X, y = data.X / np.sqrt(np.mean(data.X**2, axis=0)), data.y
    design = make_design(X, y)
    supports = [np.arange(k) for k in (30, 14, 10, 6, 0)]

    def by_hand(index):
        n, k, Z = 55, len(index), X[:, index]
        coef = np.linalg.lstsq(Z, y, rcond=None)[0]
        rss = np.sum((y - Z @ coef) ** 2)
        total = (n - k) * np.log(np.pi * rss) - 2 * gammaln((n - k) / 2)
        total += 1.5 * np.log(float(np.prod([(50 - i) / (k - i) for i in range(k)])))
        if k:
            sigma2 = rss / (n - k)
            error = np.sqrt(sigma2 * np.diag(np.linalg.inv(Z.T @ Z)))
            size = np.maximum(np.abs(coef), error)
            spread = max(np.std(np.log(size)), 1.0)
            slab = stats.lognorm(spread, scale=stats.gmean(size)).logpdf(size) - np.log(2)
            total += np.linalg.slogdet(Z.T @ Z + np.diag(sigma2 / size**2))[1] - 2 * slab.sum()
        return total

    ours = [score(design, index).value for index in supports]
    np.testing.assert_allclose(ours, [by_hand(index) for index in supports], rtol=1e-7)
    chosen, threshold = criterion.choose_support(design, supports, *everything(50), False)
    assert chosen == np.argmin(ours) == 2
    assert 5.0 < threshold < 15.0


def test_score_is_a_marginal_likelihood():
    """One column: the integral over the coefficient, sigma under 1/sigma^2 integrated exactly."""
    rng = np.random.default_rng(0)
    n, x = 60, rng.standard_normal(60)
    y = 1.3 * x + rng.standard_normal(n)
    b = x @ y / (x @ x)

    def density(c):  # pi^(-n/2) Gamma(n/2) |y - x c|^-n f(c)
        logs = gammaln(n / 2) - n / 2 * np.log(np.pi * np.sum((y - x * c) ** 2))
        return np.exp(logs - base) * 0.5 * stats.lognorm(1, scale=abs(b)).pdf(abs(c))

    base = gammaln(n / 2) - n / 2 * np.log(np.pi * np.sum((y - x * b) ** 2))
    mass, _ = integrate.quad(density, b - 1, b + 1, points=[b])
    assert score(make_design(x[:, None], y), [0]).value == pytest.approx(
        -2 * (np.log(mass) + base), abs=0.1
    )


@pytest.mark.parametrize("size", [0, 1, 8])
def test_threshold_is_where_a_column_is_not_worth_its_price(size):
    """Orthogonal columns: a further one lowers the score just when its z^2 passes."""
    n, p = 4000.0, 40
    coef = np.concatenate([np.linspace(1.0, 3.0, size), np.zeros(p - size)])
    yy = n * (1.0 + coef @ coef)
    design = Diagonal(np.full(p, n), n * coef, yy, n)
    _, threshold = criterion.choose_support(design, [np.arange(size)], *everything(p), False)
    before = score(design, np.arange(size)).value
    for z2, sign in ((threshold - 0.2, 1), (threshold + 0.2, -1)):
        coef[size] = np.sqrt(z2 / n)
        after = score(Diagonal(np.full(p, n), n * coef, yy, n), np.arange(size + 1)).value
        assert np.sign(after - before) == sign


def test_units_of_y_add_the_same_to_every_score():
    data = experiment1(55, 50, 10, random_state=0)
    supports = [np.arange(k) for k in (20, 10, 1, 0)]
    scores = [
        [score(make_design(data.X, unit * data.y), s, intercept=True).value for s in supports]
        for unit in (1e-6, 1.0, 1e6)
    ]
    np.testing.assert_allclose(np.ptp(np.diff(scores, axis=0), axis=1), 0.0, atol=1e-8)


def test_a_copy_of_a_column_does_not_pay():
    data = experiment1(55, 50, 10, random_state=0)
    X = np.hstack([data.X, data.X[:, :5] * 1.0])
    design = make_design(X, data.y)
    once = score(design, np.arange(10))
    for copies in ([50], [50, 52], [50, 51, 52, 53, 54]):
        assert score(design, [*range(10), *copies]).value > once.value + 1.0
    model = SoULinearRegression(choice="path").fit(X, data.y)  # of equal columns the first is kept
    assert model.selected_[:10].all()
    assert model.selected_[10:].sum() <= 1


def test_blocks_with_a_plain_prior_do_not_count_as_signals():
    """They cost a degree of freedom, but neither a density nor a price."""
    data = experiment1(55, 50, 10, random_state=1)
    design, sparse = make_design(data.X, data.y), np.arange(50) >= 5
    value = criterion._score(design, np.arange(5), sparse, sparse, False).value
    Z = data.X[:, :5]
    rss = data.y @ data.y - data.y @ Z @ np.linalg.lstsq(Z, data.y, rcond=None)[0]
    expected = 50 * np.log(np.pi * rss) - 2 * gammaln(25) + np.linalg.slogdet(Z.T @ Z)[1]
    assert value == pytest.approx(expected, rel=1e-9)


def test_a_support_without_degrees_of_freedom_is_never_chosen():
    data = experiment1(25, 20, 10, random_state=0)
    design = make_design(data.X[:20], data.y[:20])
    supports = [np.arange(18), np.arange(19), np.arange(12)]
    assert criterion.choose_support(design, supports, *everything(20), False)[0] == 2
    # if every support leaves too few, the smallest
    assert criterion.choose_support(design, supports[:2], *everything(20), False)[0] == 0
    assert criterion.choose_support(design, supports[1::-1], *everything(20), False)[0] == 1


def test_pure_noise_is_mostly_left_alone():
    """A first column needs z^2 of about 9: P(max of 40 null z^2 > 9) is 0.1."""
    kept = []
    for seed in range(20):
        rng = np.random.default_rng([seed, 5])
        fit = SoULinearRegression(choice="path").fit(
            rng.standard_normal((100, 40)), rng.standard_normal(100)
        )
        kept.append(fit.selected_.any())
    assert np.sum(kept) <= 6  # P(more) is about 0.003 at 0.12
    means = SoUNormalMeans().fit(np.random.default_rng(3).standard_normal((100, 5)))
    assert means.selected_.sum() <= 1


def test_search_degrees_against_simulation():
    """E[z^2 - 1; z^2 > t] summed over the nulls."""
    z2 = np.random.default_rng(0).chisquare(1, size=2_000_000)
    for t in (3.0, 6.0, 9.0):
        gain = np.where(z2 > t, z2 - 1, 0.0)
        error = 80 * gain.std() / np.sqrt(len(gain))
        assert criterion.search_degrees(t, 80) == pytest.approx(80 * gain.mean(), abs=4 * error)


def test_evidence_of_ridge_regression_is_a_marginal_likelihood():
    """On the scale of the score of a support: sigma under 1/sigma^2 integrated by quadrature."""
    rng = np.random.default_rng(1)
    X, y, P = rng.standard_normal((8, 3)), rng.standard_normal(8), 0.4
    K = np.eye(8) + P * X @ X.T
    found = criterion.dense_evidence(8, float(y @ np.linalg.solve(K, y)), np.linalg.slogdet(K)[1])

    def density(log_v):  # p(y | v) d(log v), which is the prior 1/v
        return stats.multivariate_normal(cov=np.exp(log_v) * K).pdf(y)

    mass, _ = integrate.quad(density, -15, 15, limit=200)
    assert found == pytest.approx(np.log(mass), rel=1e-6)


def test_evidence_of_a_support_is_its_score():
    data = experiment1(55, 50, 10, random_state=0)
    design = make_design(data.X, data.y)
    found = criterion.support_evidence(design, np.arange(10), *everything(50), False)
    assert found == -0.5 * score(design, np.arange(10)).value
