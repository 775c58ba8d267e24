"""XLA compiles most of these tests' programs to run them for a moment: compile them faster."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import pytest
from jax._src import compiler

# one module instead of many, and the older code generator: half of the time of compiling
ONE_MODULE, NEWER_GENERATOR = "xla_cpu_parallel_codegen_split_count", "xla_cpu_use_fusion_emitters"


@contextmanager
def compile_faster(convolutions: bool = False) -> Iterator[None]:
    """Leave out XLA's slow passes; the older generator makes NaN of some convolutions."""
    options = {ONE_MODULE: "1", NEWER_GENERATOR: str(convolutions)}
    usual = compiler.get_compile_options

    def with_options(*args, env_options_overrides=None, **settings):
        merged = {**options, **(env_options_overrides or {})}
        return usual(*args, env_options_overrides=merged, **settings)

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        if jax.__version__.startswith("0.10."):  # other versions may not know these options
            patch.setattr(compiler, "get_compile_options", with_options)
        yield
    jax.config.update("jax_disable_most_optimizations", before)
