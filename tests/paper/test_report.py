"""Verdicts against the paper, and the page: self-contained, escaped, with its figures beside it."""

import math
import re

import pytest

import paper.report as report_module
from paper import experiments, storage
from paper.report import write_report
from paper.runner import Experiment, run
from paper.storage import Outcome, Row, Store, Task
from paper.views import Cell, Picture, View, cell, new_figure, select


@pytest.mark.parametrize(
    ("mean", "better", "verdict"),
    [
        (1.40, "lower", "equal"),  # 0.02 away, 2 sqrt(2) 0.01 + 0.005 = 0.033 allowed
        (1.38, "lower", "better"),
        (1.46, "lower", "worse"),
        (1.46, "higher", "better"),
        (1.46, "", ""),
        (math.nan, "lower", ""),
    ],
)
def test_verdict(mean, better, verdict):
    assert Cell(mean, 0.01, 100, paper=1.42, better=better).verdict == verdict


def rows_of(values, **parameters):
    return [
        Row(seed, parameters, {"rmse": v}, "", "", 1.0, "2026-01-01", "abc", {})
        for seed, v in enumerate(values)
    ]


def test_cell_is_the_mean_with_its_standard_error():
    found = cell(rows_of([1.0, 2.0, 3.0, math.nan]), "rmse")
    assert found[:3] == (2.0, pytest.approx(1 / math.sqrt(3)), 3)
    assert math.isnan(cell([], "rmse").mean)


def test_select_leaves_errors_out():
    good = rows_of([1.0], method="sou")
    bad = [good[0]._replace(error="Traceback")]
    assert select([*good, *bad, *rows_of([2.0], method="lasso")], method="sou") == good


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A report of three rows, one of them an error whose text would be markup."""

    def draw():
        figure = new_figure(3, 2)
        figure.subplots().plot([1, 2], [3, 4])
        return figure

    def report(rows):
        values = [["a <design>", cell(select(rows), "rmse", paper=1.0, better="lower")]]
        return [
            View("RMSE", "a note", ["design", "SoU-SGL"], values),
            Picture("figX", "A picture", "shown", draw),
        ]

    minutes = dict.fromkeys(("toy", "quick", "full"), 1.0)
    fake = Experiment("fake", "a & b", "nowhere", lambda size: [], None, report, minutes)
    monkeypatch.setattr(report_module, "experiments", lambda: {"fake": fake})
    store = Store(tmp_path)
    store.add("fake", Task(0, {}), Outcome({"rmse": 2.0}, "", "UserWarning: <slow>", 1.0))
    store.add("fake", Task(1, {}), Outcome({"rmse": 2.2}, "", "", 1.0))
    store.add("fake", Task(2, {}), Outcome({}, "Trace\nValueError: <script>", "", 1.0))
    return write_report(tmp_path)


def test_page_is_one_file_that_needs_nothing(page):
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "http" not in text.replace("http-equiv", "")
    assert "@import" not in text
    assert "<script" not in text
    assert "a &lt;design&gt;" in text
    assert "a &amp; b" in text


def test_page_shows_value_error_paper_and_verdict(page):
    text = re.sub(r"<[^>]+>", " ", page.read_text())
    text = re.sub(r"\s+", " ", text)
    assert "2.10 ± 0.10 paper 1.00 ▼ worse" in text
    assert "SoU-SGL against the paper: 1 ▼ worse" in text
    assert "1 rows failed" in text
    assert "ValueError: &lt;script&gt;" in text
    assert "UserWarning: &lt;slow&gt;" in text
    assert "python -m paper reproduce fake" in text


def test_page_says_when_rows_of_two_versions_are_mixed(page, monkeypatch):
    assert "versions:" not in page.read_text()
    monkeypatch.setattr(storage, "_commit", lambda: "<other>")
    Store(page.parent).add("fake", Task(3, {}), Outcome({"rmse": 2.1}, "", "", 1.0))
    text = write_report(page.parent).read_text()
    assert "computed by 2 versions: " in text
    assert "(&lt;other&gt;)" in text
    assert "--fresh" in text


def test_figures_are_written_and_repeat(page):
    png, pdf = (page.parent / "figures" / f"figX.{kind}" for kind in ("png", "pdf"))
    assert png.read_bytes()[:4] == b"\x89PNG"
    first = pdf.read_bytes()
    assert first[:4] == b"%PDF"
    write_report(page.parent)
    assert pdf.read_bytes() == first


def test_no_rows(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m paper reproduce"):
        write_report(tmp_path)


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("toy")


@pytest.mark.parametrize("name", list(experiments()))
def test_every_experiment_runs_at_toy_size(name, toy_folder):
    """Rows without error, all finite where they must be, and a report with something in it."""
    experiment = experiments()[name]
    store = Store(toy_folder)
    summary = run(experiment, "toy", store)
    errors = [row.error for row in store.rows(experiment.source) if row.error]
    assert errors == []
    assert summary.found + summary.computed > 0
    content = experiment.report(store.rows(experiment.source))
    assert content
    for part in content:
        if isinstance(part, Picture):
            assert part.draw().axes
        else:
            assert part.rows
    assert len(experiment.grid("full")) >= len(experiment.grid("quick")) >= 1
