"""Held-out deviance of likelihoods of one's own: chosen by prediction beside fixed confidences.

    OMP_NUM_THREADS=1 python benchmarks/generalized.py [--first 1000]

Ten simulated designs of three likelihoods, from one strong effect to many faint ones. The deviance
is minus twice the log density of 1,000 new rows.
"""

import argparse

import numpy as np
from scipy.special import gammaln

from soubayes import RowLikelihood, RowTerms, SoUGeneralizedRegression

FIXED = (1.0, 2.0, 4.0, 8.0)
DESIGNS = [(150, 30, 3), (150, 30, 30), (300, 100, 10), (100, 200, 5), (200, 20, 0)]


class Poisson(RowLikelihood):
    """Counts with log mean eta."""

    def derivatives(self, eta, y):
        mean = np.exp(eta)
        return mean - y * eta + gammaln(y + 1.0), mean - y, mean

    def terms(self, mean, variance, y):
        rate = np.exp(mean + variance / 2.0)
        return RowTerms(rate - y * mean + gammaln(y + 1.0), y - rate, rate, rate)

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


class Gamma(RowLikelihood):
    """y > 0 is gamma with mean exp(eta) and shape 2."""

    shape = 2.0

    def derivatives(self, eta, y):
        k, ratio = self.shape, y * np.exp(-eta)
        rest = gammaln(k) - k * np.log(k) - (k - 1.0) * np.log(y)
        return k * (eta + ratio) + rest, k * (1.0 - ratio), k * ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


class Waiting(Gamma):
    """y > 0 is exponential with mean exp(eta)."""

    shape = 1.0


def draw(kind, n, p, signals, rng):
    """Rows, and a function that draws y of a predictor."""
    size = 0.6 if signals <= 5 else 1.2 / np.sqrt(max(signals, 1))
    coef = np.zeros(p)
    coef[:signals] = size * rng.choice([-1.0, 1.0], size=signals)
    X = rng.normal(size=(n, p))
    eta = np.clip(0.5 + X @ coef, -4.0, 4.0)
    if kind is Poisson:
        return X, eta, rng.poisson(np.exp(eta)).astype(float)
    shape = kind.shape
    return X, eta, np.maximum(rng.gamma(shape, np.exp(eta) / shape), 1e-6)


def deviance(model, X, y):
    return -2.0 * float(np.mean(model.log_density(X, y)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1000)
    first = parser.parse_args().first
    print("likelihood    n    p  signals   chosen  best fixed     ratio")
    ratios = []
    for number in range(10):
        kind = (Poisson, Gamma, Waiting)[number % 3]
        n, p, signals = DESIGNS[number % len(DESIGNS)]
        rng = np.random.default_rng(first + number)
        X, _, y = draw(kind, n + 1000, p, signals, rng)
        rows = X[:n], y[:n]
        chosen = deviance(SoUGeneralizedRegression(kind()).fit(*rows), X[n:], y[n:])
        fixed = [
            deviance(SoUGeneralizedRegression(kind(), confidence_coef=c).fit(*rows), X[n:], y[n:])
            for c in FIXED
        ]
        path = SoUGeneralizedRegression(kind(), choice="path").fit(*rows)
        best = min(*fixed, deviance(path, X[n:], y[n:]))
        ratios.append(chosen / best)
        print(
            f"{kind.__name__:>10} {n:4} {p:4} {signals:8} {chosen:8.3f} {best:11.3f} "
            f"{ratios[-1]:8.4f}",
            flush=True,
        )
    print(f"mean ratio {np.mean(ratios):.4f}, largest {np.max(ratios):.4f}")


if __name__ == "__main__":
    main()
