"""Several classes: softmax and one against the rest beside cv.glmnet, on tables and simulations.

    SOUBAYES_DATA=... python benchmarks/classes.py tables rows.jsonl
    python benchmarks/classes.py simulated rows.jsonl      # F1, and coverage of contrasts
    python benchmarks/classes.py tables rows.jsonl alone   # without what rows.jsonl lacks of peers
    python benchmarks/classes.py report rows.jsonl

Tables: five stratified folds; peers are cv.glmnet's multinomial lasso, elastic net (0.5) and ridge
(Rscript with the package glmnet; seconds are those of the fit inside R). Classes of fewer than ten
rows are left out. Simulated: n = 300, p = 100, three classes, ten signals; abess and adelie take
part where they are installed. A run that was stopped goes on where it was.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from soubayes import SoULogisticRegression

SEED = 2027
PENALTIES = {"lasso": 1.0, "elastic net": 0.5, "ridge": 0.0}
TABLES = {
    "palmerpenguins_penguins": ("species", True),
    "carData_BEPS": ("vote", True),
    "ecoli": (None, False),
    "wheat-seeds": (None, False),
    "new-thyroid": (None, False),
    "multinom_ex": ("y", True),
}
R = """
suppressMessages(library(glmnet))
folder <- commandArgs(TRUE)[1]
X <- as.matrix(read.csv(file.path(folder, "X.csv"), header=FALSE))
y <- factor(scan(file.path(folder, "y.csv"), quiet=TRUE))
new <- as.matrix(read.csv(file.path(folder, "new.csv"), header=FALSE))
save <- function(x, name) {
  write.table(x, file.path(folder, name), sep=",", row.names=FALSE, col.names=FALSE)
}
for (alpha in c(1, 0.5, 0)) {
  set.seed(1)
  start <- proc.time()
  fit <- suppressWarnings(cv.glmnet(X, y, family="multinomial", alpha=alpha))
  save(sum((proc.time() - start)[1:2]), paste0("seconds", alpha))
  p <- predict(fit, new, s="lambda.min", type="response")
  save(matrix(p, nrow(new)), paste0("p", alpha))
  kept <- sapply(coef(fit, s="lambda.min"), function(b) as.numeric(b != 0)[-1])
  save(kept, paste0("kept", alpha))
}
"""


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, X with categories as columns of 0 and 1, and y from 0 on."""
    folder = Path(os.environ["SOUBAYES_DATA"]) / "tables"
    for name, (target, header) in TABLES.items():
        frame = pd.read_csv(folder / f"{name}.csv", header=0 if header else None).dropna()
        frame = frame.drop(columns=[c for c in frame if c == "rownames"])
        labels = frame.pop(frame.columns[-1] if target is None else target)
        X = pd.get_dummies(frame, drop_first=True).to_numpy(float)
        keep = labels.map(labels.value_counts()).to_numpy() >= 10
        yield name, X[keep], np.unique(labels[keep], return_inverse=True)[1]
    for name, load in (("iris", load_iris), ("wine", load_wine), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        some = np.random.default_rng(SEED).permutation(len(y))[:600]
        yield name, X[some], y[some]


def glmnet(X: np.ndarray, y: np.ndarray, new: np.ndarray) -> dict[str, dict[str, Any]]:
    """Of every penalty: probabilities of new rows, kept columns, and seconds."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        for name, values in (("X", X), ("y", y), ("new", new)):
            np.savetxt(here / f"{name}.csv", values, delimiter=",")
        (here / "fit.R").write_text(R)
        subprocess.run(["Rscript", str(here / "fit.R"), folder], check=True, capture_output=True)
        for name, alpha in PENALTIES.items():
            p, kept, seconds = (
                np.loadtxt(here / f"{what}{alpha:g}", delimiter=",")
                for what in ("p", "kept", "seconds")
            )
            kept = kept.reshape(X.shape[1], -1).any(axis=1)
            found[name] = {"p": p.reshape(len(new), -1), "kept": kept, "seconds": float(seconds)}
    return found


def ours(X: np.ndarray, y: np.ndarray, new: np.ndarray, kind: str) -> dict[str, Any]:
    start = time.process_time()
    model = SoULogisticRegression(multi_class=kind).fit(X, y)
    seconds = time.process_time() - start
    kept = np.any(model.selected_, axis=0)
    return {"p": model.predict_proba(new), "kept": kept, "seconds": seconds, "model": model}


def fits(
    X: np.ndarray, y: np.ndarray, new: np.ndarray, have: set[str], alone: bool
) -> dict[str, dict[str, Any]]:
    """Of every method that is not there yet."""
    kinds = [kind for kind in ("multinomial", "ovr") if kind not in have]
    found = {kind: ours(X, y, new, kind) for kind in kinds}
    return found if alone or set(PENALTIES) <= have else found | glmnet(X, y, new)


def selectors(X: np.ndarray, y: np.ndarray) -> dict[str, dict[str, Any]]:
    """The columns that abess (both of its rules) and adelie keep, where they are installed."""
    found: dict[str, dict[str, Any]] = {}
    classes = np.eye(3)[y]
    try:
        import abess
    except ImportError:
        abess = None
    for name, how in (("abess", {}), ("abess cv", {"cv": 5})) if abess else ():
        begin = time.process_time()
        fit = abess.MultinomialRegression(support_size=range(31), **how).fit(X, classes)
        kept = np.any(fit.coef_ != 0.0, axis=1)
        found[name] = {"kept": kept, "seconds": time.process_time() - begin}
    try:
        import adelie
    except ImportError:
        return found
    begin, columns = time.process_time(), np.asfortranarray(X)
    glm = adelie.glm.multinomial(classes)
    fit = adelie.cv_grpnet(columns, glm, seed=1, progress_bar=False)
    beta = fit.fit(columns, glm, progress_bar=False).betas[-1].toarray().reshape(-1, 3)
    found["adelie"] = {"kept": np.any(beta != 0.0, axis=1), "seconds": time.process_time() - begin}
    return found


def run_tables(out: Path, alone: bool) -> None:
    done = read(out)
    for k in range(5):
        for name, X, y in tables():
            have = {row["method"] for row in done if (row["set"], row["split"]) == (name, k)}
            train, test = list(StratifiedKFold(5, shuffle=True, random_state=SEED).split(X, y))[k]
            rows = []
            for method, found in fits(X[train], y[train], X[test], have, alone).items():
                p = np.maximum(found["p"][np.arange(len(test)), y[test]], 1e-15)
                row = {"set": name, "method": method, "split": k, "rows": len(y)}
                row |= {"loss": float(-np.log(p).sum()), "count": len(test)}
                row |= {"columns": int(found["kept"].sum()), "seconds": found["seconds"]}
                rows.append(row)
            write(out, rows)
            print(k, name, X.shape, flush=True)


def run_simulated(out: Path, alone: bool, sets: int = 20) -> None:
    """Signals are contrasts: coefficients that sum to 0 over the classes."""
    done = {row["split"] for row in read(out) if row["set"] == "simulated"}
    for seed in range(SEED, SEED + sets):
        rng = np.random.default_rng(seed)
        X, beta = rng.normal(size=(300, 100)), np.zeros((100, 3))
        beta[:10] = rng.normal(size=(10, 3))
        beta -= beta.mean(axis=1, keepdims=True)
        beta[:10] *= 1.2 / np.sqrt(np.square(beta[:10]).mean(axis=1, keepdims=True))
        gumbel = rng.gumbel(size=(300, 3))
        y = np.argmax(X @ beta + gumbel, axis=1)
        if seed in done:
            continue
        rows = []
        peers = {} if alone else selectors(X, y)
        for method, found in (fits(X, y, X[:2], set(), alone) | peers).items():
            hits = int(found["kept"][:10].sum())
            row = {"set": "simulated", "method": method, "split": seed}
            row |= {"f1": 2.0 * hits / (10 + int(found["kept"].sum())), "seconds": found["seconds"]}
            if method == "multinomial":
                row |= covered(found["model"], beta, found["kept"])
                point = covered(found["model"].sparse_, beta, found["kept"])
                row |= {f"sparse {key}": value for key, value in point.items()}
            rows.append(row)
        write(out, rows)


def covered(model: SoULogisticRegression, beta: np.ndarray, kept: np.ndarray) -> dict[str, Any]:
    """Share of the classes' coefficients in their 90 % intervals: all, and of kept signals."""
    table = model.summary()
    lower, upper = (table[k].to_numpy().reshape(3, 100).T for k in ("lower", "upper"))
    inside = (lower <= beta) & (beta <= upper)
    signals = np.flatnonzero(kept[:10])
    return {"all": float(inside.mean()), "kept": float(inside[signals].mean())}


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def write(out: Path, rows: list[dict[str, Any]]) -> None:
    with out.open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def report(rows: list[dict[str, Any]]) -> None:
    frame = pd.DataFrame(rows)
    simulated = frame[frame["set"] == "simulated"]
    if len(simulated):
        columns = [
            c
            for c in ("f1", "all", "kept", "sparse all", "sparse kept", "seconds")
            if c in simulated
        ]
        print(simulated.groupby("method")[columns].mean().round(3).to_string())
    frame = frame[frame["set"] != "simulated"]
    if not len(frame):
        return
    total = frame.groupby(["set", "method"])[["loss", "count"]].sum()
    loss = (total["loss"] / total["count"]).unstack().dropna()
    seconds = frame.groupby(["set", "method"])["seconds"].mean().unstack().loc[loss.index]
    peers = loss[list(PENALTIES)]
    best = str(peers.mean().idxmin())
    shown = loss.assign(best=peers.min(axis=1))
    shown["to best"] = loss["multinomial"] - shown["best"]
    shown["seconds"], shown["lasso s"] = seconds["multinomial"], seconds["lasso"]
    print(shown.round(4).to_string())
    print(loss.mean().round(4).to_string())
    for kind in ("multinomial", "ovr"):
        print(f"{kind}: to {best}, the best on average: {(loss[kind] - loss[best]).mean():+.4f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, target, alone = sys.argv[1], Path(sys.argv[2]), "alone" in sys.argv[3:]
    with threadpool_limits(1):
        if what == "tables":
            run_tables(target, alone)
        elif what == "simulated":
            run_simulated(target, alone)
        report(read(target))
