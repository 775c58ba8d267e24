"""Files people have: what becomes of their columns, and one clear line when they cannot be used."""

import re
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from soubayes.data.encoding import TableEncoder
from soubayes.data.names import TableError
from soubayes.data.reading import read_table
from soubayes.data.tabular import pose_problem

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
    assert "Regression, since 'y' holds numbers" in notes
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
        (
            {"age": [np.nan] * 6},
            {},
            r"\(no values at all\); add --drop age to leave it out\.",
        ),
        ({"age": [np.nan] * 6}, {"missing": "drop"}, r"'age' \(no values at all\)"),
        ({"age": [1, 2, 3, 4, 5, np.inf]}, {}, r"'age' \(infinite values\)"),
        ({"y": [1, 2, 3, 4, 5, np.inf]}, {}, "infinite"),
        ({"y": [3.0] * 6}, {}, r"'y' has one value only \(3\.0\)"),
        ({"y": np.full(6, 3, dtype=np.int64)}, {}, r"'y' has one value only \(3\)"),
        ({"y": list("abcdef")}, {}, "'y' is text with 6 different values in 6 rows"),
        ({"y": pd.date_range("2026-01-01", periods=6)}, {}, "'y' holds dates"),
        ({"y": list("abcabc")}, {"task": "regression"}, "'y' holds text"),
        ({"y": [np.nan] * 6}, {}, "0 usable rows"),
        ({"name": list("abcdef")}, {}, r"'name' \(text with 6 different values in 6 rows"),
        (
            {"day": pd.date_range("2026-01-01", periods=6)},
            {},
            r"\(dates\); add --date day to use",
        ),
        ({"name": list("abcdef")}, {"dates": ["name"]}, "'name' cannot be read as dates"),
        ({}, {"dates": ["age"]}, r"'age' \(numbers, not dates\)"),
        ({}, {"dates": ["y"]}, "--date y names a column that is not a feature"),
        ({1: [0] * 6, "1": [0] * 6}, {}, "several columns are called '1'"),
        ({}, {"task": "ranking"}, "task is 'ranking'"),
        ({}, {"missing": "guess"}, "missing is 'guess'"),
        ({"y": range(6)}, {"task": "classification"}, "'y' has 6 different values in 6 rows"),
        ({}, {"drop": ["age", "kind", "flag"]}, "0 features"),
    ],
)
def test_columns_that_cannot_be_used(change, options, message):
    with pytest.raises(TableError, match=message):
        pose_problem(changed(change), **({"target": "y"} | options))


def changed(columns):
    frame = FRAME.copy()
    for name, values in columns.items():
        frame[name] = values
    return frame


def test_all_unusable_columns_are_listed_at_once():
    frame = changed(
        {
            "an id": [f"no{i}" for i in range(6)],
            "day": ["2026-03-01", "2026-03-02", None, "2026-03-09", "2026-04-01", "2026-04-02"],
            "when": pd.date_range("2026-01-01", periods=6),
            "empty": [None] * 6,
            "far": [1.0, 2, 3, 4, 5, -np.inf],
        }
    )
    frame = pd.concat([frame] * 12, ignore_index=True)
    frame["an id"] = [f"no{i}" for i in range(72)]
    frame["day"] = pd.Series(pd.date_range("2026-01-01", periods=72)).dt.strftime("%d %b %Y")
    with pytest.raises(TableError) as caught:
        pose_problem(frame, "y")
    assert str(caught.value) == (
        "these columns cannot be used: 'an id' (text with 72 different values in 72 rows, too many "
        "for categories), 'day' (dates), 'when' (dates), 'empty' (no values at all), 'far' "
        "(infinite values); add --drop 'an id' --drop empty --drop far to leave them out, "
        "add --date day --date when to use days since 1970-01-01."
    )
    usable = pose_problem(frame, "y", drop=["an id", "empty", "far"], dates=["day", "when"])
    assert "'day' (2026-01-01 to 2026-03-13)" in " ".join(usable.notes)


