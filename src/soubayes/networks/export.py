"""ONNX: the fitted network as a graph of standard nodes; draws are one more axis of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from soubayes._files import atomic_path
from soubayes.networks.layers import forward, mean_weights
from soubayes.networks.prediction import Network, drawn
from soubayes.networks.structure import LayerShape

_OPSET = 18
_NODE = {"relu": "Relu", "tanh": "Tanh", "elu": "Elu"}


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
    graph, parts = Graph(), []
    for net, weight in model._members():
        value = predicted(net, graph, net._n_draws(n_draws, mode))
        parts.append(graph.add("Mul", value, graph.hold(np.array(weight))) if weight < 1 else value)
    value = graph.add("Sum", *parts)
    if (temperature := model._exported_temperature(mode)) != 1:
        value = tempered_node(graph, value, temperature)
    write_graph(path, model, graph, value)


def predicted(net: Any, graph: Graph, n_draws: int | None) -> str:
    """Nodes from X to probabilities, or to the mean of y, (rows, outputs)."""
    value = _outputs(net, graph, network_weights(net, n_draws))
    if net._CLASSES:
        value = graph.add("Softmax", value, axis=-1)
    return graph.add("ReduceMean", value, graph.hold(np.array([0])), keepdims=0)


def tempered_node(graph: Graph, value: str, temperature: float) -> str:
    """p^(1/T), normalised."""
    power = graph.add("Pow", value, graph.hold(np.array(1 / temperature)))
    total = graph.add("ReduceSum", power, graph.hold(np.array([1])), keepdims=1)
    return graph.add("Div", power, total)


def write_graph(path: Path, net: Any, graph: Graph, value: str) -> None:
    """A file whose output is a value of the graph and, of classes, the most probable label."""
    result = "probabilities" if net._CLASSES else "mean"
    graph.add("Identity", value, name=result)
    shape = ["rows", net._n_outputs]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)]
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
    with atomic_path(path) as temporary:
        onnx.save(model, temporary)


def network_weights(net: Any, n_draws: int | None) -> list[np.ndarray]:
    """Weights of shape (draws, inputs + 1, units), with y in its own units."""
    network = net._network
    if n_draws is None:
        draws = [mean_weights(network.layers)]
    else:
        draws = list(drawn(network.layers, n_draws, net._rng_seed))
    weights = [np.stack(parts).astype(float) for parts in zip(*draws, strict=True)]
    if not net._CLASSES:
        weights[-1] *= net._y_scaler.scale
        weights[-1][:, -1] += net._y_scaler.shift
    return weights


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
