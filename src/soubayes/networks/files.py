"""What the file of a network or of an ensemble holds, and the estimator that is made of it again.

A file may come from anybody: everything is checked before it is used.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from soubayes._docstrings import fill_docstrings
from soubayes._optional import require
from soubayes.networks import storage, structure
from soubayes.networks.feeding import Scaler
from soubayes.networks.mixtures import FACTORS
from soubayes.networks.settings import NET_ARGUMENTS, check_seed, check_settings

NOT_SAVED = ("random_state", "verbose", "checkpoint", "class_weight")

Parts = tuple[dict[str, Any], dict[str, Any]]  # arrays, and fields of JSON


@fill_docstrings(NET_ARGUMENTS)
class SavedModel:
    """Files of a fitted network or of an ensemble; a subclass brings what they hold."""

    def _parts(self) -> Parts:
        """What the file holds."""
        raise NotImplementedError

    @classmethod
    def _of_parts(cls, tree: dict[str, Any], info: dict[str, Any]) -> Self:
        """The estimator of a file's fields, which may be anything."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which ``load`` reads without running code."""
        check_is_fitted(self)
        storage.write(path, *self._parts())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that ``save`` wrote.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        model : estimator
            The fitted estimator.
        """
        tree, info = storage.read(path)
        found = info.get("class")
        if found != cls.__name__:
            raise ValueError(f"{str(path)!r} holds a {found}; use {found}.load.")
        with _naming(path):
            return cls._of_parts(tree, info)

    def export_onnx(
        self, path: str | os.PathLike[str], *, mode: str = "auto", n_draws: int = 100
    ) -> None:
        """Write the predictions as an ONNX graph (extra ``onnx``).

        The graph scales its input itself. The input is float32 in the shape that ``fit`` took:
        (rows, features), or images. It returns class probabilities and labels, or the mean and,
        of a single network, the standard deviation ``sd`` of a regression. An ensemble is one
        file. Before the file is written, its predictions are compared with those of Python.

        Parameters
        ----------
        mode : {"auto", "mean", "draws", "calibrated"}, default="auto"
            ``"auto"`` is what ``predict`` and ``predict_proba`` do: the average of posterior draws,
            of a classifier with its temperature (``"calibrated"``). ``"mean"`` is one pass with the
            mean weights: a file that is smaller by the number of draws, of other predictions. An
            ensemble of classifiers has its temperature always.
        n_draws : int, default=100
            Posterior draws of each network.

        Raises
        ------
        RuntimeError
            If the graph does not predict what Python predicts.
        """
        check_is_fitted(self)
        export = require("soubayes.networks.export", "export_onnx")
        export.export_onnx(self, Path(path), mode, n_draws)


@contextmanager
def _naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in any error that its fields cause."""
    try:
        yield
    except Exception as error:  # a crafted field can be anything, so its readers raise anything
        raise ValueError(
            f"{str(path)!r} does not hold a network that soubayes saved: {error}"
        ) from error


def network_parts(net: Any) -> Parts:
    """What the file of a fitted network holds."""
    arrays, info = net._state()
    tree = {
        "ends": storage.ends_tree(net._ends),
        "history": storage.table_columns(net.history_),
        "path": storage.table_columns(net.path_),
        "x_shift": net._x_scaler.shift,
        "x_scale": net._x_scaler.scale,
        **arrays,
    }
    info |= {
        "class": type(net).__name__,
        "settings": _settings(net),
        "hidden": structure.to_json(net._hidden),
        "seed": net._rng_seed,
        "n_features_in": net.n_features_in_,
        "input_shape": net._input_shape,
        "rows_are_images": net._rows_are_images,
        "feature_names": _names(net),
        "finished": net.finished_,
        "chosen": net._chosen,
        "prunes": net._prunes,
        "skips": net._skips,
    }
    return tree, info


def read_network(cls: Any, tree: dict[str, Any], info: dict[str, Any]) -> Any:
    """The fitted network of a file's fields, which may be anything."""
    net = _with_settings(cls, info["settings"])
    net._hidden = structure.from_json(info["hidden"])
    check_settings({"hidden": net._hidden})
    net._restore(tree, info)
    net.n_features_in_ = info["n_features_in"]
    net._input_shape = tuple(info["input_shape"])
    net._rows_are_images = bool(info["rows_are_images"])
    _name(net, info)
    net._x_scaler = Scaler(tree["x_shift"], tree["x_scale"])
    if net._x_scaler.shift.shape not in ((), (net.n_features_in_,)) or len(
        info["feature_names"]
    ) not in (0, net.n_features_in_):
        raise ValueError(f"scales or names do not fit {net.n_features_in_} columns")
    net._rng_seed = check_seed(info["seed"])
    net.finished_ = bool(info["finished"])
    history, ends = tree["history"], storage.read_ends(tree)
    net._prunes, net._skips = bool(info["prunes"]), bool(info["skips"])
    spec = net._spec()
    lengths = {len(values) for values in history.values()} or {0}
    storage.check_ends(spec, ends, min(lengths))
    net._check_params(ends)
    net._set_fitted(spec, ends, history)
    net.path_ = pd.DataFrame(tree["path"])
    if len(net.path_) != len(ends) or not 0 <= info["chosen"] < len(ends):
        raise ValueError(f"it has {len(ends)} networks and a path of {len(net.path_)}")
    net._use(info["chosen"])
    return net


