"""A family of confidences beside the exact answers at twenty places.

`python benchmarks/confidences.py ROWS` trains `fit_family` on four models of benchmarks/guides.py
and appends a row for each place to the file ROWS: the largest error of a mean in posterior sds, the
smallest and largest ratio of sds, the largest error of a KL in nats and its share of the KL, the
verdict, and the seconds of `at`. A row without a place has the CPU seconds of training and of one
fit, the errors of both at confidence 1, and the difference between the slope of V and the KL. Rows
that the file has are not computed again. `--models` chooses models, `--places` how many places,
`--seed` which; `... ROWS --table` prints what the rows say.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from guides import STATES, Rows, cases, exact_process, hierarchy, kalman
from soubayes import Block, Model, fit, fit_family, solve_exact
from soubayes.blackbox.program import compiled

STEP = 0.1  # of a log confidence, for the slope of V
DRAWS = 16_384  # for comparisons: with the 4,096 of a fit, noise of a KL is up to 0.04 nats


class Question(NamedTuple):
    """The ranges of a family, and what knows the answer: (confidences) -> an exact posterior."""

    ranges: dict[str, tuple[float, float]]
    exact: Callable


class Answer(NamedTuple):
    """An exact posterior by quadrature, with the names that `compare` asks for."""

    confidence: dict[str, float]
    value: float
    kl: dict[str, float]
    moments: dict[str, tuple[Any, Any]]

    def mean(self, name: str) -> Any:
        return self.moments[name][0]

    def sd(self, name: str) -> Any:
        return self.moments[name][1]


def exact_autoregression(y: np.ndarray, gamma: float) -> Any:
    """The parameters of the AR(1) process, its states integrated by the Kalman filter."""

    def loss(phi, q, s):
        phi, q, s = np.broadcast_arrays(phi, q, s)
        return -kalman(y, phi, q, s)[0]

    priors = [
        Block("phi", stats.uniform(-1, 2)),
        Block("q", stats.halfnorm()),
        Block("s", stats.halfnorm()),
    ]
    return solve_exact(Model(priors, loss), {"q": gamma}, tolerance=1e-3)


class Logistic:
    """The hierarchical logistic model given mu and tau: Theorem 1 from the inside outwards.

    Slopes by an adaptive Gauss-Hermite rule, then levels by weighted draws around their mode (the
    same quasi-random draws everywhere, effective by 98 % and more). Agrees with the long NUTS run
    of benchmarks/guides.py at confidence 1 (means within 0.02 sd, sds within 1.5 %), and its value
    has the slope that its KLs say.
    """

    def __init__(self, x: np.ndarray, group: np.ndarray, y: np.ndarray, gamma: float) -> None:
        self.x, self.y, self.gamma = x, y, gamma
        self.member = np.eye(group.max() + 1)[group]
        nodes, weights = np.polynomial.hermite_e.hermegauss(5)
        self.pairs = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
        self.log_weights = np.log(np.outer(weights, weights).ravel() / (2 * np.pi))
        size = self.member.shape[1]
        self.noise = stats.norm.ppf(stats.qmc.Sobol(size, seed=0).random(128))

    def _logits(self, level, slope):
        return self.member @ level + self.x @ slope

    def _slope_step(self, level, slope):
        """One Newton step for the slopes, and the precision there."""
        p = jax.nn.sigmoid(self._logits(level, slope))
        precision = self.x.T @ ((p * (1 - p))[:, None] * self.x) + jnp.eye(2)
        gradient = self.x.T @ (p - self.y) + slope
        return slope - jnp.linalg.solve(precision, gradient), precision

    def _level_step(self, level, slope, mu, tau):
        """One Newton step for the levels, the slopes following them, and the precision."""
        slope = self._slope_step(level, slope)[0]
        inner = self._slope_step(level, slope)[1]  # the precision at the new slopes
        p = jax.nn.sigmoid(self._logits(level, slope))
        w = p * (1 - p)
        cross = self.member.T @ (w[:, None] * self.x)
        own = jnp.diag(w @ self.member) - cross @ jnp.linalg.solve(inner, cross.T)
        precision = own / self.gamma + jnp.eye(len(level)) / tau**2
        gradient = (p - self.y) @ self.member / self.gamma + (level - mu) / tau**2
        return level - jnp.linalg.solve(precision, gradient), slope, precision

    def _over_slopes(self, level, slope):
        """-log of the integral over slopes, their first two moments and their KL."""
        for _ in range(3):
            slope, precision = self._slope_step(level, slope)
        root = jnp.linalg.cholesky(jnp.linalg.inv(precision))
        at = slope + self.pairs @ root.T
        signed = (1 - 2 * self.y) * jax.vmap(lambda s: self._logits(level, s))(at)
        losses = jnp.sum(jnp.logaddexp(0.0, signed), axis=1)
        log_w = self.log_weights - losses + jnp.log(root[0, 0] * root[1, 1])
        log_w = log_w + 0.5 * jnp.sum(self.pairs**2 - at**2, axis=1)
        value = -jax.scipy.special.logsumexp(log_w)
        share = jnp.exp(log_w + value)
        return value, share @ at, share @ at**2, value - share @ losses

    def at(self, mu, tau):
        """W of the levels, and under their posterior both KLs and all moments."""
        level, slope = jnp.full(self.member.shape[1], mu), jnp.zeros(2)
        for _ in range(8):
            level, slope, precision = self._level_step(level, slope, mu, tau)
        root = jnp.linalg.cholesky(jnp.linalg.inv(precision))
        at = level + self.noise @ root.T
        values, slopes, squares, kl_slope = jax.vmap(lambda u: self._over_slopes(u, slope))(at)
        log_w = 0.5 * jnp.sum(self.noise**2 - ((at - mu) / tau) ** 2, axis=1) - values / self.gamma
        log_w = log_w + jnp.sum(jnp.log(jnp.diagonal(root) / tau)) - np.log(len(at))
        log_z = jax.scipy.special.logsumexp(log_w)
        share = jnp.exp(log_w - log_z)
        kl = -share @ values / self.gamma - log_z
        moments = [share @ part for part in (at, at**2, slopes, squares)]
        return [-self.gamma * log_z, kl, share @ kl_slope, *moments]


def exact_logistic(x: np.ndarray, group: np.ndarray, y: np.ndarray, gammas: dict) -> Answer:
    """The hierarchical logistic model, mu and tau on a grid."""
    log_tau, steps = np.linspace(np.log(5e-4), np.log(5.0), 70), np.linspace(-5, 5, 31)
    tau, logit = np.exp(log_tau)[:, None], np.log(y.mean() / (1 - y.mean()))
    width = np.sqrt(0.2**2 + tau**2 / 6)  # above the sd of mu given tau
    mu = logit + width * steps
    with jax.enable_x64(True):
        inner = Logistic(x, group, y, gammas["level"])
        pairs = jnp.stack(jnp.broadcast_arrays(mu, tau), axis=-1).reshape(-1, 2)
        found = jax.jit(lambda p: jax.lax.map(lambda pair: inner.at(*pair), p))(pairs)
    shaped = [np.asarray(f).reshape(mu.shape + f.shape[1:]) for f in found]
    w, kl_level, kl_slope, *moments = shaped

    def outward(w, log_prior, gamma):
        """Soft minimum over the last axis, the posterior there and its KL."""
        log_q = log_prior - w / gamma
        log_z = np.logaddexp.reduce(log_q, axis=-1)
        q = np.exp(log_q - log_z[..., None])
        return -gamma * log_z, q, -np.sum(q * w, axis=-1) / gamma - log_z

    log_mu = stats.norm.logpdf(mu, 0, 1.5) + np.log(width * (steps[1] - steps[0]))
    w_mu, q_mu, kl_mu = outward(w, log_mu, 1.0)
    log_prior = stats.halfnorm.logpdf(tau[:, 0]) + log_tau + np.log(log_tau[1] - log_tau[0])
    value, q_tau, kl_tau = outward(w_mu, log_prior, gammas["tau"])
    joint = q_tau[:, None] * q_mu

    def moment(first, second):
        mean = np.tensordot(joint, first, 2)
        return mean, np.sqrt(np.tensordot(joint, second, 2) - mean**2)

    whole = np.broadcast_to(tau, mu.shape)
    of = {"tau": moment(whole, whole**2), "mu": moment(mu, mu**2)}
    of |= {"level": moment(*moments[:2]), "slope": moment(*moments[2:])}
    means = {"level": np.sum(joint * kl_level), "slope": np.sum(joint * kl_slope)}
    kl = {"tau": float(kl_tau), "mu": float(q_tau @ kl_mu), **means}
    return Answer({"mu": 1.0, "slope": 1.0, **gammas}, float(value), kl, of)


def questions() -> dict[str, Question]:
    found = cases()
    effect, error = found["eight schools, centred"].args

    def schools(gammas: dict[str, float]) -> Any:
        others = {"tau": gammas["tau"]}
        return hierarchy(effect, error, 20.0, stats.halfnorm(scale=10.0), gammas["theta"], others)

    return {
        "eight schools, centred": Question({"tau": (0.1, 10.0), "theta": (0.3, 3.0)}, schools),
        "hierarchical logistic": Question(
            {"tau": (0.1, 10.0), "level": (0.3, 3.0)},
            lambda gammas: exact_logistic(*found["hierarchical logistic"].args, gammas),
        ),
        "GP regression": Question(
            {"length": (0.1, 10.0)},
            lambda gammas: exact_process(*found["GP regression"].args, gammas["length"]),
        ),
        STATES: Question(
            {"q": (0.3, 3.0)}, lambda gammas: exact_autoregression(*found[STATES].args, gammas["q"])
        ),
    }


def compare(found: Any, answer: Any) -> dict[str, float]:
    """Errors of a posterior of the family; blocks that the answer has integrated are left out."""
    names = [name for name in answer.confidence if name in found.draws]
    shift = [np.max(abs(found.mean(n) - answer.mean(n)) / answer.sd(n)) for n in names]
    ratio = np.concatenate([np.ravel(found.sd(n) / answer.sd(n)) for n in names])
    gap = {n: float(abs(found.kl[n] - answer.kl[n])) for n in names}
    worst = max(names, key=lambda n: min(gap[n] / 0.05, gap[n] / (0.05 * answer.kl[n])))
    return {
        "mean_error": float(max(shift)),
        "least_ratio": float(ratio.min()),
        "largest_ratio": float(ratio.max()),
        "kl_error": gap[worst],
        "kl_share": float(gap[worst] / answer.kl[worst]),
    }


def seconds_of(work: Callable) -> tuple[Any, float]:
    compiled.cache_clear()
    jax.clear_caches()
    start = time.process_time()
    return work(), time.process_time() - start


def slope_error(family: Any, place: dict[str, float]) -> float:
    """The largest gap between dV / dgamma and the KL, in nats or as a share if that is less."""
    kl, errors = family.at(place).kl, []
    for block, gamma in place.items():
        ends = [gamma * np.exp(sign * STEP) for sign in (-1, 1)]
        low, high = (family.at({**place, block: end}).value for end in ends)
        gap = abs((high - low) / (ends[1] - ends[0]) - kl[block])
        errors.append(min(gap, gap / kl[block]))
    return float(max(errors))


def measure(name: str, question: Question, places: int, seed: int, rows: Rows) -> None:
    case = cases()[name]
    family, training = seconds_of(
        lambda: fit_family(case.model, *case.args, confidence=question.ranges)
    )
    rng = np.random.default_rng(seed)
    drawn = [
        {b: float(np.exp(rng.uniform(*np.log(r)))) for b, r in question.ranges.items()}
        for _ in range(places)
    ]
    family.at(drawn[0])  # compiles
    if rows.find(model=name, place=None) is None:
        steep = max(slope_error(family, _inner(place, question)) for place in drawn[:5])
        alone, single = seconds_of(lambda: fit(case.model, *case.args))
        found = {"training": training, "single": single, "slope_error": steep}
        ones = dict.fromkeys(question.ranges, 1.0)
        found["at_1"] = compare(family.at(), question.exact(ones))
        found["fit_at_1"] = compare(alone, question.exact(ones))
        rows.add({"model": name, "place": None, **found})
        family.at(drawn[0])  # compiles again
    settings = replace(family._request.settings, num_draws=DRAWS)
    careful = replace(family, _request=family._request._replace(settings=settings))
    for place in drawn:
        if rows.find(model=name, place=place):
            continue
        start = time.process_time()
        family.at(place)
        row = {"model": name, "place": place, "at": time.process_time() - start}
        found = careful.at(place)
        compared = compare(found, question.exact(place))
        rows.add({**row, **compared, "verdict": found.verdict})


def _inner(place: dict[str, float], question: Question) -> dict[str, float]:
    """A place moved inside its ranges, so differences can be taken around it."""
    ends = {
        b: (low * np.exp(STEP), high / np.exp(STEP)) for b, (low, high) in question.ranges.items()
    }
    return {b: float(np.clip(x, *ends[b])) for b, x in place.items()}


def table(rows: list[dict]) -> None:
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        places = [row for row in own if row["place"]]
        whole = [row for row in own if row["place"] is None]
        right = [
            row["mean_error"] < 0.1
            and row["least_ratio"] > 0.9
            and row["largest_ratio"] < 1.1
            and min(row["kl_error"], row["kl_share"]) < 0.05
            for row in places
        ]
        low, high = min(r["least_ratio"] for r in places), max(r["largest_ratio"] for r in places)
        took = np.median([row["at"] for row in places])
        print(
            f"{name}: {sum(right)} of {len(places)} right; worst mean "
            f"{max(r['mean_error'] for r in places):.2f}, sds {low:.2f}–{high:.2f}, worst KL "
            f"{max(min(r['kl_error'], r['kl_share']) for r in places):.3f}; trusted "
            f"{sum(r['verdict'] == 'trusted' for r in places)}; at {took:.3f} s"
        )
        for row in whole:
            print("  " + ", ".join(f"{k} {v:.3g}" for k, v in row.items() if isinstance(v, float)))
            for key in ("at_1", "fit_at_1"):
                print(f"  {key}: " + ", ".join(f"{k} {v:.3g}" for k, v in row[key].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", type=Path, help="where rows are kept")
    parser.add_argument("--models", nargs="*", default=[], help="parts of names of models")
    parser.add_argument("--places", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--table", action="store_true", help="print what the rows say")
    given = parser.parse_args()
    rows = Rows(given.rows)
    if given.table:
        table(rows.rows)
        return
    for name, question in questions().items():
        if not given.models or any(part in name for part in given.models):
            measure(name, question, given.places, given.seed, rows)


if __name__ == "__main__":
    main()
