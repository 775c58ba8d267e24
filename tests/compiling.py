"""XLA compiles most of these tests' programs to run them for a moment: compile them faster."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def compile_faster() -> Iterator[None]:
    """Leave out XLA's slow passes; at the end the programs are dropped, which hold gigabytes."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()
