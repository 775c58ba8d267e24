"""Compile faster here: most of these tests compile a model, run it for a moment and forget it."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def _compile_faster():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
