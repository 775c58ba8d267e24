"""Cox regression on real tables beside glmnet and Coxnet: concordance and partial likelihood.

    OMP_NUM_THREADS=1 python benchmarks/survival.py run --tables development --out rows.csv
    python benchmarks/survival.py report --out rows.csv
    OMP_NUM_THREADS=1 python benchmarks/survival.py simulate --out coverage.csv
    OMP_NUM_THREADS=1 python benchmarks/survival.py simulate --design christensen --out genes.csv
    OMP_NUM_THREADS=1 python benchmarks/survival.py speed
    OMP_NUM_THREADS=1 python benchmarks/survival.py resample --tables clinical --out pairs.csv

Five folds with equal shares of events, shuffled with ``--seed``. Peers are glmnet's lasso, elastic
net (.5) and ridge, lambda.min of 10-fold cross-validation (R with glmnet and survival), and
scikit-survival's Coxnet with its penalty chosen by the concordance of 5 folds, as its user guide
does; Coxnet is left out where scikit-survival is not installed. A fold that is in the file is not
run again. The tables of ``reported`` come from scikit-survival. ``--design`` draws times for the
expression data of ``wide/`` or ``survival/`` under SOUBAYES_DATA.
"""

import argparse
import csv
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from soubayes import SoUCoxRegression
from soubayes.sparse.survival.measures import KaplanMeier, brier_scores, concordance
from soubayes.sparse.survival.responses import read_survival
from soubayes.sparse.survival.risk_sets import PartialLoss, RiskSets

DATA = Path(os.environ.get("SOUBAYES_DATA", "../shared/data"))
GENES = ("NSBCD", "nki70", "AML_Bull")
TABLES = ("cox_ex", "colon", "mgus2")
CLINICAL = ("colon", "mgus2", "nki70")
REPORTED = ("whas500", "veterans", "GBSG2", "GSE7390")
FOLDS = 5

PEERS = """
suppressMessages(library(glmnet)); suppressMessages(library(survival))
args <- commandArgs(TRUE); dir <- args[1]
n <- as.integer(args[2]); p <- as.integer(args[3]); m <- as.integer(args[4])
read <- function(name, k) readBin(file.path(dir, name), "double", k)
X <- matrix(read("X", n * p), ncol = p); Z <- matrix(read("Z", m * p), ncol = p)
y <- Surv(read("time", n), read("event", n))
set.seed(1)
fold <- sample(rep(1:10, length.out = n))
for (alpha in as.numeric(strsplit(args[5], ",")[[1]])) {
  begin <- proc.time()[["user.self"]]
  fit <- cv.glmnet(X, y, family = "cox", alpha = alpha, foldid = fold)
  used <- proc.time()[["user.self"]] - begin
  eta <- as.numeric(predict(fit, Z, s = "lambda.min"))
  k <- sum(as.numeric(coef(fit, s = "lambda.min")) != 0)
  writeBin(eta, file.path(dir, paste0("eta", alpha)))
  cat(alpha, used, k, "\\n")
}
"""


def table(name):
    """X, event, time."""
    if name in GENES:
        data = np.load(DATA / "survival" / f"{name}.npz", allow_pickle=True)
        return data["X"].astype(float), data["event"].astype(bool), data["time"].astype(float)
    if name in TABLES:
        file = name if name == "cox_ex" else f"survival_{name}"
        frame = pd.read_csv(DATA / "tables" / f"{file}.csv")
        if name == "colon":
            frame = frame[frame["etype"] == 2].drop(columns=["id", "study", "etype"])
        frame = frame.drop(columns=[c for c in ("rownames", "id", "Unnamed: 0") if c in frame])
        time_name = "futime" if name == "mgus2" else "time"
        event_name = "death" if name == "mgus2" else "status"
        X = frame.drop(columns=[time_name, event_name])
        X = X.drop(columns=[c for c in ("ptime", "pstat", "stop", "event") if c in X])
        event, t = frame[event_name].to_numpy() == 1, frame[time_name].to_numpy(float)
    else:
        from sksurv import datasets

        if name == "GSE7390":
            X, y = datasets.load_breast_cancer()
        else:
            short = "veterans_lung_cancer" if name == "veterans" else name.lower()
            X, y = getattr(datasets, f"load_{short}")()
        event, t = (y[field] for field in y.dtype.names)
    X = pd.get_dummies(X, drop_first=True).astype(float)
    X = X.fillna(X.median()).to_numpy()
    keep = np.asarray(t > 0)
    return X[keep], np.asarray(event, bool)[keep], np.asarray(t, float)[keep]


