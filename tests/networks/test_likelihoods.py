"""The losses and the KL of the noise precision, against SciPy."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from soubayes.networks.likelihoods import (
    categorical_loss,
    gaussian_kl,
    gaussian_loss,
    init_noise,
    noise_prior,
)


def test_gaussian_loss_and_kl_against_monte_carlo():
    prior = noise_prior(6.0, np.array([6.0, 2.0]), n=30, confidence=1.0)
    noise = {"log_rate": np.log(np.array([9.0, 4.0], np.float32))}
    a = 6 + 30 / 2
    assert float(prior.shape) == a
    rng = np.random.default_rng(0)
    phi = rng.gamma(a, 1 / np.array([9.0, 4.0]), size=(200_000, 2))
    y, f = np.array([[0.3, -1.0]], np.float32), np.array([[0.1, 0.5]], np.float32)
    losses = -stats.norm.logpdf(y, f, 1 / np.sqrt(phi)).sum(axis=1)
    loss = float(gaussian_loss(f, y, noise, prior)[0])
    assert loss == pytest.approx(losses.mean(), abs=5 * losses.std() / np.sqrt(len(phi)))
    terms = (
        stats.gamma.logpdf(phi, a, scale=1 / np.array([9.0, 4.0]))
        - stats.gamma.logpdf(phi, 6, scale=1 / np.array([6.0, 2.0]))
    ).sum(axis=1)
    kl = float(gaussian_kl(noise, prior))
    assert kl == pytest.approx(terms.mean(), abs=5 * terms.std() / np.sqrt(len(phi)))


def test_confidence_tempers_the_shape_of_the_noise():
    prior = noise_prior(1.0, np.array([0.01]), n=100, confidence=4.0)
    assert float(prior.shape) == 1 + 100 / 8
    start = init_noise(prior)["log_rate"]
    np.testing.assert_allclose(prior.shape / np.exp(start), 1.0, rtol=1e-5)


def test_kl_of_the_noise_keeps_its_digits_for_many_rows():
    n = 10_000_000
    prior = noise_prior(1.0, np.array([0.01]), n=n, confidence=1.0)
    a, b, b0 = 1 + n / 2, 0.04 * n / 2, 0.01
    rng = np.random.default_rng(0)
    phi = rng.gamma(a, 1 / b, size=100_000)
    terms = stats.gamma.logpdf(phi, a, scale=1 / b) - stats.gamma.logpdf(phi, 1, scale=1 / b0)
    kl = float(gaussian_kl({"log_rate": np.log(np.array([b], np.float32))}, prior))
    assert kl == pytest.approx(terms.mean(), abs=5 * terms.std() / np.sqrt(len(phi)) + 1e-3)


def test_categorical_loss():
    outputs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    y = np.array([0, 3, 2, 1, 1, 0], np.int32)
    expected = -log_softmax(outputs, axis=1)[np.arange(6), y]
    np.testing.assert_allclose(categorical_loss(outputs, y), expected, rtol=1e-5)
