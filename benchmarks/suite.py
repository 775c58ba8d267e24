"""Everything beside everyone: writes docs/development/benchmarks.md.

    python benchmarks/suite.py                      # what `make bench` runs: some minutes
    python benchmarks/suite.py --page               # only the page, from the rows there are
    python benchmarks/suite.py --methods default LassoCV

A row is one method on one design, in a process of its own with one thread: medians over data sets
of new seeds. Rows are kept in --out as they finish and not computed again. A method that does not
install, fails, or takes longer than the budget is a row that says so.
"""

import argparse
import datetime
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import log_loss

import scaling
import wide
from measure import HERE, Saved, fresh, machine, versions, watch
from soubayes.datasets import Regression, correlated_design, experiment1, wide_design

SEEDS = range(2000, 2005)
BUDGET = 120.0  # seconds of a method on all data sets of a design
LEVEL = 0.9
OURS = "default"
PAGE = HERE.parent / "docs" / "development" / "benchmarks.md"


class Found(NamedTuple):
    """What a method says: coefficients (None: it has none), their intervals, probabilities."""

    coef: np.ndarray | None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    predict: Callable[[np.ndarray], np.ndarray] | None = None  # mean, or P(y = 1)
    kept: np.ndarray | None = None  # support, where it is not coef != 0


DESIGNS: dict[str, tuple[str, Callable[[int], Regression]]] = {
    "105 x 100, 20 signals": ("linear", lambda s: experiment1(105, 100, 20, random_state=s)),
    "105 x 100, AR(0.7), 20 signals": ("linear", lambda s: correlated_design(random_state=s)),
    "100 x 200, 10 signals": ("linear", lambda s: wide_design(random_state=s)),
    "405 x 400, 50 signals": ("linear", lambda s: experiment1(405, 400, 50, random_state=s)),
    "logistic 400 x 100, 10 signals": ("logistic", lambda s: logistic_design(s)),
}


def logistic_design(seed: int, n: int = 400, p: int = 100) -> Regression:
    """N(0, 1) columns, ten coefficients of size 1 or less."""
    rng = np.random.default_rng(seed)
    X, coef = rng.standard_normal((n, p)), np.zeros(p)
    coef[:10] = np.linspace(0.4, 1.0, 10) * np.where(np.arange(10) % 2, -1.0, 1.0)
    return Regression(X, (X @ coef + rng.logistic(size=n) > 0).astype(int), coef)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS))
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "suite.jsonl")
    given = parser.parse_args()
    saved = Saved(given.out)
    for design in given.designs if not given.page else []:
        for method in METHODS[DESIGNS[design][0]]:
            key = {"design": design, "method": method}
            if (given.methods and method not in given.methods) or saved.find(**key):
                continue
            print(saved.add(key | fresh("suite:run", given.budget, 1, **key)), flush=True)
    PAGE.write_text(page(saved.rows))


def run(design: str, method: str) -> dict[str, Any]:
    """One method on all data sets of a design, in this process."""
    warnings.simplefilter("ignore")
    kind, make = DESIGNS[design]
    work = METHODS[kind][method]
    work(small(kind))  # imports and compilation; small, so memory still has to rise
    rows = []
    for seed in SEEDS:
        data = make(seed)
        test = new_rows(kind, make(seed + 10**6).X, data.coef, seed)
        row: dict[str, Any] = {}
        with watch(row):
            found = work(data)
        rows.append(row | quality(kind, data, test, found))
    for row in rows:  # what the first fit allocated stays with the process: the largest rise is it
        row["peak_mb"] = max(other["peak_mb"] for other in rows)
    names = set.intersection(*(set(row) for row in rows))
    return {name: float(np.median([row[name] for row in rows])) for name in names}


def small(kind: str) -> Regression:
    """A data set that is not reported."""
    if kind == "logistic":
        return logistic_design(0, 60, 12)
    return experiment1(25, 12, 3, random_state=0)