def folds(event, seed=0):
    """Five folds with equal shares of events."""
    from sklearn.model_selection import StratifiedKFold

    return list(StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(event, event))


def peers(X, y, Z, alphas="1,0.5,0"):
    """(name, predictors of Z, columns, seconds) of every peer."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        for name, part in (("X", X), ("Z", Z)):
            (where / name).write_bytes(np.asfortranarray(part, float).tobytes(order="F"))
        (where / "event").write_bytes(y[0].astype(float).tobytes())
        (where / "time").write_bytes(np.asarray(y[1], float).tobytes())
        (where / "run.R").write_text(PEERS)
        size = map(str, (len(X), X.shape[1], len(Z)))
        command = ["Rscript", str(where / "run.R"), folder, *size, alphas]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = {"1": "lasso", "0.5": "elastic net", "0": "ridge"}
        for line in out.strip().splitlines():
            alpha, used, k = line.split()
            eta = np.frombuffer((where / f"eta{alpha}").read_bytes())
            yield names[alpha], eta, int(k), float(used)


def coxnet(X, y, Z):
    """Predictors of Z, columns and seconds of scikit-survival's elastic net (l1_ratio .9)."""
    from sksurv.linear_model import CoxnetSurvivalAnalysis
    from sksurv.util import Surv

    begin, target = time.process_time(), Surv.from_arrays(*y)
    middle, scale = X.mean(axis=0), np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    X, Z = (X - middle) / scale, (Z - middle) / scale
    ratio = 0.01 if len(X) > X.shape[1] else 0.05
    while True:  # it stops with an ArithmeticError where small penalties separate the times
        try:
            grid = {"l1_ratio": 0.9, "alpha_min_ratio": ratio, "max_iter": 100_000}
            whole = CoxnetSurvivalAnalysis(**grid).fit(X, target)
            scores = np.zeros(len(whole.alphas_))
            for a, b in folds(y[0]):
                part = CoxnetSurvivalAnalysis(**{**grid, "alphas": whole.alphas_})
                part.fit(X[a], target[a])
                held = read_survival((y[0][b], y[1][b]))
                found = [concordance(held, X[b] @ coef) for coef in part.coef_.T]
                # a path ends early where smaller penalties change nothing
                scores += found + found[-1:] * (len(scores) - len(found))
            break
        except ArithmeticError:
            ratio *= 2.0
    coef = whole.coef_[:, int(np.argmax(scores))]
    return Z @ coef, coef != 0.0, time.process_time() - begin


def has_coxnet():
    """Whether scikit-survival is installed."""
    from importlib.util import find_spec

    return find_spec("sksurv") is not None


def measures(y, eta):
    """Concordance, and -2 log partial likelihood for each event, of held-out rows."""
    records = read_survival(y)
    loss = PartialLoss.at(RiskSets.of(records, np.ones(len(records)), "breslow"), eta).loss
    return concordance(records, eta), 2.0 * loss / records["event"].sum()


def brier(model, X, y, train):
    """Integrated Brier score of the model and of the Kaplan-Meier curve of the training rows."""
    records, old = read_survival(y), read_survival(train)
    grid = np.linspace(*np.quantile(records["stop"], [0.1, 0.9]), 50)
    curve = KaplanMeier.of(old, np.ones(len(old)))
    censoring = KaplanMeier.of(old, np.ones(len(old)), censoring=True)
    same = np.broadcast_to(curve.at(grid), (len(records), len(grid)))
    base = np.trapezoid(brier_scores(records, same, grid, censoring), grid) / np.ptp(grid)
    return model.integrated_brier_score(X, y), float(base)


def run(names, out, only=None, seed=0):
    """Append a row for every method and fold that is not in the file."""
    out = Path(out)
    done = set()
    if out.exists():
        old = pd.read_csv(out)
        done = set(zip(old["table"], old["fold"], old["method"], strict=True))
    with out.open("a", newline="") as file:
        writer = csv.writer(file)
        if not done:
            writer.writerow(
                ["table", "fold", "method", "C", "deviance", "columns", "seconds", "brier", "km"]
            )
        for name in names:
            X, event, t = table(name)
            for number, (a, b) in enumerate(folds(event, seed)):
                y, held = (event[a], t[a]), (event[b], t[b])
                if (name, number, "lasso") not in done and only != "ours":
                    for method, eta, k, used in peers(X[a], y, X[b]):
                        row = [name, number, method, *measures(held, eta), k, used, "", ""]
                        writer.writerow(row)
                if (name, number, "Coxnet") not in done and only != "ours" and has_coxnet():
                    eta, kept, used = coxnet(X[a], y, X[b])
                    row = [name, number, "Coxnet", *measures(held, eta), kept.sum(), used, "", ""]
                    writer.writerow(row)
                if (name, number, "ours") not in done and only != "peers":
                    begin = time.process_time()
                    model = SoUCoxRegression().fit(X[a], y)
                    used = time.process_time() - begin
                    for method, fit in (("ours", model), ("sparse", model.sparse_)):
                        k = int(model.selected_.sum()) if method == "sparse" else X.shape[1]
                        scores = brier(fit, X[b], held, y)
                        row = [name, number, method, *measures(held, fit.predict(X[b])), k, used]
                        writer.writerow([*row, *scores])
                file.flush()


