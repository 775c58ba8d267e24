"""Information of a unit, and removal that leaves the rest of a network alone."""

import numpy as np
import pytest

from noisy_network import noisy_layers
from soubayes.networks.compaction import (
    remove_units,
    size_after,
    unit_information,
    units_to_keep,
)
from soubayes.networks.layers import Spec, mean_weights
from soubayes.networks.prediction import forward_weights


def test_information_is_the_smallest_kl_over_the_scale():
    layers = noisy_layers(Spec((4, 3, 1)))
    (information,) = unit_information(layers)
    m, s = layers[0]["mean"].astype(float), np.exp(layers[0]["log_sd"].astype(float))
    scales = np.exp(np.linspace(-4, 4, 40_001))
    for k in range(3):
        c = scales[:, None]
        kl = np.log(c / s[:, k]) + (m[:, k] ** 2 + s[:, k] ** 2) / (2 * c**2) - 0.5
        assert information[k] == pytest.approx(kl.sum(axis=1).min(), abs=1e-4)


def test_information_ignores_the_scale_and_survives_tiny_deviations():
    layers = noisy_layers(Spec((4, 3, 1)))
    before = unit_information(layers)[0]
    layers[0]["mean"] = layers[0]["mean"] * np.float32(1e-12)
    layers[0]["log_sd"] = layers[0]["log_sd"] + np.float32(np.log(1e-12))
    np.testing.assert_allclose(unit_information(layers)[0], before, atol=1e-3)
    layers[0]["log_sd"] = np.full_like(layers[0]["log_sd"], -80.0)
    assert np.isfinite(unit_information(layers)[0]).all()


def test_a_layer_is_never_emptied():
    keep = units_to_keep([np.array([0.1, 0.3, 0.2]), np.array([5.0, 0.1])], threshold=3.0)
    assert [k.tolist() for k in keep] == [[1], [0]]


def test_removing_silent_units_changes_nothing_else():
    spec = Spec((3, 5, 4, 2))
    layers = noisy_layers(spec)
    layers[0]["local_mean"][[1, 3]] = -80.0  # tau = e^-40
    layers[1]["local_mean"][[0]] = -80.0
    keep = [np.array([0, 2, 4]), np.array([1, 2, 3])]
    smaller = remove_units(layers, keep)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    np.testing.assert_allclose(
        forward_weights(spec, mean_weights(smaller), x.copy()),
        forward_weights(spec, mean_weights(layers), x.copy()),
        rtol=1e-5,
        atol=1e-6,
    )
    assert sum(layer["mean"].size for layer in smaller) == size_after(layers, keep)
    assert smaller[1]["mean"].shape == (4, 3)
    assert smaller[0]["global_mean"].shape == ()
