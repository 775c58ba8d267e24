"""ONNX: the fitted network as a graph of MatMul, Add and activations, scaling folded in."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from soubayes._files import atomic_path
from soubayes.networks.layers import mean_weights
from soubayes.networks.prediction import drawn

_OPSET = 18
_NODE = {"relu": "Relu", "tanh": "Tanh", "elu": "Elu"}


def export_onnx(net: Any, path: Path, n_draws: int | None) -> None:
    """Write the mean-weight network (n_draws=None) or the average of posterior draws."""
    weights = network_weights(net, n_draws)
    nodes, tensors, value = [], [], "X"
    for i, weight in enumerate(weights):
        tensors += [
            numpy_helper.from_array(weight[:, :-1].astype(np.float32), f"weight_{i}"),
            numpy_helper.from_array(weight[:, -1:].astype(np.float32), f"bias_{i}"),
        ]
        nodes.append(helper.make_node("MatMul", [value, f"weight_{i}"], [f"product_{i}"]))
        nodes.append(helper.make_node("Add", [f"product_{i}", f"bias_{i}"], [f"sum_{i}"]))
        value = f"sum_{i}"
        if i < len(weights) - 1:
            nodes.append(helper.make_node(_NODE[net.activation], [value], [f"unit_{i}"]))
            value = f"unit_{i}"
    classifier = hasattr(net, "classes_")
    result = "probabilities" if classifier else "mean"
    if classifier:
        nodes.append(helper.make_node("Softmax", [value], ["draws"], axis=-1))
        value = "draws"
    tensors.append(numpy_helper.from_array(np.array([0]), "draw_axis"))
    nodes.append(helper.make_node("ReduceMean", [value, "draw_axis"], [result], keepdims=0))
    sizes = net.architecture_.final
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["rows", sizes[-1]])]
    if classifier:
        outputs.append(_label(net.classes_, nodes, tensors))
    inputs = [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["rows", sizes[0]])]
    graph = helper.make_graph(nodes, type(net).__name__, inputs, outputs, tensors)
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=8,
        producer_name="soubayes",
    )
    onnx.checker.check_model(model, full_check=True)
    with atomic_path(path) as temporary:
        onnx.save(model, temporary)


def network_weights(net: Any, n_draws: int | None) -> list[np.ndarray]:
    """Weights of shape (draws, inputs + 1, units) that act on X and give y in their own units."""
    layers = net._layers
    if n_draws is None:
        draws = [mean_weights(layers)]
    else:
        draws = list(drawn(layers, n_draws, net._rng_seed))
    weights = [np.stack(parts).astype(float) for parts in zip(*draws, strict=True)]
    weights[0] = net._x_scaler.fold(weights[0])
    if hasattr(net, "_y_scaler"):
        weights[-1] *= net._y_scaler.scale
        weights[-1][:, -1] += net._y_scaler.shift
    return weights


def _label(classes: np.ndarray, nodes: list[Any], tensors: list[Any]) -> Any:
    """Nodes that pick the most probable class; integers and text keep their labels."""
    if classes.dtype.kind in "iub":
        labels, kind = classes.astype(np.int64), TensorProto.INT64
    elif classes.dtype.kind == "f":
        labels, kind = classes.astype(np.float32), TensorProto.FLOAT
    else:
        labels, kind = classes.astype(str).astype(object), TensorProto.STRING
    tensors.append(numpy_helper.from_array(labels, "classes"))
    nodes.append(helper.make_node("ArgMax", ["probabilities"], ["number"], axis=1, keepdims=0))
    nodes.append(helper.make_node("Gather", ["classes", "number"], ["label"]))
    return helper.make_tensor_value_info("label", kind, ["rows"])
