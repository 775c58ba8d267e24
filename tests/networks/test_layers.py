"""KL terms and moments, recomputed by Monte Carlo and by sampled weights."""

from functools import partial

import jax
import numpy as np
import pytest
from scipy import signal, stats

from noisy_network import network, noisy_layers
from soubayes.networks import layers as layers_module
from soubayes.networks.layers import kl_half_cauchy, kl_normal, mean_weights, unit_scales
from soubayes.networks.prediction import draw_weights, forward_weights
from soubayes.networks.structure import Conv, Pool, Residual, Spec

NONE = np.arange(0)  # inputs of a gated layer where there is none
kl_terms = jax.jit(layers_module.kl_terms, static_argnums=0)


@partial(jax.jit, static_argnums=0)  # one compilation, not one an operation
def forward(spec, layers, inputs, x, key):
    noise = layers_module.draw_noise(spec, layers, len(x), key)
    return layers_module.forward(spec, inputs, x, layers_module.Drawn(spec, layers, noise))


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
    for block, widths in {"local": [1.0, 1.0, 0.0], "global": [0.1, 0.1, 1.0]}.items():
        parts = [
            kl_half_cauchy(layer[f"{block}_mean"], layer[f"{block}_log_sd"], width).sum()
            for layer, width in zip(layers, widths, strict=True)
            if f"{block}_mean" in layer
        ]
        assert kl[block] == pytest.approx(float(sum(parts)), rel=1e-5)
    assert (kl["local"] > 0) == (prior == "horseshoe")
    assert (kl["global"] > 0) == (prior == "horseshoe" or output_scale)


def test_a_convolution_with_a_confidence_is_a_block_of_its_own():
    shapes = [Conv(3, 2), Conv(3, 2, confidence=5.0)]
    together, apart = (Spec(((6, 1), conv, 2, 1)) for conv in shapes)
    layers = noisy_layers(together)
    one, two = kl_terms(together, layers), kl_terms(apart, layers)
    own = kl_normal(layers[0]["mean"], layers[0]["log_sd"], 1.0).sum()
    assert float(two["conv_1"]) == pytest.approx(float(own), rel=1e-5)
    assert float(one["weights"]) == pytest.approx(float(two["weights"] + own), rel=1e-5)
    assert apart.blocks == ("weights", "conv_1", "local", "global")


