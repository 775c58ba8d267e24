"""The command line as a user meets it: what it says, what it writes, its exit codes."""

import re
import subprocess
import sys

import numpy as np
from typer.testing import CliRunner

import soubayes.cli as cli
from soubayes import __version__ as version
from soubayes.data.reading import read_table
from soubayes.data.tabular import pose_problem


def soubayes(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def one_line(result, code=2):
    assert result.exit_code == code
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("soubayes: ")
    return line


def test_version():
    assert soubayes("--version").stdout == f"soubayes {version}\n"


def test_the_program_starts_without_the_libraries_that_its_commands_need():
    """None of the large libraries, until a command asks for them."""
    code = (
        "import sys, soubayes.cli\n"
        "large = {'numpy', 'pandas', 'scipy', 'sklearn', 'matplotlib', 'jax'}\n"
        "print(sorted(large & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_wrong_names_of_files_are_found_before_any_library_is_loaded(tmp_path):
    (tmp_path / "data.csv").write_text("x,y\n1,2\n")
    code = (
        "import sys; from soubayes.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, 'numpy' in sys.modules)"
    )
    for words, said in [
        (["fit", "no.csv", "--target", "y"], "there is no file 'no.csv'"),
        (["fit", "data.csv", "--target", "y", "--out", "data.csv"], "--out data.csv is a file"),
        (["fit", "data.csv", "--target", "y", "--level", "90"], "--level is 90"),
        (["predict", "no.soubayes", "data.csv"], "there is no file 'no.soubayes'"),
        (["predict", "data.csv", "no.csv"], "there is no file 'no.csv'"),
        (["predict", "data.csv", "data.csv", "--out", "new.pdf"], "new.pdf is not .csv"),
    ]:
        words = [sys.executable, "-c", code, *words]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout == "2 False\n"
        assert said in done.stderr


def test_help_names_every_command():
    shown = soubayes("--help").stdout
    for name in ("fit", "predict"):
        assert re.search(rf"^\W*{name} ", shown, re.MULTILINE)


def test_a_missing_extra_is_explained():
    code = "import sys; sys.modules['typer'] = None; from soubayes.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install 'soubayes[cli]'" in done.stderr


def test_survival_times_of_a_table(tmp_path):
    rng = np.random.default_rng(0)
    size = rng.normal(size=80)
    time = rng.exponential(np.exp(-size))
    rows = [
        f"{a},{t + 0.01:.4f},{int(t < 2)}" for a, t in zip(size, np.minimum(time, 2), strict=True)
    ]
    file = tmp_path / "table.csv"
    file.write_text("\n".join(["size,years,died", *rows]))
    done = soubayes("fit", file, "--time", "years", "--event", "died", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "Cross-validated concordance (5 folds)" in done.stdout
    new = tmp_path / "new.csv"
    done = soubayes("predict", tmp_path / "out" / "model.soubayes", file, "--out", new)
    assert done.exit_code == 0, done.stderr
    assert new.read_text().startswith("log risk,S(")
    assert "both --time COLUMN and --event" in one_line(soubayes("fit", file, "--time", "years"))
    assert "years: sparse survival" in (tmp_path / "out" / "summary.html").read_text()
    assert "both --time COLUMN and --event" in one_line(soubayes("fit", file))
    posed = pose_problem(read_table(file), "years", task="survival", event="died")
    assert posed.y["event"].sum() > 10
    wrong = soubayes("fit", file, "--time", "died", "--event", "years")
    assert "event column of y holds" in one_line(wrong)
