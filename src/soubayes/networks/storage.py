"""Networks on disk: tensors as safetensors, everything else as JSON in the same file.

Reading runs no code, and every file is replaced as a whole, so that a kill leaves the old one.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import optax

from soubayes._files import atomic_path
from soubayes._optional import require
from soubayes.networks.compaction import Kept
from soubayes.networks.state import End, Run

_FORMAT = 2


def write(path: str | os.PathLike[str], tree: Any, info: dict[str, Any]) -> None:
    """Write nested dicts and lists of arrays, and JSON-able `info`, to one file."""
    numpy_io = require("safetensors.numpy", "saving a network")
    tensors = {name: np.array(value, order="C") for name, value in _flatten(tree).items()}
    text = json.dumps({"format": _FORMAT, **info}, default=_plain)
    with atomic_path(path) as temporary:
        checked = {"soubayes": text, "checksum": _checksum(text, tensors)}
        numpy_io.save_file(tensors, temporary, metadata=checked)


def read(path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """The tree and the info that `write` was given."""
    safetensors = require("safetensors", "loading a network")
    if not Path(path).is_file():
        raise FileNotFoundError(f"no saved network at {str(path)!r}.")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
            info = json.loads(metadata["soubayes"])
    except Exception as error:  # of whatever kind damage provokes in the readers
        raise ValueError(
            f"{str(path)!r} is not a network saved by soubayes, or it is damaged: {error}"
        ) from error
    if info.get("format") != _FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {info.get('format')!r}, but this version of soubayes reads "
            f"format {_FORMAT}. Load it with the version that wrote it."
        )
    if metadata.get("checksum") != _checksum(metadata["soubayes"], tensors):
        raise ValueError(f"{str(path)!r} is damaged: its content does not match its checksum.")
    return _unflatten(tensors), info


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays among the settings, as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} cannot be written to a file")


def write_checkpoint(folder: str | os.PathLike[str], run: Run, info: dict[str, Any]) -> None:
    """The whole state of a training, in one file."""
    moments = {"count": run.moments.count, "mu": run.moments.mu, "nu": run.moments.nu}
    tree = {
        "params": run.params,
        "moments": moments,
        "kept": run.kept._asdict(),
        "history": columns(run.rows[: run.epoch]),
        "ends": ends_tree([end for end in run.ends if end.epoch <= run.epoch]),
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
    ends = read_ends(tree)
    return Run(tree["params"], moments, Kept(**tree["kept"]), info["epoch"], rows, ends), info


def ends_tree(ends: list[End]) -> list[dict[str, Any]]:
    """Networks as a tree to write."""
    return [{"params": end.params, "kept": end.kept._asdict(), "epoch": end.epoch} for end in ends]


def read_ends(tree: dict[str, Any]) -> list[End]:
    """The networks of a tree that was read; a list without entries leaves nothing behind."""
    return [
        End(end["params"], Kept(**end["kept"]), int(end["epoch"])) for end in tree.get("ends", [])
    ]


def columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """A history as columns."""
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def _checkpoint_file(folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / "training.safetensors"


def _checksum(text: str, tensors: dict[str, np.ndarray]) -> str:
    """SHA-256 of everything that is read back."""
    total = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        total.update(f"{name} {value.dtype.str} {value.shape}".encode())
        total.update(value.tobytes())
    return total.hexdigest()


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
