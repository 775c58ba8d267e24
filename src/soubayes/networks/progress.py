"""What happens after every epoch: a progress bar, and a checkpoint now and then."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from soubayes.networks import storage
from soubayes.networks.state import Run

CHECKPOINT_SECONDS = 20.0  # between two checkpoints of a long training


class Reporter:
    """Called after every epoch: shows it, keeps it, and writes a checkpoint now and then."""

    def __init__(
        self, show: Callable[[Run], None], folder: Any, info: dict[str, Any], epochs: int
    ) -> None:
        self.last: Run | None = None
        self._show, self._folder, self._info, self._epochs = show, folder, info, epochs
        self._written = time.monotonic()

    def __call__(self, run: Run) -> None:
        self.last = run
        self._show(run)
        if run.epoch == self._epochs or time.monotonic() - self._written >= CHECKPOINT_SECONDS:
            self.write()

    def write(self) -> None:
        """The last finished epoch to the checkpoint, if there is to be one."""
        if self._folder is not None and self.last is not None:
            storage.write_checkpoint(self._folder, self.last, self._info)
            self._written = time.monotonic()


@contextmanager
def progress(verbose: int, epochs: int) -> Iterator[Callable[[Run], None]]:
    """On a terminal with rich a bar, else a line of text now and then: objective, units, speed.

    Gives the function to call after every epoch.

    >>> with progress(0, 10) as show:
    ...     pass
    """
    if not verbose:
        yield lambda run: None
    elif find_spec("rich") is not None and sys.stderr.isatty():
        with _rich_bar(epochs) as show:
            yield show
    else:
        yield _plain_lines(epochs)


def progress_line(run: Run) -> str:
    """One line on the last epoch."""
    row = run.rows[-1]
    active = "–".join(str(row[name]) for name in row if name.startswith("active_"))
    seconds = max(row["seconds"], 1e-9)
    speed = f"{1 / seconds:.3g} epochs/s" if seconds < 1 else f"{seconds:.3g} s/epoch"
    return f"objective {row['objective']:.6g}  active {active}  {speed}"


@contextmanager
def _rich_bar(epochs: int) -> Iterator[Callable[[Run], None]]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
    )
    with bar:
        task = bar.add_task("compiling", total=epochs)
        yield lambda run: bar.update(task, completed=run.epoch, description=progress_line(run))


def _plain_lines(epochs: int) -> Callable[[Run], None]:
    last = [float("-inf")]

    def show(run: Run) -> None:
        now = time.monotonic()
        if now - last[0] >= 2 or run.epoch == epochs:
            last[0] = now
            print(f"epoch {run.epoch}/{epochs}  {progress_line(run)}", file=sys.stderr, flush=True)

    return show
