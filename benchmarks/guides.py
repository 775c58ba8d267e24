"""Built-in guides beside NUTS and NumPyro's AutoNormal on eight models.

`python benchmarks/guides.py nuts` writes benchmarks/guides_reference.json: means and sds of 4
chains of 5,000 draws (funnels in their non-centred form, which has the same posterior).

`python benchmarks/guides.py fit ROWS` fits every guide, AutoNormal and an ordinary NUTS run at
confidence 1; `... confidence ROWS` compares with the exact engine where one block has confidence
0.1 or 10. A row has the largest error of a mean in posterior sds, the smallest and the largest
ratio of sds, and the CPU seconds with compiling. Rows are added to the file ROWS as they finish,
rows that it has are not computed again, and `--models` and `--guides` choose some of them. `...
table ROWS` prints the tables. The AR(1) process is compared with a grid of its parameters, because
the long NUTS run does not enter its funnel; `... states` says by how much.

`... cost` finds the number of coordinates where the cost of guides turns.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.infer import MCMC, NUTS, SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.reparam import LocScaleReparam
from scipy import stats

from soubayes import Block, Model, fit, solve_exact
from soubayes.blackbox.program import compiled

REFERENCE = Path(__file__).with_name("guides_reference.json")
GUIDES = ("conditional", "flow", "auto", "meanfield", "blockwise", "AutoNormal", "NUTS")
STATES = "AR(1), latent states"


class Case(NamedTuple):
    model: Any
    args: tuple
    reference: Any  # the same posterior in coordinates that NUTS likes


def schools(effect, error):
    mu = numpyro.sample("mu", dist.Normal(0.0, 20.0))
    tau = numpyro.sample("tau", dist.HalfNormal(10.0))
    with numpyro.plate("schools", len(effect)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


def logistic(x, group, y):
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.5))
    with numpyro.plate("groups", 10):
        level = numpyro.sample("level", dist.Normal(mu, tau))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=level[group] + x @ slope), obs=y)


def linear(x, y):
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(x @ slope, sigma), obs=y)


def gaussian_process(x, y):
    amplitude = numpyro.sample("amplitude", dist.HalfNormal(2.0))
    length = numpyro.sample("length", dist.LogNormal(0.0, 0.7))
    noise = numpyro.sample("noise", dist.HalfNormal(0.5))
    square = ((x[:, None] - x) / length) ** 2
    covariance = amplitude**2 * jnp.exp(-0.5 * square) + (noise**2 + 1e-8) * jnp.eye(len(x))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def mixture(x):
    share = numpyro.sample("share", dist.Beta(2.0, 2.0))
    centre = numpyro.sample("centre", dist.Normal(0.0, 2.0))
    gap = numpyro.sample("gap", dist.LogNormal(0.0, 0.5))  # half the distance: orders the places
    places = jnp.stack([centre - gap, centre + gap])
    mixing = dist.Categorical(probs=jnp.stack([share, 1.0 - share]))
    with numpyro.plate("rows", len(x)):
        numpyro.sample("x", dist.MixtureSameFamily(mixing, dist.Normal(places, 1.0)), obs=x)


def centred(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("groups", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)


def noncentred(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(2.0))
    with numpyro.plate("groups", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu + tau * z, 1.0), obs=y)


def autoregression(y):
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    q = numpyro.sample("q", dist.HalfNormal(1.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))

    def step(z, y_t):
        z = numpyro.sample("z", dist.Normal(phi * z, q))
        numpyro.sample("y", dist.Normal(z, s), obs=y_t)
        return z, None

    scan(step, 0.0, y)


def autoregression_of_innovations(y):
    phi = numpyro.sample("phi", dist.Uniform(-1.0, 1.0))
    q = numpyro.sample("q", dist.HalfNormal(1.0))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    e = numpyro.sample("e", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
    z = jax.lax.scan(lambda z, e: (phi * z + q * e,) * 2, 0.0, e)[1]
    numpyro.deterministic("z", z)
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z, s), obs=y)


def cases() -> dict[str, Case]:
    rng = np.random.default_rng(2026)
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    x2 = rng.normal(size=(200, 2))
    group = np.repeat(np.arange(10), 20)
    logit = rng.normal(0.3, 0.7, 10)[group] + x2 @ [1.0, -0.5]
    yes = (rng.uniform(size=200) < 1 / (1 + np.exp(-logit))).astype(int)
    shared = rng.normal(size=50)
    pair = np.sqrt(0.9) * shared[:, None] + np.sqrt(0.1) * rng.normal(size=(50, 2))
    target = pair @ [1.0, 0.5] + 0.7 * rng.normal(size=50)
    grid = np.sort(rng.uniform(0, 6, 30))
    wave = np.sin(1.5 * grid) + 0.3 * rng.normal(size=30)
    points = np.concatenate([rng.normal(-1.5, 1.0, 60), rng.normal(1.5, 1.0, 40)])
    groups = rng.normal(1.0, 0.7, 50) + rng.normal(size=50)
    z, states = 0.0, []
    for _ in range(50):
        z = 0.8 * z + 0.6 * rng.normal()
        states.append(z)
    series = np.array(states) + 0.5 * rng.normal(size=50)

    def theta(model, *names):
        return numpyro.handlers.reparam(model, {n: LocScaleReparam(0.0) for n in names})

    return {
        "eight schools, centred": Case(schools, (effect, error), theta(schools, "theta")),
        "hierarchical logistic": Case(logistic, (x2, group, yes), theta(logistic, "level")),
        "linear, correlated": Case(linear, (pair, target), linear),
        "GP regression": Case(gaussian_process, (grid, wave), gaussian_process),
        "mixture": Case(mixture, (points,), mixture),
        "50 groups, centred": Case(centred, (groups,), theta(centred, "theta")),
        "50 groups, non-centred": Case(noncentred, (groups,), noncentred),
        STATES: Case(autoregression, (series,), autoregression_of_innovations),
    }


def nuts(name: str, case: Case) -> dict:
    start = time.process_time()
    kernel = NUTS(case.reference, target_accept_prob=0.95)
    sampler = MCMC(kernel, num_warmup=2000, num_samples=5000, num_chains=4, progress_bar=False)
    with jax.enable_x64(True):
        sampler.run(jax.random.key(1), *case.args, extra_fields=("diverging",))
        draws = sampler.get_samples()
        divergent = int(sampler.get_extra_fields()["diverging"].sum())
    keep = [n for n in draws if not n.endswith("_decentered") and n != "e"]
    moments = {
        n: [np.round(np.mean(draws[n], 0), 5).tolist(), np.round(np.std(draws[n], 0), 5).tolist()]
        for n in keep
    }
    seconds = time.process_time() - start
    return {"moments": moments, "divergent": divergent, "seconds": round(seconds, 1)}


def quick_nuts(case: Case) -> dict:
    """One chain of 1,000 draws after 1,000."""
    sampler = MCMC(NUTS(case.reference), num_warmup=1000, num_samples=1000, progress_bar=False)
    with jax.enable_x64(True):
        sampler.run(jax.random.key(2), *case.args)
        return jax.block_until_ready(sampler.get_samples())


def errors(draws: dict, moments: dict) -> dict:
    mean_error, ratios = [], []
    for name, (mean, sd) in moments.items():
        mean, sd = np.asarray(mean), np.asarray(sd)
        mean_error.append(np.max(abs(np.mean(draws[name], axis=0) - mean) / sd))
        ratios.append(np.ravel(np.std(draws[name], axis=0) / sd))
    ratio = np.concatenate(ratios)
    return {
        "mean_error": float(max(mean_error)),
        "least_ratio": float(ratio.min()),
        "largest_ratio": float(ratio.max()),
    }


def auto_normal(case: Case) -> dict:
    with jax.enable_x64(True):
        guide = AutoNormal(case.model)
        svi = SVI(case.model, guide, numpyro.optim.Adam(0.01), TraceMeanField_ELBO(num_particles=8))
        result = svi.run(jax.random.key(0), 10_000, *case.args, progress_bar=False)
        return guide.sample_posterior(
            jax.random.key(1), result.params, *case.args, sample_shape=(20_000,)
        )


def run_guide(case: Case, kind: str, **settings: Any) -> dict:
    """Draws of a guide, and the CPU seconds to get them from nothing."""
    compiled.cache_clear()
    jax.clear_caches()
    start = time.process_time()
    extra: dict = {}
    if kind == "AutoNormal":
        draws = auto_normal(case)
    elif kind == "NUTS":
        draws = quick_nuts(case)
    else:
        posterior = fit(case.model, *case.args, guide=kind, **settings)
        draws = posterior.sample(20_000, random_state=5)
        extra = {"value": posterior.value, "flatness": float(np.std(posterior.integrand))}
        extra |= {"used": posterior.guide, "verdict": posterior.verdict}
    return {**extra, "seconds": time.process_time() - start, "draws": draws}


def hierarchy(
    effect: np.ndarray,
    error: Any,
    mu_sd: float,
    tau: Any,
    gamma: float,
    confidence: dict[str, float] | None = None,
) -> Any:
    """Exact moments of mu and tau with theta at confidence gamma, which is integrated by hand."""

    def loss(mu, tau):
        noise = gamma * np.broadcast_to(error, effect.shape) ** 2
        variance = tau[..., None] ** 2 + noise
        log_z = 0.5 * np.log(noise / variance) - (effect - mu[..., None]) ** 2 / (2 * variance)
        return -gamma * log_z.sum(axis=-1)

    priors = [Block("mu", stats.norm(0, mu_sd)), Block("tau", tau)]
    return solve_exact(Model(priors, loss), confidence, tolerance=1e-4)


def exact_process(x: np.ndarray, y: np.ndarray, gamma: float) -> Any:
    """By eigenvectors of the correlations, which rounding cannot make indefinite."""

    def loss(amplitude, length, noise):
        lengths, which = np.unique(length, return_inverse=True)
        square = ((x[:, None] - x) / lengths[:, None, None]) ** 2
        roots, vectors = np.linalg.eigh(np.exp(-0.5 * square))
        turned = (np.swapaxes(vectors, -1, -2) @ y)[which.reshape(length.shape)]
        roots = np.maximum(roots, 0.0)[which.reshape(length.shape)]
        variance = amplitude[..., None] ** 2 * roots + noise[..., None] ** 2 + 1e-8
        return 0.5 * (turned**2 / variance + np.log(2 * np.pi * variance)).sum(axis=-1)

    priors = [
        Block("amplitude", stats.halfnorm(scale=2.0)),
        Block("length", stats.lognorm(0.7)),
        Block("noise", stats.halfnorm(scale=0.5)),
    ]
    return solve_exact(Model(priors, loss), {"length": gamma}, tolerance=1e-3)


def exact_mixture(x: np.ndarray, gamma: float) -> Any:
    def loss(share, centre, gap):
        low = np.log(share)[..., None] + stats.norm.logpdf(x, (centre - gap)[..., None])
        high = np.log1p(-share)[..., None] + stats.norm.logpdf(x, (centre + gap)[..., None])
        return -np.logaddexp(low, high).sum(axis=-1)

    priors = [
        Block("share", stats.beta(2, 2)),
        Block("centre", stats.norm(0, 2)),
        Block("gap", stats.lognorm(0.5)),
    ]
    return solve_exact(Model(priors, loss), {"share": gamma}, tolerance=1e-3)


def exact_answers(found: dict[str, Case]) -> dict[str, tuple[str, Any]]:
    """Models that the exact engine can solve: the block whose confidence moves, and how."""
    return {
        "eight schools, centred": (
            "theta",
            lambda gamma: hierarchy(
                *found["eight schools, centred"].args, 20.0, stats.halfnorm(scale=10.0), gamma
            ),
        ),
        "50 groups, centred": (
            "theta",
            lambda gamma: hierarchy(
                found["50 groups, centred"].args[0], 1.0, 5.0, stats.halfnorm(scale=2.0), gamma
            ),
        ),
        "mixture": ("share", lambda gamma: exact_mixture(*found["mixture"].args, gamma)),
        "GP regression": (
            "length",
            lambda gamma: exact_process(*found["GP regression"].args, gamma),
        ),
    }


def kalman(y: np.ndarray, phi: Any, q: Any, s: Any) -> tuple[Any, list, list]:
    """Log likelihood of the AR(1) process at many parameters, filtered means and variances."""
    mean, variance, log_p = np.zeros_like(phi), np.zeros_like(phi), np.zeros_like(phi)
    means, variances = [], []
    for value in y:
        ahead, spread = phi * mean, phi**2 * variance + q**2
        total = spread + s**2
        log_p = log_p - 0.5 * (np.log(2 * np.pi * total) + (value - ahead) ** 2 / total)
        mean = ahead + spread / total * (value - ahead)
        variance = spread * s**2 / total
        means.append(mean)
        variances.append(variance)
    return log_p, means, variances


def exact_states(y: np.ndarray, n: int = 20_000) -> tuple[float, dict]:
    """Minus log evidence and moments of the AR(1) process: parameters on a grid, states drawn."""
    rng = np.random.default_rng(0)
    axes = [np.linspace(-0.6, 0.9995, 100), *(np.linspace(0.004, top, 90) for top in (1.6, 1.4))]
    phi, q, s = np.meshgrid(*axes, indexing="ij")
    log_p = kalman(y, phi, q, s)[0] + stats.halfnorm.logpdf(q) + stats.halfnorm.logpdf(s)
    log_p += np.log(0.5)
    share = np.exp(log_p - log_p.max())
    cells = [axis[1] - axis[0] for axis in axes]
    value = -np.log(share.sum() * np.prod(cells)) - log_p.max()
    chosen = rng.choice(share.size, size=n, p=(share / share.sum()).ravel())
    phi, q, s = (
        np.ravel(part)[chosen] + cell * (rng.uniform(size=n) - 0.5)
        for part, cell in zip((phi, q, s), cells, strict=True)
    )
    q, s = abs(q), abs(s)
    _, means, variances = kalman(y, phi, q, s)
    z = np.empty((n, len(y)))
    z[:, -1] = rng.normal(means[-1], np.sqrt(variances[-1]))
    for t in range(len(y) - 2, -1, -1):
        gain = variances[t] * phi / (phi**2 * variances[t] + q**2)
        left = np.maximum(variances[t] * (1 - gain * phi), 1e-12)
        z[:, t] = rng.normal(means[t] + gain * (z[:, t + 1] - phi * means[t]), np.sqrt(left))
    draws = {"phi": phi, "q": q, "s": s, "z": z}
    return float(value), {name: [x.mean(axis=0), x.std(axis=0)] for name, x in draws.items()}


def states(case: Case, reference: dict) -> None:
    moments = exact_states(*case.args)[1]
    for name in ("phi", "q", "s"):
        ratio = float(reference[name][1] / moments[name][1])
        print(json.dumps({"long NUTS run": name, "ratio of sds": ratio}))


def cost() -> None:
    """Seconds of CPU of a fit of one block of normal means, by its size: where the cost turns."""

    def means(y):
        tau = numpyro.sample("tau", dist.HalfNormal(1.0))
        with numpyro.plate("rows", len(y)):
            theta = numpyro.sample("theta", dist.Normal(0.0, tau))
            numpyro.sample("y", dist.Normal(theta, 1.0), obs=y)

    for size in (50, 100, 200, 400):
        y = np.random.default_rng(size).normal(size=size) * 1.4
        for kind in ("meanfield", "conditional", "flow"):
            if kind == "flow" and size > 100:
                continue
            start = time.process_time()
            fit(means, y, guide=kind, restarts=1)
            first = time.process_time() - start
            posterior = fit(means, y + 0.01, guide=kind, restarts=1)  # compiles nothing
            again = time.process_time() - start - first
            row = {"size": size, "guide": kind, "first": round(first, 1), "again": round(again, 1)}
            print(json.dumps({**row, "value": posterior.value}), flush=True)


class Rows:
    """A file with a JSON row in each line, which is read, added to and never written twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = [json.loads(line) for line in lines]

    def find(self, **key: Any) -> dict | None:
        return next((r for r in self.rows if all(r[k] == v for k, v in key.items())), None)

    def add(self, row: dict) -> None:
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def measure(rows: Rows, chosen: dict[str, Case], kinds: list[str], reference: dict) -> None:
    """Every guide at confidence 1."""
    for name, case in chosen.items():
        value, moments = None, reference[name]["moments"]
        if name == STATES:
            value, moments = exact_states(*case.args)
        for kind in kinds:
            key = {"model": name, "guide": kind, "gamma": 1.0}
            if rows.find(**key):
                continue
            row = run_guide(case, kind)
            draws = row.pop("draws")
            row |= errors(draws, moments)
            if value is not None:
                row["beside_nuts"] = errors(draws, reference[name]["moments"])
            if value is not None and "value" in row:
                row["above_the_minimum"] = row["value"] - value
            rows.add({**key, **row})


