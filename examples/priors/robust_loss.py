"""
Another loss: a mean that resists outliers
==========================================

The loss need not be a likelihood. Twenty observations near 2 and four far away: with the log
likelihood of a normal distribution the outliers drag the mean along. The beta-divergence limits
what a single observation can do.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from soubayes import beta_loss, fit

rng = np.random.default_rng(0)
y = np.concatenate([rng.normal(2.0, 1.0, 20), [9.0, 9.5, 10.0, 11.0]])


def model(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


losses = {
    "log likelihood": None,
    "beta-divergence": {"y": partial(beta_loss, beta=0.3)},
}
fits = {
    name: fit(model, y, loss=loss, restarts=1, guide="meanfield") for name, loss in losses.items()
}

# %%
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
grid = np.linspace(1, 5, 400)
for name, posterior in fits.items():
    mean, sd = posterior.mean("mu"), posterior.sd("mu")
    print(f"{name:22s} mu {mean:.2f} ± {sd:.2f}")
    ax.plot(grid, np.exp(-0.5 * ((grid - mean) / sd) ** 2) / sd / np.sqrt(2 * np.pi), label=name)
ax.plot(y[y < 5], np.full(20, -0.05), "k|")
ax.axvline(y.mean(), color="0.6", ls=":", label="mean of all observations")
ax.set(xlabel="mu", ylabel="posterior density")
ax.legend()
plt.show()
