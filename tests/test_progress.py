"""One line of progress, on a terminal and in a file."""

import sys
import time

import pytest

from soubayes import progress
from soubayes.progress import elapsed_line, progress_line


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_has_one_line_that_moves(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_line("fit: step", 400) as line:
        for done in range(1, 101):
            clock[0] += 0.05
            line(done, "J 1.5")
        line(100, "J 1.25", total=200)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    states = [state.rstrip() for state in err.split("\r")]
    assert 30 < len(states) < 60  # at most ten a second
    assert states[-2] == "fit: step 99/400  J 1.5  15 s left"
    assert states[-1] == "fit: step 100/200  J 1.25  5 s left"


def test_a_line_is_not_wider_than_its_terminal(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    with progress_line("fit: step", 400) as line:
        line(1, "a long sentence about the state of the fit")
    assert max(map(len, capsys.readouterr().err.strip("\n").split("\r"))) == 29


def test_a_file_has_a_line_now_and_then(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with progress_line("epoch", 10) as line:
        for done in range(1, 11):
            clock[0] += 1.0
            line(done)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "epoch 1/10  9 s left",
        "epoch 3/10  7 s left",
        "epoch 5/10  5 s left",
        "epoch 7/10  3 s left",
        "epoch 9/10  1 s left",
        "epoch 10/10",
    ]


def test_what_was_said_last_is_seen_when_it_stops(monkeypatch, capsys, clock):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)

    def interrupted():
        with progress_line("step", 10) as line:
            line(1)
            line(2, "J 3")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert capsys.readouterr().err.splitlines()[-1] == "step 2/10  J 3  0 s left"


def test_silence(capsys):
    with progress_line("step", 10, show=False) as line:
        line(5, "half", total=20)
    assert capsys.readouterr() == ("", "")


def test_a_step_of_unknown_length_shows_its_time_and_leaves_nothing(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "MOVE_SECONDS", 0.001)
    with elapsed_line("fitting"):
        time.sleep(0.1)
    out, err = capsys.readouterr()
    states = [state.rstrip() for state in err.split("\r")]
    assert (out, states[1], states[-2:]) == ("", "fitting  0 s", ["", ""])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with elapsed_line("fitting"):
        time.sleep(0.01)
    assert capsys.readouterr() == ("", "")
