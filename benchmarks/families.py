"""Counts, positive numbers and ordered classes: held-out deviance, F1, coverage, time.

    python benchmarks/families.py tables --seed 1 --out tables.csv
    python benchmarks/families.py ordered --seed 1 --out ordered.csv
    python benchmarks/families.py simulated --seed 1000 --seeds 20 --out simulated.csv
    python benchmarks/families.py report tables.csv simulated.csv

Tables are those of $SOUBAYES_DATA/tables, in 5 folds; glmnet chooses lambda by cv.glmnet (needs
Rscript with the package glmnet); abess and adelie take part in the simulations where they are
installed. Every row of the output is one fit; a run that was stopped goes on
where it was.
Settings were chosen with --seed 0 (folds) and simulated seeds below 1000.
"""

import argparse
import csv
import os
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, StratifiedKFold

from soubayes import (
    SoUGammaRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNegativeBinomialRegression,
    SoUOrdinalRegression,
    SoUPoissonRegression,
)

TABLES = Path(os.environ.get("SOUBAYES_DATA", "../shared/data")) / "tables"
COUNTS = {
    "doctor": ("AER_DoctorVisits.csv", "visits", []),
    "recreation": ("AER_RecreationDemand.csv", "trips", []),
    "medpar": ("COUNT_medpar.csv", "los", ["provnum"]),
    "azpro": ("COUNT_azpro.csv", "los", []),
    "badhealth": ("COUNT_badhealth.csv", "numvisit", []),
    "singapore": ("insuranceData_SingaporeAuto.csv", "Clm_Count", ["LNWEIGHT"]),
    "poisson_ex": ("poisson_ex.csv", "y", []),
}
POSITIVE = {
    "car_prices": ("modeldata_car_prices.csv", "Price", []),
    "house_prices": ("AER_HousePrices.csv", "price", []),
}
EXPOSURE = {"singapore": "Exp_weights"}
PEERS = {"lasso": 1.0, "elastic net": 0.5, "ridge": 0.0}
R_CODE = """
suppressMessages(library(glmnet))
args <- commandArgs(trailingOnly = TRUE)
read <- function(name) as.matrix(read.csv(file.path(args[1], name), header = FALSE))
X <- read("X.csv"); y <- read("y.csv")[, 1]; new <- read("new.csv")
o <- read("offset.csv")[, 1]; on <- read("new_offset.csv")[, 1]
family <- if (args[2] == "gamma") Gamma(link = "log") else args[2]
set.seed(1)
for (a in c(1, .5, 0)) {
  begin <- proc.time()
  fit <- cv.glmnet(X, y, family = family, alpha = a, offset = o)
  used <- sum((proc.time() - begin)[1:2])
  mean <- predict(fit, new, newoffset = on, s = "lambda.min", type = "response")
  beta <- as.numeric(coef(fit, s = "lambda.min"))[-1]
  sparse <- as.numeric(coef(fit, s = "lambda.1se"))[-1]
  write.table(t(c(a, used, as.numeric(mean))), file.path(args[1], "mean.csv"), append = TRUE,
              sep = ",", row.names = FALSE, col.names = FALSE)
  write.table(t(c(a, beta)), file.path(args[1], "beta.csv"), append = TRUE, sep = ",",
              row.names = FALSE, col.names = FALSE)
  write.table(t(c(a, sparse)), file.path(args[1], "sparse.csv"), append = TRUE, sep = ",",
              row.names = FALSE, col.names = FALSE)
}
"""


def read(name):
    """X, y and the exposure of a table; categories are 0/1 columns."""
    file, target, drop = {**COUNTS, **POSITIVE}[name]
    frame = pd.read_csv(TABLES / file)
    frame = frame.drop(columns=[c for c in (*drop, "rownames") if c in frame]).dropna()
    exposure = frame.pop(EXPOSURE[name]) if name in EXPOSURE else None
    y = frame.pop(target).to_numpy(float)
    X = pd.get_dummies(frame, drop_first=True).to_numpy(float)
    X = X[:, X.std(axis=0) > 0]
    return X, y, None if exposure is None else exposure.to_numpy(float)