def test_dates_are_days_whatever_they_are_held_in():
    texts = ["1970-01-02", "2026-11-17", None, "1969-12-31"]
    expected = [1.0, 20774.0, 1.0, -1.0]  # the median for the gap
    for column in [
        pd.Series(texts),
        pd.to_datetime(pd.Series(texts)),
        pd.to_datetime(pd.Series(texts)).dt.tz_localize("UTC"),
        pd.to_datetime(pd.Series(texts)).dt.date,
    ]:
        coder = TableEncoder(dates=["day"]).fit(pd.DataFrame({"day": column}))
        coded = coder.transform(pd.DataFrame({"day": column}))
        np.testing.assert_array_equal(coded["day"], expected)
    later = coder.transform(pd.DataFrame({"day": ["2026-11-17 12:00"]}))
    assert later["day"].tolist() == [20774.5]


@pytest.mark.parametrize("order", [["c", "c=b", "c=b (category)"], ["c=b (category)", "c=b", "c"]])
def test_no_feature_takes_the_name_of_another(order):
    frame = pd.DataFrame(
        {
            "c": ["a", "b", "a", "b=d", "a"],
            "c=b": [5.0, 6, 7, 8, 9],
            "c=b (category)": ["x", "x", "x", "z", "z"],
        }
    )[order]
    coded = TableEncoder().fit_transform(frame)
    assert coded.shape == (5, 4)
    assert coded["c=b"].tolist() == [5, 6, 7, 8, 9]
    assert coded["c=b (category) (category)"].tolist() == [0, 1, 0, 0, 0]
    assert coded["c=b=d"].tolist() == [0, 0, 0, 1, 0]
    assert coded["c=b (category)=z"].tolist() == [0, 0, 0, 1, 1]
    two = pd.DataFrame({"p": ["q=r", "s", "s"], "p=q": ["r", "t", "t"]})
    assert list(TableEncoder().fit_transform(two)) == ["p=q=r", "p=q=r (category)"]


def test_missing_is_never_the_reference():
    frame = pd.DataFrame({"kind": [None, None, None, "a", "b", "b"]})
    assert list(TableEncoder().fit_transform(frame)) == ["kind=a", "kind=missing"]


def test_text_where_numbers_were_is_named():
    coder = TableEncoder().fit(FRAME[["age"]])
    with pytest.raises(TableError, match="'age' must hold numbers, but could not convert"):
        coder.transform(pd.DataFrame({"age": ["old"]}))


def test_nullable_columns():
    frame = pd.DataFrame({"n": pd.array([1, None, 3], dtype="Int64")})
    assert TableEncoder().fit_transform(frame)["n"].tolist() == [1.0, 2.0, 3.0]


def test_files_that_cannot_be_used(tmp_path):
    for name, content, message in [
        ("none.csv", None, "there is no file"),
        (".", None, "is a folder without tables: give a file"),
        ("data.ods", b"x", "not .csv, .tsv, .txt, .parquet"),
        ("empty.csv", b"", "empty.csv cannot be read: No columns"),
        ("head.csv", b"a,b\n", "head.csv has no rows"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3\n", "ragged.csv cannot be read"),
        ("broken.parquet", b"not parquet", "broken.parquet cannot be read"),
        ("binary.csv", b"\xff\xfe\x00\xd8x", "binary.csv cannot be read"),
        ("twice.csv", b"a,b,a\n1,2,3\n", "several columns are called 'a'"),
    ]:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=message) as caught:
            read_table(tmp_path / name)
        assert "\n" not in str(caught.value)
    with pytest.raises(TableError, match=r"give one of its files, such as 'binary\.csv'"):
        read_table(tmp_path)


# ---- what columns are --------------------------------------------------------------------------


