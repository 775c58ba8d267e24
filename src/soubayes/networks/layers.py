"""The model: layers whose units carry a scale, a factorised posterior, one forward pass, KL terms.

Unit k of a hidden layer computes s_k (h . beta_k + b_k) with s_k = tau_k nu (supplement A.4, the
non-centred form), beta ~ N(0, I), tau_k ~ C+(0, b_0), nu ~ C+(0, b_g). In the gated layer (columns
of X, or features of a convolution) h_j comes multiplied by a scale of its own, t_j ~ C+(0, b_0).
With a skip connection the output layer also reads the columns of X.
The posterior is fully factorised: normal on beta, log tau^2, log t^2 and log nu^2. Standard
deviations are stored as logarithms: a float32 softplus underflows to 0 and its logarithm to -inf.

A layer is a dict of arrays. `mean` and `log_sd` have shape (inputs + 1, units), the last row being
the bias; `local_*` has shape (units,), `input_*` (inputs,), `global_*` is a scalar. Skipped
columns are the last rows before the bias. A layer without
`local_mean` has no tau; one without `global_mean` has no nu either and its prior standard deviation
is 1/sqrt(dim).
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.lib.stride_tricks import as_strided

from soubayes.networks.structure import LayerShape, Spec

Layer = dict[str, Any]  # NumPy arrays, or JAX arrays while training

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "elu": jax.nn.elu}  # all map 0 to 0
ACTIVE_SCALE = 1e-3  # the paper's rule (Table 3): a unit is active when E[tau nu] >= 1e-3
_INITIAL_LOG_SD = -5.0
_PARTS = ("input", "local", "global")  # the scales that a layer may have
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def init_layers(spec: Spec, rng: np.random.Generator) -> list[Layer]:
    """Means N(0, 2/inputs), biases 0, standard deviations e^-5, all scales 1."""
    layers = []
    for i, shapes in enumerate(layer_shapes(spec, *spec.whole)):
        layer: Layer = {
            name: np.full(shape, _INITIAL_LOG_SD if name.endswith("log_sd") else 0.0, np.float32)
            for name, shape in shapes.items()
        }
        inputs, units = len(layer["mean"]) - 1, layer["mean"].shape[1]
        if i == spec.n_hidden:  # what the outputs read of X begins at 0
            inputs -= spec.skipped(spec.reads)
        layer["mean"][:inputs] = rng.normal(scale=np.sqrt(2 / inputs), size=(inputs, units))
        layers.append(layer)
    return layers


def layer_shapes(spec: Spec, units: Sequence[int], reads: int) -> list[dict[str, tuple[int, ...]]]:
    """Names and shapes of the arrays of every layer, for so many units and inputs of the gate.

    >>> layer_shapes(Spec((3, 5, 1)), [2, 1], 0)[1]
    {'mean': (3, 1), 'log_sd': (3, 1), 'global_mean': (), 'global_log_sd': ()}
    """
    layers = []
    for i, count in enumerate(units):
        output, inputs = i == spec.n_hidden, spec.inputs_of(i, units, reads)
        shapes: dict[str, tuple[int, ...]] = {"": (inputs + 1, count)}
        if i == spec.gate:
            shapes["input_"] = (inputs,)
        if spec.prior == "horseshoe" and not output:
            shapes["local_"] = (count,)
        if spec.output_scale if output else spec.prior == "horseshoe":
            shapes["global_"] = ()
        layers.append({f"{k}{part}": v for k, v in shapes.items() for part in ("mean", "log_sd")})
    return layers


def draw_noise(
    spec: Spec, layers: list[Layer], rows: int, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Standard normal numbers for every row and unit of a dense layer, and for all rows together.

    One call for everything, two rows of it for the scales: random calls are slow to compile.
    """
    noise = jax.random.normal(key, (rows + 2, sum(_dense_units(spec, layers))), jnp.float32)
    shared = noise[:2].ravel()
    drawn = _drawn_once(spec, layers)
    if drawn > shared.size:
        shared = jax.random.normal(jax.random.fold_in(key, 1), (drawn,), jnp.float32)
    return noise[2:], shared


