"""Minimising J over the parameters of a guide: Adam on draws, and Newton's method on fixed ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from soubayes.blackbox.polish import MOST_PARAMETERS, newton
from soubayes.blackbox.program import DRAWS_CHUNK, Inputs, Program
from soubayes.blackbox.progress import DECAY, LAST_RATE, PLATEAU_WINDOWS, WINDOW, Report

JUDGE_CHUNKS = 8  # of common draws: the best of many windows on one chunk is too narrow a guide

MOST_RISE = 10.0  # nats above the best window: the steps were too long


@dataclass(frozen=True)
class Settings:
    """How J is minimised; the parameters of `soubayes.fit` of the same names."""

    learning_rate: float
    tol: float
    restarts: int
    steps: int
    polish: int | str
    num_draws: int
    report: Report
    patience: int = PLATEAU_WINDOWS  # windows without a gain that make a plateau


class Descent:
    """One optimisation: windows of steps, judged on common draws."""

    def __init__(
        self,
        program: Program,
        gammas: Mapping[str, float],
        inputs: Inputs,
        settings: Settings,
    ) -> None:
        self.program, self.inputs = program, inputs
        self.traced = {b: jnp.asarray(g) for b, g in gammas.items() if 0 < g < float("inf")}
        self.rate, self.tol = settings.learning_rate, settings.tol
        self.report, self.budget = settings.report, settings.steps
        self.patience = settings.patience
        # common draws
        self.judges = [random.fold_in(random.key(20), i) for i in range(JUDGE_CHUNKS)]
        self.history: dict[str, list[float]] = {"step": [], "value": [], "learning_rate": []}
        self.steps = 0
        self.units: Any = None  # of the parameters, from the spreads of the priors

    def best_start(self, key: Any, restarts: int, start: Mapping[str, Any] | None) -> Any:
        """The most promising of several starts, each given two windows at the full rate."""
        candidates: list[tuple[float, int, Any]] = []
        tries = 1 if start is not None or self.inputs.frame else restarts
        for attempt in range(tries):
            key, first, later = random.split(key, 3)
            params, self.units = self.program.start(
                first, self.traced, self.inputs, spread=attempt > 0
            )
            params = _overwrite(params, start)
            value = self.value(params)
            if not np.isfinite(value) and attempt == tries - 1 and not candidates:
                raise ValueError(self._explain(params))
            if not np.isfinite(value):
                continue
            if tries > 1:
                momentum = self.program.optimiser.init(params)
                for i in range(2):
                    params, momentum, average, _ = self._window(
                        params, momentum, random.fold_in(later, i), self.rate
                    )
                value, params = self.value(average), average
            if np.isfinite(value):
                candidates.append((value, attempt, params))
        if not candidates:
            raise ValueError(
                "the loss is not finite along any of the starts. Check the data for NaN and the "
                "priors for values where the loss is infinite, or pass start=."
            )
        return min(candidates)[2]

    def to_convergence(self, params: Any, key: Any) -> tuple[Any, str]:
        """Lower the learning rate on every plateau until the last; what is wrong with the end."""
        momentum = self.program.optimiser.init(params)
        rate, best, answer, converged = self.rate, self.value(params), params, False
        idle = 0
        while self.steps < self.budget and not converged:
            params, momentum, average, finite = self._window(
                params, momentum, random.fold_in(key, self.steps), rate
            )
            value = self.value(average)
            self._record(value, rate)
            gained = best - value
            if np.isfinite(value) and value <= best:
                best, answer = value, average
            idle = 0 if gained > max(self.tol, 1e-7 * abs(best)) else idle + 1
            lost = not value < best + MOST_RISE
            if idle == self.patience or lost:
                converged = rate <= LAST_RATE * self.rate
                rate, idle, params = rate * DECAY, 0, answer
            if lost:  # Adam would remember its large gradients for thousands of steps
                momentum = self.program.optimiser.init(params)
            if finite < 0.5 or (converged and not np.isfinite(value)):
                raise ValueError(self._explain(average))
        if converged:
            return answer, ""
        return answer, (
            f"J still fell by more than tol={self.tol} in {self.steps} steps. Allow more steps=, "
            "raise tol=, or give start= or a guide closer to the posterior."
        )

    def check_polish(self, params: Any) -> None:
        """Refuse what Newton's method cannot do before any time is spent."""
        if size_of(params) > MOST_PARAMETERS:
            raise ValueError(
                f"polish holds a Hessian of all parameters, and the guide has {size_of(params)}, "
                f"more than {MOST_PARAMETERS}. Leave polish=0, or use guide='meanfield'."
            )
        jax.eval_shape(self.program._fixed, params, self.judges[0], self.traced, self.inputs)

    def may_polish(self, params: Any) -> bool:
        """Whether Newton's method can be used for this guide."""
        try:
            self.check_polish(params)
        except ValueError:
            return False
        return True

    def polished(self, params: Any, key: Any, num_draws: int) -> tuple[Any, str]:
        """Newton's method on fixed draws, kept if other draws find it no worse."""
        size = size_of(params)
        keys = random.split(key, -(-num_draws // DRAWS_CHUNK))
        given = (keys, self.traced, self.inputs)
        end = newton(
            lambda params: self.program.fixed_value_and_gradient(params, *given),
            lambda params: self.program.fixed_hessian(params, *given),
            params,
            self.units,
            self.tol / 100,
            self._report_newton,
        )
        # other draws than those on which ``params`` was the best of many
        fresh = random.split(random.fold_in(key, 1), JUDGE_CHUNKS)
        rise = np.asarray(self._judged(end.params, fresh) - self._judged(params, fresh))
        if not rise.mean() <= self.tol + 3 * rise.std() / np.sqrt(len(rise)):
            return params, (
                f"polish lowered J on its own {len(keys) * DRAWS_CHUNK} draws but raised it on "
                f"others, so it was not kept. The guide has {size} parameters: give polish= more "
                "draws."
            )
        return end.params, "" if end.converged else "polishing ran out of steps; raise tol=."

    def value(self, params: Any) -> float:
        """J on the common draws, comparable between iterates."""
        return float(jnp.mean(self._judged(params, self.judges)))

    def _judged(self, params: Any, keys: Iterable[Any]) -> Any:
        given = (self.traced, self.inputs)
        parts = [self.program.draws(params, key, *given).objective for key in keys]
        return jnp.concatenate(parts)

    def _window(self, params: Any, momentum: Any, key: Any, rate: float) -> Any:
        result = self.program.window(
            params, self.units, momentum, key, rate, self.traced, self.inputs
        )
        self.steps += WINDOW
        return result

    def _record(self, value: float, rate: float) -> None:
        row = {"step": float(self.steps), "value": value, "learning_rate": rate}
        for name, entry in row.items():
            self.history[name].append(entry)
        self.report(row)

    def _report_newton(self, step: int, value: float, promised: float) -> None:
        self.report({"newton_step": float(step), "value": value, "gain": promised})

    def _explain(self, params: Any) -> str:
        terms = self.program.draws(params, self.judges[0], self.traced, self.inputs)
        bad = [f"the KL of {b!r}" for b, v in terms.kl.items() if b in self.traced and _bad(v)]
        bad = (["the loss"] if _bad(terms.loss) else []) + bad or ["a gradient"]
        share = float(np.mean(~np.isfinite(terms.objective)))
        return (
            f"{' and '.join(bad)} is not finite in {share:.0%} of the draws from the guide. Check "
            "the data for NaN and the priors for values where the loss is infinite; a smaller "
            "learning_rate= or other start= may keep the guide away from them."
        )


def _overwrite(params: dict[str, Any], start: Mapping[str, Any] | None) -> dict[str, Any]:
    unknown = [name for name in start or {} if name not in params]
    if unknown:
        raise ValueError(f"start names {unknown}, but the guide's parameters are {list(params)}.")
    return {**params, **jax.tree.map(lambda value: jnp.asarray(value, float), dict(start or {}))}


def size_of(params: Any) -> int:
    """The number of free parameters."""
    return sum(x.size for x in jax.tree.leaves(params))


def _bad(values: Any) -> bool:
    return not bool(np.all(np.isfinite(values)))
