"""The schedule of a fit, and the bar that shows how far along it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from tqdm.auto import tqdm

WINDOW = 100  # steps at one learning rate between two looks at the objective
PLATEAU_WINDOWS = 5  # windows without a gain that make a plateau: tails of a flow are slow
DECAY = 0.3
LAST_RATE = 1e-3  # of the first: the run ends on a plateau at this rate
PLATEAUS = 1 + int(np.ceil(np.log(LAST_RATE) / np.log(DECAY)))

Report = Callable[[dict[str, float]], None]


@contextmanager
def reporting(progress: bool | Report) -> Iterator[Report]:
    """What a fit calls with a row after every window: nothing, the user's function, or a bar."""
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda row: None
    else:
        with tqdm(total=WINDOW * PLATEAU_WINDOWS * PLATEAUS, unit="step", desc="fit") as bar:
            yield _Bar(bar)


class _Bar:
    """Moves a bar by the steps done, of those done and the plateaus that are still to come."""

    def __init__(self, bar: Any) -> None:
        self.bar = bar
        self.rates: dict[float, int] = {}  # windows at each learning rate

    def __call__(self, row: dict[str, float]) -> None:
        """Show J, and expect a plateau to come to take as long as those after the first did."""
        if "newton_step" in row:
            self.bar.set_postfix_str(f"Newton {row['newton_step']:.0f}, J {row['value']:.6f}")
            return
        rate = row["learning_rate"]
        self.rates[rate] = self.rates.get(rate, 0) + 1
        done = list(self.rates.values())[1:-1]
        each = WINDOW * (np.mean(done) if done else PLATEAU_WINDOWS + 1)
        self.bar.total = round(row["step"] + each * max(0, PLATEAUS - len(self.rates)))
        self.bar.set_postfix_str(f"J {row['value']:.4f}", refresh=False)
        self.bar.update(int(row["step"]) - self.bar.n)