def test_decimals_of_a_database_are_numbers(tmp_path):
    exact = [Decimal("-1.50"), Decimal("2.25"), None, Decimal("3.00"), Decimal("4.5"), Decimal(0)]
    thirds = [Decimal(k) / 3 for k in range(6)]
    frame = FRAME.assign(age=exact, y=[value.quantize(Decimal("0.000001")) for value in thirds])
    frame.to_parquet(tmp_path / "data.parquet")
    problem = pose_problem(read_table(tmp_path / "data.parquet"), "y")
    assert problem.task == "regression"
    np.testing.assert_allclose(problem.y, np.arange(6) / 3, atol=1e-6)
    coded = TableEncoder().fit_transform(problem.X)
    assert coded["age"].tolist() == [-1.5, 2.25, 2.25, 3.0, 4.5, 0.0]
    new = pd.DataFrame({"age": [Decimal("7.5")], "kind": ["dog"], "flag": [True]})
    assert TableEncoder().fit(problem.X).transform(new)["age"].tolist() == [7.5]


@pytest.mark.parametrize("mark", [".", "/", "-"])
def test_the_day_of_a_date_may_come_first(mark):
    days = pd.date_range("2026-01-31", periods=300)
    frame = pd.DataFrame({"day": days.strftime(f"%d{mark}%m{mark}%Y")})
    frame["y"] = np.arange(300.0)
    with pytest.raises(TableError, match=r"'day' \(dates\)"):
        pose_problem(frame, "y")
    problem = pose_problem(frame, "y", dates=["day"])
    assert "'day' (2026-01-31 to 2026-11-26)" in " ".join(problem.notes)
    coder = TableEncoder(["day"]).fit(problem.X)
    assert coder.transform(problem.X)["day"].diff().dropna().eq(1).all()
    # new rows are read as the fitted ones were, though they could be read in both ways
    new = pd.DataFrame({"day": [f"03{mark}12{mark}2026"]})
    assert coder.transform(new)["day"][0] == coder.transform(problem.X)["day"][0] + 306
    american = TableEncoder(["day"]).fit(
        pd.DataFrame({"day": days.strftime(f"%m{mark}%d{mark}%Y")})
    )
    assert american.transform(new)["day"][0] == coder.transform(problem.X)["day"][0] + 40


@pytest.mark.parametrize(
    "days",
    [
        ["2026-03-01", "2026-03-02"],
        ["2026-03-01 10:00", "2026-03-02 11:30"],
        ["01.03.2026", "02.03.2026"],
        ["3/1/2026", "3/2/2026"],
        [date(2026, 3, 1), date(2026, 3, 2)],
    ],
)
def test_days_are_not_made_categories_in_silence(days):
    frame = pd.concat([FRAME] * 5, ignore_index=True).assign(day=(days * 15))
    with pytest.raises(TableError, match=r"'day' \(dates\); add --date day to use days"):
        pose_problem(frame, "y")


@pytest.mark.parametrize("words", [["may", "june"], ["10", "2"], ["1-2", "3-4"], ["A1", "B2"]])
def test_words_that_could_be_dates_stay_categories(words):
    frame = pd.concat([FRAME] * 5, ignore_index=True).assign(kind=(words * 15))
    assert "Categories as 0/1 columns: 'kind'" in " ".join(pose_problem(frame, "y").notes)


def test_lists_are_named(tmp_path):
    frame = FRAME.assign(several=[[1, 2], [3], None, [4], [5], [6]])
    frame.to_parquet(tmp_path / "data.parquet")
    frame = read_table(tmp_path / "data.parquet")
    said = r"'several' \(lists, not numbers or text\); add --drop several"
    with pytest.raises(TableError, match=said):
        pose_problem(frame, "y")
    with pytest.raises(TableError, match="'several' holds lists"):
        pose_problem(frame.dropna(), "several")


@pytest.mark.parametrize(
    ("y", "labels"),
    [
        ([0.5, 1.5] * 3, ["0.5", "1.5"]),
        ([1.0, 2.0] * 3, [1.0, 2.0]),
        ([0.25, 0.5, 2.0] * 2, ["0.25", "0.5", "2.0"]),
    ],
)
def test_classes_that_are_no_whole_numbers_are_text(y, labels):
    problem = pose_problem(FRAME.assign(y=y), "y", task="classification")
    assert sorted(set(problem.y.tolist())) == labels
    if len(labels) == 2:
        assert pose_problem(FRAME.assign(y=y), "y").task == "classification"


