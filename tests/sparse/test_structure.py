"""The structure of sparse/: neither family knows the other, and no name stands for two ideas."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

from sklearn.datasets import load_diabetes

from soubayes import SoULinearRegression, SoULogisticRegression

SOURCE = Path(__file__).parents[2] / "src" / "soubayes"


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


def test_a_default_fit_passes_through_few_modules():
    X, y = load_diabetes(return_X_y=True)
    for model, target in ((SoULinearRegression(), y), (SoULogisticRegression(), y > 150)):
        called = set()

        def note(frame, event, _, called=called):
            if event == "call" and frame.f_code.co_name != "<module>":
                called.add(frame.f_code.co_filename)

        sys.setprofile(note)
        try:
            model.fit(X, target)
        finally:
            sys.setprofile(None)
        seen = sorted(name for name in called if SOURCE in Path(name).parents)
        assert len(seen) <= 34, seen


def test_sparse_has_few_modules():
    assert len(list((SOURCE / "sparse").rglob("*.py"))) <= 102


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
