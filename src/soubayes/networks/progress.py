"""What happens after every epoch: a line of progress, and a checkpoint now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from soubayes.networks import storage
from soubayes.networks.state import Run
from soubayes.progress import progress_line

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
    """The function to call after every epoch: it shows objective, units and speed.

    >>> with progress(0, 10) as show:
    ...     pass
    """
    with progress_line("epoch", epochs, verbose) as line:
        yield lambda run: line(run.epoch, last_epoch(run))


def last_epoch(run: Run) -> str:
    """The last epoch in words."""
    row = run.rows[-1]
    active = "–".join(str(row[name]) for name in row if name.startswith("active_"))
    seconds = max(row["seconds"], 1e-9)
    speed = f"{1 / seconds:.3g} epochs/s" if seconds < 1 else f"{seconds:.3g} s/epoch"
    return f"objective {row['objective']:.6g}  active {active}  {speed}"
