"""Nodes for every stage of a model, placed where the conditional posteriors have their mass.

V_k at a point is itself a recursion over the later stages, so placing the nodes of stage k solves a
smaller problem of the same kind at every point it looks at, for all rows at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from soubayes.exact.model import Model, ModuleLoss
from soubayes.exact.quadrature import Line, place_nodes
from soubayes.exact.stages import (
    Conditional,
    Coordinate,
    FinitePrior,
    Stage,
    block_values,
    conditional,
    describe,
    median_at,
)
from soubayes.exact.tree import Level, soft_minimum
from soubayes.feedback import POWER, Feedback


class Placed(NamedTuple):
    """The nodes of one stage, for every row (a point of the earlier stages)."""

    level: Level
    theta: np.ndarray
    log_density: np.ndarray  # log prior density (or mass) at the nodes
    value: np.ndarray  # V_k at the nodes
    error: np.ndarray  # (rows,) estimated relative error of Z beyond the tolerance
    missed: np.ndarray  # (rows,) whether there is mass beyond the nodes
    invalid: np.ndarray  # (rows,) whether the prior or V is undefined where the prior has mass
    is_discrete: bool = False


@dataclass(frozen=True, eq=False)
class Engine:
    """Places nodes stage by stage; V_k at any point is a smaller problem of the same kind."""

    model: Model
    stages: list[Stage]
    gammas: list[float]
    tolerance: float
    feedback: Feedback | None = None  # None: every block hears everything
    power: float = 1.0  # of what the block that is being integrated is weighed by (smi)
    chunk: int = 2**15  # points a call of the loss sees at once
    most_nodes: int = 20_000_000

    def with_tolerance(self, tolerance: float) -> "Engine":
        return replace(self, tolerance=tolerance)

    def grow(self) -> list[Placed]:
        """Nodes for every stage given the nodes of the earlier ones."""
        context: list[np.ndarray] = []
        tree = []
        for k, stage in enumerate(self.stages):
            placed = self.place(k, context)
            if len(placed.theta) > self.most_nodes:
                raise MemoryError(
                    f"the exact engine would need {len(placed.theta)} nodes at block "
                    f"{stage.name!r}. Raise tolerance, pass grid=, or use fewer blocks."
                )
            tree.append(placed)
            context = [*(values[placed.level.parent] for values in context), placed.theta]
        return tree

    def value(self, k: int, context: Sequence[np.ndarray]) -> np.ndarray:
        """V_k at points theta_<=k, flat arrays: the loss, or what later stages make of it."""
        size = self.chunk if k == len(self.stages) else max(1, self.chunk // 128)
        pieces = []
        for start in range(0, len(context[0]), size):
            part = [values[start : start + size] for values in context]
            if self.feedback is not None and self.ends_block(k):
                pieces.append(self.power * (self.module_loss(k, part) + self.handed_on(k, part)))
            elif k == len(self.stages):
                pieces.append(evaluate_loss(self.model, self.stages, part))
            else:
                pieces.append(self.soft_value(k, part))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def soft_value(self, k: int, context: Sequence[np.ndarray]) -> np.ndarray:
        """What integrating over stage k and the later ones makes of V_k, NaN where it cannot."""
        placed = self.place(k, context)
        value = soft_minimum(placed.value, placed.level, self.gammas[k])[0]
        return np.where(placed.invalid, np.nan, value)

    def ends_block(self, k: int) -> bool:
        """Whether the stages before k are whole blocks."""
        return k == len(self.stages) or self.stages[k].part == 0

    def module_loss(self, k: int, context: Sequence[np.ndarray]) -> np.ndarray:
        """The weighted loss of the module of the last block before stage k."""
        assert self.feedback is not None
        return evaluate_module(
            self.model, self.stages, context, self.stages[k - 1].name, self.feedback.weight
        )

    def handed_on(self, k: int, context: Sequence[np.ndarray]) -> np.ndarray | float:
        """H of the block that begins at stage k: what the earlier blocks hear of it."""
        assert self.feedback is not None
        if k == len(self.stages):
            return 0.0
        eta = self.feedback.eta[self.stages[k].name]
        if eta == 0:
            return 0.0
        if self.feedback.kind == POWER:
            return eta * replace(self, power=1.0).soft_value(k, context)
        return replace(self, power=eta).soft_value(k, context)

    def place(self, k: int, context: Sequence[np.ndarray]) -> Placed:
        """Nodes for stage k at every row of the earlier stages' values."""
        stage = self.stages[k]
        prior = conditional(stage, self.stages[:k], context)
        if isinstance(prior, FinitePrior):
            return self.enumerate_values(k, context, prior)
        if prior.is_discrete:
            return self.enumerate_integers(k, context, prior)
        if stage.grid is not None:
            return self.use_grid(k, context, prior)
        return self.integrate(k, context, prior)

    def integrate(self, k: int, context: Sequence[np.ndarray], prior: Conditional) -> Placed:
        """Automatic nodes for a continuous stage."""
        gamma = self.gammas[k]
        coordinate = Coordinate(*prior.support(), prior.name)
        ends = coordinate.line_ends()
        quartiles = np.stack([coordinate.line(prior.quantile(p)) for p in (0.25, 0.5, 0.75)])
        low, centre, high = quartiles
        scale = (high - low) / 1.35
        regular = np.isfinite(centre) & np.isfinite(scale) & (scale > 0)
        # quartiles of gamma(0.001) are below the smallest float and those of invgamma(0.001) above
        # the largest: floats are searched from y = 0 on, since a loss is known at floats alone
        beyond = ((quartiles <= ends[0]) | (quartiles >= ends[1])).any(axis=0)
        proper, inside = regular | beyond, regular & ~beyond
        line = Line(np.where(inside, centre, 0.0), np.where(inside, scale, 1.0), *ends)
        reference, unit = np.full(prior.rows, np.nan), np.ones(prior.rows)
        invalid = ~proper

        def evaluate(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            theta = coordinate.theta(rows, y)
            log_prior = prior.log_density(rows, theta) + coordinate.log_slope(rows, y)
            log_prior = np.where(proper[rows, None], log_prior, -np.inf)
            matters = log_prior + np.log(line.scale[rows, None]) > -30.0
            value = self.values_at(k, context, rows, theta, log_prior > -np.inf, matters, invalid)
            if np.isfinite(gamma):
                return log_prior - value / gamma, value
            if np.isnan(reference).any():  # the first call sees every row
                bulk = log_prior > log_prior.max(axis=1, keepdims=True) - 2
                usual = bulk & np.isfinite(value)
                least = np.where(usual, value, np.inf).min(axis=1)
                spread = np.where(usual, value, -np.inf).max(axis=1) - least
                reference[:] = np.where(np.isfinite(least), least + spread / 2, 0.0)
                unit[:] = np.where(np.isfinite(least), 1.0 + spread, 1.0)
            distance = np.abs(value - reference[rows, None]) / unit[rows, None]
            return log_prior + np.log(np.hypot(1.0, np.minimum(distance, 1e308))), value

        noise = 16 * np.finfo(float).eps / gamma
        nodes = place_nodes(evaluate, line, self.tolerances[k], noise, scan=21 if k else 33)
        theta = coordinate.theta(nodes.row, nodes.y[:, None])[:, 0]
        log_density = prior.log_density(nodes.row, theta[:, None])[:, 0]
        slope = coordinate.log_slope(nodes.row, nodes.y[:, None])
        log_weight = log_density + np.broadcast_to(slope, (len(theta), 1))[:, 0] + nodes.log_step
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight)
        level = normalised(Level(nodes.row, log_weight), always=np.isinf(gamma))
        return Placed(level, theta, log_density, nodes.value, nodes.error, nodes.at_edge, invalid)

    def enumerate_values(self, k: int, context: Sequence[np.ndarray], prior: FinitePrior) -> Placed:
        """All values of a finite prior, or those of the grid."""
        grid = self.stages[k].grid
        chosen = np.arange(len(prior.values))
        if grid is not None:
            chosen = np.flatnonzero(np.isin(prior.values, grid))
        if len(chosen) < (1 if grid is None else len(grid)):
            raise ValueError(
                f"grid of block {prior.name!r} holds values outside its prior's values "
                f"{prior.values.tolist()}."
            )
        rows = len(prior.weights)
        theta = np.broadcast_to(prior.values[chosen], (rows, len(chosen)))
        with np.errstate(divide="ignore"):
            log_weight = np.log(prior.weights[:, chosen])
        return self.discrete_nodes(k, context, theta, log_weight)

    def enumerate_integers(
        self, k: int, context: Sequence[np.ndarray], prior: Conditional
    ) -> Placed:
        """The integers that carry mass under a scipy discrete prior and the loss."""
        grid = self.stages[k].grid
        everyone = np.arange(prior.rows)
        if grid is not None:
            theta = np.broadcast_to(grid, (prior.rows, len(grid)))
            return self.discrete_nodes(k, context, theta, prior.log_density(everyone, theta))
        least, most = prior.support()
        low, high = prior.quantile(1e-14), prior.quantile(1 - 1e-14)
        depth = 12.0 - np.log(self.tolerances[k])
        while True:
            start = np.maximum(np.where(np.isfinite(low), low, 0.0), least)
            count = int(np.nanmax(np.minimum(high, most) - start)) + 1
            theta = start[:, None] + np.arange(count)
            log_weight = prior.log_density(everyone, theta)
            placed = self.discrete_nodes(k, context, theta, log_weight)
            gamma = self.gammas[k]
            g = (placed.level.log_weight - placed.value / gamma).reshape(theta.shape)
            heavy = g > g.max(axis=1, keepdims=True) - depth
            down = heavy[:, 0] & (theta[:, 0] > least)
            up = heavy[:, -1] & (theta[:, -1] < most)
            if not (down | up).any() or count > 2**17:
                return placed._replace(missed=down | up)
            low = np.where(down, start - count, start)
            high = np.where(up, theta[:, -1] + count, theta[:, -1])

    def discrete_nodes(
        self, k: int, context: Sequence[np.ndarray], theta: np.ndarray, log_weight: np.ndarray
    ) -> Placed:
        rows = np.arange(len(theta))
        invalid = np.isnan(log_weight).all(axis=1)
        log_weight = np.where(np.isnan(log_weight), -np.inf, log_weight)
        needed = log_weight > -np.inf
        value = self.values_at(k, context, rows, theta, needed, needed, invalid)
        level = Level(np.repeat(rows, theta.shape[1]), log_weight.ravel())
        level = normalised(level, always=np.isinf(self.gammas[k]))
        exact, covered = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
        return Placed(
            level, theta.ravel(), level.log_weight, value.ravel(), exact, covered, invalid, True
        )

    def use_grid(self, k: int, context: Sequence[np.ndarray], prior: Conditional) -> Placed:
        """The caller's nodes with trapezoid weights."""
        grid = np.asarray(self.stages[k].grid, dtype=float)
        if len(grid) < 3:
            raise ValueError(f"grid of block {prior.name!r} needs at least 3 nodes.")
        rows = np.arange(prior.rows)
        theta = np.broadcast_to(grid, (prior.rows, len(grid)))
        log_density = prior.log_density(rows, theta)
        invalid = np.isnan(log_density).all(axis=1)
        log_density = np.where(np.isnan(log_density), -np.inf, log_density)
        needed = log_density > -np.inf
        value = self.values_at(k, context, rows, theta, needed, needed, invalid)
        gap = np.diff(grid)
        steps = (np.append(gap, 0.0) + np.append(0.0, gap)) / 2
        log_weight = log_density + np.log(steps)
        g = log_density - value / self.gammas[k]
        least, most = prior.support()
        peak = g.max(axis=1)
        missed = ((g[:, 0] > peak - 12) & (grid[0] > least)) | (
            (g[:, -1] > peak - 12) & (grid[-1] < most)
        )
        density = np.exp(g - np.where(np.isfinite(peak), peak, 0.0)[:, None])
        fine = np.trapezoid(density, grid, axis=1)
        coarse = np.trapezoid(density[:, ::2], grid[::2], axis=1)
        error = np.abs(coarse - fine) / np.where(fine > 0, fine, 1.0)
        level = Level(np.repeat(rows, len(grid)), log_weight.ravel())
        level = normalised(level, always=np.isinf(self.gammas[k]))
        return Placed(
            level, theta.ravel(), log_density.ravel(), value.ravel(), error, missed, invalid
        )

    def values_at(
        self,
        k: int,
        context: Sequence[np.ndarray],
        rows: np.ndarray,
        theta: np.ndarray,
        needed: np.ndarray,
        matters: np.ndarray,
        invalid: np.ndarray,
    ) -> np.ndarray:
        """V_k at theta of shape (rows, m) where it is ``needed``, inf elsewhere.

        A loss may be undefined far out in a prior's tails: NaN counts as inf there. Where it
        matters it marks the row invalid, and the first stage turns that into an error; under an
        earlier stage, that stage decides whether the row itself matters.
        """
        value = np.full(theta.shape, np.inf)
        row, column = np.nonzero(needed)
        if len(row):
            earlier = [values[rows[row]] for values in context]
            value[row, column] = self.value(k + 1, [*earlier, theta[row, column]])
        bad = (np.isnan(value) | (value == -np.inf)) & matters
        if bad.any():
            if k == 0:
                raise ValueError(self.explain_invalid(theta[bad][0]))
            invalid[rows[bad.any(axis=1)]] = True
        return np.where(value > -np.inf, value, np.inf)

    def explain_invalid(self, theta: float) -> str:
        """Which prior or loss is undefined when the first stage has the value theta."""
        context = [np.array([theta])]
        for k, stage in enumerate(self.stages[1:], start=1):
            try:
                context.append(median_at(stage, self.stages[:k], context))
            except ValueError as error:
                return str(error)
        loss = float(evaluate_loss(self.model, self.stages, context)[0])
        return (
            f"loss is {loss} at {describe(self.stages, context)}. It must be a number or inf "
            "(impossible) wherever the priors have mass: check the data for NaN."
        )

    @cached_property
    def tolerances(self) -> list[float]:
        """Accuracy asked of log Z_k, so V and the earlier conditionals are right.

        An error e in V_k moves an earlier exponent by e / gamma_j; e = gamma_k times the error of
        log Z_k. Below 1e-13 rounding rules.
        """
        goals = []
        for k, gamma in enumerate(self.gammas):
            step = gamma if np.isfinite(gamma) else 1.0
            smallest = min([1.0, step, *self.gammas[:k]])
            goals.append(max(self.tolerance * smallest / step, 1e-13))
        return goals


