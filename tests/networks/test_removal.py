"""Information of a unit, and removal that leaves the rest of a network alone."""

import numpy as np
import pytest

from noisy_network import network, noisy_layers
from soubayes.networks import training
from soubayes.networks.layers import mean_weights
from soubayes.networks.prediction import Network, forward_weights
from soubayes.networks.removal import (
    Kept,
    all_kept,
    information,
    information_read,
    network_size,
    remove,
    survivors,
)
from soubayes.networks.structure import Conv, Pool, Residual, Spec


def test_information_is_the_smallest_kl_over_the_scale():
    layers = noisy_layers(Spec((4, 3, 1)))
    found = information(layers[0])
    m, s = layers[0]["mean"].astype(float), np.exp(layers[0]["log_sd"].astype(float))
    scales = np.exp(np.linspace(-4, 4, 40_001))
    for k in range(3):
        c = scales[:, None]
        kl = np.log(c / s[:, k]) + (m[:, k] ** 2 + s[:, k] ** 2) / (2 * c**2) - 0.5
        assert found[k] == pytest.approx(kl.sum(axis=1).min(), abs=1e-4)


def test_information_ignores_the_scale_and_survives_tiny_deviations():
    layers = noisy_layers(Spec((4, 3, 1)))
    before = information(layers[0])
    layers[0]["mean"] = layers[0]["mean"] * np.float32(1e-12)
    layers[0]["log_sd"] = layers[0]["log_sd"] + np.float32(np.log(1e-12))
    np.testing.assert_allclose(information(layers[0]), before, atol=1e-3)
    layers[0]["log_sd"] = np.full_like(layers[0]["log_sd"], -80.0)
    assert np.isfinite(information(layers[0])).all()


def test_information_of_an_input_is_that_of_its_outgoing_weights():
    layers = noisy_layers(Spec((4, 3, 1), prune_inputs=True))
    turned = {name: layers[0][name][:-1].T for name in ("mean", "log_sd")}
    np.testing.assert_allclose(information(layers[0], axis=1), information(turned))


def test_information_read_of_a_channel_is_that_of_all_weights_on_it():
    """As if the weights of every offset and unit on a channel were those of one unit."""
    layer = noisy_layers(Spec(((6, 1), Conv(3, 2), Conv(4, 2), 2, 1)))[1]
    entries = [(offset, channel) for offset in range(2) for channel in range(3)]
    found = information_read(layer, 3)
    for channel in range(3):
        rows = [i for i, entry in enumerate(entries) if entry[1] == channel]
        turned = {name: layer[name][rows].reshape(-1, 1) for name in ("mean", "log_sd")}
        assert found[channel] == pytest.approx(information(turned)[0])


def test_a_channel_that_nobody_reads_is_dead():
    spec = Spec(((6, 1), Conv(3, 2), Conv(4, 2), 2, 1))
    layers = noisy_layers(spec)
    layers[1]["mean"][[1, 4]], layers[1]["log_sd"][[1, 4]] = 0.0, 0.0  # channel 1, both offsets
    known = training._known(spec, layers)
    assert known[0][1] == pytest.approx(0.0)
    assert (known[0] <= information(layers[0])).all()
    np.testing.assert_array_equal(known[1], information(layers[1]))


def test_a_layer_is_never_emptied():
    spec = Spec((2, 3, 2, 1), prune_inputs=True)
    units, inputs = survivors(
        spec, all_kept(spec), [[0.1, 0.3, 0.2], [5.0, 0.1]], [0.2, 0.1], threshold=3.0
    )
    assert [k.tolist() for k in units] == [[1], [0]]
    assert inputs.tolist() == [0]


def test_a_channel_goes_with_its_last_feature_and_a_feature_with_its_channel():
    spec = Spec(((4, 1), Conv(3, 3), 2, 1))  # features: place 0 of channels 0-2, place 1 of them
    kept = Kept([np.arange(3), np.arange(2)], np.array([0, 1, 3, 4, 5]))
    units, inputs = survivors(spec, kept, [[9, 1, 9], [9, 9]], [9, 9, 9, 9, 1], threshold=3.0)
    assert units[0].tolist() == [0]  # 1 knows too little, 2 lost its last feature
    assert inputs.tolist() == [0, 2]
    units, inputs = survivors(spec, kept, [[1, 9, 1], [9, 9]], [9, 1, 1, 1, 1], threshold=3.0)
    assert units[0].tolist() == [0]  # the only feature keeps its channel
    assert inputs.tolist() == [0]


def test_units_of_a_residual_stream_go_together():
    spec = Spec((3, 3, Residual(), Residual(), 2, 1))
    known = [[9, 1, 1], [1, 9, 1], [1, 1, 1], [9, 1]]
    units, _ = survivors(spec, all_kept(spec), known, [], threshold=3.0)
    # in the third layer all are dead: it keeps its best, which is the first
    assert [u.tolist() for u in units] == [[0, 1], [0, 1], [0, 1], [0]]


SPECS = {
    "dense": Spec((3, 5, 4, 2)),
    "inputs": Spec((3, 5, 4, 2), prune_inputs=True),
    "residual": Spec((3, 5, Residual(), 4, Residual(), 2), skip=True),
    "convolutions": Spec(((6, 6, 2), Conv(5, 2), Pool(2), Conv(4, 2), 3, 2)),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
def test_removing_silent_parts_changes_nothing_else(spec):
    layers = noisy_layers(spec)
    kept = all_kept(spec)
    units = [np.delete(k, [1]) for k in kept.units]
    for layer in layers[:-1]:
        layer["local_mean"][1] = -80.0  # tau = e^-40
    inputs = np.arange(0)
    if spec.gate is not None:
        layers[spec.gate]["input_mean"][2] = -80.0
        inputs = np.delete(kept.inputs, [2])
    if spec.gate:  # the features of channel 1 go with it
        inputs = inputs[inputs % spec.steps[spec.gate - 1].units != 1]
    smaller = remove(spec, layers, units, inputs)
    left = Kept(units, inputs)
    x = np.random.default_rng(0).normal(size=(6, spec.n_inputs)).astype(np.float32)
    np.testing.assert_allclose(
        forward_weights(Network(spec, smaller, left), mean_weights(smaller), x.copy()),
        forward_weights(network(spec, layers), mean_weights(layers), x.copy()),
        rtol=1e-5,
        atol=1e-6,
    )
    _, parameters = spec.cost(*network_size(spec, left))
    assert sum(layer["mean"].size for layer in smaller) == parameters
    assert smaller[0]["global_mean"].shape == ()
