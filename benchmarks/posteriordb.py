"""Eight posteriors of posteriordb: `fit` with its defaults beside reference draws and NUTS.

`python benchmarks/posteriordb.py fit ROWS` appends a row for each posterior to the file ROWS: the
largest error of a mean in posterior sds, the smallest and largest ratio of sds, the verdict, and
CPU seconds with compiling; `... nuts ROWS` does the same for one chain of NUTS (1,000 draws after
1,000); `... table ROWS` prints what the rows hold. The data are read from the folder `posteriordb`
under SOUBAYES_DATA.
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
from numpyro.infer import MCMC, NUTS

from soubayes import fit
from soubayes.blackbox.program import compiled


class Posterior(NamedTuple):
    """A model, its arguments, and what the draws of it are called in the reference."""

    name: str
    model: Callable
    args: tuple
    named: Callable  # draws of the model -> draws by the names of the reference


def flat(name: str, *shape: int) -> Any:
    support = dist.constraints.real_vector if shape else dist.constraints.real
    return numpyro.sample(name, dist.ImproperUniform(support, (), shape))


def flat_positive(name: str) -> Any:
    return numpyro.sample(name, dist.ImproperUniform(dist.constraints.positive, (), ()))


def schools(y, error):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("schools", len(y)):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, error), obs=y)


def kidscore(X, y):
    beta = flat("beta", X.shape[1])
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("y", dist.Normal(X @ beta, sigma).to_event(1), obs=y)


def flat_regression(X, y):
    beta = flat("beta", X.shape[1])
    sigma = flat_positive("sigma")
    numpyro.sample("y", dist.Normal(X @ beta, sigma).to_event(1), obs=y)


def arma(y):
    mu = numpyro.sample("mu", dist.Normal(0.0, 10.0))
    phi = numpyro.sample("phi", dist.Normal(0.0, 2.0))
    theta = numpyro.sample("theta", dist.Normal(0.0, 2.0))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))

    def step(error, pair):
        before, now = pair
        error = now - mu - phi * before - theta * error
        return error, error

    first = y[0] - mu - phi * mu
    rest = jax.lax.scan(step, first, (y[:-1], y[1:]))[1]
    errors = jnp.concatenate([first[None], rest])
    numpyro.factor("y", dist.Normal(0.0, sigma).log_prob(errors).sum())


def garch(y, sigma1):
    mu = flat("mu")
    alpha0 = flat_positive("alpha0")
    # uniform on the triangle alpha1 + beta1 < 1
    alpha1 = numpyro.sample("alpha1", dist.Beta(1.0, 2.0))
    share = numpyro.sample("share", dist.Uniform(0.0, 1.0))
    beta1 = numpyro.deterministic("beta1", share * (1.0 - alpha1))

    def step(sigma, before):
        sigma = jnp.sqrt(alpha0 + alpha1 * (before - mu) ** 2 + beta1 * sigma**2)
        return sigma, sigma

    rest = jax.lax.scan(step, jnp.asarray(sigma1, float), y[:-1])[1]
    sigma = jnp.concatenate([jnp.asarray(sigma1, float)[None], rest])
    numpyro.sample("y", dist.Normal(mu, sigma).to_event(1), obs=y)


def gp_poisson(x, k):
    rho = numpyro.sample("rho", dist.Gamma(25.0, 4.0))
    alpha = numpyro.sample("alpha", dist.HalfNormal(2.0))
    square = (x[:, None] - x) ** 2
    covariance = alpha**2 * jnp.exp(-square / (2 * rho**2)) + 1e-10 * jnp.eye(len(x))
    tilde = numpyro.sample("f_tilde", dist.Normal(0.0, 1.0).expand([len(x)]).to_event(1))
    f = numpyro.deterministic("f", jnp.linalg.cholesky(covariance) @ tilde)
    numpyro.sample("k", dist.Poisson(jnp.exp(f)).to_event(1), obs=k)


def kilpisjarvi(x, y, pmualpha, psalpha, pmubeta, psbeta):
    alpha = numpyro.sample("alpha", dist.Normal(pmualpha, psalpha))
    beta = numpyro.sample("beta", dist.Normal(pmubeta, psbeta))
    sigma = flat_positive("sigma")
    numpyro.sample("y", dist.Normal(alpha + beta * x, sigma).to_event(1), obs=y)


def blr(X, y):
    beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([X.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10.0))
    numpyro.sample("y", dist.Normal(X @ beta, sigma).to_event(1), obs=y)


def numbered(*vectors: str) -> Callable:
    """Coordinates of vectors named as Stan names them: theta[1], theta[2], ..."""

    def name(draws: dict) -> dict:
        found = dict(draws)
        for vector in vectors:
            columns = np.asarray(draws[vector]).T
            found |= {f"{vector}[{i + 1}]": column for i, column in enumerate(columns)}
        return found

    return name


def posteriors(folder: Path) -> list[Posterior]:
    """The eight, with their data."""

    def data(name: str) -> dict[str, np.ndarray]:
        read = json.loads((folder / f"{name}.json").read_text())
        return {key: np.asarray(value) for key, value in read.items()}

    def columns(*parts: Any) -> np.ndarray:
        return np.column_stack([np.ones(len(parts[-1])), *parts]).astype(float)

    school, kid, earn, garch_data = (
        data(n) for n in ("eight_schools", "kidiq", "earnings", "garch")
    )
    process, lake, linear = (data(n) for n in ("gp_pois_regr", "kilpisjarvi_mod", "sblrc"))
    height, male = earn["height"], earn["male"]
    lake_args = [lake[n] for n in ("x", "y", "pmualpha", "psalpha", "pmubeta", "psbeta")]
    kid_x = columns(kid["mom_hs"], kid["mom_iq"])
    earn_x = columns(height, male, height * male)
    return [
        Posterior(
            "eight_schools-eight_schools_noncentered",
            schools,
            (school["y"], school["sigma"]),
            numbered("theta"),
        ),
        Posterior("kidiq-kidscore_momhsiq", kidscore, (kid_x, kid["kid_score"]), numbered("beta")),
        Posterior(
            "earnings-logearn_interaction",
            flat_regression,
            (earn_x, np.log(earn["earn"])),
            numbered("beta"),
        ),
        Posterior("arma-arma11", arma, (data("arma")["y"],), numbered()),
        Posterior("garch-garch11", garch, (garch_data["y"], garch_data["sigma1"]), numbered()),
        Posterior(
            "gp_pois_regr-gp_pois_regr", gp_poisson, (process["x"], process["k"]), numbered("f")
        ),
        Posterior("kilpisjarvi_mod-kilpisjarvi", kilpisjarvi, tuple(lake_args), numbered()),
        Posterior("sblrc-blr", blr, (linear["X"], linear["y"]), numbered("beta")),
    ]


def reference(folder: Path, name: str) -> dict[str, tuple[float, float]]:
    """Mean and sd of every quantity of the reference."""
    found = np.load(folder / f"{name}.npz")
    names = [key.removeprefix("mean:") for key in found.files if key.startswith("mean:")]
    return {key: (float(found[f"mean:{key}"]), float(found[f"sd:{key}"])) for key in names}


def errors(draws: dict, moments: dict) -> dict:
    """The largest error of a mean in sds, and the extreme ratios of sds."""
    shift = [abs(np.mean(draws[name]) - mean) / sd for name, (mean, sd) in moments.items()]
    ratio = [np.std(draws[name]) / sd for name, (_, sd) in moments.items()]
    parts = {"mean_error": max(shift), "least_ratio": min(ratio), "largest_ratio": max(ratio)}
    return {name: float(value) for name, value in parts.items()}


def run_fit(case: Posterior) -> tuple[dict, dict]:
    posterior = fit(case.model, *case.args)
    about = {"used": posterior.guide, "verdict": posterior.verdict, "value": posterior.value}
    return case.named(posterior.sample(20_000, random_state=5)), about


def run_nuts(case: Posterior) -> tuple[dict, dict]:
    sampler = MCMC(NUTS(case.model), num_warmup=1000, num_samples=1000, progress_bar=False)
    with jax.enable_x64(True):
        sampler.run(jax.random.key(2), *case.args)
        return case.named(jax.block_until_ready(sampler.get_samples())), {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("verb", choices=("fit", "nuts", "table"))
    parser.add_argument("rows", type=Path, help="where rows are kept")
    parser.add_argument("--models", nargs="*", default=[], help="parts of names of posteriors")
    given = parser.parse_args()
    if given.verb == "table":
        rows = [json.loads(line) for line in given.rows.read_text().splitlines()]
        for row in rows:
            print(" | ".join(f"{x:.2f}" if isinstance(x, float) else str(x) for x in row.values()))
        return
    folder = Path(os.environ["SOUBAYES_DATA"]) / "posteriordb"
    run = run_fit if given.verb == "fit" else run_nuts
    for case in posteriors(folder):
        if given.models and not any(part in case.name for part in given.models):
            continue
        compiled.cache_clear()
        jax.clear_caches()
        start = time.process_time()
        draws, about = run(case)
        seconds = time.process_time() - start
        row = {"posterior": case.name, "by": given.verb, **about, "seconds": seconds}
        row |= errors(draws, reference(folder, case.name))
        with given.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
