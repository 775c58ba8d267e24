"""Wide data in bounded memory: n = 500 with 100,000 dense or 1,000,000 sparse columns.

    python benchmarks/wide.py                  # about five minutes
    python benchmarks/wide.py --columns 20000  # the same at another size

Each fit is a process of its own with one thread. The last columns say how far memory rose above
the data during the fit, and how large one dense copy of X in float64 would be.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from measure import HERE, Saved, fresh, watch

ROWS, DENSITY, SIGNALS = 500, 1e-3, 10
HEAD = [
    "| model | X | columns | CPU s | MB above the data | MB of a dense copy | kept | right |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
]
SIZES = {"dense": 100_000, "csr": 1_000_000, "csc": 1_000_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--columns", type=int, help="instead of the sizes in the docs")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "wide.jsonl")
    given = parser.parse_args()
    saved = Saved(given.out)
    print("\n".join(HEAD))
    for kind, size in SIZES.items():
        for model in ("linear", "logistic"):
            key = {"model": model, "kind": kind, "p": given.columns or size}
            row = saved.find(**key) or saved.add(key | fresh("wide:fit", 1800.0, **key))
            print(line(row), flush=True)


def line(row: dict[str, Any]) -> str:
    begin = f"| {row['model']} | {row['kind']} | {row['p']:,} | "
    if row["status"] != "ok":
        return begin + f"{row['status']} | | | | |"
    return begin + (
        f"{row['cpu']:.1f} | {row['peak_mb']:.0f} | {ROWS * row['p'] * 8 / 2**20:.0f} | "
        f"{row['kept']} | {row['right']} |"
    )


def fit(model: str, kind: str, p: int) -> dict[str, Any]:
    """One fit in this process."""
    from soubayes import SoULinearRegression, SoULogisticRegression

    X, signal, rng = dense(p) if kind == "dense" else text(p, kind)
    if model == "linear":
        estimator, y = SoULinearRegression(choice="path"), signal + rng.standard_normal(ROWS)
    else:
        noise = 0.5 * signal.std() * rng.logistic(size=ROWS)
        estimator, y = SoULogisticRegression(confidence_coef=1.0), signal + noise > 0
    found: dict[str, Any] = {}
    with watch(found):
        estimator.fit(X, y)
    kept = np.atleast_2d(estimator.selected_)[0]
    found["kept"], found["right"] = int(kept.sum()), int(kept[:SIGNALS].sum())
    found["converged"] = bool(estimator.converged_)
    return found


def dense(p: int) -> tuple[Any, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, p))
    return X, X[:, :SIGNALS] @ np.arange(1.0, SIGNALS + 1), rng


def text(p: int, layout: str) -> tuple[Any, np.ndarray, np.random.Generator]:
    """Counts of words: ten common ones decide, the others have one row in a thousand each."""
    rng = np.random.default_rng(0)
    common = rng.poisson(0.5, (ROWS, SIGNALS)).astype(float)
    rare = sp.random_array((ROWS, p - SIGNALS), density=DENSITY, format="csc", rng=rng)
    rare.data = 1.0 + rng.poisson(0.5, rare.nnz)
    X = sp.hstack([sp.csc_array(common), rare], format=layout)
    signs = np.where(np.arange(SIGNALS) % 2, -1.0, 1.0)
    return X, common @ (signs * np.arange(1.0, SIGNALS + 1)), rng


if __name__ == "__main__":
    main()
