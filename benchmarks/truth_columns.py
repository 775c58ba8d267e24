"""Known effects over real columns: coverage and probabilities beside the exact posterior.

    SOUBAYES_DATA=... OMP_NUM_THREADS=1 python benchmarks/truth_columns.py run [--seeds 10]
    python benchmarks/truth_columns.py report

y is a real X times known coefficients plus normal noise. Effects are uniform between .1 and 1
standard deviations of the noise for a standardised column, in a third of the columns but at most
six, at random places. X are columns of packages and of SOUBAYES_DATA (`tables`, `uci`, `wide`),
at most 300 rows. The exact posterior is that of the spike and slab which the fit ended with, by
Gibbs sampling (`signal_coverage.py`), where there are more rows than columns. Rows are kept in
``rows/truth_columns.csv.gz``, one for each column of a table; tables and seeds that are there are
not run again.
"""

import argparse
import os
import time
import warnings
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes

from signal_coverage import sample
from soubayes import SoULinearRegression
from soubayes.sparse.inclusion import supports

ROWS = Path(__file__).parent / "rows" / "truth_columns.csv.gz"
TABLES = ("Ecdat_Hedonic", "ISLR_Auto", "ISLR_Credit", "DAAG_spam7", "modeldata_chem_proc_yield")
UCI = ("boston", "concrete", "energy", "yacht")
GENES = (("sorlie", 40), ("christensen", 60), ("khan", 30), ("sorlie", 300), ("khan", 300))
MOST_ROWS, MOST_EFFECTS = 300, 6
BANDS = {"none": (-1.0, 0.0), "below .3": (0.0, 0.3), ".3 to .5": (0.3, 0.5), "from .5": (0.5, 2.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=45_000)
    given = parser.parse_args()
    if given.command == "run":
        run(range(given.first, given.first + given.seeds))
    else:
        report(pd.read_csv(ROWS))


def run(seeds: range) -> None:
    rows = pd.read_csv(ROWS) if ROWS.exists() else pd.DataFrame(columns=["table", "seed"])
    done = set(zip(rows["table"], rows["seed"], strict=True))
    for seed in seeds:
        for name, X in designs(seed).items():
            if (name, seed) not in done:
                rows = pd.concat([rows, one(name, X, seed)], ignore_index=True)
        ROWS.parent.mkdir(exist_ok=True)
        rows.to_csv(ROWS, index=False, float_format="%.5g")
        print(seed, len(rows), flush=True)


def designs(seed: int) -> dict[str, np.ndarray]:
    """Real columns by name; of the genes other ones for every seed."""
    data, rng = Path(os.environ["SOUBAYES_DATA"]), np.random.default_rng([45, seed])
    found = {"diabetes": load_diabetes().data, "wdbc": load_breast_cancer().data}
    for name in UCI:
        found[name] = np.load(data / "uci" / f"{name}.npz")["X"]
    for name in TABLES:
        frame = pd.read_csv(data / "tables" / f"{name}.csv").select_dtypes("number").dropna()
        found[name] = frame.to_numpy()
    for name, p in GENES:
        X = np.load(data / "wide" / f"{name}.npz")["X"]
        found[f"{name} {p}"] = X[:, rng.permutation(X.shape[1])[:p]]
    for name, X in found.items():
        X = X[rng.permutation(len(X))[:MOST_ROWS]].astype(float)
        X = X[:, X.std(axis=0) > 0.0]
        found[name] = (X - X.mean(axis=0)) / X.std(axis=0)
    return found


def one(name: str, X: np.ndarray, seed: int) -> pd.DataFrame:
    """A row for every column."""
    rng, (n, p) = np.random.default_rng([46, seed, crc32(name.encode())]), X.shape
    k, coef = min(p // 3, MOST_EFFECTS), np.zeros(p)
    coef[rng.choice(p, k, replace=False)] = rng.uniform(0.1, 1.0, k) * rng.choice([-1.0, 1.0], k)
    y = X @ coef + rng.standard_normal(n)
    slabs, of = [], supports.SupportPosterior.of
    supports.SupportPosterior.of = lambda found, *rest: slabs.append(found.slab) or of(found, *rest)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SoULinearRegression(inclusion=True, random_state=0).fit(X, y)
    finally:
        supports.SupportPosterior.of = of
    begin = time.process_time()
    exact = model.summary(intervals="frequentist")
    took = time.process_time() - begin
    posterior, se = model.summary(), exact["se"].to_numpy()
    low, high = model.supports_.posteriors[0].quantiles(np.array([0.05, 0.95]))
    found = {
        "table": name, "seed": seed, "n": n, "p": p, "column": np.arange(p), "effect": coef,
        "probability": model.supports_.inclusion, "selected": model.selected_.astype(int),
        "se": se, "seconds": took,
    }  # fmt: skip
    for fdr in (0.05, 0.1, 0.2):
        found[f"discovered {fdr}"] = model.supports_.discoveries(fdr).astype(int)
    ends = {
        "summary": posterior[["lower", "upper"]].to_numpy().T,
        "supports": (low, high),
        "frequentist": exact[["lower", "upper"]].to_numpy().T,
    }
    if n > p + 1:
        draws = sample(X, y - y.mean(), slabs[-1], np.random.default_rng(seed), False)
        ends["exact"] = np.quantile(draws, [0.05, 0.95], axis=0)
        found["exact probability"] = np.mean(draws != 0.0, axis=0)
    for kind, (lower, upper) in ends.items():
        found[f"{kind} covers"] = ((lower - 1e-12 <= coef) & (coef <= upper + 1e-12)).astype(int)
        found[f"{kind} width"] = upper - lower
    return pd.DataFrame(found)


def report(rows: pd.DataFrame) -> None:
    rows["size"] = rows["effect"].abs()
    rows["group"] = np.where(rows["n"] > rows["p"] + 1, "n > p", "p >= n")
    kinds = [name.removesuffix(" covers") for name in rows if name.endswith(" covers")]
    rows["band"] = pd.cut(rows["size"], [-1.0, 0.0, 0.3, 0.5, 2.0], labels=list(BANDS))
    for what in ("covers", "width"):
        print(f"\n{what}")
        columns = [f"{kind} {what}" for kind in kinds]
        finite = rows.replace(np.inf, np.nan)
        table = finite.groupby(["group", "band"], observed=True)[columns].mean()
        print(table.set_axis(kinds, axis=1).round(3).to_string())
    print(rows.groupby(["group", "band"], observed=True).size().to_string())
    strong = rows[rows["size"] >= 0.5].groupby(["table", "p"])
    print("\neffects of at least .5, by table")
    print(strong[[f"{kind} covers" for kind in kinds]].mean().round(2).to_string())
    print("\nprobabilities by tenth")
    for name in ("probability", "exact probability"):
        some = rows[rows[name].notna()]
        tenth = np.minimum((some[name] * 10).astype(int), 9)
        table = pd.DataFrame(
            {"columns": some.groupby(tenth).size(), "mean": some.groupby(tenth)[name].mean(),
             "share": (some["effect"] != 0).groupby(tenth).mean()}
        )  # fmt: skip
        table["se"] = np.sqrt(table["share"] * (1 - table["share"]) / table["columns"])
        print(name, "\n", table.round(3).to_string())
    print("\nfalse discovery rate and power")
    for fdr in (0.05, 0.1, 0.2):
        found = rows[rows[f"discovered {fdr}"] == 1]
        each = rows.groupby(["table", "seed"]).apply(
            lambda g, key=f"discovered {fdr}": pd.Series(
                {"fdr": ((g["effect"] == 0) & (g[key] == 1)).sum() / max(g[key].sum(), 1),
                 "power": g.loc[g["effect"] != 0, key].mean()}
            ), include_groups=False
        )  # fmt: skip
        print(fdr, len(found), each.mean().round(3).to_dict())


if __name__ == "__main__":
    main()
