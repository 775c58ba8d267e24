"""CPU seconds of the exact engines, beside what they replace. One thread: OMP_NUM_THREADS=1.

Guides (not asserted): two continuous blocks under 50 ms, three under 2 s, the Gaussian engine at 20
blocks of 50 dimensions under 50 ms.
"""

import time

import numpy as np
from scipy import integrate, stats

from soubayes import (
    Block,
    GaussianBlock,
    GaussianModel,
    Model,
    QuadraticLoss,
    solve_exact,
    solve_gaussian,
)

rng = np.random.default_rng(0)
y = rng.normal(1, 2, size=20)


def normal_loss(mu, scale):
    z = (y - mu[..., None]) / scale[..., None]
    return (0.5 * z**2 + np.log(scale[..., None])).sum(axis=-1)


two = Model([Block("mu", stats.norm(0, 5)), Block("scale", stats.halfcauchy(0, 1))], normal_loss)
hierarchy = Model(
    [Block("tau", stats.halfcauchy(0, 1)), Block("theta", lambda tau: stats.norm(0, tau))],
    lambda tau, theta: (theta - 3) ** 2 / 2,
)
three = Model(
    [
        Block("mu", stats.norm(0, 5)),
        Block("tau", stats.halfnorm(0, 1)),
        Block("theta", lambda mu, tau: stats.norm(mu, tau)),
    ],
    lambda mu, tau, theta: (theta - 3) ** 2 / 2 + (mu - 1) ** 2,
)
flat_three = Model(
    [Block(name, stats.norm(0, 1)) for name in "abc"],
    lambda a, b, c: (a - 1) ** 2 + (b - a) ** 2 + (c - b) ** 2 * np.exp(a / 4),
)


def gaussian(blocks=20, d=50):
    parts, before = [], 0
    for k in range(blocks):
        coef = rng.normal(0, 0.1, size=(d, before)) if before else None
        parts.append(GaussianBlock(f"b{k}", np.zeros(d), 1.0, coef))
        before += d
    X = rng.normal(size=(200, before))
    return GaussianModel(parts, QuadraticLoss.least_squares(X, rng.normal(size=200), 1.0))


def by_scipy():
    """The evidence of ``two`` by scipy.integrate.dblquad at the same accuracy."""

    def weight(scale, mu):
        loss = (0.5 * ((y - mu) / scale) ** 2).sum() + len(y) * np.log(scale) - 30
        prior = np.exp(-(mu**2) / 50) / np.sqrt(50 * np.pi) * 2 / np.pi / (1 + scale**2)
        return np.exp(-loss) * prior

    return integrate.dblquad(weight, -4, 6, 0.5, 9, epsabs=0, epsrel=1e-8)[0]


def seconds(call, repeats):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times), float(np.median(times))


if __name__ == "__main__":
    big = gaussian()
    rows = [
        ("two blocks", lambda: solve_exact(two), 5, 0.05),
        ("two blocks, one at 1e-9", lambda: solve_exact(two, {"scale": 1e-9}), 5, 0.05),
        ("hierarchy tau, theta | tau", lambda: solve_exact(hierarchy), 5, 0.05),
        ("three blocks, hierarchy", lambda: solve_exact(three), 3, 2.0),
        ("three blocks, smooth", lambda: solve_exact(flat_three), 3, 2.0),
        ("Gaussian, 20 x 50", lambda: solve_gaussian(big), 5, 0.05),
    ]
    print(f"{'':28s} {'best':>9s} {'median':>9s} {'guide':>9s}")
    measured = {}
    for name, call, repeats, guide in rows:
        best, median = measured[name] = seconds(call, repeats)
        print(f"{name:28s} {best * 1e3:6.1f} ms {median * 1e3:6.1f} ms {guide * 1e3:6.0f} ms")
    peer = seconds(by_scipy, 1)[0]
    ratio = peer / measured["two blocks"][0]
    print(f"\nscipy.integrate.dblquad on 'two blocks': {peer:.2f} s, {ratio:.0f} times ours")
