"""Compilation is most of what these tests would cost: XLA's slow passes are left out."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _compile_fast():
    jax = pytest.importorskip("jax")
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
