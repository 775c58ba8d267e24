"""The simulated designs against their definition in the paper."""

import numpy as np
import pytest

from soubayes.datasets import (
    correlated_design,
    experiment1,
    experiment2,
    experiment3,
    normal_means,
    oracle_coef,
    prediction_rmse,
    sine,
    weak_design,
    wide_design,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: experiment1(55, 50, 20, random_state=seed),
        lambda seed: experiment2(60, 50, 20, random_state=seed),
        lambda seed: experiment3(0.4, random_state=seed),
        lambda seed: correlated_design(random_state=seed),
        lambda seed: wide_design(random_state=seed),
        lambda seed: weak_design(random_state=seed),
    ],
    ids=["1", "2", "3", "correlated", "wide", "weak"],
)
def test_a_seed_gives_one_data_set_with_unit_noise(make):
    first, again, other = make(1), make(1), make(2)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.X, other.X)
    noise = np.concatenate([make(s).y - make(s).X @ make(s).coef for s in range(40)])
    assert abs(noise.mean()) < 4 / np.sqrt(len(noise))
    assert abs(noise.var() - 1) < 4 * np.sqrt(2 / len(noise))


def test_coefficients_of_the_papers_experiments():
    np.testing.assert_array_equal(experiment1(55, 50, 20).coef[:21], [*range(1, 11)] * 2 + [0])
    np.testing.assert_array_equal(experiment2(24, 20, 10).coef[:11], [2] * 8 + [5, 20, 0])
    coef = np.concatenate([experiment3(0.3, random_state=s).coef for s in range(200)])
    share = np.mean(coef != 0)
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(coef))
    # |t_2| exceeds sqrt(2) with probability 1 - sqrt(2)/2: P(|T| > t) = 1 - t/sqrt(2 + t^2)
    tail = np.mean(np.abs(coef[coef != 0]) > np.sqrt(2))
    assert abs(tail - (1 - np.sqrt(0.5))) < 4 * np.sqrt(0.25 / np.sum(coef != 0))


def test_correlated_columns_are_stationary():
    X = np.vstack([correlated_design(random_state=s).X for s in range(50)])
    error = 4 * np.sqrt(2 / len(X)) * 1.5
    assert np.abs(X.var(axis=0) - 1).max() < error
    lag1 = np.mean(X[:, 1:] * X[:, :-1], axis=0)
    assert np.abs(lag1 - 0.7).max() < error


def test_oracle_is_least_squares_on_the_support():
    data = experiment1(25, 20, 10, random_state=4)
    A = data.X[:, :10]
    expected = np.linalg.solve(A.T @ A, A.T @ data.y)
    np.testing.assert_allclose(oracle_coef(data)[:10], expected, rtol=1e-10)
    assert not oracle_coef(data)[10:].any()
    fresh = np.random.default_rng(0).standard_normal((200_000, 20))
    error = fresh @ (oracle_coef(data) - data.coef)
    noise = np.random.default_rng(1).standard_normal(200_000)
    simulated = np.sqrt(np.mean((error + noise) ** 2))
    assert prediction_rmse(oracle_coef(data), data.coef) == pytest.approx(simulated, rel=0.01)


def test_normal_means_and_sine():
    data = normal_means(random_state=3)
    assert abs((data.Y - data.coef[:, None]).std() - 1) < 4 / np.sqrt(2 * data.Y.size)
    curve = sine(2000, random_state=3)
    assert curve.X.min() >= -4
    assert curve.X.max() <= 4
    np.testing.assert_array_equal(curve.truth, np.sin(curve.X[:, 0]))
    assert abs((curve.y - curve.truth).std() - 0.2) < 4 * 0.2 / np.sqrt(2 * 2000)


def test_too_many_signals():
    with pytest.raises(ValueError, match="between 0 and p = 20"):
        experiment1(25, 20, 21)
