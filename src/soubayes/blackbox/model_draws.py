"""Draws of a NumPyro model, with the prior of every site and the likelihood at each of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, substitute, trace

from soubayes.blackbox.blocks import check_scans, model_blocks, scans
from soubayes.blackbox.draws import Draws, check_divergences, joined
from soubayes.blackbox.elbo import site_log_prob
from soubayes.blackbox.guides import underlying_normal
from soubayes.blackbox.program import (
    abstract_trace,
    double_precision,
    join_arguments,
    split_arguments,
)


def from_model(
    draws: Any,
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    groups: Mapping[str, Iterable[str]],
) -> Draws:
    """The draws of an MCMC object or of a mapping, with what the model says about them."""
    if hasattr(draws, "get_samples"):
        extra = draws.get_extra_fields() if hasattr(draws, "get_extra_fields") else {}
        if "diverging" in extra:
            check_divergences(np.asarray(extra["diverging"]))
        draws = draws.get_samples(group_by_chain=True)
    with double_precision():
        scanned = scans(model)
        sites = abstract_trace(scanned, args, kwargs)
        order, owner = model_blocks(sites, groups)
        check_scans(scanned.sites, owner)
        flat, chains = _flat(draws, sites, owner)
        latent = {name: jnp.asarray(flat[name]) for name in owner}
        skeleton, arrays = split_arguments(args, kwargs)

        def known(values: Any, arrays: Any) -> Any:
            given = join_arguments(skeleton, arrays)
            return jax.vmap(lambda values: _look(model, *given, values, list(owner)))(values)

        try:
            found = jax.jit(known)(latent, arrays)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
            # the model's Python code reads its data, so they must be constants
            found = jax.jit(lambda values: known(values, arrays))(latent)
        values, log_prior, log_jacobian, log_likelihood = jax.tree.map(np.asarray, found)
    discrete = [name for name in owner if sites[name]["fn"].support.is_discrete]
    numbers = (values, log_prior, log_jacobian, log_likelihood)
    return joined(*numbers, discrete, flat, chains, groups, order)


def _look(
    model: Callable, args: tuple, kwargs: dict[str, Any], values: dict[str, Any], names: list[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]:
    """Coordinates on the real line, log priors, log Jacobians, log likelihood, at one draw."""
    run = substitute(seed(model, random.key(0)), data=values)
    sites = trace(run).get_trace(*args, **kwargs)
    places, log_prior, log_jacobian = {}, {}, {}
    for name in names:
        log_prior[name] = site_log_prob(sites[name])
        value, support = sites[name]["value"], sites[name]["fn"].support
        if support.is_discrete:
            places[name], log_jacobian[name] = jnp.ravel(value), jnp.zeros(())
            continue
        if (normal := underlying_normal(sites[name]["fn"])) is not None:
            # in units of its prior: no funnel
            place = (value - normal.loc) / normal.scale
            log_jacobian[name] = jnp.sum(jnp.broadcast_to(jnp.log(normal.scale), place.shape))
        else:
            transform = biject_to(support)
            place = transform.inv(value)
            log_jacobian[name] = jnp.sum(transform.log_abs_det_jacobian(place, value))
        places[name] = jnp.ravel(place)
    observed = [s for s in sites.values() if s["type"] == "sample" and s["is_observed"]]
    log_likelihood = sum((site_log_prob(site) for site in observed), jnp.zeros(()))
    return places, log_prior, log_jacobian, log_likelihood


def _flat(draws: Any, sites: Any, owner: Mapping[str, str]) -> tuple[dict[str, np.ndarray], int]:
    """Every site's draws as (draw, ...), and the number of chains."""
    missing = [name for name in owner if name not in draws]
    if missing:
        raise ValueError(
            f"the draws lack {missing}, latent sites of the model; they have {list(draws)}. Draw "
            "with the same model, or leave out reparametrisations that rename its sites."
        )
    first = next(iter(owner))
    ndim = len(np.shape(sites[first]["value"]))
    chained = np.ndim(draws[first]) == ndim + 2
    flat = {}
    for name, given in draws.items():
        values = np.asarray(given)
        flat[name] = values.reshape(-1, *values.shape[2:]) if chained else values
    for name in owner:
        shape = np.shape(sites[name]["value"])
        if flat[name].shape[1:] != shape:
            raise ValueError(
                f"the draws of {name!r} have shape {np.shape(draws[name])}, but the model draws "
                f"{shape}: give (draw, ...) or (chain, draw, ...) of it."
            )
    return flat, np.shape(draws[first])[0] if chained else 1
