"""Rows of experiments in one SQLite file: each is written whole, the moment it is finished."""

import hashlib
import json
import os
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
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
        here = (_commit(), _as_json(_versions()))
        values = [experiment, task.seed, _as_json(task.parameters), _as_json(outcome.result)]
        values += [outcome.error, outcome.warnings, float(outcome.seconds)]
        values += [datetime.now(UTC).isoformat(timespec="seconds"), *here]
        with self._open() as database, database:
            if not _has_checksums(database):  # older rows stay valid without one
                database.execute("ALTER TABLE row ADD COLUMN checksum TEXT")
            database.execute("INSERT OR IGNORE INTO origin VALUES (NULL, ?, ?)", here)
            database.execute(
                "INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?, ?, ?, ?,"
                " (SELECT id FROM origin WHERE commit_id = ? AND versions = ?), ?)",
                [*values, _checksum(values)],
            )

    def pending(self, experiment: str, tasks: list[Task]) -> list[Task]:
        """The tasks without a row, or whose row is an error."""
        done = self._done(experiment)
        return [t for t in tasks if _key(t) not in done]

    def versions(self, experiment: str, tasks: list[Task]) -> Counter[str]:
        """How many rows of these tasks were computed by which version of soubayes."""
        done = self._done(experiment)
        return Counter(done[key] for key in map(_key, tasks) if key in done)

    def rows(self, experiment: str) -> list[Row]:
        """All rows of an experiment, in an order that does not depend on when they finished."""
        with self._open() as database:
            query = f"SELECT {_FIELDS} FROM {_ROWS} WHERE experiment = ? ORDER BY parameters, seed"
            found = database.execute(query, [experiment]).fetchall()
        return [
            Row._make([r[1], json.loads(r[2]), json.loads(r[3]), *r[4:9], json.loads(r[9])])
            for r in found
        ]

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
        last = "checksum" if _has_checksums(database) else "NULL"
        for *values, checksum in database.execute(f"SELECT {_FIELDS}, {last} FROM {_ROWS}"):
            if checksum is not None and checksum != _checksum(values):
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


def _has_checksums(database: sqlite3.Connection) -> bool:
    return "checksum" in [column[1] for column in database.execute("PRAGMA table_info(row)")]


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
