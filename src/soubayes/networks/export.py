"""ONNX: the fitted network as a graph of standard nodes; draws are one more axis of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from soubayes._files import atomic_path
from soubayes.networks.layers import forward, mean_weights
from soubayes.networks.prediction import Network, drawn
from soubayes.networks.structure import LayerShape

_OPSET = 18
_NODE = {"relu": "Relu", "tanh": "Tanh", "elu": "Elu"}
ENSEMBLE_DRAWS = 100  # of each network, in the predictions of an ensemble
COMPARED_ROWS, CLOSE = 16, 1e-4  # float32 sums of 100 draws agree to about 1e-6


@dataclass
class Graph:
    """Nodes and tensors in the making; `add` and `hold` return the name of a value."""

    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)

    def add(self, operation: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """One more node."""
        name = name or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, list(inputs), [name], **attributes))
        return name

    def hold(self, values: np.ndarray, floating: Any = np.float32) -> str:
        """A constant; floating numbers become float32 unless said otherwise."""
        values = values.astype(floating) if values.dtype.kind == "f" else values
        name = f"tensor_{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(values, name))
        return name


def export_onnx(model: Any, path: Path, mode: str, n_draws: int) -> None:
    """Write the weighted average of a model's networks; a single network has the weight 1."""
    if mode == "auto":
        mode = "calibrated" if model._CLASSES else "draws"
    graph, means = Graph(), []
    sd = ""
    for net, weight in model._members():
        outputs = _outputs(net, graph, network_weights(net, net._n_draws(n_draws, mode)))
        mean, sd = predicted(net, graph, outputs)
        means.append(graph.add("Mul", mean, graph.hold(np.array(weight))) if weight < 1 else mean)
    values = {"probabilities" if model._CLASSES else "mean": graph.add("Sum", *means)}
    if model._CLASSES and (temperature := model._exported_temperature(mode)) != 1:
        values["probabilities"] = tempered_node(graph, values["probabilities"], temperature)
    if sd and len(means) == 1:
        values["sd"] = sd
    written = _model(model, graph, values)
    check_predictions(model, written, mode, n_draws)
    with atomic_path(path) as temporary:
        onnx.save(written, temporary)


def predicted(net: Any, graph: Graph, outputs: str) -> tuple[str, str]:
    """Nodes from outputs (draws, rows, outputs) to probabilities, or to mean and sd of y."""
    draws = graph.hold(np.array([0]))
    if net._CLASSES:
        value = graph.add("Softmax", outputs, axis=-1)
        return graph.add("ReduceMean", value, draws, keepdims=0), ""
    # in units of the scaled y, because float32 cannot hold a mean far from 0 and a small spread
    middle = graph.add("ReduceMean", outputs, draws, keepdims=1)
    apart = graph.add("Sub", outputs, middle)
    squares = graph.add("ReduceMean", graph.add("Mul", apart, apart), draws, keepdims=0)
    scale = net._y_scaler.scale
    noise = np.atleast_1d(net._noise_variance()) / scale**2
    sd = graph.add("Sqrt", graph.add("Add", squares, graph.hold(noise)))
    value = graph.add("Cast", graph.add("Squeeze", middle, draws), to=TensorProto.DOUBLE)
    value = graph.add("Mul", value, graph.hold(scale, np.float64))
    value = graph.add("Add", value, graph.hold(net._y_scaler.shift, np.float64))
    mean = graph.add("Cast", value, to=TensorProto.FLOAT)
    return mean, graph.add("Mul", sd, graph.hold(scale))


def tempered_node(graph: Graph, value: str, temperature: float) -> str:
    """p^(1/T), normalised."""
    power = graph.add("Pow", value, graph.hold(np.array(1 / temperature)))
    total = graph.add("ReduceSum", power, graph.hold(np.array([1])), keepdims=1)
    return graph.add("Div", power, total)


