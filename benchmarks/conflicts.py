"""How often a prior is called in conflict with the data, by level of a hierarchy.

`python benchmarks/conflicts.py --sets 150` draws data sets from the prior, where a conflict is
false, and data sets where one level lies 4 prior standard deviations out (the quantile of its
prior at the normal probability of 4; one coordinate of it if it has several). Posteriors are drawn
exactly or on a grid, and given as arrays, without a model. A hierarchy is a pair of functions: draw
everything from the prior with an optional level that is moved, and draw from the posterior.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import gammaln, logsumexp

from soubayes import sensitivity

DRAWS = 2000
OUT = 4.0
TAIL = stats.norm.sf(OUT)
norm = stats.norm


def scores(rng, size, far):
    """Standard normal, with the first coordinate at 4 if this level is moved."""
    u = rng.normal(size=size)
    if far:
        np.ravel(u)[0] = OUT
    return u


def gaussian(rng, precision, shift):
    """Draws of a normal vector with the precision and the linear term of its log density."""
    root = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, shift)
    return mean + np.linalg.solve(root.T, rng.normal(size=(len(mean), DRAWS))).T


def chain(levels, repeats, sd):
    """x_1 ~ N(0, 1), x_k ~ N(x_(k-1), 1), and observations of the last."""

    def draw(rng, far):
        u = np.array([scores(rng, 1, far == k)[0] for k in range(levels)])
        y = rng.normal(u.sum(), sd, repeats)
        steps = np.eye(levels) - np.eye(levels, k=-1)
        precision = steps.T @ steps
        precision[-1, -1] += repeats / sd**2
        x = gaussian(rng, precision, np.r_[np.zeros(levels - 1), y.sum() / sd**2])
        names = [f"x{k}" for k in range(levels)]
        prior = {"x0": norm.logpdf(x[:, 0])}
        for k in range(1, levels):
            prior[names[k]] = norm(x[:, k - 1]).logpdf(x[:, k])
        return dict(zip(names, x.T, strict=True)), prior, norm(x[:, -1:], sd).logpdf(y)

    return levels, draw


def one_level(repeats):
    return chain(1, repeats, 1.0)


def groups(size, sd):
    """mu ~ N(0, 2), theta_j ~ N(mu, 1), y_j ~ N(theta_j, sd)."""

    def draw(rng, far):
        mu = 2 * scores(rng, 1, far == 0)[0]
        y = rng.normal(mu + scores(rng, size, far == 1), sd)
        precision = np.diag(np.r_[1 / 4 + size, np.full(size, 1 + 1 / sd**2)])
        precision[0, 1:] = precision[1:, 0] = -1
        x = gaussian(rng, precision, np.r_[0, y / sd**2])
        mu, theta = x[:, 0], x[:, 1:]
        prior = {"mu": norm(0, 2).logpdf(mu), "theta": norm(mu[:, None]).logpdf(theta).sum(axis=1)}
        return {"mu": mu, "theta": theta}, prior, norm(theta, sd).logpdf(y)

    return 2, draw


def schools(size, sd):
    """tau ~ half N(1), mu ~ N(0, 2), theta_j ~ N(mu, tau), y_j ~ N(theta_j, sd); tau on a grid."""

    def draw(rng, far):
        tau = -norm.ppf(TAIL) if far == 0 else abs(rng.normal())
        mu = 2 * scores(rng, 1, far == 1)[0]
        y = rng.normal(mu + tau * scores(rng, size, far == 2), sd)
        grid = np.linspace(0.002, 15, 4000)
        total = grid[:, None] ** 2 + sd**2
        precision = size / total[:, 0] + 1 / 4
        centre = (y / total).sum(axis=1) / precision
        log_p = norm.logpdf(grid) - 0.5 * np.log(precision)
        log_p += 0.5 * (precision * centre**2 - (y**2 / total + np.log(total)).sum(axis=1))
        at = rng.choice(len(grid), DRAWS, p=np.exp(log_p - logsumexp(log_p)))
        tau = grid[at] + rng.uniform(-0.5, 0.5, DRAWS) * (grid[1] - grid[0])
        mu = rng.normal(centre[at], 1 / np.sqrt(precision[at]))
        pull = 1 / (1 / tau[:, None] ** 2 + 1 / sd**2)
        theta = rng.normal(pull * (y / sd**2 + (mu / tau**2)[:, None]), np.sqrt(pull))
        prior = {
            "tau": stats.halfnorm.logpdf(tau),
            "mu": norm(0, 2).logpdf(mu),
            "theta": norm(mu[:, None], tau[:, None]).logpdf(theta).sum(axis=1),
        }
        return {"tau": tau, "mu": mu, "theta": theta}, prior, norm(theta, sd).logpdf(y)

    return 3, draw


def rates(size, time):
    """rate ~ Gamma(3, 1), lam_j ~ Gamma(3, rate), y_j ~ Poisson(time lam_j); rate on a grid."""

    def draw(rng, far):
        prior_rate = stats.gamma(3)
        rate = prior_rate.isf(TAIL) if far == 0 else prior_rate.rvs(random_state=rng)
        lam = stats.gamma(3).ppf(norm.cdf(scores(rng, size, far == 1))) / rate
        y = rng.poisson(time * lam)
        grid = np.geomspace(1e-3, 60, 4000)
        log_p = prior_rate.logpdf(grid) + np.log(grid)
        log_p += 3 * size * np.log(grid) - (3 * size + y.sum()) * np.log(grid + time)
        at = rng.choice(len(grid), DRAWS, p=np.exp(log_p - logsumexp(log_p)))
        rate = grid[at] * np.exp(rng.uniform(-0.5, 0.5, DRAWS) * np.log(grid[1] / grid[0]))
        lam = rng.gamma(3 + y, 1 / (rate + time)[:, None])
        each = stats.gamma(3, scale=1 / rate[:, None]).logpdf(lam)
        prior = {"rate": prior_rate.logpdf(rate), "lam": each.sum(axis=1)}
        return {"rate": rate, "lam": lam}, prior, stats.poisson(time * lam).logpmf(y)

    return 2, draw


def shares(size, trials):
    """p ~ Beta(2, 2), q_j ~ Beta(8 p, 8 (1 - p)), y_j ~ Bin(trials, q_j); p on a grid."""

    def draw(rng, far):
        top = stats.beta(2, 2)
        p = top.isf(TAIL) if far == 0 else top.rvs(random_state=rng)
        q = stats.beta(8 * p, 8 * (1 - p)).ppf(norm.cdf(scores(rng, size, far == 1)))
        y = rng.binomial(trials, np.clip(q, 0, 1))
        grid = (np.arange(4000) + 0.5) / 4000
        a, b = 8 * grid[:, None], 8 * (1 - grid[:, None])
        each = gammaln(a + y) + gammaln(b + trials - y) - gammaln(a) - gammaln(b)
        log_p = top.logpdf(grid) + each.sum(axis=1)
        at = rng.choice(len(grid), DRAWS, p=np.exp(log_p - logsumexp(log_p)))
        p = grid[at] + rng.uniform(-0.5, 0.5, DRAWS) / 4000
        a, b = 8 * p[:, None], 8 * (1 - p[:, None])
        q = np.clip(rng.beta(a + y, b + trials - y), 1e-300, 1 - 1e-15)
        prior = {"p": top.logpdf(p), "q": stats.beta(a, b).logpdf(q).sum(axis=1)}
        return {"p": p, "q": q}, prior, stats.binom(trials, q).logpmf(y)

    return 2, draw


def one_share(trials):
    """The same with one group."""
    return shares(1, trials)


def slopes(size, rows, sd):
    """mu ~ N(0, 1), beta ~ N(mu, 0.5) with correlated columns, y ~ N(X beta, sd)."""

    def draw(rng, far):
        X = rng.normal(size=(rows, size)) @ (np.eye(size) + 0.5)
        mu = scores(rng, 1, far == 0)[0]
        y = rng.normal(X @ (mu + 0.5 * scores(rng, size, far == 1)), sd)
        precision = np.zeros((size + 1, size + 1))
        precision[0, 0] = 1 + 4 * size
        precision[1:, 1:] = 4 * np.eye(size) + X.T @ X / sd**2
        precision[0, 1:] = precision[1:, 0] = -4
        x = gaussian(rng, precision, np.r_[0, X.T @ y / sd**2])
        mu, beta = x[:, 0], x[:, 1:]
        prior = {
            "mu": norm.logpdf(mu),
            "beta": norm(mu[:, None], 0.5).logpdf(beta).sum(axis=1),
        }
        return {"mu": mu, "beta": beta}, prior, norm(beta @ X.T, sd).logpdf(y)

    return 2, draw


DEVELOPED = {
    "one level, n = 1": one_level(1),
    "chain of two, n = 1": chain(2, 1, 1.0),
    "chain of two, n = 20": chain(2, 20, 1.0),
    "chain of three, n = 20": chain(3, 20, 1.0),
    "8 groups": groups(8, 0.5),
    "8 schools": schools(8, 0.5),
    "gamma-Poisson, 8": rates(8, 20.0),
    "beta-binomial, 8": shares(8, 40),
}
UNSEEN = {
    "chain of four, n = 10": chain(4, 10, 1.0),
    "25 groups": groups(25, 0.7),
    "20 schools": schools(20, 1.0),
    "gamma-Poisson, 15": rates(15, 40.0),
    "beta-binomial, 1": one_share(60),
    "slopes, 6": slopes(6, 60, 1.0),
}


def called(draw, rng, far):
    """The blocks, and which of them are called in conflict."""
    values, prior, likelihood = draw(rng, far)
    columns = {}
    for name, x in values.items():
        x = x.reshape(DRAWS, -1)
        columns |= {f"{name}[{j}]" if x.shape[1] > 1 else name: x[:, j] for j in range(x.shape[1])}
    given = {
        "posterior": pd.DataFrame(columns),
        "log_prior": pd.DataFrame(prior),
        "log_likelihood": pd.DataFrame(likelihood).add_prefix("y"),
    }
    blocks = sensitivity(given, order=list(values)).blocks
    return blocks["block"].tolist(), (blocks["diagnosis"] == "prior-data conflict").to_numpy()


def main():
    warnings.simplefilter("error")
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=150)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--development", action="store_true")
    args = parser.parse_args()
    print("| hierarchy | level | false | true, 4 prior sds | CPU s for a call |")
    hierarchies = DEVELOPED if args.development else {**DEVELOPED, **UNSEEN}
    for title, (levels, draw) in hierarchies.items():
        if args.only not in title:
            continue
        names, seeds = [], range(args.first, args.first + args.sets)
        start = time.process_time()
        false = np.zeros(levels)
        for seed in seeds:
            names, conflict = called(draw, np.random.default_rng([seed, 0]), None)
            false += conflict
        seconds = (time.process_time() - start) / args.sets
        for k in range(levels):
            rngs = (np.random.default_rng([seed, 1, k]) for seed in seeds)
            true = sum(called(draw, rng, k)[1][k] for rng in rngs) / args.sets
            row = f"{false[k] / args.sets:.3f} | {true:.2f} | {seconds:.2f}"
            print(f"| {title} | {names[k]} | {row} |", flush=True)


if __name__ == "__main__":
    main()
