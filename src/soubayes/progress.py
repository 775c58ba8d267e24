"""How far a long computation is, on stderr: the same for every part of the package."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size

MOVE_SECONDS = 0.1  # seconds between two states of a line that is written over
LINE_SECONDS = 2.0  # seconds between two lines where nothing can be written over
LINE_WIDTH = 100  # most characters of a line that is written over

# called with how much is done, words about it and, if that has changed, how much there is to do
ShowProgress = Callable[..., None]


@contextmanager
def progress_line(name: str, total: float, show: bool | int = True) -> Iterator[ShowProgress]:
    """Show progress while something runs: a line that moves, or lines now and then in a file.

    >>> with progress_line("step", 10, show=False) as bar:
    ...     bar(3, "J 1.5")
    """
    if not show:
        yield lambda done, words="", total=None: None
        return
    line = _Line(name, total)
    try:
        yield line
    finally:
        line.end()


def is_watched() -> bool:
    """Whether stderr is a terminal or a notebook, which does not say that it is one."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def elapsed_line(name: str) -> Iterator[None]:
    """Show on a terminal for how long something has run, where nothing says how much is left."""
    if not sys.stderr.isatty():
        yield
        return
    begin, ended = time.monotonic(), threading.Event()

    def tick() -> None:
        while not ended.wait(MOVE_SECONDS):
            _write_over(f"{name}  {_duration(time.monotonic() - begin)}")

    clock = threading.Thread(target=tick, daemon=True)
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()
        _write_over("")
        print("\r", end="", file=sys.stderr, flush=True)


def say_step(words: str) -> None:
    """Write a line for one step of a solver, where ``verbose`` asks for it."""
    print(words, file=sys.stderr, flush=True)


class _Line:
    def __init__(self, name: str, total: float) -> None:
        self.name, self.total, self.begin = name, total, time.monotonic()
        self.moves = is_watched()
        self.last, self.text, self.written = -float("inf"), "", ""

    def __call__(self, done: float, words: str = "", total: float | None = None) -> None:
        """Say how much is done; a call between two moments of writing costs nothing."""
        self.total = self.total if total is None else total
        now = time.monotonic()
        spent = now - self.begin
        parts = [f"{self.name} {done:.0f}/{self.total:.0f}", words]
        if 0 < done < self.total:
            parts.append(f"{_duration(spent * (self.total / done - 1.0))} left")
        self.text = "  ".join(part for part in parts if part)
        if now - self.last >= (MOVE_SECONDS if self.moves else LINE_SECONDS):
            self.last = now
            self._write()

    def end(self) -> None:
        """Write what was said last, and leave the line."""
        if self.text != self.written:
            self._write()
        if self.moves and self.written:
            print(file=sys.stderr, flush=True)

    def _write(self) -> None:
        self.written = self.text
        if self.moves:
            _write_over(self.text)
        else:
            print(self.text, file=sys.stderr, flush=True)


def _write_over(text: str) -> None:
    # a line that is wrapped could not be written over
    width = min(LINE_WIDTH, get_terminal_size().columns - 1)
    print(f"\r{text[:width]:{width}}", end="", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> _duration(7.2), _duration(200.0), _duration(8000.0)
    ('7 s', '3 min', '2.2 h')
    """
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000.0 else f"{seconds / 3600:.1f} h"
