"""The structure of sparse/: neither family knows the other, and no name stands for two ideas."""

import ast
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from soubayes import (
    SoUCoxRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUPoissonRegression,
)
from tools.code_lines import counted

SOURCE = Path(__file__).parents[2] / "src" / "soubayes"
MOST_SPARSE, MOST_LINES = 15_100, 33_200  # lines of code, as tools/code_lines.py counts them


def imports():
    """Of every module of the package: which modules of the package it imports."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        tree = ast.parse(path.read_text(encoding="utf8"))
        parts = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        each = {f"{node.module}.{a.name}" for node in parts for a in node.names}
        found[name.removesuffix(".__init__")] = each | {str(node.module) for node in parts}
    return {name: own & set(found) for name, own in found.items()}


def test_families_and_the_choice_do_not_know_each_other():
    families = {name: f"soubayes.sparse.{name}." for name in ("least_squares", "rows")}
    for name, own in imports().items():
        if name.startswith("soubayes.sparse.likelihoods."):
            assert not any(each.startswith(tuple(families.values())) for each in own), name
        for family, prefix in families.items():
            if any(each.startswith(prefix) for each in own):
                others = [p for key, p in families.items() if key != family]
                assert not name.startswith((*others, "soubayes.sparse.choice.")), name


def test_no_two_modules_of_sparse_import_each_other():
    each = {name: own for name, own in imports().items() if name.startswith("soubayes.sparse")}
    pairs = [(a, b) for a, own in each.items() for b in own if a in each.get(b, ())]
    assert [pair for pair in pairs if pair[0] < pair[1]] == []


class Trace(NamedTuple):
    """Modules of the package that a fit called, and calls from a lower layer to a higher one."""

    modules: set[str]
    upwards: set[tuple[str, str]]


LAYERS = [  # from the lowest
    {"constants", "designs", "scales"},
    {"model", "blocks", "posterior", "dial"},
    {"likelihoods"},
    {"choice", "inclusion", "intervals"},
    {"least_squares", "rows", "survival"},
    {"shell", "levels"},
    {"estimators"},
]


@cache
def inside(file):
    """Whether it is a file of the package."""
    return SOURCE in Path(file).parents


@cache
def layer(file):
    """Of a file of sparse/; -1 for others."""
    if SOURCE / "sparse" not in Path(file).parents:
        return -1
    name = Path(file).relative_to(SOURCE / "sparse").parts[0].removesuffix(".py")
    return next(rank for rank, names in enumerate(LAYERS) if name in names)


def traced(model, X, y):
    """What a fit calls."""
    found = Trace(set(), set())

    def note(frame, event, _):
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        file, back = frame.f_code.co_filename, frame.f_back.f_code.co_filename
        if inside(file):
            found.modules.add(file)
            if layer(file) > layer(back) >= 0:
                found.upwards.add((back, file))

    sys.setprofile(note)
    try:
        model.fit(X, y)
    finally:
        sys.setprofile(None)
    return found


DATA, TARGET = load_diabetes(return_X_y=True)
FITS = {  # with the modules that a fit passes through
    "linear": (SoULinearRegression(), TARGET, 29),
    "binary": (SoULogisticRegression(), TARGET > 150, 34),
    "Poisson": (SoUPoissonRegression(), np.round(TARGET / 20)[:80], 37),
    "softmax": (SoULogisticRegression(), np.digitize(TARGET, [100, 200])[:80], 35),
    "Cox": (SoUCoxRegression(), (TARGET[:80] < 200, np.minimum(TARGET[:80], 200.0)), 38),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore")
def test_a_default_fit_passes_through_few_modules_and_layers(name):
    model, y, most = FITS[name]
    trace = traced(model, DATA[: len(y) if len(y) > 2 else 80], y)
    assert len(trace.modules) <= most, sorted(trace.modules)
    assert len(trace.upwards) <= 8, trace.upwards
    classes = [one for one in type(model).__mro__ if one.__module__.startswith("soubayes.")]
    assert len(classes) <= 12, classes


def test_sparse_has_few_modules_and_lines():
    assert len(list((SOURCE / "sparse").rglob("*.py"))) <= 106
    lines = counted(SOURCE)
    assert lines["sparse"] <= MOST_SPARSE
    assert lines["total"] <= MOST_LINES


def test_types_are_hardly_ever_ignored():
    text = [path.read_text(encoding="utf8") for path in (SOURCE / "sparse").rglob("*.py")]
    assert sum(part.count("type: ignore") for part in text) <= 2


def test_no_class_of_sparse_shares_its_name():
    others = [
        path for part in ("exact", "data", "sparse") for path in (SOURCE / part).rglob("*.py")
    ]
    names = Counter(
        name
        for path in others
        for name in set(re.findall(r"^class ([A-Z]\w+)", path.read_text(encoding="utf8"), re.M))
    )
    own = {
        name
        for path in (SOURCE / "sparse").rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w+)", path.read_text(encoding="utf8"), re.M)
    }
    assert sorted(name for name in own if names[name] > 1) == []


def test_every_module_of_sparse_is_tested_under_its_name_or_named_by_a_test():
    tests = Path(__file__).parents[1]
    heads = " ".join(
        path.read_text(encoding="utf8").split('"""')[1] for path in tests.rglob("test_*.py")
    )
    missing = [
        str(path.relative_to(SOURCE))
        for path in (SOURCE / "sparse").rglob("*.py")
        if path.name != "__init__.py"
        and not list(tests.rglob(f"test_{path.stem}.py"))
        and not re.search(rf"\b{path.stem}\b", heads)
    ]
    assert missing == []


def test_the_table_of_a_package_names_its_files():
    """ "To change | look in" leaves out none, unless every file is one kind of response."""
    for path in SOURCE.rglob("__init__.py"):
        text, files = path.read_text(encoding="utf8"), set(path.parent.glob("*.py")) - {path}
        if "| look in |" in text and "the file of its name" not in text:
            named = set(re.findall(r"\b(\w+)\.py\b|`(\w+)`", text))
            missing = {file.stem for file in files} - {name for pair in named for name in pair}
            assert not missing, (path, missing)
