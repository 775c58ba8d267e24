"""Networks against a plain MLP and a horseshoe BNN in the same JAX, as ratios from one run.

    python benchmarks/networks.py epoch         # an epoch at width 200
    python benchmarks/networks.py compaction    # the same training with and without compaction
    python benchmarks/networks.py wide 800      # a whole training at width 800
    python benchmarks/networks.py predict       # prediction before and after pruning
    python benchmarks/networks.py conv          # an epoch of LeNet-5
    python benchmarks/networks.py path          # a path of four confidences against one training

The peers share the data on the device, the minibatches and the scan over them: a plain ReLU network
with Adam, and Ghosh's horseshoe BNN (inverse-gamma auxiliaries with closed-form updates, softplus
standard deviations, local reparametrisation) ported from its public description.
"""

import sys
import time
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from paper.mnist import load_mnist
from paper.toy_networks import PAPER
from soubayes import SoUNetClassifier
from soubayes.networks import state, training
from soubayes.networks.feeding import Chunk, data_mesh, placement
from soubayes.networks.layers import pooled
from soubayes.networks.likelihoods import categorical_loss
from soubayes.networks.structure import Conv, Pool, Spec

BATCH = 100
ADAM = optax.adam(1e-3)


def main(command: str = "epoch", width: str = "800") -> None:
    """Run one benchmark and print its table."""
    jobs = {"epoch": epoch, "compaction": compaction, "predict": predict}
    jobs |= {"conv": convolutions, "path": path}
    table = wide(int(width)) if command == "wide" else jobs[command]()
    print(table.to_string(index=False))


def epoch(width: int = 200, repeats: int = 3) -> pd.DataFrame:
    """Seconds of an epoch after compilation, the fastest of a few, taken in turns."""
    X, y = _images()
    sizes = (X.shape[1], width, width, 10)
    return _in_turns(
        {
            "plain MLP": _peer_epoch(plain_init, plain_loss, sizes, X, y),
            "horseshoe BNN (Ghosh)": _peer_epoch(ghosh_init, ghosh_loss, sizes, X, y),
            "soubayes": _own_epoch(Spec(sizes), X, y),
        },
        repeats,
    )


def convolutions(rows: int = 6000, repeats: int = 5) -> pd.DataFrame:
    """The same for LeNet-5 and a part of the images; the first peer convolves as we do."""
    X, y = (part[:rows] for part in _images())
    lenet = Spec(((28, 28, 1), Conv(20, 5), Pool(2), Conv(50, 5), Pool(2), 500, 10))
    return _in_turns(
        {
            "plain LeNet-5, patches": _peer_epoch(
                lenet_init, partial(lenet_loss, patches), (), X, y
            ),
            "plain LeNet-5, XLA's own": _peer_epoch(lenet_init, partial(lenet_loss, xla), (), X, y),
            "soubayes": _own_epoch(lenet, X, y),
        },
        repeats,
    )


def path(epochs: int = 100, width: int = 200) -> pd.DataFrame:
    """A path of the four default confidences against one training at its last and its first one.

    The first stage of a path is a training of its own, so its seconds are read from the history.
    """
    data = load_mnist()

    def train(confidence):
        began = time.perf_counter()
        net = SoUNetClassifier(
            (width, width),
            epochs=epochs,
            random_state=0,
            **{**PAPER, "confidence_weights": confidence},
        ).fit(data.X_train, data.y_train)
        return net, time.perf_counter() - began

    one, one_seconds = train(1.0)
    whole, whole_seconds = train((0.03, 0.1, 0.3, 1.0))
    networks = [one, whole.at(0.03), whole]
    seconds = np.array([one_seconds, whole.history_["seconds"][:epochs].sum(), whole_seconds])
    columns = {
        "training": ["one, confidence 1", "one, confidence 0.03", "path"],
        "seconds": seconds,
        "over_the_first": seconds / seconds[0],
        "over_the_second": seconds / seconds[1],
        "accuracy": [
            np.mean(net.predict(data.X_test, mode="mean") == data.y_test) for net in networks
        ],
        "sizes": [str(net.architecture_) for net in networks],
    }
    return pd.DataFrame(columns)


def _in_turns(runners, repeats):
    """Seconds of every runner, the fastest of a few; the first turn compiles."""
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(repeats + 1):
        for name, run in runners.items():
            began = time.perf_counter()
            run()
            if turn:  # the first compiles
                seconds[name].append(time.perf_counter() - began)
    best = np.array([min(values) for values in seconds.values()])
    return pd.DataFrame({"model": list(seconds), "seconds": best, "ratio": best / best[0]})


