"""What every test process needs before the first test."""

import importlib.util
import os
import signal
import sys
import tempfile

import pytest

# tests/ is on the import path, where tests/sparse would pass for the PyData package `sparse`
sys.modules.setdefault("sparse", None)  # type: ignore[arg-type]

# a shell starts background jobs with SIGINT ignored; tests of Ctrl-C, and their children, need it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# folders and modules that have programs of JAX
COMPILING = {"networks", "blackbox", "draws", "test_stated_types.py", "test_report.py"}


def pytest_configure(config):
    """Workers and child processes share the programs that XLA compiles in this run."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        config._compiled = tempfile.TemporaryDirectory(prefix="compiled")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = config._compiled.name
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "0"


def pytest_unconfigure(config):
    if hasattr(config, "_compiled"):
        config._compiled.cleanup()


@pytest.fixture(autouse=True, scope="module")
def _compile_faster(request):
    """Programs of JAX are compiled faster, in the modules and doctests that have some."""
    if not COMPILING & set(request.path.parts) or importlib.util.find_spec("jax") is None:
        yield
        return
    from compiling import compile_faster

    with compile_faster():
        yield
