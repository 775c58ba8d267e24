"""The schedule of a fit, and the line that shows how far along it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from soubayes.progress import ShowProgress, progress_line

WINDOW = 100  # steps at one learning rate between two looks at the objective
PLATEAU_WINDOWS = 5  # windows without a gain that make a plateau: tails of a flow are slow
DECAY = 0.3
LAST_RATE = 1e-3  # of the first: the run ends on a plateau at this rate
PLATEAUS = 1 + int(np.ceil(np.log(LAST_RATE) / np.log(DECAY)))

Report = Callable[[dict[str, float]], None]


@contextmanager
def reporting(progress: bool | Report) -> Iterator[Report]:
    """What a fit calls with a row after every window: nothing, the user's function, or a line."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda row: None
    else:
        with progress_line("fit: step", WINDOW * PLATEAU_WINDOWS * PLATEAUS) as line:
            yield _Steps(line)


class _Steps:
    """Says the steps done, of those done and the plateaus that are still to come."""

    def __init__(self, line: ShowProgress) -> None:
        self.line, self.done = line, 0.0
        self.rates: dict[float, int] = {}  # windows at each learning rate

    def __call__(self, row: dict[str, float]) -> None:
        """Show J, and expect a plateau to come to take as long as those after the first did."""
        if "newton_step" in row:
            self.line(self.done, f"Newton {row['newton_step']:.0f}, J {row['value']:.6f}")
            return
        rate = row["learning_rate"]
        self.rates[rate] = self.rates.get(rate, 0) + 1
        known = list(self.rates.values())[1:-1]
        each = WINDOW * (np.mean(known) if known else PLATEAU_WINDOWS + 1)
        self.done = row["step"]
        total = self.done + each * max(0, PLATEAUS - len(self.rates))
        self.line(self.done, f"J {row['value']:.4f}", total)