# ---- text files as people have them ------------------------------------------------------------

GERMAN = [
    ("größe", "preis", "anteil", "sorte", "y"),
    ("1,5", "1.234,50", "12,5 %", "süß", "3,25"),
    ("2,25", "987,00", "7 %", "sauer", "4,5"),
    ("-3", "12.000,75", "0,5 %", "süß", "5,75"),
    ("", "1.000", "100 %", "sauer", "-6,125"),
]
AMERICAN = [
    ("größe", "preis", "anteil", "sorte", "y"),
    ("1.5", "1,234.50", "12.5%", "süß", "3.25"),
    ("2.25", "987.00", "7%", "sauer", "4.5"),
    ("-3", "12,000.75", "0.5%", "süß", "5.75"),
    ("", "1,000", "100%", "sauer", "-6.125"),
]
NUMBERS = {
    "größe": [1.5, 2.25, -3.0, np.nan],
    "preis": [1234.5, 987.0, 12000.75, 1000.0],
    "anteil": [12.5, 7.0, 0.5, 100.0],
    "y": [3.25, 4.5, 5.75, -6.125],
}


def text_of(rows, separator):
    quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in rows]
    return "\n".join(separator.join(row) for row in quoted) + "\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("rows", [GERMAN, AMERICAN], ids=["comma", "point"])
