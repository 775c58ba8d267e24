"""Warnings that point to the user's line, however deep in the library they arise."""

import sys
import warnings

_PASSED = ("soubayes", "sklearn", "joblib")  # packages between the user's call and the warning


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost line outside of this library."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _PASSED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
