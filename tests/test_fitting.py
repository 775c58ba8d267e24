"""`soubayes fit` on files people have: what it prints and writes, and what it says if not."""

import re
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

import soubayes.cli as cli
from soubayes import SoUNegativeBinomialRegression, load_model
from soubayes.data.tabular import pose_problem
from soubayes.datasets import experiment1
from soubayes.fitting import TableSource, fit_page, fit_table, summary_cells
from test_cli import one_line, soubayes


def page_of(fitted, problem, target):
    return fit_page(fitted, problem, TableSource(Path("table.csv"), target, {}, {}))


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
    assert "Regression, since 'target' holds numbers" in result.stdout
    assert "'bp' 20 (by the median)" in result.stdout
    assert re.search(
        r"of 15 coefficients selected. Cross-validated R² \(5 folds\): 0\.4", result.stdout
    )
    assert re.search(r"bmi +\d+\.\d+ +\d+\.?\d* to", result.stdout)
    assert "noise0" not in result.stdout
    page = (out / "summary.html").read_text()
    assert "What if" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    frame = pd.read_csv(diabetes)
    model = load_model(out / "model.soubayes")
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
    assert "'b' (no values at all)" in one_line(soubayes("fit", gaps, "--target", "y"))
    assert "task is" in one_line(soubayes("fit", diabetes, "--target", "target", "--task", "sort"))


def test_names_with_signs_of_other_languages(tmp_path):
    """$ (mathtext), [b] (rich) and <i> (HTML) in names of columns and classes are shown as such."""
    rng = np.random.default_rng(0)
    names = ["price $", "$cost$", r"$\alpha", "[bold]x[/]", "<i>y</i>", "a=b"]
    frame = pd.DataFrame(rng.normal(size=(18, 6)), columns=names)
    score = frame.to_numpy() @ [9.0, 8.0, -9.0, 8.0, -9.0, 8.0]
    path = tmp_path / "odd.csv"
    frame.assign(**{"$t$ <b>": score + rng.normal(size=18)}).to_csv(path, index=False)
    result = soubayes("fit", path, "--target", "$t$ <b>", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for name in names:
        assert name in result.stdout
    page = (tmp_path / "summary.html").read_text()
    assert r"\u003ci\u003ey\u003c/i\u003e" in page
    assert "<i>" not in page
    assert "$t$ &lt;b&gt;: sparse regression" in page
    labels = np.array(["$x", "[red]$y$", r"$\frac{$"])[np.digitize(score, [-9, 9])]
    problem = pose_problem(frame[["a=b", "$cost$"]].assign(kind=labels), "kind")
    assert "[red]$y$" in page_of(fit_table(problem), problem, "kind")


def test_the_page_says_what_is_known_of_the_intervals():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(18, 3)), columns=list("abc"))
    number, label = frame["a"] + 0.1 * frame["b"], frame["a"] > 0  # a mixture, a sparse fit
    for y, known in ((number, "For weak effects"), (label, "the uncertainty of the selection")):
        problem = pose_problem(frame.assign(y=y), "y")
        page = page_of(fit_table(problem), problem, "y")
        assert known in page
        assert "Credible sets" in page


def test_progress_is_shown_on_a_terminal(diabetes, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(cli, "elapsed_line", lambda name: shown.append(name) or nullcontext())
    assert soubayes("fit", diabetes, "--target", "target", "--out", tmp_path).exit_code == 0
    assert shown == ["reading", "fitting 442 rows", "writing"]


def test_dates_from_the_command_line(tmp_path):
    days = pd.date_range("2020-01-01", periods=80)
    noise = np.random.default_rng(0).normal(size=80)
    frame = pd.DataFrame({"day": days.strftime("%Y-%m-%d"), "y": np.arange(80) * 0.5 + noise})
    path = tmp_path / "dated.csv"
    frame.to_csv(path, index=False)
    said = one_line(soubayes("fit", path, "--target", "y"))
    assert "'day' (dates); add --date day to use days since 1970-01-01" in said
    result = soubayes("fit", path, "--target", "y", "--date", "day", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "'day' (2020-01-01 to 2020-03-20)" in result.stdout
    model = load_model(tmp_path / "model.soubayes")
    assert model[-1].coef_[0] == pytest.approx(0.5, abs=0.02)
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.assign(day=days)))


