"""Archived rows: the rows of the run they came from, in files that repeat and are checked."""

import re
from pathlib import Path

import numpy as np
import pytest

from damage import KINDS, damaged
from paper import experiments
from paper.archive import Archive, archive_rows, restore_rows
from paper.report import write_report
from paper.storage import Outcome, RowsError, Store, Task
from paper_program import paper
from test_cli import one_line

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def store(tmp_path):
    """Rows with numbers that JSON must give back digit by digit, and texts of other alphabets."""
    store = Store(tmp_path / "run")
    for seed in (2, 10, 1):
        values = {"x": [0.1 + seed, 1e-300, float("inf")], "n": seed, "name": "γ → 0"}
        store.add("first", Task(seed, {"n": 5, "share": 0.5}), Outcome(values, "", "w", 0.1))
    store.add("second", Task(0, {}), Outcome({}, "Traceback: ...", "", 1))
    return store


def test_rows_come_back_as_they_were(store, tmp_path):
    archive = Archive(tmp_path / "kept")
    assert archive_rows(store, archive) == {"first": 3, "second": 1}
    assert archive.experiments() == store.experiments() == ["first", "second"]
    again = Store(tmp_path / "again")
    assert restore_rows(archive, again) == {"first": 3, "second": 1}
    for name in store.experiments():
        assert archive.rows(name) == store.rows(name) == again.rows(name)
    assert archive.rows("third") == []


def test_an_archive_grows_and_repeats(store, tmp_path):
    """New rows join, rows of the same task are replaced, and equal rows give equal bytes."""
    archive = Archive(tmp_path / "kept")
    archive_rows(store, archive)
    path = tmp_path / "kept" / "rows" / "first.parquet"
    first = path.read_bytes()
    later = Store(tmp_path / "later")
    later.add("first", Task(2, {"n": 5, "share": 0.5}), Outcome({"n": -2}, "", "", 0.1))
    later.add("first", Task(3, {"n": 5, "share": 0.5}), Outcome({"n": 3}, "", "", 0.1))
    assert archive_rows(later, archive) == {"first": 4}
    assert [row.result["n"] for row in archive.rows("first")] == [1, -2, 3, 10]
    assert archive_rows(later, archive, replace=True) == {"first": 2}
    archive_rows(store, archive, replace=True)
    assert path.read_bytes() == first


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_tables_are_refused_or_equal(kind, store, tmp_path):
    archive = Archive(tmp_path)
    archive_rows(store, archive)
    path, rows = tmp_path / "rows" / "first.parquet", archive.rows("first")
    for data in damaged(path.read_bytes(), kind, 50):
        path.write_bytes(data)
        try:
            assert archive.rows("first") == rows
        except RowsError as error:
            assert str(path) in str(error)  # noqa: PT017


def test_commands(store, tmp_path):
    run, kept, again = tmp_path / "run", tmp_path / "kept", tmp_path / "again"
    assert "first: 3 rows" in paper("archive", run, kept).stdout
    assert "second: 1 rows" in paper("restore", kept, again).stdout
    assert Store(again).rows("first") == store.rows("first")
    assert "there are no rows in" in one_line(paper("archive", tmp_path / "no", kept))
    assert "there are no tables" in one_line(paper("restore", tmp_path / "no", again))
    assert not (tmp_path / "no").exists()


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the sdist")
def test_every_archived_row_can_be_read_and_the_tree_stays_small():
    archive = Archive(RESULTS)
    counts = dict(
        re.findall(r"^\| (\w+).*complete, (\d+) rows", (RESULTS / "README.md").read_text(), re.M)
    )
    assert {name: str(len(archive.rows(name))) for name in counts} == counts
    assert sum(path.stat().st_size for path in archive.folder.iterdir()) < 8e6


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not part of the sdist")
@pytest.mark.parametrize("name", ["figtree", "fig1", "fig2", "robustness", "table1", "tableS2"])
def test_archived_rows_are_those_that_the_code_gives(name):
    """The first row of the smallest design: a change of the numbers shows here."""
    rows = Archive(RESULTS).rows(name)
    rows = [row for row in rows if row.parameters.get("method", "sou") == "sou"]
    row = min(rows, key=lambda row: (row.parameters.get("p", 0), row.seed))
    found = experiments()[name].row(row.seed, row.parameters)
    for key, value in row.result.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=1e-9, err_msg=key)


@pytest.mark.slow
def test_the_report_is_rebuilt_bit_for_bit(tmp_path):
    (tmp_path / "rows").symlink_to(RESULTS / "rows")
    assert write_report(tmp_path).read_bytes() == (RESULTS / "report.html").read_bytes()
    for figure in (RESULTS / "figures").iterdir():
        assert (tmp_path / "figures" / figure.name).read_bytes() == figure.read_bytes()