def new_rows(kind: str, X: np.ndarray, coef: np.ndarray, seed: int) -> Regression:
    """Rows of the same kind whose y follows these coefficients."""
    rng = np.random.default_rng([1, seed])
    if kind == "linear":
        return Regression(X, X @ coef + rng.standard_normal(len(X)), coef)
    return Regression(X, (X @ coef + rng.logistic(size=len(X)) > 0).astype(int), coef)


def quality(kind: str, data: Regression, test: Regression, found: Found) -> dict[str, float]:
    truth, row = data.support, {}
    if found.coef is not None:
        kept = found.coef != 0 if found.kept is None else found.kept
        row["f1"] = float(2 * np.sum(kept & truth) / max(np.sum(kept) + np.sum(truth), 1))
        row["kept"] = float(kept.sum())
    if found.low is not None and found.high is not None:
        inside = (found.low <= data.coef) & (data.coef <= found.high)
        row["coverage"] = float(inside[truth].mean())
    assert found.predict is not None
    if kind == "linear":
        row["error"] = float(np.sqrt(np.mean((found.predict(test.X) - test.y) ** 2)))
    else:
        row["error"] = float(log_loss(test.y, np.clip(found.predict(test.X), 1e-9, 1 - 1e-9)))
    return row


def linear_fit(model: Any, data: Regression) -> Found:
    from linear import coefficients

    model.fit(data.X, data.y)
    return Found(coefficients(model), predict=model.predict)


def ours(data: Regression) -> Found:
    from soubayes import SoULinearRegression

    return own_fit(SoULinearRegression(), data)


def ours_path(data: Regression) -> Found:
    from soubayes import SoULinearRegression

    return own_fit(SoULinearRegression(choice="path"), data)


def own_fit(model: Any, data: Regression) -> Found:
    """Coefficients and support are those that the estimator reports."""
    model.fit(data.X, data.y)
    table, kept = model.summary(LEVEL), np.ravel(model.selected_)
    predict = model.predict
    if hasattr(model, "predict_proba"):
        predict = lambda X: model.predict_proba(X)[:, 1]  # noqa: E731
    return Found(np.ravel(model.coef_), table["lower"].values, table["upper"].values, predict, kept)


def lasso(data: Regression) -> Found:
    from sklearn.linear_model import LassoCV

    return linear_fit(LassoCV(), data)


def elastic_net(data: Regression) -> Found:
    from sklearn.linear_model import ElasticNetCV

    return linear_fit(ElasticNetCV(l1_ratio=[0.1, 0.5, 0.9, 1.0]), data)


def normal_intervals(model: Any, data: Regression) -> Found:
    """scikit-learn's Bayesian regressions: sigma_ is the covariance of the kept coefficients."""
    found, sd = linear_fit(model, data), np.zeros(data.X.shape[1])
    kept = getattr(model, "lambda_", 0.0) * np.ones(len(sd)) < getattr(
        model, "threshold_lambda", np.inf
    )
    sd[kept] = np.sqrt(np.diag(np.atleast_2d(model.sigma_)))[: int(kept.sum())]
    return found._replace(low=found.coef - 1.645 * sd, high=found.coef + 1.645 * sd)


def ard(data: Regression) -> Found:
    from sklearn.linear_model import ARDRegression

    return normal_intervals(ARDRegression(), data)


def bayesian_ridge(data: Regression) -> Found:
    from sklearn.linear_model import BayesianRidge

    return normal_intervals(BayesianRidge(), data)


def abess(data: Regression) -> Found:
    from linear import best_subset

    model = best_subset().fit(data.X, data.y)
    return Found(np.ravel(model.coef_), predict=model.predict)


def skglm_l1(data: Regression) -> Found:
    from skglm import Lasso
    from sklearn.model_selection import GridSearchCV

    return linear_fit(GridSearchCV(Lasso(), penalties(data), cv=5), data)


def skglm_mcp(data: Regression) -> Found:
    from linear import minimax_concave

    return linear_fit(minimax_concave(data), data)


def penalties(data: Regression) -> dict[str, np.ndarray]:
    largest = np.max(np.abs(data.X.T @ (data.y - data.y.mean()))) / len(data.y)
    return {"alpha": np.geomspace(largest, largest / 1000, 20)}


