"""Tables without effects, and halves of tables: what is found that is not there?

    SOUBAYES_DATA=... OMP_NUM_THREADS=1 python benchmarks/truth_null.py null [--seeds 200]
    SOUBAYES_DATA=... OMP_NUM_THREADS=1 python benchmarks/truth_null.py halves [--seeds 5]
    python benchmarks/truth_null.py report

``null``: the columns are those of `truth_columns.py`, one table after the other, and y is drawn
without looking at them: normal, two classes, counts with mean 2, each with `inclusion=True`.
Counted are tables with a selected column, with a discovery at .1, and with a credible set.

``halves``: tables with their own y (the drugs of `truth_hiv.py`, boston, concrete, energy, yacht,
diabetes) are cut in two at random. What a method finds in the first half is looked up in the
second by least squares with all columns there: it is contradicted if its sign is the other one
with a one-sided p below .05, and confirmed if p is below .05 for the same sign. Peers: the
columns of the cross-validated lasso; with ``--peers``, a Python with knockpy and R with susieR,
knockoffs by lasso differences and by masked likelihood ratios, and the sum of single effects, whose
discoveries follow from its inclusion probabilities as ours do. Rows are kept in ``rows/``.
"""

import argparse
import os
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LassoCV

import truth_columns
import truth_hiv
from soubayes import SoULinearRegression, SoULogisticRegression, SoUPoissonRegression

ROWS = Path(__file__).parent / "rows"
FAMILIES = {
    "linear": (SoULinearRegression, lambda rng, n: rng.standard_normal(n)),
    "logistic": (SoULogisticRegression, lambda rng, n: rng.random(n) < 0.4),
    "poisson": (SoUPoissonRegression, lambda rng, n: rng.poisson(2.0, n)),
}
FDR = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["null", "halves", "report"])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--peers", help="a Python with knockpy; Rscript has susieR")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.command == "null":
        collect("truth_null.csv", null_rows(given.seeds or 200, given.families))
    elif given.command == "halves":
        collect("truth_halves.csv", half_rows(given.seeds or 5, given.peers))
    report()


def collect(name: str, jobs) -> None:
    """Rows that are in the file are kept, and the file grows after every job."""
    path = ROWS / name
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame()
    done = set(rows["job"]) if len(rows) else set()
    for job, work in jobs:
        if job not in done:
            rows = pd.concat([rows, pd.DataFrame(work()).assign(job=job)], ignore_index=True)
            rows.to_csv(path, index=False, float_format="%.4g")


def null_rows(count: int, families: list[str]):
    for i in range(count):
        designs = truth_columns.designs(46_000 + i)
        name = sorted(designs)[i % len(designs)]
        for family in families:
            yield (
                f"{family} {i}",
                lambda X=designs[name], f=family, i=i, t=name: [empty(X, f, i, t)],
            )


def empty(X: np.ndarray, family: str, seed: int, table: str) -> dict[str, object]:
    estimator, draw = FAMILIES[family]
    y = draw(np.random.default_rng([47, seed]), len(X))
    model = estimator(inclusion=True, random_state=0).fit(X, y)
    supports = model.supports_
    return {
        "family": family, "table": table, "n": X.shape[0], "p": X.shape[1],
        "selected": int(model.selected_.sum()),
        "discoveries": int(np.sum(supports.discoveries(FDR))),
        "sets": len(supports.credible_sets()),
        "largest": float(np.max(supports.inclusion)),
    }  # fmt: skip


def half_rows(seeds: int, peers: str | None):
    tables = {f"hiv {name}": (X, y) for name, X, y, _, _ in truth_hiv.drugs()}
    for name in truth_columns.UCI:
        data = np.load(Path(os.environ["SOUBAYES_DATA"]) / "uci" / f"{name}.npz")
        tables[name] = data["X"].astype(float), np.asarray(data["y"], float).ravel()
    tables["diabetes"] = load_diabetes(return_X_y=True)
    for name, (X, y) in tables.items():
        for seed in range(seeds):
            yield f"{name} {seed}", lambda X=X, y=y, s=seed, t=name: halves(X, y, s, t, peers)


