"""Doubt one prior and keep the other: the scale prior is wrong, the prior of the mean is not."""

import numpy as np
from scipy import stats

from soubayes import Block, Model, confidence_path, solve_exact

y = np.random.default_rng(1).normal(10.0, 6.0, size=12)


def loss(mu, sd):
    z = (y - mu[..., None]) / sd[..., None]
    return (z**2 / 2 + np.log(sd[..., None])).sum(axis=-1) + len(y) / 2 * np.log(2 * np.pi)


# the prior of sd was set for a better instrument: it expects 1, the data say otherwise
model = Model(
    [Block("mu", stats.norm(12, 3)), Block("sd", stats.gamma(20, scale=1 / 20))],
    loss,
)
print(f"{len(y)} observations, mean {y.mean():.2f}, sd {y.std():.2f}\n")
for title, confidence in {
    "Bayes": {},
    "doubt the prior of sd": {"sd": 0.05},
    "doubt everything": {"mu": 0.05, "sd": 0.05},
}.items():
    print(title)
    print(solve_exact(model, confidence).summary(), "\n")

path = confidence_path(model, "sd", [1.0, 0.3, 0.1, 0.03, 0.01])
print("along the confidence of sd")
for row in zip(path["gamma"], path["mean_sd"], path["mean_mu"], path["sd_mu"], strict=True):
    print("gamma {:5.2f}: sd {:.2f}, mu {:.2f} +- {:.2f}".format(*row))