def check_predictions(model: Any, written: Any, mode: str, n_draws: int) -> None:
    """Compare the graph with Python at a few rows that are distributed as the columns of X."""
    ensemble = model._members()[0][0] is not model
    if ensemble and (mode == "mean" or n_draws != ENSEMBLE_DRAWS):
        return  # an ensemble predicts by its default draws alone
    scaler = model._members()[0][0]._x_scaler
    rows = np.random.default_rng(0).standard_normal((COMPARED_ROWS, model.n_features_in_))
    X = (scaler.shift + scaler.scale * rows).astype(np.float32)
    X = X.reshape(COMPARED_ROWS, *model._row_shape)
    how: dict[str, Any] = {} if ensemble else {"mode": mode, "n_draws": n_draws}
    if model._CLASSES:
        expected = [model.predict_proba(X, **how)]
    else:
        both = model.predict(X, return_std=True, **how)
        expected = [part.reshape(COMPARED_ROWS, -1) for part in both]
    session = onnxruntime.InferenceSession(written.SerializeToString())
    values = session.run([v.name for v in written.graph.output if v.name != "label"], {"X": X})
    for value, known in zip(values, expected, strict=False):  # the sd of an ensemble is left out
        if not np.allclose(value, known, rtol=CLOSE, atol=CLOSE * np.abs(known).max()):
            raise RuntimeError(
                "the ONNX graph does not predict what the network predicts (largest difference "
                f"{np.abs(value - known).max():.2g}); no file was written."
            )


def _model(net: Any, graph: Graph, values: dict[str, str]) -> Any:
    """A graph with these outputs and, of classes, the most probable label."""
    outputs = []
    for name, value in values.items():
        graph.add("Identity", value, name=name)
        shape = ["rows", net._n_outputs]
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    if net._CLASSES:
        outputs.append(_label(net.classes_, graph))
    shape = ["rows", *net._row_shape]
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, type(net).__name__, inputs, outputs, graph.tensors),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=8,
        producer_name="soubayes",
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def network_weights(net: Any, n_draws: int | None) -> list[np.ndarray]:
    """Weights of shape (draws, inputs + 1, units)."""
    network = net._network
    if n_draws is None:
        draws = [mean_weights(network.layers)]
    else:
        draws = list(drawn(network.layers, n_draws, net._rng_seed))
    return [np.stack(parts).astype(float) for parts in zip(*draws, strict=True)]


class GraphNodes:
    """The operations of a graph: weights (draws, inputs + 1, units) as constants, rows as names.

    Values of dense layers are (draws, rows, units); all draws of a convolution are its groups:
    (rows, draws x channels, height, width).
    """

    def __init__(self, network: Network, graph: Graph, weights: list[np.ndarray]) -> None:
        self.network, self.graph, self.weights = network, graph, weights
        self.spatial = False  # whether the last value is of a convolution

    def convolve(self, i: int, x: str) -> str:
        step = self.network.spec.steps[i]
        if not self.spatial:
            x = _channels_first(step, x, self.graph)
        self.spatial = True
        groups = len(self.weights[0]) if i else 1
        return _convolution(self.graph, x, step, self.weights[i], groups)

    def pool(self, x: str, size: int) -> str:
        if size == 1:
            return x
        sides = [size] * len(self.network.spec.steps[0].space)
        return self.graph.add("MaxPool", x, kernel_shape=sides, strides=sides)

    def flatten(self, x: str) -> str:
        if self.spatial:
            x = _features(self.graph, x, len(self.weights[0]), self.network)
        self.spatial = False
        return x

    def take(self, x: str, columns: Any) -> str:
        if isinstance(columns, slice):
            return x
        return self.graph.add("Gather", x, self.graph.hold(columns.astype(np.int64)), axis=2)

    def gate(self, i: int, x: str) -> str:
        return x  # its scales are in the weights

    def join(self, h: str, x: str) -> str:
        draws = self.graph.hold(np.array([len(self.weights[0]), 1, 1]))
        return self.graph.add("Concat", h, self.graph.add("Expand", x, draws), axis=2)

    def dense(self, i: int, x: str) -> str:
        x = self.graph.add("MatMul", x, self.graph.hold(self.weights[i][:, :-1]))
        return self.graph.add("Add", x, self.graph.hold(self.weights[i][:, -1:]))

    def add(self, x: str, h: str) -> str:
        return self.graph.add("Add", x, h)

    def activate(self, x: str) -> str:
        return self.graph.add(_NODE[self.network.spec.activation], x)


