"""The model: layers whose units carry a scale, a factorised posterior, and its KL terms.

Unit k of a hidden layer computes s_k (h . beta_k + b_k) with s_k = tau_k nu (supplement A.4, the
non-centred form), beta ~ N(0, I), tau_k ~ C+(0, b_0), nu ~ C+(0, b_g). The posterior is fully
factorised: normal on beta, log tau^2 and log nu^2. Standard deviations are stored as logarithms:
a float32 softplus underflows to 0 and its logarithm to -inf.

A layer is a dict of arrays. `mean` and `log_sd` have shape (inputs + 1, units), the last row being
the bias; `local_*` has shape (units,), `global_*` is a scalar. A layer without `local_mean` has no
tau; one without `global_mean` has no nu either and its prior standard deviation is 1/sqrt(dim).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Layer = dict[str, Any]  # NumPy arrays, or JAX arrays while training

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "elu": jax.nn.elu}  # all map 0 to 0
ACTIVE_SCALE = 1e-3  # the paper's rule (Table 3): a unit is active when E[tau nu] >= 1e-3
_INITIAL_LOG_SD = -5.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True)
class Spec:
    """What does not change while a network trains; hashable, so that it can steer compilation.

    >>> Spec(sizes=(1, 100, 100, 1)).n_hidden
    2
    """

    sizes: tuple[int, ...]  # inputs, hidden widths before any removal, outputs
    prior: str = "horseshoe"
    local_scale: float = 1.0
    global_scale: float = 0.1
    output_scale: bool = True
    activation: str = "relu"

    @property
    def n_hidden(self) -> int:
        """The number of hidden layers."""
        return len(self.sizes) - 2

    @property
    def n_weights(self) -> list[int]:
        """Weights of every layer before any removal, biases included."""
        return [(inputs + 1) * units for inputs, units in pairwise(self.sizes)]


def init_layers(spec: Spec, rng: np.random.Generator) -> list[Layer]:
    """Means N(0, 2/inputs), biases 0, standard deviations e^-5, all scales 1."""
    layers = []
    for i, (inputs, units) in enumerate(pairwise(spec.sizes)):
        mean = np.zeros((inputs + 1, units), np.float32)
        mean[:-1] = rng.normal(scale=np.sqrt(2 / inputs), size=(inputs, units))
        layer: Layer = {"mean": mean, "log_sd": np.full_like(mean, _INITIAL_LOG_SD)}
        output = i == spec.n_hidden
        if spec.prior == "horseshoe" and not output:
            layer["local_mean"] = np.zeros(units, np.float32)
            layer["local_log_sd"] = np.full(units, _INITIAL_LOG_SD, np.float32)
        if spec.output_scale if output else spec.prior == "horseshoe":
            layer["global_mean"] = np.zeros((), np.float32)
            layer["global_log_sd"] = np.full((), _INITIAL_LOG_SD, np.float32)
        layers.append(layer)
    return layers


def forward(spec: Spec, layers: list[Layer], x: jax.Array, key: jax.Array) -> jax.Array:
    """Outputs under one draw of the posterior a row, by the local reparametrisation.

    Pre-activations are drawn instead of weights: given its scale, h . beta_k is normal with mean
    h . m_k and variance h^2 . s_k^2. Scales are drawn once a call.
    """
    activation = ACTIVATIONS[spec.activation]
    stops = np.cumsum([layer["mean"].shape[1] for layer in layers])
    # one call for everything, two rows of it for the scales: random calls are slow to compile
    noise = jax.random.normal(key, (len(x) + 2, stops[-1]), jnp.float32)
    scales = draw_scales(layers, noise[:2].ravel())
    ones = jnp.ones((len(x), 1), jnp.float32)
    noises = jnp.split(noise[2:], stops[:-1], axis=1)
    for i, (layer, scale, unit) in enumerate(zip(layers, scales, noises, strict=True)):
        # a column of ones instead of a row for the bias: slicing the weights would copy them
        x = jnp.concatenate([x, ones], axis=1)
        centre = x @ layer["mean"]
        variance = (x * x) @ jnp.exp(2 * layer["log_sd"])
        x = (centre + jnp.sqrt(variance) * unit) * scale
        if i < len(layers) - 1:
            x = activation(x)
    return x


def draw_scales(layers: list[Layer], noise: Any) -> list[Any]:
    """A draw of tau_k nu for the units of every layer, from standard normal noise."""
    scales: list[Any] = [1.0] * len(layers)
    used = 0
    for i, layer in enumerate(layers):
        for part in ("local", "global"):
            if f"{part}_mean" in layer:
                mean, sd = layer[f"{part}_mean"], jnp.exp(layer[f"{part}_log_sd"])
                draw = noise[used : used + mean.size].reshape(mean.shape)
                scales[i] = scales[i] * jnp.exp((mean + sd * draw) / 2)
                used += mean.size
    return scales


def mean_weights(layers: list[Layer]) -> list[Any]:
    """The effective weights E_q[w] = E[tau] E[nu] E[beta] (supplement A.4)."""
    return [layer["mean"] * unit_scales(layer) for layer in layers]


def unit_scales(layer: Layer) -> Any:
    """E_q[tau_k nu] of every unit; 1 where a layer has no scales."""
    xp = layer["mean"].__array_namespace__()
    scale = xp.ones(layer["mean"].shape[1], dtype=xp.float32)
    for part in ("local", "global"):
        if f"{part}_mean" in layer:
            sd = xp.exp(layer[f"{part}_log_sd"])
            scale = scale * xp.exp(layer[f"{part}_mean"] / 2 + sd**2 / 8)
    return scale


def kl_terms(spec: Spec, layers: list[Layer]) -> dict[str, jax.Array]:
    """KL(q || prior) in nats of the three blocks: weights (beta), local (tau), global (nu)."""
    total = {name: jnp.zeros((), jnp.float32) for name in ("weights", "local", "global")}
    for i, layer in enumerate(layers):
        sd = 1.0 if "global_mean" in layer else float(1 / np.sqrt(spec.sizes[i] + 1))
        total["weights"] += kl_normal(layer["mean"], layer["log_sd"], sd).sum()
        if "local_mean" in layer:
            total["local"] += kl_half_cauchy(
                layer["local_mean"], layer["local_log_sd"], spec.local_scale
            ).sum()
        if "global_mean" in layer:
            output = i == spec.n_hidden
            total["global"] += kl_half_cauchy(
                layer["global_mean"], layer["global_log_sd"], 1.0 if output else spec.global_scale
            )
    return total


def kl_normal(mean: jax.Array, log_sd: jax.Array, prior_sd: float) -> jax.Array:
    """KL( N(mean, sd^2) || N(0, prior_sd^2) )."""
    log_ratio = log_sd - np.float32(np.log(prior_sd))
    return ((mean / prior_sd) ** 2 + jnp.exp(2 * log_ratio) - 1) / 2 - log_ratio


def kl_half_cauchy(mean: jax.Array, log_sd: jax.Array, scale: float) -> jax.Array:
    """KL of u = log tau^2 ~ N(mean, sd^2) from tau ~ C+(0, scale), by 20-point Gauss–Hermite.

    -log p(u) = log(pi scale) + u/2 + log(e^-u + scale^-2); only the last term needs nodes.
    """
    nodes = jnp.asarray(_NODES, jnp.float32)
    u = mean[..., None] + jnp.exp(log_sd)[..., None] * nodes
    curved = jnp.logaddexp(-u, np.float32(-2 * np.log(scale))) @ jnp.asarray(_WEIGHTS, jnp.float32)
    entropy = log_sd + np.float32(np.log(2 * np.pi * np.e) / 2)
    return np.float32(np.log(np.pi * scale)) + mean / 2 + curved - entropy


def weight_counts(layers: list[Layer], threshold: float) -> list[Any]:
    """How many effective weights of each layer reach the threshold (the rest count as zero)."""
    return [(abs(w) >= threshold).sum() for w in mean_weights(layers)]


def active_counts(layers: list[Layer]) -> list[Any]:
    """Units of each hidden layer with E[tau nu] >= 1e-3."""
    return [(unit_scales(layer) >= ACTIVE_SCALE).sum() for layer in layers[:-1]]