def measure_confidences(rows: Rows, chosen: dict[str, Case], kinds: list[str]) -> None:
    """Guides against the exact engine, one block at another confidence."""
    for name, (block, exact) in exact_answers(cases()).items():
        for gamma in (0.1, 10.0):
            keys = [{"model": name, "guide": kind, "gamma": gamma} for kind in kinds]
            keys = [key for key in keys if name in chosen and not rows.find(**key)]
            if not keys:
                continue
            answer = exact(gamma)
            moments = {q: [answer.mean(q), answer.sd(q)] for q in answer.confidence}
            for key in keys:
                row = run_guide(chosen[name], key["guide"], confidence={block: gamma})
                row |= errors(row.pop("draws"), moments)
                rows.add({**key, "block": block, **row})


def tables(rows: Rows) -> None:
    """The tables of docs/development/blackbox.md."""

    def cell(name: str, kind: str, gamma: float = 1.0) -> str:
        row = rows.find(model=name, guide=kind, gamma=gamma)
        if row is None:
            return "–"
        used = f" ({row['used']})" if kind == "auto" else ""
        spread = f"{row['least_ratio']:.2f}–{row['largest_ratio']:.2f}"
        return f"{row['mean_error']:.2f}; {spread}{used}"

    def seconds(name: str, kind: str) -> str:
        row = rows.find(model=name, guide=kind, gamma=1.0)
        return "–" if row is None else f"{row['seconds']:.0f}"

    def line(cells: list[str]) -> None:
        print("| " + " | ".join(cells) + " |")

    accuracy = ("meanfield", "blockwise", "conditional", "flow", "auto", "AutoNormal", "NUTS")
    timed = ("conditional", "flow", "auto", "AutoNormal", "NUTS")
    for title, kinds, show in (("model", accuracy, cell), ("CPU seconds", timed, seconds)):
        line([title, *kinds])
        line(["---"] * (1 + len(kinds)))
        for name in cases():
            line([name, *(show(name, kind) for kind in kinds)])
        print()
    line(["model, block", *(f"{k} at {g:g}" for g in (0.1, 10.0) for k in ("auto", "flow"))])
    line(["---"] * 5)
    for name, (block, _) in exact_answers(cases()).items():
        shown = [cell(name, k, g) for g in (0.1, 10.0) for k in ("auto", "flow")]
        line([f"{name}, {block}", *shown])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = ("nuts", "fit", "confidence", "states", "cost", "table")
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("rows", nargs="?", type=Path, help="where rows are kept")
    parser.add_argument("--models", nargs="*", default=[], help="parts of names of models")
    parser.add_argument("--guides", nargs="*", default=[])
    given = parser.parse_args()
    reference = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    chosen = {
        name: case
        for name, case in cases().items()
        if not given.models or any(part in name for part in given.models)
    }
    if given.verb in ("fit", "confidence", "table") and given.rows is None:
        parser.error(f"{given.verb} needs a file for its rows")
    if given.verb == "nuts":
        for name, case in chosen.items():
            if name not in reference:
                reference[name] = nuts(name, case)
                REFERENCE.write_text(json.dumps(reference, separators=(",", ":")) + "\n")
    elif given.verb == "fit":
        measure(Rows(given.rows), chosen, given.guides or list(GUIDES), reference)
    elif given.verb == "confidence":
        measure_confidences(Rows(given.rows), chosen, given.guides or ["auto", "flow"])
    elif given.verb == "table":
        tables(Rows(given.rows))
    elif given.verb == "states":
        states(chosen[STATES], reference[STATES]["moments"])
    else:
        cost()


if __name__ == "__main__":
    main()
