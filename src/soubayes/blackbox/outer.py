"""The outer block of nested sampling: SMC to the posterior, then pseudo-marginal chains."""

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import random
from numpyro.diagnostics import effective_sample_size, gelman_rubin

from soubayes.blackbox.levels import Levels, proposal_root
from soubayes.progress import ShowProgress

KEPT = 8  # states kept of every outer chain
THIN = 2  # moves between two of them
TIMED = 4096  # evaluations of the model by which the cost is estimated
OVERHEAD = 1e-7  # seconds of an evaluation besides the model, measured on models of one line
OUTER_REPEATS = 3  # fresh inner estimates at every final state, for their error


class Sampled(NamedTuple):
    """What the sampler found: fields of the result."""

    value: float
    value_se: float
    expected_loss: float
    kl: dict[str, float]
    draws: dict[str, np.ndarray]
    error: pd.DataFrame


def _silent(done: float) -> None:
    """Nobody is shown how far the sampler is."""


class Outer:
    """The outer SMC and its chains, on the host: one compiled program, `look`, does the work."""

    def __init__(self, levels: Levels, replicates: int, rng: np.random.Generator) -> None:
        self.levels, self.rng = levels, rng
        self.replicates, self.count = replicates, replicates * levels.sizes[0]
        self.look = jax.jit(jax.vmap(self._look))
        self.accepted: list[float] = []
        self.looks = 1 + len(levels.schedule) * levels.moves + KEPT * THIN + OUTER_REPEATS
        self.seen = 0
        self.line: ShowProgress = _silent

    def evaluations(self) -> float:
        """How often the model is run in all."""
        inner = 1.0
        for size in self.levels.sizes[1:]:
            inner *= size * (1 + len(self.levels.schedule) * self.levels.moves)
        extra = 3 if len(self.levels.sizes) > 2 else 1  # further estimates of the innermost one
        extra *= 1 + self.levels.smi  # what is handed on is estimated apart
        return float(self.looks * self.count * inner * extra)

    def run(self, num_draws: int) -> Sampled:
        """SMC to the posterior, then chains from its particles, then the error."""
        states = self._see(np.asarray(jax.jit(jax.vmap(self._start))(self._keys())))
        log_z, before = np.zeros(self.replicates), 0.0
        for temperature in np.asarray(self.levels.schedule):
            weight = (temperature - before) * states["likelihood"].reshape(self.replicates, -1)
            log_mean = np.logaddexp.reduce(weight, axis=1) - np.log(weight.shape[1])
            log_z, before = log_z + log_mean, temperature
            states = _rows(states, self._resample(np.exp(weight - log_mean[:, None])))
            for _ in range(self.levels.moves):
                states = self._move(states, temperature)
        self.accepted = []
        kept = []
        for _ in range(KEPT):
            for _ in range(THIN):
                states = self._move(states, 1.0)
            kept.append(states)
        again = [self._see(states["u"])["log_z"] for _ in range(OUTER_REPEATS)]
        return self._result(log_z, kept, np.stack(again, axis=1), num_draws)

    def _start(self, key: Any) -> Any:
        drawn = self.levels.draw_all(key)
        return jnp.concatenate([jnp.ravel(drawn[name]) for name in self.levels.sites[0]])

    def _look(self, u: Any, key: Any) -> dict[str, Any]:
        """Everything about one outer particle, with the inner estimate that ``key`` makes."""
        levels, zero = self.levels, jnp.zeros(())
        values, log_prior, loss = levels.visit(0, {}, u)
        losses, handed = [loss], [zero, zero, zero]  # H of the blocks from the second on
        log_z, inner, spread = zero, zero, zero
        if len(levels.gamma) > 1:
            earlier = values
            log_z, values, later = levels.complete(values, 1, key)
            losses += later
            if levels.smi:
                handed[0] = levels.handed_on(1, earlier, random.fold_in(key, 3))
            else:
                handed[0] = -levels.eta[1] * levels.gamma[1] * log_z
        if len(levels.gamma) > 2:  # two more estimates of the innermost normaliser, for its error
            earlier = {n: values[n] for n in levels.sites[0] + levels.sites[1]}
            pair = jax.vmap(lambda key: levels.normaliser(2, earlier, key)[0])(
                random.split(random.fold_in(key, 2))
            )
            inner, spread = jnp.mean(pair), pair[0] - pair[1]
            if levels.smi:
                handed[1] = levels.handed_on(2, earlier, random.fold_in(key, 4))
            else:
                handed[1] = -levels.eta[2] * levels.gamma[2] * inner
        likelihood = -(losses[0] + handed[0]) / levels.gamma[0]
        return {
            "prior": log_prior,
            "likelihood": jnp.where(jnp.isnan(likelihood), -jnp.inf, likelihood),
            "values": values,
            "losses": jnp.stack(losses),
            "handed": jnp.stack(handed[: len(losses)]),
            "log_z": log_z,
            "inner": inner,
            "spread": spread,
        }

    def _see(self, u: np.ndarray) -> dict[str, Any]:
        found = {"u": u, **jax.tree.map(np.asarray, self.look(u, self._keys()))}
        self.seen += 1
        self.line(self.seen)
        return found

    def _keys(self) -> Any:
        return random.split(random.key(int(self.rng.integers(2**31))), self.count)

    def _resample(self, weights: np.ndarray) -> np.ndarray:
        """Systematic, within each replicate."""
        size = weights.shape[1]
        chosen = []
        for row, weight in enumerate(weights / weights.sum(axis=1, keepdims=True)):
            points = (np.arange(size) + self.rng.uniform()) / size
            at = np.searchsorted(np.cumsum(weight), points * (1 - 1e-12))
            chosen.append(row * size + np.minimum(at, size - 1))
        return np.concatenate(chosen)

    def _move(self, states: dict[str, Any], temperature: float) -> dict[str, Any]:
        """One pseudo-marginal Metropolis move of every particle."""
        u = states["u"]
        root = np.asarray(proposal_root(jnp.asarray(u), jnp.full(len(u), 1 / len(u))))
        proposed = self._see(u + self.rng.normal(size=u.shape) @ root.T)
        gain = proposed["prior"] - states["prior"]
        gain = gain + temperature * (proposed["likelihood"] - states["likelihood"])
        accept = np.log(self.rng.uniform(size=len(u))) < gain
        self.accepted.append(float(accept.mean()))
        return jax.tree.map(lambda a, b: np.where(_like(accept, a), a, b), proposed, states)

    def _result(
        self, log_z: np.ndarray, kept: list[Any], again: np.ndarray, num_draws: int
    ) -> Sampled:
        levels = self.levels
        gamma, blocks = levels.gamma, list(levels.gammas)
        first = -gamma[0] * (np.logaddexp.reduce(log_z) - np.log(self.replicates))
        monte_carlo = gamma[0] * np.std(log_z, ddof=1) / np.sqrt(self.replicates)
        variance = [0.0, float(np.mean(np.var(again, axis=1, ddof=1)))][: len(gamma)]
        if len(gamma) > 2:
            variance.append(float(np.mean([s["spread"] ** 2 for s in kept]) / 2))
        bias = [0.0] + [self._bias(k, variance[k]) for k in range(1, len(gamma))]
        first -= sum(bias)
        joined = jax.tree.map(lambda *parts: np.stack(parts, axis=1), *kept)  # (chain, kept, ...)
        values, heard = self._values(first, joined, again, variance)
        ess = float(np.min(effective_sample_size(joined["u"])))
        # without cuts each block hears what the next one makes of it, and this is the first value
        missing = [value - h for value, h in zip(values[1:], heard[:-1], strict=True)]
        expected = float(np.mean(joined["losses"].sum(axis=-1)))
        kl = {
            b: (values[k] - float(np.mean(joined["losses"][..., k])) - heard[k]) / gamma[k]
            for k, b in enumerate(blocks)
        }
        spread = 0.0
        if not levels.modules.feedback.is_full:
            spread = float(np.std(joined["log_z"])) * gamma[1] / np.sqrt(max(ess, 1.0))
        draws = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), joined["values"])
        rows = self.rng.permutation(self.count * KEPT)[:num_draws]
        runs = joined["u"].reshape((self.replicates, -1, joined["u"].shape[-1]))
        rest = [np.nan] * (len(blocks) - 1)
        return Sampled(
            value=float(first + sum(missing)),
            value_se=float(np.sqrt(monte_carlo**2 + sum(bias) ** 2 + spread**2)),
            expected_loss=expected,
            kl=kl,
            draws={name: values[rows] for name, values in draws.items()},
            error=pd.DataFrame(
                {
                    "block": blocks,
                    "log_normaliser_sd": np.sqrt(variance),
                    "value_bias": bias,
                    "ess": [ess, *rest],
                    "rhat": [float(np.max(gelman_rubin(runs))), *rest],
                    "accepted": [float(np.mean(self.accepted)), *rest],
                }
            ),
        )

    def _bias(self, k: int, variance: float) -> float:
        """Of the first value, by the variance of one estimate of log Z_k, to second order."""
        gamma, levels = self.levels.gamma, self.levels
        if levels.smi and levels.eta[k] < 1:
            heard = 1.0 if levels.eta[k] else 0.0
        else:
            heard = levels.eta[k]
        return heard * gamma[k] * (1 - heard * gamma[k] / gamma[k - 1]) * variance / 2

    def _values(
        self, first: float, joined: Any, again: Any, variance: list[float]
    ) -> tuple[list[float], list[float]]:
        """E_q of -gamma_k log Z_k for every block, and of what it hears of the next one."""
        gamma, levels = self.levels.gamma, self.levels
        values = [float(first)]
        if len(gamma) > 1:
            values.append(-gamma[1] * (float(np.mean(again)) + variance[1] / 2))
        if len(gamma) > 2:
            values.append(-gamma[2] * (float(np.mean(joined["inner"])) + variance[2] / 2))
        if levels.smi:
            heard = [float(np.mean(joined["handed"][..., k])) for k in range(len(gamma))]
        else:
            heard = [eta * v for eta, v in zip(levels.eta[1:], values[1:], strict=True)] + [0.0]
        return values, heard


