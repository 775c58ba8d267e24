"""`soubayes fit` on files people have: what it prints and writes, and what it says if not."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from soubayes import load_model
from soubayes.fitting import fit_table, summary_cells, summary_page
from soubayes.tabular import pose_problem
from test_cli import one_line, soubayes


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory):
    """Regression with a category, gaps, and columns that mean nothing."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    rng = np.random.default_rng(0)
    frame["sex"] = np.where(frame["sex"] > 1, "female", "male")
    for k in range(5):
        frame[f"noise{k}"] = rng.standard_normal(len(frame))
    frame.loc[rng.choice(len(frame), 20, replace=False), "bp"] = np.nan
    path = tmp_path_factory.mktemp("data") / "diabetes.csv"
    frame.to_csv(path, index=False)
    return path


def test_regression_from_a_csv(diabetes, tmp_path):
    out = tmp_path / "fit"
    result = soubayes("fit", diabetes, "--target", "target", "--out", out)
    assert result.exit_code == 0, result.output
    assert "regression, since 'target' holds numbers" in result.stdout
    assert "'bp' 20 (by the median)" in result.stdout
    assert re.search(
        r"of 15 coefficients selected. Cross-validated R² \(5 folds\): 0\.4", result.stdout
    )
    assert re.search(r"bmi +\d+\.\d+ +\d+\.?\d* to", result.stdout)
    assert "noise0" not in result.stdout
    page = (out / "summary.html").read_text()
    assert "data:image/png;base64," in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    frame = pd.read_csv(diabetes)
    model = load_model(out / "model.skops")
    predicted = model.predict(frame.drop(columns="target"))
    assert np.corrcoef(predicted, frame["target"])[0, 1] > 0.65
    named = [row[0] for row in summary_cells(fit_table(pose_problem(frame, "target")))[1]]
    assert {"bmi", "s5"} <= set(named)


def test_what_cannot_be_fitted_is_one_line_and_exit_code_2(diabetes, tmp_path):
    assert "there is no file" in one_line(soubayes("fit", "no.csv", "--target", "y"))
    wrong = one_line(soubayes("fit", diabetes, "--target", "targets"))
    assert "did you mean 'target'?" in wrong
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    assert "empty.csv cannot be read" in one_line(soubayes("fit", empty, "--target", "y"))
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("a,b,y\n1,,1\n2,,2\n3,,3\n")
    assert "no values at all in 'b'" in one_line(soubayes("fit", gaps, "--target", "y"))
    assert "task is" in one_line(soubayes("fit", diabetes, "--target", "target", "--task", "sort"))


def test_classification_of_text_labels(tmp_path):
    frame = load_breast_cancer(as_frame=True).frame.iloc[:200, [0, 1, 20, 21, 27, -1]]
    frame = frame.copy()
    frame["target"] = np.where(frame["target"] == 1, "benign", "malignant")
    path = tmp_path / "cancer.parquet"
    frame.to_parquet(path)
    result = soubayes("fit", path, "--target", "target", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "classification, since 'target' holds text" in result.stdout
    assert re.search(r"Cross-validated accuracy \(5 folds\): 0\.9", result.stdout)
    model = load_model(tmp_path / "model.skops")
    assert set(model.predict(frame.head())) <= {"benign", "malignant"}


def test_several_classes_are_named():
    frame = load_iris(as_frame=True).frame[::10]
    frame["target"] = np.array(["setosa", "versicolor", "virginica"])[frame["target"]]
    problem = pose_problem(frame, "target")
    fitted = fit_table(problem)
    columns, rows = summary_cells(fitted)
    assert "virginica" in summary_page(fitted, problem, "target")
    assert columns[:2] == ["feature", "class"]
    assert {row[1] for row in rows} <= {"setosa", "versicolor", "virginica"}
    assert fitted.n_features == 12


def test_a_table_in_which_nothing_matters():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((100, 40)), columns=map(str, range(40)))
    frame["y"] = rng.standard_normal(100)
    problem = pose_problem(frame, "y")
    fitted = fit_table(problem)
    assert "0 of 40 coefficients selected" in summary_page(fitted, problem, "y")
