"""Estimates of log posterior over prior at draws, against the exact ratio: which one is better.

For each model and block: the standard deviation over the draws of the error of r_k, in nats, by the
regression, by kernels, by crossed draws where the model allows them, and by what
`sensitivity` chooses. `python benchmarks/ratios.py` prints a Markdown table.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy import stats

from soubayes.draws.crossed import crossed_ratios
from soubayes.draws.kernels import choose_bandwidths, kernel_log_density
from soubayes.draws.known import Draws
from soubayes.draws.ratios import FULL, _before, _regression, ratios
from soubayes.draws.sensitivity import known_draws

N = 4000
SEEDS = (300, 301)


class Drawn(NamedTuple):
    draws: Draws
    exact: dict[str, np.ndarray]


def levels(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
    numpyro.sample("y", dist.Normal(effect, 0.5), obs=y)


def two_levels(seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    variance = 1 / (1 / 4 + 1 / 1.25)
    mu = rng.normal(variance * 3.0 / 1.25, np.sqrt(variance), N)
    effect = rng.normal(mu + 0.8 * (3.0 - mu), np.sqrt(0.2))
    exact = stats.norm(variance * 3.0 / 1.25, np.sqrt(variance)).logpdf(mu)
    draws = known_draws({"mu": mu, "effect": effect}, levels, (3.0,), {}, None, None)
    return Drawn(draws, {"mu": exact - stats.norm(0, 2).logpdf(mu)})


def hierarchy(groups: int) -> Callable[[int], Drawn]:
    """tau, mu, theta of a centred hierarchy: eight schools, or 50 groups with unit noise."""
    data = np.random.default_rng(groups)
    y, error, tau_sd, mu_sd, top = data.normal(1, 1.2, groups), np.ones(groups), 2.0, 5.0, 6.0
    if groups == 8:
        y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
        error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
        tau_sd, mu_sd, top = 10.0, 20.0, 60.0

    def of_tau(tau):
        variance = tau[:, None] ** 2 + error**2
        precision = (1 / variance).sum(axis=1) + 1 / mu_sd**2
        centre = (y / variance).sum(axis=1) / precision
        log_p = stats.halfnorm(scale=tau_sd).logpdf(tau) - 0.5 * np.log(precision)
        log_p += 0.5 * (precision * centre**2 - (y**2 / variance + np.log(variance)).sum(axis=1))
        return log_p, centre, 1 / np.sqrt(precision)

    def model(y, error):
        tau = numpyro.sample("tau", dist.HalfNormal(tau_sd))
        mu = numpyro.sample("mu", dist.Normal(0.0, mu_sd))
        with numpyro.plate("groups", groups):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, error), obs=y)

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(seed)
        grid = np.linspace(1e-3, top, 6001)
        log_p = of_tau(grid)[0]
        share = np.exp(log_p - log_p.max())
        norm = log_p.max() + np.log(np.trapezoid(share, grid))
        tau = np.interp(rng.uniform(size=N), np.cumsum(share) / share.sum(), grid)
        log_tau, centre, sd = of_tau(tau)
        mu = rng.normal(centre, sd)
        pull = 1 / (1 / tau[:, None] ** 2 + 1 / error**2)
        theta = rng.normal(pull * (y / error**2 + (mu / tau**2)[:, None]), np.sqrt(pull))
        values = {"tau": tau, "mu": mu, "theta": theta}
        exact = {
            "tau": log_tau - norm - stats.halfnorm(scale=tau_sd).logpdf(tau),
            "mu": stats.norm(centre, sd).logpdf(mu) - stats.norm(0, mu_sd).logpdf(mu),
        }
        return Drawn(known_draws(values, model, (y, error), {}, None, None), exact)

    return draw


def plane(log_likelihood: Callable, sd: float, top: float) -> Callable[[int], Drawn]:
    """a, b ~ N(0, sd^2) with a likelihood of both, and c ~ N(a + b, 1), all by a fine grid."""

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(seed)
        grid = np.linspace(-top, top, 601)
        width = grid[1] - grid[0]
        prior = stats.norm(0, sd).logpdf

        def joint(a, b):
            return prior(a) + prior(b) + log_likelihood(a, b)

        table = joint(grid[:, None], grid)
        share = np.exp(table - table.max())
        cell = rng.choice(share.size, size=N, p=(share / share.sum()).ravel())
        jitter = width * (rng.uniform(size=(2, N)) - 0.5)
        a, b = grid[cell // 601] + jitter[0], grid[cell % 601] + jitter[1]
        norm = table.max() + np.log(share.sum() * width**2)
        marginal = np.log(np.exp(joint(a[:, None], grid)).sum(axis=1) * width)
        c = rng.normal(a + b, 1.0)
        values = {"a": a[:, None], "b": b[:, None], "c": c[:, None]}
        log_prior = {"a": prior(a), "b": prior(b), "c": stats.norm(a + b, 1).logpdf(c)}
        flat = dict.fromkeys(values, np.zeros(N))
        likelihood = log_likelihood(a, b)
        known = (values, log_prior, flat, likelihood, frozenset(), {}, 4)
        exact = {"a": marginal - norm - prior(a), "b": joint(a, b) - marginal - prior(b)}
        return Drawn(Draws(("a", "b", "c"), *known), exact)

    return draw


normal = stats.norm.logpdf
MODELS = {
    "two normal levels": two_levels,
    "eight schools, centred": hierarchy(8),
    "50 groups, centred": hierarchy(50),
    "two modes (a^2 = 6)": plane(lambda a, b: normal(a**2, 6, 1) + normal(b, a, 1), 3.0, 8.0),
    "skewed": plane(lambda a, b: stats.gumbel_r.logpdf(3 * a - 3) + normal(b, a, 1), 3.0, 8.0),
    "ring (a^2 + b^2 = 4)": plane(lambda a, b: normal(np.hypot(a, b), 2.0, 0.35), 2.0, 6.0),
    "product (a b = 1)": plane(lambda a, b: normal(a * b, 1.0, 0.5), 1.5, 7.0),
    "banana (b = a^2)": plane(lambda a, b: normal(b - a**2, -1.0, 0.4), 2.0, 9.0),
}


def errors(found: Drawn) -> dict[str, dict[str, float]]:
    draws, every = found.draws, np.ones(N, bool)
    chosen = ratios(draws).best
    rows = {}
    for block, exact in found.exact.items():
        x, before = draws.values[block][:, 0], _before(draws, block)[1]
        known = draws.log_jacobian[block] + draws.log_prior[block] + exact
        widths = choose_bandwidths(x, before)
        row = {
            "regression": np.std(_regression(x, before, every, FULL) - known),
            "kernels": np.std(kernel_log_density(x, before, every, widths) - known),
            "crossed": np.nan,
            "chosen": np.std(chosen[block] - exact),
        }
        if draws.crossed is not None and block == draws.names[0]:
            row["crossed"] = np.std(crossed_ratios(draws.crossed, np.arange(N) < N // 2)[0] - exact)
        rows[block] = row
    return rows


if __name__ == "__main__":
    print("| model | block | regression | kernels | crossed draws | chosen |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, draw in MODELS.items():
        runs = [errors(draw(seed)) for seed in SEEDS]
        for block in runs[0]:
            means = [np.mean([run[block][kind] for run in runs]) for kind in runs[0][block]]
            cells = " | ".join("–" if np.isnan(m) else f"{m:.3f}" for m in means)
            print(f"| {name} | {block} | {cells} |", flush=True)