def fastrvm_regression(data: Regression) -> Found:
    return _sparse_bayes(data, "Gaussian", lambda eta: eta)


def _sparse_bayes(data: Regression, likelihood: str, link: Callable) -> Found:
    """The sparse Bayesian learning of fastrvm with the columns as its basis functions.

    Its estimators use kernels of the rows, which select rows; its solver takes any basis.
    """
    from fastrvm._sparsebayes_bindings import Likelihood, SparseBayes

    solver = SparseBayes(getattr(Likelihood, likelihood), 10_000, True)
    fit = solver.inference(data.X, data.y.astype(float))
    coef, sd = np.zeros(data.X.shape[1] + 1), np.zeros(data.X.shape[1] + 1)
    place = np.ravel(fit["relevant_idx"]).astype(int)
    coef[place], sd[place] = np.ravel(fit["mean"]), np.sqrt(np.diag(fit["covariance"]))
    level, coef, sd = coef[-1], coef[:-1], sd[:-1]
    return Found(coef, coef - 1.645 * sd, coef + 1.645 * sd, lambda X: link(X @ coef + level))


def from_draws(draws: np.ndarray, intercept: Any, link: Callable = lambda eta: eta) -> Found:
    """Posterior draws (draws, p): means, quantiles; no support of its own."""
    coef, (low, high) = draws.mean(axis=0), np.quantile(draws, [0.05, 0.95], axis=0)
    excludes = (low > 0) | (high < 0)

    def predict(X: np.ndarray) -> np.ndarray:
        return link(X @ draws.T + intercept).mean(axis=1)

    return Found(coef, low, high, predict, excludes)


def gibbs(data: Regression) -> Found:
    from soubayes import horseshoe_gibbs

    centre, level = data.X.mean(axis=0), data.y.mean()
    fit = horseshoe_gibbs(data.X - centre, data.y - level, draws=1000, chains=1, random_state=0)
    draws = fit.posterior["coef"].values.reshape(-1, data.X.shape[1])
    return from_draws(draws, level - draws @ centre)


def classifier(model: Any, data: Regression) -> Found:
    model.fit(data.X, data.y)
    best = getattr(model, "best_estimator_", model)
    return Found(np.ravel(best.coef_), predict=lambda X: model.predict_proba(X)[:, 1])


def ours_logistic(data: Regression) -> Found:
    from soubayes import SoULogisticRegression

    return own_fit(SoULogisticRegression(), data)


def ours_logistic_path(data: Regression) -> Found:
    from soubayes import SoULogisticRegression

    return own_fit(SoULogisticRegression(choice="path"), data)


def logistic_none(data: Regression) -> Found:
    from sklearn.linear_model import LogisticRegression

    return classifier(LogisticRegression(C=np.inf, max_iter=1000), data)


def logistic_l1(data: Regression) -> Found:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    model = LogisticRegression(l1_ratio=1.0, C=1.0, solver="liblinear", max_iter=1000)
    grid = {"C": np.logspace(-2, 1, 10)}
    return classifier(GridSearchCV(model, grid, scoring="neg_log_loss", cv=5), data)


def abess_logistic(data: Regression) -> Found:
    from abess import LogisticRegression

    return classifier(LogisticRegression(), data)


def fastrvm_classification(data: Regression) -> Found:
    from scipy.special import expit

    return _sparse_bayes(data, "Bernoulli", expit)


METHODS: dict[str, dict[str, Callable[[Regression], Found]]] = {
    "linear": {
        OURS: ours,
        '`choice="path"`': ours_path,
        "LassoCV": lasso,
        "ElasticNetCV": elastic_net,
        "ARDRegression": ard,
        "BayesianRidge": bayesian_ridge,
        "abess": abess,
        "skglm L1, CV": skglm_l1,
        "skglm MCP, CV": skglm_mcp,
        "fastrvm": fastrvm_regression,
        "horseshoe, Gibbs, 1,000 draws": gibbs,
    },
    "logistic": {
        OURS: ours_logistic,
        '`choice="path"`': ours_logistic_path,
        "LogisticRegression, none": logistic_none,
        "LogisticRegression, L1, CV": logistic_l1,
        "abess": abess_logistic,
        "fastrvm": fastrvm_classification,
    },
}


