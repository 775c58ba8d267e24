"""The printed numbers: how many there are, their sums by table, and a few read off the page."""

import pytest

from paper.printed import PRINTED, printed_number, printed_rows


def test_every_table_is_whole():
    counts = {"table1": 13 * 12, "tableS1": 13 * 12, "tableS2": 5 * 12}
    counts |= {"table2": 4 * 6, "table3": 7 * 3, "tableS3": 4 * 9, "figS1": 1}
    for table, count in counts.items():
        assert sum(entry.table == table for entry in PRINTED) == count
    assert len(PRINTED) == sum(counts.values())
    assert [len(printed_rows(t)) for t in ("table1", "tableS1", "tableS2", "table3")] == [
        13,
        13,
        5,
        7,
    ]


@pytest.mark.parametrize(
    ("table", "row", "method", "metric", "value"),
    [
        ("table1", {"n": 405, "p": 400, "signals": 200}, "lasso", "rmse", 5.05),
        ("table1", {"n": 105, "p": 100, "signals": 50}, "horseshoe", "below_1e-2", 0.06),
        ("tableS1", {"n": 24, "p": 20, "signals": 10}, "sou", "rmse", 2.18),
        ("tableS1", {"n": 480, "p": 400, "signals": 200}, "lasso", "below_1e-3", 0.20),
        ("tableS2", {"signal_share": 0.5}, "sou", "below_1e-1", 0.93),
        ("table2", {}, "lr_l1", "below_1e-5", 0.36),
        ("table3", {"width": 1600}, "sou", "active_2", 15),
        ("tableS3", {"width": 400}, "horseshoe", "sparsity_2", 0.962),
    ],
)
def test_numbers_read_off_the_page(table, row, method, metric, value):
    assert printed_number(table, row, method, metric) == value


def test_what_the_paper_does_not_print():
    assert printed_number("table1", {"n": 25, "p": 20, "signals": 10}, "gl", "rmse") is None
