"""The command line as a user meets it: what it says, what it writes, its exit codes."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import soubayes.cli as cli
from soubayes import SoULinearRegression
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


# ---- what is written -----------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, kinds = rng.normal(size=40), rng.choice(["=1+1", "-5"], 40)
    rows = [f"{a[i]:.4f},{kinds[i]},{a[i] + i % 3:.4f}" for i in range(40)]
    (tmp_path / "data.csv").write_text("\n".join(["a,@kind,y (1000)", *rows]))
    return tmp_path / "data.csv"


def test_outputs_are_named_after_the_table_and_the_target(table):
    done = soubayes("fit", "data.csv", "--target", "y (1000)")
    assert done.exit_code == 0, done.output
    folder = table.parent / "data-y-1000"
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.soubayes",
        "summary.csv",
        "summary.html",
    ]
    assert "soubayes predict data-y-1000/model.soubayes NEW.csv" in done.stdout
    done = soubayes("predict", "data-y-1000/model.soubayes", "data.csv")
    assert done.exit_code == 0, done.output
    assert (table.parent / "data-predictions.csv").exists()


def test_files_are_replaced_only_if_asked_and_inputs_never(table):
    target = ["--target", "y (1000)"]
    assert soubayes("fit", "data.csv", *target, "--out", "one").exit_code == 0
    before = (table.parent / "one" / "model.soubayes").read_bytes()
    (table.parent / "one" / "notes.txt").write_text("mine")
    said = one_line(soubayes("fit", "data.csv", "--target", "a", "--out", "one"))
    assert "'one/model.soubayes' exists: give another --out, or add --overwrite" in said
    assert (table.parent / "one" / "model.soubayes").read_bytes() == before
    done = soubayes("fit", "data.csv", "--target", "a", "--out", "one", "--overwrite")
    assert done.exit_code == 0, done.output
    assert (table.parent / "one" / "model.soubayes").read_bytes() != before
    assert (table.parent / "one" / "notes.txt").read_text() == "mine"

    predict, rows = ["predict", "one/model.soubayes", "data.csv"], table.read_bytes()
    (table.parent / "link.csv").symlink_to(table)
    for out in ("data.csv", "./one/../data.csv", table, "link.csv"):
        for more in ([], ["--overwrite"]):
            said = one_line(soubayes(*predict, "--out", out, *more))
            assert "is read and would be written over: give another --out" in said
    assert table.read_bytes() == rows
    assert soubayes(*predict, "--out", "new.csv").exit_code == 0
    assert "'new.csv' exists" in one_line(soubayes(*predict, "--out", "new.csv"))
    assert soubayes(*predict, "--out", "new.csv", "--overwrite").exit_code == 0
    table.rename(table.parent / "one" / "summary.csv")
    said = one_line(soubayes("fit", "one/summary.csv", *target, "--out", "one", "--overwrite"))
    assert "'one/summary.csv' is read" in said


def test_a_folder_is_no_file_of_predictions(table):
    assert soubayes("fit", "data.csv", "--target", "a", "--out", "one").exit_code == 0
    said = one_line(soubayes("predict", "one/model.soubayes", "data.csv", "--out", "one"))
    assert "'one' is a folder: give a file, such as 'one/predictions.csv'" in said


@pytest.mark.parametrize("kind", ["csv", "tsv", "xlsx", "parquet"])
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(table, kind):
    """Text of the table is copied beside the predictions, and names of columns into the summary."""
    if kind == "xlsx":
        pytest.importorskip("openpyxl")
    assert soubayes("fit", "data.csv", "--target", "@kind", "--out", "one").exit_code == 0
    new = f"new.{kind}"
    words = ["predict", "one/model.soubayes", "data.csv", "--keep", "@kind", "--out", new]
    done = soubayes(*words)
    assert done.exit_code == 0, done.output
    read = {
        "csv": pd.read_csv,
        "tsv": lambda path: pd.read_csv(path, sep="\t"),
        "xlsx": pd.read_excel,
        "parquet": pd.read_parquet,
    }[kind]
    mark = "" if kind == "parquet" else "'"
    found = read(table.parent / new)
    assert found.columns[0] == f"{mark}@kind"
    assert set(found.iloc[:, 0].map(str)) == {f"{mark}=1+1", "-5"}
    assert set(found["class"].map(str)) <= {f"{mark}=1+1", "-5"}
    assert soubayes("fit", "data.csv", "--target", "a", "--out", "two").exit_code == 0
    names = pd.read_csv(table.parent / "two" / "summary.csv")["feature"].tolist()
    assert sorted(names)[0].startswith("'@kind=")


@pytest.mark.parametrize("words", [["fit"], ["predict"]])
def test_a_full_disk_names_the_file(table, words):
    """The real program where files may not grow beyond 1 kB."""
    assert soubayes("fit", "data.csv", "--target", "a", "--out", "one").exit_code == 0
    code = (
        "import resource, sys; from soubayes.__main__ import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); main()"
    )
    more = {
        "fit": ["data.csv", "--target", "a", "--out", "two"],
        "predict": ["one/model.soubayes", "data.csv", "--out", "two/new.csv"],
    }[words[0]]
    command = [sys.executable, "-c", code, *words, *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=table.parent)
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("soubayes: ")]
    assert "File too large" in line
    assert line.endswith("two/model.soubayes'" if words == ["fit"] else "two/new.csv'")
    assert list((table.parent / "two").iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(table):
    assert soubayes("fit", "data.csv", "--target", "a", "--out", "one").exit_code == 0
    said = one_line(
        soubayes("predict", "one/model.soubayes", "data.csv", "--out", "data.csv/new.csv")
    )
    assert "data.csv" in said


# ---- terms ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wards(tmp_path_factory):
    """A curve and eight wards, which are written as numbers."""
    rng = np.random.default_rng(1)
    ward, age = np.arange(120) % 8, rng.uniform(20, 80, 120)
    frame = pd.DataFrame({"age (y)": age, "kind": rng.choice(["a", "b", "c"], 120), "ward": ward})
    frame["y"] = 2 * np.sin(age / 9) + rng.normal(size=8)[ward] + 0.3 * rng.normal(size=120)
    frame["sick"] = np.where(frame["y"] + 0.5 * rng.normal(size=120) > 0, "yes", "no")
    frame.loc[3, "age (y)"], frame["same"] = np.nan, "x"
    file = tmp_path_factory.mktemp("wards") / "wards.csv"
    frame.to_csv(file, index=False)
    return file


def test_curves_and_units_of_a_table(wards, tmp_path):
    drop = ["--drop", "sick", "--drop", "same"]
    words = ["fit", wards, "--target", "y", *drop, "--curves", "--unit", "ward"]
    done = soubayes(*words, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "2 of 3 terms selected" in done.stdout
    assert "s(age (y)) curved, (1 | ward)" in done.stdout
    assert "how well rows of new units are predicted" in done.stdout
    assert re.search(r"\(1 \| ward\) +unit +\d\.\d+ +7\.\d +yes", done.stdout)
    table = pd.read_csv(tmp_path / "summary.csv", index_col="term")
    assert table["kind"].to_dict()["s(age (y))"] == "curved"
    page = (tmp_path / "summary.html").read_text()
    assert "<td>(1 | ward)</td>" in page
    assert "data:image/png" in page
    new = pd.DataFrame({"age (y)": 40.0, "kind": ["a", "a", "z"], "ward": [2, 99, 98]})
    new.to_csv(tmp_path / "new.csv", index=False)
    done = soubayes("predict", tmp_path / "model.soubayes", tmp_path / "new.csv", "--out",
                    tmp_path / "p.csv")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "'ward': '98', '99' not seen in the fit; the effect is 0, with the var" in done.stdout
    told = pd.read_csv(tmp_path / "p.csv")
    assert told["sd"][1] > 1.5 * told["sd"][0]
    assert told["mean"][1] == pytest.approx(told["mean"][2], abs=0.1)
    # the same terms in Python
    frame = pd.read_csv(wards).astype({"ward": str})
    model = SoULinearRegression(terms=["curves", "(1 | ward)"])
    with pytest.warns(UserWarning, match="known units"):
        model.fit(frame[["age (y)", "kind", "ward"]], frame["y"])
    np.testing.assert_allclose(model.predict(new.astype({"ward": str})), told["mean"], rtol=1e-6)


def test_units_of_classes_beside_straight_columns(wards, tmp_path):
    words = ["fit", wards, "--target", "sick", "--drop", "y", "--unit", "ward", "--out", tmp_path]
    done = soubayes(*words)
    assert done.exit_code == 0, done.output
    assert "Estimates are for the log odds of yes" in done.stdout
    assert set(pd.read_csv(tmp_path / "summary.csv")["term"]) == {"age (y)", "kind", "(1 | ward)"}
    done = soubayes("predict", tmp_path / "model.soubayes", wards, "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert "P(yes)" in pd.read_csv(tmp_path / "p.csv")


def test_terms_of_odd_names(tmp_path):
    """Signs that terms and figures read otherwise; a column that differs between units alone."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=[r"$\frac{$", "(x | y*z)"])
    frame["w $a$ | b"] = np.arange(60) % 6
    frame["size"] = frame["w $a$ | b"] ** 1.5
    frame["y"] = 2 * frame.iloc[:, 0] + frame["size"] + rng.normal(size=60)
    frame.to_csv(tmp_path / "odd.csv", index=False)
    done = soubayes(
        "fit", tmp_path / "odd.csv", "--target", "y", "--unit", "w $a$ | b", "--out", tmp_path
    )
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv(tmp_path / "summary.csv")["term"]) >= {r"$\frac{$", "(x | y*z)"}
    assert "size hardly varies within the units of (1 | w $a$ | b)" in done.stdout


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--unit", "wardd"], "no column 'wardd': did you mean 'ward'"),
        (["--unit", "same"], "--unit same names a column with one value"),
        (["--unit", "age (y)", "--missing", "drop"], "no unit is repeated"),
        (["--unit", "y"], "--unit y is the column to predict"),
        (["--unit", "ward", "--date", "ward"], "a column is one or the other"),
    ],
)
def test_units_that_make_no_sense(wards, more, said):
    assert said in one_line(soubayes("fit", wards, "--target", "y", *more))
