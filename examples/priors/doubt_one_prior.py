"""
Doubt one prior, keep the other
===============================

Twelve measurements with an unknown mean and an unknown standard deviation. The prior of the
standard deviation was set for a better instrument: it expects 1, and the data say more than 3. The
prior of the mean is trusted. A confidence for each block treats the two priors differently.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from soubayes import Block, Model, confidence_path, solve_exact

y = np.random.default_rng(1).normal(10.0, 6.0, size=12)


def loss(mu, sd):
    return -stats.norm(mu[..., None], sd[..., None]).logpdf(y).sum(axis=-1)


model = Model(
    [Block("mu", stats.norm(12, 3)), Block("sd", stats.gamma(20, scale=1 / 20))],
    loss,
)
print(f"{len(y)} observations, mean {y.mean():.2f}, sd {y.std():.2f}\n")
for title, confidence in {
    "Bayes": {},
    "doubt the prior of sd": {"sd": 0.05},
    "doubt both priors": {"mu": 0.05, "sd": 0.05},
}.items():
    print(title)
    print(solve_exact(model, confidence).summary().round(3).to_string(index=False), "\n")

# %%
# As the confidence in the prior of ``sd`` falls, ``sd`` moves from its prior to the data. The mean
# stays a compromise between its own prior and the data, with the uncertainty that the larger
# ``sd`` implies.

path = confidence_path(model, "sd", [3.0, 1.0, 0.3, 0.1, 0.03, 0.01])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", sharex=True)
for ax, name, data in ((left, "sd", y.std()), (right, "mu", y.mean())):
    ax.errorbar(path["gamma"], path[f"mean_{name}"], path[f"sd_{name}"], marker="o", capsize=3)
    ax.axhline(data, color="0.5", linestyle=":", label="the data alone")
    ax.set(xscale="log", xlabel="confidence in the prior of sd", ylabel=name)
left.legend()
plt.show()
