"""Rows of experiments in one SQLite file: each is written whole, the moment it is finished."""

import hashlib
import json
import os
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from errno import EIO
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FILE = "rows.sqlite"
_SCHEMA = """
BEGIN;
CREATE TABLE IF NOT EXISTS origin (id INTEGER PRIMARY KEY, commit_id TEXT, versions TEXT,
    UNIQUE (commit_id, versions));
CREATE TABLE IF NOT EXISTS row (experiment TEXT, seed INTEGER, parameters TEXT, result TEXT,
    error TEXT, warnings TEXT, seconds REAL, finished TEXT, origin INTEGER REFERENCES origin (id),
    checksum TEXT, PRIMARY KEY (experiment, seed, parameters));
COMMIT;
"""
_FIELDS = """experiment, seed, parameters, result, error, warnings, seconds, finished, commit_id,
    versions"""
_ROWS = "row LEFT JOIN origin ON row.origin = origin.id"
# what the disk or another process does to a sound file, by SQLite's names
_TROUBLE = {"BUSY", "CANTOPEN", "FULL", "IOERR", "LOCKED", "NOMEM", "PERM", "READONLY"}
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

    @property
    def version(self) -> str:
        """The version of soubayes that computed it."""
        return _named(self.commit, self.versions)


def as_text(row: Row) -> list[Any]:
    """The fields of a row as a file holds them: mappings as JSON, the rest as it is."""
    seed, parameters, result, error, warnings, seconds, finished, commit, versions = row
    where = [finished, commit, _as_json(versions)]
    return [seed, *map(_as_json, (parameters, result)), error, warnings, float(seconds), *where]


def from_text(fields: Sequence[Any]) -> Row:
    """The row that `as_text` gave these fields of."""
    seed, parameters, result, *rest, versions = fields
    return Row._make([seed, *map(json.loads, (parameters, result)), *rest, json.loads(versions)])


class RowsError(OSError):
    """The file of rows is damaged or cannot be written; the message says what to do."""

    errno = EIO  # the disk's fault, not that of the command's user


class Store:
    """The rows in a folder. Opening creates the folder; a killed writer leaves whole rows only.

    Opening also reads everything once: a damaged file is an error, not a file with fewer rows.

    >>> import tempfile
    >>> store = Store(tempfile.mkdtemp())
    >>> store.add("demo", Task(0, {"n": 5}), Outcome({"rmse": 1.5}, "", "", 0.1))
    >>> [row.result for row in store.rows("demo")]
    [{'rmse': 1.5}]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / FILE
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists() or not self.path.stat().st_size
        with self._open() as database:
            if new:
                database.executescript(_SCHEMA)
            self._check(database)

    def add(self, experiment: str, task: Task, outcome: Outcome) -> None:
        """Write one row; a row of the same task is replaced."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.add_rows(experiment, [Row._make([*task, *outcome, now, _commit(), _versions()])])

    def add_rows(self, experiment: str, rows: list[Row]) -> None:
        """Write rows that were computed elsewhere; rows of the same tasks are replaced."""
        values = [[experiment, *as_text(row)] for row in rows]
        with self._open() as database, database:
            database.executemany(
                "INSERT OR IGNORE INTO origin VALUES (NULL, ?, ?)", [v[-2:] for v in values]
            )
            database.executemany(
                "INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?, ?, ?, ?,"
                " (SELECT id FROM origin WHERE commit_id = ? AND versions = ?), ?)",
                [[*v, _checksum(v)] for v in values],
            )

    def pending(self, experiment: str, tasks: list[Task]) -> list[Task]:
        """The tasks without a row, or whose row is an error."""
        done = self._done(experiment)
        return [t for t in tasks if _key(t) not in done]

    def versions(self, experiment: str, tasks: list[Task]) -> Counter[str]:
        """How many rows of these tasks were computed by which version of soubayes."""
        done = self._done(experiment)
        return Counter(done[key] for key in map(_key, tasks) if key in done)

    def experiments(self) -> list[str]:
        """The names of the experiments that have rows."""
        with self._open() as database:
            query = "SELECT DISTINCT experiment FROM row ORDER BY experiment"
            return [name for (name,) in database.execute(query)]

    def rows(self, experiment: str) -> list[Row]:
        """All rows of an experiment, in an order that does not depend on when they finished."""
        with self._open() as database:
            query = f"SELECT {_FIELDS} FROM {_ROWS} WHERE experiment = ? ORDER BY parameters, seed"
            return [from_text(found[1:]) for found in database.execute(query, [experiment])]

    def remove(self, experiment: str, tasks: list[Task]) -> None:
        """Forget the rows of these tasks; others of the same experiment stay."""
        keys = [(experiment, *_key(task)) for task in tasks]
        with self._open() as database, database:
            database.executemany(
                "DELETE FROM row WHERE experiment = ? AND seed = ? AND parameters = ?", keys
            )

    def _done(self, experiment: str) -> dict[tuple[int, str], str]:
        """The version of every row without error, by seed and parameters."""
        return {
            (row.seed, _as_json(row.parameters)): row.version
            for row in self.rows(experiment)
            if not row.error
        }

    def _check(self, database: sqlite3.Connection) -> None:
        """Read all there is; SQLite checks its structure, the checksums what is stored in it."""
        (state,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if state != "ok":
            raise sqlite3.DatabaseError(" ".join(state.split()))
        for *values, checksum in database.execute(f"SELECT {_FIELDS}, checksum FROM {_ROWS}"):
            if checksum != _checksum(values):
                raise sqlite3.DatabaseError("the checksum of a row is wrong")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # a connection a call: cheap beside a row, and nothing is shared between processes
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as database:
                yield database
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_").partition("_")[0]
            if code in _TROUBLE:
                raise RowsError(
                    f"{self.path} cannot be used now ({error}). The rows in it are kept: make room "
                    "or see to the disk, then run the same command to go on."
                ) from error
            raise RowsError(
                f"{self.path} cannot be used: it is damaged or not a file of rows ({error}). Put "
                "back a copy of it, or move it away and compute its rows again."
            ) from error


def this_version() -> str:
    """The version of soubayes that runs, as `Row.version` names it."""
    return _named(_commit(), _versions())


def _named(commit: str, versions: Mapping[str, str]) -> str:
    return " ".join(["soubayes", *filter(None, [versions.get("soubayes")]), f"({commit})"])


def _key(task: Task) -> tuple[int, str]:
    return task.seed, _as_json(task.parameters)


def _checksum(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


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
