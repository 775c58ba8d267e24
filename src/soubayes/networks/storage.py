"""Networks on disk: tensors as safetensors, everything else as JSON in the same file.

Reading runs no code, and every file is replaced as a whole, so that a kill leaves the old one.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import optax

from soubayes._files import atomic_path
from soubayes._optional import require
from soubayes.networks.training import Run

_FORMAT = 1


def write(path: str | os.PathLike[str], tree: Any, info: dict[str, Any]) -> None:
    """Write nested dicts and lists of arrays, and JSON-able `info`, to one file."""
    numpy_io = require("safetensors.numpy", "saving a network")
    tensors = {name: np.array(value, order="C") for name, value in _flatten(tree).items()}
    text = json.dumps({"format": _FORMAT, **info})
    with atomic_path(path) as temporary:
        numpy_io.save_file(tensors, temporary, metadata={"soubayes": text})


def read(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """The tree and the info that `write` was given."""
    safetensors = require("safetensors", "loading a network")
    if not Path(path).is_file():
        raise FileNotFoundError(f"no saved network at {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            info = json.loads((file.metadata() or {})["soubayes"])
    except (safetensors.SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{str(path)!r} is not a network saved by soubayes, or it is damaged: {error}"
        ) from error
    if info.get("format") != _FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {info.get('format')!r}, but this version of soubayes reads "
            f"format {_FORMAT}. Load it with the version that wrote it."
        )
    return _unflatten(tensors), info


def write_checkpoint(folder: str | os.PathLike[str], run: Run, info: dict[str, Any]) -> None:
    """The whole state of a training, in one file."""
    moments = {"count": run.moments.count, "mu": run.moments.mu, "nu": run.moments.nu}
    tree = {
        "params": run.params,
        "moments": moments,
        "kept": run.kept,
        "history": columns(run.rows[: run.epoch]),
    }
    write(_checkpoint_file(folder), tree, {**info, "epoch": run.epoch})


def read_checkpoint(folder: str | os.PathLike[str]) -> tuple[Run, dict[str, Any]] | None:
    """The run to go on with and its info, or None when there is no checkpoint yet."""
    if not _checkpoint_file(folder).exists():
        return None
    tree, info = read(_checkpoint_file(folder))
    moments = optax.ScaleByAdamState(**tree["moments"])
    history = tree["history"]
    rows = [{name: history[name][i] for name in history} for i in range(info["epoch"])]
    return Run(tree["params"], moments, tree["kept"], info["epoch"], rows), info


def columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """A history as columns."""
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def _checkpoint_file(folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / "training.safetensors"


def _flatten(tree: Any, prefix: str = "") -> dict[str, np.ndarray]:
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {k: v for name, part in items for k, v in _flatten(part, f"{prefix}/{name}").items()}
    return {prefix[1:]: np.asarray(tree)}


def _unflatten(tensors: dict[str, np.ndarray]) -> Any:
    tree: dict[str, Any] = {}
    for name, value in tensors.items():
        *folders, leaf = name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = value
    return _lists(tree)


def _lists(node: Any) -> Any:
    """Dicts whose keys are 0, 1, ... were lists."""
    if not isinstance(node, dict):
        return node
    if node and all(key.isdigit() for key in node):
        return [_lists(node[key]) for key in sorted(node, key=int)]
    return {key: _lists(value) for key, value in node.items()}
