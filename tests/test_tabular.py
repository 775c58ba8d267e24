"""Files people have: what becomes of their columns, and one clear line when they cannot be used."""

import numpy as np
import pandas as pd
import pytest

from soubayes.tabular import TableEncoder, TableError, pose_problem, read_table

FRAME = pd.DataFrame(
    {
        "age": [20.0, 30, np.nan, 50, 60, 70],
        "kind": ["cat", "dog", "dog", None, "cow", "dog"],
        "flag": [True, False, True, True, False, True],
        "y": [1.0, 2, 3, 4, 5, 6],
    }
)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_both_formats_give_the_same_problem(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    getattr(FRAME, f"to_{suffix}")(path, index=False)
    problem = pose_problem(read_table(path), "y")
    assert problem.task == "regression"
    coded = TableEncoder().fit_transform(problem.X)
    assert list(coded) == ["age", "kind=cat", "kind=cow", "kind=missing", "flag"]
    np.testing.assert_array_equal(coded["age"], [20, 30, 50, 50, 60, 70])
    np.testing.assert_array_equal(coded["kind=missing"], [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(coded["flag"], [1, 0, 1, 1, 0, 1])


def test_notes_say_what_was_done():
    notes = " ".join(pose_problem(FRAME, "y").notes)
    assert "regression, since 'y' holds numbers" in notes
    assert "'kind' (against 'dog')" in notes
    assert "'age' 1 (by the median)" in notes
    assert "'kind' 1 (by the category \"missing\")" in notes


def test_rows_are_dropped_only_when_asked_or_without_target():
    dropped = pose_problem(FRAME, "y", missing="drop")
    assert len(dropped.X) == 4
    assert "2 rows with missing values left out." in dropped.notes
    gap = FRAME.assign(y=[1.0, np.nan, 3, 4, 5, 6])
    assert len(pose_problem(gap, "y").y) == 5


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"] * 3, "classification"),
        ([True, False] * 3, "classification"),
        ([0, 1] * 3, "classification"),
        ([0, 1, 2] * 2, "regression"),
        ([0.1, 1.2, 2.3] * 2, "regression"),
    ],
)
def test_task_by_the_target(values, task):
    assert pose_problem(FRAME.assign(y=values), "y").task == task
    if task == "regression":
        assert pose_problem(FRAME.assign(y=values), "y", task="classification").y.dtype != object


def test_unseen_and_missing_values_at_prediction():
    coder = TableEncoder().fit(FRAME.drop(columns="y"))
    new = pd.DataFrame({"age": [np.nan, 1], "kind": ["fox", None], "flag": [False, True]})
    np.testing.assert_array_equal(coder.transform(new), [[50, 0, 0, 0, 0], [1, 0, 0, 1, 1]])
    with pytest.raises(TableError, match="the data lack 'kind'"):
        coder.transform(new.drop(columns="kind"))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"target": "yy"}, "no column 'yy': did you mean 'y'"),
        ({}, {"drop": ["zebra"]}, "no column 'zebra': there are 'age'"),
        ({"age": [np.nan] * 6}, {}, "no values at all in 'age'"),
        ({"age": [np.nan] * 6}, {"missing": "drop"}, "no values at all in 'age'"),
        ({"age": [1, 2, 3, 4, 5, np.inf]}, {}, "infinite values in 'age'"),
        ({"y": [1, 2, 3, 4, 5, np.inf]}, {}, "infinite"),
        ({"y": [3.0] * 6}, {}, "one value only"),
        ({"y": list("abcabc")}, {"task": "regression"}, "'y' holds text"),
        ({"y": [np.nan] * 6}, {}, "0 usable rows"),
        ({"name": list("abcdef")}, {}, "'name' is text with 6 different values in 6 rows"),
        ({"day": pd.date_range("2026-01-01", periods=6)}, {}, "'day' hold dates"),
        ({}, {"task": "ranking"}, "task is 'ranking'"),
        ({}, {"missing": "guess"}, "missing is 'guess'"),
        ({}, {"drop": ["age", "kind", "flag"]}, "0 features"),
    ],
)
def test_columns_that_cannot_be_used(change, options, message):
    with pytest.raises(TableError, match=message):
        pose_problem(FRAME.assign(**change), **({"target": "y"} | options))


def test_files_that_cannot_be_used(tmp_path):
    for name, content, message in [
        ("none.csv", None, "there is no file"),
        ("data.xlsx", b"x", "not .csv or .parquet"),
        ("empty.csv", b"", "empty.csv cannot be read: No columns"),
        ("head.csv", b"a,b\n", "head.csv has no rows"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "ragged.csv cannot be read"),
        ("broken.parquet", b"not parquet", "broken.parquet cannot be read"),
        ("binary.csv", b"\xff\xfe\x00\x01", "binary.csv cannot be read"),
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=message) as caught:
            read_table(tmp_path / name)
        assert "\n" not in str(caught.value)
