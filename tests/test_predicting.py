"""`soubayes predict`: predictions of new rows are those of the fit, whatever the file is like."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from soubayes import SoULinearRegression, load_model, save_model
from soubayes.predicting import predict_table
from test_cli import one_line, soubayes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models of the same columns: numbers with gaps, a category, dates."""
    folder = tmp_path_factory.mktemp("models")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=80),
            "code": rng.choice(["01", "02", "x"], 80, p=[0.5, 0.3, 0.2]),
            "day": pd.date_range("2024-01-01", periods=80).strftime("%Y-%m-%d"),
        }
    )
    frame["y"] = 3 * frame["size"] - 2 * (frame["code"] == "x") + rng.normal(size=80)
    frame["kind"] = np.where(frame["y"] > 0, "high", "low")
    frame.loc[:4, "size"] = np.nan
    frame.to_csv(folder / "data.csv", index=False)
    for name, target, other in (("number", "y", "kind"), ("class", "kind", "y")):
        words = ["--target", target, "--drop", other, "--date", "day", "--out", folder / name]
        result = soubayes("fit", folder / "data.csv", *words)
        assert result.exit_code == 0, result.output
    return folder


def predict(folder, model, file, *words):
    out = folder / f"{model}.csv"
    result = soubayes(
        "predict", folder / model / "model.soubayes", file, "--out", out, "--overwrite", *words
    )
    assert result.exit_code == 0, result.output
    return pd.read_csv(out), result.stdout


def test_numbers_have_a_mean_an_sd_and_an_interval(folder):
    found, said = predict(folder, "number", folder / "data.csv", "--level", "0.5", "--keep", "day")
    assert list(found) == ["day", "mean", "sd", "lower", "upper"]
    assert "80 predictions" in said
    frame = pd.read_csv(folder / "data.csv", dtype={"code": str})
    model = load_model(folder / "number" / "model.soubayes")
    mean, sd = model.predict(frame, return_std=True)
    ends = model.predict(frame, quantiles=[0.25, 0.75])
    np.testing.assert_allclose(found["mean"], mean)
    np.testing.assert_allclose(found["sd"], sd)
    np.testing.assert_allclose(found[["lower", "upper"]], ends)
    inside = np.mean((frame["y"] > found["lower"]) & (frame["y"] < found["upper"]))
    assert inside == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / 80))


def test_classes_have_probabilities(folder):
    found, _ = predict(folder, "class", folder / "data.csv")
    assert list(found) == ["class", "P(high)", "P(low)"]
    np.testing.assert_allclose(found["P(high)"] + found["P(low)"], 1.0)
    assert (found["class"] == np.where(found["P(high)"] > 0.5, "high", "low")).all()
    truth = pd.read_csv(folder / "data.csv")["kind"]
    assert (found["class"] == truth).mean() > 0.8


def test_gaps_and_unseen_categories_are_as_in_the_fit_and_said(folder, tmp_path):
    """The median takes the place of a missing number, the reference that of an unseen category."""
    new = tmp_path / "new.csv"
    new.write_text("day,code,size\n2024-01-05,01,\n2024-01-05,zz,1\n2024-01-05,,1\n")
    found, said = predict(folder, "number", new)
    assert "'size' 1 (by the median)" in said
    assert "'code' 1 (by '01', the most frequent)" in said
    assert "'code': 'zz' not seen in the fit; predicted as '01'" in said
    frame = pd.read_csv(folder / "data.csv")
    plain = tmp_path / "plain.csv"
    median = frame["size"].median()
    plain.write_text(f"size,day,code\n{median},2024-01-05,01\n1,2024-01-05,01\n1,2024-01-05,01\n")
    same, said = predict(folder, "number", plain)
    pd.testing.assert_frame_equal(found, same)
    assert "missing" not in said


