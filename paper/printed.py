"""Every number that the paper prints in a table, as data: table, row, method, metric, value."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Printed(NamedTuple):
    """One printed number."""

    table: str
    row: Mapping[str, Any]
    method: str
    metric: str
    value: float


def printed_number(table: str, row: Mapping[str, Any], method: str, metric: str) -> float | None:
    """What the paper prints there, None if it prints nothing.

    >>> printed_number("table1", {"n": 25, "p": 20, "signals": 10}, "sou", "rmse")
    1.42
    """
    return _INDEX.get((table, _key(row), method, metric))


def printed_rows(table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the paper's order.

    >>> printed_rows("tableS2")[0]
    {'signal_share': 0.1}
    """
    seen = {_key(entry.row): dict(entry.row) for entry in PRINTED if entry.table == table}
    return list(seen.values())


BELOW = ("below_1e-1", "below_1e-2", "below_1e-3", "below_1e-4", "below_1e-5")
LINEAR_METRICS = ("rmse", *BELOW[:3])
LINEAR_METHODS = ("lasso", "horseshoe", "sou")
NETWORKS = ("bnn", "horseshoe", "sou")

# n, p, signals; then lasso, horseshoe, sou of each of rmse and the shares of nulls below 1e-1..1e-3
_TABLE_1 = """
  25   20   10 1.86 1.70 1.42 0.45 0.34 0.97 0.28 0.04 0.97 0.26 0.00 0.97
  55   50   10 1.42 1.29 1.18 0.82 0.81 0.97 0.62 0.13 0.97 0.59 0.01 0.97
  55   50   20 1.87 1.72 1.33 0.59 0.55 0.99 0.35 0.07 0.99 0.32 0.01 0.99
 105  100   10 1.21 1.10 1.10 0.95 0.97 0.97 0.78 0.34 0.97 0.75 0.04 0.97
 105  100   20 1.38 1.27 1.15 0.88 0.89 0.97 0.64 0.18 0.97 0.60 0.02 0.97
 105  100   50 2.94 2.13 1.42 0.41 0.52 0.99 0.15 0.06 0.99 0.12 0.01 0.99
 205  200   10 1.13 1.05 1.09 0.99 1.00 0.97 0.88 0.66 0.96 0.85 0.09 0.96
 205  200   50 1.55 1.41 1.19 0.89 0.92 0.98 0.56 0.18 0.98 0.51 0.02 0.98
 205  200  100 4.06 2.34 1.42 0.38 0.61 0.99 0.12 0.07 0.99 0.09 0.01 0.99
 405  400   10 1.07 1.02 1.06 1.00 1.00 0.99 0.94 0.91 0.97 0.92 0.22 0.97
 405  400   50 1.28 1.15 1.12 0.99 1.00 0.99 0.78 0.51 0.97 0.72 0.06 0.97
 405  400  100 1.56 1.40 1.19 0.95 0.97 0.99 0.59 0.26 0.98 0.52 0.03 0.98
 405  400  200 5.05 2.37 1.42 0.39 0.73 1.00 0.09 0.10 0.99 0.05 0.01 0.99
"""
_TABLE_S1 = """
  24   20   10 1.94 1.80 2.18 0.47 0.38 0.92 0.31 0.04 0.92 0.28 0.01 0.92
  60   50   10 1.34 1.25 1.15 0.83 0.82 0.97 0.60 0.13 0.97 0.58 0.01 0.97
  60   50   20 1.67 1.57 1.26 0.63 0.58 0.98 0.38 0.07 0.98 0.34 0.01 0.98
 120  100   10 1.19 1.11 1.11 0.95 0.97 0.95 0.76 0.35 0.95 0.73 0.03 0.95
 120  100   20 1.33 1.25 1.16 0.90 0.91 0.96 0.64 0.19 0.96 0.60 0.02 0.96
 120  100   50 1.91 1.76 1.35 0.59 0.63 0.98 0.24 0.08 0.98 0.20 0.01 0.98
 240  200   10 1.10 1.05 1.09 1.00 1.00 0.97 0.88 0.69 0.95 0.85 0.10 0.95
 240  200   50 1.40 1.32 1.18 0.93 0.94 0.97 0.60 0.22 0.96 0.54 0.02 0.96
 240  200  100 1.91 1.79 1.33 0.72 0.76 0.98 0.27 0.10 0.98 0.21 0.01 0.98
 480  400   10 1.07 1.03 1.07 1.00 1.00 0.99 0.95 0.92 0.95 0.92 0.24 0.95
 480  400   50 1.21 1.13 1.12 1.00 1.00 0.99 0.79 0.55 0.96 0.72 0.07 0.96
 480  400  100 1.39 1.31 1.19 0.98 0.98 0.99 0.62 0.30 0.96 0.54 0.03 0.96
 480  400  200 1.89 1.80 1.35 0.85 0.87 0.99 0.29 0.14 0.98 0.20 0.01 0.98
"""
# the share of signals; then as above
_TABLE_S2 = """
 0.1 1.18 1.11 1.15 0.92 0.94 0.96 0.79 0.32 0.96 0.77 0.04 0.96
 0.2 1.36 1.25 1.22 0.85 0.86 0.95 0.68 0.18 0.95 0.65 0.02 0.95
 0.3 1.52 1.41 1.36 0.79 0.77 0.95 0.58 0.13 0.95 0.55 0.01 0.95
 0.4 1.69 1.58 1.56 0.72 0.70 0.94 0.51 0.10 0.94 0.48 0.01 0.94
 0.5 1.83 1.73 1.79 0.65 0.63 0.93 0.43 0.08 0.93 0.41 0.01 0.93
"""
# accuracy, then the shares of coefficients below 1e-1..1e-5
_TABLE_2 = """
lr    0.917 0.57 0.17 0.10 0.09 0.09
lr_l1 0.918 0.82 0.46 0.38 0.37 0.36
gl    0.921 0.87 0.28 0.10 0.09 0.09
sou   0.919 0.85 0.82 0.82 0.82 0.82
"""
# initial widths 50, 100, 200, 400, 800, 1200, 1600
_TABLE_3 = """
active_1    26    26    32    30    36    33    31
active_2    29    32    24    20    19    15    15
accuracy 0.978 0.977 0.977 0.977 0.979 0.976 0.977
"""
# widths 100, 200, 400; in each bnn, horseshoe, sou; n = 300, weights below 1e-5
_TABLE_S3 = """
aleatoric  0.431 0.305 0.291 0.561 0.306 0.289 0.719 0.309 0.292
epistemic  0.238 0.104 0.064 0.270 0.102 0.066 0.147 0.095 0.057
sparsity_1 0.000 0.005 0.970 0.000 0.010 0.985 0.001 0.004 0.993
sparsity_2 0.003 0.235 0.980 0.007 0.386 0.990 0.015 0.962 0.997
"""


