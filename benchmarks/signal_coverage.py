"""How often 90 % intervals with ``inclusion=True`` cover the signals, beside the exact posterior's.

    python benchmarks/signal_coverage.py [linear | logistic] [--first 40000] [--sets 150]

The exact posterior is that of the same spike and slab, with the slab that the fit ended with, by
Gibbs sampling (for classes with Polya-Gamma variables, a sum of 100 terms each).
"""

import argparse
import itertools

import numpy as np
from scipy.special import betaln

from soubayes import SoULinearRegression, SoULogisticRegression
from soubayes.sparse.inclusion import supports
from soubayes.sparse.inclusion.priors import Slab

DESIGNS = {"linear": (100, 20, [1.0, -0.5, 0.3]), "logistic": (100, 10, [2.0, -1.0])}
SWEEPS, BURN = 1500, 300
TERMS = np.arange(1, 101) - 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=DESIGNS)
    parser.add_argument("--first", type=int, default=40_000)
    parser.add_argument("--sets", type=int, default=150)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.sets)
    found = np.mean([covered(given.kind, seed) for seed in seeds], axis=0)
    k = len(DESIGNS[given.kind][2])
    for name, each in zip(("soubayes", "exact"), found, strict=True):
        print(f"{name}: all {each.mean():.3f}, signals {each[:k].mean():.3f}, {each[:k].round(2)}")


def covered(kind: str, seed: int) -> np.ndarray:
    """(2, p): which coefficients the intervals of the fit and of the sampler cover."""
    n, p, effects = DESIGNS[kind]
    rng = np.random.default_rng(seed)
    X, coef = rng.normal(size=(n, p)), np.zeros(p)
    coef[: len(effects)] = effects
    classes = kind == "logistic"
    noise = rng.logistic(size=n) if classes else rng.normal(size=n)
    y = (X @ coef + noise > 0).astype(float) if classes else X @ coef + noise
    estimator = SoULogisticRegression if classes else SoULinearRegression
    slabs: list[Slab] = []
    of = supports.SupportPosterior.of
    supports.SupportPosterior.of = lambda found, *rest: slabs.append(found.slab) or of(found, *rest)
    try:
        model = estimator(choice="path", inclusion=True).fit(X, y)
    finally:
        supports.SupportPosterior.of = of
    scale = X.std(axis=0)
    draws = sample((X - X.mean(axis=0)) / scale, y - (0.0 if classes else y.mean()), slabs[-1], rng,
                   classes) / scale  # fmt: skip
    ends = (
        model.supports_.posteriors[0].quantiles(np.array([0.05, 0.95])),
        np.quantile(draws, [0.05, 0.95], axis=0),
    )
    return np.array([(low - 1e-12 <= coef) & (coef <= high + 1e-12) for low, high in ends])


def sample(
    X: np.ndarray, y: np.ndarray, slab: Slab, rng: np.random.Generator, classes: bool
) -> np.ndarray:
    """Draws of the coefficients: one at a time with its inclusion, given all others."""
    n, p = X.shape
    V, log_weight = slab.variance, np.log(slab.weight)
    sizes = [log_size(k, p) for k in range(p + 1)]
    odds = [after - before for before, after in itertools.pairwise(sizes)]
    b, variance, alpha, noise = np.zeros(p), np.full(p, np.nan), 0.0, 1.0
    eta, draws = np.zeros(n), []
    for _ in range(SWEEPS):
        information = np.ones(n)
        if classes:
            spread = TERMS**2 + (eta[:, None] / (2.0 * np.pi)) ** 2
            information = (rng.exponential(size=spread.shape) / spread).sum(axis=1)
            information /= 2.0 * np.pi**2
        rest = (y - 0.5 if classes else y) - information * eta
        for j in rng.permutation(p):
            x = X[:, j]
            s = information @ (x * x)
            q = x @ rest + s * b[j]
            grown = 1.0 + V * s
            each = log_weight - 0.5 * np.log(grown) + 0.5 * V * q * q / grown / noise
            total = np.logaddexp.reduce(each)
            others = np.count_nonzero(b) - (b[j] != 0.0)
            new = 0.0
            if np.log(rng.random()) < -np.logaddexp(0.0, -(total + odds[others])):
                m = rng.choice(len(V), p=np.exp(each - total))
                variance[j] = V[m]
                new = V[m] / grown[m] * q + np.sqrt(noise * V[m] / grown[m]) * rng.normal()
            eta += x * (new - b[j])
            rest -= information * x * (new - b[j])
            b[j] = new
        s = information.sum() + noise / (10.0 if classes else 1e6)
        new = (rest.sum() + information.sum() * alpha) / s + np.sqrt(noise / s) * rng.normal()
        eta, alpha = eta + new - alpha, new
        if not classes:
            inside = b != 0.0
            square = np.sum((y - eta) ** 2) + np.sum(b[inside] ** 2 / variance[inside])
            noise = 0.5 * square / rng.gamma(0.5 * (n - 1 + inside.sum()))
        draws.append(b.copy())
    return np.array(draws[BURN:])


def log_size(k: int, p: int) -> float:
    """The prior of one support of k columns: half beta-binomial(1, 1 + p/2), half (1, 1)."""
    each = [betaln(1 + k, 1 + w * p + p - k) - betaln(1, 1 + w * p) for w in (0.5, 0.0)]
    return float(np.logaddexp(*each))


if __name__ == "__main__":
    main()
