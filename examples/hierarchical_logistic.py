"""A hierarchical logistic regression: how much of each hospital to believe.

Successes in 12 small hospitals. The hospitals' logits at confidence 0.05 follow their own counts;
at confidence 1 they are pooled as Bayes' rule has it; at confidence 20 they are held to the
population. The scale between hospitals is a distribution throughout.
"""

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
        confidence_logit=gammas,
        scale=[p.mean("scale") for p in fits],
        spread_of_hospitals=[p.mean("logit").std() for p in fits],
        mean_sd_of_hospitals=[p.sd("logit").mean() for p in fits],
        rmse=[np.sqrt(np.mean((p.mean("logit") - TRUE) ** 2)) for p in fits],
        kl_logit=[p.kl["logit"] for p in fits],
    )
)
