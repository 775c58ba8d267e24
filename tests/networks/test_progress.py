"""What verbose=1 shows."""

from soubayes.networks.progress import last_epoch, progress
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
    assert last_epoch(RUN) == "objective 123.457  active 12–7  2 epochs/s"


def test_silence(capsys):
    with progress(0, epochs=3) as show:
        show(RUN)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_lines_come_while_it_trains(capsys):
    with progress(1, epochs=10) as show:
        show(RUN)
        assert "epoch 3/10  objective 123.457" in capsys.readouterr().err
