"""Random tables as they come: with outliers, and with rows that belong together.

Each kind is a function of a random generator that fits one table and checks what must hold. To add
a kind, add it to ``KINDS``.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from soubayes import SoULinearRegression, SoULogisticRegression


def outliers(rng: np.random.Generator) -> None:
    """The intervals of the default are at most 1.5 times as wide as those of the path."""
    n = int(rng.integers(30, 150))
    p = int(rng.integers(1, n // 2))
    X = rng.normal(size=(n, p)) * 10.0 ** rng.integers(-3, 4, size=p)
    if rng.random() < 0.3:
        X[rng.integers(n)] *= 5.0  # a row of high leverage
    signal = np.zeros(p)
    signal[: min(p, 3)] = rng.normal(size=min(p, 3))
    y = (X / X.std(axis=0)) @ signal + rng.normal(size=n)
    rows = rng.permutation(n)[: int(rng.choice([1, 3, 10]))]
    y[rows] = rng.choice([-1.0, 1.0], size=len(rows)) * rng.choice([10, 30, 100, 1000, 1e6])
    model = SoULinearRegression().fit(X, y)
    new = X[np.setdiff1d(np.arange(n), rows)]
    _, sd = model.predict(new, return_std=True)
    path = model.sparse_.mixtures_[0]
    centred = np.hstack([new - model._x_mean, np.ones((len(new), 1))])
    ratio = np.median(sd / np.sqrt(path.predict(centred)[1]))
    assert ratio < 1.5, f"{ratio} times the sd of the path at {n} x {p}, {len(rows)} outliers"


def groups(rng: np.random.Generator) -> None:
    """Every group is held out whole, whatever its label is, and only then predicted."""
    n, p = int(rng.integers(30, 60)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, p))
    labels = rng.integers(0, rng.integers(4, 15), size=n)
    own = rng.normal(size=labels.max() + 1)[labels]
    y = X[:, 0] + own + rng.normal(size=n)
    classify = rng.random() < 0.15
    estimator = SoULogisticRegression if classify else SoULinearRegression
    target = (y > np.median(y)).astype(int) if classify else y
    cv = int(rng.integers(2, 4)) if rng.random() < 0.5 else "auto"
    weight = rng.integers(0, 3, size=n).astype(float) if rng.random() < 0.3 else np.ones(n)
    kept = weight > 0
    if classify and min(np.bincount(target[kept], minlength=2)) < 4:
        return
    if len(np.unique(labels[kept])) < 4 or kept.sum() < 20:
        return
    model = estimator(cv=cv).fit(X, target, weight, groups=labels)
    fold = model.out_of_fold_["fold"].to_numpy()
    assert len(fold) == kept.sum()
    assert all(len(set(fold[labels[kept] == label])) == 1 for label in np.unique(labels[kept]))
    assert np.isfinite(model.coef_).all()
    named = estimator(cv=cv).fit(X, target, weight, groups=[f"g{label:03d}" for label in labels])
    np.testing.assert_array_equal(named.coef_, model.coef_)


KINDS: dict[str, Callable[[np.random.Generator], None]] = {"outliers": outliers, "groups": groups}


def run(kind: str, seed: int, count: int) -> None:
    for number in range(count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                KINDS[kind](np.random.default_rng([seed, number]))
            except Exception as error:
                error.add_note(f"table {number} of seed {seed}")
                raise


@pytest.mark.parametrize("kind", KINDS)
def test_tables(kind):
    run(kind, 0, 30)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 107))
@pytest.mark.parametrize("kind", KINDS)
def test_many_tables(kind, seed):
    run(kind, seed, 100)
