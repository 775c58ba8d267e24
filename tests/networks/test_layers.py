"""KL terms and moments, recomputed by Monte Carlo and by sampled weights."""

import jax
import numpy as np
import pytest
from scipy import stats

from noisy_network import noisy_layers
from soubayes.networks.layers import (
    Spec,
    forward,
    kl_half_cauchy,
    kl_normal,
    kl_terms,
    mean_weights,
    unit_scales,
)
from soubayes.networks.prediction import draw_weights, forward_weights


@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize(("mean", "sd"), [(-3.0, 0.2), (0.5, 1.0), (2.0, 2.0)])
def test_half_cauchy_kl_against_monte_carlo(scale, mean, sd):
    u = mean + sd * np.random.default_rng(0).normal(size=400_000)
    tau = np.exp(u / 2)
    log_prior = stats.halfcauchy.logpdf(tau, scale=scale) + np.log(tau / 2)  # |d tau / d u|
    terms = stats.norm.logpdf(u, mean, sd) - log_prior
    kl = kl_half_cauchy(np.float32(mean), np.float32(np.log(sd)), scale)
    assert float(kl) == pytest.approx(terms.mean(), abs=5 * terms.std() / np.sqrt(len(u)) + 1e-5)


def test_normal_kl_against_the_closed_form_of_densities():
    mean, sd, prior = 0.7, 0.3, 0.25
    w = mean + sd * np.random.default_rng(0).normal(size=400_000)
    terms = stats.norm.logpdf(w, mean, sd) - stats.norm.logpdf(w, 0, prior)
    kl = kl_normal(np.float32(mean), np.float32(np.log(sd)), prior)
    assert float(kl) == pytest.approx(terms.mean(), abs=5 * terms.std() / np.sqrt(len(w)))


@pytest.mark.parametrize("prior", ["horseshoe", "normal"])
@pytest.mark.parametrize("output_scale", [True, False])
def test_blocks_hold_the_sum_of_their_parts(prior, output_scale):
    spec = Spec((3, 4, 5, 2), prior=prior, output_scale=output_scale)
    layers = noisy_layers(spec)
    kl = {name: float(value) for name, value in kl_terms(spec, layers).items()}

    def normal(layer, sd):
        m, s = layer["mean"].astype(float), np.exp(layer["log_sd"].astype(float))
        return (np.log(sd / s) + (s**2 + m**2) / (2 * sd**2) - 0.5).sum()

    unit = [prior == "horseshoe", prior == "horseshoe", output_scale]
    prior_sds = [1.0 if u else 1 / np.sqrt(d) for u, d in zip(unit, (4, 5, 6), strict=True)]
    weights = sum(map(normal, layers, prior_sds))
    assert kl["weights"] == pytest.approx(weights, rel=1e-5)
    assert (kl["local"] > 0) == (prior == "horseshoe")
    assert (kl["global"] > 0) == (prior == "horseshoe" or output_scale)


def test_local_reparametrisation_has_the_moments_of_sampled_weights():
    """One hidden-free comparison a layer: outputs of a one-layer stack, scales included."""
    spec = Spec((3, 2), prior="horseshoe")  # the output layer alone, with its scale
    layers = noisy_layers(spec)
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 20_000)
    local = np.asarray(jax.vmap(lambda key: forward(spec, layers, x, key))(keys))
    rng = np.random.default_rng(2)
    direct = np.stack([forward_weights(spec, draw_weights(layers, rng), x) for _ in range(20_000)])
    error = np.sqrt((local.var(axis=0) + direct.var(axis=0)) / 20_000)
    assert (np.abs(local.mean(axis=0) - direct.mean(axis=0)) < 5 * error).all()
    # log-normal scales have heavy tails: compare the spread by quartiles
    spread = [np.subtract(*np.quantile(v, [0.75, 0.25], axis=0)) for v in (local, direct)]
    np.testing.assert_allclose(spread[0], spread[1], rtol=0.06)


def test_hidden_units_scale_their_bias_too():
    """With all standard deviations tiny, forward is the network of the mean weights."""
    spec = Spec((3, 4, 2))
    layers = noisy_layers(spec)
    for layer in layers:
        layer |= {n: np.full_like(v, -20.0) for n, v in layer.items() if "log_sd" in n}
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    by_hand = x
    for i, layer in enumerate(layers):
        tau_nu = np.exp((layer.get("local_mean", 0) + layer["global_mean"]) / 2)
        by_hand = tau_nu * (by_hand @ layer["mean"][:-1] + layer["mean"][-1])
        by_hand = np.maximum(by_hand, 0) if i == 0 else by_hand
    sampled = forward(spec, layers, x, jax.random.key(0))
    np.testing.assert_allclose(sampled, by_hand, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        forward_weights(spec, mean_weights(layers), x), by_hand, rtol=1e-4, atol=1e-5
    )


def test_expected_scale_and_weights_against_draws():
    layers = noisy_layers(Spec((2, 3, 1)))
    rng = np.random.default_rng(0)
    draws = np.stack([draw_weights(layers, rng)[0] for _ in range(20_000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - mean_weights(layers)[0]) < 5 * error).all()
    layer = layers[0]
    tau, nu = (
        np.exp(layer[f"{part}_mean"] / 2 + np.exp(2 * layer[f"{part}_log_sd"]) / 8)
        for part in ("local", "global")
    )
    np.testing.assert_allclose(unit_scales(layer), tau * nu, rtol=1e-6)
