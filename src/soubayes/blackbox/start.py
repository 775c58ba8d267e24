"""A start at the posterior's scale: the frame of the best Gaussian, for a model and a guide."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from soubayes.blackbox.flows import split_chain
from soubayes.blackbox.frame import FrameBlocks, Gaussian, best_diagonal, best_gaussian
from soubayes.blackbox.guides import FRAME, of_prior
from soubayes.blackbox.program import Program, abstract_trace, chains, has_params, subsampled
from soubayes.blackbox.verdict import (
    BADNESS,
    ROUGH,
    ROUGH_MEAN,
    TRUSTED,
    TRUSTED_MEAN,
    USELESS,
    Quality,
    guide_log_weights,
    quality,
)

MOST_COORDINATES = 200  # beyond these a Hessian for every draw costs more than it saves
MOST_DIAGONAL = 50_000
STARTS_WITHIN = 2.0  # unconstrained coordinates of further starts, as in Stan
LOOKS = 2048  # draws by which the best Gaussian is judged
EXACT = 0.05  # spread of the integrand below which no further step is worth its time
ENOUGH = 0.2  # the same where the alternative is a flow
LEAST_MODE = 0.01  # of the mass, from which another mode counts
APART = 4.0  # sds between means from which two Gaussians are two modes
MODE_DRAWS = 256
JOINT = {"meanfield": "none", "blockwise": "block", "conditional": "chain", "flow": "chain"}


class Mode(NamedTuple):
    """Another local minimum, far from the best one: draws of sites by both, and its mass."""

    here: dict[str, np.ndarray]
    there: dict[str, np.ndarray]
    share: float


class Scaled(NamedTuple):
    """The best Gaussian of a model, and how good it is."""

    gaussian: Gaussian
    places: dict[str, np.ndarray]  # coordinates of every free site
    shapes: dict[str, tuple[int, ...]]
    point: frozenset[str]  # sites
    steps: dict[str, int]  # coordinates of one step of every chain in a scan
    history: dict[str, list[float]]
    quality: Quality
    final: bool  # whether nothing but the guide is to be fitted, and by KL
    prior: dict[str, tuple[np.ndarray, np.ndarray]]  # median and spread of sites at their prior
    modes: tuple[Mode, ...]  # that other starts have found

    @property
    def spread(self) -> float:
        """Standard deviation of the log weights."""
        return self.quality.spread

    @property
    def enough(self) -> bool:
        """Whether a richer guide is not worth its time."""
        return self.final and self.spread <= ENOUGH and self.quality.verdict == TRUSTED

    @property
    def exact(self) -> bool:
        """Whether no guide could be clearly better."""
        return self.final and self.spread <= EXACT


def at_scale(
    program: Program, gammas: dict[str, float], arrays: Any, key: Any, restarts: int
) -> Scaled | None:
    """The best Gaussian; None if there are too many coordinates, or U is not finite anywhere."""
    plan = program.plan
    args, kwargs = plan.arguments(arrays)
    sites = abstract_trace(program.model, args, kwargs)
    free, shapes = program.free_sites(arrays), program.structure(arrays).shapes
    sizes = {name: int(np.prod(shapes[name])) for name in free}
    size = sum(sizes.values())
    if not 0 < size <= MOST_DIAGONAL or subsampled(sites):
        return None
    diagonal = size > MOST_COORDINATES
    ends = np.cumsum(list(sizes.values()))
    places = {n: np.arange(e - sizes[n], e) for n, e in zip(free, ends, strict=True)}
    blocks = _blocks(places, free, gammas, "none" if diagonal else JOINT[str(plan.guide)])
    traced = {b: jnp.asarray(g) for b, g in gammas.items() if 0 < g < float("inf")}

    def moments(mean: Any, root: Any, noise: Any) -> Any:
        return jax.device_get(program.moments(mean, root, noise, key, traced, arrays))

    def slopes(at: Any) -> Any:
        return jax.device_get(program.slopes(at, key, traced, arrays))

    best: Gaussian | None = None
    every: list[Gaussian] = []
    history: dict[str, list[float]] = {}
    for attempt in range(restarts + 1):
        if attempt == restarts and best is not None and best.converged:
            break  # the priors need not be asked
        mean, sd = _start(program, arrays, key, places, attempt, attempt == restarts)
        rows: list[tuple[float, float]] = []
        if diagonal:
            found = best_diagonal(slopes, mean, sd, blocks, rows.append)
        else:
            found = best_gaussian(moments, mean, sd, blocks, rows.append)
        if found is not None and found.converged:
            every.append(found)
        if found is not None and (best is None or found.value < best.value):
            best = found
            history = {
                "step": [float(i) for i in range(len(rows))],
                "value": [value for value, _ in rows],
                "learning_rate": [rate for _, rate in rows],
            }
    if best is not None and best.endless.size and program.structure(arrays).flat:
        raise ValueError(_endless(best.endless, places, free))
    if best is None or best.endless.size:
        return None
    noise = np.random.default_rng(1).normal(size=(LOOKS, size))
    at = best.mean + (noise * best.root if diagonal else noise @ best.root.T)
    scale = best.root if diagonal else np.diag(best.root)
    energy = np.asarray(program.energies(at, random.fold_in(key, 1), traced, arrays))
    log_q = [
        gamma * (-0.5 * noise[:, place] ** 2 - np.log(scale[place])).sum(axis=1)
        for place, gamma in zip(blocks.places, blocks.gammas, strict=True)
        if gamma > 0
    ]
    integrand = energy + sum(log_q, np.zeros(LOOKS))
    if not np.all(np.isfinite(integrand)):
        integrand = np.where(np.isfinite(integrand), integrand, 1e10)
    drawn = {name: at[:, place] for name, place in places.items()}
    log_w = guide_log_weights(integrand, drawn, free, gammas)
    return Scaled(
        best,
        places,
        {name: shapes[name] for name in free},
        frozenset(name for name in free if gammas[free[name]] == 0),
        chains(sites),
        history,
        quality(log_w, drawn),
        best.converged
        and not diagonal
        and not (plan.divergence or plan.ranges)
        and not has_params(program.model, args, kwargs),
        _prior_units(program, arrays, key, [name for name in shapes if name not in free]),
        () if diagonal else _other_modes(program, arrays, key, best, every, gammas),
    )


def _other_modes(
    program: Program,
    arrays: Any,
    key: Any,
    best: Gaussian,
    every: list[Gaussian],
    gammas: dict[str, float],
) -> tuple[Mode, ...]:
    """Local minima that do not overlap with the best one and have a share of the mass.

    J of a Gaussian at a mode is about minus the log of its mass, over the confidence.
    """
    gamma = max((g for g in gammas.values() if 0 < g < float("inf")), default=1.0)
    noise = np.random.default_rng(2).normal(size=(MODE_DRAWS, len(best.mean)))
    modes: list[Mode] = []
    for other in every:
        share = 1 / (1 + np.exp(min((other.value - best.value) / gamma, 700.0)))
        gap = other.mean - best.mean
        both = 0.5 * (best.root @ best.root.T + other.root @ other.root.T)
        apart = np.sqrt(max(gap @ np.linalg.pinv(both) @ gap, 0.0))
        if modes or share < LEAST_MODE or apart < APART:
            continue
        here, there = (
            jax.tree.map(np.asarray, program.places(g.mean + noise @ g.root.T, key, arrays))
            for g in (best, other)
        )
        modes.append(Mode(here, there, float(share)))
    return tuple(modes)


def judge_modes(
    found: Quality, draws: Mapping[str, np.ndarray], modes: tuple[Mode, ...]
) -> Quality:
    """The verdict, lowered if the draws of a fit leave out a mode that another start has found."""
    for mode in modes:
        error, missing = 0.0, 0.0
        for name, here in mode.here.items():
            sides = [np.median(x.reshape(len(x), -1), axis=0) for x in (here, mode.there[name])]
            drawn = draws[name].reshape(len(draws[name]), -1)
            beyond = (drawn - 0.5 * (sides[0] + sides[1])) * (sides[1] - sides[0]) > 0
            lacking = np.maximum(mode.share - beyond.mean(axis=0), 0.0)
            sd = np.maximum(drawn.std(axis=0), 1e-300)
            # of the whole posterior, which has the spread between the modes
            moved = abs(sides[1] - sides[0]) / sd
            shift = lacking * moved / np.sqrt(1 + lacking * (1 - lacking) * moved**2)
            if shift.max() > error:
                error, missing = float(shift.max()), float(lacking[np.argmax(shift)])
        if error > TRUSTED_MEAN:
            verdict = ROUGH if error <= ROUGH_MEAN else USELESS
            verdict = max(verdict, found.verdict, key=BADNESS.index)
            reason = (
                f"another mode has about {missing:.0%} of the mass, and the fit leaves it out; "
                f"means may be off by {error:.2f} sd"
            )
            return replace(found, verdict=verdict, reason=reason, mean_error=error)
    return found


def _prior_units(
    program: Program, arrays: Any, key: Any, names: list[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Median and spread of every coordinate of sites that are kept at their prior."""
    if not names:
        return {}
    draws = jax.tree.map(np.asarray, program.prior_draws(key, arrays))
    found = {}
    for name in names:
        low, median, high = np.quantile(draws[name], [0.25, 0.5, 0.75], axis=0)
        spread = (high - low) / 1.35
        found[name] = median, np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)
    return found


