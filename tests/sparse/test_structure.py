"""The structure of sparse/: neither model knows the other, and no name stands for two ideas."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "soubayes"


@pytest.mark.parametrize(
    ("estimator", "foreign"),
    [
        ("linear", "bernoulli probits logistic rowwise newton dropped start row_state row_problem"),
        ("logistic", "linear normal_means gaussian path coordinate gram diagonal"),
    ],
)
def test_an_estimator_imports_nothing_of_the_other_model(estimator, foreign):
    code = (
        f"import sys, soubayes.sparse.estimators.{estimator}\n"
        "print(*(name for name in sys.modules if name.startswith('soubayes.sparse.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rsplit(".", 1)[1] for name in run.stdout.split()}
    assert not loaded & set(foreign.split())


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
