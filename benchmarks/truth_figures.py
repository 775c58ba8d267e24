"""The figures of the page "Does it find the truth?", from the rows that the benchmarks keep.

    python benchmarks/truth_figures.py docs/images

Each is drawn where its rows exist: `truth_columns.py`, `truth_hiv.py`, `sparse_benchmark.py` and
`truth_null.py` make them.
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sparse_benchmark import CELL
from truth_columns import BANDS
from truth_hiv import curve

ROWS = Path(__file__).parent / "rows"


def main() -> None:
    folder = Path(sys.argv[1])
    for draw, name, file in (
        (coverage, "truth_coverage", "truth_columns.csv.gz"),
        (calibration, "truth_calibration", "truth_columns.csv.gz"),
        (mutations, "truth_hiv", "truth_hiv.csv"),
        (cells, "truth_cells", "sparse_benchmark.csv.gz"),
        (halves, "truth_halves", "truth_halves.csv"),
    ):
        if (ROWS / file).exists():
            figure, axes = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
            draw(pd.read_csv(ROWS / file), axes)
            figure.savefig(folder / f"{name}.png", dpi=110)
            plt.close(figure)


def coverage(rows: pd.DataFrame, axes: plt.Axes) -> None:
    rows = rows[rows["n"] > rows["p"] + 1]
    edges = [-1.0, 0.0, 0.3, 0.5, 2.0]
    band = pd.cut(rows["effect"].abs(), edges, labels=list(BANDS))
    for kind, label in (
        ("frequentist", 'summary(intervals="frequentist")'),
        ("summary", "summary()"),
        ("exact", "exact posterior (Gibbs)"),
    ):
        share = rows.groupby(band, observed=True)[f"{kind} covers"].agg(["mean", "size"])
        error = 2.0 * np.sqrt(share["mean"] * (1.0 - share["mean"]) / share["size"])
        axes.errorbar(share.index.astype(str), share["mean"], error, marker="o", label=label)
    axes.axhline(0.9, color="0.6", ls=":")
    axes.set(
        xlabel="size of the effect, in noise sds", ylabel="covered by 90 % intervals", ylim=(0, 1)
    )
    axes.legend()


def calibration(rows: pd.DataFrame, axes: plt.Axes) -> None:
    for name, label in (("probability", "supports_"), ("exact probability", "exact posterior")):
        some = rows[rows[name].notna()]
        tenth = np.minimum((some[name] * 10).astype(int), 9)
        mean, true = some.groupby(tenth)[name].mean(), (some["effect"] != 0).groupby(tenth)
        share, count = true.mean(), true.size()
        error = 2.0 * np.sqrt(share * (1.0 - share) / count)
        axes.errorbar(mean, share, error, marker="o", label=label)
    axes.plot([0, 1], [0, 1], color="0.6", ls=":")
    axes.set(xlabel="probability of an effect", ylabel="share with an effect")
    axes.legend()


def mutations(rows: pd.DataFrame, axes: plt.Axes) -> None:
    counts = list(range(1, 31))
    drugs = rows["drug"].nunique()
    for method, some in rows.groupby("method"):
        axes.plot(counts, np.array(curve(some, counts)) / drugs, label=method)
    axes.plot(counts, counts, color="0.6", ls=":", label="all true")
    axes.set(xlabel="positions found, by drug", ylabel="known positions among them")
    axes.legend()


def cells(rows: pd.DataFrame, axes: plt.Axes) -> None:
    errors = rows.pivot_table(index=CELL, columns="model", values="test_mse")
    ratio = errors.div(errors["soubayes"], axis=0).drop(columns=["soubayes"])
    names = [name for name in ratio if name != "published lasso"]
    axes.boxplot([ratio[name].dropna() for name in names], whis=(5, 95), showfliers=False)
    axes.set_xticks(range(1, len(names) + 1), [name.replace(" ", "\n") for name in names])
    axes.axhline(1.0, color="0.6", ls=":")
    axes.set_ylabel("squared error of new rows\nover that of soubayes")


def halves(rows: pd.DataFrame, axes: plt.Axes) -> None:
    total = rows.groupby("method")[["confirmed", "found", "contradicted"]].sum()
    rest = total["found"] - total["confirmed"] - total["contradicted"]
    left = np.zeros(len(total))
    for label, width in (
        ("confirmed", total["confirmed"]),
        ("open", rest),
        ("contradicted", total["contradicted"]),
    ):
        axes.barh(total.index, width, left=left, label=label)
        left = left + width.to_numpy()
    axes.set_xlabel("columns found in one half")
    axes.legend()


if __name__ == "__main__":
    main()
