"""The command line as a user meets it: what it says, what it writes, its exit codes."""

import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import small_experiment
import soubayes.cli as cli
from soubayes.experiments import experiments
from soubayes.experiments.storage import Store

SMALL = small_experiment.experiment()
FAILING = small_experiment.experiment(small_experiment.compute_or_fail)


def soubayes(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def one_line(result):
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("soubayes: ")
    return line


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cli, "experiments", lambda: {"small": SMALL})


def test_list_names_every_experiment():
    shown = soubayes("list").stdout
    for name in experiments():
        assert name in shown
    assert "core" in shown


def test_reproduce_then_resume_then_fresh(small, tmp_path):
    first = soubayes("reproduce", "small", "--toy", "--out", tmp_path)
    assert first.exit_code == 0, first.output
    assert "small: 8 rows computed." in first.stdout
    assert f"soubayes report {tmp_path}" in first.stdout
    again = soubayes("reproduce", "all", "--toy", "--out", tmp_path)
    assert "0 rows computed, 8 kept from before" in again.stdout
    fresh = soubayes("reproduce", "small", "--toy", "--fresh", "--out", tmp_path)
    assert "8 rows computed." in fresh.stdout


def test_dry_run_computes_and_writes_nothing(small, tmp_path):
    out = tmp_path / "new"
    result = soubayes("reproduce", "small", "--quick", "--dry-run", "--out", out)
    assert result.exit_code == 0
    assert "small: 60 of 60 rows to compute, about" in result.stdout
    assert not out.exists()
    soubayes("reproduce", "small", "--toy", "--out", out)
    assert "52 of 60" in soubayes("reproduce", "small", "--dry-run", "--out", out).stdout


def test_failed_rows_give_exit_code_1(monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "experiments", lambda: {"small": FAILING})
    result = soubayes("reproduce", "small", "--toy", "--out", tmp_path)
    assert result.exit_code == 1
    assert "small, seed 2: ZeroDivisionError: seed two" in result.stdout
    assert "2 rows failed" in result.stdout
    assert len(Store(tmp_path).rows("small")) == 8


def test_wrong_use_is_one_line_and_exit_code_2(small, tmp_path):
    assert "no experiment tabel1; there are small" in one_line(soubayes("reproduce", "tabel1"))
    both = soubayes("reproduce", "small", "--quick", "--full")
    assert "choose one of --quick, --full" in one_line(both)
    where = ["--out", tmp_path / "x"]
    assert "joblib or dask" in one_line(soubayes("reproduce", "small", "--backend", "mpi", *where))
    address = soubayes("reproduce", "small", "--scheduler", "tcp://127.0.0.1:1", *where)
    assert "--scheduler needs --backend dask" in one_line(address)
    assert "there are no rows" in one_line(soubayes("report", tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "file").write_text("")
    assert "file" in one_line(soubayes("reproduce", "small", "--toy", "--out", tmp_path / "file"))


def test_report_of_a_toy_run(tmp_path):
    result = soubayes("reproduce", "robustness", "--toy", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert soubayes("report", tmp_path).exit_code == 0
    assert "The global rate" in (tmp_path / "report.html").read_text()


def test_interrupt_keeps_rows_and_a_missing_extra_is_explained(tmp_path):
    """The real program, stopped with Ctrl-C while it computes."""
    command = [sys.executable, "-m", "soubayes", "reproduce", "table1", "--quick"]
    process = subprocess.Popen([*command, "--out", str(tmp_path)], stdout=subprocess.PIPE)
    store = Store(tmp_path)
    deadline = time.monotonic() + 60
    while not store.rows("table1") and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Finished rows are kept" in said
    assert store.rows("table1")
    code = "import sys; sys.modules['typer'] = None; from soubayes.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install 'soubayes[cli]'" in done.stderr
