"""What verbose=1 shows, with rich and without."""

import pytest

from soubayes.networks import progress as module
from soubayes.networks.progress import progress, progress_line
from soubayes.networks.state import Run

RUN = Run(
    {},
    None,
    None,
    3,
    [{"objective": 123.456789, "active_1": 12, "active_2": 7, "seconds": 0.5}],
    [],
)


def test_the_line_has_objective_units_and_speed():
    assert progress_line(RUN) == "objective 123.457  active 12–7  2 epochs/s"


@pytest.mark.parametrize("rich", [True, False])
def test_progress_goes_to_stderr(rich, capsys, monkeypatch):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    if rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    with progress(1, epochs=3) as show:
        show(RUN)
    out, err = capsys.readouterr()
    assert out == ""
    assert "123.457" in err
    assert "3/3" in err


def test_silence(capsys):
    with progress(0, epochs=3) as show:
        show(RUN)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_lines_come_while_it_trains(capsys):
    with progress(1, epochs=10) as show:
        show(RUN)
        assert "epoch 3/10  objective 123.457" in capsys.readouterr().err
