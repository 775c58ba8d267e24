"""The package as a user meets it: what an import loads, what a wheel holds, what errors say."""

import ast
import os
import re
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest

import soubayes

ROOT = Path(__file__).parents[1]


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


def test_missing_extra_names_the_install_command():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import soubayes\n"
        "try:\n    soubayes.Table(x=[1]).to_pandas()\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "pip install 'soubayes[io]'" in run(code)


def test_wheel_works_in_an_empty_environment_with_only_the_core(tmp_path):
    """Install the wheel where nothing but NumPy, SciPy and scikit-learn exists, and fit."""
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
    for part in core_files():  # linked in instead of downloaded
        (site / part.name).symlink_to(part)
    code = (
        "import importlib.util, numpy, soubayes\n"
        "assert not any(map(importlib.util.find_spec, ('jax', 'matplotlib', 'pandas')))\n"
        "X = numpy.random.default_rng(0).normal(size=(40, 5))\n"
        "model = soubayes.SoULinearRegression(choice='path').fit(X, 3 * X[:, 1])\n"
        "print(model.get_support(indices=True), soubayes.__file__)"
    )
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": ""}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[1]")
    assert str(site) in done.stdout
    assert (site / "soubayes" / "py.typed").exists()


def core_files() -> set[Path]:
    """Where the libraries of a core install lie: what ours require, and what those require."""
    seen: set[str] = set()
    found: set[Path] = set()
    waiting = ["numpy", "scipy", "scikit-learn"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        library = metadata.distribution(name)
        tops = {file.parts[0] for file in library.files or () if file.parts[0] != ".."}
        found |= {Path(str(library.locate_file(top))) for top in tops - {"__pycache__"}}
        needs = [need for need in library.requires or () if "extra ==" not in need]
        waiting += [re.match(r"[\w.-]+", need)[0] for need in needs]
    return found