def _outputs(net: Any, graph: Graph, weights: list[np.ndarray]) -> str:
    """Nodes from X to the outputs of the network, (draws, rows, outputs)."""
    network = net._network
    read = slice(None) if network.columns is not None else network.read
    value = _scaled(net, graph)
    if not network.spec.steps[0].kernel:  # an axis for the draws
        value = graph.add("Unsqueeze", value, graph.hold(np.array([0])))
    return forward(network.spec, read, value, GraphNodes(network, graph, weights))


def _scaled(net: Any, graph: Graph) -> str:
    """The columns of X that are read, scaled in float64: float32 cannot hold mean and spread."""
    columns, value = net._network.columns, "X"
    if net._rows_are_images:
        value = graph.add("Reshape", value, graph.hold(np.array([0, net.n_features_in_])))
    if columns is not None:
        value = graph.add("Gather", value, graph.hold(columns.astype(np.int64)), axis=1)
    scaler = net._x_scaler.of(columns)
    value = graph.add("Cast", value, to=TensorProto.DOUBLE)
    value = graph.add("Sub", value, graph.hold(scaler.shift, np.float64))
    value = graph.add("Div", value, graph.hold(scaler.scale, np.float64))
    return graph.add("Cast", value, to=TensorProto.FLOAT)


def _channels_first(step: LayerShape, value: str, graph: Graph) -> str:
    """Rows as (rows, channels, height, width)."""
    value = graph.add("Reshape", value, graph.hold(np.array([0, *step.space, -1])))
    axes = [0, len(step.space) + 1, *range(1, len(step.space) + 1)]
    return graph.add("Transpose", value, perm=axes)


def _convolution(
    graph: Graph, value: str, step: LayerShape, weight: np.ndarray, groups: int
) -> str:
    """All draws in one convolution: channels of draw d are the d-th group."""
    draws, _, channels = weight.shape
    kernel = [step.kernel] * len(step.space)
    kernels = weight[:, :-1].reshape(draws, *kernel, -1, channels)
    last = kernels.ndim - 1
    kernels = kernels.transpose(0, last, last - 1, *range(1, last - 1))
    kernels = kernels.reshape(draws * channels, -1, *kernel)
    bias = graph.hold(weight[:, -1].ravel())
    pads = [*(before for before, _ in step.padding), *(after for _, after in step.padding)]
    return graph.add(
        "Conv", value, graph.hold(kernels), bias,
        group=groups, kernel_shape=kernel, pads=pads, strides=[step.stride] * len(step.space),
    )  # fmt: skip


def _features(graph: Graph, value: str, draws: int, network: Any) -> str:
    """(rows, draws x channels, height, width) as (draws, rows, features)."""
    dense = next(i for i, step in enumerate(network.spec.steps) if step.positions)
    places = network.spec.steps[dense].positions
    value = graph.add("Reshape", value, graph.hold(np.array([0, draws, -1, places])))
    value = graph.add("Transpose", value, perm=[1, 0, 3, 2])
    features = places * len(network.kept.units[dense - 1])
    return graph.add("Reshape", value, graph.hold(np.array([draws, -1, features])))


def _label(classes: np.ndarray, graph: Graph) -> Any:
    """Nodes that pick the most probable class; integers and text keep their labels."""
    if classes.dtype.kind in "iub":
        labels, kind = classes.astype(np.int64), TensorProto.INT64
    elif classes.dtype.kind == "f":
        labels, kind = classes.astype(np.float32), TensorProto.FLOAT
    else:
        labels, kind = classes.astype(str).astype(object), TensorProto.STRING
    number = graph.add("ArgMax", "probabilities", axis=1, keepdims=0)
    graph.add("Gather", graph.hold(labels), number, name="label")
    return helper.make_tensor_value_info("label", kind, ["rows"])
