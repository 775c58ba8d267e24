"""Draws of a NumPyro model, with the prior of every site and the likelihood at each of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, substitute, trace

from soubayes.blackbox.blocks import check_block_groups, check_scans, model_blocks, scans
from soubayes.blackbox.elbo import site_log_prob
from soubayes.blackbox.flat import check_flat, is_flat
from soubayes.blackbox.guides import underlying_normal
from soubayes.blackbox.program import (
    abstract_trace,
    join_arguments,
    numerics,
    plain_arguments,
    split_arguments,
)
from soubayes.draws.crossed import Crossed
from soubayes.draws.kernels import MOST_DIMENSIONS
from soubayes.draws.known import (
    Draws,
    chains_first,
    check_divergences,
    check_statistics,
    joined,
)

COLUMNS = 1000  # draws of the later blocks that are crossed with every draw of the first
PRIOR_DRAWS = 4000


def from_model(
    draws: Any,
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    groups: Mapping[str, Iterable[str]],
) -> Draws:
    """The draws of an MCMC object or of a mapping, with what the model says about them."""
    args, kwargs = plain_arguments(args, kwargs)
    if hasattr(draws, "posterior"):  # an ArviZ object: the model knows the rest
        check_statistics(draws)
        posterior = draws.posterior
        draws = {str(name): chains_first(posterior[name]) for name in posterior.data_vars}
    elif hasattr(draws, "get_samples"):
        extra = draws.get_extra_fields() if hasattr(draws, "get_extra_fields") else {}
        if "diverging" in extra:
            check_divergences(np.asarray(extra["diverging"]))
        draws = draws.get_samples(group_by_chain=True)
    with numerics():
        scanned = scans(model)
        sites = _sites(scanned, args, kwargs)
        order, owner = model_blocks(sites, groups)
        check_scans(scanned.sites, owner)
        check_block_groups(seed(model, random.key(0)), sites, owner, args, kwargs)
        check_flat(seed(model, random.key(0)), sites, owner, args, kwargs)
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
    result = joined(*numbers, discrete, flat, chains, groups, order)
    with numerics():
        crossed = _crossed(result, model, args, kwargs, sites, owner)
    return replace(result, crossed=crossed)


def _sites(model: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The sites of the model, or an error that says with which arguments it cannot be run."""
    try:
        return abstract_trace(model, args, kwargs)
    except (TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"the model cannot be run with these arguments ({reason}). Pass those that it was "
            "sampled with, after the model."
        ) from error


def _crossed(
    draws: Draws,
    model: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    sites: Any,
    owner: Mapping[str, str],
) -> Crossed | None:
    """The later blocks' prior at crossed draws, if the data see the first block only by them."""
    first = [name for name in owner if owner[name] == draws.names[0]]
    later = [name for name in owner if owner[name] != draws.names[0]]
    sizes = [sum(np.size(draws.quantities[n][0]) for n in group) for group in (first, later)]
    # bounds that are numbers may be those of the first block, and then crossed draws break them
    bounded = any(jax.tree.leaves(sites[name]["fn"].support) for name in later)
    flat = any(is_flat(sites[name]["fn"]) for name in first)  # nothing to draw it from
    if not later or bounded or flat or max(sizes) > MOST_DIMENSIONS:
        return None
    n = len(draws.log_likelihood)
    columns = np.arange(0, n, max(1, n // COLUMNS))
    outer, inner = (
        {name: jnp.asarray(draws.quantities[name]) for name in group} for group in (first, later)
    )
    below = {name: values[columns] for name, values in inner.items()}

    def look(outer: Any, inner: Any) -> tuple[Any, Any]:
        _, log_prior, _, log_likelihood = _look(
            model, args, kwargs, {**outer, **inner}, list(owner)
        )
        return sum(log_prior[name] for name in later), log_likelihood

    table = jax.vmap(jax.vmap(look, (None, 0)), (0, None))
    few = slice(None, None, max(1, n // 8))
    _, likelihood = jax.jit(table)(
        {name: values[few] for name, values in outer.items()},
        {name: values[few] for name, values in inner.items()},
    )
    if not np.allclose(likelihood, draws.log_likelihood[few], rtol=1e-9, atol=1e-9):
        return None

    def from_prior(key: Any) -> Any:
        found = trace(seed(model, key)).get_trace(*args, **kwargs)
        return {name: found[name]["value"] for name in first}

    prior = jax.jit(jax.vmap(from_prior))(random.split(random.key(0), PRIOR_DRAWS))
    density = jax.jit(lambda outer: table(outer, below)[0])
    return Crossed(np.asarray(density(outer)), np.asarray(density(prior)), columns)


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
        normal = None if is_flat(sites[name]["fn"]) else underlying_normal(sites[name]["fn"])
        if normal is not None:
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
    discrete = [name for name in missing if sites[name]["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"the model has the discrete sites {discrete}, which the draws lack: they were summed "
            "out while sampling. Sum them out of the model itself (for a mixture: "
            "numpyro.distributions.MixtureSameFamily)."
        )
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
        if len(flat[name]) != len(flat[first]):
            raise ValueError(
                f"there are {len(flat[name])} draws of {name!r} and {len(flat[first])} of "
                f"{first!r}; give as many of each."
            )
    return flat, np.shape(draws[first])[0] if chained else 1