def check_budget(outer: Outer, budget: float) -> None:
    """Refuse a run whose evaluations of the model would take longer than the budget."""
    levels = outer.levels
    last = len(levels.sites) - 1
    size = sum(int(np.prod(levels.shapes[name])) for name in levels.sites[last])
    drawn = levels.draw_all(random.key(0))
    earlier: dict[str, Any] = {}
    for k in range(last):
        u = jnp.concatenate([jnp.ravel(drawn[name]) for name in levels.sites[k]])
        earlier |= levels.visit(k, earlier, u)[0]
    run = jax.jit(jax.vmap(lambda u: levels.visit(last, earlier, u)[1:]))
    places = jnp.zeros((TIMED, size))
    jax.block_until_ready(run(places))
    times = []
    for _ in range(5):  # the fastest: other work on the machine is no cost of the model
        start = time.perf_counter()
        jax.block_until_ready(run(places))
        times.append(time.perf_counter() - start)
    # a move also draws, proposes and resamples, which costs about as much as a small model
    each = min(times) / TIMED + OVERHEAD
    seconds = each * outer.evaluations()
    if seconds > budget:
        raise ValueError(
            f"sampling would run the model {outer.evaluations():.1e} times, about {seconds:.0f} "
            f"seconds, more than budget={budget:g}. Raise budget=, lower inner_particles= (the "
            f"work grows as its power {last}), join blocks with groups=, or use soubayes.fit."
        )


def _rows(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[rows], tree)


def _like(mask: np.ndarray, array: np.ndarray) -> np.ndarray:
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))
