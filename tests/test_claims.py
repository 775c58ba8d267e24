"""Names and commands that the pages mention exist: files, functions, parameters, options."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer import Typer
from typer.main import get_command

from paper import experiments
from paper.commands import paper_app
from soubayes.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CODE_FOLDERS = ("src", "paper", "tests", "benchmarks", "tools", "examples")
MAINTAINERS = [ROOT / "CONTRIBUTING.md", *sorted((DOCS / "development").glob("*.md"))]
PAGES = [
    *MAINTAINERS,
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *(DOCS / name for name in ("index.md", "theory.md", "results/README.md")),
    *sorted((DOCS / "guide").glob("*.md")),
    *sorted((DOCS / "paper").glob("*.md")),
]
FILE_NAME = re.compile(r"`([\w./-]+\.(?:py|md|toml|json|npz|html|js|css))`")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"(?<!`)`([^`]+)`(?!`)")
INDENTED = re.compile(r"^ {4}((?:soubayes|make|python|pytest) .*)$", re.MULTILINE)
PLACES = re.compile(r"[A-Z_]+")  # arguments that stand for something: ROWS, N
# names of other libraries, of what they write, and of equations of the paper
FOREIGN = {"theta_decentered", "draws_pd", "_001", "dynamic_MP", "point_and_uncertainty"}
FOREIGN |= {"SelectFromModel", "lasso_path", "min_abs_corr"}  # scikit-learn, susieR
FOREIGN |= {"conf_int", "get_prediction", "summary_frame"}  # statsmodels
FOREIGN |= {"Logit", "OrderedModel", "PHReg"}
FOREIGN |= {"VarCorr", "term_importances", "_importances"}  # lme4, interpret
FOREIGN |= {"group_offset", "as_draws_df", "make_stancode"}  # Bambi, posterior, brms
FOREIGN |= {"Exam", "Orthodont", "Subject"}  # tables of nlme, mlmRev and lme4


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", MAINTAINERS, ids=name_of)
def test_files_that_maintainers_are_told_of_exist(page):
    """A name may leave out the first folders, as the pages do."""
    folders = [ROOT / name for name in (*CODE_FOLDERS, "docs")]
    there = [str(path) for folder in folders for path in folder.rglob("*.*")]
    there += [str(path) for path in ROOT.glob("*.*")]
    named = set(FILE_NAME.findall(page.read_text()))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in there)] == []


@cache
def known_names() -> set[str]:
    """What our code defines or calls by name: definitions, arguments, attributes, words of text."""
    found: set[str] = set()
    for folder in CODE_FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            found.update(re.findall(r"\w+", str(path.relative_to(ROOT))))
            if path != Path(__file__):
                for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
                    found.update(_names_in(node))
    for path in DOCS.glob("*.py"):
        found.add(path.stem)
    return found


def _names_in(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg | ast.keyword):
        return [node.arg or ""]
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.alias):
        return node.name.split(".")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.findall(r"\w+", node.value) if len(node.value) < 200 else []
    return []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_names_on_a_page_are_in_the_code(page):
    """Code in the text, commands and files apart: every word of it that could be a name."""
    text = FENCED.sub("", page.read_text())
    unknown = {
        word
        for code in QUOTED.findall(text)
        if not FILE_NAME.fullmatch(f"`{code}`") and not _is_command(code)
        for word in re.findall(r"(?<![\w.-])[A-Za-z_]\w{3,}(?![\w-])", code)
        if ("_" in word or not word.islower()) and not word.isupper()
    }
    assert sorted(unknown - known_names() - FOREIGN) == []


def _is_command(code: str) -> bool:
    return code.startswith(("make ", "soubayes ", "python ", "pytest ", "pip ", "OMP_", "git "))


def commands(page: Path) -> list[str]:
    text = FENCED.sub("", page.read_text())
    found = [code.replace("\n", " ") for code in QUOTED.findall(text) if _is_command(code)]
    return [*found, *INDENTED.findall(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_commands_on_a_page_can_be_given(page):
    for command in commands(page):
        words = [word for word in shlex.split(command, comments=True) if "=" not in word]
        check = {"make": check_make, "soubayes": check_program, "python": check_script}
        check.get(words[0], lambda words: None)(words)


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert words[1] in targets, words


def check_program(words: list[str]) -> None:
    """Commands, their options, and the experiments that `reproduce` is given."""
    check_options(app, words[1:])


def check_options(program: Typer, rest: list[str]) -> None:
    command = get_command(program)
    if not rest:
        return
    own = command.commands[rest[0]]
    options = {option for parameter in own.params for option in parameter.opts}
    assert {word for word in rest[1:] if word.startswith("--")} <= options, rest


def check_experiments(rest: list[str]) -> None:
    """The experiments that `reproduce` is given, and the options of every command."""
    if rest[:1] == ["reproduce"] and "--full" in rest:
        assert set(rest[1 : rest.index("--full")]) <= {*experiments(), "all", "..."}, rest
    check_options(paper_app, rest)


def check_script(words: list[str]) -> None:
    """A script of ours, and the words that follow it, are in its text."""
    path = ROOT / words[1]
    if words[1:3] == ["-m", "paper"]:
        check_experiments(words[3:])
        return
    if words[1].startswith("-"):
        return
    text = path.read_text()
    for word in re.split(r"\||\s", " ".join(words[2:])):
        known = PLACES.fullmatch(word) or re.fullmatch(r"[\d.]*|results|rows\.jsonl", word)
        assert known or re.search(rf"\b{re.escape(word.lstrip('-'))}\b", text), (words, word)
