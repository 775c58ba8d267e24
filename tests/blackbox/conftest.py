"""Compile faster here: most of these tests compile a model, run it for a moment and forget it."""

import jax
import pytest
from jax._src import compiler

# XLA's older code generator and one module instead of many: half of the time of compiling
OPTIONS = {"xla_cpu_use_fusion_emitters": "False", "xla_cpu_parallel_codegen_split_count": "1"}


@pytest.fixture(autouse=True, scope="module")
def _compile_faster():
    jax.config.update("jax_disable_most_optimizations", True)
    with pytest.MonkeyPatch.context() as patch:
        if jax.__version__.startswith("0.10."):  # other versions may not know these options
            _add_options(patch)
        yield
    jax.config.update("jax_disable_most_optimizations", False)


def _add_options(patch):
    usual = compiler.get_compile_options

    def with_options(*args, env_options_overrides=None, **settings):
        options = {**OPTIONS, **(env_options_overrides or {})}
        return usual(*args, env_options_overrides=options, **settings)

    patch.setattr(compiler, "get_compile_options", with_options)
