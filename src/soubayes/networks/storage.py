"""Networks on disk: tensors as safetensors, everything else as JSON in the same file.

Reading runs no code, and every file is replaced as a whole, so a kill leaves the old one.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pandas as pd

from soubayes._files import atomic_path
from soubayes._optional import require
from soubayes.networks.layers import layer_shapes
from soubayes.networks.removal import Kept, network_size, streams
from soubayes.networks.state import Run, StageEnd
from soubayes.networks.structure import Spec

_FORMAT = 3


def write(path: str | os.PathLike[str], tree: Any, info: dict[str, Any]) -> None:
    """Write nested dicts and lists of arrays, and JSON-able `info`, to one file."""
    numpy_io = require("safetensors.numpy", "saving a network")
    leaves = _flatten(tree)
    tensors = {k: np.array(v, order="C") for k, v in leaves.items() if not _is_branch(v)}
    empty = {k: v for k, v in leaves.items() if _is_branch(v)}  # tensors leave no trace of these
    text = json.dumps({"format": _FORMAT, "empty": empty, **info}, default=_plain)
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
    return _unflatten(tensors | info.pop("empty")), info


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


def write_together(
    folder: str | os.PathLike[str], params: Any, moments: Any, rows: Any, info: dict[str, Any]
) -> None:
    """The state of several networks that are trained together, in one file."""
    tree = {
        "params": params,
        "moments": {"count": moments.count, "mu": moments.mu, "nu": moments.nu},
        "history": [[columns(own[: info["epoch"]]) for own in group] for group in rows],
    }
    write(_checkpoint_file(folder), tree, info)


def read_together(folder: str | os.PathLike[str]) -> tuple[Any, Any, Any, dict[str, Any]] | None:
    """Params, moments, rows and info to go on with, or None when there is no checkpoint yet."""
    if not _checkpoint_file(folder).exists():
        return None
    tree, info = read(_checkpoint_file(folder))
    rows = [[_as_rows(history, info["epoch"]) for history in group] for group in tree["history"]]
    return tree["params"], optax.ScaleByAdamState(**tree["moments"]), rows, info


def _as_rows(history: dict[str, np.ndarray], count: int) -> list[dict[str, Any]]:
    return [{name: history[name][i] for name in history} for i in range(count)]


def read_checkpoint(folder: str | os.PathLike[str]) -> tuple[Run, dict[str, Any]] | None:
    """The run to go on with and its info, or None when there is no checkpoint yet."""
    if not _checkpoint_file(folder).exists():
        return None
    tree, info = read(_checkpoint_file(folder))
    moments = optax.ScaleByAdamState(**tree["moments"])
    rows = _as_rows(tree["history"], info["epoch"])
    ends = read_ends(tree)
    return Run(tree["params"], moments, Kept(**tree["kept"]), info["epoch"], rows, ends), info


def ends_tree(ends: list[StageEnd]) -> list[dict[str, Any]]:
    """Networks as a tree to write."""
    return [{"params": end.params, "kept": end.kept._asdict(), "epoch": end.epoch} for end in ends]


def read_ends(tree: dict[str, Any]) -> list[StageEnd]:
    """The networks of a tree that was read."""
    return [StageEnd(end["params"], Kept(**end["kept"]), int(end["epoch"])) for end in tree["ends"]]


def check_ends(spec: Spec, ends: list[StageEnd], epochs: int) -> None:
    """Raise unless networks of a file fit their structure, so nothing fails or reads later."""
    if not ends:
        raise ValueError("it holds no network")
    for end in ends:
        kept = [*zip(end.kept.units, (step.units for step in spec.steps[:-1]), strict=True)]
        for places, count in (*kept, (end.kept.inputs, spec.reads)):
            _check_places(places, count)
        for stream in streams(spec):
            if any(
                not np.array_equal(end.kept.units[stream.start], u) for u in end.kept.units[stream]
            ):
                raise ValueError("residual layers have other units than the layer they add to")
        wanted = layer_shapes(spec, *network_size(spec, end.kept))
        for layer, shapes in zip(end.params["layers"], wanted, strict=True):
            found = {name: value.shape for name, value in layer.items()}
            if found != shapes or any(value.dtype != np.float32 for value in layer.values()):
                raise ValueError(f"a layer has the arrays {found} instead of {shapes}")
        if not 0 <= end.epoch <= epochs:
            raise ValueError(f"a network is of epoch {end.epoch}, but there were {epochs}")


def _check_places(places: np.ndarray, count: int) -> None:
    """Numbers of units or inputs that are left: ordered, different, and below the count."""
    given = np.asarray(places)
    ordered = given.ndim == 1 and given.dtype.kind == "i" and (np.diff(given) > 0).all()
    if not ordered or (len(given) and not 0 <= given[0] <= given[-1] < count):
        raise ValueError(f"units or inputs {given!r} are not among {count}")


def table_columns(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """A table as what a file holds."""
    return {str(name): table[name].to_numpy() for name in table}


def columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """A history as columns."""
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}


def labels_to_json(labels: np.ndarray) -> dict[str, Any]:
    """Labels of classes as JSON has them: numbers, text, and dates as whole numbers.

    >>> days = np.array(["2024-01-01", "2024-01-03"], "datetime64[D]")
    >>> labels_to_json(days)
    {'classes': [19723, 19725], 'classes_dtype': '<M8[D]'}
    >>> bool((labels_from_json(labels_to_json(days)) == days).all())
    True
    """
    kind, values = labels.dtype.str, labels
    if labels.dtype.kind in "Mm":
        values = labels.view(np.int64)
    elif labels.dtype.kind in "OU":
        kind = "text"
    plain = values.tolist()
    odd = next((label for label in plain if not isinstance(label, str | int | float)), None)
    if odd is not None:
        raise TypeError(
            f"the label {odd!r} is a {type(odd).__name__}, which a file cannot hold. Train with "
            "labels that are numbers, text or NumPy dates."
        )
    return {"classes": plain, "classes_dtype": kind}


def labels_from_json(info: dict[str, Any]) -> np.ndarray:
    """The labels that `labels_to_json` was given."""
    plain, kind = np.array(info["classes"]), info["classes_dtype"]
    if plain.ndim != 1 or len(plain) < 2 or plain.dtype.kind not in "biufU":
        raise ValueError("the classes are not a list of at least two numbers or texts")
    if kind == "text":
        return plain
    dtype = np.dtype(kind)
    if dtype.kind in "Mm":
        return plain.astype(np.int64).view(dtype)
    if dtype.kind not in "biuf":
        raise ValueError(f"classes of the kind {kind!r} are unknown")
    return plain.astype(dtype)


def _checkpoint_file(folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / "training.safetensors"


def _checksum(text: str, tensors: dict[str, np.ndarray]) -> str:
    """SHA-256 of everything that is read back."""
    total = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        total.update(f"{name} {value.dtype.str} {value.shape}".encode())
        total.update(value.tobytes())
    return total.hexdigest()


def _is_branch(node: Any) -> bool:
    return isinstance(node, dict | list)


def _flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Arrays, and dicts and lists without entries, by their way through the tree."""
    if _is_branch(tree) and len(tree):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {k: v for name, part in items for k, v in _flatten(part, f"{prefix}/{name}").items()}
    return {prefix[1:]: tree if _is_branch(tree) else np.asarray(tree)}


def _unflatten(tensors: dict[str, Any]) -> Any:
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