def test_local_reparametrisation_has_the_moments_of_sampled_weights():
    """One hidden-free comparison a layer: outputs of a one-layer stack, scales included."""
    spec = Spec((3, 2), prior="horseshoe")  # the output layer alone, with its scale
    layers = noisy_layers(spec)
    x = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 20_000)
    local = np.asarray(jax.jit(jax.vmap(lambda key: forward(spec, layers, NONE, x, key)))(keys))
    rng = np.random.default_rng(2)
    small = network(spec, layers)
    direct = np.stack([forward_weights(small, draw_weights(layers, rng), x) for _ in range(20_000)])
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
    sampled = forward(spec, layers, NONE, x, jax.random.key(0))
    np.testing.assert_allclose(sampled, by_hand, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        forward_weights(network(spec, layers), mean_weights(layers), x),
        by_hand,
        rtol=1e-4,
        atol=1e-5,
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


def silent(layers):
    """The layers with standard deviations so small that a draw is the mean."""
    return [
        {n: np.full_like(v, -20.0) if "log_sd" in n else v for n, v in layer.items()}
        for layer in layers
    ]


def test_residual_layers_add_to_what_they_read():
    spec = Spec((3, 4, Residual(), Residual(), 2), activation="tanh")
    layers = noisy_layers(spec)
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    weights = mean_weights(layers)

    def affine(h, w):
        return h @ w[:-1] + w[-1]

    h = np.tanh(affine(x, weights[0]))
    for w in weights[1:3]:
        h = h + np.tanh(affine(h, w))
    found = forward_weights(network(spec, layers), weights, x.copy())
    np.testing.assert_allclose(found, affine(h, weights[3]), rtol=1e-5, atol=1e-5)
    for layer in layers:  # a posterior without spread: a draw is the mean
        for name, value in layer.items():
            layer[name] = np.full_like(value, -20.0) if name.endswith("log_sd") else value
    drawn = forward(spec, layers, NONE, x, jax.random.key(0))
    weights = mean_weights(layers)
    found = forward_weights(network(spec, layers), weights, x.copy())
    np.testing.assert_allclose(drawn, found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pruned", [False, True])
def test_outputs_may_read_the_columns_of_x(pruned):
    spec = Spec((4, 3, 2), skip=True, prune_inputs=pruned)
    layers = silent(noisy_layers(spec))
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    t = np.exp(layers[0]["input_mean"] / 2) if pruned else 1.0
    first = np.exp((layers[0]["local_mean"] + layers[0]["global_mean"]) / 2) * (
        (x * t) @ layers[0]["mean"][:-1] + layers[0]["mean"][-1]
    )
    last = layers[1]["mean"]
    linear = x @ last[3:7]
    by_hand = np.exp(layers[1]["global_mean"] / 2) * (
        np.maximum(first, 0) @ last[:3] + linear + last[7]
    )
    sampled = forward(spec, layers, np.arange(4) if pruned else NONE, x, jax.random.key(0))
    np.testing.assert_allclose(sampled, by_hand, rtol=1e-4, atol=1e-5)
    direct = forward_weights(network(spec, layers), mean_weights(layers), x)
    np.testing.assert_allclose(direct, by_hand, rtol=1e-3, atol=1e-4)
    assert spec.cost([2, 2], reads=3 if pruned else 0)[1] == (
        (3 + 1) * 2 + (2 + 3 + 1) * 2 if pruned else (4 + 1) * 2 + (2 + 4 + 1) * 2
    )


def test_inputs_carry_their_own_scale():
    spec = Spec((4, 3, 2), prune_inputs=True)
    layers = silent(noisy_layers(spec))
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    t = np.exp(layers[0]["input_mean"] / 2)
    first = np.exp((layers[0]["local_mean"] + layers[0]["global_mean"]) / 2) * (
        (x * t) @ layers[0]["mean"][:-1] + layers[0]["mean"][-1]
    )
    by_hand = np.exp(layers[1]["global_mean"] / 2) * (
        np.maximum(first, 0) @ layers[1]["mean"][:-1] + layers[1]["mean"][-1]
    )
    sampled = forward(spec, layers, np.arange(4), x, jax.random.key(0))
    np.testing.assert_allclose(sampled, by_hand, rtol=1e-4, atol=1e-5)
    kl = kl_terms(spec, layers)["local"]
    parts = [
        kl_half_cauchy(layers[0][f"{part}_mean"], layers[0][f"{part}_log_sd"], 1.0).sum()
        for part in ("input", "local")
    ]
    assert float(kl) == pytest.approx(float(sum(parts)), rel=1e-6)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((6, 7, 2), (Conv(3, 3), Pool(2), Conv(4, 2), 3)),
        ((9, 2), (Conv(3, 4), Pool(2), 3)),
        ((6, 7, 2), (Conv(3, 3, padding="same"), Pool(2), Conv(4, 2, stride=2), 3)),
        ((9, 2), (Conv(3, 4, padding="same", stride=2), 3)),
    ],
    ids=["2-D", "1-D", "same and stride, 2-D", "same and stride, 1-D"],
)
def test_convolutions_against_correlation(shape, layout):
    """Every channel by scipy.signal.correlate, pooling by hand, features in the order of places."""
    spec = Spec((shape, *layout, 2))
    layers = silent(noisy_layers(spec))
    x = np.random.default_rng(1).normal(size=(5, *shape)).astype(np.float32)
    hidden = x
    for step, layer in zip(spec.steps, layers, strict=True):
        scale = np.exp((layer.get("local_mean", 0) + layer["global_mean"]) / 2)
        if step.kernel:
            every = (slice(None, None, step.stride),) * len(step.space)
            around = [(0, 0)] * len(step.space)
            if step.same:  # as many places as fit at this stride, an odd zero comes last
                wanted = [-(-side // step.stride) for side in step.space]
                total = [
                    max(0, (n - 1) * step.stride + step.kernel - side)
                    for n, side in zip(wanted, step.space, strict=True)
                ]
                around = [(count // 2, count - count // 2) for count in total]
            kernels = layer["mean"][:-1].reshape(*[step.kernel] * len(step.space), -1, step.units)
            channels = [
                [
                    sum(
                        signal.correlate(np.pad(row[..., c], around), kernels[..., c, k], "valid")[
                            every
                        ]
                        for c in range(row.shape[-1])
                    )
                    for k in range(step.units)
                ]
                for row in hidden
            ]
            hidden = np.moveaxis(np.array(channels), 1, -1)
            hidden = np.maximum(scale * (hidden + layer["mean"][-1]), 0)
            for axis in range(1, hidden.ndim - 1) if step.pool == 2 else ():
                even = 2 * (hidden.shape[axis] // 2)
                pairs = np.split(np.take(hidden, range(even), axis), even // 2, axis)
                hidden = np.concatenate([p.max(axis, keepdims=True) for p in pairs], axis)
        else:
            hidden = hidden.reshape(len(x), -1) * np.exp(layer.get("input_mean", 0) / 2)
            hidden = scale * (hidden @ layer["mean"][:-1] + layer["mean"][-1])
            hidden = np.maximum(hidden, 0) if step is not spec.steps[-1] else hidden
    flat = x.reshape(len(x), -1)
    sampled = forward(spec, layers, np.arange(spec.reads), flat, jax.random.key(0))
    np.testing.assert_allclose(sampled, hidden, rtol=1e-3, atol=1e-4)
    direct = forward_weights(network(spec, layers), mean_weights(layers), flat)
    np.testing.assert_allclose(direct, hidden, rtol=1e-3, atol=1e-4)


def test_drawn_convolutions_have_the_moments_of_sampled_weights():
    spec = Spec(((4, 4, 1), Conv(2, 2), 2), activation="tanh")
    layers = noisy_layers(spec)
    x = np.random.default_rng(1).normal(size=(2, 16)).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 20_000)
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda k: forward(spec, layers, np.arange(18), x, k)))(keys)
    )
    rng, small = np.random.default_rng(2), network(spec, layers)
    direct = np.stack([forward_weights(small, draw_weights(layers, rng), x) for _ in range(20_000)])
    error = np.sqrt((drawn.var(axis=0) + direct.var(axis=0)) / 20_000)
    assert (np.abs(drawn.mean(axis=0) - direct.mean(axis=0)) < 5 * error).all()
    spread = [np.subtract(*np.quantile(v, [0.75, 0.25], axis=0)) for v in (drawn, direct)]
    np.testing.assert_allclose(spread[0], spread[1], rtol=0.06)
