"""One name means one thing: no two modules of the package define a public name differently."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "soubayes"

ALLOWED = {"fit": "the command `soubayes fit`, and soubayes.fit of a NumPyro model"}


def definitions():
    """Of every public name at the top of a module: where it is defined, and as what."""
    found = defaultdict(dict)
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names, what = [node.name], ast.dump(node)
            elif isinstance(node, ast.Assign):
                names = [
                    part.id
                    for target in node.targets
                    for part in ast.walk(target)
                    if isinstance(part, ast.Name)
                ]
                what = ast.dump(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names, what = [node.target.id], ast.dump(node)
            else:
                continue
            for name in names:
                if not name.startswith("_"):
                    found[name][path.relative_to(SOURCE)] = what
    return found


def clashes():
    """Names of two meanings; equal definitions, such as ``Array``, are one meaning."""
    for name, places in definitions().items():
        if len(set(places.values())) > 1:
            yield name, sorted(map(str, places))


def test_a_public_name_means_one_thing():
    found = dict(clashes())
    assert {name: places for name, places in found.items() if name not in ALLOWED} == {}
    assert sorted(set(ALLOWED) - set(found)) == []  # no exception outlives its reason
