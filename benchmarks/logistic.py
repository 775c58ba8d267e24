"""Speed of SoULogisticRegression, as ratios to peers in one run.

    python benchmarks/logistic.py [digits | gl | l1 | algorithm1 | wide | memory | choice | many]

MNIST, standardised, 60,000 images, float32, one digit against the rest; CPU seconds of one
thread (set OMP_NUM_THREADS=1), so a busy machine does not decide. ``--digits 0 8`` takes
these digits for l1 and algorithm1.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from measure import alternating
from paper.l1 import GRID, fit_l1_cv
from paper.logistic import standardised
from paper.mnist import load_mnist
from soubayes import SoULogisticRegression


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result


def digits(data: Any, X: np.ndarray, X_test: np.ndarray, options: dict[str, float]) -> None:
    """One fit of ten classes against ten unpenalised lbfgs fits (goal: at most 3 times their time).

    ``options`` are those of SoULogisticRegression: none, or those of GL.
    """
    total, scores = 0.0, []
    for k in range(10):
        t, peer = seconds(lambda k=k: LogisticRegression(C=np.inf).fit(X, data.y_train == k))
        total += t
        scores.append(peer.decision_function(X_test))
    right = np.mean(np.argmax(scores, axis=0) == data.y_test)
    print(f"ten lbfgs fits: {total:.1f} s, test accuracy {right:.4f}", flush=True)
    t, model = seconds(
        lambda: SoULogisticRegression(**({"confidence_coef": 1.0} | options)).fit(X, data.y_train)
    )
    shares = " ".join(f"{np.mean(np.abs(model.coef_) < 10.0**-e):.3f}" for e in range(1, 6))
    print(
        f"SoU {options or 'default'}: {t:.1f} s, {t / total:.2f} times lbfgs, test accuracy "
        f"{model.score(X_test, data.y_test):.4f}, below 1e-1 ... 1e-5: {shares}",
        flush=True,
    )


def l1(X: np.ndarray, labels: np.ndarray, chosen: list[int]) -> None:
    """One fit against LR-L1 with its penalty cross-validated (goal: 10 times faster).

    Ten values of C and 5 folds; scikit-learn's part is timed on one fold, without its refit, and
    counted five times.
    """
    fold = [(np.flatnonzero(np.arange(len(X)) % 5), np.arange(0, len(X), 5))]
    for k in chosen:
        y = (labels == k).astype(int)
        ours, _ = seconds(lambda y=y: SoULogisticRegression(confidence_coef=1.0).fit(X, y))
        fast, _ = seconds(lambda y=y: fit_l1_cv(X, y))
        print(
            f"digit {k}: SoU {ours:.1f} s; LR-L1 with CV by paper.l1 {fast:.0f} s "
            f"(ratio {fast / ours:.1f})",
            flush=True,
        )
        peer = LogisticRegressionCV(
            Cs=GRID, cv=fold, l1_ratios=(1.0,), solver="liblinear", scoring="neg_log_loss",
            refit=False, use_legacy_attributes=False,
        )  # fmt: skip
        slow, _ = seconds(lambda y=y, peer=peer: peer.fit(X, y))
        print(
            f"digit {k}: LR-L1 with CV by scikit-learn 5 x {slow:.0f} s (ratio "
            f"{5 * slow / ours:.0f})",
            flush=True,
        )


def algorithm1(X: np.ndarray, labels: np.ndarray, chosen: list[int], sweeps: int) -> None:
    """Time to the J that Algorithm 1 has after 160 sweeps (goal: 30 times faster)."""
    for k in chosen:
        slow = SoULogisticRegression(confidence_coef=1.0, solver="coordinate", max_iter=sweeps)
        t, _ = seconds(lambda slow=slow, k=k: slow.fit(X, labels == k))
        J = slow.objective_[-1]
        fast = _Timed()
        fast.fit(X, labels == k)
        times = fast.times
        reached = next(moment for moment, value in times if value <= J)
        print(
            f"digit {k}: Algorithm 1 has J = {J:.1f} after {sweeps} sweeps and {t:.0f} s; Newton "
            f"is below it after {reached:.1f} s (ratio {t / reached:.0f}) and ends at "
            f"{fast.objective_[-1]:.1f} after {times[-1][0]:.1f} s"
        )


class _Timed(SoULogisticRegression):
    """Notes the CPU time and J of every step."""

    def _reporter(self, label: Any) -> Any:
        return lambda step, value, active: self.times.append(
            (time.process_time() - self.begun, value)
        )

    def fit(self, X: Any, y: Any) -> Any:
        self.begun, self.times = time.process_time(), []
        return super().fit(X, y)


def wide() -> None:
    """n = 72, p = 7,129 (goal: under 2 s)."""
    for seed in range(3):
        X, y = wide_data(seed)
        for options in ({}, {"confidence_local": 1.0}, {"confidence_coef": "auto"}):
            t, model = seconds(
                lambda X=X, y=y, o=options: SoULogisticRegression(
                    **({"confidence_coef": 1.0} | o)
                ).fit(X, y)
            )
            print(
                f"72 x 7,129, {options or 'default'}: {t:.2f} s, "
                f"{int(model.selected_.sum())} columns, converged {model.converged_}"
            )


def choice() -> None:
    """Confidences chosen by prediction beside L1 with cross-validation; medians of five runs.

    At most 3 times L1 at the first three sizes and, with ``cv=None``, 6 times lbfgs at 20,000 rows
    are asked.
    """
    print("| n, p | L1 with folds, s | chosen / L1 | cv=None / L1 | cv=None / lbfgs |")
    print("| --- | --- | --- | --- | --- |")
    for n, p in ((400, 100), (72, 7129), (20_000, 200), (105, 100), (405, 400)):
        X, y = wide_data(0) if p > 1000 else tall_data(n, p)
        searched = GridSearchCV(
            LogisticRegression(l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0),
            {"C": np.logspace(-4, 2, 13)},
            scoring="neg_log_loss",
        )
        methods: dict[str, Callable[[], Any]] = {
            "L1": lambda X=X, y=y, m=searched: m.fit(X, y),
            "lbfgs": lambda X=X, y=y: LogisticRegression(C=np.inf).fit(X, y),
            "chosen": lambda X=X, y=y: SoULogisticRegression().fit(X, y),
            "cv=None": lambda X=X, y=y: SoULogisticRegression(cv=None).fit(X, y),
        }
        slow = {"L1": methods.pop("L1")} if n > 10_000 else {}  # half a minute: one run
        found = alternating(methods) | alternating(slow, runs=1)
        one, two, three = (found[a] / found[b] for a, b in
                           (("chosen", "L1"), ("cv=None", "L1"), ("cv=None", "lbfgs")))  # fmt: skip
        ratios = f"{one:.2f} | {two:.2f} | {three:.1f}"
        print(f"| {n}, {p} | {found['L1']:.3f} | {ratios} |", flush=True)


_GLMNET = """
suppressMessages(library(glmnet))
d <- commandArgs(TRUE)[1]; n <- as.integer(commandArgs(TRUE)[2]); p <- 200
y <- readBin(file.path(d, "y"), "integer", n)
X <- matrix(readBin(file.path(d, "X"), "double", n * p), n, p)
set.seed(1); begun <- proc.time(); fit <- cv.glmnet(X, y, family = "binomial", nfolds = 5)
took <- sum((proc.time() - begun)[1:2])
writeBin(c(took, as.numeric(coef(fit, s = "lambda.min"))), file.path(d, "fit"))
"""


def many() -> None:
    """Many rows, 200 columns, 20 signals: null columns, log loss of 20,000 new rows and seconds.

    Beside L1 by cross-validation: cv.glmnet where R has it, and scikit-learn's liblinear.
    """
    print("| n, seed | method | seconds | ours / its | log loss | null columns |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n, seed in [(20_000, seed) for seed in (1000, 1001, 1002)] + [(200_000, 1000)]:
        rng = np.random.default_rng(seed)
        X, coef = rng.standard_normal((n + 20_000, 200)), np.zeros(200)
        coef[:20] = rng.choice([-1.0, 1.0], 20) * rng.uniform(0.1, 0.6, 20)
        y = (X @ coef + rng.logistic(size=n + 20_000) > 0).astype(int)
        own, model = seconds(lambda X=X, y=y, n=n: SoULogisticRegression().fit(X[:n], y[:n]))
        grid = GridSearchCV(
            LogisticRegression(l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0),
            {"C": np.logspace(-4, 2, 13)},
            scoring="neg_log_loss",
        )
        took, found = seconds(lambda X=X, y=y, n=n, grid=grid: grid.fit(X[:n], y[:n]))
        rows = [
            ("ours", own, model.predict_proba(X[n:])[:, 1], model.selected_[0]),
            ("liblinear", took, found.predict_proba(X[n:])[:, 1], found.best_estimator_.coef_[0]),
        ]
        if shutil.which("Rscript"):
            took, fitted = glmnet(X[:n], y[:n])
            rows.append(("cv.glmnet", took, expit(fitted[0] + X[n:] @ fitted[1:]), fitted[1:]))
        for method, took, p, kept in rows:
            loss, null = log_loss(y[n:], p), int(np.count_nonzero(kept[20:]))
            ratio = f"{took:.2f} | {own / took:.2f}"
            print(f"| {n}, {seed} | {method} | {ratio} | {loss:.5f} | {null} |", flush=True)


def glmnet(X: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Seconds and coefficients, the intercept first, of R's glmnet at the best lambda."""
    with tempfile.TemporaryDirectory() as folder:
        for name, part in (("X", X.T), ("y", y.astype(np.int32))):
            np.ascontiguousarray(part).tofile(f"{folder}/{name}")
        command = ["Rscript", "-e", _GLMNET, folder, str(len(y))]
        subprocess.run(command, check=True, capture_output=True)
        took, *coef = np.fromfile(f"{folder}/fit")
    return took, np.array(coef)


