"""
Eight schools: from separate schools to one population
======================================================

Rubin's (1981) effects of coaching in eight schools. The prior of the effects says that the schools
are draws of one population. Its confidence says how far to believe that. A low confidence leaves
every school with its own data (no pooling). A high confidence holds all effects at the population
mean (complete pooling).
"""

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

from soubayes import fit

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(effect, error):
    mu = numpyro.sample("mu", dist.Normal(0.0, 20.0))
    tau = numpyro.sample("tau", dist.HalfNormal(10.0))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


gammas = [0.1, 0.3, 1.0, 3.0, 10.0]  # these fits share one compiled program
fits = [
    fit(
        schools,
        EFFECT,
        ERROR,
        confidence={"theta": gamma},
        guide="conditional",
        restarts=1,
        polish=0,
    )
    for gamma in gammas
]
rows = {
    "confidence": gammas,
    "school_A": [p.mean("theta")[0] for p in fits],
    "sd_A": [p.sd("theta")[0] for p in fits],
    "spread_of_schools": [p.mean("theta").std() for p in fits],
    "kl_theta": [p.kl["theta"] for p in fits],
}
print(pd.DataFrame(rows).round(3).to_string(index=False))

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for school, line in enumerate(np.array([p.mean("theta") for p in fits]).T):
    ax.plot(gammas, line, marker="o", markersize=3, label="ABCDEFGH"[school])
ax.set(
    xscale="log",
    xlabel="confidence in the population of schools",
    ylabel="effect (posterior mean)",
)
ax.legend(ncols=2, fontsize="small")
plt.show()
