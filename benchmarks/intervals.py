"""Intervals for a sparse regression: do they cover, how wide are they, what do they call an effect?

    python benchmarks/intervals.py [tall | wide] [--sets 50] [--first 70000] [--methods NAME ...]

``tall`` has 200 rows and 100 columns, ``wide`` 100 rows and 200 columns; neighbouring columns have
correlation 0.5, the noise has variance 1, and ten columns at random places have the effects 1, 0.5,
0.3 and 0.2 with either sign. Peers: least squares on all columns (tall only); least squares on the
columns that the cross-validated lasso kept, as if they had been known; percentiles of 100
bootstrap fits of the lasso; the horseshoe by Gibbs sampling; cv.glmnet at lambda.1se (R; no
intervals), and hidimstat's desparsified lasso, both where they are installed. All intervals are
central, of level 0.9. Nothing was chosen on these seeds.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.linear_model import Lasso, LassoCV, LinearRegression

from soubayes import SoULinearRegression, horseshoe_gibbs

DESIGNS = {"tall": (200, 100), "wide": (100, 200)}
SIZES = (1.0, 1.0, 0.5, 0.5, 0.5, 0.3, 0.3, 0.3, 0.2, 0.2)
NEW, TAILS = 1000, (0.05, 0.95)
GLMNET = r"""
suppressMessages(library(glmnet))
a <- commandArgs(TRUE); n <- as.integer(a[2]); p <- as.integer(a[3])
z <- readBin(a[1], "double", n * p + n)
set.seed(1); f <- cv.glmnet(matrix(z[1:(n * p)], n, p), z[(n * p + 1):(n * p + n)])
cat(as.vector(coef(f, s = "lambda.1se")))
"""


class Found(NamedTuple):
    """Coefficients, their intervals, and predictions of new rows with intervals, where given."""

    coef: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    mean: np.ndarray | None = None
    new: np.ndarray | None = None  # (rows, 2)


Data = tuple[np.ndarray, np.ndarray, np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("design", choices=DESIGNS)
    parser.add_argument("--sets", type=int, default=50)
    parser.add_argument("--first", type=int, default=70_000)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    given = parser.parse_args()
    rows = []
    for seed in range(given.first, given.first + given.sets):
        data, coef, truth = simulate(given.design, seed)
        for name, method in ((name, METHODS[name]) for name in given.methods):
            begun = sum(os.times()[:4])  # with children: R
            found = method(data)
            if found is not None:
                took = sum(os.times()[:4]) - begun
                rows.append({"method": name} | measures(found, coef, truth, data) | {"cpu": took})
    table = pd.DataFrame(rows).groupby("method", sort=False).mean()
    print(f"{given.design}: {given.sets} data sets from seed {given.first}")
    print(table.round(3).to_string())


def simulate(design: str, seed: int) -> tuple[Data, np.ndarray, np.ndarray]:
    """(X, y, new rows), the true coefficients, and the new responses."""
    n, p = DESIGNS[design]
    rng = np.random.default_rng([70, seed])
    X = rng.standard_normal((n + NEW, p))
    for j in range(1, p):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    coef = np.zeros(p)
    coef[rng.choice(p, len(SIZES), replace=False)] = SIZES * rng.choice([-1.0, 1.0], len(SIZES))
    y = X @ coef + rng.standard_normal(n + NEW)
    return (X[:n], y[:n], X[n:]), coef, y[n:]


def measures(found: Found, coef: np.ndarray, truth: np.ndarray, data: Data) -> dict[str, float]:
    """Coverage by size of the effect, width, columns called effects, and prediction."""
    size, null = np.abs(coef), coef == 0.0
    kept = found.coef != 0.0
    result = {"kept": kept.sum(), "null kept": kept[null].sum()}
    if found.low is not None and found.high is not None:
        inside = (found.low - 1e-12 <= coef) & (coef <= found.high + 1e-12)
        called = (found.low > 0.0) | (found.high < 0.0)
        result |= {"cover all": inside.mean(), "cover null": inside[null].mean()}
        result |= {f"cover {s}": inside[size == s].mean() for s in (0.2, 0.3, 0.5, 1.0)}
        result |= {
            "width": (found.high - found.low).mean(),
            "width of effects": (found.high - found.low)[~null].mean(),
            "effects called": called[~null].sum(),
            "null called": called[null].sum(),
        }
    if found.mean is not None:
        result["rmse"] = np.sqrt(np.mean((truth - found.mean) ** 2))
    if found.new is not None:
        low, high = found.new.T
        result |= {
            "cover new": np.mean((low <= truth) & (truth <= high)),
            "width new": np.mean(high - low),
        }
    return {name: float(value) for name, value in result.items()}


def soubayes(data: Data) -> Found:
    X, y, new = data
    model = SoULinearRegression(random_state=0).fit(X, y)
    table = model.summary(level=0.9)
    coef = np.where(model.selected_, table["estimate"], 0.0)
    ends = model.predict(new, quantiles=list(TAILS))
    return Found(coef, *table[["lower", "upper"]].to_numpy().T, model.predict(new), ends)


def soubayes_frequentist(data: Data) -> Found:
    X, y, _ = data
    model = SoULinearRegression(choice="path").fit(X, y)
    table = model.summary(level=0.9, intervals="frequentist")
    return Found(model.coef_, *table[["lower", "upper"]].to_numpy().T)


def soubayes_supports(data: Data) -> Found:
    X, y, new = data
    model = SoULinearRegression(choice="path", inclusion=True, random_state=0).fit(X, y)
    low, high = model.supports_.posteriors[0].quantiles(np.array(TAILS))
    ends = model.predict(new, quantiles=list(TAILS))
    return Found(model.coef_, low, high, model.predict(new), ends)


def least_squares(data: Data) -> Found | None:
    X, *_ = data
    return None if len(X) <= X.shape[1] + 1 else refitted(data, np.arange(X.shape[1]))


def lasso_refitted(data: Data) -> Found:
    X, y, _ = data
    return refitted(data, np.flatnonzero(LassoCV(cv=10, max_iter=50_000).fit(X, y).coef_))


def refitted(data: Data, columns: np.ndarray) -> Found:
    """Least squares on some columns, with t intervals that take them as given."""
    X, y, new = data
    (n, p), k = X.shape, len(columns)
    columns = columns[: n - 2]
    fit = LinearRegression().fit(X[:, columns], y)
    df = n - len(columns) - 1
    variance = np.sum((y - fit.predict(X[:, columns])) ** 2) / df
    centred = X[:, columns] - X[:, columns].mean(axis=0)
    inverse = np.linalg.inv(centred.T @ centred) if k else np.zeros((0, 0))
    half = stats.t.ppf(TAILS[1], df) * np.sqrt(variance * np.diag(inverse))
    coef, low, high = np.zeros(p), np.zeros(p), np.zeros(p)
    coef[columns] = fit.coef_
    low[columns], high[columns] = fit.coef_ - half, fit.coef_ + half
    away = new[:, columns] - X[:, columns].mean(axis=0)
    spread = np.sqrt(variance * (1 + 1 / n + np.einsum("ij,jk,ik->i", away, inverse, away)))
    mean, wide = fit.predict(new[:, columns]), stats.t.ppf(TAILS[1], df) * spread
    return Found(coef, low, high, mean, np.column_stack([mean - wide, mean + wide]))


def lasso_bootstrap(data: Data) -> Found:
    X, y, new = data
    first = LassoCV(cv=10, max_iter=50_000).fit(X, y)
    rng, draws = np.random.default_rng(0), []
    for _ in range(100):
        rows = rng.integers(0, len(y), len(y))
        draws.append(Lasso(alpha=first.alpha_, max_iter=50_000).fit(X[rows], y[rows]).coef_)
    return Found(first.coef_, *np.quantile(draws, TAILS, axis=0), first.predict(new))


def horseshoe(data: Data) -> Found:
    X, y, new = data
    centre, middle, rng = X.mean(axis=0), y.mean(), np.random.default_rng(0)
    drawn = horseshoe_gibbs(X - centre, y - middle, draws=500, warmup=500, chains=2, random_state=0)
    coef = drawn.posterior["coef"].values.reshape(-1, X.shape[1])
    noise = np.sqrt(drawn.posterior["noise_variance"].values.reshape(-1))
    fitted = (new - centre) @ coef.T + middle
    ends = np.quantile(fitted + noise * rng.standard_normal(fitted.shape), TAILS, axis=1).T
    low, high = np.quantile(coef, TAILS, axis=0)
    return Found(coef.mean(axis=0), low, high, fitted.mean(axis=1), ends)


def glmnet(data: Data) -> Found | None:
    X, y, new = data
    if not shutil.which("Rscript"):
        return None
    with tempfile.NamedTemporaryFile() as file:
        np.concatenate([X.ravel(order="F"), y]).tofile(file.name)
        command = ["Rscript", "-e", GLMNET, file.name, *map(str, X.shape)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    fitted = np.array(done.stdout.split(), dtype=float)
    return Found(fitted[1:], mean=fitted[0] + new @ fitted[1:])


def desparsified(data: Data) -> Found | None:
    try:
        from hidimstat import DesparsifiedLasso
    except ImportError:
        return None
    X, y, _ = data
    fit = DesparsifiedLasso(LassoCV(cv=10, max_iter=50_000), random_state=0, confidence=0.9)
    fit.fit_importance(X, y)
    return Found(fit.importances_, fit.confidence_bound_min_, fit.confidence_bound_max_)


METHODS: dict[str, Callable[[Data], Found | None]] = {
    "soubayes": soubayes,
    "soubayes, frequentist": soubayes_frequentist,
    "soubayes, inclusion=True": soubayes_supports,
    "least squares": least_squares,
    "lasso, then least squares": lasso_refitted,
    "lasso, bootstrap": lasso_bootstrap,
    "desparsified lasso": desparsified,
    "horseshoe": horseshoe,
    "cv.glmnet, lambda.1se": glmnet,
}


if __name__ == "__main__":
    main()