def tall_data(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Independent columns, a tenth of them (at most 20) with coefficients of 1 or -1."""
    rng = np.random.default_rng(n)
    X, coef = rng.standard_normal((n, p)), np.zeros(p)
    coef[: min(p // 10, 20)] = rng.choice([-1.0, 1.0], min(p // 10, 20))
    return X, (X @ coef + rng.logistic(size=n) > 0).astype(int)


def wide_data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns correlated through 20 factors, the class decided by 5 of them."""
    rng = np.random.default_rng(seed)
    n, p = 72, 7129
    X = rng.normal(size=(n, 20)) @ (0.7 * rng.normal(size=(20, p)) * rng.random(p))
    X += rng.normal(size=(n, p))
    score = X[:, rng.choice(p, 5, replace=False)].sum(axis=1)
    return X, (score + rng.logistic(size=n) > 0).astype(int)


def memory() -> None:
    """Peak memory of a fit of float32 data of 200,000 x 500 (goal: under 3 times the data)."""
    code = (
        "import resource, numpy as np\n"
        "from soubayes import SoULogisticRegression\n"
        "rng = np.random.default_rng(0)\n"
        "X, y = rng.normal(size=(50, 3)), rng.integers(0, 2, 50)\n"
        "SoULogisticRegression(confidence_coef=1.0).fit(X, y)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "X = rng.standard_normal((200_000, 500), dtype=np.float32)\n"
        "y = X[:, :5].sum(1) + rng.logistic(size=200_000) > 0\n"
        "SoULogisticRegression(confidence_coef=1.0, max_iter=3, tol=1.0).fit(X, y)\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n"
        "print(peak * 1024 / X.nbytes, X.nbytes / 1e6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ratio, size = map(float, done.stdout.split())
    print(f"peak memory of data and fit: {ratio:.2f} times the {size:.0f} MB of data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", default=["digits", "gl", "l1", "algorithm1", "wide", "memory"]
    )
    parser.add_argument("--digits", type=int, nargs="+", default=[0])
    parser.add_argument("--sweeps", type=int, default=160)
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if "choice" in given.parts:
        with threadpool_limits(1):
            choice()
    if "many" in given.parts:
        many()
    if "wide" in given.parts:
        wide()
    if "memory" in given.parts:
        memory()
    if not {"digits", "gl", "l1", "algorithm1"} & set(given.parts):
        return
    data = load_mnist()
    X, X_test = standardised(data.X_train, data.X_test)
    if "digits" in given.parts:
        digits(data, X, X_test, {})
    if "gl" in given.parts:
        digits(data, X, X_test, {"confidence_local": 1.0})
    if "l1" in given.parts:
        l1(X, data.y_train, given.digits)
    if "algorithm1" in given.parts:
        algorithm1(X, data.y_train, given.digits, given.sweeps)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