def test_classification_of_text_labels(tmp_path):
    frame = load_breast_cancer(as_frame=True).frame.iloc[:200, [0, 1, 20, 21, 27, -1]]
    frame = frame.copy()
    frame["target"] = np.where(frame["target"] == 1, "benign", "malignant")
    path = tmp_path / "cancer.parquet"
    frame.to_parquet(path)
    result = soubayes("fit", path, "--target", "target", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Classification, since 'target' holds text" in result.stdout
    assert re.search(r"Cross-validated accuracy \(5 folds\): 0\.9", result.stdout)
    model = load_model(tmp_path / "model.soubayes")
    assert set(model.predict(frame.head())) <= {"benign", "malignant"}


def test_several_classes_are_named():
    frame = load_iris(as_frame=True).frame[::10]
    frame["target"] = np.array(["setosa", "versicolor", "virginica"])[frame["target"]]
    problem = pose_problem(frame, "target")
    fitted = fit_table(problem)
    columns, rows = summary_cells(fitted)
    assert "virginica" in page_of(fitted, problem, "target")
    assert columns[:2] == ["feature", "class"]
    assert {row[1] for row in rows} <= {"setosa", "versicolor", "virginica"}
    assert fitted.n_features == 12


def test_a_table_in_which_nothing_matters():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((100, 40)), columns=map(str, range(40)))
    frame["y"] = rng.standard_normal(100)
    problem = pose_problem(frame, "y")
    fitted = fit_table(problem)
    assert "0 of 40 coefficients selected" in page_of(fitted, problem, "y")


def test_the_score_is_that_of_the_rows_that_were_held_out(monkeypatch):
    """Not all rows may be held out; large tables keep none of their rows."""
    data = experiment1(105, 100, 20, random_state=3)
    frame = pd.DataFrame(data.X, columns=[f"x{j}" for j in range(100)])
    problem = pose_problem(frame.assign(y=data.y), "y")
    fitted = fit_table(problem)
    held = fitted.estimator.out_of_fold_
    seen = held["fold"] >= 0
    assert 0 < seen.sum() < 105  # n is close to p: folds of four rows, until there are enough
    off, y = (held["y"] - held["mean"])[seen], held["y"][seen]
    r2 = 1 - np.sum(off**2) / np.sum((y - y.mean()) ** 2)
    assert f"({held['fold'].max() + 1} folds): {r2:.3f}" in fitted.score
    monkeypatch.setattr("soubayes.sparse.least_squares.family.LARGE", 100)  # rows
    large = fit_table(problem)
    assert not hasattr(large.estimator, "out_of_fold_")
    assert "Cross-validated R²: 0.99" in large.score


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a,y\n" + "".join(f"{k},{0.5 + k % 2}\n" for k in range(12)), "classification"),
        ("a,y\n1,0\n2,1\n", "regression"),
        ("a,y\n1,0.25\n2,1.5\n", "regression"),
        ("a,y\n1,u\n2,v\n", "classification"),
        ("a,b,y\n1,3,u\n2,1,v\n5,2,u\n", "classification"),
    ],
)
def test_small_and_odd_tables_are_fitted(rows, said, tmp_path):
    (tmp_path / "data.csv").write_text(rows)
    result = soubayes("fit", tmp_path / "data.csv", "--target", "y", "--out", tmp_path / "fit")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{said.capitalize()}, since 'y'")


