"""
How much of each hospital to believe
====================================

Successes in 12 small hospitals, a hierarchical logistic regression. At a low confidence in their
common prior the hospitals follow their own counts. At confidence 1 they are pooled by Bayes' rule.
At a high confidence they are held at the population. The data are simulated, so that the errors of
the three answers can be compared.
"""

import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist

from soubayes import Table, fit

rng = np.random.default_rng(3)
TRIALS = np.full(12, 25)
TRUE = rng.normal(-0.5, 0.7, size=12)
SUCCESSES = rng.binomial(TRIALS, 1 / (1 + np.exp(-TRUE)))


def hospitals(trials, successes):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    with numpyro.plate("hospitals", 12):
        logit = numpyro.sample("logit", dist.Normal(mu, scale))
        numpyro.sample("successes", dist.Binomial(trials, logits=logit), obs=successes)


gammas = [0.05, 1.0, 20.0]
fits = [
    fit(hospitals, TRIALS, SUCCESSES, confidence={"logit": gamma}, guide="conditional", restarts=1)
    for gamma in gammas
]
print(
    Table(
        confidence=gammas,
        spread_of_hospitals=[p.mean("logit").std() for p in fits],
        rmse=[np.sqrt(np.mean((p.mean("logit") - TRUE) ** 2)) for p in fits],
        kl_logit=[p.kl["logit"] for p in fits],
    )
)

# %%
# Bars are one posterior standard deviation, crosses the true values.

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
order = np.argsort(TRUE)
for shift, gamma, posterior in zip((-0.2, 0.0, 0.2), gammas, fits, strict=True):
    mean, sd = posterior.mean("logit")[order], posterior.sd("logit")[order]
    ax.errorbar(np.arange(12) + shift, mean, sd, fmt="o", ms=4, label=f"confidence {gamma:g}")
ax.plot(np.arange(12), TRUE[order], "kx", label="true value")
ax.set(xlabel="hospital, in the order of its true value", ylabel="log odds of success")
ax.legend()
plt.show()