def in_frame(scaled: Scaled, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The constants of a guide's coordinates, and parameters that do not start by themselves."""
    frame: dict[str, Any] = {}
    begun: dict[str, Any] = {}
    gaussian, names = scaled.gaussian, list(scaled.places)
    for name, (origin, unit) in scaled.prior.items():
        frame[f"{name}:origin"], frame[f"{name}:unit"] = origin, unit
    for i, name in enumerate(names):
        place, shape = scaled.places[name], scaled.shapes[name]
        frame[f"{name}:origin"] = gaussian.mean[place].reshape(shape)
        if gaussian.root.ndim == 1:
            frame[f"{name}:unit"] = (1 / np.sqrt(gaussian.curvature[place])).reshape(shape)
            if name not in scaled.point:
                frame[f"{name}:unit"] = gaussian.root[place].reshape(shape)
            continue
        root = gaussian.root[np.ix_(place, place)]
        if name in scaled.point or len(place) == 1 or kind == "meanfield":
            unit = np.diag(root)
            if name in scaled.point:
                unit = 1 / np.sqrt(np.diag(gaussian.curvature)[place])
            frame[f"{name}:unit"] = unit.reshape(shape)
        elif kind == "flow" and name in scaled.steps:
            carry, frame[f"{name}:root"] = split_chain(root, scaled.steps[name])
            begun[f"{name}:carry"] = carry
        else:
            frame[f"{name}:root"] = root
        for other in names[:i] if kind in ("conditional", "flow") else ():
            if name not in scaled.point and other not in scaled.point:
                across = np.ix_(place, scaled.places[other])
                frame[f"{name}:root:{other}"] = gaussian.root[across]
    return jax.tree.map(jnp.asarray, (frame, begun))


def is_constant(name: str) -> bool:
    """Whether a name in ``params`` is that of a constant of the frame."""
    return name.split(":")[1:2] != [] and name.split(":")[1] in FRAME


def _blocks(
    places: dict[str, np.ndarray], owner: dict[str, str], gammas: dict[str, float], joint: str
) -> FrameBlocks:
    order = list(dict.fromkeys(owner.values()))
    together = [np.concatenate([places[s] for s in places if owner[s] == b]) for b in order]
    return FrameBlocks(tuple(together), tuple(gammas[b] for b in order), joint)


def _start(
    program: Program, arrays: Any, key: Any, places: dict[str, np.ndarray], attempt: int, last: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Where to start: the origin, points around it, and at last the medians of the priors."""
    size = sum(len(place) for place in places.values())
    if last:
        draws = jax.tree.map(np.asarray, program.prior_draws(key, arrays))
        known = [of_prior(draws[name]) for name in places]
        units = [np.full(median.size, 0.1 * sd) for median, sd in known]
        return np.concatenate([np.ravel(median) for median, _ in known]), np.concatenate(units)
    # in mirrored pairs: where signs or labels can be exchanged, one of a pair finds each mode
    rng = np.random.default_rng([(attempt + 1) // 2, *np.asarray(random.key_data(key))])
    sign = (-1.0) ** (attempt + 1) if attempt else 0.0
    return sign * rng.uniform(-STARTS_WITHIN, STARTS_WITHIN, size), np.full(size, 0.1)


def _endless(direction: np.ndarray, places: dict[str, np.ndarray], owner: dict[str, str]) -> str:
    share = {name: float(np.sum(direction[place] ** 2)) for name, place in places.items()}
    named = [name for name in places if share[name] > 0.1]
    return (
        f"the posterior of {named} is improper: J falls without end as it spreads, because the "
        "data do not bound it and its prior is flat. Give it a proper prior, or add data or "
        "constraints that identify it."
    )
