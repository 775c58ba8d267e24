"""Predictions with terms beside boosting, forests and cross-validated Lasso on everyday tables.

Rows are kept in a file, so a run that was stopped goes on. Peers whose library is absent are left
out, and may be run from another environment: all methods see the same folds.

    python benchmarks/terms.py run DATA ROWS [--methods straight,curves,pairs] [--tables a,b]
    python benchmarks/terms.py report ROWS

DATA holds tables, curves and uci. Nothing is tuned by hand: `curves` and `pairs` are the defaults
with ``terms``.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, StratifiedKFold

FOLDS = 5
NUMBERS = {
    "ISLR_Auto": ("mpg", ["name"], None),
    "ISLR_Carseats": ("Sales", [], None),
    "ISLR_Credit": ("Balance", ["ID"], None),
    "Ecdat_Hedonic": ("mv", [], None),
    "modeldata_chem_proc_yield": ("yield", [], None),
    "AER_HousePrices": ("price", [], np.log),
    "modeldata_car_prices": ("Price", [], np.log),
}
CLASSES = {
    "ISLR_OJ": ("Purchase", []),
    "DAAG_spam7": ("yesno", []),
    "carData_Arrests": ("released", []),
    "banknote_authentication": (-1, []),
    "haberman": (-1, []),
    "breast-cancer": (-1, []),
    "horse-colic": (23, []),
    "palmerpenguins_penguins": ("species", []),
    "carData_BEPS": ("vote", []),
    "wheat-seeds": (-1, []),
    "new-thyroid": (-1, []),
}
ARRAYS = {
    "curves": ("airfoil", "autompg", "forest", "machine", "servo", "solar"),
    "uci": ("boston", "concrete", "energy", "yacht"),
}
OURS = {"straight": None, "curves": "curves", "pairs": "pairs"}
PEERS = ("hgb", "lightgbm", "forest", "lasso", "ebm")


def tables(root):
    """Name, X as a data frame, y, whether y is a class, and the folds."""
    for name, (target, drop, change) in NUMBERS.items():
        frame = pd.read_csv(root / "tables" / f"{name}.csv").drop(columns=["rownames", *drop])
        y = frame.pop(target).to_numpy(float)
        yield name, frame, change(y) if change else y, False, None
    for name, (target, drop) in CLASSES.items():
        given = target if isinstance(target, str) else None
        frame = pd.read_csv(
            root / "tables" / f"{name}.csv", header=0 if given else None, na_values="?",
            quotechar="'" if name == "breast-cancer" else '"',
        )  # fmt: skip
        frame.columns = [str(c) for c in frame.columns]
        frame = frame.drop(columns=[c for c in ("rownames", *drop) if c in frame])
        column = given or frame.columns[target]
        frame = frame[frame[column].notna()].reset_index(drop=True)
        yield name, frame.drop(columns=column), frame[column].astype(str).to_numpy(), True, None
    for folder, names in ARRAYS.items():
        for name in names:
            with np.load(root / folder / f"{name}.npz") as file:
                X, y = file["X"].astype(float), file["y"].astype(float).ravel()
                if "test" in file:
                    tests = [np.flatnonzero(mask) for mask in file["test"][:FOLDS]]
                else:
                    tests = [file[f"test_{k}"] for k in range(FOLDS)]
            frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
            yield name, frame, y, False, tests


def splits(y, classes, tests):
    if tests is not None:
        everything = np.arange(len(y))
        return [(np.setdiff1d(everything, test), np.asarray(test)) for test in tests]
    folds = (StratifiedKFold if classes else KFold)(FOLDS, shuffle=True, random_state=0)
    return list(folds.split(np.zeros(len(y)), y))


def encoded(train, test):
    """One-hot columns and medians, for peers that need numbers."""
    both = pd.concat([train, test])
    numbers = both.select_dtypes("number")
    numbers = numbers.fillna(train[numbers.columns].median())
    text = both.drop(columns=numbers.columns).astype(object).fillna("missing")
    dummies = [pd.get_dummies(text, dtype=float)] if text.shape[1] else []
    whole = pd.concat([numbers, *dummies], axis=1).to_numpy(float)
    return whole[: len(train)], whole[len(train) :]


def fitted(method, train, y, classes):
    """A function from test rows to predictions; None: the library is absent."""
    if method in OURS:
        from soubayes import SoULinearRegression, SoULogisticRegression, TableEncoder

        kind = SoULogisticRegression if classes else SoULinearRegression
        if method == "straight":
            encoder = TableEncoder().fit(train)
            model = kind().fit(encoder.transform(train), y)
            return lambda rows: (model, encoder.transform(rows))
        model = kind(terms=OURS[method]).fit(train, y)
        return lambda rows: (model, rows)
    few = len(train) < 2_000
    if method == "hgb":
        from sklearn import ensemble as e

        kind = e.HistGradientBoostingClassifier if classes else e.HistGradientBoostingRegressor
        model = kind(random_state=0, **({"max_iter": 60} if few else {"early_stopping": True}))
    elif method == "lightgbm":
        import lightgbm as e

        kind = e.LGBMClassifier if classes else e.LGBMRegressor
        model = kind(n_estimators=60 if few else 200, verbose=-1, random_state=0, n_jobs=1)
    elif method == "forest":
        from sklearn import ensemble as e

        kind = e.RandomForestClassifier if classes else e.RandomForestRegressor
        model = kind(300, min_samples_leaf=3 if classes else 1, random_state=0)
    elif method == "lasso":
        from sklearn.linear_model import LassoCV, LogisticRegressionCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if classes:
            own = LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=2000)
        else:
            own = LassoCV(random_state=0)
        model = make_pipeline(StandardScaler(), own)
    elif method == "ebm":
        from interpret import glassbox as e

        kind = e.ExplainableBoostingClassifier if classes else e.ExplainableBoostingRegressor
        model = kind(outer_bags=3, n_jobs=1, random_state=0)

    def work(rows):
        a, b = encoded(train, rows)
        return model.fit(a, y), b

    return work


def score(model, rows, y, classes):
    if not classes:
        return float(np.sqrt(np.mean((model.predict(rows) - y) ** 2)))
    p = model.predict_proba(rows)
    place = np.searchsorted(model.classes_, y)
    return float(-np.mean(np.log(np.clip(p[np.arange(len(y)), place], 1e-6, 1.0))))


def run(args):
    path = Path(args.rows)
    known = set()
    if path.exists():
        for line in path.read_text().splitlines():
            row = json.loads(line)
            known.add((row["table"], row["fold"], row["method"]))
    methods = args.methods.split(",") if args.methods else [*OURS, *PEERS]
    for name, X, y, classes, tests in tables(Path(args.data)):
        if args.tables and name not in args.tables.split(","):
            continue
        for fold, (train, test) in enumerate(splits(y, classes, tests)):
            for method in methods:
                if (name, fold, method) in known:
                    continue
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        fit = fitted(method, X.iloc[train], y[train], classes)
                        model, rows = fit(X.iloc[test])
                        value = score(model, rows, y[test], classes)
                    except ImportError:
                        continue
                row = {"table": name, "fold": fold, "method": method, "score": value}
                row |= {"seconds": time.process_time() - start, "classes": classes}
                row |= {"rows": len(X), "columns": X.shape[1]}
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")


def report(args):
    rows = pd.DataFrame(json.loads(line) for line in Path(args.rows).read_text().splitlines())
    shape = rows.groupby("table")[["rows", "columns", "classes"]].first()
    wide = rows.pivot_table(index="table", columns="method", values="score")
    seconds = rows.pivot_table(index="table", columns="method", values="seconds")
    order = [m for m in (*OURS, *PEERS) if m in wide]
    print(shape.join(wide[order]).round(4).to_string())
    print("CPU seconds a fit:", seconds[order].mean().round(2).to_dict())
    peers = [m for m in PEERS if m in wide]
    classes = shape["classes"].astype(bool)

    def gap(one, other):
        return (one - other).where(classes, np.log(one / other))

    for method in (m for m in OURS if m in wide):
        ours, best = wide[method], wide[peers].min(axis=1)
        trees = wide[[m for m in ("ebm", "hgb", "lightgbm") if m in wide]].min(axis=1)
        print(
            f"{method}: mean gap to the better of EBM and boosting {gap(ours, trees).mean():+.4f}, "
            f"to the best peer {gap(ours, best).mean():+.4f}, worst {gap(ours, best).max():+.4f}"
        )
        if method != "straight":
            off = gap(wide[method], wide["straight"])
            print(f"  to straight: mean {off.mean():+.4f}, worst {off.max():+.4f} ({off.idxmax()})")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("data", help="the folder of the data, or the rows of a report")
    parser.add_argument("rows", nargs="?")
    parser.add_argument("--methods")
    parser.add_argument("--tables")
    args = parser.parse_args()
    if args.what == "report":
        args.rows = args.rows or args.data
        report(args)
    else:
        run(args)


if __name__ == "__main__":
    main()
