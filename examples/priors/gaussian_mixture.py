"""
A mixture whose shares are doubted
==================================

100 points, 80 from one cluster and 20 from another. The prior says that both clusters have about
the same share. The confidence in that prior decides between the belief and the counts. The
locations of the clusters are inferred as usual.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from soubayes import fit

rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(-1.5, 1.0, 80), rng.normal(1.5, 1.0, 20)])


def mixture(x):
    share = numpyro.sample("share", dist.Beta(50.0, 50.0))  # of the left cluster
    centre = numpyro.sample("centre", dist.Normal(0.0, 2.0))
    gap = numpyro.sample("gap", dist.LogNormal(0.0, 0.5))  # half the distance of the clusters
    places = jnp.stack([centre - gap, centre + gap])
    mixing = dist.Categorical(probs=jnp.stack([share, 1.0 - share]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MixtureSameFamily(mixing, dist.Normal(places, 1.0)), obs=x)


fits = {
    gamma: fit(mixture, X, confidence={"share": gamma}, restarts=1, guide="conditional")
    for gamma in (1.0, 0.01)
}
for gamma, posterior in fits.items():
    print(f"confidence {gamma}: share {posterior.mean('share'):.2f} ± {posterior.sd('share'):.2f}")

# %%
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
ax.hist(X, bins=25, density=True, color="0.85")
grid = np.linspace(-5, 5, 300)
for (gamma, posterior), style in zip(fits.items(), ("--", "-"), strict=True):
    share, centre, gap = (posterior.mean(name) for name in ("share", "centre", "gap"))
    density = sum(
        weight * np.exp(-0.5 * (grid - place) ** 2) / np.sqrt(2 * np.pi)
        for weight, place in ((share, centre - gap), (1 - share, centre + gap))
    )
    ax.plot(grid, density, style, label=f"confidence {gamma:g}: share {share:.2f}")
ax.set(xlabel="x", ylabel="density")
ax.legend()
plt.show()
