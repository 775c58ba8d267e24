"""The one place that knows which extra brings which library."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_EXTRA_OF = {
    "jax": "jax",
    "jaxlib": "jax",
    "optax": "jax",
    "numpyro": "jax",
    "blackjax": "jax",
    "safetensors": "jax",
    "matplotlib": "plot",
    "arviz_base": "plot",
    "arviz_stats": "plot",
    "pyarrow": "io",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "dask": "dask",
    "distributed": "dask",
    "typer": "cli",
    "rich": "cli",
    "jinja2": "cli",
    "markupsafe": "cli",
    "openpyxl": "excel",
}


@contextmanager
def explain_missing_extra(wanted: str) -> Iterator[None]:
    """Turn the ImportError of a missing optional library into one that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in _EXTRA_OF:
            raise
        extra = _EXTRA_OF[library]
        raise ImportError(
            f"{wanted} needs {library}, which is not installed. "
            f"Install it with: pip install 'soubayes[{extra}]'"
        ) from error


def require(module: str, wanted: str) -> Any:
    """Import an optional library for the feature ``wanted``, or say which extra brings it.

    >>> require("json", "this example").dumps({"gamma": 1})
    '{"gamma": 1}'
    """
    with explain_missing_extra(wanted):
        return import_module(module)
