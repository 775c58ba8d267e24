"""The open benchmark of sparse Bayesian regression (Xiao 2026, arXiv:2605.00835), cell by cell.

    OMP_NUM_THREADS=1 python benchmarks/sparse_benchmark.py run [--published benchmark_results.csv]
    python benchmarks/sparse_benchmark.py report

Its design: columns are independent, in blocks of 5 with correlation rho, or have correlations
rho^|i-j|; 20, 50 or 100 columns, of which 3, 9 or 19 have coefficients N(0, 9); max(50, 1.5 p)
rows; the noise has the variance of the signal over .5, 1, 2 or 5; 200 new rows; five seeds. Data
are drawn as its code draws them, so errors of the same method agree digit by digit: the report
compares the lasso's. Run here are soubayes, the lasso, the elastic net (both as there) and the
horseshoe by Gibbs sampling; the horseshoe and the spike and slab by NUTS are the published rows
(its repository's results/benchmark_results.csv, given by ``--published`` and kept beside ours),
which exist for 20 and 50 columns and three seeds. Models have no intercept, as there. Rows are
kept in ``rows/sparse_benchmark.csv.gz``.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.linalg import toeplitz
from sklearn.linear_model import ElasticNetCV, LassoCV

from soubayes import SoULinearRegression, horseshoe_gibbs

ROWS = Path(__file__).parent / "rows" / "sparse_benchmark.csv.gz"
RHO, SNR, COLUMNS, SEEDS = (
    (0.0, 0.3, 0.6, 0.9),
    (0.5, 1.0, 2.0, 5.0),
    (20, 50, 100),
    (42, 123, 456, 789, 1024),
)
CELL = ["dataset", "correlation_strength", "snr", "dim", "seed"]
MEASURES = ["test_mse", "support_f1", "coverage_95", "avg_interval_width", "fit_time_s"]
RATIOS = [0.1, 0.5, 0.7, 0.9, 0.95, 0.99, 1.0]
COMPARED = ("soubayes", "published horseshoe")
FOUND = 0.01  # absolute coefficient above which a column counts as selected there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--published", type=Path)
    given = parser.parse_args()
    if given.command == "report":
        return report(pd.read_csv(ROWS))
    rows = pd.read_csv(ROWS) if ROWS.exists() else pd.DataFrame(columns=["model", *CELL])
    if given.published is not None:
        rows = pd.concat(
            [rows[~rows["model"].str.startswith("published")], published(given.published)]
        )
    done = set(rows.loc[rows["model"] == "soubayes", CELL].itertuples(index=False, name=None))
    ROWS.parent.mkdir(exist_ok=True)
    for cell in cells():
        if cell not in done:
            rows = pd.concat([rows, pd.DataFrame(run(cell))], ignore_index=True)
            if cell[3] == COLUMNS[-1]:
                rows.to_csv(ROWS, index=False, float_format="%.6g")
                print(*cell, flush=True)
    rows.to_csv(ROWS, index=False, float_format="%.6g")


def cells() -> list[tuple[str, float, float, int, int]]:
    kinds = ("independent", "block_correlated", "toeplitz")
    every = itertools.product(SEEDS, kinds, RHO, SNR, COLUMNS)
    return [(k, r, s, p, i) for i, k, r, s, p in every if k != "independent" or r == 0.0]


def published(path: Path) -> pd.DataFrame:
    rows = pd.read_csv(path)
    rows = rows[
        (rows["dataset"] != "diabetes") & rows["model"].isin(["lasso", "horseshoe", "spike_slab"])
    ]
    return rows.assign(model="published " + rows["model"])[["model", *CELL, *MEASURES]]


def draw(cell: tuple[str, float, float, int, int]) -> tuple[np.ndarray, ...]:
    """X, y, new X, new y, the coefficients and the variance of the noise."""
    kind, rho, snr, p, seed = cell
    own = np.random.default_rng(seed)  # of the coefficients; the rows have a generator of their own
    coef, k = np.zeros(p), int(p * (1 - 0.8))  # 3, 9 and 19, as rounding there has it
    support = own.choice(p, size=k, replace=False)
    coef[support] = own.normal(0.0, 3.0, size=k)
    rng, covariance = np.random.default_rng(seed), np.eye(p)
    if kind == "toeplitz":
        covariance = toeplitz(rho ** np.arange(p))
    elif kind == "block_correlated":
        covariance = np.kron(np.eye(p // 5), np.full((5, 5), rho) + (1.0 - rho) * np.eye(5))
    n = max(50, int(1.5 * p))
    X = rng.multivariate_normal(np.zeros(p), covariance, size=n + 200)
    signal = X @ coef
    sd = np.sqrt(max(np.var(signal), 1e-8) / snr)
    y = signal + rng.normal(0.0, sd, size=n + 200)
    return X[:n], y[:n], X[n:], y[n:], coef, sd**2


def run(cell: tuple[str, float, float, int, int]) -> list[dict[str, object]]:
    X, y, new, truth, coef, variance = draw(cell)
    rows = []
    for name, method in METHODS.items():
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, kept, *ends = method(X, y)
        took = time.process_time() - begin
        true, hit = np.abs(coef) > FOUND, kept & (np.abs(coef) > FOUND)
        row = dict(zip(CELL, cell, strict=True)) | {"model": name, "sigma2": variance}
        row |= {"test_mse": np.mean((truth - new @ found) ** 2), "fit_time_s": took}
        row["support_f1"] = 2.0 * hit.sum() / max(true.sum() + kept.sum(), 1)
        for suffix, (low, high) in zip(("", " frequentist"), ends, strict=False):
            row[f"coverage_95{suffix}"] = np.mean((low <= coef) & (coef <= high))
            row[f"avg_interval_width{suffix}"] = np.mean(high - low)
        rows.append(row)
    return rows


def soubayes(X: np.ndarray, y: np.ndarray) -> tuple:
    model = SoULinearRegression(fit_intercept=False, random_state=0).fit(X, y)
    ends = [model.summary(0.95, intervals=kind) for kind in ("posterior", "frequentist")]
    return model.coef_, model.selected_, *(each[["lower", "upper"]].to_numpy().T for each in ends)


def lasso(X: np.ndarray, y: np.ndarray) -> tuple:
    coef = LassoCV(cv=5, max_iter=10_000, fit_intercept=False).fit(X, y).coef_
    return coef, np.abs(coef) > FOUND


def elastic_net(X: np.ndarray, y: np.ndarray) -> tuple:
    fit = ElasticNetCV(l1_ratio=RATIOS, cv=5, max_iter=10_000, fit_intercept=False).fit(X, y)
    return fit.coef_, np.abs(fit.coef_) > FOUND


def horseshoe(X: np.ndarray, y: np.ndarray) -> tuple:
    drawn = horseshoe_gibbs(X, y, draws=1000, warmup=500, chains=1, random_state=0)
    coef = drawn.posterior["coef"].values.reshape(-1, X.shape[1])
    low, high = np.quantile(coef, [0.025, 0.975], axis=0)
    return coef.mean(axis=0), (low > 0.0) | (high < 0.0), (low, high)


METHODS = {
    "soubayes": soubayes, "lasso": lasso,
    "elastic net": elastic_net, "horseshoe, Gibbs": horseshoe,
}  # fmt: skip


def report(rows: pd.DataFrame) -> None:
    scale = rows[rows["model"] == "soubayes"].set_index(CELL)["sigma2"]
    rows = rows.join(scale.rename("variance"), on=CELL)
    rows["mse over sigma2"] = rows["test_mse"] / rows["variance"]
    shown = ["mse over sigma2", "support_f1", "coverage_95", "avg_interval_width"]
    shown += ["coverage_95 frequentist", "avg_interval_width frequentist", "fit_time_s"]
    both = rows.pivot_table(index=CELL, columns="model", values="test_mse")
    if "published lasso" in both:
        gap = (both["lasso"] / both["published lasso"] - 1.0).abs()
        share = f"{np.mean(gap.dropna() < 1e-3):.3f} of {gap.count()} cells"
        print(f"errors of the lasso here and as published agree to .1 % in {share}")
    rows = rows[rows.set_index(CELL).index.isin(scale.index)]
    print(f"\n{len(scale)} cells\n", rows.groupby("model")[shown].mean().round(3).to_string())
    kinds = [rows[rows["model"] == name].set_index(CELL).index for name in COMPARED]
    both = kinds[0].intersection(kinds[1])
    same = rows[rows.set_index(CELL).index.isin(both)]
    print(f"\nthe {len(both)} cells that soubayes and the published horseshoe share")
    print(same.groupby("model")[shown].mean().round(3).to_string())
    for by in ("snr", "correlation_strength", "dim", "dataset"):
        table = rows.pivot_table(index=by, columns="model", values="mse over sigma2")
        print(f"\nmse over sigma2 by {by}\n", table.round(3).to_string())
        print(
            f"F1 by {by}\n",
            rows.pivot_table(index=by, columns="model", values="support_f1").round(3).to_string(),
        )


if __name__ == "__main__":
    main()