def test_the_code_on_the_page_reads_the_file_in_the_same_way(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("a;y\n" + "".join(f"1,{k:03};{3 * k % 7}\n" for k in range(30)))
    result = soubayes("fit", file, "--target", "y", "--decimal", ".", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "separated thousands: 'a'" in result.stdout
    text = (tmp_path / "summary.html").read_text()
    assert "decimal='.')" in text.replace("\\u0027", "'")


def test_the_words_over_credible_sets_hold_for_all_of_them():
    """Sets are shown from 90 % on, and the words do not promise more."""
    rng = np.random.default_rng(0)
    seen = []
    for effect in (0.0, 0.35, 0.4, 0.45, 2.0):
        frame = pd.DataFrame(rng.normal(size=(100, 4)), columns=list("abcd"))
        problem = pose_problem(frame.assign(y=effect * frame["a"] + rng.normal(size=100)), "y")
        fitted = fit_table(problem)
        supports = fitted.estimator.supports_
        posterior, sets = supports.posteriors[0], supports.credible_sets()
        said = page_of(fitted, problem, "y")
        assert "95" not in re.search(r"<p[^>]*>([^<]*carries an effect[^<]*)<", said)[1]
        assert ("less than 90% probable have no set" in said) == bool(len(sets))
        assert ("carries an effect that is 90% probable" in said) == (not len(sets))
        assert all(posterior.probability[list("abcd").index(f)] > 0.5 for (f,) in sets["features"])
        seen.append(len(sets))
    assert min(seen) == 0
    assert max(seen) > 0


def test_the_columns_of_a_category_are_a_group():
    rng = np.random.default_rng(0)
    kind = rng.choice(list("abcd"), 120)
    frame = pd.DataFrame(
        {"kind": kind, "two": rng.choice(["x", "y"], 120), "size": rng.random(120)}
    )
    frame["y"] = (kind == "a") + 0.7 * (kind == "b") + 0.5 * rng.normal(size=120)
    problem = pose_problem(frame, "y")
    found = fit_table(problem).estimator
    assert list(found.feature_groups) == ["kind"]
    assert len(found.feature_groups["kind"]) == 3
    own = [name.startswith("kind=") for name in found.feature_names_in_]
    assert found.selected_[own].all()
    assert found.supports_.groups[0] == "kind"
    assert "kind" in page_of(fit_table(problem), problem, "y")


def test_counts_are_offered_and_fitted(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=150), "b": rng.normal(size=150)})
    frame["visits"] = rng.poisson(np.exp(0.5 + 0.8 * frame["a"]))
    file = tmp_path / "table.csv"
    frame.to_csv(file, index=False)
    offered = soubayes("fit", file, "--target", "visits", "--out", tmp_path / "numbers")
    assert "--task counts if they count something" in offered.stdout
    done = soubayes("fit", file, "--target", "visits", "--task", "counts", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "logarithm of the mean. Cross-validated deviance explained" in done.stdout
    model = load_model(tmp_path / "model.soubayes")
    assert isinstance(model[-1], SoUNegativeBinomialRegression)
    out = tmp_path / "predictions.csv"
    assert soubayes("predict", tmp_path / "model.soubayes", file, "--out", out).exit_code == 0
    found = pd.read_csv(out)
    assert (found["lower"] >= 0).all()
    assert np.mean((found["lower"] <= frame["visits"]) & (frame["visits"] <= found["upper"])) > 0.85
    frame.assign(visits=frame["visits"] - 0.5).to_csv(file, index=False)
    refused = soubayes("fit", file, "--target", "visits", "--task", "counts")
    assert refused.exit_code == 2
    assert "whole numbers from 0 on" in refused.stderr


def test_exposures_ordered_classes_and_positive_numbers(tmp_path):
    """Each has the estimator of its kind; what the table does not fit is one line."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=160), "b": rng.normal(size=160)})
    frame["years"] = rng.uniform(0.5, 20.0, size=160)
    frame["claims"] = rng.poisson(0.4 * frame["years"] * np.exp(0.7 * frame["a"]))
    frame["cost"] = rng.gamma(3.0, np.exp(2.0 + 0.7 * frame["a"]))
    step = np.digitize(2.0 * frame["a"] + rng.logistic(size=160), [-1.0, 1.0])
    frame["pain"] = np.array(["mild", "moderate", "bad"])[step]
    file, new = tmp_path / "table.csv", tmp_path / "new.csv"
    frame.to_csv(file, index=False)

    def fitted(name, *options):
        others = [x for x in ("claims", "cost", "pain", "years") if x not in (name, *options)]
        drop = [part for x in others for part in ("--drop", x)]
        out = ["--out", tmp_path / name, "--overwrite"]
        return soubayes("fit", file, "--target", name, *options, *drop, *out)

    def predicted(name, *options):
        model = tmp_path / name / "model.soubayes"
        done = soubayes("predict", model, file, *options, "--out", new, "--overwrite")
        assert done.exit_code == 0, done.output
        return pd.read_csv(new)

    done = fitted("claims", "--task", "counts", "--exposure", "years")
    assert done.exit_code == 0, done.output
    assert "NEW.csv --exposure years" in done.stdout
    alone, found = predicted("claims"), predicted("claims", "--exposure", "years")
    np.testing.assert_allclose(found["mean"], alone["mean"] * frame["years"])
    own = load_model(tmp_path / "claims" / "model.soubayes")[-1].intercept_
    assert abs(own - np.log(0.4)) < 0.2
    assert fitted("cost", "--task", "positive").exit_code == 0
    assert np.corrcoef(np.log(predicted("cost")["mean"]), frame["a"])[0, 1] > 0.9
    done = fitted("pain", "--levels", "mild, moderate,bad")
    assert done.exit_code == 0, done.output
    assert "log odds of a higher class. Cross-validated R² of the number" in done.stdout
    chance = predicted("pain")
    assert list(chance) == ["class", "P(mild)", "P(moderate)", "P(bad)"]
    assert np.corrcoef(chance["P(bad)"], frame["a"])[0, 1] > 0.9
    assert "from the lowest to the highest" in one_line(fitted("pain", "--task", "ordered"))
    assert "holds 'bad', which --levels" in one_line(fitted("pain", "--levels", "mild,moderate"))
    assert "is for --task ordered" in one_line(fitted("cost", "--task", "counts", "--levels", "1"))
    assert "not above 0" in one_line(fitted("a", "--task", "positive"))
    assert "--exposure needs" in one_line(fitted("cost", "--exposure", "years"))
    bad = one_line(fitted("claims", "--task", "counts", "--exposure", "a"))
    assert "--exposure a holds values that are not numbers above 0" in bad
    model = tmp_path / "pain" / "model.soubayes"
    assert "leave it out" in one_line(soubayes("predict", model, file, "--exposure", "years"))


def test_the_code_of_a_page_repeats_its_fit(tmp_path):
    """The Python that a page shows, with an exposure, gives the coefficients of the command."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"a": rng.normal(size=80), "years": rng.uniform(1.0, 9.0, size=80)})
    frame["claims"] = rng.poisson(frame["years"] * np.exp(frame["a"]))
    file = tmp_path / "table.csv"
    frame.to_csv(file, index=False)
    settings = {"task": "counts", "exposure": "years"}
    names = {}
    code = TableSource(file, "claims", {}, settings).code
    code = code.replace("{estimator}", "SoUNegativeBinomialRegression()")
    exec(f"from soubayes import SoUNegativeBinomialRegression\n{code}", names)
    found = fit_table(pose_problem(frame, "claims", **settings)).estimator
    np.testing.assert_allclose(names["model"][-1].coef_, found.coef_, rtol=1e-8)


def test_many_rows_of_text_labels():
    """From 10,000 rows on no rows are held out."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=10_000)})
    frame["y"] = np.where(frame["a"] + rng.logistic(size=10_000) > 0, "yes", "no")
    fitted = fit_table(pose_problem(frame, "y"))
    assert fitted.score.startswith("Estimates are for the log odds of yes. 1 of 1 columns")
