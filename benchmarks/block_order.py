"""How often a wrong order of the blocks is seen in draws, and how often a right one is refused.

`python benchmarks/block_order.py --sets 10` checks each hierarchy at 500, 1,000 and 4,000 draws in
its order, in a random wrong order, and with the joint log prior given as that of the first block.
A hierarchy is a function of a generator and a number of draws: the draws, the log priors, and the
blocks that each log prior depends on. Posteriors need not be exact, since only log priors matter.
"""

import argparse
import time

import numpy as np
from scipy import stats

from soubayes.draws.parents import check_order

norm, t = stats.norm, stats.t


def two_levels(rng, n):
    mu = rng.normal(1, 0.8, n)
    x = rng.normal((mu + 3) / 2, 0.7)
    return {"mu": mu, "x": x}, {"mu": norm.logpdf(mu), "x": norm(mu).logpdf(x)}, {"x": {"mu"}}


def groups(size):
    def draw(rng, n):
        tau, mu = np.exp(rng.normal(0, 0.5, n)), rng.normal(1, 0.5, n)
        pull = 1 / (1 / tau**2 + 1)[:, None]
        theta = rng.normal(pull * (rng.normal(0, 2, size) + (mu / tau**2)[:, None]), np.sqrt(pull))
        log_prior = {
            "tau": stats.halfcauchy(scale=2).logpdf(tau),
            "mu": norm(0, 5).logpdf(mu),
            "theta": norm(mu[:, None], tau[:, None]).logpdf(theta).sum(axis=1),
        }
        return {"tau": tau, "mu": mu, "theta": theta}, log_prior, {"theta": {"mu", "tau"}}

    return draw


def chain(rng, n):
    a = rng.normal(0, 1, n)
    b = rng.normal(a, 0.7)
    c = rng.normal(b, 0.5)
    log_prior = {"a": norm(0, 2).logpdf(a), "b": norm(a).logpdf(b), "c": norm(b).logpdf(c)}
    return {"a": a, "b": b, "c": c}, log_prior, {"b": {"a"}, "c": {"b"}}


def heavy_tails(rng, n):
    m = rng.standard_t(3, n)
    x = m + rng.standard_t(2, n)
    log_prior = {"m": stats.cauchy(0, 2).logpdf(m), "x": t(3, m).logpdf(x)}
    return {"m": m, "x": x}, log_prior, {"x": {"m"}}


def gamma_rates(rng, n):
    rate = rng.gamma(4, 0.5, n)
    lam = rng.gamma(5, 1, (n, 6)) / (rate[:, None] + 1)
    each = stats.gamma(3, scale=1 / rate[:, None]).logpdf(lam)
    log_prior = {"rate": stats.gamma(2).logpdf(rate), "lam": each.sum(axis=1)}
    return {"rate": rate, "lam": lam}, log_prior, {"lam": {"rate"}}


def shares(rng, n):
    kappa = np.exp(rng.normal(1, 0.5, n))
    p = rng.beta(3 + kappa, 4 + kappa)
    log_prior = {
        "kappa": stats.expon.logpdf(kappa),
        "p": stats.beta(kappa + 1, 2 * kappa + 1).logpdf(p),
    }
    return {"kappa": kappa, "p": p}, log_prior, {"p": {"kappa"}}


def horseshoe(size):
    def draw(rng, n):
        tau, lam = np.exp(rng.normal(-1, 0.5, n)), np.exp(rng.normal(0, 0.8, (n, size)))
        scale = tau[:, None] * lam
        beta = rng.normal(0.1, scale)
        log_prior = {
            "tau": stats.halfcauchy.logpdf(tau),
            "lam": stats.halfcauchy.logpdf(lam).sum(axis=1),
            "beta": norm(0, scale).logpdf(beta).sum(axis=1),
        }
        return {"tau": tau, "lam": lam, "beta": beta}, log_prior, {"beta": {"tau", "lam"}}

    return draw


def mixture(rng, n):
    kind = rng.integers(0, 3, n)
    place = np.array([-2.0, 0.5, 3.0])[kind]
    mu = rng.normal(place * 0.4 + 0.6, 0.5)
    log_prior = {"kind": np.log([0.5, 0.3, 0.2])[kind], "mu": norm(place).logpdf(mu)}
    return {"kind": kind, "mu": mu}, log_prior, {"mu": {"kind"}}


def regression(rng, n):
    b = rng.normal(size=(n, 10)) @ rng.normal(size=(10, 10)) / 3
    sigma = np.exp(rng.normal(0.05 * b[:, 0], 0.1))
    log_prior = {"b": norm(0, 2.5).logpdf(b).sum(axis=1), "sigma": stats.expon.logpdf(sigma)}
    return {"b": b, "sigma": sigma}, log_prior, {}


def student_groups(rng, n):
    """No design has this density of ten coordinates: neither order is refused."""
    scale = np.exp(rng.normal(0, 0.5, n))
    x = rng.standard_t(4, (n, 10)) * scale[:, None]
    each = t(4, 0, scale[:, None]).logpdf(x)
    log_prior = {"scale": stats.halfnorm.logpdf(scale), "x": each.sum(axis=1)}
    return {"scale": scale, "x": x}, log_prior, {"x": {"scale"}}


def repeated(rng, n):
    """Later blocks that nearly repeat the earlier ones."""
    values, log_prior, parents = student_groups(rng, n)
    w = rng.normal(values["x"], 0.01)
    sigma = values["scale"] ** 0.3 * np.exp(rng.normal(0, 0.05, n))
    log_prior |= {
        "w": norm(values["x"], 0.01).logpdf(w).sum(axis=1),
        "sigma": stats.expon.logpdf(sigma),
    }
    return {**values, "w": w, "sigma": sigma}, log_prior, {**parents, "w": {"x"}}


