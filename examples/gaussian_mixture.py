"""A Gaussian mixture, labels summed out: how firmly do we believe in equal shares?

80 points of one cluster and 20 of another. The prior of the shares is concentrated at one half
each. Its confidence decides between that belief and the counts; the locations, at confidence 1,
are inferred as ever.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from soubayes import Table, fit

rng = np.random.default_rng(0)
X = np.concatenate([rng.normal(-1.5, 1.0, 80), rng.normal(1.5, 1.0, 20)])


def mixture(x):
    share = numpyro.sample("share", dist.Beta(50.0, 50.0))  # of the left cluster
    centre = numpyro.sample("centre", dist.Normal(0.0, 2.0))
    gap = numpyro.sample("gap", dist.LogNormal(0.0, 0.5))  # half the distance: orders the clusters
    places = jnp.stack([centre - gap, centre + gap])
    mixing = dist.Categorical(probs=jnp.stack([share, 1.0 - share]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MixtureSameFamily(mixing, dist.Normal(places, 1.0)), obs=x)


gammas = [0.01, 1.0]
fits = [fit(mixture, X, confidence={"share": gamma}, restarts=1) for gamma in gammas]
print(
    Table(
        confidence_share=gammas,
        share=[p.mean("share") for p in fits],
        sd=[p.sd("share") for p in fits],
        left=[p.mean("centre") - p.mean("gap") for p in fits],
        right=[p.mean("centre") + p.mean("gap") for p in fits],
        kl_share=[p.kl["share"] for p in fits],
    )
)
