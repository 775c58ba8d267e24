"""Time and error of SoULinearRegression beside its peers, one thread, printed as ratios.

    python benchmarks/linear.py            # designs of Table 1, and n >> p
    python benchmarks/linear.py wide       # n = 500, p = 20,000 and n = 71, p = 4,088
    python benchmarks/linear.py all --ard  # also ARDRegression and the Gibbs horseshoe (minutes)
    python benchmarks/linear.py choice     # confidences chosen by prediction, medians of five runs
    python benchmarks/linear.py memory     # peak memory of the default, n = 500, p = 20,000
    python benchmarks/linear.py jobs       # wall-clock time with n_jobs=2, on two idle cores

Seconds are CPU time of one thread, the best of three where a fit takes less than one second. A
ratio is the peer's time over ours: above 1 we are faster. Errors are sqrt(1 + |estimate - coef|^2).
"""

import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import ARDRegression, LassoCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from measure import alternating, timed
from soubayes import SoULinearRegression, horseshoe_gibbs
from soubayes.datasets import Regression, experiment1, prediction_rmse, wide_design

CHOICE_SIZES = [
    (105, 100, 20),
    (405, 400, 50),
    (100, 200, 10),
    (71, 4088, 20),
    (200_000, 200, 20),
    (500, 20_000, 50),
]
SIZES = [(55, 50, 10), (105, 100, 20), *((405, 400, signals) for signals in (10, 50, 100, 200))]


def main() -> None:
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        run()


def run() -> None:
    slow = "--ard" in sys.argv
    which = next((word for word in sys.argv[1:] if not word.startswith("-")), "tall")
    alone = {"choice": with_the_choice, "memory": memory, "jobs": two_jobs}
    if which in alone:
        alone[which]()
        return
    print("| design | method | seconds | ratio to ours | error | selected |")
    print("| --- | --- | --- | --- | --- | --- |")
    if which in ("tall", "all"):
        for sizes in SIZES:
            data = experiment1(*sizes, random_state=0)
            compare(", ".join(map(str, sizes)), data, slow)
        n_much_larger()
    if which in ("wide", "all"):
        compare("71, 4088, 20", wide_design(71, 4088, 20, random_state=0), slow)
        compare("500, 20000, 50", wide_design(500, 20_000, 50, random_state=0), False)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"\nPeak memory of this process, peers included: {peak:.2f} GB")


def compare(name: str, data: Regression, slow: bool) -> None:
    """One design: every method on the same data."""
    methods: dict[str, Callable[[], Any]] = {
        "SoULinearRegression": lambda: SoULinearRegression(choice="path", fit_intercept=False),
        "LassoCV": lambda: LassoCV(fit_intercept=False),
        "abess": best_subset,
        "skglm MCP, CV": lambda: minimax_concave(data),
    }
    if slow:
        methods["ARDRegression"] = lambda: ARDRegression(fit_intercept=False)
    if data.X.shape[1] > 5000:
        del methods["abess"], methods["skglm MCP, CV"]  # minutes to hours at p = 20,000
    ours = np.nan
    if "skglm MCP, CV" in methods:  # compile before timing
        minimax_concave(data).set_params(cv=2).fit(data.X[:20, :5], data.y[:20])
    for method, make in methods.items():
        seconds, model = timed(lambda make=make: make().fit(data.X, data.y))
        ours = seconds if method == "SoULinearRegression" else ours
        coef = coefficients(model)
        row(name, method, seconds, ours, prediction_rmse(coef, data.coef), np.sum(coef != 0))
    if slow:
        begin = time.process_time()
        draws = horseshoe_gibbs(data.X, data.y, draws=200, chains=1, random_state=0)
        coef = draws.posterior["coef"].values.reshape(-1, data.X.shape[1]).mean(axis=0)
        seconds = time.process_time() - begin
        error = prediction_rmse(coef, data.coef)
        row(name, "Gibbs horseshoe (200 draws)", seconds, ours, error, len(coef))


def with_the_choice() -> None:
    """Times over that of LassoCV: at most 3 with the choice, 1 without (``cv=None``), are asked."""
    print("| n, p, signals | LassoCV, s | chosen / LassoCV | cv=None / LassoCV | abess / LassoCV |")
    print("| --- | --- | --- | --- | --- |")
    for sizes in CHOICE_SIZES:
        n, p, _ = sizes
        if n > 10_000:
            X, y = many_rows()
        else:
            data = (experiment1 if n > p else wide_design)(*sizes, random_state=0)
            X, y = data.X, data.y
        methods: dict[str, Callable[[], Any]] = {
            "LassoCV": lambda X=X, y=y: LassoCV().fit(X, y),
            "chosen": lambda X=X, y=y: SoULinearRegression().fit(X, y),
            "cv=None": lambda X=X, y=y: SoULinearRegression(cv=None).fit(X, y),
        }
        if n < 10_000 and p < 10_000:  # minutes beyond
            methods["abess"] = lambda X=X, y=y: best_subset().fit(X, y)
        seconds = alternating(methods, runs=5 if p < 10_000 else 1)
        own = seconds.pop("LassoCV")
        names = ("chosen", "cv=None", "abess")
        ratios = [f"{seconds[name] / own:.2f}" if name in seconds else "" for name in names]
        print(f"| {', '.join(map(str, sizes))} | {own:.3f} | {' | '.join(ratios)} |", flush=True)


