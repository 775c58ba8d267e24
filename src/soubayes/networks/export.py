"""ONNX: the fitted network as a graph of standard nodes; draws are one more axis of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from soubayes._files import atomic_path
from soubayes.networks.compaction import columns_read
from soubayes.networks.layers import mean_weights
from soubayes.networks.prediction import drawn
from soubayes.networks.structure import Step

_OPSET = 18
_NODE = {"relu": "Relu", "tanh": "Tanh", "elu": "Elu"}


def export_onnx(net: Any, path: Path, n_draws: int | None) -> None:
    """Write the mean-weight network (n_draws=None) or the average of posterior draws."""
    graph = Graph()
    value = _outputs(net, graph, network_weights(net, n_draws))
    classifier = hasattr(net, "classes_")
    result = "probabilities" if classifier else "mean"
    if classifier:
        value = graph.add("Softmax", value, axis=-1)
    graph.add("ReduceMean", value, graph.hold(np.array([0])), keepdims=0, name=result)
    shape = ["rows", net._n_outputs]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)]
    if classifier:
        outputs.append(_label(net.classes_, graph))
    shape = ["rows", *(net._input_shape if net._rows_are_images else (net.n_features_in_,))]
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
    if hasattr(net, "_y_scaler"):
        weights[-1] *= net._y_scaler.scale
        weights[-1][:, -1] += net._y_scaler.shift
    return weights


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


def _outputs(net: Any, graph: Graph, weights: list[np.ndarray]) -> str:
    """Nodes from X to the outputs of the network, (draws, rows, outputs)."""
    network, draws = net._network, len(weights[0])
    value = _scaled(net, graph)
    if network.spec.steps[0].kernel:
        value = _channels_first(network.spec.steps[0], value, graph)
    for i, (step, weight) in enumerate(zip(network.spec.steps, weights, strict=True)):
        if step.kernel:
            value = _convolution(graph, value, step, weight, groups=draws if i else 1)
        else:
            if i and network.spec.steps[i - 1].kernel:
                value = _features(graph, value, draws, network)
            value = graph.add("MatMul", value, graph.hold(weight[:, :-1]))
            value = graph.add("Add", value, graph.hold(weight[:, -1:]))
        if i < len(weights) - 1:
            value = graph.add(_NODE[network.spec.activation], value)
    return value


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


def _channels_first(step: Step, value: str, graph: Graph) -> str:
    """Rows as (rows, channels, height, width)."""
    value = graph.add("Reshape", value, graph.hold(np.array([0, *step.space, -1])))
    axes = [0, len(step.space) + 1, *range(1, len(step.space) + 1)]
    return graph.add("Transpose", value, perm=axes)


def _convolution(graph: Graph, value: str, step: Step, weight: np.ndarray, groups: int) -> str:
    """All draws in one convolution: channels of draw d are the d-th group."""
    draws, _, channels = weight.shape
    kernel = [step.kernel] * len(step.space)
    kernels = weight[:, :-1].reshape(draws, *kernel, -1, channels)
    last = kernels.ndim - 1
    kernels = kernels.transpose(0, last, last - 1, *range(1, last - 1))
    kernels = kernels.reshape(draws * channels, -1, *kernel)
    bias = graph.hold(weight[:, -1].ravel())
    value = graph.add("Conv", value, graph.hold(kernels), bias, group=groups, kernel_shape=kernel)
    if step.pool == 1:
        return value
    size = [step.pool] * len(step.space)
    return graph.add("MaxPool", value, kernel_shape=size, strides=size)


def _features(graph: Graph, value: str, draws: int, network: Any) -> str:
    """(rows, draws x channels, height, width) as (draws, rows, features that are read)."""
    dense = next(i for i, step in enumerate(network.spec.steps) if step.positions)
    places = network.spec.steps[dense].positions
    value = graph.add("Reshape", value, graph.hold(np.array([0, draws, -1, places])))
    value = graph.add("Transpose", value, perm=[1, 0, 3, 2])
    features = places * len(network.kept.units[dense - 1])
    value = graph.add("Reshape", value, graph.hold(np.array([draws, -1, features])))
    if network.spec.gate is None:
        return value
    read = columns_read(network.spec, network.kept).astype(np.int64)
    return graph.add("Gather", value, graph.hold(read), axis=2)


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
