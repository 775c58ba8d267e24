"""Limits that make a hang a failure."""

import signal
from contextlib import contextmanager


@contextmanager
def within(seconds, context):
    """Raise after so much CPU time, so that a fit that does not end is an error."""

    def stop(*_):
        raise AssertionError(f"{context}: not ended after {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
