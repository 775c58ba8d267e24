"""Layers in the middle of nowhere: spread-out means and standard deviations, for formula tests."""

import numpy as np

from soubayes.networks.layers import init_layers
from soubayes.networks.prediction import Network
from soubayes.networks.removal import all_kept
from soubayes.networks.structure import Spec


def noisy_layers(spec: Spec, seed: int = 0) -> list:
    rng = np.random.default_rng(seed)
    layers = init_layers(spec, rng)
    for layer in layers:
        for name, value in layer.items():
            centre = -1.0 if "log_sd" in name else 0.0
            layer[name] = np.asarray(centre + 0.5 * rng.normal(size=value.shape), np.float32)
    return layers


def network(spec: Spec, layers: list) -> Network:
    return Network(spec, layers, all_kept(spec))
