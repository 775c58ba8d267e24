"""What is compiled for one model, guide and set of blocks, kept while only numbers change."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import random
from jax.flatten_util import ravel_pytree
from jax.lax import stop_gradient
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import replay, seed, substitute, trace

from soubayes.blackbox.blocks import check_names, is_scanned, model_blocks
from soubayes.blackbox.compiling import jit
from soubayes.blackbox.elbo import SoUELBO, Terms, site_log_prob
from soubayes.blackbox.flat import flat_blocks, placeholders
from soubayes.blackbox.flows import MOST_BENT
from soubayes.blackbox.guides import initial_params, make_guide, unconstrained
from soubayes.blackbox.losses import with_loss
from soubayes.blackbox.polish import mirrored
from soubayes.confidence import check_mapping
from soubayes.threads import solver_threads

DRAWS_CHUNK = 256  # draws of one compiled evaluation
RANGE = "log confidence"  # the site that holds the confidences of a family
TOGETHER = 8  # draws whose Hessians are computed at once


class Plan(NamedTuple):
    """Everything that shapes the computation; hashable, so a program is found again."""

    model: Callable
    guide: str | Callable
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    point: frozenset[str]  # blocks that are point estimates
    prior: frozenset[str]  # blocks that stay at their prior
    loss: Any
    divergence: tuple[tuple[str, Any], ...]
    num_particles: int
    window: int
    skeleton: Any  # the arguments of the model with every array taken out
    framed: bool = False  # whether the guide's coordinates are those of a frame
    ranges: tuple["LogRange", ...] = ()  # of log confidences that are drawn, as the site RANGE

    def arguments(self, arrays: list[Any]) -> tuple[tuple, dict]:
        """The model's arguments with the arrays put back."""
        return join_arguments(self.skeleton, arrays)


class LogRange(NamedTuple):
    """A block whose confidence is drawn, and the ends of its log."""

    block: str
    low: float
    high: float


class Inputs(NamedTuple):
    """What a compiled program is given besides parameters: data, and the guide's frame."""

    arrays: list[Any]
    frame: dict[str, Any]  # constants of the guide's coordinates, by name; may be empty


_ARRAY = "an array"


