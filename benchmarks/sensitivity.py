"""How good and how fast `sensitivity` is.

`python benchmarks/sensitivity.py derivatives` compares derivatives of means and sds, from 2,000
reference draws of four posteriors of posteriordb, with differences of an independent recursion of
Theorem 1: quadrature of the scale in regressions with flat coefficients, the exact engine for eight
schools and kilpisjarvi. z is the error over its standard error. `... weights` does the same for
`reweight`, on fresh draws (`--sets` of 4,000) of two regressions. `... time` is the time for 10
blocks and 4 chains of 1,000 draws, after import. The draws are read from the folder `posteriordb`
under SOUBAYES_DATA.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from guides import hierarchy
from posteriordb import Posterior, posteriors
from soubayes import Block, Model, reweight, sensitivity, solve_exact

STEP = 0.02  # of a confidence, for differences
BLOCKS = [f"x{i}" for i in range(10)]


def chain(seed: int) -> SimpleNamespace:
    """A Markov chain of ten scalar blocks, the last one observed: draws of its posterior."""
    rng = np.random.default_rng(seed)
    prior = np.minimum.outer(np.arange(1, 11), np.arange(1, 11)).astype(float)
    gain = prior[:, -1] / (prior[-1, -1] + 0.25)
    root = np.linalg.cholesky(prior - np.outer(gain, prior[-1]))
    draws = 3.0 * gain + rng.normal(size=(4000, 10)) @ root.T
    before = np.column_stack([np.zeros(4000), draws[:, :-1]])
    log_prior = stats.norm(before, 1.0).logpdf(draws)

    def group(values: dict) -> dict:
        shaped = {n: SimpleNamespace(values=v.reshape(4, 1000)) for n, v in values.items()}
        return _Group(shaped)

    return SimpleNamespace(
        posterior=group(dict(zip(BLOCKS, draws.T, strict=True))),
        log_prior=group(dict(zip(BLOCKS, log_prior.T, strict=True))),
        log_likelihood=group({"y": stats.norm(draws[:, -1], 0.5).logpdf(3.0)}),
    )


class _Group(dict):
    @property
    def data_vars(self) -> dict:
        return self


Moments = dict[str, tuple[float, float]]  # mean and sd of each quantity


def regression(X: np.ndarray, y: np.ndarray, log_prior: Callable, gammas: dict) -> Moments:
    """Flat coefficients, then sigma: q(beta) depends on the sum of squares alone."""
    n, p = X.shape
    inverse = np.linalg.inv(X.T @ X)
    mean = inverse @ X.T @ y
    least = np.sum((y - X @ mean) ** 2)
    log_sigma = 0.5 * np.log(least / n) + np.linspace(-8, 8, 801) / np.sqrt(n)
    sigma = np.exp(log_sigma)
    radius = np.linspace(0, 12, 1201)[1:] * np.sqrt(least / n)
    loss = n * log_sigma + (least + radius[:, None] ** 2) / (2 * sigma**2)
    inner = -loss / gammas["sigma"] + log_prior(sigma) + log_sigma  # the Jacobian
    log_z = logsumexp(inner, axis=1)
    outer = gammas["sigma"] * log_z / gammas["beta"] + (p - 1) * np.log(radius)
    weight = np.exp(outer - logsumexp(outer))
    q_sigma = weight @ np.exp(inner - log_z[:, None])
    moments = {"sigma": _moments(sigma, q_sigma)}
    spread = np.sqrt(weight @ radius**2 / p * np.diag(inverse))
    return moments | {f"beta[{j}]": (mean[j], spread[j]) for j in range(p)}


def _moments(x: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    mean = weight @ x / weight.sum()
    return float(mean), float(np.sqrt(weight @ (x - mean) ** 2 / weight.sum()))


def of_exact(answer: Callable) -> Callable[[dict], Moments]:
    def moments(gammas: dict) -> Moments:
        found = answer(gammas)
        return {n: (float(found.mean(n)), float(found.sd(n))) for n in found.confidence}

    return moments


def kilpisjarvi(x, y, pmualpha, psalpha, pmubeta, psbeta) -> Callable:
    def loss(alpha, beta, sigma):
        error = y - alpha[..., None] - beta[..., None] * x
        return len(y) * np.log(sigma) + (error**2).sum(axis=-1) / (2 * sigma**2)

    # a wide proper prior in the place of the flat one; its centre is that of the residuals
    top = 10 * np.std(y - np.polyval(np.polyfit(x, y, 1), x))
    blocks = [
        Block("alpha", stats.norm(pmualpha, psalpha)),
        Block("beta", stats.norm(pmubeta, psbeta)),
        Block("sigma", stats.uniform(0, top)),
    ]
    return lambda gammas: solve_exact(Model(blocks, loss), gammas, tolerance=1e-4)


def answers(cases: dict[str, Posterior]) -> dict[str, Callable[[dict], Moments]]:
    """For each posterior the moments as a function of the confidences."""
    half_cauchy = stats.halfcauchy(scale=2.5).logpdf
    schools, kid, earn = (
        next(case for name, case in cases.items() if part in name).args
        for part in ("schools", "kidscore", "logearn")
    )
    lake = next(case for name, case in cases.items() if "kilpisjarvi" in name).args

    def eight(gammas: dict) -> SimpleNamespace:
        top = {name: gammas[name] for name in ("mu", "tau")}
        tau = stats.halfcauchy(scale=5.0)
        return hierarchy(*schools, 5.0, tau, gammas["z"], top)

    return {
        "eight_schools": of_exact(eight),
        "kidscore": lambda gammas: regression(*kid, half_cauchy, gammas),
        "logearn": lambda gammas: regression(*earn, lambda sigma: 0.0 * sigma, gammas),
        "kilpisjarvi": of_exact(kilpisjarvi(*lake)),
    }


def draws_of(case: Posterior, file: Path) -> dict[str, np.ndarray]:
    """Reference draws as the model names its sites."""
    found = np.load(file)
    draws = {n: found[n] for n in found.files if ":" not in n and "[" not in n}
    for vector in {n.partition("[")[0] for n in found.files if "[" in n and ":" not in n}:
        count = sum(n.startswith(f"{vector}[") for n in found.files)
        draws[vector] = np.stack([found[f"{vector}[{i + 1}]"] for i in range(count)], axis=-1)
    if "theta" in draws and "tau" in draws:
        draws["z"] = (draws.pop("theta") - draws["mu"][..., None]) / draws["tau"][..., None]
    return draws


def derivatives(folder: Path) -> None:
    cases = {case.name: case for case in posteriors(folder)}
    for part, answer in answers(cases).items():
        case = next(case for name, case in cases.items() if part in name)
        start = time.process_time()
        table = sensitivity(
            draws_of(case, folder / f"{case.name}.npz"), case.model, *case.args
        ).derivatives
        seconds = time.process_time() - start
        blocks = list(dict.fromkeys(table["block"]))
        one = dict.fromkeys(blocks, 1.0)
        base = answer(one)
        errors = []
        for block in blocks:
            low, high = (answer({**one, block: 1.0 + sign * STEP}) for sign in (-1, 1))
            for quantity, (_, sd) in base.items():
                row = table[(table["block"] == block) & (table["quantity"] == quantity)].iloc[0]
                for k, title in enumerate(("mean", "sd")):
                    true = (high[quantity][k] - low[quantity][k]) / (2 * STEP) / sd
                    errors.append((row[title] - true) / row[f"{title}_se"])
        z = np.array(errors)
        print(
            f"{part}: {len(z)} derivatives, rms z {np.sqrt(np.mean(z**2)):.2f}, largest "
            f"{abs(z).max():.1f}; {seconds:.1f} s of CPU"
        )


def regression_draws(
    X: np.ndarray, y: np.ndarray, log_prior: Callable, rng: np.random.Generator, n: int
) -> dict[str, np.ndarray]:
    """Exact draws: sigma from a fine grid of its marginal, then normal coefficients."""
    inverse = np.linalg.inv(X.T @ X)
    mean = inverse @ X.T @ y
    least, rows, p = np.sum((y - X @ mean) ** 2), *X.shape
    grid = 0.5 * np.log(least / rows) + np.linspace(-10, 10, 20_001) / np.sqrt(rows)
    log_p = -(rows - p - 1) * grid - least / (2 * np.exp(2 * grid)) + log_prior(np.exp(grid))
    share = np.exp(log_p - log_p.max())
    picked = rng.choice(grid, size=n, p=share / share.sum())
    sigma = np.exp(picked + (grid[1] - grid[0]) * (rng.uniform(size=n) - 0.5))
    noise = rng.normal(size=(n, p)) @ np.linalg.cholesky(inverse).T
    return {"beta": mean + sigma[:, None] * noise, "sigma": sigma}


def weights(folder: Path, sets: int) -> None:
    """Errors of reweighted means and sds over their standard errors, by quantity."""
    rng = np.random.default_rng(31)
    half_cauchy = stats.halfcauchy(scale=2.5).logpdf
    kid = next(case for case in posteriors(folder) if "kidscore" in case.name)
    x = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    simulated = x, x @ [1.0, 0.5, 0.0] + rng.normal(size=40)
    for name, (X, y) in {"kidscore": kid.args, "simulated, 40 rows": simulated}.items():
        for change in ({"beta": 0.5}, {"beta": 0.7}, {"sigma": 2.0}, {"beta": 1.5}):
            gammas = {"beta": 1.0, "sigma": 1.0} | change
            truth = regression(X, y, half_cauchy, gammas)
            z: dict[str, list] = {}
            refused = infinite = 0
            for _ in range(sets):
                draws = regression_draws(X, y, half_cauchy, rng, 4000)
                try:
                    found = reweight(draws, kid.model, X, y, confidence=gammas)
                except ValueError:
                    refused += 1
                    continue
                table = found.summary().set_index("quantity")
                for quantity, (mean, sd) in truth.items():
                    row = table.loc[quantity]
                    infinite += not np.isfinite(row["sd_se"])
                    gaps = (row["mean"] - mean) / row["mean_se"], (row["sd"] - sd) / row["sd_se"]
                    z.setdefault(quantity, []).append(gaps)
            print(f"{name}, {change}: {refused} of {sets} refused, {infinite} errors infinite")
            for quantity, pairs in z.items():
                found = np.square(pairs)
                found[found == 0] = np.nan  # an infinite standard error
                size = np.sqrt(np.nanmean(found, axis=0))
                print(f"  {quantity}: rms z of the mean {size[0]:.2f}, of the sd {size[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("verb", choices=("derivatives", "weights", "time"))
    parser.add_argument("--sets", type=int, default=40, help="sets of draws, for weights")
    given = parser.parse_args()
    verb = given.verb
    if verb == "time":
        times()
        return
    folder = Path(os.environ["SOUBAYES_DATA"]) / "posteriordb"
    derivatives(folder) if verb == "derivatives" else weights(folder, given.sets)


def times() -> None:
    for seed in range(3):
        data = chain(seed)
        wall, cpu = time.perf_counter(), time.process_time()
        found = sensitivity(data, order=BLOCKS)
        took = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{len(found.derivatives)} rows in {took[0]:.2f} s ({took[1]:.2f} s of CPU)")
        cpu = time.process_time()
        answer = reweight(data, confidence={"x3": 0.8}, order=BLOCKS)
        print(f"reweight: {time.process_time() - cpu:.2f} s of CPU, k-hat {answer.khat:.2f}")


if __name__ == "__main__":
    main()