def memory() -> None:
    """At most 3 times the data are asked above the data; a small fit loads the libraries first."""
    small, data = wide_design(60, 150, 5, random_state=0), wide_design(500, 20_000, 50)
    SoULinearRegression().fit(small.X, small.y)
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:  # Linux: the peak so far is forgotten
        file.write("5")
    SoULinearRegression().fit(data.X, data.y)
    more = resident("VmHWM") - before
    print(f"peak {more / 1e6:.0f} MB above {data.X.nbytes / 1e6:.0f} MB of data")


def two_jobs() -> None:
    """Wall-clock seconds of a fit, alternating, best of three; the coefficients must be equal."""
    print("| n, p, signals | n_jobs=1, s | n_jobs=2, s | load |")
    print("| --- | --- | --- | --- |")
    for sizes in ((405, 400, 50), (71, 4088, 20), (200, 10_000, 20), (500, 20_000, 50)):
        n, p, _ = sizes
        data = (experiment1 if n > p else wide_design)(*sizes, random_state=0)
        best, coef = {1: np.inf, 2: np.inf}, {}
        for jobs in (1, 2) * (3 if p < 10_000 else 2):
            begin = time.perf_counter()
            coef[jobs] = SoULinearRegression(n_jobs=jobs).fit(data.X, data.y).coef_
            best[jobs] = min(best[jobs], time.perf_counter() - begin)
        assert np.array_equal(coef[1], coef[2])
        load = f"{os.getloadavg()[0]:.1f}"
        print(f"| {n}, {p}, {sizes[2]} | {best[1]:.2f} | {best[2]:.2f} | {load} |", flush=True)


def resident(which: str) -> float:
    """Bytes of this process in memory now (VmRSS), or at their peak (VmHWM)."""
    with open("/proc/self/status") as file:
        return next(1024.0 * int(line.split()[1]) for line in file if line.startswith(which))


def many_rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200_000, 200))
    return X, X[:, :20] @ np.arange(1, 21) + rng.standard_normal(200_000)


def n_much_larger() -> None:
    """n >> p: everything but X'X should be small change."""
    X, y = many_rows()
    gram, _ = timed(lambda: X.T @ X)
    seconds, _ = timed(lambda: SoULinearRegression(choice="path").fit(X, y))
    lasso, _ = timed(lambda: LassoCV().fit(X, y))
    print(f"| 200000, 200 | X'X alone | {gram:.3f} | {gram / seconds:.2f} | | |")
    print(f"| 200000, 200 | SoULinearRegression | {seconds:.3f} | 1.00 | | |")
    print(f"| 200000, 200 | LassoCV | {lasso:.3f} | {lasso / seconds:.2f} | | |")


def best_subset() -> Any:
    """abess over every size of support, or up to the largest its authors recommend for p > n."""
    from abess import LinearRegression

    class Full(LinearRegression):
        def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
            n, p = X.shape
            most = p if p < n else min(p, int(n / (np.log(np.log(n)) * np.log(p))))
            self.support_size = range(most + 1)
            return super().fit(X, y)

    return Full()


def minimax_concave(data: Regression) -> Any:
    """MCP of skglm with its penalty chosen by 5-fold cross-validation over 20 values.

    It has no intercept of its own here: columns and response are centred in every fold.
    """
    from skglm import MCPRegression

    y = data.y - data.y.mean()
    largest = np.max(np.abs((data.X - data.X.mean(axis=0)).T @ y)) / len(y)
    mcp = MCPRegression(fit_intercept=False, gamma=3.0)
    centred = TransformedTargetRegressor(
        make_pipeline(StandardScaler(with_std=False), mcp),
        transformer=StandardScaler(with_std=False),
    )
    grid = {"regressor__mcpregression__alpha": np.geomspace(largest, largest / 1000, 20)}
    return GridSearchCV(centred, grid, cv=5)


def coefficients(model: Any) -> np.ndarray:
    """Of a fitted estimator, however wrapped."""
    model = getattr(model, "best_estimator_", model)
    model = getattr(model, "regressor_", model)
    return np.ravel((model[-1] if hasattr(model, "steps") else model).coef_)


def row(name: str, method: str, seconds: float, ours: float, error: float, kept: int) -> None:
    ratio = seconds / ours
    print(f"| {name} | {method} | {seconds:.3f} | {ratio:.2f} | {error:.3f} | {kept} |", flush=True)


if __name__ == "__main__":
    main()