def test_categories_that_look_like_numbers_stay_text(folder, tmp_path):
    """A file that happens to hold 01 and 02 alone has the same categories."""
    for name, code in (("first", "01"), ("second", "02"), ("third", "x")):
        (tmp_path / f"{name}.csv").write_text(f"size,day,code\n1,2024-01-05,{code}\n")
    both = tmp_path / "both.csv"
    both.write_text("size,day,code\n1,2024-01-05,01\n1,2024-01-05,02\n1,2024-01-05,x\n")
    together, _ = predict(folder, "number", both)
    apart = [
        predict(folder, "number", tmp_path / f"{n}.csv")[0] for n in ("first", "second", "third")
    ]
    pd.testing.assert_frame_equal(together, pd.concat(apart, ignore_index=True))
    assert together["mean"].nunique() == 3


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".xlsx"])
def test_every_kind_of_file_gives_the_same_predictions(kind, folder, tmp_path):
    if kind == ".xlsx":
        pytest.importorskip("openpyxl")
    frame = pd.read_csv(folder / "data.csv", dtype={"code": str}).head(8)
    file, out = tmp_path / f"new{kind}", tmp_path / f"out{kind}"
    writers = {".parquet": frame.to_parquet, ".xlsx": frame.to_excel}
    separator = {"sep": "\t"} if kind == ".tsv" else {}
    writers.get(kind, frame.to_csv)(file, index=False, **separator)
    result = soubayes("predict", folder / "number" / "model.soubayes", file, "--out", out)
    assert result.exit_code == 0, result.output
    readers = {".parquet": pd.read_parquet, ".xlsx": pd.read_excel}
    found = readers.get(kind, pd.read_csv)(out, **separator)
    expected = predict(folder, "number", folder / "data.csv")[0].head(8)
    pd.testing.assert_frame_equal(found, expected)


def test_the_separator_may_be_given(folder, tmp_path):
    new = tmp_path / "new.txt"
    new.write_text("size:code:day\n1:01:2024-01-05\n")
    assert len(predict(folder, "number", new, "--sep", ":")[0]) == 1
    words = ["predict", folder / "number" / "model.soubayes", new, "--out", tmp_path / "o.csv"]
    assert "the separator is '::'" in one_line(soubayes(*words, "--sep", "::"))
    tab = tmp_path / "tab.txt"
    tab.write_text("size\tcode\tday\n1\t01\t2024-01-05\n")
    assert len(predict(folder, "number", tab, "--sep", "tab")[0]) == 1


def test_errors_are_one_line_and_leave_no_file(folder, tmp_path):
    model, out = folder / "number" / "model.soubayes", tmp_path / "out.csv"
    new = tmp_path / "new.csv"

    def said(text, *words, model=model):
        new.write_text(text)
        line = one_line(soubayes("predict", model, new, "--out", out, "--overwrite", *words))
        assert not out.exists()
        return line

    row = "size,code,day\n1,01,2024-01-05\n"
    lacking = said("sise,code\n1,01\n")
    assert "the data lack 'size', 'day', which the model was fitted with" in lacking
    assert "'sise' may be 'size'" in lacking
    assert "'size' must hold numbers" in said("size,code,day\nbig,01,2024-01-05\n")
    assert "cannot be read as dates" in said("size,code,day\n1,01,soon\n")
    assert "'size' holds infinite" in said("size,code,day\ninf,01,2024-01-05\n")
    assert "--level is 90" in said(row, "--level", "90")
    assert "did you mean 'code'?" in said(row, "--keep", "cod")
    assert "is not loaded: it is not a model file" in said(row, model=new)
    assert "there is no file" in said(row, model=tmp_path / "no.soubayes")
    wrong = one_line(soubayes("predict", model, new, "--out", tmp_path / "out.doc"))
    assert "out.doc is not .csv, .tsv" in wrong


def test_models_that_were_saved_in_python(tmp_path):
    """A pipeline of one's own predicts by its names of columns, an array's model has none."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    own = make_pipeline(StandardScaler(), SoULinearRegression(choice="path")).fit(X, X["a"])
    found = predict_table(own, X[["b", "a"]].assign(other="text"))
    np.testing.assert_allclose(found["mean"], own.predict(X))
    save_model(
        SoULinearRegression(choice="path").fit(X.to_numpy(), X["a"]), tmp_path / "m.soubayes"
    )
    X.to_csv(tmp_path / "new.csv")
    words = [tmp_path / "m.soubayes", tmp_path / "new.csv", "--out", tmp_path / "out.csv"]
    assert "fitted without names of columns" in one_line(soubayes("predict", *words))
    several = SoULinearRegression(choice="path").fit(X, X)
    with pytest.raises(ValueError, match="2 targets"):
        predict_table(several, X)


def test_all_coefficients_are_in_a_table_beside_the_page(folder):
    table = pd.read_csv(folder / "number" / "summary.csv")
    assert set(table["feature"]) == {"size", "code=02", "code=x", "day"}
    expected = load_model(folder / "number" / "model.soubayes")[-1].summary()
    np.testing.assert_allclose(table["lower"], expected["lower"])
    classes = pd.read_csv(folder / "class" / "summary.csv")
    assert "inclusion" in classes
