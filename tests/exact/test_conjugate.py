"""Tempered conjugate updates against the exact engine and against the paper's formulas."""

import numpy as np
import pytest
from scipy import stats

from soubayes import Block, Model, conjugate_update, solve_exact

RNG = np.random.default_rng(0)
Y = RNG.normal(1, 2, size=6)
COUNTS = RNG.poisson(3, size=5).astype(float)
WAITS = RNG.exponential(2, size=5)
COIN = np.array([1.0, 1, 0, 1, 1, 0, 1])
CASES = {
    "normal": (Y, {"mean": 0.5, "sd": 1.5, "noise_sd": 2.0}, stats.norm(0.5, 1.5),
               lambda t: -stats.norm(t, 2.0).logpdf(Y)),
    "bernoulli": (COIN, {"a": 2.0, "b": 1.5}, stats.beta(2, 1.5),
                  lambda t: -(COIN * np.log(t) + (1 - COIN) * np.log1p(-t))),
    "poisson": (COUNTS, {"shape": 2.0, "rate": 0.7}, stats.gamma(2, scale=1 / 0.7),
                lambda t: t - COUNTS * np.log(t)),
    "exponential": (WAITS, {"shape": 2.5, "rate": 1.2}, stats.gamma(2.5, scale=1 / 1.2),
                    lambda t: t * WAITS - np.log(t)),
}  # fmt: skip


@pytest.mark.parametrize("gamma", [0.2, 1.0, 6.0])
@pytest.mark.parametrize("family", CASES)
def test_update_is_the_exact_posterior(family, gamma):
    data, parameters, prior, losses = CASES[family]
    update = conjugate_update(family, data, confidence=gamma, **parameters)
    model = Model([Block("t", prior)], lambda t: losses(t[..., None]).sum(axis=-1))
    exact = solve_exact(model, {"t": gamma})
    assert update.posterior.mean() == pytest.approx(exact.mean("t"), rel=1e-6)
    assert update.posterior.std() == pytest.approx(exact.sd("t"), rel=1e-6)
    n, size = len(data), update.effective_size - len(data) / gamma
    assert update.prior_weight == pytest.approx(gamma * size / (gamma * size + n))


@pytest.mark.parametrize("gamma", [0.3, 1.0, 4.0])
def test_normal_with_unknown_variance_is_the_exact_posterior(gamma):
    update = conjugate_update(
        "normal_unknown_variance", Y, confidence=gamma, mean=0.0, size=0.5, shape=2.0, scale=3.0
    )
    model = Model(
        [
            Block("variance", stats.invgamma(2.0, scale=3.0)),
            Block("mean", lambda v: stats.norm(0.0, np.sqrt(v / 0.5))),
        ],
        lambda v, m: -stats.norm(m[..., None], np.sqrt(v)[..., None]).logpdf(Y).sum(axis=-1),
    )
    exact = solve_exact(model, {"variance": gamma, "mean": gamma})
    for name in ("mean", "variance"):
        assert update.posterior[name].mean() == pytest.approx(exact.mean(name), rel=1e-5)
        assert update.posterior[name].ppf(0.8) == pytest.approx(exact.quantile(name, 0.8), rel=1e-3)


def test_multinomial_counts():
    update = conjugate_update(
        "multinomial", [[2, 0, 1], [1, 3, 0]], confidence=0.5, alpha=[1, 2, 1]
    )
    assert update.posterior.alpha == pytest.approx([1 + 6, 2 + 6, 1 + 2])
    assert update.effective_size == pytest.approx(4 + 7 / 0.5)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 7.0, np.inf])
def test_normal_normal_is_supplement_c3(gamma):
    mean, sd, noise = 0.5, 1.5, 2.0
    update = conjugate_update("normal", Y, confidence=gamma, mean=mean, sd=sd, noise_sd=noise)
    var = 1 / (len(Y) / (gamma * noise**2) + 1 / sd**2)
    assert update.posterior.var() == pytest.approx(var)
    centre = var * (len(Y) / (gamma * noise**2) * Y.mean() + mean / sd**2)
    assert update.posterior.mean() == pytest.approx(centre)
    assert update.prior_weight == pytest.approx(var / sd**2)


def test_bad_input_is_explained():
    with pytest.raises(ValueError, match="must be one of"):
        conjugate_update("cauchy", [1.0])
    with pytest.raises(TypeError, match=r"missing \['b'\]"):
        conjugate_update("bernoulli", [1, 0], a=1)
    with pytest.raises(ValueError, match="0 or 1"):
        conjugate_update("bernoulli", [0.5], a=1, b=1)
    with pytest.raises(ValueError, match="NaN"):
        conjugate_update("poisson", [np.nan], shape=1, rate=1)
    with pytest.raises(ValueError, match="sd is -1"):
        conjugate_update("normal", [1.0], mean=0, sd=-1, noise_sd=1)
    with pytest.raises(ValueError, match="greater than 0"):
        conjugate_update("poisson", [1], confidence=0, shape=1, rate=1)
    with pytest.raises(ValueError, match="3 categories"):
        conjugate_update("multinomial", [1, 2], alpha=[1, 1, 1])