def plain_arguments(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a model with pandas Series as arrays, which JAX can trace."""
    return jax.tree.map(lambda x: x.to_numpy() if isinstance(x, pd.Series) else x, (args, kwargs))


def split_arguments(args: tuple, kwargs: dict, *, keep: bool = False) -> tuple[Any, list[Any]]:
    """The hashable skeleton of the arguments, and their arrays, which may change freely.

    ``keep`` leaves the arrays where they are, constants of the program.
    """
    leaves, structure = jax.tree.flatten((args, kwargs))
    is_array = [not keep and isinstance(leaf, np.ndarray | jax.Array) for leaf in leaves]
    arrays = [jnp.asarray(x) for x, array in zip(leaves, is_array, strict=True) if array]
    rest = tuple(_ARRAY if array else x for x, array in zip(leaves, is_array, strict=True))
    return (structure, rest), arrays


def join_arguments(skeleton: Any, arrays: list[Any]) -> tuple[tuple, dict]:
    """The arguments that `split_arguments` took apart."""
    structure, leaves = skeleton
    waiting = iter(arrays)
    return jax.tree.unflatten(
        structure, [next(waiting) if leaf is _ARRAY else leaf for leaf in leaves]
    )


@contextmanager
def numerics() -> Iterator[None]:
    """How this engine computes: in float64, since small confidences need the digits, and with
    BLAS on one thread, since XLA has threads of its own and the two would wait for each other."""
    with jax.enable_x64(True), solver_threads(1):
        yield


class Structure(NamedTuple):
    """What does not change with the numbers of a model."""

    blocks: dict[str, str]  # of every latent site, in the order of the model
    shapes: dict[str, tuple[int, ...]]  # of the unconstrained values of the sites
    flat: tuple[str, ...]  # blocks with a flat prior


class Program:
    """The compiled parts: a start, a window of optimiser steps, a chunk of draws."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.model = with_loss(plan.model, plan.loss)
        self.transforms: dict[str, Any] = {}  # of parameters under a constraint
        self.guide: Callable | None = None if isinstance(plan.guide, str) else plan.guide
        # 0 and inf are structure: no number that a compiled program could be given
        self.fixed = {**dict.fromkeys(plan.point, 0.0), **dict.fromkeys(plan.prior, float("inf"))}
        self.prior_draws = jit(self._prior_draws)
        self.moments = jit(self._moments)
        self.slopes = jit(self._slopes)
        self.energies = jit(self._energies)
        self.places = jit(self._places_of)
        self.window = jit(self._window)
        self.draws = jit(self._draws)
        self.draws_and_slopes = jit(self._draws_and_slopes)
        self.fixed_value_and_gradient = jit(self._fixed_value_and_gradient)
        self.fixed_hessian = jit(self._fixed_hessian)
        self.optimiser = optax.scale_by_adam()
        self._structures: dict[Any, Structure] = {}

    def start(self, key: Any, gammas: Any, inputs: Inputs, spread: bool) -> Any:
        """Unconstrained starting parameters of the guide and the model, and their units."""
        arrays = inputs.arrays
        args, kwargs = self.plan.arguments(arrays)
        params: dict[str, Any] = {}
        units: dict[str, Any] = {}
        if isinstance(self.plan.guide, str):
            sites = self.structure(arrays).blocks
            params, units = initial_params(
                np.random.default_rng(np.asarray(random.key_data(key))),
                abstract_trace(self.model, args, kwargs),
                self._places(key, arrays),
                self.plan.guide,
                sites,
                {**{block: float(gamma) for block, gamma in gammas.items()}, **self.fixed},
                spread=spread,
                framed=self.plan.framed,
                bends=bool(self.plan.ranges),
            )
            point = frozenset(s for s, b in sites.items() if b in self.plan.point)
            prior = frozenset(s for s, b in sites.items() if b in self.plan.prior)
            constants = [name for name in inputs.frame if name != RANGE]  # which is a site
            self.guide = make_guide(self.model, [*params, *constants], point, prior)
        if isinstance(self.plan.guide, str):
            # running the model eagerly is slow, and only parameters need their values
            programs = [self.model] if has_params(self.model, args, kwargs) else []
        else:
            programs = [self.plan.guide, self.model]
        for program in programs:
            with placeholders():
                found = trace(seed(program, key)).get_trace(*args, **kwargs)
            for name, site in found.items():
                if site["type"] == "param" and name not in params:
                    support = site["kwargs"].get("constraint", constraints.real)
                    self.transforms[name] = biject_to(support)
                    # a flow keeps a tree of arrays under one name
                    params[name] = jax.tree.map(self.transforms[name].inv, site["value"])
        ones = jax.tree.map(lambda _: 1.0, params)
        units = {name: units.get(name, ones[name]) for name in params}
        return jax.tree.map(_strong, (params, units))

    def _places(self, key: Any, arrays: Any) -> dict[str, np.ndarray]:
        """Unconstrained draws of the prior; in a frame, where only shapes matter, one of zeros."""
        if not self.plan.framed or self.plan.prior:
            return jax.tree.map(np.asarray, self.prior_draws(key, arrays))
        shapes = self.structure(arrays).shapes
        return {name: np.zeros((1, *shape)) for name, shape in shapes.items()}

    def structure(self, arrays: Any) -> "Structure":
        """What the model is made of, for arrays of these shapes; found once, because it is slow."""
        key = tuple((jnp.shape(x), jnp.result_type(x)) for x in arrays)
        if key not in self._structures:
            args, kwargs = self.plan.arguments(arrays)
            sites = abstract_trace(self.model, args, kwargs)
            blocks = model_blocks(sites, dict(self.plan.groups))[1]
            found = jax.eval_shape(
                lambda: unconstrained(abstract_trace(self.model, args, kwargs), blocks)
            )
            shapes = {name: found[name].shape for name in blocks}
            self._structures[key] = Structure(blocks, shapes, flat_blocks(sites, blocks))
        return self._structures[key]

    def _prior_draws(self, key: Any, arrays: Any) -> Any:
        """Draws of every latent site from the prior, unconstrained."""
        args, kwargs = self.plan.arguments(arrays)
        names = self.structure(arrays).blocks

        def once(key: Any) -> Any:
            with placeholders():
                found = trace(seed(self.model, key)).get_trace(*args, **kwargs)
            return unconstrained(found, names)

        return jax.vmap(once)(random.split(key, 64))

    def free_sites(self, arrays: Any) -> dict[str, str]:
        """Latent sites that the guide moves, with their blocks."""
        blocks = self.structure(arrays).blocks
        return {site: block for site, block in blocks.items() if block not in self.plan.prior}

    def _guided(self, flat: Any, key: Any, arrays: Any) -> tuple[Any, Any]:
        """Free sites at unconstrained coordinates of all of them: those, and a trace."""
        args, kwargs = self.plan.arguments(arrays)
        free = self.free_sites(arrays)
        blocks, shapes, _ = self.structure(arrays)
        prior = frozenset(set(blocks) - set(free))
        names = [f"{site}:loc" for site in free]
        guide = make_guide(self.model, names, frozenset(free), prior)
        ends = np.cumsum([int(np.prod(shapes[name])) for name in free])
        parts = jnp.split(flat, ends[:-1])
        places = {n: jnp.reshape(x, shapes[n]) for n, x in zip(free, parts, strict=True)}
        given = {f"{name}:loc": place for name, place in places.items()}
        guided = substitute(seed(guide, key), data=given)
        return places, trace(guided).get_trace(*args, **kwargs)

    def _places_of(self, rows: Any, key: Any, arrays: Any) -> dict[str, Any]:
        """The values of free sites at every row of unconstrained coordinates."""

        def one(flat: Any) -> dict[str, Any]:
            places, values = self._guided(flat, key, arrays)
            return {name: values[name]["value"] for name in places}

        return jax.vmap(one)(rows)

    def _energy(self, flat: Any, key: Any, gammas: Any, arrays: Any) -> Any:
        """U = L - sum_k gamma_k log pi_k at unconstrained coordinates of all free sites."""
        args, kwargs = self.plan.arguments(arrays)
        blocks = self.structure(arrays).blocks
        places, values = self._guided(flat, key, arrays)
        sites = trace(replay(seed(self.model, key), values)).get_trace(*args, **kwargs)
        total = jnp.zeros(())
        for name, site in sites.items():
            if site["type"] == "sample" and site["is_observed"]:
                total = total - site_log_prob(site)
            elif name in places and blocks[name] in gammas:
                transform = biject_to(site["fn"].support)
                stretch = transform.log_abs_det_jacobian(places[name], site["value"])
                density = site_log_prob(site) + jnp.sum(stretch)
                total = total - gammas[blocks[name]] * density
        return total

    def _moments(
        self, mean: Any, root: Any, noise: Any, key: Any, gammas: Any, arrays: Any
    ) -> tuple[Any, Any, Any]:
        """U at mean + root e for every row e of noise, with mean gradient and mean Hessian."""

        def one(inputs: Any) -> Any:
            e, key = inputs
            energy = lambda u: self._energy(u, key, gammas, arrays)  # noqa: E731
            slope = jax.value_and_grad(energy)
            u = mean + root @ e
            turn = lambda v: jax.jvp(jax.grad(energy), (u,), (v,))[1]  # noqa: E731
            return *slope(u), jax.vmap(turn)(jnp.eye(len(u)))

        keys = random.split(key, len(noise))
        values, slopes, hessians = jax.lax.map(one, (noise, keys), batch_size=TOGETHER)
        return values, jnp.mean(slopes, axis=0), jnp.mean(hessians, axis=0)

    def _slopes(self, places: Any, key: Any, gammas: Any, arrays: Any) -> tuple[Any, Any]:
        """U and its gradient at every row of coordinates."""
        keys = random.split(key, len(places))
        each = jax.value_and_grad(lambda u, k: self._energy(u, k, gammas, arrays))
        return jax.lax.map(lambda pair: each(*pair), (places, keys), batch_size=TOGETHER)

    def _energies(self, places: Any, key: Any, gammas: Any, arrays: Any) -> Any:
        """U at every row of coordinates."""
        keys = random.split(key, len(places))
        return jax.vmap(lambda u, k: self._energy(u, k, gammas, arrays))(places, keys)

    def constrain(self, params: Any) -> Any:
        """The parameters as the guide and the model use them."""
        return {k: jax.tree.map(self.transforms.get(k, lambda x: x), v) for k, v in params.items()}

    def _terms(
        self, key: Any, params: Any, gammas: Any, inputs: Inputs, guide: Any = None, **options: Any
    ) -> Terms:
        args, kwargs = self.plan.arguments(inputs.arrays)
        training = bool(self.plan.ranges) and RANGE not in inputs.frame
        if training:
            params, inputs = self._somewhere(key, params, gammas, inputs)
        elbo = SoUELBO(
            {**gammas, **self.fixed},
            groups=dict(self.plan.groups),
            divergence=dict(self.plan.divergence),
            **options,
        )
        guide = guide or self.guide
        known = {**self.constrain(params), **inputs.frame}
        terms = elbo.terms(key, known, self.model, guide, *args, **kwargs)
        if not self.plan.ranges:
            return terms
        gammas = self._drawn_confidence(gammas, inputs.frame[RANGE])
        objective = terms.loss + sum(gamma * terms.kl[block] for block, gamma in gammas.items())
        if training:
            objective = objective / jnp.exp(jnp.mean(inputs.frame[RANGE]))
        return terms._replace(objective=objective)

    def _drawn_confidence(self, gammas: Any, logs: Any) -> dict[str, Any]:
        return {**gammas, **{r.block: jnp.exp(logs[i]) for i, r in enumerate(self.plan.ranges)}}

    def _somewhere(self, key: Any, params: Any, gammas: Any, inputs: Inputs) -> tuple[Any, Inputs]:
        """Confidences of a family drawn for training, and parameters with weighted gradients.

        An error of q_k costs gamma_k KL, so small confidences would hardly count for q_k. The
        objective is divided by the geometric mean of the drawn confidences, and the gradient by
        the parameters of q_k by gamma_k in its place. Neither changes a minimum. Large blocks keep
        the mean: a weight for each draw makes a copy of their matrices for each draw.
        """
        low, high = jnp.asarray([(r.low, r.high) for r in self.plan.ranges]).T
        logs = random.uniform(random.fold_in(key, 11), low.shape, minval=low, maxval=high)
        drawn, mean = self._drawn_confidence(gammas, logs), jnp.exp(jnp.mean(logs))
        blocks, shapes, _ = self.structure(inputs.arrays)
        weighted = dict(params)
        for name, x in params.items():
            site = name.split(":")[0]
            if blocks.get(site) in drawn and np.prod(shapes[site]) <= MOST_BENT:
                held = stop_gradient(x)
                weighted[name] = held + mean / drawn[blocks[site]] * (x - held)
        return weighted, inputs._replace(frame={**inputs.frame, RANGE: logs})

    def _window(
        self,
        params: Any,
        units: Any,
        momentum: Any,
        key: Any,
        rate: Any,
        gammas: Any,
        inputs: Inputs,
    ) -> Any:
        """Adam steps at one learning rate; a step whose gradient is not finite is not taken."""

        def objective(params: Any, key: Any) -> Any:
            keys = random.split(key, self.plan.num_particles)
            path = isinstance(self.plan.guide, str)
            each = lambda k: self._terms(k, params, gammas, inputs, path_gradient=path)  # noqa: E731
            return jnp.mean(jax.vmap(each)(keys).objective)

        def step(state: Any, key: Any) -> Any:
            params, momentum, total = state
            gradient = jax.grad(objective)(params, key)
            finite = jnp.all(
                jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(gradient)])
            )
            updates, moved = self.optimiser.update(gradient, momentum)
            new = (jax.tree.map(lambda p, s, u: p - rate * s * u, params, units, updates), moved)
            params, momentum = jax.tree.map(
                lambda a, b: jnp.where(finite, a, b), new, (params, momentum)
            )
            return (params, momentum, jax.tree.map(jnp.add, total, params)), finite

        keys = random.split(key, self.plan.window)
        zero = jax.tree.map(jnp.zeros_like, params)
        (params, momentum, total), finite = jax.lax.scan(step, (params, momentum, zero), keys)
        average = jax.tree.map(lambda x: x / self.plan.window, total)
        params, average = jax.tree.map(_strong, (params, average))
        return params, momentum, average, jnp.mean(finite)

    def _fixed(self, params: Any, key: Any, gammas: Any, inputs: Inputs) -> Any:
        """J on `DRAWS_CHUNK` draws in mirrored pairs, a smooth function of the parameters."""
        blocks = self.structure(inputs.arrays).blocks
        free = frozenset(site for site, block in blocks.items() if block in self.plan.prior)

        def one(key: Any, sign: Any) -> Any:
            guide = mirrored(seed(self.guide, key), sign, free)
            return self._terms(key, params, gammas, inputs, guide, entropy=True).objective

        pair = jax.vmap(one, in_axes=(None, 0))
        signs = jnp.array([1.0, -1.0])
        return jnp.mean(
            jax.vmap(pair, in_axes=(0, None))(random.split(key, DRAWS_CHUNK // 2), signs)
        )

    def _fixed_value_and_gradient(self, params: Any, keys: Any, gammas: Any, inputs: Inputs) -> Any:
        each = jax.value_and_grad(self._fixed)
        parts = jax.lax.map(lambda key: each(params, key, gammas, inputs), keys)
        return jax.tree.map(lambda part: jnp.mean(part, axis=0), parts)

    def _fixed_hessian(self, params: Any, keys: Any, gammas: Any, inputs: Inputs) -> Any:
        flat, unravel = ravel_pytree(params)

        def row(direction: Any) -> Any:
            slope = lambda x: self._fixed_value_and_gradient(unravel(x), keys, gammas, inputs)[1]  # noqa: E731
            return ravel_pytree(jax.jvp(slope, (flat,), (direction,))[1])[0]

        return jax.lax.map(row, jnp.eye(flat.size))

    def _draws(self, params: Any, key: Any, gammas: Any, inputs: Inputs) -> Terms:
        """`DRAWS_CHUNK` draws with the integrand of J at each; no closed form, since at the exact
        answer the Monte Carlo integrand is constant (Theorem 1) and its error vanishes."""
        keys = random.split(key, DRAWS_CHUNK)
        return jax.vmap(lambda k: self._terms(k, params, gammas, inputs, analytic=False))(keys)

    def _draws_and_slopes(self, params: Any, key: Any, gammas: Any, inputs: Inputs) -> Any:
        """The same, and the slope of the integrand by each log confidence of a family.

        The guide moves with the confidences, and so do its draws: at the exact answer the
        integrand is V everywhere, and each draw has the slope of V.
        """

        def integrand(at: Any, key: Any) -> Any:
            there = inputs._replace(frame={**inputs.frame, RANGE: at})
            terms = self._terms(key, params, gammas, there, analytic=False)
            return terms.objective, terms

        keys = random.split(key, DRAWS_CHUNK)
        both = jax.vmap(jax.jacfwd(integrand, has_aux=True), in_axes=(None, 0))
        slopes, terms = both(inputs.frame[RANGE], keys)
        return terms, slopes


def has_params(program: Callable, args: Any, kwargs: Any) -> bool:
    return any(s["type"] == "param" for s in abstract_trace(program, args, kwargs).values())


def _strong(x: Any) -> jax.Array:
    # a weakly typed start and a strongly typed iterate would each be compiled for
    return jax.lax.convert_element_type(x, jnp.float64)


@lru_cache(maxsize=32)
def compiled(plan: Plan) -> Program:
    """The program of a plan, made once."""
    return Program(plan)


def abstract_trace(model: Callable, args: Any, kwargs: Any) -> Any:
    """The sites of a model without computing any of them."""
    found: dict[str, Any] = {}

    def run() -> int:
        with placeholders():
            found.update(trace(seed(model, random.key(0))).get_trace(*args, **kwargs))
        return 0

    jax.eval_shape(run)
    return found


def subsampled(sites: Any) -> bool:
    """Whether a plate of a traced model shows a part of its rows."""
    plates = [site["args"] for site in sites.values() if site["type"] == "plate"]
    return any(shown not in (None, whole) for whole, shown, *_ in plates)


def chains(sites: Any) -> dict[str, int]:
    """The number of coordinates of one step, for every latent site inside a scan."""
    found = {n: s for n, s in sites.items() if is_scanned(s) and not s.get("is_observed", False)}
    return {
        n: int(np.prod(s["value"].shape[1:])) for n, s in found.items() if s["type"] == "sample"
    }


def checked_confidence(
    confidence: Mapping[str, float], groups: Any, sites: Any
) -> tuple[dict[str, float], dict[str, str]]:
    """The confidence of every block of a traced model, and the block of every latent site."""
    order, owner = model_blocks(sites, groups)
    for name, gamma in (check_mapping(confidence) or {}).items():
        if isinstance(gamma, tuple | list):
            raise TypeError(
                f"confidence of {name!r} is {gamma}, but it must be one number. For a range use "
                "soubayes.fit_family."
            )
    return {k: float(v) for k, v in check_names(confidence, order, sites).items()}, owner