def halves(X: np.ndarray, y: np.ndarray, seed: int, table: str, peers: str | None) -> list[dict]:
    order = np.random.default_rng([48, seed]).permutation(len(y))
    first, second = order[: len(y) // 2], order[len(y) // 2 :]
    use = (X[first].std(axis=0) > 0.0) & (X[second].std(axis=0) > 0.0)
    X = X[:, use]
    other = SoULinearRegression(choice="path").fit(X[second], y[second])
    other = other.summary(intervals="frequentist")
    z = (other["estimate"] / other["se"]).to_numpy()
    model = SoULinearRegression(inclusion=True, random_state=0).fit(X[first], y[first])
    mean, scale = X[first].mean(axis=0), X[first].std(axis=0)
    lasso = LassoCV(cv=5, max_iter=20_000).fit((X[first] - mean) / scale, y[first])
    sign = np.sign(model.supports_.posteriors[0].mean)
    found = {
        f"soubayes, discoveries({FDR})": sign * model.supports_.discoveries(FDR),
        "soubayes, selected": np.sign(model.sparse_.coef_),
        "lasso": np.sign(lasso.coef_),
    }
    if peers is not None:
        both = truth_hiv.knockoffs((X[first] - mean) / scale, y[first] - y[first].mean(), peers)
        marginal = np.sign((X[first] - mean).T @ (y[first] - y[first].mean()))
        found |= {f"knockoffs, {s} {FDR}": marginal * both[s][1][FDR] for s in ("lcd", "mlr")}
        found[f"susieR, {FDR}"] = susie((X[first] - mean) / scale, y[first])
    bound = stats.norm.ppf(0.95)
    rows = []
    for method, signs in found.items():
        kept = (signs != 0) & np.isfinite(z)
        agreed = signs[kept] * z[kept]
        rows.append(
            {"table": table, "seed": seed, "method": method, "found": int(kept.sum()),
             "confirmed": int((agreed > bound).sum()), "contradicted": int((agreed < -bound).sum()),
             "same sign": int((agreed > 0).sum())}
        )  # fmt: skip
    return rows


SUSIE = """
    folder <- commandArgs(TRUE)[1]
    X <- as.matrix(read.csv(file.path(folder, "X.csv"), header = FALSE))
    y <- scan(file.path(folder, "y.csv"), quiet = TRUE)
    fit <- susieR::susie(X, y, L = min(20, ncol(X)), max_iter = 1000)
    out <- cbind(fit$pip, susieR::susie_get_posterior_mean(fit))
    write.table(out, file.path(folder, "out.csv"), row.names = FALSE, col.names = FALSE, sep = ",")
"""


def susie(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Signs of the largest set of columns of which on average a share FDR has no effect."""
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(f"{folder}/X.csv", X, delimiter=",")
        np.savetxt(f"{folder}/y.csv", y)
        subprocess.run(["Rscript", "-e", SUSIE, folder], check=True, capture_output=True)
        inclusion, mean = np.loadtxt(f"{folder}/out.csv", delimiter=",").T
    order = np.argsort(-inclusion, kind="stable")
    false = np.cumsum(1.0 - inclusion[order]) / np.arange(1, len(order) + 1)
    signs = np.zeros(len(mean))
    discovered = order[: int((false <= FDR).sum())]
    signs[discovered] = np.sign(mean[discovered])
    return signs


def report() -> None:
    if (ROWS / "truth_null.csv").exists():
        rows = pd.read_csv(ROWS / "truth_null.csv")
        counts = ["selected", "discoveries", "sets"]
        for family, some in rows.groupby("family"):
            share = (some[counts] > 0).mean().round(3).to_dict()
            print(f"{family}: {len(some)} null tables; with a false one: {share}, "
                  f"selected columns {some['selected'].sum()} of {some['p'].sum()}")  # fmt: skip
    if (ROWS / "truth_halves.csv").exists():
        rows = pd.read_csv(ROWS / "truth_halves.csv")
        total = rows.groupby("method")[["found", "confirmed", "contradicted", "same sign"]].sum()
        total["share confirmed"] = total["confirmed"] / total["found"]
        total["share contradicted"] = total["contradicted"] / total["found"]
        print(total.round(3).to_string())


if __name__ == "__main__":
    main()