def ensemble_parts(ensemble: Any) -> Parts:
    """What the file of a fitted ensemble holds."""
    parts = [[network_parts(net) for net in group] for group in ensemble.networks_]
    classes = ensemble._CLASSES
    tree = {
        "networks": [[tree for tree, _ in group] for group in parts],
        "weights": ensemble.path_["weight"].to_numpy() if classes else ensemble.noise_weights_,
    }
    hidden = ensemble.hidden
    info: dict[str, Any] = {
        "class": type(ensemble).__name__,
        "networks": [[info for _, info in group] for group in parts],
        "estimator": None if ensemble.estimator is None else _settings(ensemble.estimator),
        "classes": classes,
        "hidden": None if hidden is None else list(map(structure.to_json, hidden)),
        "confidences": [float(c) for c in ensemble.confidences],
        "folds": int(ensemble.folds),
        "flat_y": ensemble._flat_y,
        "n_outputs": ensemble._n_outputs,
        "n_features_in": ensemble.n_features_in_,
        "feature_names": _names(ensemble),
    }
    if classes:
        info |= {"labels": storage.labels_to_json(ensemble.classes_)}
        info |= {"temperature": ensemble.temperature_}
    return tree, info


def read_ensemble(cls: Any, kind: Any, tree: dict[str, Any], info: dict[str, Any]) -> Any:
    """The fitted ensemble, of networks of a kind, of a file's fields, which may be anything."""
    nets = [
        [read_network(kind, *parts) for parts in zip(*group, strict=True)]
        for group in zip(tree["networks"], info["networks"], strict=True)
    ]
    hidden, estimator = info["hidden"], info["estimator"]
    ensemble = cls(
        None if estimator is None else _with_settings(kind, estimator),
        hidden=None if hidden is None else tuple(map(structure.from_json, hidden)),
        confidences=tuple(info["confidences"]),
        folds=info["folds"],
    )
    ensemble.networks_ = nets
    ensemble._flat_y, ensemble._n_outputs = bool(info["flat_y"]), int(info["n_outputs"])
    ensemble.n_features_in_ = int(info["n_features_in"])
    _name(ensemble, info)
    weights = np.asarray(tree["weights"], float)
    counts = {len(group) for group in nets} | {len(weights)}
    columns = {net.n_features_in_ for group in nets for net in group}
    outputs = {net._n_outputs for group in nets for net in group}
    if len(nets) != ensemble.folds or len(counts) != 1:
        raise ValueError(f"it has {counts} networks in {len(nets)} folds")
    if columns != {ensemble.n_features_in_} or outputs != {ensemble._n_outputs}:
        raise ValueError("its networks have different columns or outputs")
    if info["classes"]:
        ensemble.classes_ = storage.labels_from_json(info["labels"])
        ensemble.temperature_ = float(info["temperature"])
        if len(ensemble.classes_) != ensemble._n_outputs or not ensemble.temperature_ > 0:
            raise ValueError("its labels or its temperature do not fit")
    if weights.shape[1:] != (() if info["classes"] else (len(FACTORS),)):
        raise ValueError("its weights do not fit its networks")
    ensemble._report(weights)
    return ensemble


def _settings(net: Any) -> dict[str, Any]:
    kept = {k: v for k, v in net.get_params(deep=False).items() if k not in NOT_SAVED}
    return kept | {"hidden": structure.to_json(net.hidden or ())}


def _with_settings(cls: Any, fields: dict[str, Any]) -> Any:
    settings = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    settings["hidden"] = structure.from_json(fields["hidden"]) or None
    check_settings(settings)
    return cls(**settings)


def _names(estimator: Any) -> list[str]:
    return getattr(estimator, "feature_names_in_", np.array([])).tolist()


def _name(estimator: Any, info: dict[str, Any]) -> None:
    """The names of the columns, if the file has them."""
    if info["feature_names"]:
        estimator.feature_names_in_ = np.array(info["feature_names"], dtype=object)
