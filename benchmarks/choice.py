"""Confidences chosen by prediction beside their peers on real tables, 5-fold cross-validation.

    SOUBAYES_DATA=... python benchmarks/choice.py regression rows.jsonl
    SOUBAYES_DATA=... python benchmarks/choice.py classes rows.jsonl
    SOUBAYES_DATA=... python benchmarks/choice.py designs rows.jsonl   # the paper's, no data needed
    python benchmarks/choice.py report rows.jsonl

Targets: genes of the microarray sets in $SOUBAYES_DATA/wide (drawn with a seed that no choice of a
setting has seen), classes and pairs of digits likewise, and four tables of $SOUBAYES_DATA/uci. Rows
are written as they finish, and a run goes on where it stopped. abess and skglm are peers where they
are installed (the extra ``bench``); a fit of a peer that takes longer than a minute is left out.
"""

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_digits
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNetCV,
    LassoCV,
    LogisticRegression,
    RidgeCV,
)
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from soubayes import SoULinearRegression, SoULogisticRegression, datasets

SEED = 20261119  # of the genes; settings were chosen on others
GENES = 2
MINUTE = 60
CLASSES = {"sorlie": (2, 3), "khan": (0,), "su": (2, 3), "christensen": (1, 2)}
DIGITS = ((4, 9), (5, 8), (2, 7), (0, 8))
DESIGNS: list[tuple[str, tuple[Any, ...]]] = [
    *(
        ("experiment1", (n, n - 5, s))
        for n, s in ((25, 10), (55, 10), (55, 20), (105, 10), (105, 20), (105, 50))
    ),
    *(("experiment1", (205, 200, s)) for s in (10, 50, 100)),
    *(("experiment1", (405, 400, s)) for s in (10, 50, 100, 200)),
    *(("experiment2", d) for d in ((24, 20, 10), (60, 50, 20), (120, 100, 50))),
    *(("experiment3", (share,)) for share in (0.1, 0.3, 0.5)),
]


def folder() -> Path:
    return Path(os.environ["SOUBAYES_DATA"])


def regression_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray, list]]:
    """Name, X, y and (train, test) splits."""
    for path in sorted((folder() / "wide").glob("*.npz")):
        X = np.load(path)["X"].astype(float)
        spread = X.var(axis=0)
        rng = np.random.default_rng([SEED, sum(map(ord, path.stem))])
        genes = rng.permutation(np.flatnonzero(spread > np.median(spread)))[:GENES]
        for gene in genes:
            y = X[:, gene]
            splits = list(KFold(5, shuffle=True, random_state=7).split(X))
            yield f"{path.stem} gene {gene}", np.delete(X, gene, axis=1), y, splits
    for path in sorted((folder() / "uci").glob("*.npz")):
        table = np.load(path)
        X, y = table["X"].astype(float), table["y"].astype(float)
        tests = [table[f"test_{k}"] for k in range(5)]
        splits = [(np.setdiff1d(np.arange(len(y)), test), test) for test in tests]
        yield path.stem, X, y, splits


def class_sets() -> Iterator[tuple[str, np.ndarray, np.ndarray, list]]:
    for name, numbers in CLASSES.items():
        table = np.load(folder() / "wide" / f"{name}.npz", allow_pickle=False)
        X, labels = table["X"].astype(float), table["y"]
        for number in numbers:
            y = (labels == np.unique(labels)[number]).astype(int)
            yield f"{name} class {number}", X, y, stratified(X, y)
    X, labels = load_digits(return_X_y=True)
    for a, b in DIGITS:
        keep = (labels == a) | (labels == b)
        y = (labels[keep] == b).astype(int)
        yield f"digits {a}/{b}", X[keep], y, stratified(X[keep], y)


def stratified(X: np.ndarray, y: np.ndarray) -> list:
    return list(StratifiedKFold(5, shuffle=True, random_state=7).split(X, y))


def regressors(p: int) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "chosen": SoULinearRegression,
        "path": lambda: SoULinearRegression(choice="path"),
        "LassoCV": LassoCV,
        "ElasticNetCV": lambda: ElasticNetCV(l1_ratio=[0.1, 0.5, 0.9]),
        "RidgeCV": lambda: RidgeCV(alphas=np.logspace(-3, 6, 37)),
        "BayesianRidge": BayesianRidge,
        "abess": best_subset,
        "MCP": minimax_concave,
    }
    if p <= 1500:
        found["ARD"] = ARDRegression
    return found


def best_subset() -> Any:
    from abess.linear import LinearRegression

    return LinearRegression()


def minimax_concave() -> Any:
    from skglm import MCPRegression

    return GridSearchCV(MCPRegression(), {"alpha": np.geomspace(1, 1e-3, 20)})


def classifiers(_: int) -> dict[str, Callable[[], Any]]:
    def searched(**settings: Any) -> Any:
        grid = {"C": np.logspace(-4, 2, 13)}
        return GridSearchCV(LogisticRegression(**settings), grid, scoring="neg_log_loss")

    return {
        "chosen": SoULogisticRegression,
        "path": lambda: SoULogisticRegression(choice="path"),
        "L1": lambda: searched(l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0),
        "L2": lambda: searched(max_iter=2000),
    }


def too_long(*_: Any) -> None:
    raise TimeoutError("a minute")


