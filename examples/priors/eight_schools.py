"""
Eight schools on a slider: from separate schools to one population
==================================================================

Rubin's (1981) effects of coaching in eight schools. The prior of the effects says that the schools
are draws of one population. Its confidence says how far to believe that. A low confidence leaves
every school with its own data (no pooling). A high confidence holds all effects at the population
mean (complete pooling). ``fit_family`` learns the posteriors at all confidences in one training.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from soubayes import fit_family

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(effect, error):
    mu = numpyro.sample("mu", dist.Normal(0.0, 20.0))
    tau = numpyro.sample("tau", dist.HalfNormal(10.0))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


family = fit_family(schools, EFFECT, ERROR, confidence={"theta": (0.3, 10.0)})
path = family.path("theta", 15)
columns = ["confidence", "verdict", "mean_theta[0]", "sd_theta[0]", "mean_tau", "kl_theta"]
print(path[columns][::2].round(3).to_string(index=False))

# %%
# The page with a slider is one file that needs no network. The documentation of ``fit_family``
# shows the one with two sliders.
page = Path(tempfile.mkdtemp()) / "schools.html"
family.to_html(page, quantities=["tau", "theta"], title="Eight schools")
print(f"{page.stat().st_size / 1e6:.2f} MB")

# %%
figure, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for school, letter in enumerate("ABCDEFGH"):
    ax.plot(path["confidence"], path[f"mean_theta[{school}]"], label=letter)
ax.set(
    xscale="log",
    xlabel="confidence in the population of schools",
    ylabel="effect (posterior mean)",
)
ax.axvline(1.0, color="0.7", zorder=0)
ax.legend(title="school", ncols=2, frameon=False)
plt.show()
