"""``python -m paper``: what it says, what it writes, its exit codes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import small_experiment
from paper import commands, experiments, storage
from paper.storage import FILE, Store, this_version
from paper_program import paper
from test_cli import one_line

ROOT = Path(__file__).parents[2]
SMALL = small_experiment.experiment()
FAILING = small_experiment.experiment(small_experiment.compute_or_fail)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(commands, "experiments", lambda: {"small": SMALL})


def test_help_names_every_command():
    shown = paper("--help").stdout
    for name in ("list", "reproduce", "report", "archive", "restore"):
        assert re.search(rf"^\W*{name} ", shown, re.MULTILINE)
    assert "--full" in paper("reproduce", "--help").stdout


def test_list_names_every_experiment():
    shown = paper("list").stdout
    for name in experiments():
        assert name in shown
    assert "core" in shown


def test_reproduce_then_resume_then_fresh(small, tmp_path):
    first = paper("reproduce", "small", "--toy", "--out", tmp_path)
    assert first.exit_code == 0, first.output
    assert "small: 8 rows computed." in first.stdout
    assert f"python -m paper report {tmp_path}" in first.stdout
    again = paper("reproduce", "all", "--toy", "--out", tmp_path)
    assert "0 rows computed, 8 kept from before" in again.stdout
    fresh = paper("reproduce", "small", "--toy", "--fresh", "--out", tmp_path)
    assert "8 rows computed." in fresh.stdout


def test_dry_run_computes_and_writes_nothing(small, tmp_path):
    out = tmp_path / "new"
    result = paper("reproduce", "small", "--quick", "--dry-run", "--out", out)
    assert result.exit_code == 0
    assert "small: 60 of 60 rows to compute, about" in result.stdout
    assert not out.exists()
    paper("reproduce", "small", "--toy", "--out", out)
    assert "52 of 60" in paper("reproduce", "small", "--dry-run", "--out", out).stdout


def test_failed_rows_give_exit_code_1(monkeypatch, tmp_path):
    monkeypatch.setattr(commands, "experiments", lambda: {"small": FAILING})
    result = paper("reproduce", "small", "--toy", "--out", tmp_path)
    assert result.exit_code == 1
    assert "small, seed 2: ZeroDivisionError: seed two" in result.stdout
    assert "2 rows failed" in result.stdout
    assert len(Store(tmp_path).rows("small")) == 8


def test_wrong_use_is_one_line_and_exit_code_2(small, tmp_path):
    assert "no experiment tabel1; there are small" in one_line(paper("reproduce", "tabel1"))
    both = paper("reproduce", "small", "--quick", "--full")
    assert "choose one of --quick, --full" in one_line(both)
    where = ["--out", tmp_path / "x"]
    assert "joblib or dask" in one_line(paper("reproduce", "small", "--backend", "mpi", *where))
    address = paper("reproduce", "small", "--scheduler", "tcp://127.0.0.1:1", *where)
    assert "--scheduler needs --backend dask" in one_line(address)
    assert "there are no rows" in one_line(paper("report", tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_text("")
    assert "file" in one_line(paper("reproduce", "small", "--toy", "--out", tmp_path / "file"))


def test_rows_of_another_version_are_announced(small, tmp_path, monkeypatch):
    """A resume after an upgrade keeps the rows, says whose they are, and offers --fresh."""
    paper("reproduce", "small", "--toy", "--out", tmp_path)
    same = paper("reproduce", "small", "--toy", "--out", tmp_path)
    assert "other versions" not in same.stdout
    here = this_version()
    monkeypatch.setattr(storage, "_commit", lambda: "release")
    monkeypatch.setattr(storage, "_versions", lambda: {"soubayes": "9.9.9", "numpy": "2"})
    for extra in (["--dry-run"], []):
        result = paper("reproduce", "small", "--toy", "--out", tmp_path, *extra)
        assert f"computed by other versions: 8 by {here}; this is soubayes 9.9.9 (release)" in (
            result.stdout
        )
        assert "--fresh" in result.stdout
    assert "0 rows computed, 8 kept from before" in result.stdout
    fresh = paper("reproduce", "small", "--toy", "--fresh", "--out", tmp_path)
    assert "8 rows computed." in fresh.stdout
    assert {row.version for row in Store(tmp_path).rows("small")} == {"soubayes 9.9.9 (release)"}


def test_a_damaged_file_of_rows_is_one_line_and_exit_code_1(small, tmp_path):
    """Every command says the same, whichever part of the file was overwritten."""
    paper("reproduce", "small", "--quick", "--out", tmp_path)
    path = tmp_path / FILE
    whole = path.read_bytes()
    for begin in range(4096, len(whole), 4096):
        path.write_bytes(whole[:begin] + bytes(4096) + whole[begin + 4096 :])
        for words in (["report", tmp_path], ["reproduce", "small", "--dry-run", "--out", tmp_path]):
            line = one_line(paper(*words), code=1)
            assert f"{path} cannot be used: it is damaged" in line
    path.write_bytes(whole)
    assert "0 of 60" in paper("reproduce", "small", "--dry-run", "--out", tmp_path).stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(jobs, tmp_path):
    """The real program where files may not grow beyond 40 kB, and again without that limit."""
    code = (
        "import resource, sys, small_experiment as small, paper.commands as commands\n"
        "commands.experiments = lambda: {'small': small.experiment(small.compute_wide)}\n"
        "most = int(sys.argv.pop(1))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)) if most else None\n"
        "commands.paper_app()\n"
    )

    def reproduce(most):
        words = ["reproduce", "small", "--quick", "--jobs", str(jobs), "--out", str(tmp_path)]
        command = [sys.executable, "-c", code, str(most), *words]
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    full = reproduce(40_000)
    assert full.returncode == 1, full.stderr
    (line,) = full.stderr.strip().splitlines()
    assert "rows.sqlite cannot be used now" in line
    assert "The rows in it are kept" in line
    kept = len(Store(tmp_path).rows("small"))
    assert 0 < kept < 60
    later = reproduce(0)
    assert later.returncode == 0, later.stderr
    assert f"{60 - kept} rows computed, {kept} kept from before" in later.stdout


def test_report_of_a_toy_run(tmp_path):
    result = paper("reproduce", "robustness", "--toy", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert paper("report", tmp_path).exit_code == 0
    assert "The global rate" in (tmp_path / "report.html").read_text()


def test_an_interrupt_keeps_rows(tmp_path):
    """The real program, stopped with Ctrl-C while it computes."""
    command = [sys.executable, "-m", "paper", "reproduce", "table1", "--quick"]
    process = subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    store = Store(tmp_path)
    deadline = time.monotonic() + 60
    while not store.rows("table1") and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Finished rows are kept" in said
    assert store.rows("table1")
