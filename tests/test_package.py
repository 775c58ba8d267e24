"""The package as a user meets it: what an import loads, what a wheel holds, what errors say."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import venv
from importlib import metadata
from pathlib import Path

import pytest

import soubayes

ROOT = Path(__file__).parents[1]
IN_GIT = (ROOT / ".git").exists()


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_neither_jax_nor_matplotlib():
    heavy = run(
        "import sys, soubayes; "
        "print([m for m in ('jax', 'numpyro', 'matplotlib', 'arviz_base', 'pandas', 'dask') "
        "if m in sys.modules])"
    )
    assert heavy.strip() == "[]"


def test_every_public_name_is_importable_and_listed():
    for name in soubayes.__all__:
        assert getattr(soubayes, name) is not None
    assert set(soubayes.__all__) <= set(dir(soubayes))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = soubayes.no_such_name


def test_no_public_name_is_also_a_module():
    """Importing the module would put it in the place of the name."""
    modules = {path.stem for path in Path(soubayes.__file__).parent.iterdir()}
    assert not modules & set(soubayes.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(soubayes.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in block.body for alias in node.names}
    assert seen == set(soubayes.__all__)


def test_the_library_does_not_import_the_papers_experiments():
    """They use the library; of the rest only the program, `__main__`, knows them."""
    home = Path(soubayes.__file__).parent
    files = [f for f in home.rglob("*.py") if "paper" not in f.relative_to(home).parts]
    users = [f.name for f in files if re.search(r"soubayes(\.| import )paper\b", f.read_text())]
    assert users == ["__main__.py"]


def test_private_names_of_scikit_learn_are_not_imported():
    """Whatever starts with an underscore may be gone in its next version."""
    private = re.compile(r"(from|import) sklearn[\w.]*(\._| import .*\b_)")
    files = Path(soubayes.__file__).parent.rglob("*.py")
    assert [f.name for f in files if private.search(f.read_text())] == []


def test_missing_extra_names_the_install_command():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import soubayes\n"
        "try:\n    soubayes.Table(x=[1]).to_pandas()\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "pip install 'soubayes[io]'" in run(code)


def test_wheel_works_in_an_empty_environment(tmp_path):
    """The wheel where nothing but the core's libraries exists; then those of the extra `cli`."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    subprocess.run(
        [*install, "--no-index", "--no-deps", str(wheel)], check=True, capture_output=True
    )
    (site,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    needs = {extra: [] for extra in ("", "cli")}
    (own,) = site.glob("soubayes-*.dist-info")
    for need in metadata.Distribution.at(own).requires or ():
        extra = re.search(r"extra == '(\w+)'", need)
        needs.get(extra[1] if extra else "", []).append(re.match(r"[\w.-]+", need)[0])

    def there(*words):
        command = [python, *words]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": ""}
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    link(files_of(needs[""]), site)
    code = (
        "import importlib.util, numpy, soubayes\n"
        "assert not any(map(importlib.util.find_spec, ('jax', 'matplotlib', 'pandas', 'jinja2')))\n"
        "X = numpy.random.default_rng(0).normal(size=(40, 5))\n"
        "model = soubayes.SoULinearRegression(choice='path').fit(X, 3 * X[:, 1])\n"
        "print(model.get_support(indices=True), soubayes.__file__)\n"
        "for wanted in (model.summary, lambda: model.to_html('page.html')):\n"
        "    try:\n        wanted()\n"
        "    except ImportError as error:\n        print(error)"
    )
    first, *said = there("-c", code).splitlines()
    assert first.startswith("[1]")
    assert str(site) in first
    assert "pip install 'soubayes[io]'" in said[0]
    assert "pip install 'soubayes[cli]'" in said[1]
    assert (site / "soubayes" / "py.typed").exists()

    link(files_of(needs["cli"]), site)
    (tmp_path / "table.csv").write_text("a,y\n" + "".join(f"{i},{3 * i % 7}\n" for i in range(30)))
    assert "Wrote explorer.html" in there("-m", "soubayes", "explore", "table.csv", "--target", "y")
    assert (tmp_path / "explorer.html").stat().st_size > 10_000


def link(files: set[Path], site: Path) -> None:
    """Libraries are linked in instead of downloaded."""
    for part in files:
        if not (site / part.name).exists():
            (site / part.name).symlink_to(part)


def files_of(names: list[str]) -> set[Path]:
    """Where libraries lie: those named, and what they require."""
    seen: set[str] = set()
    found: set[Path] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        library = metadata.distribution(name)
        tops = {file.parts[0] for file in library.files or () if file.parts[0] != ".."}
        found |= {Path(str(library.locate_file(top))) for top in tops - {"__pycache__"}}
        needs = [need for need in library.requires or () if ";" not in need]
        waiting += [re.match(r"[\w.-]+", need)[0] for need in needs]
    return found


@pytest.mark.skipif(not IN_GIT, reason="an unpacked sdist knows no other files")
def test_sdist_holds_every_file_of_the_repository(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as inside:
        names = {name.partition("/")[2] for name in inside.getnames()}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    missing = [
        name for name in listed.stdout.split() if (ROOT / name).exists() and name not in names
    ]
    assert missing == []


def test_the_version_stands_in_one_place():
    assert f'__version__ = "{metadata.version("soubayes")}"' in Path(soubayes.__file__).read_text()
    assert "dynamic" in (ROOT / "pyproject.toml").read_text()