def normalised(level: Level, always: bool) -> Level:
    """Weights that sum to 1 where the nodes cover the whole prior.

    Their sum then differs from 1 only by quadrature error, which gamma would magnify in V.
    """
    starts = np.flatnonzero(np.diff(level.parent, prepend=-1))
    total = np.add.reduceat(np.exp(level.log_weight), starts)
    covered = (np.abs(total - 1.0) < 1e-8) | (always & (total > 0))
    log_total = np.log(np.where(covered, total, 1.0))
    return level._replace(log_weight=level.log_weight - log_total[level.parent])


def evaluate_loss(
    model: Model, stages: Sequence[Stage], context: Sequence[np.ndarray]
) -> np.ndarray:
    """The loss at flat points; its shape is a caller's first mistake, so say what is wanted."""
    if isinstance(model.loss, ModuleLoss):
        weight = dict.fromkeys(model.names, 1.0)
        parts = [evaluate_module(model, stages, context, n, weight) for n in model.loss.modules]
        return np.sum(parts, axis=0)
    assert callable(model.loss)
    return called(model.loss, "loss", model.names, block_values(stages, context))


def evaluate_module(
    model: Model,
    stages: Sequence[Stage],
    context: Sequence[np.ndarray],
    name: str,
    weight: Mapping[str, float],
) -> np.ndarray:
    """The weighted loss of one module at flat points; 0 for a block without data of its own."""
    assert isinstance(model.loss, ModuleLoss)
    if name not in model.loss.modules or weight[name] == 0:
        return np.zeros(len(context[0]))
    names = model.names[: model.names.index(name) + 1]
    values = block_values(stages, context)[: len(names)]
    return weight[name] * called(model.loss.modules[name], f"loss of {name!r}", names, values)


