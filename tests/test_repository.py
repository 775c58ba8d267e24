"""Workflows, hooks and recipes say what pyproject.toml, constraints.txt and the Makefile say."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import soubayes

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([\w-]+)(?=:)", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="only in the repository")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_of_the_makefile(path):
    jobs = yaml.safe_load(path.read_text())["jobs"]
    assert jobs
    for job in jobs.values():
        matrix = job.get("strategy", {}).get("matrix", {})
        rows = [{"target": name} for name in matrix.get("target", [])] + matrix.get("include", [])
        assert {row["target"] for row in rows} <= TARGETS
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            for words in re.findall(r"^\s*make ([^$\n]+?)(?: PYTHON|$)", step.get("run", ""), re.M):
                assert set(words.split()) <= TARGETS


def test_files_that_a_workflow_names_exist():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    named = re.findall(r"\btests/[\w/]+(?:\.py)?", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_core_job_installs_what_its_tests_import():
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]["core"]
    install, tests = [step["run"] for step in job["steps"] if "run" in step]
    (extras,) = re.findall(r"\.\[([\w,]+)\]", install)
    extra = PROJECT["optional-dependencies"]
    lines = [
        *PROJECT["dependencies"],
        *(line for name in extras.split(",") for line in extra[name]),
    ]
    there = {
        re.match(r"[\w-]+", line)[0] for line in [*lines, *install.partition("]")[2].split()[1:]]
    }
    paths = [ROOT / name for name in re.findall(r"(?<!=)\btests/[\w/]+(?:\.py)?", tests)]
    files = [
        file for path in paths for file in ([path] if path.suffix else path.rglob("test_*.py"))
    ]
    own = {path.stem for path in (ROOT / "tests").rglob("*.py")} | {"soubayes", "tools"}
    known = packages_distributions()
    missing = {
        (file.name, name)
        for file in files
        for name in imported(file) - own - sys.stdlib_module_names
        if not there & set(known[name])
    }
    assert missing == set()


def imported(file):
    """Libraries that a file imports when it is collected."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def test_a_release_is_built_checked_and_published_in_this_order():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert any("twine check" in step.get("run", "") for step in jobs["build"]["steps"])
    assert jobs["publish"]["permissions"] == {"id-token": "write"}


def test_hooks_have_the_versions_of_the_constraints():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    pinned = set((ROOT / "constraints.txt").read_text().split())
    wanted = {each for hook in hooks for each in hook.get("additional_dependencies", [])}
    assert wanted
    assert wanted <= pinned
    assert not [hook["id"] for hook in hooks if ".venv" in hook["entry"]]


def test_the_conda_recipe_has_our_version_and_requirements():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == soubayes.__version__
    there = {line.replace(" ", "") for line in recipe["requirements"]["run"]}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["cli"]]
    names = {line.replace("matplotlib", "matplotlib-base") for line in wanted}
    assert there == {*names, f"python{PROJECT['requires-python']}"}
    assert recipe["about"]["summary"] == PROJECT["description"]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")))
def test_issue_templates_are_forms(path):
    form = yaml.safe_load(path.read_text())
    if path.stem != "config":
        assert {"name", "description", "body"} <= set(form)
        assert all(part["attributes"]["label"] for part in form["body"])


def test_the_citation_has_our_version_a_year_and_an_address():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == soubayes.__version__
    assert citation["url"] == PROJECT["urls"]["Documentation"]
    assert citation["repository-code"] == PROJECT["urls"]["Source"]
    assert {"year", "url", "title", "authors"} <= set(citation["preferred-citation"])


def test_programs_import_names_that_exist():
    """Of benchmarks and tools, which no other test runs; by reading, as some need extras."""
    missing = []
    for path in [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "tools").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("soubayes"):
                missing += [
                    f"{path.name}: {node.module}.{each.name}"
                    for each in node.names
                    if not defines(str(node.module), each.name)
                ]
    assert missing == []


def defines(module, name):
    """Whether a module has this name, or a module of this name below it."""
    if module == "soubayes" and name in soubayes.__all__:
        return True
    place = ROOT / "src" / Path(*module.split("."))
    if any((place / end).exists() for end in (f"{name}.py", f"{name}/__init__.py")):
        return True
    file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
    return file.exists() and bool(
        re.search(
            rf"^(?:def|class) {name}\b|^{name}\b[^\n]*=|^from .* import .*\b{name}\b|^    {name},$",
            file.read_text(encoding="utf8"),
            re.M,
        )
    )
