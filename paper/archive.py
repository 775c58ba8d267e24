"""Rows of finished runs as compressed parquet tables, one for each experiment."""

import hashlib
import os
from pathlib import Path
from typing import Any

from paper.storage import FILE, Row, RowsError, Store, as_text, from_text
from soubayes._files import atomic_path
from soubayes._optional import require

_CHECKSUM = b"soubayes.sha256"


class Archive:
    """The tables ``rows/*.parquet`` of a folder: the same rows as a `Store`, sorted, to be kept.

    >>> import tempfile
    >>> from paper.storage import Outcome, Task
    >>> store, archive = Store(tempfile.mkdtemp()), Archive(tempfile.mkdtemp())
    >>> store.add("demo", Task(0, {"n": 5}), Outcome({"rmse": 1.5}, "", "", 0.1))
    >>> archive.write("demo", store.rows("demo"))
    >>> archive.rows("demo") == store.rows("demo")
    True
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder) / "rows"

    def experiments(self) -> list[str]:
        """The names of the experiments that have a table."""
        return sorted(path.stem for path in self.folder.glob("*.parquet"))

    def rows(self, experiment: str) -> list[Row]:
        """All rows of an experiment, in the order of `Store.rows`; none without a table."""
        path = self._path(experiment)
        if not path.exists():
            return []
        arrow, parquet = _libraries()
        try:
            table = parquet.read_table(path)
            fields = [list(row.values()) for row in table.to_pylist()]
            if (table.schema.metadata or {}).get(_CHECKSUM) != _checksum(fields):
                raise ValueError("its checksum is wrong")
            return list(map(from_text, fields))
        except (OSError, ValueError, arrow.ArrowException) as error:
            raise RowsError(
                f"{path} cannot be used: it is damaged or not a table of rows ({error}). Put back "
                "a copy of it, or remove it and compute its rows again."
            ) from error

    def write(self, experiment: str, rows: list[Row]) -> None:
        """Replace the table of an experiment; the same rows give the same file."""
        arrow, parquet = _libraries()
        fields = sorted(map(as_text, rows), key=lambda row: (row[1], row[0]))
        columns = [list(column) for column in zip(*fields, strict=True)]
        table = arrow.table(dict(zip(Row._fields, columns, strict=True)))
        table = table.replace_schema_metadata({_CHECKSUM: _checksum(fields)})
        with atomic_path(self._path(experiment)) as temporary:
            parquet.write_table(table, temporary, compression="zstd", compression_level=19)

    def _path(self, experiment: str) -> Path:
        return self.folder / f"{experiment}.parquet"


def archive_rows(store: Store, archive: Archive, *, replace: bool = False) -> dict[str, int]:
    """Put the rows of a run into an archive; how many rows each table of the run has then.

    Rows of the same tasks are replaced, others stay; ``replace`` leaves out what the run lacks.
    """
    counts = {}
    for experiment in store.experiments():
        kept = [] if replace else archive.rows(experiment)
        rows = {tuple(as_text(row)[:2]): row for row in [*kept, *store.rows(experiment)]}
        archive.write(experiment, list(rows.values()))
        counts[experiment] = len(rows)
    return counts


def restore_rows(archive: Archive, store: Store) -> dict[str, int]:
    """Put the rows of an archive into the file of a run, so it goes on from them."""
    counts = {}
    for experiment in archive.experiments():
        rows = archive.rows(experiment)
        store.add_rows(experiment, rows)
        counts[experiment] = len(rows)
    return counts


def rows_in(folder: Path) -> Store | Archive | None:
    """The rows of a folder, from its SQLite file or else from its tables; None without either."""
    if (folder / FILE).exists():
        return Store(folder)
    archive = Archive(folder)
    return archive if archive.experiments() else None


def _checksum(fields: list[list[Any]]) -> bytes:
    return hashlib.sha256(repr(fields).encode()).hexdigest().encode()


def _libraries() -> tuple[Any, Any]:
    wanted = "an archive of rows"
    return require("pyarrow", wanted), require("pyarrow.parquet", wanted)
