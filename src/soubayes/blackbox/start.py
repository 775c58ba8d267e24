"""A start at the posterior's scale: the frame of the best Gaussian, for a model and a guide."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import random

from soubayes.blackbox.flat import flat_blocks
from soubayes.blackbox.flows import split_chain
from soubayes.blackbox.frame import FrameBlocks, Gaussian, best_diagonal, best_gaussian
from soubayes.blackbox.guides import FRAME, of_prior
from soubayes.blackbox.program import Program, abstract_trace, chains, has_params, subsampled
from soubayes.blackbox.verdict import TRUSTED, Quality, guide_log_weights, quality

MOST_COORDINATES = 200  # beyond these a Hessian for every draw costs more than it saves
MOST_DIAGONAL = 50_000
STARTS_WITHIN = 2.0  # unconstrained coordinates of further starts, as in Stan
LOOKS = 2048  # draws by which the best Gaussian is judged
EXACT = 0.05  # spread of the integrand below which no further step is worth its time
ENOUGH = 0.2  # the same where the alternative is a flow
JOINT = {"meanfield": "none", "blockwise": "block", "conditional": "chain", "flow": "chain"}


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
    free, shapes = program.free_sites(arrays), program.shapes(arrays)
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
        if found is not None and (best is None or found.value < best.value):
            best = found
            history = {
                "step": [float(i) for i in range(len(rows))],
                "value": [value for value, _ in rows],
                "learning_rate": [rate for _, rate in rows],
            }
    flat = flat_blocks(sites, program.latent_blocks(args, kwargs))
    if best is not None and best.endless.size and flat:
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
    )


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
    rng = np.random.default_rng([attempt, *np.asarray(random.key_data(key))])
    reach = STARTS_WITHIN if attempt else 0.0
    return rng.uniform(-reach, reach, size), np.full(size, 0.1)


def _endless(direction: np.ndarray, places: dict[str, np.ndarray], owner: dict[str, str]) -> str:
    share = {name: float(np.sum(direction[place] ** 2)) for name, place in places.items()}
    named = [name for name in places if share[name] > 0.1]
    return (
        f"the posterior of {named} is improper: J falls without end as it spreads, because the "
        "data do not bound it and its prior is flat. Give it a proper prior, or add data or "
        "constraints that identify it."
    )
