"""What the constants of the sparse engine change: every one halved and doubled.

    python benchmarks/constants.py

Development data and seeds. For numbers and classes the log ratio of the RMSE (of the mean) or the
difference of the log loss on new rows, and of the number of selected columns; for supports the
change of the inclusion probabilities. Means over the data sets, with the largest change beside.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes

from soubayes import SoUCoxRegression, SoULinearRegression, SoULogisticRegression
from soubayes.sparse import constants
from soubayes.sparse.least_squares import dial
from soubayes.sparse.least_squares.dial import LEAST_SQUARES_DIAL
from soubayes.sparse.rows.dial import ROW_DIAL
from soubayes.sparse.rows.family import RowFamily

SEEDS = range(3)
NUMBERS = (
    "GUARD RETURNS LEAST_SQUARES_DIAL LEAST_WEIGHT BEHIND ENOUGH_ROWS SOME EARLY_NATS EARLY_ERRORS "
    "SETTLED_ERROR UNEXPLAINED PATH_CHANGE N_POINTS"
)
CLASSES = (
    "LEAST_WEIGHT BEHIND SOME EARLY_NATS EARLY_ERRORS SETTLED_ROWS LITTLE_GAIN N_POINTS GAIN "
    "HOPELESS FEW_COLUMNS ROW_DIAL"
)
SEVERAL = "ROOM LATE_ROWS HOPELESS"
TIMES = "WILD SEPARATED_RANGE PIECES PER_PIECE"
SUPPORTS = "CENTRE WIDTH PULL CLAIM LEAVE SIMILAR FAINT MANY_EFFECTS SUPPORT"


def design(seed: int, n: int, p: int, signals: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) + 0.7 * rng.normal(size=(n, 1))
    beta = np.where(np.arange(p) < signals, rng.uniform(0.3, 1.0, p), 0.0)
    return X, X @ beta


def halves(X: Any, y: Any, seed: int) -> tuple[Any, ...]:
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = np.array_split(order, 2)
    return X[a], y[a], X[b], y[b]


def numbers() -> Iterator[tuple[Any, ...]]:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        for n, p, k in ((100, 50, 10), (60, 120, 8), (120, 110, 15)):
            X, eta = design(seed, 2 * n, p, k)
            yield X[:n], eta[:n] + rng.normal(size=n), X[n:], eta[n:]
        yield halves(*load_diabetes(return_X_y=True), seed)


def classes(several: bool = False) -> Iterator[tuple[Any, ...]]:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        for n, p, k in ((200, 30, 6), (80, 200, 5)):
            X, eta = design(seed, 2 * n, p, k)
            y = eta + rng.logistic(size=2 * n)
            y = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])) if several else (y > 0).astype(int)
            yield X[:n], y[:n], X[n:], y[n:]
        if not several:
            yield halves(*load_breast_cancer(return_X_y=True), seed)


def times() -> Iterator[tuple[Any, ...]]:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        for n, p, k in ((120, 30, 5), (60, 200, 4)):
            X, eta = design(seed, 2 * n, p, k)
            time = rng.exponential(np.exp(-eta))
            event = time < np.quantile(time, 0.7)
            y = np.array(list(zip(event, time, strict=True)), [("event", bool), ("time", float)])
            yield X[:n], y[:n], X[n:], y[n:]


def of_numbers(X: Any, y: Any, new: Any, truth: Any) -> tuple[float, float]:
    model = SoULinearRegression().fit(X, y)
    return 0.5 * np.log(np.mean((model.predict(new) - truth) ** 2)), model.selected_.sum()


def of_classes(X: Any, y: Any, new: Any, labels: Any) -> tuple[float, float]:
    model = SoULogisticRegression().fit(X, y)
    log_p = model.predict_log_proba(new)[np.arange(len(new)), labels]
    return -log_p.mean(), np.atleast_2d(model.selected_)[0].sum()


def of_times(X: Any, y: Any, new: Any, later: Any) -> tuple[float, float]:
    model = SoUCoxRegression().fit(X, y)
    return -model.log_score(new, later), model.selected_.sum()


def of_supports(X: Any, y: Any, new: Any, truth: Any) -> tuple[Any, float]:
    model = SoULinearRegression(choice="path", inclusion=True).fit(X, y)
    probability = model.supports_.posteriors[0].probability
    return probability, (probability > 0.5).sum()


@contextmanager
def changed(name: str, value: Any) -> Iterator[None]:
    """Every module and class that knows the constant gets this one."""
    modules = [m for key, m in sys.modules.items() if key.startswith("soubayes.sparse")]
    before: list[Any] = [(m, name, getattr(m, name)) for m in modules if name in vars(m)]
    if name == "ROW_DIAL":
        before.append((RowFamily, "dial", ROW_DIAL))
    if name == "LEAST_SQUARES_DIAL":
        before.append((dial, "RIDGE", dial.RIDGE))
    for owner, key, _ in before:
        setattr(owner, key, value[0] if key == "RIDGE" else value)
    try:
        yield
    finally:
        for owner, key, old in before:
            setattr(owner, key, old)


def trials(name: str) -> Iterator[tuple[str, Any]]:
    """A constant halved and doubled; of a dial gamma_tau of one point at a time."""
    for factor in (0.5, 2.0):
        if not name.endswith("DIAL"):
            value, least = getattr(constants, name), float(name in ("GUARD", "RETURNS"))
            new = type(value)(least + (value - least) * factor)  # factors have to exceed 1
            yield f"`{name}` = {new:.4g}", new
            continue
        points = LEAST_SQUARES_DIAL if name == "LEAST_SQUARES_DIAL" else ROW_DIAL
        for i, point in enumerate(points):
            if point.held is None:
                moved = point._replace(local=point.local * factor)
                new = (*points[:i], moved, *points[i + 1 :])
                yield f"{point.name}: gamma_tau {moved.local:.3g}", new


def _difference(a: Any, b: Any) -> float:
    return float(a - b if np.ndim(a) == 0 else np.abs(a - b).max())


def compare(names: str, of: Callable[..., Any], data: Callable[[], Any]) -> None:
    base = [of(*one) for one in data()]
    for name in names.split():
        for label, value in trials(name):
            with changed(name, value):
                results = [of(*one) for one in data()]
            pairs = list(zip(results, base, strict=True))
            off = np.array([_difference(a, b) for (a, _), (b, _) in pairs])
            columns = np.mean([a - b for (_, a), (_, b) in pairs])
            mean, largest = off.mean(), np.abs(off).max()
            print(f"| {label} | {mean:+.4f} | {largest:.4f} | {columns:+.2f} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for title, names, of, data in (
        ("numbers", NUMBERS, of_numbers, numbers),
        ("classes", CLASSES, of_classes, classes),
        ("several classes", SEVERAL, of_classes, lambda: classes(True)),
        ("times", TIMES, of_times, times),
        ("supports", SUPPORTS, of_supports, numbers),
    ):
        print(f"\n{title}\n| constant | mean | largest | columns |\n| --- | --- | --- | --- |")
        compare(names, of, data)
