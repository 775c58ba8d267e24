"""Rows of experiments in one SQLite file: each is written whole, the moment it is finished."""

import json
import os
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILE = "rows.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS origin (id INTEGER PRIMARY KEY, commit_id TEXT, versions TEXT,
    UNIQUE (commit_id, versions));
CREATE TABLE IF NOT EXISTS row (experiment TEXT, seed INTEGER, parameters TEXT, result TEXT,
    error TEXT, warnings TEXT, seconds REAL, finished TEXT, origin INTEGER REFERENCES origin (id),
    PRIMARY KEY (experiment, seed, parameters));
"""
_SHOWN = ["numpy", "scipy", "scikit-learn", "jax", "numpyro", "abess", "skglm", "soubayes"]


class Task(NamedTuple):
    """What a row is computed from, and all that it depends on."""

    seed: int
    parameters: Mapping[str, Any]


class Outcome(NamedTuple):
    """What computing a row gave: ``result``, or ``error`` with the traceback."""

    result: Mapping[str, Any]
    error: str
    warnings: str
    seconds: float


class Row(NamedTuple):
    """A stored row: its task, its outcome, and where and when it was computed."""

    seed: int
    parameters: dict[str, Any]
    result: dict[str, Any]
    error: str
    warnings: str
    seconds: float
    finished: str
    commit: str
    versions: dict[str, str]


class Store:
    """The rows in a folder. Opening creates the folder; a killed writer leaves whole rows only.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.add("demo", Task(0, {"n": 5}), Outcome({"rmse": 1.5}, "", "", 0.1))
    >>> [row.result for row in store.rows("demo")]
    [{'rmse': 1.5}]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / FILE
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._open() as database:
                database.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise OSError(
                f"{self.path} cannot be used as a file of rows ({error}). "
                "Move it away or choose another folder."
            ) from error

    def add(self, experiment: str, task: Task, outcome: Outcome) -> None:
        """Write one row; a row of the same task is replaced."""
        here = (_commit(), _as_json(_versions()))
        values = [experiment, task.seed, _as_json(task.parameters), _as_json(outcome.result)]
        values += [outcome.error, outcome.warnings, outcome.seconds]
        values += [datetime.now(UTC).isoformat(timespec="seconds"), *here]
        with self._open() as database, database:
            database.execute("INSERT OR IGNORE INTO origin VALUES (NULL, ?, ?)", here)
            database.execute(
                "INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?, ?, ?, ?,"
                " (SELECT id FROM origin WHERE commit_id = ? AND versions = ?))",
                values,
            )

    def pending(self, experiment: str, tasks: list[Task]) -> list[Task]:
        """The tasks without a row, or whose row is an error."""
        with self._open() as database:
            done = set(
                database.execute(
                    "SELECT seed, parameters FROM row WHERE experiment = ? AND error = ''",
                    [experiment],
                )
            )
        return [t for t in tasks if (t.seed, _as_json(t.parameters)) not in done]

    def rows(self, experiment: str) -> list[Row]:
        """All rows of an experiment, in an order that does not depend on when they finished."""
        with self._open() as database:
            found = database.execute(
                "SELECT seed, parameters, result, error, warnings, seconds, finished, commit_id,"
                " versions FROM row JOIN origin ON row.origin = origin.id"
                " WHERE experiment = ? ORDER BY parameters, seed",
                [experiment],
            ).fetchall()
        return [
            Row._make([r[0], json.loads(r[1]), json.loads(r[2]), *r[3:8], json.loads(r[8])])
            for r in found
        ]

    def remove(self, experiment: str, tasks: list[Task]) -> None:
        """Forget the rows of these tasks; others of the same experiment stay."""
        keys = [(experiment, task.seed, _as_json(task.parameters)) for task in tasks]
        with self._open() as database, database:
            database.executemany(
                "DELETE FROM row WHERE experiment = ? AND seed = ? AND parameters = ?", keys
            )

    def _open(self) -> closing[sqlite3.Connection]:
        # a connection a call: cheap beside a row, and nothing is shared between processes
        return closing(sqlite3.connect(self.path, timeout=60))


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a row may hold numbers, strings, lists and arrays, not {type(value)}.")


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in _SHOWN:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def _commit() -> str:
    """The commit of the source tree that runs, "+changes" if it was edited; else "release"."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # installed copies are not tracked
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" * bool(git("diff", "HEAD")))
    except (OSError, subprocess.CalledProcessError):
        return "release"