def called(
    loss: Callable[..., ArrayLike], title: str, names: Sequence[str], values: Sequence[np.ndarray]
) -> np.ndarray:
    """A caller's loss at flat points, or what is wrong with it."""
    count = len(values[0])
    advice = (
        f"It is called with the blocks {list(names)} in this order, as arrays of one shape, "
        "and works element by element. Put data on an extra last axis and sum over it, as in "
        "((y - mu[..., None]) ** 2).sum(axis=-1)."
    )
    try:
        value = np.asarray(loss(*values), dtype=float)
    except Exception as error:  # the caller's function may raise anything
        raise ValueError(f"{title} failed: {error}. {advice}") from error
    if value.shape not in ((count,), ()):
        raise ValueError(f"{title} returned shape {value.shape} for {count} points. {advice}")
    return np.broadcast_to(value, (count,))


def check_elementwise(model: Model, stages: Sequence[Stage], medians: Sequence[np.ndarray]) -> None:
    """Refuse a loss that sums over its points: it differs for a batch and point by point."""
    points = [
        np.concatenate([m, m, m, m + 0.25 * i if m.dtype.kind == "f" else m])
        for i, m in enumerate(medians, 1)
    ]
    together = evaluate_loss(model, stages, points)
    alone = np.concatenate(
        [evaluate_loss(model, stages, [p[i : i + 1] for p in points]) for i in (0, 3)]
    )
    if not np.allclose(together[[0, 3]], alone, rtol=1e-8, equal_nan=True):
        raise ValueError(
            f"loss is not element by element: four points together give {together[[0, 3]]}, one by "
            f"one {alone}. Put data on an extra last axis and sum over it, as in "
            "((y - mu[..., None]) ** 2).sum(axis=-1)."
        )
