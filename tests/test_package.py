"""The package as a user meets it: what an import loads, what a wheel holds, what errors say."""

import ast
import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import soubayes

ROOT = Path(__file__).parents[1]
CORE = ["numpy", "scipy", "sklearn", "joblib", "threadpoolctl", "narwhals"]


def run(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_loads_neither_jax_nor_matplotlib():
    heavy = run(
        "import sys, soubayes; "
        "print([m for m in ('jax', 'numpyro', 'matplotlib', 'arviz', 'pandas', 'dask') "
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


def test_public_names_have_a_docstring_with_an_example():
    bare = [n for n in soubayes.__all__ if ">>>" not in (getattr(soubayes, n).__doc__ or "")]
    assert bare == []


def test_missing_extra_names_the_install_command():
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import soubayes\n"
        "try:\n    soubayes.Table(x=[1]).to_pandas()\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "pip install 'soubayes[io]'" in run(code)


def test_wheel_imports_in_an_environment_with_only_the_core(tmp_path):
    """Build the wheel and import it where nothing but NumPy, SciPy and scikit-learn exists."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        assert "soubayes/py.typed" in archive.namelist()
        archive.extractall(site)
    for package in CORE:  # the core's own files, linked in instead of downloaded
        origin = Path(importlib.util.find_spec(package).origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        for part in (source, source.parent / f"{package}.libs"):
            if part.exists():
                (site / part.name).symlink_to(part)
    code = (
        "import soubayes, importlib.util as u\n"
        "assert u.find_spec('jax') is None and u.find_spec('matplotlib') is None\n"
        "print(soubayes.__version__, soubayes.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": os.environ["PATH"]},
    )
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout
