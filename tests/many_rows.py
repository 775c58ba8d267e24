"""Rows from which a fit counts as large, lowered so that tests stay small."""

import sys

import soubayes.sparse.estimators.linear
import soubayes.sparse.estimators.logistic  # noqa: F401  with all that they import


def set_large(monkeypatch, rows):
    """Every module that knows the number gets this one."""
    for name, module in list(sys.modules.items()):
        if name.startswith("soubayes.sparse.") and "LARGE" in vars(module):
            monkeypatch.setattr(module, "LARGE", rows)