def test_text_files_of_all_countries(rows, separator, encoding, tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(text_of(rows, separator).encode(encoding))
    frame = read_table(path)
    assert list(frame) == list(GERMAN[0])
    for name, values in NUMBERS.items():
        np.testing.assert_allclose(frame[name].astype(float), values, err_msg=name)
    assert frame["sorte"].tolist() == ["süß", "sauer"] * 2
    notes = " ".join(pose_problem(frame, "y").notes)
    assert "Read as numbers with percent signs: 'anteil'." in notes
    assert "Read as numbers with separated thousands: 'preis'." in notes
    assert ("decimal comma (--decimal . to change)" in notes) == (rows is GERMAN)
    assert ("Windows-1252" in notes) == (encoding == "cp1252")
    assert ("Columns are separated by" in notes) == (separator != ",")


def test_thousands_with_one_mark_follow_the_rest_of_the_file(tmp_path):
    """1,234 alone can be both: the other columns, the separator or the option decide."""
    for text, value in [
        ('a,y\n"1,234",1.5\n"2,345",2.5\n', 1234.0),
        ("a;y\n1,234;1,5\n2,345;2,5\n", 1.234),
        ("a;y\n1,234;1.5\n2,345;2.5\n", 1234.0),
        ("a;y\n1,234;1\n2,345;2\n", 1.234),
        ("a;y\n1.234;1\n2.345;2\n", 1.234),
        ("a;y\n1.234;1,5\n2.345;2,5\n", 1234.0),
        ("a;y\n1 234;1,5\n2 345;2,5\n", 1234.0),
        ("a;y\n1'234.5;1\n2'345.5;2\n", 1234.5),
    ]:
        (tmp_path / "data.csv").write_text(text)
        assert read_table(tmp_path / "data.csv")["a"][0] == value, text
    (tmp_path / "data.csv").write_text("a;y\n1,234;1\n2,345;2\n")
    assert read_table(tmp_path / "data.csv", decimal=".")["a"][0] == 1234.0
    with pytest.raises(TableError, match="decimal is '!', but it must be one of auto"):
        read_table(tmp_path / "data.csv", decimal="!")


def test_text_that_is_no_number_stays_text(tmp_path):
    cells = ["1.2.3", "1,2,3", "e5", "12-3", "%", "1,23,456", "5 kg", "0x1F"]
    lines = [f"{cell};{k}" for k, cell in enumerate(cells)]
    (tmp_path / "data.csv").write_text("\n".join(["a;y", *lines]))
    assert read_table(tmp_path / "data.csv")["a"].tolist() == cells
    (tmp_path / "data.csv").write_text("a;y\n" + "".join(f"e{k};{k}\n" for k in range(4)))
    assert read_table(tmp_path / "data.csv")["a"].tolist() == ["e0", "e1", "e2", "e3"]


# ---- what nearly goes unseen -------------------------------------------------------------------


def written(tmp_path, lines, name="data.csv"):
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    return tmp_path / name


def typed(wrong="3O", at=37, rows=60):
    """Whole numbers of which one is mistyped, and a number beside each."""
    return [wrong if i == at else str(i % 31) for i in range(rows)]


@pytest.mark.parametrize("wrong", ["3O", "?", "1.2.3", "12 kg", "l7"])
def test_a_typing_error_among_numbers_is_an_error_with_its_line(tmp_path, wrong):
    """It made 31 classes of the target, or 30 columns of a feature, with exit code 0."""
    lines = ["a,y", *(f"{a},{i / 2}" for i, a in enumerate(typed(wrong)))]
    said = rf"line 39: '{re.escape(wrong)}' in the column 'a' is not a number, but 59 of its 60"
    frame = read_table(written(tmp_path, lines))
    with pytest.raises(TableError, match=f"{said}.*--category a if they are labels"):
        pose_problem(frame, "y")
    with pytest.raises(TableError, match=f"{said}.*--task classification"):
        pose_problem(frame, "a")
    assert pose_problem(frame.assign(b=1.0), "y", drop=["a"]).X.columns.tolist() == ["b"]
    assert "'a' (against" in pose_problem(frame, "y", categories=["a"]).notes[-1]


def test_the_line_is_that_of_the_file(tmp_path):
    """With blank lines and cells of several lines before it, in another layout, in a workbook."""
    cells = [f'"{a}\n"' if i == 5 else a for i, a in enumerate(typed())]
    lines = ["", "a;y", "", *(f"{a};{i},5" for i, a in enumerate(cells))]
    path = written(tmp_path, lines)
    with pytest.raises(TableError, match="line 42: '3O'"):
        pose_problem(read_table(path), "y")
    assert path.read_text().split("\n")[41].startswith("3O")
    pytest.importorskip("openpyxl")
    values = [a if a == "3O" else int(a) for a in typed()]
    table = pd.DataFrame({"a": values, "y": np.arange(60.0)})
    table.to_excel(tmp_path / "data.xlsx", index=False)
    with pytest.raises(TableError, match="line 39: '3O'"):
        pose_problem(read_table(tmp_path / "data.xlsx"), "y")


@pytest.mark.parametrize("labels", [["1", "2", "K"], ["9", "10", "11", "other"], ["a", "1"]])
def test_labels_that_are_partly_numbers_stay_labels(tmp_path, labels):
    lines = ["a,y", *(f"{labels[i % len(labels)]},{i / 2}" for i in range(60))]
    problem = pose_problem(read_table(written(tmp_path, lines)), "y")
    assert sorted(set(problem.X["a"])) == sorted(labels)


def test_codes_with_leading_zeros_stay_text(tmp_path):
    lines = ["fips,n,y", *(f"{code},{i},{i / 2}" for i, code in enumerate(["01001", "36061"] * 10))]
    frame = read_table(written(tmp_path, lines))
    assert frame["fips"].tolist() == ["01001", "36061"] * 10
    problem = pose_problem(frame, "y")
    assert "Read as text, since values begin with 0: 'fips'." in problem.notes
    assert list(TableEncoder().fit_transform(problem.X)) == ["fips=36061", "n"]
    plain = ["a,y", *(f"{a},{i}" for i, a in enumerate(["0", "0.5", "10", "-0.25", "00.5"] * 4))]
    assert read_table(written(tmp_path, plain))["a"].dtype.kind == "f"


def test_codes_that_differ_in_every_row_are_no_dates(tmp_path):
    """pandas reads 01001 as a date."""
    lines = ["fips,y", *(f"{1000 + 7 * i:05d},{i / 2}" for i in range(60))]
    with pytest.raises(TableError, match=r"'fips' \(text with 60 different values.*--drop fips"):
        pose_problem(read_table(written(tmp_path, lines)), "y")


@pytest.mark.parametrize("writer", ["pandas", "R", "R without a name", "a spreadsheet"])
def test_numbers_and_names_of_rows_are_left_out(tmp_path, writer):
    rows = [(i, i % 7 + 0.5, i / 2) for i in range(60)]
    lines = {
        "pandas": [",a,y", *(f"{i},{a},{y}" for i, a, y in rows)],
        "R": ['"","a","y"', *(f'"Mazda {i}",{a},{y}' for i, a, y in rows)],
        "R without a name": ['"a","y"', *(f'"{i + 1}",{a},{y}' for i, a, y in rows)],
        "a spreadsheet": ["a,y,,", *(f"{a},{y},," for i, a, y in rows)],
    }[writer]
    problem = pose_problem(read_table(written(tmp_path, lines)), "y")
    assert list(problem.X) == ["a"]
    np.testing.assert_array_equal(problem.X["a"], [a for _, a, _ in rows])
    assert any(note.startswith("Left out: 'Unnamed: ") for note in problem.notes)
    frame = read_table(written(tmp_path, ["a,,y", *(f"{a},{i % 3},{y}" for i, a, y in rows)]))
    assert list(pose_problem(frame, "y").X) == ["a", "Unnamed: 1"]  # it may mean something


@pytest.mark.parametrize("trailing", [[3], [0, 59], list(range(60))])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_separator_too_many_shifts_no_cells(tmp_path, separator, trailing):
    cells = [[str(i), str(i % 7), str(i / 2)] + [""] * (i in trailing) for i in range(60)]
    lines = map(separator.join, [["a", "b", "y"], *cells])
    frame = read_table(written(tmp_path, lines))
    assert list(frame) == ["a", "b", "y"]
    assert frame["a"].tolist() == list(range(60))
    assert frame["y"].tolist() == [i / 2 for i in range(60)]


def test_rows_that_do_not_fit_the_header(tmp_path):
    rows = [f"{i},{i % 7},{i / 2}" for i in range(20)]
    with pytest.raises(TableError, match="line 7 has 4 cells, but the header has 3"):
        read_table(written(tmp_path, ["a,b,y", *rows[:5], "1,2,3,4", *rows]))
    short = pose_problem(read_table(written(tmp_path, ["a,b,y", *rows[:5], "1,2", *rows])), "b")
    assert any("fewer cells than the header: 1, the first is line 7;" in n for n in short.notes)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_labels_written_as_numbers(tmp_path, suffix):
    """They are the same labels in every kind of file, with gaps or without."""
    if suffix == "xlsx":
        pytest.importorskip("openpyxl")
    table = pd.DataFrame({"judge": [1, 2, 12, 2] * 15, "a": np.arange(60) / 7})
    table["y"] = table["a"] + (table["judge"] == 12)
    path = tmp_path / f"data.{suffix}"
    kinds = {"csv": "to_csv", "parquet": "to_parquet", "xlsx": "to_excel"}
    for gap in (False, True):
        rows = table.assign(judge=table["judge"].where(table.index != 3)) if gap else table
        getattr(rows, kinds[suffix])(path, index=False)
        frame = read_table(path, text=["judge"])
        problem = pose_problem(frame, "y", categories=["judge"])
        coded = list(TableEncoder().fit(problem.X).features_)
        if suffix == "csv" and gap:  # pandas wrote 1.0
            assert coded == ["judge=1.0", "judge=12.0", "judge=missing", "a"]
        else:
            assert coded == ["judge=1", "judge=12", *["judge=missing"] * gap, "a"]
    hint = " ".join(pose_problem(table, "y").notes)
    assert "Numbers with few values: 'judge' (3); --category NAME if they are labels." in hint
    few = table.assign(judge=table["judge"] == 1, a=table["a"].round(1))
    assert "few values" not in " ".join(pose_problem(few, "y").notes)
    for name in ("y", "nobody"):
        with pytest.raises(TableError, match=f"--category y|no column '{name}'"):
            pose_problem(table, "y", categories=[name])