class Operations(Protocol):
    """What a forward pass asks of its engine: draws while training, arrays, or nodes of a graph."""

    def convolve(self, i: int, x: Any) -> Any:
        """The convolution of layer i, before pooling."""

    def pool(self, x: Any, size: int) -> Any:
        """The largest value of every square."""

    def flatten(self, x: Any) -> Any:
        """Rows of columns."""

    def take(self, x: Any, columns: Any) -> Any:
        """Some columns of rows."""

    def gate(self, i: int, x: Any) -> Any:
        """What the gated layer i reads, times its scales."""

    def join(self, h: Any, x: Any) -> Any:
        """The last hidden layer beside the columns of X."""

    def dense(self, i: int, x: Any) -> Any:
        """The pre-activations of layer i."""

    def activate(self, x: Any) -> Any:
        """The activation of the hidden layers."""

    def add(self, x: Any, h: Any) -> Any:
        """What a residual layer reads plus what it computed."""


def forward(spec: Spec, inputs: Any, x: Any, do: Operations) -> Any:
    """Outputs of the network for rows x; `inputs` are the columns that the gated layer reads."""
    skipped = x
    for i, step in enumerate(spec.steps):
        if step.kernel:
            x = do.pool(do.convolve(i, x), step.pool)
        else:
            x = do.flatten(x)
            if i == spec.gate:
                x = do.gate(i, do.take(x, inputs))
            if i == spec.n_hidden and spec.skip:
                x = do.join(x, do.take(skipped, inputs) if spec.gate == 0 else skipped)
            h, x = x, do.dense(i, x)
        if i < spec.n_hidden:
            x = do.activate(x)
        if step.residual:
            x = do.add(h, x)
    return x


class Drawn:
    """The operations of training: draws of the posterior, given `draw_noise`'s numbers.

    Dense layers have one draw for each row by the local reparametrisation: pre-activations are
    drawn instead of weights. Given its scale, h . beta_k is normal with mean h . m_k and variance
    h^2 . s_k^2. A convolution uses its weights at many places, whose pre-activations are not
    independent: its weights are drawn. Weights of convolutions and scales are drawn once in each
    call.
    """

    def __init__(self, spec: Spec, layers: list[Layer], drawn: tuple[jax.Array, jax.Array]) -> None:
        self.spec, self.layers = spec, layers
        noise, shared = drawn
        self.scales, self.shared = draw_scales(layers, shared)
        self.noises = jnp.split(noise, np.cumsum(_dense_units(spec, layers))[:-1], axis=1)
        self.activate = ACTIVATIONS[spec.activation]

    def convolve(self, i: int, x: Any) -> Any:
        mean, log_sd = self.layers[i]["mean"], self.layers[i]["log_sd"]
        beta = mean + jnp.exp(log_sd) * self.shared[: mean.size].reshape(mean.shape)
        self.shared = self.shared[mean.size :]
        return convolved(x, beta, self.spec.steps[i]) * self.scales["unit"][i]

    def pool(self, x: Any, size: int) -> Any:
        return pooled(x, size)

    def flatten(self, x: Any) -> Any:
        return x.reshape(len(x), -1)

    def take(self, x: Any, columns: Any) -> Any:
        return x[:, columns]

    def gate(self, i: int, x: Any) -> Any:
        return x * self.scales["input"][i]

    def join(self, h: Any, x: Any) -> Any:
        return jnp.concatenate([h, x], axis=1)

    def add(self, x: Any, h: Any) -> Any:
        return x + h

    def dense(self, i: int, x: Any) -> Any:
        # a column of ones instead of a row for the bias: slicing the weights would copy them
        x = jnp.concatenate([x, jnp.ones((len(x), 1), jnp.float32)], axis=1)
        centre = x @ self.layers[i]["mean"]
        variance = (x * x) @ jnp.exp(2 * self.layers[i]["log_sd"])
        return (centre + jnp.sqrt(variance) * self.noises[i]) * self.scales["unit"][i]


def convolved(x: Any, weight: Any, step: LayerShape) -> Any:
    """Patches times weights (entries + 1, channels), for JAX and NumPy; rows may come flat."""
    x = x.reshape(len(x), *step.space, -1)
    if step.same:
        x = x.__array_namespace__().pad(x, ((0, 0), *step.padding, (0, 0)))
    take = _patches_in_memory if isinstance(x, np.ndarray) else _patches
    patches = take(x, step).reshape(-1, len(weight) - 1)
    return (patches @ weight[:-1] + weight[-1]).reshape(len(x), *step.written, -1)


