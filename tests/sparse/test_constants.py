"""Constants that decide results stand in one file, each with a page that gives its reason."""

import ast
import re
from pathlib import Path

import pytest

from soubayes.sparse import constants

ROOT = Path(__file__).parents[2]
FILE = Path(constants.__file__)
PAGES = ROOT / "docs" / "development"


def slug(heading):
    """The anchor of a heading, as the pages' parser makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    text = (PAGES / f"{page}.md").read_text(encoding="utf8")
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


def assigned(path):
    """Names in capitals that a module assigns at its top, with their lines."""
    for node in ast.parse(path.read_text(encoding="utf8")).body:
        if isinstance(node, ast.Assign):
            names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            if all(name.isupper() for name in names):
                yield names, node.lineno, node.end_lineno, node.value


def comment(path, line, end):
    """What stands above an assignment and behind it."""
    lines = path.read_text(encoding="utf8").splitlines()
    above = []
    while lines[line - 2].startswith("#"):
        line -= 1
        above.insert(0, lines[line - 1])
    behind = [part.partition("#")[2] for part in lines[line - 1 : end] if not part.startswith("#")]
    return " ".join(above + behind)


@pytest.mark.parametrize(
    ("names", "line", "end"), [(" ".join(n), line, end) for n, line, end, _ in assigned(FILE)]
)
def test_every_constant_names_a_heading_that_exists(names, line, end):
    named = re.findall(r"\b([a-z]+)#([\w-]+)", comment(FILE, line, end))
    assert named, names
    for page, anchor in named:
        assert anchor in anchors(page), (names, page, anchor)


def _is_numeric(value):
    """Whether an expression is made of numbers alone."""
    nodes = list(ast.walk(value))
    if any(isinstance(node, ast.Call | ast.Name | ast.Subscript) for node in nodes):
        return False
    return all(isinstance(n.value, int | float) for n in nodes if isinstance(n, ast.Constant))


def test_every_other_constant_of_sparse_says_what_it_is():
    """Those of arithmetic stand where they are used."""
    silent = [
        (path.name, names)
        for path in FILE.parent.rglob("*.py")
        if path != FILE
        for names, line, end, value in assigned(path)
        if _is_numeric(value) and not comment(path, line, end).strip()
    ]
    assert silent == []


def test_a_constant_has_one_place():
    own = {name for names, *_ in assigned(FILE) for name in names}
    others = {
        name
        for path in FILE.parent.rglob("*.py")
        if path != FILE
        for names, *_ in assigned(path)
        for name in names
    }
    assert own & others == set()


def test_every_constant_is_used():
    text = " ".join(
        path.read_text(encoding="utf8") for path in (ROOT / "src").rglob("*.py") if path != FILE
    )
    names = [name for names, *_ in assigned(FILE) for name in names]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_constants_of_terms_stand_in_the_table_of_their_page():
    """With a reason each; constants of arithmetic begin with an underscore."""
    page = (PAGES / "terms.md").read_text(encoding="utf8")
    table = page.partition("## Constants")[2].partition("\n## ")[0]
    source = ROOT / "src" / "soubayes"
    files = [*(source / "terms").glob("*.py"), source / "sparse" / "estimators" / "terms.py"]
    found = [
        name for path in files for names, _, _, value in assigned(path)
        for name in names if not name.startswith("_") and _is_numeric(value)
    ]  # fmt: skip
    assert len(found) > 15
    assert [name for name in found if f"`{name}`" not in table] == []