def run(sets: Iterator, methods: Callable, predict: Callable, out: Path) -> None:
    done = {(row["set"], row["method"], row["split"]) for row in read(out)}
    for name, X, y, splits in sets:
        for k, (train, test) in enumerate(splits):
            for method, make in methods(X.shape[1]).items():
                if (name, method, k) in done:
                    continue
                row: dict[str, Any] = {"set": name, "method": method, "split": k}
                row["shape"] = [len(train), X.shape[1]]
                start = time.process_time()
                try:
                    signal.signal(signal.SIGALRM, too_long)
                    signal.alarm(0 if method in ("chosen", "path") else MINUTE)
                    model = make_pipeline(StandardScaler(), make())
                    if method == "MCP":  # its penalty is in units of y
                        centre, scale = y[train].mean(), y[train].std()
                        model.fit(X[train], (y[train] - centre) / scale)
                        row["mean"] = (centre + scale * model.predict(X[test])).tolist()
                    else:
                        model.fit(X[train], y[train])
                        row |= predict(model, X[test], method)
                    row["truth"] = y[test].tolist()
                except Exception as error:  # one peer that fails does not end the run
                    row["error"] = f"{type(error).__name__}: {error}"[:200]
                finally:
                    signal.alarm(0)
                row["seconds"] = time.process_time() - start
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        print(name, flush=True)


def numbers(model: Any, X: np.ndarray, method: str) -> dict[str, Any]:
    if method in ("chosen", "path", "BayesianRidge", "ARD"):
        mean, sd = model.predict(X, return_std=True)
        return {"mean": mean.tolist(), "sd": sd.tolist()}
    return {"mean": np.ravel(model.predict(X)).tolist()}


def odds(model: Any, X: np.ndarray, method: str) -> dict[str, Any]:
    found = model.decision_function(X)
    return {"odds": np.ravel(found).tolist()}


def designs(out: Path, seeds: int = 20) -> None:
    """RMSE on new rows of the paper's designs, ``choice="path"`` and the default."""
    done = {(row["set"], row["seed"]) for row in read(out)}
    for seed in range(9000, 9000 + seeds):
        for name, arguments in DESIGNS:
            label = f"{name} {arguments}"
            if (label, seed) in done or (arguments[0] > 300 and seed >= 8005):
                continue
            data = getattr(datasets, name)(*arguments, random_state=seed)
            row: dict[str, Any] = {"set": label, "seed": seed}
            for choice in ("path", "prediction"):
                model = SoULinearRegression(choice=choice).fit(data.X, data.y)
                row[choice] = datasets.prediction_rmse(model.coef_, data.coef)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def read(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def report(rows: list[dict[str, Any]]) -> None:
    """Every set, then the means that the page quotes."""
    if "seed" in rows[0]:
        ratios = []
        for name in dict.fromkeys(row["set"] for row in rows):
            own = [row for row in rows if row["set"] == name]
            path, chosen = (np.mean([r[c] for r in own]) for c in ("path", "prediction"))
            ratios.append(np.log(chosen / path))
            print(f"{name:30s} {len(own):3d} path {path:.3f} chosen {chosen:.3f}")
        print(f"mean log ratio {np.mean(ratios):+.4f}")
        return
    classes = any("odds" in row for row in rows)
    peers_of = "L1" if classes else "LassoCV"
    gaps: dict[str, list[float]] = {"best": [], "first": [], "coverage": []}
    pooled: list[np.ndarray] = []
    for name in dict.fromkeys(row["set"] for row in rows):
        loss: dict[str, float] = {}
        for method in dict.fromkeys(row["method"] for row in rows if row["set"] == name):
            own = [r for r in rows if r["set"] == name and r["method"] == method]
            if any("error" in r for r in own):
                continue
            truth = np.concatenate([r["truth"] for r in own])
            if classes:
                found = np.concatenate([r["odds"] for r in own])
                loss[method] = float(np.mean(np.logaddexp(0.0, (1 - 2 * truth) * found)))
                if method == "chosen":
                    pooled.append(np.column_stack([truth, found]))
            else:
                off = truth - np.concatenate([r["mean"] for r in own])
                loss[method] = 0.5 * float(np.log(np.mean(off**2)))
                if method == "chosen":
                    sd = np.concatenate([r["sd"] for r in own])
                    gaps["coverage"].append(float(np.mean(np.abs(off) < 1.645 * sd)))
        peers = {m: x for m, x in loss.items() if m not in ("chosen", "path")}
        best = min(peers, key=lambda m: peers[m])
        gaps["best"].append(loss["chosen"] - peers[best])
        gaps["first"].append(loss["chosen"] - peers[peers_of])
        cover = "" if classes else f" coverage {gaps['coverage'][-1]:.2f}"
        each = " ".join(f"{m} {x - peers[best]:+.3f}" for m, x in loss.items())
        print(f"{name:24s} best {best:13s} {each}{cover}")
    for label, values in gaps.items():
        if values:
            print(
                f"{label}: mean {np.mean(values):+.4f} ({min(values):+.3f} to {max(values):+.3f})"
            )
    if pooled:
        y, eta = np.concatenate(pooled).T
        slope = minimize_scalar(
            lambda b: np.logaddexp(0.0, (1 - 2 * y) * b * eta).sum(), bounds=(0, 10)
        )
        print(f"calibration slope {slope.x:.2f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    what, target = sys.argv[1], Path(sys.argv[2])
    with threadpool_limits(1):
        if what == "regression":
            run(regression_sets(), regressors, numbers, target)
        elif what == "classes":
            run(class_sets(), classifiers, odds, target)
        elif what == "designs":
            designs(target)
        report(read(target))
