"""Shared descriptions: docstrings are completed from base classes and a table."""

import ast
import subprocess
import sys

import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc

import soubayes
from soubayes._docstrings import fill_docstrings


class Base:
    """Base.

    Parameters
    ----------
    a : int
        From the base.

    Attributes
    ----------
    b_ : float
        Shared attribute.

    References
    ----------
    .. [1] A source.
    """

    def fit(self, X):
        """Fit.

        Returns
        -------
        self : Base
            Itself.
        """


@pytest.fixture
def made(monkeypatch):
    monkeypatch.setattr(Base, "__module__", "soubayes.base")  # bases of other packages do not count

    @fill_docstrings("X : array\n    The rows.")
    class Made(Base):
        """Made [1]_.

        Parameters
        ----------
        c : str
            Own.

        Attributes
        ----------
        d_ : str
            Own attribute.
        b_ : ndarray

        Examples
        --------
        >>> 1
        1
        """

        def __init__(self, a, c):
            self.a, self.c = a, c

        def fit(self, X):
            """Fit it."""

    Made.__module__ = "soubayes.made"
    return Made


def test_what_is_left_out_is_filled_in(made):
    doc = ClassDoc(made)
    assert [(one.name, one.type) for one in doc["Parameters"]] == [("a", "int"), ("c", "str")]
    told = [(one.name, one.type, one.desc) for one in doc["Attributes"]]
    assert told == [("d_", "str", ["Own attribute."]), ("b_", "ndarray", ["Shared attribute."])]
    assert doc["References"] == [".. [1] A source."]
    method = FunctionDoc(made.fit)
    assert [one.desc for one in method["Parameters"]] == [["The rows."]]
    assert [one.type for one in method["Returns"]] == ["Base"]


def test_shared_parameters_are_described_as_they_are():
    for name in ("SoULinearRegression", "SoUPoissonRegression", "SoUNormalMeans"):
        told = {one.name: one.type for one in ClassDoc(getattr(soubayes, name))["Parameters"]}
        for parameter, value in getattr(soubayes, name)().get_params().items():
            stated = told[parameter].rpartition("default=")[2]
            assert value is None if "optional" in stated else ast.literal_eval(stated) == value


def test_without_docstrings_nothing_happens():
    code = "from soubayes import SoUGammaRegression as M; print(M.fit.__doc__, M().shape)"
    run = [sys.executable, "-OO", "-c", code]
    assert subprocess.run(run, capture_output=True, text=True).stdout == "None auto\n"
