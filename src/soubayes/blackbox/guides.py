"""Guides that draw block after block, so that every block's KL can be weighted."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ReshapeTransform, biject_to
from numpyro.handlers import block, seed, trace
from numpyro.primitives import Messenger

from soubayes.blackbox.blocks import model_blocks

GUIDE_KINDS = ("meanfield", "blockwise", "conditional")


def make_guide(
    model: Callable, names: Iterable[str], point: frozenset[str], prior: frozenset[str]
) -> Callable:
    """A Gaussian guide in unconstrained coordinates that follows the model's own program.

    The guide runs the model with the distribution of every latent site replaced: a site in
    ``point`` is a point, a site in ``prior`` is drawn from its conditional prior, any other is
    N(loc + W (theta_<k - loc_<k), S) pushed through the site's constraint. Which of W and S are
    free is decided by the parameters, ``names``, that `initial_params` makes. What only the
    likelihood needs is dead code here, and XLA removes it.
    """
    names = tuple(names)

    def guide(*args: Any, **kwargs: Any) -> None:
        params = {name: numpyro.param(name) for name in names}
        with block(hide_fn=_is_not_guided), _Replace(params, point, prior):
            model(*args, **kwargs)

    return guide


def initial_params(
    key: Any,
    model: Callable,
    kind: str,
    groups: Mapping[str, Iterable[str]],
    gammas: Mapping[str, Any],
    args: Any,
    kwargs: Any,
    *,
    spread: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Starting values for the parameters of `make_guide`, and the unit of each.

    The start is the prior median, or spread about it. ``kind`` is ``"meanfield"`` (independent
    coordinates), ``"blockwise"`` (a full covariance within each block, blocks independent) or
    ``"conditional"`` (besides, the mean of each block is affine in the earlier blocks, and a block
    with a normal prior follows the location and log scale that the earlier blocks give it, by a
    share of its own: 1 is the prior, as for a large confidence, 0 is free; Ambrogioni et al.
    2021). The unit of a location is the spread of its prior, so that steps do not depend on the
    units of the data. Standard deviations start at a tenth of it times min(1, sqrt(gamma)), since
    a block of small confidence ends up with one of that order.
    """
    sites = trace(seed(model, key)).get_trace(*args, **kwargs)
    _, owner = model_blocks(sites, groups)
    plates = {name: site["args"][0] for name, site in sites.items() if site["type"] == "plate"}
    medians, spreads = _of_prior(random.fold_in(key, 1), model, list(owner), args, kwargs)
    params: dict[str, Any] = {}
    units: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, block_name in owner.items():
        gamma = gammas[block_name]
        point, prior = (isinstance(gamma, float) and gamma == end for end in (0.0, float("inf")))
        shift = random.uniform(random.fold_in(key, len(params)), medians[name].shape, float, -1, 1)
        start = medians[name] + jnp.where(spread, spreads[name] * shift, 0.0)
        subsampled = False
        for frame in sites[name]["cond_indep_stack"]:
            full, axis = plates[frame.name], frame.dim - sites[name]["fn"].event_dim
            if full != frame.size:
                subsampled = True
                start = jnp.take(start, jnp.arange(full) % frame.size, axis)
        size = jnp.size(start)
        if not prior:
            params[f"{name}:loc"], units[f"{name}:loc"] = start, spreads[name]
        if not (point or prior):
            scale = jnp.log(0.1 * jnp.minimum(1.0, jnp.sqrt(gamma)) * spreads[name])
            params[f"{name}:log_scale"] = jnp.full(jnp.shape(start), scale)
            if kind != "meanfield" and subsampled:
                raise ValueError(
                    f"guide={kind!r} cannot hold a covariance for {name!r}, which lives in a "
                    "subsampled plate. Use guide='meanfield' or write a guide."
                )
            if kind != "meanfield" and size > 1:
                params[f"{name}:lower"] = jnp.zeros((size, size))
            if kind == "conditional" and not subsampled and _normal(sites[name]["fn"]) is not None:
                params[f"{name}:follow"] = jnp.full(jnp.shape(start), 0.5 * jnp.log(gamma))
            for other, width in sizes.items():
                if kind == "conditional" or (kind == "blockwise" and owner[other] == block_name):
                    given = f"{name}:given:{other}"
                    params[given] = jnp.zeros((size, width))
                    units[given] = spreads[name] / spreads[other]
        if not (point or subsampled):  # a point tells the later blocks nothing
            sizes[name] = size
    return params, {name: units.get(name, 1.0) for name in params}


