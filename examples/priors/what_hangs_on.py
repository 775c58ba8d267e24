"""
What does the conclusion hang on?
=================================

Successes in twelve hospitals, whose log odds vary around a population. Somebody chose the prior of
the spread for hospitals that are nearly alike. Draws from NUTS are enough to say which prior the
conclusions depend on, without another fit.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

from soubayes import reweight, sensitivity

rng = np.random.default_rng(3)
TRIALS = np.full(12, 25)
SUCCESSES = rng.binomial(TRIALS, 1 / (1 + np.exp(-rng.normal(-0.5, 0.7, size=12))))


def hospitals(trials, successes):
    tau = numpyro.sample("tau", dist.HalfNormal(0.2))  # hospitals are nearly alike
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    with numpyro.plate("hospitals", 12):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        logit = numpyro.deterministic("logit", mu + tau * z)
        numpyro.sample("successes", dist.Binomial(trials, logits=logit), obs=successes)


sampler = MCMC(
    NUTS(hospitals),
    num_warmup=500,
    num_samples=1000,
    num_chains=4,
    chain_method="vectorized",
    progress_bar=False,
)
sampler.run(jax.random.key(0), TRIALS, SUCCESSES)
found = sensitivity(sampler, hospitals, TRIALS, SUCCESSES, quantities=["tau", "logit"])
print(found.blocks)

# %%
# The spread ``tau`` and the hospitals at both ends move with the confidence in the prior of
# ``tau``: the conclusion that hospitals differ hangs on that prior.

ax = found.plot()
ax.figure.set_size_inches(8, 5)
plt.show()

# %%
# At half the confidence in that prior the hospitals differ more. The draws are reweighted; where
# they did not reach, this would be an error.

doubted = reweight(sampler, hospitals, TRIALS, SUCCESSES, confidence={"tau": 0.5})
trusted = sampler.get_samples()
print(f"tau: {trusted['tau'].mean():.2f} at confidence 1, {doubted.mean('tau'):.2f} at 0.5")
print(f"log odds from {trusted['logit'].mean(axis=0).min():.2f}", end=" ")
print(f"at confidence 1, from {doubted.mean('logit').min():.2f} at 0.5")
