"""Default fits of every family, and what they gave when they were recorded.

`tests/test_pinned.py` compares the code of today with `tests/pinned.npz`. A change that moves a
fit on purpose records again with ``python tests/pinned.py``, which prints what moved and by how
much, in posterior standard deviations. ``python tests/pinned.py --kernels`` prints which fits
depend on the processor's linear algebra (OpenBLAS kernels) and by how much.

A number is compared relative to its unit: its own size or, where that is larger, the posterior
standard deviation that belongs to it. No kernel and no units may move one by more than `TIGHT`.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import soubayes

FILE = Path(__file__).with_name("pinned.npz")
TIGHT = 1e-8
KERNELS = ("Haswell", "SkylakeX")
LEVELS = [0.05, 0.5, 0.95]


class Case(NamedTuple):
    """A family and how it is fitted; every other parameter keeps its default."""

    family: str
    variation: str
    settings: dict[str, Any]
    n: int
    p: int = 8


class Waiting(soubayes.RowLikelihood):
    """Exponential waiting times, as a user writes them."""

    log_link = True

    def derivatives(self, eta, y):
        ratio = y * np.exp(-eta)
        return eta + ratio, 1.0 - ratio, ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


ESTIMATORS = {
    "linear": soubayes.SoULinearRegression,
    "student": soubayes.SoULinearRegression,
    "binary": soubayes.SoULogisticRegression,
    "softmax": soubayes.SoULogisticRegression,
    "rest": soubayes.SoULogisticRegression,
    "poisson": soubayes.SoUPoissonRegression,
    "negative binomial": soubayes.SoUNegativeBinomialRegression,
    "gamma": soubayes.SoUGammaRegression,
    "ordinal": soubayes.SoUOrdinalRegression,
    "cox": soubayes.SoUCoxRegression,
    "own": soubayes.SoUGeneralizedRegression,
}
ALWAYS: dict[str, dict[str, Any]] = {
    "student": {"noise": "student"},
    "rest": {"multi_class": "ovr"},
    "own": {"likelihood": Waiting()},
}
BLOCKS = {
    "clinical": {"columns": [1, 4], "prior": "normal", "variance": 5.0, "confidence": 1.0},
    "genes": {"columns": [2, 3, 6], "prior": "sparse", "confidence": 2.0, "confidence_local": 1e-4},
}
VARIATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "path": {"choice": "path"},
    "inclusion": {"inclusion": True, "choice": "path"},
    "groups of columns": {"feature_groups": [0, 1, 1, 1, 2, 3, 3, 4]},
    "blocks of columns": {"feature_blocks": BLOCKS},
    "groups of rows": {},
    "weights": {},
    "csr": {"choice": "path"},
    "stream": {"choice": "path"},
    "offset": {},
    "wide": {},
    "horseshoe": {"prior": "horseshoe", "choice": "path"},
}
# what a family does not have, and what costs seconds and passes through the code of another case
WITHOUT = {
    "linear": {"offset"},
    "student": {"offset", "stream", "inclusion", "blocks of columns"},
    "binary": {"offset"},
    "softmax": {"offset", "stream"},
    "rest": {"offset", "stream", "csr", "groups of rows", "groups of columns", "blocks of columns"}
    | {"weights", "horseshoe", "wide"},
    "poisson": {"groups of columns", "groups of rows", "blocks of columns"},
    "negative binomial": {"groups of columns", "groups of rows", "weights", "offset", "wide"}
    | {"blocks of columns"},
    "gamma": {"groups of columns", "groups of rows", "blocks of columns", "weights", "wide"},
    "ordinal": {"groups of columns", "groups of rows", "weights", "offset", "blocks of columns"}
    | {"wide"},
    "cox": {"offset", "stream"},
    "own": {"wide", "horseshoe", "inclusion", "groups of columns", "blocks of columns"}
    | {"groups of rows", "weights"},
}
ROWS = {"softmax": 90, "negative binomial": 100, "cox": 90}


def cases() -> dict[str, Case]:
    """Every family in every variation that it has, by name."""
    listed = {}
    for family in ESTIMATORS:
        for variation, settings in VARIATIONS.items():
            if variation in WITHOUT.get(family, ()):
                continue
            n, p = ROWS.get(family, 80), 8
            if variation == "wide":
                n, p = 40, 60
            both = ALWAYS.get(family, {}) | settings
            listed[f"{family}: {variation}"] = Case(family, variation, both, n, p)
    return listed


def data(case: Case) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """X, y and what else a fit takes, from a seed."""
    rng = np.random.default_rng(sum(map(ord, case.family + case.variation)))
    X = rng.normal(size=(case.n, case.p)) + 0.5 * rng.normal(size=(case.n, 1))
    X = X * np.geomspace(0.5, 4.0, case.p) + np.linspace(-1.0, 2.0, case.p)
    if case.variation == "csr":
        X *= rng.random(X.shape) < 0.5
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    eta = 0.9 * Z[:, 1] - 0.6 * Z[:, 2] + 0.3 * Z[:, 5]
    beside: dict[str, Any] = {}
    if case.variation == "weights":
        beside["sample_weight"] = rng.choice([1.0, 2.0, 3.0], size=case.n)
    if case.variation == "groups of rows":
        beside["groups"] = np.arange(case.n) % 12
    if case.variation == "offset":
        beside["offset"] = rng.normal(size=case.n) / 2.0
        eta = eta + beside["offset"]
    return X, response(case.family, eta, Z, rng), beside


def response(family: str, eta: np.ndarray, Z: np.ndarray, rng: np.random.Generator) -> Any:
    """What the family models, given the predictors."""
    n = len(eta)
    if family == "linear":
        return 3.0 + 2.0 * eta + rng.normal(size=n)
    if family == "student":
        return 3.0 + 2.0 * eta + rng.standard_t(3, size=n)
    if family == "binary":
        return np.where(1.5 * eta + rng.logistic(size=n) > 0.3, "yes", "no")
    if family in ("softmax", "rest"):
        scores = np.stack([1.5 * eta, 1.2 * Z[:, 3], np.zeros(n)], axis=1)
        return np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    if family == "poisson":
        return rng.poisson(np.exp(0.5 + eta))
    if family == "negative binomial":
        return rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(1.0 + eta)))
    if family == "gamma":
        return rng.gamma(3.0, np.exp(eta) / 3.0)
    if family == "own":
        return rng.exponential(np.exp(eta))
    if family == "ordinal":
        return np.digitize(1.5 * eta + rng.logistic(size=n), [-1.0, 1.0])
    time, end = rng.exponential(np.exp(-eta)), rng.exponential(2.0, size=n)
    return (time <= end, np.minimum(time, end))


def fit(case: Case) -> Any:
    """The fitted estimator."""
    X, y, beside = data(case)
    model = ESTIMATORS[case.family](**case.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of small tables, and of tolerances
        if case.variation == "csr":
            return model.fit(sp.csr_array(X), y)
        if case.variation == "stream":
            rows = [slice(begin, begin + 30) for begin in range(0, case.n, 30)]
            if case.family == "ordinal":
                model.set_params(levels=[0, 1, 2])
            return model.fit([(X[part], y[part]) for part in rows])
        return model.fit(X, y, **beside)


def numbers(case: Case, model: Any) -> Iterator[tuple[str, Any, Any]]:
    """What is compared: the name, the numbers, and their units."""
    X, _, beside = data(case)
    X = X[:12]
    there = {"offset": beside["offset"][:12]} if "offset" in beside else {}
    for kind, each in (("", model), ("sparse ", model.sparse_)):
        yield f"{kind}coef", each.coef_, np.maximum(each.coef_sd_, 1e-12)
        yield f"{kind}coef_sd", each.coef_sd_, np.maximum(each.coef_sd_, 1e-12)
        yield f"{kind}selected", each.selected_, 1.0
        if hasattr(each, "intercept_sd_"):
            yield f"{kind}intercept", each.intercept_, each.intercept_sd_
        if hasattr(each, "cuts_"):
            yield f"{kind}cuts", each.cuts_, 1.0
    table = model.summary()
    for column in ("median", "lower", "upper", "inclusion"):
        if column in table:
            yield f"summary {column}", table[column], np.maximum(table["sd"], 1e-12)
    yield "J", np.array([run[-1] for run in _runs(model.sparse_.objective_)]), 0.0
    if hasattr(model, "candidates_"):
        tables = model.candidates_ if isinstance(model.candidates_, list) else [model.candidates_]
        yield "weights", np.concatenate([t["weight"] for t in tables]), 1.0
    if case.family == "cox":
        yield "risk", model.predict(X), 1.0
        yield "survival", model.predict_survival_function(X, times=[0.2, 0.5, 1.0]), 1.0
    elif hasattr(model, "predict_proba"):
        yield "probabilities", model.predict_proba(X, **there), 1.0
    elif case.family == "own":
        yield "mean", model.predict(X, **there), 0.0
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows whose sd rests on the far tail
            mean, sd = model.predict(X, return_std=True, **there)
        yield "mean", mean, sd
        yield "predictive sd", sd, sd
        yield "quantiles", model.predict(X, quantiles=LEVELS, **there), sd[:, None]


def _runs(objective: Any) -> list[np.ndarray]:
    return objective if isinstance(objective, list) else [objective]


def measured(case: Case) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The numbers of a fit with their units: the larger of their size and what was given."""
    values = {}
    for name, number, unit in numbers(case, fit(case)):
        number = np.asarray(number, float)
        unit = np.maximum(np.broadcast_to(np.asarray(unit, float), number.shape), np.abs(number))
        values[name] = number, unit
    return values


