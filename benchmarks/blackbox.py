"""A step of SoUELBO against a step of NumPyro's own ELBO, and compilations along a path.

Same model, same guide, same optimiser, alternated in one run; the ratio of medians is what counts.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import random
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal

from soubayes import SoUELBO


def regression(X, y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([X.shape[1]]).to_event(1))
    beta = numpyro.sample("beta", dist.Normal(0.0, local).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(X @ beta, scale), obs=y)


def schools(X, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(5.0))
    with numpyro.plate("rows", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def subsampled_logistic(X, y):
    beta = numpyro.sample("beta", dist.Laplace(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", len(y), subsample_size=100):
        rows, labels = numpyro.subsample(X, event_dim=1), numpyro.subsample(y > 0, event_dim=0)
        numpyro.sample("y", dist.Bernoulli(logits=rows @ beta), obs=labels)


def time_steps(svi, state, args, steps=200):
    update = jax.jit(
        lambda state: jax.lax.fori_loop(0, steps, lambda _, s: svi.update(s, *args)[0], state)
    )
    jax.block_until_ready(update(state))

    def once():
        start = time.perf_counter()
        jax.block_until_ready(update(state))
        return (time.perf_counter() - start) / steps

    return once


rng = np.random.default_rng(0)
rows = {"model": [], "numpyro_us": [], "soubayes_us": [], "ratio": []}
for model, n, p, confidence in [
    (regression, 500, 50, {"local": 1e-3}),
    (schools, 200, 1, {"theta": 0.1}),
    (subsampled_logistic, 2000, 50, {"beta": 0.1}),
]:
    X = jnp.asarray(rng.normal(size=(n, p)))
    args = (X, X[:, 0] + jnp.asarray(rng.normal(size=n)))
    timers = []
    for elbo in (TraceMeanField_ELBO(num_particles=4), SoUELBO(confidence, num_particles=4)):
        svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-3), elbo)
        timers.append(time_steps(svi, svi.init(random.key(0), *args), args))
    times = np.array([[timer() for timer in timers] for _ in range(15)])
    numpyros, ours = np.median(times, axis=0)
    rows["model"].append(model.__name__)
    rows["numpyro_us"].append(1e6 * numpyros)
    rows["soubayes_us"].append(1e6 * ours)
    rows["ratio"].append(ours / numpyros)
print(pd.DataFrame(rows).to_string(index=False))

compiled = []


@jax.jit
def loss(confidence, params):
    compiled.append(1)
    return SoUELBO(confidence).loss(random.key(0), params, schools, guide, *args)


guide = AutoNormal(schools)
svi = SVI(schools, guide, numpyro.optim.Adam(1e-3), SoUELBO())
params = svi.get_params(svi.init(random.key(0), *args))
for gamma in np.geomspace(1e-9, 1e3, 20):
    loss({"theta": jnp.asarray(gamma)}, params)
print(f"compilations for 20 confidences: {len(compiled)}")
