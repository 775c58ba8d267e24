"""LR-L1 on MNIST with the penalty cross-validated for each digit: the slow peer, resumable.

    python benchmarks/logistic_l1.py OUTPUT [digit ...]

For each digit: 5 folds, C on a grid of 10 values from 1e-3 to 1, warm started upwards by skglm's
proximal Newton solver (one of the fastest for this problem), scored by log loss; the grid is left
once the mean score has been worse than the best twice in a row, since larger C only costs more.
Then a refit on all 60,000 images. Every fit is a line of OUTPUT/fits.jsonl, every finished digit
a file OUTPUT/digit-k.npz; a run that is stopped goes on where it was.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from soubayes.datasets import load_mnist

GRID = np.logspace(-3, 0, 10)
FOLDS = 5


def main(output: Path, digits: list[int]) -> None:
    data = load_mnist()
    X = np.asfortranarray(standardised(data.X_train)[0])
    output.mkdir(parents=True, exist_ok=True)
    for digit in digits:
        if not (output / f"digit-{digit}.npz").exists():
            cross_validate(X, (data.y_train == digit).astype(int), digit, output)


def standardised(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Pixels with mean 0 and standard deviation 1 on ``train``; constant ones at 0. float32."""
    mean, scale = train.mean(0, dtype=float), train.std(0, dtype=float)
    scale[scale == 0] = 1.0
    return [((x - mean) / scale).astype(np.float32) for x in (train, *others)]


def cross_validate(X: np.ndarray, y: np.ndarray, digit: int, output: Path) -> None:
    splits = list(StratifiedKFold(FOLDS, shuffle=True, random_state=digit).split(X, y))
    log = output / "fits.jsonl"
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    losses = {(r["C"], r["fold"]): r["log_loss"] for r in done if r["digit"] == digit}
    models: dict[int, Any] = {}
    means: list[float] = []
    for C in map(float, GRID):
        for fold, (train, test) in enumerate(splits):
            if (C, fold) in losses:
                continue
            part, target = np.asfortranarray(X[train]), y[train]
            begun = time.process_time()
            model = models.setdefault(fold, l1_model())
            fit_l1(model, part, target, C)
            seconds = time.process_time() - begun
            probability = expit(X[test].astype(float) @ model.coef_.ravel() + model.intercept_)
            losses[C, fold] = float(log_loss(y[test], probability))
            row = {
                "digit": digit,
                "C": C,
                "fold": fold,
                "log_loss": losses[C, fold],
                "nonzero": int(np.count_nonzero(model.coef_)),
                "seconds": seconds,
            }
            with log.open("a") as file:
                file.write(json.dumps(row) + "\n")
        means.append(float(np.mean([losses[C, fold] for fold in range(FOLDS)])))
        if len(means) > 2 and min(means[-2:]) > min(means):
            break
    best = float(GRID[int(np.argmin(means))])
    begun = time.process_time()
    model = l1_model()
    fit_l1(model, X, y, best)
    np.savez(
        output / f"digit-{digit}.npz",
        C=best,
        coef=model.coef_.ravel(),
        intercept=model.intercept_,
        grid=GRID[: len(means)],
        mean_log_loss=means,
        seconds=time.process_time() - begun,
    )


def l1_model() -> Any:
    from skglm import SparseLogisticRegression

    return SparseLogisticRegression(warm_start=True, fit_intercept=True, max_iter=50, tol=1e-5)


def fit_l1(model: Any, X: np.ndarray, y: np.ndarray, C: float) -> None:
    """Penalty |coef|_1 / (C n), scikit-learn's C."""
    model.set_params(alpha=1.0 / (C * len(y)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(k) for k in sys.argv[2:]] or list(range(10)))
