"""How often 90 % intervals of the logistic model cover the true signals that were kept.

    python benchmarks/logistic_coverage.py [--sets 60] [--bound jaakkola]

Two designs: n = 300, p = 6 with coefficients 2, -2, 1.5, and n = 400, p = 100 with ten signals
between 0.5 and 2. The last column is Wald's interval of an unpenalised fit (small design only).
"""

import argparse

import numpy as np
from scipy import stats
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from soubayes import SoULogisticRegression


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=60)
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--bound", choices=["jaakkola"], default=None)
    given = parser.parse_args()
    small = np.array([2.0, -2.0, 1.5, 0.0, 0.0, 0.0])
    large = np.zeros(100)
    large[:10] = np.linspace(0.5, 2.0, 10) * np.tile([1.0, -1.0], 5)
    for n, beta in ((300, small), (400, large)):
        rows = [one(n, beta, given.seed + i, given.bound) for i in range(given.sets)]
        kept, covered, wald, nulls = np.sum(rows, axis=0)
        true = given.sets * np.count_nonzero(beta)
        print(
            f"n = {n}, p = {len(beta)}: kept {kept / true:.2f} of the signals, covered "
            f"{covered / kept:.3f}, Wald {wald / true:.3f}, false columns {nulls / given.sets:.1f}"
        )


def one(n: int, beta: np.ndarray, seed: int, bound: str | None) -> tuple[int, int, int, int]:
    """Signals kept, of these covered, covered by Wald's interval, and false columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(beta)))
    y = rng.uniform(size=n) < expit(X @ beta)
    model = SoULogisticRegression(choice="path", confidence_coef="auto", bound=bound).fit(X, y)
    table, signal = model.summary(), beta != 0.0
    selected = model.selected_[0]
    inside = (table["lower"] <= beta) & (beta <= table["upper"])
    kept = selected & signal
    wald = 0
    if len(beta) < 50:
        plain = LogisticRegression(C=np.inf, max_iter=1000).fit(X, y)
        p = plain.predict_proba(X)[:, 1]
        Z = np.column_stack([X, np.ones(n)])
        variance = np.linalg.inv((Z * (p * (1.0 - p))[:, None]).T @ Z)
        half = stats.norm.ppf(0.95) * np.sqrt(np.diag(variance)[:-1])
        wald = int(np.sum((np.abs(plain.coef_[0] - beta) <= half) & signal))
    return int(kept.sum()), int((inside & kept).sum()), wald, int((selected & ~signal).sum())


if __name__ == "__main__":
    main()