def _linear(table: str, text: str, names: tuple[str, ...]) -> Iterator[Printed]:
    columns = [(metric, method) for metric in LINEAR_METRICS for method in LINEAR_METHODS]
    for line in text.split("\n")[1:-1]:
        words = line.split()
        row = dict(zip(names, map(_number, words), strict=False))
        for (metric, method), word in zip(columns, words[len(names) :], strict=True):
            yield Printed(table, row, method, metric, float(word))


def _logistic(text: str) -> Iterator[Printed]:
    for line in text.split("\n")[1:-1]:
        method, *words = line.split()
        for metric, word in zip(("accuracy", *BELOW), words, strict=True):
            yield Printed("table2", {}, method, metric, float(word))


def _widths(text: str) -> Iterator[Printed]:
    for line in text.split("\n")[1:-1]:
        metric, *words = line.split()
        for width, word in zip((50, 100, 200, 400, 800, 1200, 1600), words, strict=True):
            yield Printed("table3", {"width": width}, "sou", metric, float(word))


def _toy_networks(text: str) -> Iterator[Printed]:
    columns = [(width, method) for width in (100, 200, 400) for method in NETWORKS]
    for line in text.split("\n")[1:-1]:
        metric, *words = line.split()
        for (width, method), word in zip(columns, words, strict=True):
            yield Printed("tableS3", {"width": width}, method, metric, float(word))


def _number(word: str) -> float:
    return float(word) if "." in word else int(word)


def _key(row: Mapping[str, Any]) -> tuple:
    return tuple(sorted(row.items()))


PRINTED = [
    *_linear("table1", _TABLE_1, ("n", "p", "signals")),
    *_linear("tableS1", _TABLE_S1, ("n", "p", "signals")),
    *_linear("tableS2", _TABLE_S2, ("signal_share",)),
    *_logistic(_TABLE_2),
    *_widths(_TABLE_3),
    *_toy_networks(_TABLE_S3),
    # section 4.3: what tightening the prior costs at the sparsity of SoU-SGL
    Printed("figS1", {}, "prior", "accuracy_lost", 0.087),
]
_INDEX = {(e.table, _key(e.row), e.method, e.metric): e.value for e in PRINTED}