def _of_prior(
    key: Any, model: Callable, names: list[str], args: Any, kwargs: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Medians of each site's prior and a robust standard deviation, unconstrained."""

    def once(key: Any) -> dict[str, Any]:
        sites = trace(seed(model, key)).get_trace(*args, **kwargs)
        return {name: _unconstrain(sites[name]) for name in names}

    draws = jax.vmap(once)(random.split(key, 64))
    medians, spreads = {}, {}
    for name, values in draws.items():
        quarters = jnp.quantile(values, jnp.array([0.25, 0.5, 0.75]), axis=0)
        medians[name] = jnp.where(jnp.isfinite(quarters[1]), quarters[1], 0.0)
        spread = jnp.median((quarters[2] - quarters[0]) / 1.35)
        spreads[name] = jnp.where(jnp.isfinite(spread) & (spread > 0), spread, 1.0)
    return medians, spreads


class _Replace(Messenger):
    """Replaces every latent site's distribution by its guide as the model runs."""

    def __init__(self, params: dict[str, Any], point: frozenset[str], prior: frozenset[str]):
        super().__init__(None)
        self.params, self.point, self.prior = params, point, prior
        self.drawn: dict[str, Any] = {}  # unconstrained values of earlier sites, flat
        self.rows: dict[str, Any] = {}  # the subsample of every plate
        self.transforms: dict[str, Any] = {}
        self.centres: dict[str, Any] = {}

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        name, prior = msg["name"], msg["fn"]
        self.transforms[name] = _transform(name, prior)
        if name in self.prior:
            return
        loc = self.centres[name] = self._rows(self.params[f"{name}:loc"], msg)
        if name in self.point:
            value = self.transforms[name](loc)
            msg["fn"] = dist.Delta(value, event_dim=prior.event_dim)
            return
        fn = self._gaussian(name, loc, msg)
        mask = prior._mask if isinstance(prior, dist.MaskedDistribution) else None
        msg["fn"] = fn if mask is None else fn.mask(mask)

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            self.rows[msg["name"]] = msg["value"]
        elif msg["type"] == "sample" and not msg["is_observed"]:
            name = msg["name"]
            # centred, so that a later block's weights and location do not pull on one another
            value = self.transforms[name].inv(msg["value"]) - self.centres.get(name, 0.0)
            self.drawn[name] = jnp.ravel(value)

    def _gaussian(self, name: str, loc: Any, msg: Any) -> Any:
        prior, transform = msg["fn"], self.transforms[name]
        log_scale = self._rows(self.params[f"{name}:log_scale"], msg)
        for other, value in self.drawn.items():
            weights = self.params.get(f"{name}:given:{other}")
            if weights is not None:
                loc = loc + jnp.reshape(weights @ value, jnp.shape(loc))
        follow = self.params.get(f"{name}:follow")
        if follow is not None:
            normal, share = _normal(prior), jax.nn.sigmoid(follow)
            loc = share * normal.loc + (1.0 - share) * loc
            log_scale = share * jnp.log(normal.scale) + (1.0 - share) * log_scale
        real = _is_real(prior.support)
        lower = self.params.get(f"{name}:lower")
        if lower is None:
            event_dim = prior.event_dim + jnp.ndim(loc) - len(prior.shape())
            base = dist.Normal(loc, jnp.exp(log_scale)).to_event(event_dim)
            return base if real else dist.TransformedDistribution(base, transform)
        size = jnp.size(loc)
        tril = jnp.exp(jnp.ravel(log_scale))[:, None] * (jnp.tril(lower, -1) + jnp.eye(size))
        base = dist.MultivariateNormal(jnp.ravel(loc), scale_tril=tril)
        shaping = [] if jnp.ndim(loc) == 1 else [ReshapeTransform(jnp.shape(loc), (size,))]
        transforms = shaping + ([] if real else [transform])
        return dist.TransformedDistribution(base, transforms) if transforms else base

    def _rows(self, value: Any, msg: Any) -> Any:
        for frame in msg["cond_indep_stack"]:
            axis = frame.dim - msg["fn"].event_dim
            if jnp.shape(value)[axis] != frame.size:
                value = jnp.take(value, self.rows[frame.name], axis)
        return value


def _unconstrain(site: Any) -> Any:
    value = jnp.asarray(site["value"])
    return jnp.asarray(_transform(site["name"], site["fn"]).inv(value), float)


def _transform(name: str, prior: Any) -> Any:
    if prior.support.is_discrete:
        raise ValueError(
            f"site {name!r} is discrete, and these guides are continuous. Sum it out of the model "
            "(for a mixture: numpyro.distributions.MixtureSameFamily)."
        )
    return biject_to(prior.support)


def _normal(fn: Any) -> Any:
    """The normal behind a site's prior, whose location and scale its guide can follow."""
    wrappers = dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
    while isinstance(fn, wrappers):
        fn = fn.base_dist
    return fn if isinstance(fn, dist.Normal) else None


def _is_real(support: Any) -> bool:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support in (constraints.real, constraints.real_vector)


def _is_not_guided(site: Any) -> bool:
    return site["type"] == "deterministic" or site.get("is_observed", False)