def compaction(epochs: int = 100) -> pd.DataFrame:
    """Seconds of the paper's training at width 200, with and without compaction."""
    data = load_mnist()
    rows = []
    for compact in (True, False):
        began = time.perf_counter()
        net = SoUNetClassifier((200, 200), epochs=epochs, compact=compact, random_state=0, **PAPER)
        net.fit(data.X_train, data.y_train)
        seconds = time.perf_counter() - began
        accuracy = np.mean(net.predict(data.X_test, mode="mean") == data.y_test)
        rows.append((compact, seconds, accuracy, str(net.architecture_), str(net.active_units_)))
    columns = ["compact", "seconds", "accuracy", "sizes", "active"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(ratio=table["seconds"] / table["seconds"][1])


def wide(width: int, epochs: int = 100) -> pd.DataFrame:
    """A whole training at a large width against the same number of epochs of the plain MLP.

    The MLP's epochs all cost the same: one after compilation is timed and multiplied.
    """
    X, y = _images()
    run = _peer_epoch(plain_init, plain_loss, (X.shape[1], width, width, 10), X, y)
    run()
    began = time.perf_counter()
    run()
    plain = epochs * (time.perf_counter() - began)
    data = load_mnist()
    began = time.perf_counter()
    net = SoUNetClassifier((width, width), epochs=epochs, random_state=0, **PAPER)
    net.fit(data.X_train, data.y_train)
    own = time.perf_counter() - began
    accuracy = np.mean(net.predict(data.X_test, mode="mean") == data.y_test)
    print(f"accuracy {accuracy:.4f}, active {net.active_units_}, {net.architecture_}")
    seconds = np.array([plain, own])
    names = ["plain MLP", "soubayes"]
    return pd.DataFrame({"model": names, "seconds": seconds, "ratio": seconds / plain})


def predict(width: int = 200, repeats: int = 5) -> pd.DataFrame:
    """Seconds for 10,000 rows: 30 units in each layer against the dense network."""
    rng = np.random.default_rng(0)
    X, y = rng.random((2000, 784)), np.arange(2000) % 10
    rows = rng.random((10_000, 784))
    table: dict[str, list[float]] = {}
    for mode in ("mean", "draws"):
        for size in (width, 30):
            net = SoUNetClassifier((size, size), epochs=1, compact=False, **PAPER).fit(X, y)
            times = []
            for _ in range(repeats if mode == "mean" else 1):
                began = time.perf_counter()
                net.predict(rows, mode=mode)
                times.append(time.perf_counter() - began)
            table.setdefault(mode, []).append(min(times))
    dense, small = np.array(list(table.values())).T
    columns = {"mode": list(table), "dense": dense, "pruned": small, "ratio": dense / small}
    return pd.DataFrame(columns)


# ---- peers --------------------------------------------------------------------------------------


def plain_init(sizes, rng):
    """Weights and biases of an ordinary network."""
    return [
        (
            rng.normal(scale=np.sqrt(2 / a), size=(a, b)).astype(np.float32),
            np.zeros(b, np.float32),
        )
        for a, b in pairwise(sizes)
    ]


def plain_loss(params, x, y, key, n):
    """Mean cross-entropy."""
    for i, (weight, bias) in enumerate(params):
        x = x @ weight + bias
        x = jax.nn.relu(x) if i < len(params) - 1 else x
    return categorical_loss(x, y).mean()


def lenet_init(sizes, rng):
    """Weights and biases of LeNet-5; kernels as XLA takes them."""
    shapes = [(5, 5, 1, 20), (5, 5, 20, 50), (800, 500), (500, 10)]
    return [
        (
            rng.normal(scale=np.sqrt(2 / np.prod(shape[:-1])), size=shape).astype(np.float32),
            np.zeros(shape[-1], np.float32),
        )
        for shape in shapes
    ]


def lenet_loss(convolve, params, x, y, key, n):
    """Mean cross-entropy of LeNet-5."""
    x = x.reshape(-1, 28, 28, 1)
    for weight, bias in params[:2]:
        x = jax.nn.relu(pooled(convolve(x, weight) + bias, 2))
    return plain_loss(params[2:], x.reshape(len(x), -1), y, key, n)


def xla(x, weight):
    """XLA's convolution, which its CPU backend runs slowly inside a scan."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=numbers)


def patches(x, weight):
    """Patches times weights, one matrix product."""
    size = x.shape[1] - 4
    views = [x[:, i : i + size, j : j + size] for i in range(5) for j in range(5)]
    return jnp.concatenate(views, axis=-1) @ weight.reshape(-1, weight.shape[-1])


def ghosh_init(sizes, rng):
    """Normal q(beta) and log-normal q(tau^2), q(nu^2), standard deviations through a softplus."""
    layers = []
    for (weight, _), b in zip(plain_init(sizes, rng), sizes[1:], strict=True):
        mean = np.concatenate([weight, np.zeros((1, b), np.float32)])
        scale = {"mean": np.zeros(b + 1, np.float32), "rho": np.full(b + 1, -5, np.float32)}
        layers.append({"mean": mean, "rho": np.full_like(mean, -5), "scale": scale})
    return layers


def ghosh_loss(params, x, y, key, n):
    """Negative ELBO over n; the auxiliaries of both half-Cauchys are at their optimum."""
    kl = 0.0
    for i, layer in enumerate(params):
        key, key_scale, key_unit = jax.random.split(key, 3)
        mean, sd = layer["mean"], jax.nn.softplus(layer["rho"])
        u, u_sd = layer["scale"]["mean"], jax.nn.softplus(layer["scale"]["rho"])
        drawn = u + u_sd * jax.random.normal(key_scale, u.shape)
        centre = x @ mean[:-1] + mean[-1]
        variance = (x * x) @ sd[:-1] ** 2 + sd[-1] ** 2
        x = centre + jnp.sqrt(variance) * jax.random.normal(key_unit, centre.shape)
        x = x * jnp.exp((drawn[:-1] + drawn[-1]) / 2)
        x = jax.nn.relu(x) if i < len(params) - 1 else x
        kl += ((mean**2 + sd**2 - 1) / 2 - jnp.log(sd)).sum()
        b = jnp.ones_like(u).at[-1].set(0.1)
        bound = jnp.log(jnp.exp(-u + u_sd**2 / 2) + b**-2) + u / 2 + jnp.log(jnp.pi * b)
        kl += (bound - jnp.log(2 * jnp.pi * jnp.e * u_sd**2) / 2).sum()
    return categorical_loss(x, y).mean() + kl / n


def _peer_epoch(init, loss, sizes, X, y):
    rng = np.random.default_rng(0)
    state = jax.device_put(init(sizes, rng))
    state = (state, ADAM.init(state))

    @jax.jit
    def go(state, order, keys):
        def step(state, now):
            params, moments = state
            rows, key = now
            slope = jax.grad(loss)(params, X[rows], y[rows], key, float(len(X)))
            change, moments = ADAM.update(slope, moments)
            return (optax.apply_updates(params, change), moments), None

        return jax.lax.scan(step, state, (order, keys))[0]

    def run():
        nonlocal state
        order = rng.permutation(len(X)).reshape(-1, BATCH).astype(np.int32)
        keys = jax.random.split(jax.random.key(0), len(order))
        state = jax.block_until_ready(go(state, order, keys))

    return run


def _own_epoch(spec, X, y):
    numbers = {"weights": 1.0, "local": 1e-9, "global": 1.0}
    number = partial(np.asarray, dtype=np.float32)
    confidence = {name: number(value) for name, value in numbers.items()}
    problem = state.TrainingProblem(
        number(len(X)), confidence, None, number(0.002), number(10.0), number(0.05)
    )
    stages = (state.PathStage(0, 1000, 1.0),)
    schedule = state.Schedule(stages, len(X), BATCH, False, data_mesh(BATCH))
    weights = np.ones(len(X), np.float32)
    data = jax.device_put(Chunk(X, y, weights), placement(schedule.mesh))
    run = training._placed(state.start(spec, problem, seed=0), schedule)
    plan = state.TrainingPlan(spec, problem, schedule, run, lambda _: iter([data]))
    box = [run]

    def go():
        box[0] = training._block(plan, box[0])

    return go


def _images():
    data = load_mnist()
    X = (np.asarray(data.X_train).reshape(len(data.X_train), -1) / 255).astype(np.float32)
    return jax.device_put((X, np.asarray(data.y_train).astype(np.int32)))


if __name__ == "__main__":
    main(*sys.argv[1:])