def page(rows: list[dict[str, Any]]) -> str:
    """docs/development/benchmarks.md."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` (`benchmarks/suite.py`, `scaling.py`, `wide.py`). Every method on",
        "every design is a process of its own with one thread. Numbers are medians over",
        f"{len(SEEDS)} data sets (seeds from {SEEDS[0]}), after one fit on a small data set that",
        'takes imports and compilation. `default` and `choice="path"` are `SoULinearRegression`',
        "and `SoULogisticRegression`.",
        "",
        "- Error: RMSE of new observations with unit noise (logistic: log loss).",
        "- F1: of the support. The horseshoe keeps columns whose 90 % interval excludes 0.",
        "- Coverage: of 90 % intervals of the true signals; an interval of [0, 0] misses.",
        "- CPU s, ratio: CPU seconds, and those of the method divided by those of `default`.",
        "- MB: how far the memory of the process rose above the loaded data.",
        "",
        "abess searches all sizes of support, for p > n those up to n/(log log n log p).",
        "",
        *[f"- {name}: {value}" for name, value in about().items()],
    ]
    for design, (kind, _) in DESIGNS.items():
        lines += ["", f"## {design}", ""]
        error = "RMSE" if kind == "linear" else "log loss"
        lines += [
            f"| method | {error} | F1 | kept | coverage | CPU s | ratio | MB |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        here = {row["method"]: row for row in rows if row["design"] == design}
        lines += [line(here, method) for method in METHODS[kind]]
        lines += ["", losses(here, METHODS[kind], error)]
    for title, module in (("Rows", scaling), ("Columns, 500 rows", wide)):
        rows = Saved(HERE / "results" / f"{module.__name__}.jsonl").rows
        lines += ["", f"## {title}", "", *module.HEAD, *map(module.line, rows)]
    return "\n".join(lines) + "\n"


def line(here: dict[str, dict[str, Any]], method: str) -> str:
    row, base = here.get(method), here.get(OURS, {})
    if row is None or row["status"] != "ok":
        said = "not run" if row is None else row["status"].replace("|", "/")
        said = said.replace("over", "did not finish in", 1) if said.startswith("over") else said
        return f"| {method} | {said} | | | | | | |"
    cells = [
        number(row, "error", 3),
        number(row, "f1", 2),
        number(row, "kept", 0),
        number(row, "coverage", 2),
        number(row, "cpu", 3),
        f"{row['cpu'] / base['cpu']:.2f}" if "cpu" in base else "",
        number(row, "peak_mb", 1),
    ]
    return f"| {method} | " + " | ".join(cells) + " |"


def number(row: dict[str, Any], name: str, digits: int) -> str:
    return f"{row[name]:.{digits}f}" if name in row else ""


def losses(here: dict[str, dict[str, Any]], methods: Any, error: str) -> str:
    """Where the default loses, in one sentence for each measure."""
    base = here.get(OURS, {})
    if base.get("status") != "ok":
        return "The default was not measured here."
    parts = []
    for name, title, sign in (("error", error, 1), ("f1", "F1", -1), ("cpu", "time", 1)):
        better = [
            method
            for method in methods
            if sign * here.get(method, {}).get(name, sign * np.inf) < sign * base[name]
        ]
        parts.append(f"{title}: {', '.join(better) if better else 'none'}")
    return "Better than the default in " + "; in ".join(parts) + "."


def about() -> dict[str, str]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE
    ).stdout.strip()
    packages = versions("soubayes", "numpy", "scipy", "scikit-learn", "abess", "skglm", "fastrvm")
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit or "unknown",
        **machine(),
        "load": f"{os.getloadavg()[1]:.1f} processes over the last minutes when this was written",
        "versions": ", ".join(f"{name} {value}" for name, value in packages.items()),
    }


if __name__ == "__main__":
    sys.exit(main())
