"""
Cutting feedback: HPV and cervical cancer
=========================================

Thirteen regions have two tables. In the first, a survey found ``hpv`` women with a high-risk strain
of HPV among ``women``. In the second, a registry counted ``cases`` of cervical cancer in ``years``
woman-years. A Poisson regression of the incidence on the prevalence joins them. The regression is
only a guess, and the registry is so large that it would rather change the prevalences than fit
badly. Plummer (2015) cut the feedback: the prevalences are estimated from the survey alone.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from soubayes import fit

# Maucort-Boulch et al. (2008)
hpv = np.array([7, 6, 10, 10, 1, 1, 10, 4, 35, 0, 10, 8, 4])
women = np.array([111, 71, 162, 188, 145, 215, 166, 37, 173, 143, 229, 696, 93])
cases = np.array([16, 215, 362, 97, 76, 62, 710, 56, 133, 28, 62, 413, 194])
years = np.array([26983, 250930, 829348, 157775, 150467, 352445, 553066, 26751, 75815, 150302])
years = np.append(years, [354993, 3683043, 507218])


def model(hpv, cases):
    with numpyro.plate("regions", 13):
        prevalence = numpyro.sample("prevalence", dist.Uniform(0.0, 1.0))
        numpyro.sample("hpv", dist.Binomial(women, prevalence), obs=hpv)
    wide = dist.Normal(0.0, np.sqrt(1000.0))
    theta = numpyro.sample("theta", wide.expand([2]).to_event(1))
    rate = jnp.exp(theta[0] + theta[1] * prevalence) * years / 1000
    with numpyro.plate("registries", 13):
        numpyro.sample("cases", dist.Poisson(rate), obs=cases)


# %%
# An observed site belongs to the module of the last block that it depends on: ``hpv`` to the
# prevalences, ``cases`` to theta. With ``eta=0`` the prevalences do not hear of the registry, and
# with ``eta=0.3`` they hear a part: a power of its evidence, or of its likelihood (``"smi"``).
posteriors = {
    "full feedback": fit(model, hpv, cases),
    "0.3, power": fit(model, hpv, cases, eta={"theta": 0.3}),
    "0.3, smi": fit(model, hpv, cases, eta={"theta": 0.3}, feedback="smi"),
    "cut": fit(model, hpv, cases, eta={"theta": 0.0}),
}
for name, posterior in posteriors.items():
    slope = posterior.draws["theta"][:, 1]
    print(f"{name:14s} slope {slope.mean():.1f} ± {slope.std():.1f} ({posterior.verdict})")
print(posteriors["cut"].stages[["blocks", "guide", "verdict"]].to_string(index=False))

# %%
# With full feedback the registry moves the prevalences far from what the survey says: region 8 had
# 35 carriers among 173 women (0.20) and is put at 0.12, region 4 had 1 among 145 (0.01) and is put
# at 0.07. Otherwise the line could not pass through 2,424 cases.
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for name in ("full feedback", "cut"):
    posterior = posteriors[name]
    left.hist(posterior.draws["theta"][:, 1], bins=60, density=True, alpha=0.6, label=name)
    low, middle, high = posterior.quantile("prevalence", [0.05, 0.5, 0.95])
    place = np.arange(13) + (0.12 if name == "cut" else -0.12)
    right.errorbar(place, middle, [middle - low, high - middle], fmt="o", ms=4, label=name)
right.plot(np.arange(13), hpv / women, "k_", ms=12, label="survey")
left.set(xlabel="slope of the log incidence", ylabel="posterior density")
right.set(xlabel="region", ylabel="prevalence, 90 % interval", xticks=np.arange(13))
left.legend()
right.legend()
plt.show()
