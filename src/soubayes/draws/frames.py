"""Draws in pandas: a DataFrame for the parameters, one for the priors, one for the likelihood."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

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


def from_frames(frames: Mapping[str, Any]) -> _Tree:
    """DataFrames as the part of an ArviZ object that is read.

    Columns ``theta[1]``, ``theta[2]``, ... (or ``theta.1``, as Stan's files have them) are one
    variable. ``chain__`` tells chains apart; other names that end in ``__`` are the sampler's, and
    are left out.
    """
    chains = None
    for frame in frames.values():
        if "chain__" in frame.columns:
            chains = np.asarray(frame["chain__"])
    return _Tree(*(_group(frames[name], chains) for name in _Tree._fields))


def _group(frame: Any, chains: np.ndarray | None) -> _Group:
    parts: dict[str, list[np.ndarray]] = {}
    for column in frame.columns:
        if str(column).endswith("__"):
            continue
        found = _INDEX.match(str(column))
        parts.setdefault(found.group(1) if found else str(column), []).append(
            np.asarray(frame[column])
        )
    count = 1 if chains is None else len(np.unique(chains))
    rows = np.arange(len(frame)) if chains is None else np.argsort(chains, kind="stable")
    group = _Group()
    for name, columns in parts.items():
        values = np.stack(columns, axis=1)[rows] if len(columns) > 1 else columns[0][rows]
        group[name] = _Variable(values.reshape(count, -1, *values.shape[1:]))
    return group
