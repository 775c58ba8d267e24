"""Residuals that contradict their family."""

import numpy as np
import pytest
from scipy.special import polygamma

from soubayes import SoUGammaRegression, SoUNegativeBinomialRegression, SoUPoissonRegression
from soubayes.sparse.likelihoods.gamma import Gamma
from soubayes.sparse.likelihoods.poisson import Poisson

ROWS, COLUMNS = 100, 20


def lognormal(rng):
    return np.exp(1.5 * rng.standard_normal(ROWS))


def mixed_counts(rng):
    return rng.poisson(np.exp(1.0 + 1.2 * rng.standard_normal(ROWS)))


def test_noise_of_another_family_selects_no_more_than_that_of_the_family():
    """Of 15 lognormal tables 12 selected a column before, 2 do now."""
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((ROWS, COLUMNS)), lognormal(rng)
        found.append(SoUGammaRegression(choice="path").fit(X, y).selected_.any())
    assert np.sum(found) <= 3  # P(more) is .01 at a chance of .13


@pytest.mark.parametrize(
    ("kind", "draw", "instead"),
    [
        (SoUGammaRegression, lognormal, r"log\(y\)"),
        (SoUPoissonRegression, mixed_counts, "SoUNegativeBinomialRegression"),
    ],
)
def test_the_summary_names_what_to_take(kind, draw, instead):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((ROWS, 4)), draw(rng)
    model = kind(choice="path").fit(X, y)
    assert model.dispersion_factor_ > 1.5
    assert "contradict" in model.summary().columns.name
    assert instead.replace("\\", "") in model.summary().columns.name


def test_variances_of_every_candidate_are_multiplied():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((ROWS, 4))
    y = np.exp(X[:, 0] + 1.5 * rng.standard_normal(ROWS))
    model = SoUGammaRegression().fit(X, y)
    factors = {part.dispersion for part in model.mixtures_[0].components}
    assert len(factors) == 1
    (phi,) = factors
    fit = model.sparse_
    k, eta = fit.likelihood_.shape, fit.intercept_ + X @ fit.coef_
    square = (y / np.exp(eta) - 1.0) ** 2 / k.moment(-1.0)
    left = ROWS - 1 - fit.selected_.sum()
    again = square.sum() / left + square.std() * np.sqrt(ROWS / left) / np.sqrt(ROWS)
    assert phi == pytest.approx(again, rel=0.05)  # of the refit before it is polished
    # information of the rows at the fit: k for each, the spread of the predictor apart
    assert fit.intercept_sd_**2 == pytest.approx(phi / (ROWS * k.moment(1.0)), rel=0.5)


def test_data_of_the_family_have_the_factor_one():
    families = {
        SoUGammaRegression: lambda rng, mean: rng.gamma(2.0, mean / 2.0),
        SoUPoissonRegression: lambda rng, mean: rng.poisson(mean),
        SoUNegativeBinomialRegression: lambda rng, mean: rng.poisson(
            mean * rng.gamma(1.0, 1.0, ROWS)
        ),
    }
    for kind, draw in families.items():
        found = []
        for seed in range(4):
            rng = np.random.default_rng([seed, 3])
            X = rng.standard_normal((ROWS, 5))
            model = kind(choice="path").fit(X, draw(rng, np.exp(1.0 + 0.5 * X[:, 0])))
            found.append(model.dispersion_factor_)
        assert np.sort(found)[:3].max() == 1.0  # one of four beyond two standard errors: P is .1


def test_variance_of_the_squared_residuals():
    """By simulation, with the mean and the shape fitted."""
    rng, n = np.random.default_rng(0), 400
    y = rng.gamma(3.0, 1.0 / 3.0, (4000, n))
    mean, gap = y.mean(axis=1), np.log(y.mean(axis=1)) - np.log(y).mean(axis=1)
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)  # Minka's start
    for _ in range(4):
        slope = np.log(shape) - polygamma(0, shape) - gap
        shape = shape - slope / (1.0 / shape - polygamma(1, shape))
    phi = shape * ((y / mean[:, None] - 1.0) ** 2).mean(axis=1)
    assert Gamma.of(None).residual_variance > 0.0
    likelihood = Gamma.of(None)
    likelihood.shape = type(likelihood.shape)(np.log(3.0), 0.01, 0.0, 2.0)
    assert n * phi.var() == pytest.approx(likelihood.residual_variance, rel=0.1)
    counts = rng.poisson(2.0, (4000, n))
    mean = counts.mean(axis=1)
    phi = ((counts - mean[:, None]) ** 2).mean(axis=1) / mean
    assert n * phi.var() == pytest.approx(Poisson().residual_variance, rel=0.1)
