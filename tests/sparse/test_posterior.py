"""Weights, scoring, recalibration and mixtures, recomputed by hand or by simulation."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from soubayes.sparse.choice.race import PATH, Candidate, _Race
from soubayes.sparse.choice.scoring import (
    FOLD_MOMENTS,
    NUMBERS,
    HeldOut,
    pooled_variance,
    predictive_weights,
    robust_scale,
    score_classes,
    score_numbers,
    temperature,
)
from soubayes.sparse.least_squares.dial import LEAST_SQUARES_DIAL, RIDGE
from soubayes.sparse.posterior import Component, LowRankPosterior, Mixture, Posterior, centred


def normal(mean, covariance):
    mean, covariance = np.asarray(mean, float), np.asarray(covariance, float)
    return Posterior(mean, np.diag(covariance).copy(), np.arange(len(mean)), covariance)


def said(mean, variance):
    """With the noise of all folds alike."""
    return HeldOut.of_numbers(mean, variance, np.ones_like(mean))


def square(off, variance, weight=None):
    """The mean of off^2/variance, as normal noise is recalibrated by it."""
    weight = np.ones(len(off)) if weight is None else weight
    return robust_scale((off / np.sqrt(variance))[:, None], weight, np.inf)[0]


@pytest.fixture
def mixture():
    one = normal([1.0, -2.0], [[1.0, 0.3], [0.3, 0.5]]).joined(0.5, 0.2)
    two = normal([3.0, 0.0], [[0.2, 0.0], [0.0, 0.1]]).joined(1.5, 0.1)
    return Mixture((Component(one, 0.4, 6.0, 0.3, 1.5), Component(two, 0.9, 9.0, 0.7, 1.0)))


def test_a_mixture_has_the_moments_of_its_draws(mixture):
    draws, noise = mixture.sample(200_000, np.random.default_rng(0))
    np.testing.assert_allclose(mixture.mean, draws.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(mixture.covariance(), np.cov(draws.T), atol=0.03)
    np.testing.assert_allclose(mixture.sd**2, np.diag(mixture.covariance()))
    rows = np.array([[0.3, -1.0, 1.0]])
    np.testing.assert_allclose(mixture.spread(rows), (draws @ rows[0]).var(), rtol=0.02)
    found = mixture.predictor_quantiles(rows, np.array([0.1, 0.5, 0.9]))[0]
    parts = [part.posterior for part in mixture.components]
    for level, at in zip((0.1, 0.5, 0.9), found, strict=True):  # Student's t with 12 and 18 degrees
        below = [
            stats.t.cdf((at - rows[0] @ q.mean) / np.sqrt(q.spread(rows)[0]), degrees)
            for q, degrees in zip(parts, (12.0, 18.0), strict=True)
        ]
        assert mixture.weights @ below == pytest.approx(level)
    expected = 0.3 * 0.4 * 6.0 / 5.0 + 0.7 * 0.9 * 9.0 / 8.0
    assert noise.mean() == pytest.approx(expected, rel=0.02)


def test_predictions_are_recalibrated_mixtures(mixture):
    rng = np.random.default_rng(1)
    rows = np.array([[1.0, 0.5, 1.0], [-1.0, 0.0, 1.0]])
    each, tailed = [], []
    for part, count in zip(mixture.components, (60_000, 140_000), strict=True):
        centre = rows @ part.posterior.mean
        sd = np.sqrt(part.inflation * (part.posterior.spread(rows) + part.noise))
        each.append(centre + sd * rng.standard_normal((count, 2)))
        # the noise is estimated: quantiles are of Student's t with the degrees of that estimate
        tailed.append(centre + sd * rng.standard_t(2.0 * part.noise_shape, (count, 2)))
    draws = np.concatenate(each)
    mean, variance = mixture.predict(rows)
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(variance, draws.var(axis=0), rtol=0.02)
    found = mixture.quantiles(rows, np.array([0.05, 0.5, 0.95]))
    drawn = np.quantile(np.concatenate(tailed), [0.05, 0.5, 0.95], axis=0).T
    np.testing.assert_allclose(found, drawn, atol=0.04)


def test_a_joined_coefficient_is_independent():
    rng = np.random.default_rng(0)
    X, D = rng.normal(size=(3, 5)), np.exp(rng.normal(size=5))
    lower = np.linalg.cholesky(np.eye(3) + (X * D) @ X.T)
    inverse = np.linalg.inv(lower)
    wide = LowRankPosterior(np.arange(5.0), D, X, D, inverse, inverse).joined(7.0, 0.5)
    S = wide.full()
    np.testing.assert_allclose(S[:5, :5], np.linalg.inv(np.diag(1 / D) + X.T @ X))
    np.testing.assert_allclose(S[5], [0, 0, 0, 0, 0, 0.5])
    rows = rng.normal(size=(4, 6))
    np.testing.assert_allclose(wide.times(rows), rows @ S, atol=1e-12)
    some = Posterior(np.zeros(3), np.array([2.0, 9.0, 3.0]), np.array([0, 2]), S[:2, :2], D[:3])
    np.testing.assert_allclose(some.times(rows[:, :3])[:, 1], rows[:, 1] * 9.0 * D[1] ** 2)
    np.testing.assert_allclose(some.times(rows[:, :3])[:, ::2], rows[:, :3] @ some.full()[:, ::2])
    draws = wide.sample(100_000, rng)
    np.testing.assert_allclose(np.cov(draws.T), S, atol=0.15)
    moved = wide.at(np.zeros(6))
    assert moved.mean.sum() == 0.0
    assert wide.mean[5] == 7.0


def test_weights_and_recalibration():
    scores = np.log(stats.norm.pdf(np.array([[0.1, 0.5], [-0.2, 1.5], [0.0, 0.4]])))
    weights = predictive_weights(scores, 0.3)
    ratio = np.exp(0.3 * (scores[:, 0] - scores[:, 1]).sum())
    assert weights[0] / weights[1] == pytest.approx(ratio)
    assert square(np.array([1.0, 3.0]), np.array([1.0, 1.0]), np.array([3.0, 1.0])) == 3.0
    narrow = score_numbers(np.array([0.1]), said(np.zeros((1, 1)), np.ones((1, 1))), np.ones(1))
    assert narrow.scale[0] == 1.0
    rng = np.random.default_rng(0)
    odds = rng.normal(size=4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-2.5 * odds))).astype(float)
    log_p = -np.logaddexp(0.0, np.column_stack([odds, -odds]))
    power = temperature(log_p, y.astype(int), np.ones(4000))
    assert power == pytest.approx(2.5, rel=0.1)
    # of two classes it is the power of the odds, with the same prior
    grid = np.linspace(0.5, 1.3, 8001)
    signed = np.where(y > 0.5, -odds, odds)
    loss = [np.logaddexp(0.0, np.exp(t) * signed).sum() + t * t / 2.0 for t in grid[::100]]
    assert abs(np.log(power) - grid[::100][np.argmin(loss)]) < 0.011


def test_an_outlier_is_compared_with_the_noise_that_has_paid_for_it():
    """Least squares with every row held out once; the fit to all rows is recalibrated."""
    rng = np.random.default_rng(4)
    n, p = 60, 12
    X = rng.normal(size=(n, p))
    X[5] *= 20.0  # of high leverage, and an outlier in the second table
    for size in (1e3, 1e6):
        for row in (7, 5):
            y = X[:, 0] + rng.normal(size=n)
            y[row] += size
            off, variance, noise = np.empty((3, n, 1))
            for fold in np.array_split(rng.permutation(n), 10):
                kept = np.setdiff1d(np.arange(n), fold)
                b, rss = np.linalg.lstsq(X[kept], y[kept])[:2]
                cross = np.linalg.inv(X[kept].T @ X[kept])
                noise[fold, 0] = rss[0] / (len(kept) - p)
                leverage = np.einsum("ij,jk,ik->i", X[fold], cross, X[fold])
                off[fold, 0] = y[fold] - X[fold] @ b
                variance[fold, 0] = noise[fold, 0] * (1.0 + leverage)
            level = pooled_variance(variance, noise, np.ones(n))
            assert square(off[:, 0], level[:, 0]) < 1.5**2  # 1.5 in the sd
            assert square(off[:, 0], variance[:, 0]) > 100.0  # what was done before
    alike = np.full((n, 1), 3.0)
    np.testing.assert_array_equal(pooled_variance(variance, alike, np.ones(n)), variance)


def test_few_rows_that_make_most_of_the_square_are_not_settled():
    y = np.random.default_rng(0).normal(size=50)
    calm = score_numbers(y, said(np.zeros((50, 1)), np.ones((50, 1))), np.ones(50))
    y[[3, 8, 30]] = 20.0
    wild = score_numbers(y, said(np.zeros((50, 1)), np.ones((50, 1))), np.ones(50))
    assert calm.settled
    assert not wild.settled


def test_scores_of_numbers_and_classes():
    y, mean = np.array([0.0, 1.0, 2.0]), np.array([[0.0, 3.0], [1.0, 3.0], [2.0, 3.0]])
    found = score_numbers(y, said(mean, np.ones((3, 2))), np.ones(3))
    assert found.weights[0] > found.weights[1]
    np.testing.assert_allclose(found.scale, [1.0, (9 + 4 + 1) / 3])
    np.testing.assert_allclose(found.mean, mean @ found.weights)
    labels = np.array([1.0, 0.0])
    odds = np.array([[2.0, 0.0], [-2.0, 0.0]])
    each = -np.logaddexp(0.0, np.stack([odds, -odds], axis=2))
    classes = score_classes(labels, HeldOut.of_classes(each), np.ones(2))
    expected = classes.weights @ [1 / (1 + np.exp(-2.0)), 0.5]
    mixed = np.log(expected / (1 - expected))
    assert classes.mean[0] == pytest.approx(
        1 / (1 + np.exp(-classes.recalibration.temperature * mixed))
    )


def test_scores_of_numbers_are_those_of_a_fitted_t():
    rng = np.random.default_rng(2)
    y, mean = rng.standard_t(3, size=60), 0.3 * rng.normal(size=(60, 2))
    variance, weight = np.exp(rng.normal(size=(60, 2))), rng.integers(1, 4, size=60).astype(float)
    found = score_numbers(y, said(mean, variance), weight)
    for k in range(2):
        z = (y - mean[:, k]) / np.sqrt(variance[:, k])
        grid = np.linspace(1.0, 6.0, 5001)[:, None]  # of the scale; at least 1
        totals = (stats.t.logpdf(z, 5, scale=grid) * weight).sum(axis=1)
        assert found.scores[:, k].sum() == pytest.approx(
            totals.max() - weight @ np.log(variance[:, k]) / 2, abs=1e-4
        )


def test_one_outlier_does_not_decide():
    """Candidate 0 is better in 39 rows; in one row both are far off, it a little more."""
    rng = np.random.default_rng(3)
    y = np.append(0.5 * rng.normal(size=39), 30.0)
    mean = np.column_stack([np.zeros(40), np.append(rng.choice([-1.0, 1.0], 39), 8.0)])
    robust = score_numbers(y, said(mean, np.ones((40, 2))), np.ones(40))
    normal_ones = FOLD_MOMENTS.score(y, said(mean, np.ones((40, 2))), np.ones(40), 1.0)
    assert robust.weights[0] > 0.9
    assert normal_ones.weights[0] < 0.5


def test_rows_are_centred_with_or_without_an_intercept(mixture):
    rows = centred(np.array([[1.0, 2.0]]), np.array([0.5, 0.5]), mixture)
    np.testing.assert_allclose(rows, [[0.5, 1.5, 1.0]])
    plain = Mixture((Component(normal([1.0, 2.0], np.eye(2))),))
    assert centred(np.ones((3, 2)), np.zeros(2), plain).shape == (3, 2)


@pytest.mark.parametrize(("rows", "at_once"), [(8, False), (40, True)])
def test_a_dense_end_is_seen_on_two_folds_unless_it_is_hopeless(rows, at_once):
    """Some rows of one fold may speak against ridge regression, but not all of them."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=80)
    labels = [PATH, Candidate.of(RIDGE), Candidate.of(LEAST_SQUARES_DIAL[2])]
    assert [each.dense for each in labels] == [False, True, False]
    task = SimpleNamespace(targets=[y], weight=np.ones(80))
    race = _Race(task, labels, NUMBERS, 1)
    good = HeldOut.of_numbers(y + 0.1, np.ones(80), np.ones(80))
    bad = good._replace(mean=y + np.where(np.arange(80) % 40 < rows, 3.0, 0.1))
    said = [{PATH.name: good, RIDGE.name: bad, LEAST_SQUARES_DIAL[2].name: bad}]
    for number, rows in enumerate((np.arange(40), np.arange(40, 80))):
        part = {name: each.take(rows) for name, each in said[0].items()}
        race.keep(number, rows, [part])
        race.leave_behind(2.0, number + 1)
        assert race.left[0].tolist() == [True, number == 0 and not at_once, False]
