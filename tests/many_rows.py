"""A number of rows that counts as many, small enough for a test."""

from soubayes.sparse.choice import folds
from soubayes.sparse.estimators import generalized, linear, logistic, rowwise
from soubayes.sparse.glm import fitting

MODULES = (folds, generalized, linear, logistic, rowwise, fitting)


def set_large(monkeypatch, rows):
    """Every module that knows the number gets this one."""
    for module in MODULES:
        monkeypatch.setattr(module, "LARGE", rows)