def gaps(
    now: dict[str, tuple[np.ndarray, np.ndarray]], before: dict[str, tuple[np.ndarray, np.ndarray]]
) -> dict[str, float]:
    """The largest difference of each quantity in its units; inf where the shapes differ."""
    largest = {}
    for name, (value, unit) in before.items():
        if name not in now or now[name][0].shape != value.shape:
            largest[name] = np.inf
            continue
        gap = np.abs(now[name][0] - value) / np.where(unit > 0.0, unit, 1.0)
        largest[name] = float(gap.max(initial=0.0))
    return largest | {name: np.inf for name in now if name not in before}


def recorded(file: Path = FILE) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The numbers of every case, by its name, from the file."""
    with np.load(file) as parts:
        values, units, index = parts["values"], parts["units"], json.loads(str(parts["index"]))
    stored: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    begin = 0
    for name, quantity, shape in index:
        end = begin + int(np.prod(shape))
        pair = values[begin:end].reshape(shape), units[begin:end].reshape(shape)
        stored.setdefault(name, {})[quantity] = pair
        begin = end
    return stored


def record(file: Path, *names: str) -> None:
    """Fit the cases of these names, all if there are none, and write the file."""
    index, values, units = [], [], []
    for name, case in cases().items():
        if names and name not in names:
            continue
        for quantity, (value, unit) in measured(case).items():
            index.append((name, quantity, value.shape))
            values.append(value.ravel())
            units.append(unit.ravel())
    parts = {"values": np.concatenate(values), "units": np.concatenate(units)}
    np.savez_compressed(file, index=json.dumps(index), **parts)


def report(title: str, after: dict[str, Any], before: dict[str, Any]) -> None:
    """Print the cases that differ, with the quantity that differs most."""
    print(title)
    for name in before | after:
        if name not in before or name not in after:
            print(f"  {name}: {'new' if name in after else 'gone'}")
            continue
        gap = gaps(after[name], before[name])
        worst = max(gap, key=gap.__getitem__)
        if gap[worst] > TIGHT / 10.0:
            print(f"  {name}: {worst} by {gap[worst]:.1e}")


def by_kernel(folder: Path, *names: str) -> Iterator[dict[str, Any]]:
    """The numbers of the cases of these names under each kernel, fitted in a process of its own."""
    for kernel in KERNELS:
        file = folder / f"{kernel}.npz"
        subprocess.run(
            [sys.executable, __file__, str(file), *names],
            env=os.environ | {"OPENBLAS_CORETYPE": kernel},
            check=True,
        )
        yield recorded(file)


if __name__ == "__main__":
    if sys.argv[1:] == ["--kernels"]:
        with tempfile.TemporaryDirectory() as folder:
            report(f"{KERNELS[1]} against {KERNELS[0]}:", *reversed([*by_kernel(Path(folder))]))
    elif sys.argv[1:]:
        record(Path(sys.argv[1]), *sys.argv[2:])
    else:
        earlier = recorded() if FILE.exists() else {}
        record(FILE)
        report("What moved:", recorded(), earlier)
