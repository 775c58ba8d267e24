"""Time and memory against the number of rows, generated block by block and never held.

    python benchmarks/scaling.py                          # 20,000,000 x 200 and 5,000,000 x 100
    python benchmarks/scaling.py linear --rows 2000000    # the largest of three sizes, 4 apart
    python benchmarks/scaling.py --rows 200000 --out other.jsonl

Every size is a process of its own with one thread; rows of the table are kept in --out and not
computed again. The exponent is the slope of log(CPU seconds) in log(rows). Generating the rows is
part of the time of a pass, and is also timed alone.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from measure import HERE, Saved, fresh, watch

LARGEST = {"linear": (20_000_000, 200), "logistic": (5_000_000, 100)}
BLOCK = 20_000
SIGNALS = 20
HEAD = [
    "| model | rows | columns | CPU s | generating them | passes | peak MB | kept | right |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(LARGEST))
    parser.add_argument("--rows", type=int, help="largest size; default as in the docs")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "scaling.jsonl")
    given = parser.parse_args()
    saved = Saved(given.out)
    print("\n".join(HEAD))
    for model in given.models:
        n, p = LARGEST[model]
        sizes = [(given.rows or n) // 16, (given.rows or n) // 4, given.rows or n]
        rows = [one(saved, model, size, p) for size in sizes]
        done = [row for row in rows if row["status"] == "ok"]
        if len(done) > 1:
            print(
                f"\n{model}: seconds grow as rows to the power {exponent(done, 'cpu'):.2f}", end=""
            )
            print(f", seconds of a pass as rows to the power {exponent(done, 'pass'):.2f}\n")


def one(saved: Saved, model: str, n: int, p: int) -> dict[str, Any]:
    key = {"model": model, "n": n, "p": p}
    row = saved.find(**key) or saved.add(key | fresh("scaling:fit", 3600.0, **key))
    print(line(row), flush=True)
    return row | {"pass": row["cpu"] / row["passes"]} if row["status"] == "ok" else row


def line(row: dict[str, Any]) -> str:
    begin = f"| {row['model']} | {row['n']:,} | {row['p']} | "
    if row["status"] != "ok":
        return begin + f"{row['status']} | | | | | |"
    return begin + (
        f"{row['cpu']:.1f} | {row['generating']:.1f} | {row['passes']} | "
        f"{row['process_mb']:.0f} | {row['kept']} | {row['right']} |"
    )


def exponent(rows: list[dict[str, Any]], what: str) -> float:
    return float(np.polyfit(np.log([r["n"] for r in rows]), np.log([r[what] for r in rows]), 1)[0])


def fit(model: str, n: int, p: int) -> dict[str, Any]:
    """One fit in this process."""
    from soubayes import SoULinearRegression, SoULogisticRegression

    source = Generated(n, p, model == "logistic")
    estimator = (
        SoULinearRegression(choice="path")
        if model == "linear"
        else SoULogisticRegression(confidence_coef=1.0)
    )
    found: dict[str, Any] = {}
    with watch(found):
        estimator.fit(source)
    kept = np.atleast_2d(estimator.selected_)[0]
    found["generating"], found["passes"] = source.seconds, source.walks
    found["kept"], found["right"] = int(kept.sum()), int(kept[:SIGNALS].sum())
    found["converged"] = bool(estimator.converged_)
    return found


class Generated:
    """Blocks of n rows that depend on the block's number alone; the time they take is counted."""

    def __init__(self, n: int, p: int, labels: bool) -> None:
        self.n, self.p, self.labels = n, p, labels
        self.seconds, self.walks = 0.0, 0

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i, begin in enumerate(range(0, self.n, BLOCK)):
            before = time.process_time()
            block = self.block(i, min(BLOCK, self.n - begin))
            self.seconds += time.process_time() - before
            yield block
        self.walks += 1  # complete ones: the first block alone is looked at for names

    def block(self, i: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.Generator(np.random.SFC64(i))
        X = rng.standard_normal((rows, self.p), dtype=np.float32)
        signal = X[:, :SIGNALS] @ np.linspace(0.05, 1.0, SIGNALS, dtype=np.float32)
        if self.labels:
            return X, signal + rng.logistic(size=rows) > 0
        return X, signal + rng.standard_normal(rows)


if __name__ == "__main__":
    main()
