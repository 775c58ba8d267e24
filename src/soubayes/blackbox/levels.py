"""The recursion of Theorem 1 by nested tempered SMC: block k given the earlier ones, inwards."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import random_walk
from blackjax.smc import resampling, tempered
from jax import random
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, substitute, trace

from soubayes.blackbox.elbo import site_log_prob
from soubayes.blackbox.modules import Modules
from soubayes.feedback import SMI


class Position(NamedTuple):
    """A particle of an inner block: where it is, and the estimate of what lies after it."""

    u: jax.Array  # unconstrained, flat
    seed: jax.Array  # of the inner estimate, so it can be made again
    log_prior: jax.Array
    log_likelihood: jax.Array  # -U_k / gamma_k, where U_k is V_k if all feedback is full


class Levels:
    """The recursion: block k given the earlier ones, and so on inwards."""

    def __init__(
        self,
        model: Callable,
        args: Any,
        kwargs: Any,
        gammas: dict[str, float],
        owner: dict[str, str],
        modules: Modules,
        sizes: tuple[int, ...],
        temperatures: int,
        moves: int,
    ) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.gammas, self.owner, self.sizes = gammas, owner, sizes
        self.moves, self.modules = moves, modules
        self.smi = modules.feedback.kind == SMI and not modules.feedback.is_full
        self.gamma = list(gammas.values())
        self.eta = list(modules.feedback.eta.values())
        self.sites = [[s for s, b in owner.items() if b == block] for block in gammas]
        self.observed = [modules.sites[block] for block in gammas]
        self.schedule = (jnp.arange(1, temperatures + 1) / temperatures) ** 3
        drawn = jax.eval_shape(lambda: self.draw_all(random.key(0)))
        self.shapes = {name: value.shape for name, value in drawn.items()}

    def normaliser(
        self, k: int, earlier: dict[str, Any], key: Any, power: float = 1.0
    ) -> tuple[Any, Any]:
        """log E_pi exp(-power U_k / gamma_k) by tempered SMC, and weighted particles of block k."""
        start_key, smc_key = random.split(key)
        start = jax.vmap(lambda key: self.prior_draw(k, earlier, key))(
            random.split(start_key, self.sizes[k])
        )
        kernel = tempered.build_kernel(
            lambda position: position.log_prior,
            lambda position: position.log_likelihood,
            lambda key, state, density, root: self.move(k, earlier, root, key, state, density),
            random_walk.init,
            resampling.systematic,
        )

        def step(state: Any, inputs: Any) -> Any:
            key, temperature = inputs
            root = proposal_root(state.particles.u, state.weights)
            state, info = kernel(key, state, self.moves, temperature, {"root": root[None]})
            return state, info.log_likelihood_increment

        inputs = (random.split(smc_key, len(self.schedule)), power * self.schedule)
        first = tempered.init(start)._replace(tempering_param=jnp.zeros(()))
        state, increments = jax.lax.scan(step, first, inputs)
        return jnp.sum(increments), state

    def move(self, k: int, earlier: Any, root: Any, key: Any, state: Any, density: Any) -> Any:
        """One Metropolis move of block k with a fresh inner estimate at the proposal."""

        def propose(key: Any, position: Position) -> Position:
            step_key, inner_key = random.split(key)
            u = position.u + root @ random.normal(step_key, position.u.shape)
            return self.position(k, earlier, u, inner_key)

        return random_walk.build_rmh()(key, state, density, propose)

    def position(self, k: int, earlier: dict[str, Any], u: Any, key: Any) -> Position:
        """A particle at u with its -U_k / gamma_k, estimated with ``key`` unless k is the last."""
        values, log_prior, loss = self.visit(k, earlier, u)
        log_likelihood = -(loss + self.handed_on(k + 1, {**earlier, **values}, key))
        log_likelihood = log_likelihood / self.gamma[k]
        finite = jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood)
        return Position(u, random.key_data(key), log_prior, finite)

    def handed_on(self, k: int, earlier: dict[str, Any], key: Any) -> Any:
        """H_k, what the earlier blocks hear of block k (see `soubayes.feedback`)."""
        if k == len(self.gamma) or self.eta[k] == 0:
            return jnp.zeros(())
        if self.smi:
            return -self.gamma[k] * self.normaliser(k, earlier, key, self.eta[k])[0]
        return -self.eta[k] * self.gamma[k] * self.normaliser(k, earlier, key)[0]

    def prior_draw(self, k: int, earlier: dict[str, Any], key: Any) -> Position:
        """A draw of block k from its conditional prior."""
        draw_key, inner_key = random.split(key)
        flat = self.draw_all(draw_key, earlier)
        u = jnp.concatenate([jnp.ravel(flat[name]) for name in self.sites[k]])
        return self.position(k, earlier, u, inner_key)

    def visit(self, k: int, earlier: dict[str, Any], u: Any) -> tuple[dict[str, Any], Any, Any]:
        """Values, log prior (with the Jacobian) and the loss of the module of block k at u."""
        parts, at = {}, 0
        for name in self.sites[k]:
            size = int(np.prod(self.shapes[name]))
            parts[name] = jnp.reshape(u[at : at + size], self.shapes[name])
            at += size
        values: dict[str, Any] = {}
        jacobians = []

        def place(site: Any) -> Any:
            name = site["name"]
            if site["type"] != "sample" or name not in parts:
                return earlier.get(name)
            transform = biject_to(site["fn"].support)
            values[name] = transform(parts[name])
            jacobian = transform.log_abs_det_jacobian(parts[name], values[name])
            jacobians.append(jnp.sum(jacobian))
            return values[name]

        run = substitute(seed(self.model, random.key(0)), substitute_fn=place)
        sites = trace(run).get_trace(*self.args, **self.kwargs)
        log_prior = sum(jacobians) + sum(site_log_prob(sites[name]) for name in self.sites[k])
        weight = self.modules.feedback.weight[list(self.gammas)[k]]
        likelihood = sum((site_log_prob(sites[n]) for n in self.observed[k]), jnp.zeros(()))
        return values, log_prior, -weight * likelihood

    def complete(self, earlier: dict[str, Any], k: int, key: Any) -> tuple[Any, Any, Any]:
        """log Z_k, and block k with all after it and their losses, by the particles of ``key``."""
        log_z, state = self.normaliser(k, earlier, key)
        row = random.choice(random.fold_in(key, 1), self.sizes[k], p=state.weights)
        chosen = jax.tree.map(lambda x: x[row], state.particles)
        values, _, loss = self.visit(k, earlier, chosen.u)
        values, losses = {**earlier, **values}, [loss]
        if k + 1 < len(self.gamma):
            seed_of = random.wrap_key_data(chosen.seed)
            values, later = self.complete(values, k + 1, seed_of)[1:]
            losses += later
        return log_z, values, losses

    def draw_all(self, key: Any, earlier: dict[str, Any] | None = None) -> dict[str, Any]:
        run = substitute(seed(self.model, key), data=earlier or {})
        sites = trace(run).get_trace(*self.args, **self.kwargs)
        return {n: biject_to(sites[n]["fn"].support).inv(sites[n]["value"]) for n in self.owner}


def proposal_root(u: jax.Array, weights: jax.Array) -> jax.Array:
    """Cholesky factor of 2.38^2/d times the covariance of weighted particles."""
    size = u.shape[-1]
    centred = u - weights @ u
    covariance = (weights[:, None] * centred).T @ centred
    ridge = 1e-8 * jnp.trace(covariance) / size + 1e-20
    return 2.38 / jnp.sqrt(size) * jnp.linalg.cholesky(covariance + ridge * jnp.eye(size))
