"""HIV drug resistance: which mutations does a regression find, and are they the known ones?

    SOUBAYES_DATA=... OMP_NUM_THREADS=1 python benchmarks/truth_hiv.py run [--peers PYTHON]
    python benchmarks/truth_hiv.py report

The log fold change of resistance to each of 13 drugs on the mutations of the virus (Rhee et al.
2006, from the Stanford database; `hiv/` of SOUBAYES_DATA). A discovery is a position; it counts
as true if it is on the list of treatment-selected mutations, which was made from other data. The
list is a proxy: a position off the list may still have an effect. Every method gives an order of
its columns, and of its positions by their best column, so methods are compared at every number of
positions found: soubayes, with normal and with Student noise, by inclusion probability and by
`discoveries`, the lasso by where a column enters its path, and MLR knockoffs (Spector and Fithian
2024, knockpy; a Python in which it is installed is given by ``--peers``) by their statistics. As
there, mutations are those seen at least three times in the rows of a drug, of which the first of
exact copies is kept. Rows are kept in ``rows/truth_hiv.csv``.
"""

import argparse
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import lars_path

from soubayes import SoULinearRegression

ROWS = Path(__file__).parent / "rows" / "truth_hiv.csv"
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)
PEER = """
import sys, numpy as np, knockpy
from knockpy.knockoff_filter import KnockoffFilter
z = np.load(sys.argv[1]); X, y = z["X"], z["y"]; out = {}
for name in ("mlr", "lcd"):
    np.random.seed(0)
    f = KnockoffFilter(ksampler="gaussian", fstat=name, knockoff_kwargs={"method": "mvr"})
    for q in (0.05, 0.1, 0.2):
        np.random.seed(0)
        out[f"{name} {q}"] = f.forward(X=X, y=y, fdr=q, shrinkage="ledoitwolf")
    out[f"{name} W"] = f.W
np.savez(sys.argv[1] + ".out.npz", **out)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--peers", help="a Python with knockpy")
    given = parser.parse_args()
    if given.command == "report":
        report(pd.read_csv(ROWS))
        return
    rows = pd.DataFrame([row for drug in drugs() for row in each(*drug, given.peers)])
    if given.peers is None and ROWS.exists():  # those of the knockoffs stay
        before = pd.read_csv(ROWS)
        rows = pd.concat([rows, before[~before["method"].isin(rows["method"])]])
    ROWS.parent.mkdir(exist_ok=True)
    rows.to_csv(ROWS, index=False, float_format="%.5g")
    report(rows)


def drugs() -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, set[int]]]:
    """Name, X, y, position of every column, true positions."""
    for kind in ("PI", "NRTI"):
        data = np.load(Path(os.environ["SOUBAYES_DATA"]) / "hiv" / f"{kind}.npz")
        for name, fold in zip(data["drugs"], data["resistance"].T, strict=True):
            rows = np.isfinite(fold)
            X = data["X"][rows].astype(float)
            seen = np.flatnonzero(np.minimum(X.sum(axis=0), (1.0 - X).sum(axis=0)) >= 3)
            _, first = np.unique(X[:, seen], axis=1, return_index=True)
            seen = seen[np.sort(first)]
            yield (
                str(name),
                X[:, seen],
                np.log(fold[rows]),
                data["position"][seen],
                set(data["tsm"]),
            )


def each(
    drug: str,
    X: np.ndarray,
    y: np.ndarray,
    position: np.ndarray,
    truth: set[int],
    peers: str | None,
) -> Iterator[dict[str, object]]:
    """A row for each position and method: its rank, and from which level on it is a discovery."""
    begin, found = time.process_time(), {}
    for name, noise in (("soubayes", "normal"), ("soubayes, Student noise", "student")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = SoULinearRegression(noise=noise, inclusion=True, random_state=0).fit(X, y)
        supports = model.supports_
        score = -np.log1p(-np.minimum(supports.inclusion, 1.0 - 1e-15))
        found[name] = ordered(score, LEVELS, supports.discoveries)
    took = time.process_time() - begin
    scale = (X - X.mean(axis=0)) / X.std(axis=0)
    _, active, _ = lars_path(scale, y - y.mean(), method="lasso")
    entry = np.zeros(X.shape[1])
    entry[active] = np.linspace(1.0, 0.5, len(active))
    found["lasso path"] = (entry, {})
    if peers is not None:
        for name in ("mlr", "lcd"):
            found[f"knockoffs, {name}"] = knockoffs(scale, y - y.mean(), peers)[name]
    for method, (score, levels) in found.items():
        for p in np.unique(position):
            inside = position == p
            level = min((q for q, yes in levels.items() if yes[inside].any()), default=1.0)
            yield {
                "drug": drug, "n": len(y), "p": len(position), "method": method, "position": int(p),
                "true": int(p in truth), "score": score[inside].max(), "level": level,
                "columns": int((levels[0.05] & inside).sum()) if 0.05 in levels else 0,
                "seconds": took,
            }  # fmt: skip


def ordered(score: np.ndarray, levels: tuple[float, ...], discoveries) -> tuple:
    return score, {q: discoveries(q) for q in levels}


def knockoffs(X: np.ndarray, y: np.ndarray, peers: str) -> dict[str, tuple]:
    """Statistics and discoveries of knockoffs."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/data.npz"
        np.savez(file, X=X, y=y)
        subprocess.run([peers, "-W", "ignore", "-c", PEER, file], check=True, capture_output=True)
        out = np.load(file + ".out.npz")
        return {
            name: (out[f"{name} W"], {q: out[f"{name} {q}"] > 0 for q in (0.05, 0.1, 0.2)})
            for name in ("mlr", "lcd")
        }


def report(rows: pd.DataFrame) -> None:
    print("discoveries of all drugs at a nominal false discovery rate")
    for method, some in rows.groupby("method"):
        for q in LEVELS:
            found = some[some["level"] <= q]
            if len(found):
                print(f"{method}, {q}: {len(found)} positions, {found['true'].sum()} true, "
                      f"false share {1.0 - found['true'].mean():.3f}")  # fmt: skip
        if some["columns"].sum() > 0:
            on_list = some.loc[some["true"] == 1, "columns"].sum()
            print(f"{method}, 0.05: {some['columns'].sum():.0f} columns, {on_list:.0f} of them "
                  "at positions of the list")  # fmt: skip
    print("\ntrue positions among the first k of each drug, all drugs")
    counts = [1, 2, 5, 8, 10, 12, 15, 18, 20, 25]
    print(pd.DataFrame({m: curve(some, counts) for m, some in rows.groupby("method")}, counts))
    print("\ncolumns of one list over all drugs: true among the first N by score")
    many = [50, 100, 150, 175, 200, 225, 250]
    top = {
        m: [s.nlargest(k, "score")["true"].sum() for k in many] for m, s in rows.groupby("method")
    }
    print(pd.DataFrame(top, many))


def curve(rows: pd.DataFrame, counts: list[int]) -> list[int]:
    """True positions among the first k of every drug."""
    ranked = rows.sort_values(["drug", "score"], ascending=[True, False])
    place = ranked.groupby("drug").cumcount()
    return [int(ranked.loc[place < k, "true"].sum()) for k in counts]


if __name__ == "__main__":
    main()
