"""What every test process needs before the first test."""

import importlib.util
import signal
import sys
from functools import partial

import pytest

# tests/ is on the import path, where tests/sparse would pass for the PyData package `sparse`
sys.modules.setdefault("sparse", None)  # type: ignore[arg-type]

# a shell starts background jobs with SIGINT ignored; tests of Ctrl-C, and their children, need it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# folders and modules that have programs of JAX
COMPILING = {"networks", "blackbox", "draws", "test_stated_types.py", "test_report.py"}


@pytest.fixture(autouse=True, scope="module")
def _compile_faster(request):
    """Programs of JAX are compiled faster, in the modules and doctests that have some."""
    if not COMPILING & set(request.path.parts) or importlib.util.find_spec("jax") is None:
        yield
        return
    from compiling import compile_faster

    with compile_faster():
        yield


@pytest.fixture(scope="module")
def convolving():
    """For tests that train convolutions."""
    from compiling import compile_faster

    return partial(compile_faster, convolutions=True)