def resample(names, out, first, count):
    """Paired differences to the lasso: 200 rows at random to fit, up to 400 others to compare."""
    out = Path(out)
    rows = pd.read_csv(out).to_dict("records") if out.exists() else []
    done = {(row["table"], row["seed"]) for row in rows}
    for seed in range(first, first + count):
        for name in names:
            if (name, seed) in done:
                continue
            X, event, t = table(name)
            order = np.random.default_rng([49, seed]).permutation(len(t))
            size = min(200, 2 * len(t) // 3)
            a, b = order[:size], order[size : size + 400]
            y, held = (event[a], t[a]), (event[b], t[b])
            _, eta, k, _ = next(iter(peers(X[a], y, X[b], "1")))
            model = SoUCoxRegression().fit(X[a], y)
            C, deviance = measures(held, model.predict(X[b]))
            lasso = measures(held, eta)
            rows.append(
                {"table": name, "seed": seed, "p": X.shape[1], "C": C - lasso[0],
                 "deviance": deviance - lasso[1], "kept": int(model.selected_.sum()), "lasso": k}
            )  # fmt: skip
            pd.DataFrame(rows).to_csv(out, index=False, float_format="%.5g")
    rows = pd.DataFrame(rows)
    each = rows.groupby("table")[["C", "deviance", "kept", "lasso"]].agg(["mean", "sem"])
    print(each.round(4).to_string())
    print(rows[["C", "deviance"]].agg(["mean", "sem"]).round(4).to_string(), len(rows))


def report(out):
    """Means over the folds, and mean differences to the best peer on average."""
    rows = pd.read_csv(out)
    mean = rows.groupby(["table", "method"]).mean(numeric_only=True).drop(columns="fold")
    print(mean.round(3).to_string())
    wide = mean.unstack("method")
    for value, best in (("C", "max"), ("deviance", "min")):
        part = wide[value]
        names = [name for name in part if name not in ("ours", "sparse")]
        peer = getattr(part[names].mean(), f"idx{best}")()
        for method in ("ours", "sparse"):
            off = (part[method] - part[peer]).dropna()
            print(f"{value}: {method} - {peer}: {off.mean():+.4f}  {off.round(3).to_dict()}")
    ratio = (wide["seconds"]["ours"] / wide["seconds"]["lasso"]).round(2).to_dict()
    print("seconds, ratio to the lasso:", ratio)
    print(
        "columns, sparse to lasso:",
        (wide["columns"]["sparse"] / wide["columns"]["lasso"]).to_dict(),
    )


def drawn(seed, n=300, p=100, signals=10, design=None):
    """Subjects with exponential times of which about 30 % are censored, and 20 new subjects.

    ``design`` names real expression data: their columns in place of independent normal ones.
    """
    rng = np.random.default_rng(seed)
    if design is None:
        X = rng.normal(size=(n, p))
    else:
        folder = "survival" if design in GENES else "wide"
        X = np.load(DATA / folder / f"{design}.npz", allow_pickle=True)["X"].astype(float)
        X = X[:, X.std(axis=0) > 0]
        X = rng.permutation((X - X.mean(axis=0)) / X.std(axis=0))
    p, coef = X.shape[1], np.zeros(X.shape[1])
    coef[rng.permutation(p)[:signals]] = rng.choice([-1.0, 1.0], size=signals) * rng.uniform(
        0.25, 0.7, size=signals
    )
    t = rng.exponential(np.exp(-X @ coef))
    end = rng.exponential(np.quantile(t, 0.5) * 3.0, size=len(X))
    y = t <= end, np.minimum(t, end)
    if design is None:
        return X, coef, y, rng.normal(size=(20, p))
    return X[20:], coef, (y[0][20:], y[1][20:]), X[:20]


def simulate(out, first, count, design=None, only=None):
    """F1 beside lasso and Coxnet, coverage of 90 % intervals and of bands of S(t | x)."""
    out = Path(out)
    done = set(pd.read_csv(out)["seed"]) if out.exists() else set()
    for seed in range(first, first + count):
        if seed in done:
            continue
        X, coef, y, new = drawn(seed, design=design)
        model = SoUCoxRegression().fit(X, y)
        truth, row = coef != 0.0, {"seed": seed, "censored": 1.0 - y[0].mean()}
        wide = {"all": {"columns": slice(None), "prior": "normal", "variance": 1e4}}
        known = SoUCoxRegression(feature_blocks=wide).fit(X[:, truth], y)  # the usual Cox fit
        every = np.ones(len(coef), bool)
        fits = (("mixture", model, every), ("sparse", model.sparse_, every))
        for name, fit, columns in (*fits, ("known", known, truth)):
            table = fit.summary()
            inside = (table["lower"] <= coef[columns]) & (coef[columns] <= table["upper"])
            row[f"all {name}"] = inside.mean()
            row[f"kept {name}"] = inside[(truth & model.selected_)[columns]].mean()
            grid = np.quantile(y[1], [0.25, 0.5, 0.75])
            bands = fit.predict_survival_function(new[:, columns], grid, level=0.9)
            exact = np.exp(-np.outer(grid, np.exp(new @ coef)))
            low = bands.xs("lower", axis=1, level=1).to_numpy()
            high = bands.xs("upper", axis=1, level=1).to_numpy()
            row[f"bands {name}"] = ((low <= exact) & (exact <= high)).mean()
        row["F1"], row["columns"] = _f1(truth, model.selected_), model.selected_.sum()
        found = {} if only == "ours" else {"lasso": lasso_support(X, y)}
        if has_coxnet() and only != "ours":
            found["Coxnet"] = coxnet(X, y, X[:1])[1]
        for name, kept in found.items():
            row[f"F1 {name}"], row[f"columns {name}"] = _f1(truth, kept), kept.sum()
        pd.DataFrame([row]).to_csv(out, mode="a", header=not out.exists(), index=False)
    print(pd.read_csv(out).drop(columns="seed").mean().round(3).to_string())


def lasso_support(X, y):
    """Columns of glmnet's lasso at lambda.min: its predictors of the unit vectors are not 0."""
    units = np.vstack([np.zeros(X.shape[1]), np.eye(X.shape[1])])
    lasso = next(iter(peers(X, y, units, "1")))
    return np.abs(lasso[1][1:] - lasso[1][0]) > 1e-12


def _f1(truth, found):
    return 2.0 * (truth & found).sum() / max(truth.sum() + found.sum(), 1)


def speed():
    """240 x 7,400 beside glmnet's cross-validations, and 100,000 x 50."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 7400)) + rng.normal(size=(240, 20)) @ rng.normal(size=(20, 7400))
    coef = np.zeros(7400)
    coef[:10] = 0.3
    t, end = rng.exponential(np.exp(-X @ coef)), rng.exponential(3.0, size=240)
    y = t <= end, np.minimum(t, end)
    begin = time.process_time()
    SoUCoxRegression().fit(X, y)
    ours = time.process_time() - begin
    print("240 x 7,400: ours", round(ours, 1), {m: s for m, _, _, s in peers(X, y, X[:2])})
    X = rng.normal(size=(100_000, 50))
    t, end = rng.exponential(np.exp(-X[:, 0])), rng.exponential(3.0, size=100_000)
    begin = time.process_time()
    SoUCoxRegression().fit(X, (t <= end, np.minimum(t, end)))
    print("100,000 x 50: ours", round(time.process_time() - begin, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "report", "simulate", "speed", "resample"])
    parser.add_argument("--tables", default="development")
    parser.add_argument("--out", default="survival.csv")
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--design")
    parser.add_argument("--only", choices=["ours", "peers"])
    given = parser.parse_args()
    groups = {"development": (*GENES, *TABLES), "reported": REPORTED, "clinical": CLINICAL}
    if given.what == "run":
        run(groups.get(given.tables, given.tables.split(",")), given.out, given.only, given.seed)
    elif given.what == "report":
        report(given.out)
    elif given.what == "resample":
        names = groups.get(given.tables, given.tables.split(","))
        resample(names, given.out, given.first, given.count)
    elif given.what == "simulate":
        simulate(given.out, given.first, given.count, given.design, given.only)
    else:
        speed()


if __name__ == "__main__":
    main()