def glmnet(family, X, y, new, offset, new_offset):
    """Of each peer: means of new rows, coefficients at lambda.min and lambda.1se, CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        parts = {"X": X, "y": y, "new": new, "offset": offset, "new_offset": new_offset}
        for name, part in parts.items():
            np.savetxt(Path(folder) / f"{name}.csv", part, delimiter=",", fmt="%.12g")
        script = Path(folder) / "fit.R"
        script.write_text(R_CODE, encoding="utf8")
        subprocess.run(["Rscript", str(script), folder, family], check=True, capture_output=True)
        mean, beta, sparse = (
            np.loadtxt(Path(folder) / f"{name}.csv", delimiter=",", ndmin=2)
            for name in ("mean", "beta", "sparse")
        )
    rows = zip(mean[:, 2:], beta[:, 1:], sparse[:, 1:], mean[:, 1], strict=True)
    return dict(zip(PEERS, rows, strict=True))


def deviance(family, y, mean):
    """Mean unit deviance."""
    mean = np.maximum(mean, 1e-10)
    if family == "gamma":
        return float(np.mean(2.0 * ((y - mean) / mean - np.log(y / mean))))
    log = np.where(y > 0, y * np.log(np.maximum(y, 1.0) / mean), 0.0)
    return float(np.mean(2.0 * (log - (y - mean))))


def done(path):
    """Keys of the rows that a file has."""
    if not path.exists():
        return set()
    with path.open(encoding="utf8") as file:
        return {tuple(row[:4]) for row in csv.reader(file)}


def write(path, rows):
    with path.open("a", newline="", encoding="utf8") as file:
        csv.writer(file).writerows(rows)


def ours(family):
    if family == "gamma":
        return {"SoUGamma": SoUGammaRegression()}
    return {"SoUPoisson": SoUPoissonRegression(), "SoUNB": SoUNegativeBinomialRegression()}


def run_tables(args):
    """Rows: table, seed, fold, method, deviance, log density, coverage of 90 %, CPU seconds."""
    for name in args.only or (*COUNTS, *POSITIVE):
        family = "gamma" if name in POSITIVE else "poisson"
        X, y, exposure = read(name)
        offset = np.zeros(len(y)) if exposure is None else np.log(exposure)
        folds = KFold(5, shuffle=True, random_state=args.seed).split(X)
        for fold, (train, test) in enumerate(folds):
            key, have = (name, str(args.seed), str(fold)), done(args.out)
            wanted = [m for m in ours(family) if (*key, m) not in have]
            for method in wanted:
                model = ours(family)[method]
                begin = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model.fit(X[train], y[train], offset=offset[train])
                used = time.process_time() - begin
                mean = model.predict(X[test], offset=offset[test])
                low, high = model.predict(X[test], offset=offset[test], quantiles=[0.05, 0.95]).T
                inside = float(np.mean((low <= y[test]) & (y[test] <= high)))
                density = model.log_score(X[test], y[test], offset=offset[test])
                found = deviance(family, y[test], mean), density, inside, used
                write(args.out, [[*key, method, *found]])
            if args.alone or all((*key, peer) in have for peer in PEERS):
                continue
            parts = X[train], y[train], X[test], offset[train], offset[test]
            for peer, (mean, _, _, used) in glmnet(family, *parts).items():
                found = deviance(family, y[test], mean), np.nan, np.nan, used
                write(args.out, [[*key, peer, *found]])


ORDERED = {
    "wvs": ("carData_WVS.csv", "poverty", [], ["Too Little", "About Right", "Too Much"]),
    "wine": ("ordinal_wine.csv", "rating", ["response"], [1, 2, 3, 4, 5]),
}


def run_ordered(args):
    """Rows: table, seed, fold, method, log loss, accuracy, nothing, CPU seconds."""
    for name in args.only or ORDERED:
        file, target, drop, levels = ORDERED[name]
        frame = pd.read_csv(TABLES / file).drop(columns=["rownames", *drop]).dropna()
        y = frame.pop(target).to_numpy()
        frame = frame.astype({c: str for c in ("bottle", "judge") if c in frame})
        X = pd.get_dummies(frame, drop_first=True).to_numpy(float)
        folds = StratifiedKFold(5, shuffle=True, random_state=args.seed).split(X, y)
        for fold, (train, test) in enumerate(folds):
            models = {
                "ordered": SoUOrdinalRegression(levels=levels),
                "unordered": SoULogisticRegression(),
            }
            for method, model in models.items():
                key = name, str(args.seed), str(fold), method
                if key in done(args.out):
                    continue
                begin = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model.fit(X[train], y[train])
                used = time.process_time() - begin
                chance = model.predict_proba(X[test])
                place = {label: i for i, label in enumerate(model.classes_.tolist())}
                rows = chance[np.arange(len(test)), [place[label] for label in y[test].tolist()]]
                found = -np.log(rows).mean(), model.score(X[test], y[test]), np.nan, used
                write(args.out, [[*key, *found]])


DESIGNS = {
    "n=300 p=100": (300, 100, 0.0),
    "n=150 p=1000": (150, 1000, 0.0),
    "AR(.7)": (300, 100, 0.7),
}


def simulate(family, design, seed):
    """X, y and the coefficients: 10 signals of either sign."""
    n, p, rho = DESIGNS[design]
    rng = np.random.default_rng([seed, n, p, int(10 * rho)])
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
    coef = np.zeros(p)
    coef[rng.choice(p, 10, replace=False)] = rng.uniform(0.2, 0.5, 10) * rng.choice([-1, 1], 10)
    mean = np.exp(1.0 + X @ coef)
    if family == "student":
        return X, X @ coef + 0.5 * rng.standard_t(3, n), coef
    if family == "poisson":
        return X, rng.poisson(mean), coef
    if family == "negative binomial":
        return X, rng.poisson(mean * rng.gamma(2.0, 0.5, n)), coef
    return X, rng.gamma(2.0, mean / 2.0), coef


def f1(found, coef):
    right = np.sum(found & (coef != 0.0))
    return float(2.0 * right / max(found.sum() + np.sum(coef != 0.0), 1))


def other_peers(family, X, y):
    """Coefficients and CPU seconds of abess (both of its rules) and adelie, where installed."""
    found = {}
    try:
        import abess
    except ImportError:
        abess = None
    make = {"gamma": "GammaRegression", "student": "LinearRegression"}.get(
        family, "PoissonRegression"
    )
    for name, how in (("abess", {}), ("abess cv", {"cv": 5})) if abess else ():
        begin = time.process_time()
        fit = getattr(abess, make)(support_size=range(31), **how).fit(X, y)
        found[name] = fit.coef_, time.process_time() - begin
    try:
        import adelie
    except ImportError:
        return found
    glm = {"student": adelie.glm.gaussian, "gamma": None}.get(family, adelie.glm.poisson)
    if glm is not None:  # it has no gamma family
        begin, X = time.process_time(), np.asfortranarray(X)
        fit = adelie.cv_grpnet(X, glm(np.asarray(y, float)), seed=1, progress_bar=False)
        beta = fit.fit(X, glm(np.asarray(y, float)), progress_bar=False).betas[-1]
        found["adelie"] = beta.toarray().ravel(), time.process_time() - begin
    return found


def run_simulated(args):
    """Rows: design, seed, family, method, F1, coverage of all and of kept signals, seconds."""
    for seed in range(args.seed, args.seed + args.seeds):
        for family in ("poisson", "negative binomial", "gamma", "student"):
            for design in DESIGNS:
                key, have = (design, str(seed), family), done(args.out)
                X, y, coef = simulate(family, design, seed)
                model = {
                    "poisson": SoUPoissonRegression(),
                    "negative binomial": SoUNegativeBinomialRegression(),
                    "gamma": SoUGammaRegression(),
                    "student": SoULinearRegression(noise="student"),
                }[family]
                if (*key, "SoU") not in have:
                    begin = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        model.fit(X, y)
                    used = time.process_time() - begin
                    table = model.summary()
                    inside = (table["lower"] <= coef) & (coef <= table["upper"])
                    kept = model.selected_ & (coef != 0.0)
                    found = f1(model.selected_, coef), inside.mean(), inside[kept].mean(), used
                    write(args.out, [[*key, "SoU", *found]])
                if (*key, "lasso") in have or args.alone:
                    continue
                zero = np.zeros(len(y))
                name = {"gamma": "gamma", "student": "gaussian"}.get(family, "poisson")
                for peer, (beta, used) in other_peers(family, X, y).items():
                    row = f1(beta != 0.0, coef), np.nan, np.nan, used
                    write(args.out, [[*key, peer, *row]])
                for peer, (_, beta, sparse, used) in glmnet(name, X, y, X, zero, zero).items():
                    for how, b in (("", beta), (" 1se", sparse)):
                        row = f1(b != 0.0, coef), np.nan, np.nan, used
                        write(args.out, [[*key, peer + how, *row]])


def report(args):
    """Mean log ratios to every peer, and means of simulated columns."""
    for path in args.files:
        frame = pd.read_csv(path, header=None)
        if str(frame[0][0]) in DESIGNS:
            frame.columns = ["design", "seed", "family", "method", "F1", "all", "kept", "seconds"]
            found = frame.groupby(["family", "design", "method"])[["F1", "all", "kept", "seconds"]]
            print(found.mean().round(3).to_string())
            continue
        names = ["table", "seed", "fold", "method", "deviance", "density", "coverage", "seconds"]
        frame.columns = names
        if str(frame["table"][0]) in ORDERED:
            names[4:6] = "log loss", "accuracy"
            frame.columns = names
            print(frame.groupby(["table", "method"])[[*names[4:6], "seconds"]].mean())
            continue
        mean = frame.groupby(["table", "method"])[names[4:]].mean().unstack()
        print(mean.round(4).to_string())
        log = np.log(mean["deviance"])
        for kind, tables in (("counts", COUNTS), ("positive", POSITIVE)):
            here = log.loc[[t for t in tables if t in log.index]].dropna(axis=1, how="all")
            peers = here[list(PEERS)]
            for own in [c for c in here if c.startswith("SoU")]:
                best = peers.mean().idxmin()
                over = (here[own] - peers[best]).mean()
                worst = (here[own] - peers.min(axis=1)).round(4).to_dict()
                print(f"{kind}: {own} to {best} {over:+.4f}; to the best of each table {worst}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(required=True)
    for name, work in (
        ("tables", run_tables),
        ("ordered", run_ordered),
        ("simulated", run_simulated),
    ):
        part = parts.add_parser(name)
        part.add_argument("--seed", type=int, default=0)
        part.add_argument("--seeds", type=int, default=10)
        part.add_argument("--only", nargs="*")
        part.add_argument("--alone", action="store_true", help="without the peers")
        part.add_argument("--out", type=Path, required=True)
        part.set_defaults(work=work)
    part = parts.add_parser("report")
    part.add_argument("files", nargs="+", type=Path)
    part.set_defaults(work=report)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
