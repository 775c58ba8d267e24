"""The package as a user meets it: what an import loads, what a wheel holds, what errors say."""

import ast
import inspect
import os
import re
import subprocess
import sys
import tarfile
import venv
from importlib import metadata
from pathlib import Path

import pandas as pd
import pytest
from packaging.requirements import Requirement

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
    """They use the library, and stand beside it in a clone."""
    files = Path(soubayes.__file__).parent.rglob("*.py")
    assert [f.name for f in files if re.search(r"(import|from) paper\b", f.read_text())] == []


def test_private_names_of_scikit_learn_are_not_imported():
    """Whatever starts with an underscore may be gone in its next version."""
    private = re.compile(r"(from|import) sklearn[\w.]*(\._| import .*\b_)")
    files = Path(soubayes.__file__).parent.rglob("*.py")
    assert [f.name for f in files if private.search(f.read_text())] == []


def test_random_state_has_one_default():
    """0 in every public function, estimator and method: results can be had again."""
    found = {}
    for name in soubayes.__all__:
        thing = getattr(soubayes, name)
        each = [(name, thing)]
        if isinstance(thing, type):
            each += [(f"{name}.{m}", f) for m, f in inspect.getmembers(thing, inspect.isfunction)]
        for where, function in each:
            try:
                parameters = inspect.signature(function).parameters
            except (TypeError, ValueError):
                continue
            if "random_state" in parameters and not where.split(".")[-1].startswith("_"):
                found[where] = parameters["random_state"].default
    assert len(found) > 20
    assert {where: default for where, default in found.items() if default != 0} == {}


def test_missing_extra_names_the_install_command():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import soubayes\n"
        "try:\n    soubayes.plot_prior_vs_confidence()\n"
        "except ImportError as error:\n    print(error)"
    )
    assert "pip install 'soubayes[plot]'" in run(code)


# ---- every install line of the pages, where nothing else is installed ---------------------------

INSTALL = re.compile(r"^    pip install '?\.(?:\[([\w,]+)\])?'?(?:\s|$)", re.M)
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide" / "install.md"
LINES = {found or "" for page in (README, GUIDE) for found in INSTALL.findall(page.read_text())}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


class Environment:
    """An environment with the wheel, and the libraries that it requires with some extras."""

    def __init__(self, wheel: Path, folder: Path, extras: str = "") -> None:
        self.folder = folder
        self.bin = folder / "empty" / "bin"
        venv.create(folder / "empty", with_pip=False)
        (self.site,) = (folder / "empty" / "lib").glob("python*/site-packages")
        target = ["--python", str(self.bin / "python"), "install", "--no-index", "--no-deps"]
        subprocess.run(
            [sys.executable, "-m", "pip", *target, str(wheel)], check=True, capture_output=True
        )
        (own,) = self.site.glob("soubayes-*.dist-info")
        for part in files_of(metadata.Distribution.at(own), extras.split(",")):
            if not (self.site / part.name).exists():  # linked instead of downloaded
                (self.site / part.name).symlink_to(part)

    def __call__(self, program: str, *words: str) -> str:
        done = subprocess.run(
            [self.bin / program, *words],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={"HOME": str(self.folder), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def files_of(library: metadata.Distribution, extras: list[str]) -> set[Path]:
    """Where the libraries lie that a library requires, and those that they require."""
    seen: set[tuple[str, str]] = set()
    found: set[Path] = set()
    waiting = [(library, extra) for extra in ("", *extras)]
    while waiting:
        library, extra = waiting.pop()
        if (library.name, extra) in seen:
            continue
        seen.add((library.name, extra))
        if library.name != "soubayes":
            tops = {file.parts[0] for file in library.files or () if file.parts[0] != ".."}
            found |= {Path(str(library.locate_file(top))) for top in tops - {"__pycache__"}}
        for need in map(Requirement, library.requires or ()):
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                wanted = library if need.name == "soubayes" else metadata.distribution(need.name)
                waiting += [(wanted, more) for more in ("", *need.extras)]
    return found


def blocks_of(page: Path) -> str:
    """The Python of a page, as one program."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))


def core(there: Environment) -> None:
    """The first blocks of both pages, and what needs an extra says so."""
    for page in (README, GUIDE):
        there("python", "-W", "error", "-c", blocks_of(page))
    code = (
        "import importlib.util, numpy, soubayes\n"
        "assert not any(map(importlib.util.find_spec, ('jax', 'matplotlib', 'jinja2', 'typer')))\n"
        "X = numpy.random.default_rng(0).normal(size=(40, 5))\n"
        "model = soubayes.SoULinearRegression(choice='path').fit(X, 3 * X[:, 1])\n"
        "print(soubayes.__file__)\n"
        "try:\n    model.to_html('page.html')\n"
        "except ImportError as error:\n    print(error)"
    )
    home, said = there("python", "-c", code).splitlines()
    assert str(there.site) in home
    assert "pip install 'soubayes[cli]'" in said
    assert (there.site / "soubayes" / "py.typed").exists()


def cli(there: Environment) -> None:
    """`soubayes fit` and `predict` of both kinds of files."""
    rows = pd.DataFrame({"a": range(30), "y": [3 * i % 7 for i in range(30)]})
    rows.to_csv(there.folder / "data.csv", index=False)
    rows.to_parquet(there.folder / "data.parquet")
    assert "summary.html" in there("soubayes", "fit", "data.parquet", "--target", "y")
    assert "30 predictions" in there("soubayes", "predict", "data-y/model.soubayes", "data.csv")
    assert (there.folder / "data-y" / "summary.html").stat().st_size > 10_000


def everything(there: Environment) -> None:
    """A network, its files, a NumPyro model and a figure."""
    code = (
        "import numpy as np, numpyro, numpyro.distributions as dist, soubayes\n"
        "X = np.random.default_rng(0).normal(size=(40, 3)); y = X[:, 0]\n"
        "net = soubayes.SoUNetRegressor((4,), epochs=2, random_state=0).fit(X, y)\n"
        "net.save('net.safetensors'); net.export_onnx('net.onnx')\n"
        "def model(y):\n"
        "    mu = numpyro.sample('mu', dist.Normal(0.0, 1.0))\n"
        "    numpyro.sample('y', dist.Normal(mu, 1.0), obs=y)\n"
        "print(soubayes.fit(model, y, restarts=1).to_arviz().posterior['mu'].shape)\n"
        "soubayes.plot_path(soubayes.SoULinearRegression(choice='path').fit(X, y))\n"
        "import dask.array, dask.dataframe, distributed, onnxruntime\n"
    )
    assert there("python", "-c", code).startswith("(1, ")
    cli(there)


PROMISED = {"": core, "cli": cli, "all": everything}


def test_every_install_line_has_its_code():
    assert set(PROMISED) == LINES


@pytest.mark.parametrize("extras", ["", "cli", pytest.param("all", marks=pytest.mark.slow)])
def test_install_lines_in_an_empty_environment(extras, wheel, tmp_path):
    PROMISED[extras](Environment(wheel, tmp_path, extras))


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