def _patches(x: Any, step: LayerShape) -> Any:
    views = [x]
    for axis, count in enumerate(step.written, start=1):
        cut, length = [slice(None)] * axis, (count - 1) * step.stride + 1
        views = [
            v[(*cut, slice(o, o + length, step.stride))] for v in views for o in range(step.kernel)
        ]
    return x.__array_namespace__().concatenate(views, axis=-1)


def _patches_in_memory(x: np.ndarray, step: LayerShape) -> np.ndarray:
    """The same for NumPy, 4 to 20 times as fast: a stretch of a patch lies in one piece."""
    x = np.ascontiguousarray(x)
    side, sizes = step.kernel, step.written
    shape = (len(x), *sizes, *[side] * (len(sizes) - 1), side * x.shape[-1])
    places = tuple(step.stride * bytes_ for bytes_ in x.strides[1:-1])
    strides = (x.strides[0], *places, *x.strides[1:-2], x.strides[-1])
    return as_strided(x, shape, strides, writeable=False)


def pooled(x: Any, size: int) -> Any:
    """The largest value of every square or stretch; what is left over at the end is not read."""
    if size == 1:
        return x
    xp = x.__array_namespace__()
    for axis in range(1, x.ndim - 1):
        count = x.shape[axis] // size
        x = x[(*[slice(None)] * axis, slice(count * size))]
        x = x.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])
        x = xp.max(x, axis=axis + 1)
    return x


def draw_scales(layers: list[Layer], noise: Any) -> tuple[dict[str, list[Any]], Any]:
    """A draw of the scales of every layer's units (tau_k nu) and inputs (t_j).

    Also the standard normal noise that is left.
    """
    drawn: dict[str, list[Any]] = {kind: [1.0] * len(layers) for kind in ("unit", "input")}
    for i, layer in enumerate(layers):
        for part in _PARTS:
            if f"{part}_mean" in layer:
                mean, sd = layer[f"{part}_mean"], jnp.exp(layer[f"{part}_log_sd"])
                draw = jnp.exp((mean + sd * noise[: mean.size].reshape(mean.shape)) / 2)
                noise = noise[mean.size :]
                kind = "unit" if part in ("local", "global") else part
                drawn[kind][i] = drawn[kind][i] * draw
    return drawn, noise


def _dense_units(spec: Spec, layers: list[Layer]) -> list[int]:
    """Units of every layer whose pre-activations are drawn; 0 for a convolution."""
    return [0 if step.kernel else layer["mean"].shape[1] for step, layer in _pairs(spec, layers)]


def _drawn_once(spec: Spec, layers: list[Layer]) -> int:
    """How many numbers a call draws for all rows together."""
    names = {f"{part}_mean" for part in _PARTS}
    scales = sum(v.size for layer in layers for name, v in layer.items() if name in names)
    return scales + sum(layer["mean"].size for step, layer in _pairs(spec, layers) if step.kernel)


def _pairs(spec: Spec, layers: list[Layer]) -> list[tuple[LayerShape, Layer]]:
    return list(zip(spec.steps, layers, strict=True))


def mean_weights(layers: list[Layer]) -> list[Any]:
    """The effective weights E_q[w] = E[t] E[tau] E[nu] E[beta] (supplement A.4)."""
    return [
        layer["mean"] * unit_scales(layer) * row_scales(layer, expected_scale) for layer in layers
    ]


def row_scales(layer: Layer, of: Callable[[Layer, str], Any]) -> Any:
    """A column to multiply weights with: scales of inputs, 1 elsewhere."""
    xp = layer["mean"].__array_namespace__()
    scale = xp.ones(len(layer["mean"]), dtype=xp.float32)
    if "input_mean" in layer:
        scale = xp.concatenate([of(layer, "input"), scale[-1:]])  # the bias has none
    return scale[:, None]


def unit_scales(layer: Layer) -> Any:
    """E_q[tau_k nu] of every unit; 1 where a layer has no scales."""
    xp = layer["mean"].__array_namespace__()
    scale = xp.ones(layer["mean"].shape[1], dtype=xp.float32)
    for part in ("local", "global"):
        if f"{part}_mean" in layer:
            scale = scale * expected_scale(layer, part)
    return scale


def expected_scale(layer: Layer, part: str) -> Any:
    """E[exp(u / 2)] of a normal u."""
    xp = layer["mean"].__array_namespace__()
    sd = xp.exp(layer[f"{part}_log_sd"])
    return xp.exp(layer[f"{part}_mean"] / 2 + sd**2 / 8)


def kl_terms(spec: Spec, layers: list[Layer]) -> dict[str, jax.Array]:
    """KL(q || prior) in nats of the blocks: weights (beta), local (tau, t), global (nu).

    A convolution with a confidence of its own is a block of weights of its own.
    """
    total = {name: jnp.zeros((), jnp.float32) for name in spec.blocks}
    scales: list[tuple[Any, Any]] = []  # (mean, log sd) of every vector of scales
    priors: list[tuple[str, int, float]] = []  # its block, length and half-Cauchy scale
    for i, layer in enumerate(layers):
        sd = 1.0 if "global_mean" in layer else float(1 / np.sqrt(spec.steps[i].inputs + 1))
        kl = kl_normal(layer["mean"], layer["log_sd"], sd)
        if spec.skip and i == spec.n_hidden:
            skipped = slice(layers[i - 1]["mean"].shape[1], -1)
            total["skip"] += kl[skipped].sum()
            kl = kl.at[skipped].set(0.0)
        total[spec.weight_blocks[i]] += kl.sum()
        widest = 1.0 if i == spec.n_hidden else spec.global_scale
        kinds = dict.fromkeys(_PARTS, spec.local_scale) | {"global": widest}
        for part, scale in kinds.items():
            if f"{part}_mean" in layer:
                pair = layer[f"{part}_mean"], layer[f"{part}_log_sd"]
                scales.append(pair)
                priors.append(("global" if part == "global" else "local", pair[0].size, scale))
    if scales:  # one call for all: every call is compiled, with its gradient
        block, length, widths = zip(*priors, strict=True)
        mean, log_sd = (jnp.concatenate(list(map(jnp.ravel, p))) for p in zip(*scales, strict=True))
        kl = kl_half_cauchy(mean, log_sd, np.repeat(np.asarray(widths, np.float32), length))
        for name in ("local", "global"):
            here = np.asarray([kind == name for kind in block], np.float32)
            total[name] = kl @ np.repeat(here, length)
    return total


def kl_normal(mean: jax.Array, log_sd: jax.Array, prior_sd: float) -> jax.Array:
    """KL( N(mean, sd^2) || N(0, prior_sd^2) )."""
    log_ratio = log_sd - np.float32(np.log(prior_sd))
    return ((mean / prior_sd) ** 2 + jnp.exp(2 * log_ratio) - 1) / 2 - log_ratio


def kl_half_cauchy(mean: jax.Array, log_sd: jax.Array, scale: Any) -> jax.Array:
    """KL of u = log tau^2 ~ N(mean, sd^2) from tau ~ C+(0, scale), by 20-point Gauss–Hermite.

    -log p(u) = log(pi scale) + u/2 + log(e^-u + scale^-2); only the last term needs nodes.
    """
    nodes = jnp.asarray(_NODES, jnp.float32)
    u = mean[..., None] + jnp.exp(log_sd)[..., None] * nodes
    far = np.asarray(-2 * np.log(scale), np.float32)[..., None]
    curved = jnp.logaddexp(-u, far) @ jnp.asarray(_WEIGHTS, jnp.float32)
    entropy = log_sd + np.float32(np.log(2 * np.pi * np.e) / 2)
    constant = np.asarray(np.log(np.pi * np.asarray(scale)), np.float32)
    return mean / 2 + curved - entropy + constant


def weight_counts(layers: list[Layer], threshold: float) -> list[Any]:
    """How many effective weights of each layer reach the threshold (the rest count as zero)."""
    return [(abs(w) >= threshold).sum() for w in mean_weights(layers)]


def active_counts(layers: list[Layer]) -> list[Any]:
    """Units of each hidden layer with E[tau nu] >= 1e-3."""
    return [(unit_scales(layer) >= ACTIVE_SCALE).sum() for layer in layers[:-1]]
