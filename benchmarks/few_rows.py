"""A handful of rows: do intervals of new rows hold their level, and is noise left alone?

    OMP_NUM_THREADS=1 python benchmarks/few_rows.py numbers [--tables 60] [--first 9000]
    OMP_NUM_THREADS=1 python benchmarks/few_rows.py families [--tables 60] [--first 9000]

``numbers``: y is normal noise, or noise and one strong column (3 sds of the noise), with n rows and
p normal columns. Printed are the mean share of 400 new rows inside the 90 % intervals of a default
fit of `SoULinearRegression`, its worst tenth of tables, and the share of tables with a selected
column.

``families``: pure noise of every other family, and the share of tables in which a default fit
selects a column. A table on which a fit is refused with an error counts as refused.
"""

import argparse
import time
import warnings

import numpy as np

from soubayes import (
    SoUCoxRegression,
    SoUGammaRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNegativeBinomialRegression,
    SoUOrdinalRegression,
    SoUPoissonRegression,
)

NEW_ROWS, STRONG, LEVEL = 400, 3.0, 0.9
NOISE_CELLS = [(n, p) for n in (3, 4, 6, 8, 12, 15, 30) for p in (1, 5, 50, 500)]
STRONG_CELLS = [(n, p) for n in (6, 10, 15, 30) for p in (1, 5, 50, 500)]
FAMILY_CELLS = [(6, 4), (8, 20), (10, 50), (12, 4), (12, 20), (12, 200)]


def survival(rng, n):
    time = rng.exponential(size=n)
    return rng.random(n) < 0.8, time


FAMILIES = {
    "two classes": (SoULogisticRegression, lambda rng, n: rng.permutation(np.arange(n) % 2)),
    "softmax": (SoULogisticRegression, lambda rng, n: rng.permutation(np.arange(n) % 3)),
    "ordered": (SoUOrdinalRegression, lambda rng, n: rng.permutation(np.arange(n) % 3)),
    "Poisson": (SoUPoissonRegression, lambda rng, n: rng.poisson(3.0, n)),
    "negative binomial": (
        SoUNegativeBinomialRegression,
        lambda rng, n: rng.poisson(3.0 * rng.gamma(1.0, 1.0, n)),
    ),
    "gamma": (SoUGammaRegression, lambda rng, n: rng.gamma(2.0, 0.5, n)),
    "Cox": (SoUCoxRegression, survival),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["numbers", "families"])
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--first", type=int, default=9000)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(given.first, given.first + given.tables)
    if given.command == "numbers":
        for strength, cells in ((0.0, NOISE_CELLS), (STRONG, STRONG_CELLS)):
            for n, p in cells:
                shares, selected, seconds = coverage(n, p, strength, seeds)
                worst = np.sort(shares)[: max(len(shares) // 10, 1)].mean()
                print(
                    f"strength {strength:g}, {n} x {p}: inside {shares.mean():.3f}, worst tenth "
                    f"{worst:.3f}, selected {selected.mean():.2f}, {seconds:.2f} s a fit",
                    flush=True,
                )
        return
    for family in FAMILIES:
        for n, p in FAMILY_CELLS:
            print(f"{family}, {n} x {p}: {selections(family, n, p, seeds)}", flush=True)


def coverage(n: int, p: int, strength: float, seeds: range):
    """The share of new rows inside, for each table, and whether a column was selected."""
    shares, selected, begin = [], [], time.process_time()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X, new = rng.standard_normal((n, p)), rng.standard_normal((NEW_ROWS, p))
        y = strength * X[:, 0] + rng.standard_normal(n)
        truth = strength * new[:, 0] + rng.standard_normal(NEW_ROWS)
        model = SoULinearRegression().fit(X, y)
        low, high = model.predict(new, quantiles=[0.5 - LEVEL / 2, 0.5 + LEVEL / 2]).T
        shares.append(np.mean((low <= truth) & (truth <= high)))
        selected.append(model.selected_.any())
    return np.array(shares), np.array(selected), (time.process_time() - begin) / len(seeds)


def selections(family: str, n: int, p: int, seeds: range) -> str:
    """In words."""
    estimator, draw = FAMILIES[family]
    selected = refused = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, p))
        try:
            selected += bool(np.any(estimator().fit(X, draw(rng, n)).selected_))
        except ValueError:
            refused += 1
    return f"{selected} of {len(seeds)} select" + (f", {refused} refused" if refused else "")


if __name__ == "__main__":
    main()
