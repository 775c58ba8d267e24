"""MNIST beyond the paper's row: for each digit a point of the path, chosen on held-out images.

    python benchmarks/logistic_mnist.py OUTPUT [digit ...]

1. The path of every digit on 50,000 of the training images.
2. For every digit the point whose refit has the least log loss on the other 10,000 images plus
   2e-5 for each pixel kept (0.2 nats of the 10,000 images together).
3. With that confidence: selection on all 60,000 images, refit of the support at confidence 1, and
   the test accuracy, once. Finished digits are files in OUTPUT, and are not computed again.
"""

import sys
import time
from pathlib import Path

import numpy as np

from soubayes import SoULogisticRegression, load_mnist

PRICE = 2e-5


def main(output: Path, digits: list[int]) -> None:
    data = load_mnist()
    output.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(0).permutation(60_000)
    inside, outside = np.sort(order[:50_000]), np.sort(order[50_000:])
    for digit in digits:
        begun = time.process_time()
        y = data.y_train == digit
        file = output / f"path-{digit}.npz"
        if not file.exists():
            X = data.X_train[inside].astype(np.float32)
            path = SoULogisticRegression(confidence_coef="auto").fit(X, y[inside]).path_
            np.savez(file, **path)
        gamma = choose(np.load(file), data.X_train[outside].astype(float), y[outside])
        file = output / f"final-{digit}.npz"
        if not file.exists():
            fit(data, y, gamma, file)
        kept = int(np.load(file)["kept"])
        print(f"digit {digit}: confidence {gamma:.3f}, {kept} pixels, ", end="")
        print(f"{time.process_time() - begun:.0f} s", flush=True)
    if len(digits) == 10:
        ends = [np.load(output / f"final-{digit}.npz") for digit in digits]
        predicted = np.argmax([end["score"] for end in ends], axis=0)
        coef = np.abs([end["coef"] for end in ends])
        shares = " ".join(f"{np.mean(coef < 10.0**-e):.4f}" for e in range(1, 6))
        print(
            f"test accuracy {np.mean(predicted == data.y_test):.4f}, below 1e-1 ... 1e-5: {shares}"
        )


def choose(path: dict[str, np.ndarray], X: np.ndarray, y: np.ndarray) -> float:
    """The confidence of the point with the least held-out loss and price."""
    eta = X @ path["refit_coef"].T + path["refit_intercept"]
    loss = np.mean(np.logaddexp(0.0, eta) - y[:, None] * eta, axis=0)
    return float(path["gamma"][np.argmin(loss + PRICE * path["n_selected"])])


def fit(data: tuple[np.ndarray, ...], y: np.ndarray, gamma: float, file: Path) -> None:
    X, _, X_test, _ = data
    X = X.astype(np.float32)
    selector = SoULogisticRegression(confidence_coef=gamma, tol=1e-5).fit(X, y)
    kept = selector.get_support()
    model = SoULogisticRegression().fit(selector.transform(X), y)
    coef = np.zeros(X.shape[1])
    coef[kept] = model.coef_[0]
    score = model.decision_function(X_test[:, kept].astype(np.float32))
    # in units of standardised pixels
    np.savez(file, coef=coef * X.std(0, dtype=float), score=score, kept=np.count_nonzero(coef))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(k) for k in sys.argv[2:]] or list(range(10)))