def gaussian_process(rng, n):
    length = np.exp(rng.normal(0, 0.3, n))
    grid = np.arange(6.0)
    squares = -0.5 * (grid[:, None] - grid) ** 2 / length[:, None, None] ** 2
    covariance = np.exp(squares) + 1e-3 * np.eye(6)
    f = 0.5 * (np.linalg.cholesky(covariance) @ rng.normal(size=(n, 6, 1)))[..., 0]
    form = np.sum(f * np.linalg.solve(covariance, f[..., None])[..., 0], axis=1)
    log_prior = {
        "length": stats.invgamma(5, scale=5).logpdf(length),
        "f": -0.5 * (form + np.linalg.slogdet(covariance)[1]),
    }
    return {"length": length, "f": f}, log_prior, {"f": {"length"}}


def nine_blocks(rng, n):
    mu = rng.normal(0, 1, n)
    values, log_prior, parents = {"mu": mu}, {"mu": norm.logpdf(mu)}, {}
    for i in range(4):
        tau = np.exp(rng.normal(0, 0.4, n))
        x = rng.normal(mu[:, None], tau[:, None], (n, 5))
        values |= {f"tau{i}": tau, f"x{i}": x}
        each = norm(mu[:, None], tau[:, None]).logpdf(x)
        log_prior |= {f"tau{i}": stats.halfnorm.logpdf(tau), f"x{i}": each.sum(axis=1)}
        parents[f"x{i}"] = {"mu", f"tau{i}"}
    return values, log_prior, parents


def lognormal(rng, n):
    m, sd = rng.normal(0, 1, n), np.exp(rng.normal(-1, 0.3, n))
    x = np.exp(rng.normal(m, sd))
    log_prior = {
        "m": norm.logpdf(m),
        "sd": stats.invgamma(3).logpdf(sd),
        "x": stats.lognorm(sd, scale=np.exp(m)).logpdf(x),
    }
    return {"m": m, "sd": sd, "x": x}, log_prior, {"x": {"m", "sd"}}


def random_walk(rng, n):
    step = np.exp(rng.normal(-1, 0.2, n))
    x = np.cumsum(rng.normal(0, step[:, None], (n, 20)), axis=1)
    each = norm(0, step[:, None]).logpdf(np.diff(x, axis=1)).sum(axis=1)
    log_prior = {"step": stats.halfnorm.logpdf(step), "x": each + norm.logpdf(x[:, 0])}
    return {"step": step, "x": x}, log_prior, {"x": {"step"}}


def laplace(rng, n):
    b = np.exp(rng.normal(0, 0.4, n))
    x = rng.laplace(0, b[:, None], (n, 20)) + rng.normal(0, 0.2, (n, 20))
    each = stats.laplace(0, b[:, None]).logpdf(x)
    log_prior = {"b": stats.gamma(2).logpdf(b), "x": each.sum(axis=1)}
    return {"b": b, "x": x}, log_prior, {"x": {"b"}}


UNSEEN = {"student groups": student_groups, "repeated": repeated, "GP": gaussian_process}
HIERARCHIES = {
    "two levels": two_levels,
    "1 group": groups(1),
    "8 groups": groups(8),
    "47 groups": groups(47),
    "chain": chain,
    "heavy tails": heavy_tails,
    "gamma": gamma_rates,
    "beta": shares,
    "horseshoe, 5": horseshoe(5),
    "horseshoe, 20": horseshoe(20),
    "mixture": mixture,
    "regression": regression,
    "lognormal": lognormal,
    "random walk": random_walk,
    "Laplace": laplace,
    "nine blocks": nine_blocks,
}


def fits(order, parents):
    return all(set(parents.get(name, ())) <= set(order[:i]) for i, name in enumerate(order))


def wrong_order(rng, names, parents):
    order = [names[i] for i in rng.permutation(len(names))]
    return names[::-1] if fits(order, parents) else order


def refusal(values, log_prior, order):
    """The message of the check, or nothing."""
    columns = {name: values[name].reshape(len(values[name]), -1) for name in order}
    try:
        check_order(columns, log_prior, {})
    except ValueError as error:
        return str(error)
    return ""


def advised(message):
    """The order that a message advises, if it does."""
    _, found, rest = message.partition("An order that fits is [")
    return rest.partition("]")[0].replace("'", "").split(", ") if found else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=int, default=10)
    parser.add_argument("--first", type=int, default=100)
    args = parser.parse_args()
    print(
        "| hierarchy | right, refused | wrong, refused | order that fits | joint, refused | CPU s |"
    )
    for title, draw in {**HIERARCHIES, **UNSEEN}.items():
        counts, seconds = np.zeros(6, int), 0.0
        for n in (500, 1000, 4000):
            for seed in range(args.first, args.first + args.sets):
                rng = np.random.default_rng([seed, n])
                values, log_prior, parents = draw(rng, n)
                names = list(values)
                start = time.process_time()
                right = refusal(values, log_prior, names)
                seconds += time.process_time() - start
                counts[:2] += 1, bool(right)
                if not parents:
                    continue
                wrong = refusal(values, log_prior, wrong_order(rng, names, parents))
                advice = advised(wrong)
                joint = {**log_prior, names[0]: np.sum(list(log_prior.values()), axis=0)}
                told = "joint" in refusal(values, joint, names)
                counts[2:] += 1, bool(wrong), advice is not None and fits(advice, parents), told
        total, right, tried, wrong, good, joint = counts
        row = f"{right} of {total} | {wrong} of {tried} | {good} | {joint} of {tried}"
        print(f"| {title} | {row} | {seconds / total:.3f} |", flush=True)


if __name__ == "__main__":
    main()
