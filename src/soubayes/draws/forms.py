"""The forms in which draws come without a model: files of Stan, JSON, pandas, dictionaries.

All become the part of an ArviZ object that is read: groups of variables, (chain, draw, ...).
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

GROUPS = ("posterior", "log_prior", "log_likelihood")
_INDEX = re.compile(r"^(.*?)[\[.]([\d,.]+)\]?$")


class _Variable(NamedTuple):
    values: np.ndarray


class _Group(dict):
    @property
    def data_vars(self) -> "_Group":
        return self


class _Tree(NamedTuple):
    posterior: _Group
    log_prior: _Group
    log_likelihood: _Group
    sample_stats: _Group = _Group()


def as_tree(draws: Any) -> Any:
    """Files, chains, data frames and dictionaries of groups as an ArviZ object has them.

    An ArviZ object, and anything else, is returned as it is.
    """
    if isinstance(draws, str | Path):
        return as_tree([draws])
    if isinstance(draws, pd.DataFrame):
        return _from_columns(draws)
    if hasattr(draws, "posterior"):
        return draws
    if isinstance(draws, Mapping) and "posterior" in draws and set(draws) <= set(GROUPS):
        return _from_groups(draws)
    if isinstance(draws, Sequence) and draws:
        if all(isinstance(part, str | Path) for part in draws):
            return _from_files([Path(part) for part in draws])
        if all(isinstance(part, Mapping) for part in draws):
            return _from_chains(draws)
    return draws


def _from_files(paths: Sequence[Path]) -> _Tree:
    """CmdStan's CSV files, one for each chain, or a JSON file as posteriordb has them."""
    if all(path.suffix == ".json" for path in paths):
        return _from_chains([chain for path in paths for chain in json.loads(path.read_text())])
    frames = [
        pd.read_csv(path, comment="#").assign(chain__=i) for i, path in enumerate(paths, start=1)
    ]
    return _from_columns(pd.concat(frames, ignore_index=True))


def _from_chains(chains: Sequence[Mapping[str, Any]]) -> _Tree:
    """Chains as posteriordb has them, each a mapping of column names to draws."""
    frames = [pd.DataFrame(chain).assign(chain__=i) for i, chain in enumerate(chains)]
    return _from_columns(pd.concat(frames, ignore_index=True))


def _from_columns(frame: pd.DataFrame) -> _Tree:
    """One table: columns ``lp_x`` are the log prior of x, ``log_lik`` the log likelihood."""
    names = [str(name) for name in frame.columns]
    prior = {n: n[3:] for n in names if n.startswith("lp_") and not n.endswith("__")}
    likelihood = [n for n in names if re.match(r"log_lik\b", n)]
    rest = [n for n in names if n not in prior and n not in likelihood]
    sampler = _Group()
    if "divergent__" in names:
        sampler["diverging"] = _Variable(np.asarray(frame["divergent__"]) > 0)
    chain = ["chain__"] if "chain__" in names else []
    frames = {
        "posterior": frame[rest],
        "log_prior": frame[[*prior, *chain]].rename(columns=prior),
        "log_likelihood": frame[[*likelihood, *chain]],
    }
    return _from_groups(frames)._replace(sample_stats=sampler)


def _from_groups(groups: Mapping[str, Any]) -> _Tree:
    """Groups that are data frames or mappings of names to arrays.

    Columns ``theta[1]``, ``theta[2]``, ... (or ``theta.1``, as Stan's files have them) are one
    variable. ``chain__`` tells chains apart; other names that end in ``__`` are the sampler's, and
    are left out. Arrays are (chain, draw, ...), or (draw, ...) if one of them has one axis.
    """
    parts = [groups.get(name, {}) for name in GROUPS]
    frames = [part for part in parts if isinstance(part, pd.DataFrame)]
    chains = [frame["chain__"] for frame in frames if "chain__" in frame.columns]
    arrays = [np.asarray(x) for part in parts if isinstance(part, dict) for x in part.values()]
    alone = any(x.ndim == 1 for x in arrays)

    def group(part: Any) -> _Group:
        if isinstance(part, pd.DataFrame):
            return _from_frame(part, np.asarray(chains[0]) if chains else None)
        variables = {name: np.asarray(x) for name, x in part.items()}
        return _Group({n: _Variable(x[None] if alone else x) for n, x in variables.items()})

    return _Tree(*map(group, parts))


def _from_frame(frame: pd.DataFrame, chains: np.ndarray | None) -> _Group:
    parts: dict[str, list[np.ndarray]] = {}
    for column in frame.columns:
        if str(column).endswith("__"):
            continue
        index = _INDEX.match(str(column))
        name = index.group(1) if index else str(column)
        parts.setdefault(name, []).append(np.asarray(frame[column]))
    count = 1 if chains is None else len(np.unique(chains))
    rows = np.arange(len(frame)) if chains is None else np.argsort(chains, kind="stable")
    group = _Group()
    for name, columns in parts.items():
        values = np.stack(columns, axis=1)[rows] if len(columns) > 1 else columns[0][rows]
        group[name] = _Variable(values.reshape(count, -1, *values.shape[1:]))
    return group
