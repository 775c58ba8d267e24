"""What every test process needs before the first test."""

import signal
import sys

# tests/ is on the import path, where tests/sparse would pass for the PyData package `sparse`
sys.modules.setdefault("sparse", None)  # type: ignore[arg-type]

# a shell starts background jobs with SIGINT ignored; tests of Ctrl-C, and their children, need it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
