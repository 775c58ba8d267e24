"""Guides that draw block after block, so every block's KL can be weighted."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.lax import stop_gradient
from jax.scipy.linalg import solve_triangular
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.distributions import constraints
from numpyro.distributions.transforms import ReshapeTransform, biject_to
from numpyro.handlers import block
from numpyro.primitives import Messenger

from soubayes.blackbox.blocks import is_scanned
from soubayes.blackbox.flat import is_flat
from soubayes.blackbox.flows import Affine, Outputs, Spline, initial_flow, network

GUIDE_KINDS = ("meanfield", "blockwise", "conditional", "flow")  # each contains those before it
MOST_WEIGHTS = 40_000  # between coordinates, for guide="auto": 200 coordinates
MOST_FLOW = 100  # coordinates for which "auto" may go on to a flow
#: Of the parameters of splines and networks, beside 1 for a log scale, up to ten coordinates. The
#: noise of a step adds up over coordinates, so the unit falls with the root of their number.
FLOW_UNIT, FLOW_COORDINATES = 0.3, 10
FRAME = ("origin", "unit", "root")  # ends of the names of what is no parameter but a constant


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
        with block(hide_fn=_is_not_guided), Replace(params, point, prior):
            model(*args, **kwargs)

    return guide


def initial_params(
    key: np.random.Generator,
    sites: Any,
    draws: Mapping[str, np.ndarray],
    kind: str,
    owner: Mapping[str, str],
    gammas: Mapping[str, float],
    *,
    spread: bool,
    framed: bool,
    bends: bool,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Starting values for the parameters of `make_guide`, and the unit of each.

    ``kind`` is ``"meanfield"`` (independent coordinates), ``"blockwise"`` (a full covariance within
    each block, blocks independent), ``"conditional"`` (besides, the mean of each block is affine in
    the earlier blocks, and a block with a normal prior follows the location and log scale that the
    earlier blocks give it, by a share of its own: 1 is the prior, as for a large confidence, 0 is
    free; Ambrogioni et al. 2021) or ``"flow"`` (besides, a spline for every coordinate and a
    network by which location and scale follow the earlier blocks; with ``bends`` the splines follow
    them too).

    In a frame (`soubayes.blackbox.frame`) the parameters are those of its coordinates: they start
    at the frame's Gaussian, and all units are 1. Without one the start is the median of ``draws``
    from the prior (unconstrained), or spread about it, and the unit of a location is the spread of
    its prior. Standard deviations start at a tenth of it times min(1, sqrt(gamma)), since a block
    of small confidence ends up with one of that order.
    """
    plates = {name: site["args"][0] for name, site in sites.items() if site["type"] == "plate"}
    affine = kind in ("conditional", "flow")
    params: dict[str, Any] = {}
    units: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    spreads: dict[str, float] = {}
    rank = {block: i for i, block in enumerate(dict.fromkeys(owner.values()))}
    coordinates = sum(int(np.prod(np.shape(sites[name]["value"]))) for name in owner)
    flow_unit = FLOW_UNIT * min(1.0, np.sqrt(FLOW_COORDINATES / coordinates))
    for name, block_name in owner.items():
        gamma = gammas[block_name]
        point, prior = gamma == 0.0, gamma == float("inf")
        median, unit = of_prior(draws[name])
        start = median + (unit * key.uniform(-1, 1, median.shape) if spread else 0.0)
        if framed:
            start, unit = np.zeros_like(median), 1.0
        spreads[name] = unit
        subsampled = False
        for frame in sites[name]["cond_indep_stack"]:
            # a plate inside a scan is not in the trace, and is whole
            full = plates.get(frame.name, frame.size)
            axis = frame.dim - sites[name]["fn"].event_dim
            if full != frame.size:
                subsampled = True
                start = np.take(start, np.arange(full) % frame.size, axis)
        size = start.size
        if not prior:
            params[f"{name}:loc"], units[f"{name}:loc"] = start, unit
        if not (point or prior):
            scale = 0.0 if framed else np.log(0.1 * min(1.0, np.sqrt(gamma)) * unit)
            params[f"{name}:log_scale"] = np.full(start.shape, scale)
            if kind != "meanfield" and subsampled:
                raise ValueError(
                    f"guide={kind!r} cannot hold a covariance for {name!r}, which lives in a "
                    "subsampled plate. Use guide='meanfield' or write a guide."
                )
            if kind != "meanfield" and size > 1:
                params[f"{name}:lower"] = np.zeros((size, size))
            # a first block's prior is constant, and there is nothing to follow
            followed = bool(sizes) and not subsampled and not is_scanned(sites[name])
            if affine and followed and _varies(underlying_normal(sites[name]["fn"])):
                params[f"{name}:follow"] = np.full(start.shape, 0.5 * np.log(gamma))
            for other, width in sizes.items():
                earlier = affine and rank[owner[other]] <= rank[block_name]
                if earlier or (kind == "blockwise" and owner[other] == block_name):
                    given = f"{name}:given:{other}"
                    params[given] = np.zeros((size, width))
                    units[given] = unit / spreads[other]
            if kind == "flow":
                known = [w for other, w in sizes.items() if f"{name}:given:{other}" in params]
                context, chain = sum(known), is_scanned(sites[name])
                flow = initial_flow(key, size, context, chain=chain, bends=bends)
                for part, value in flow.items():
                    params[f"{name}:{part}"], units[f"{name}:{part}"] = value, flow_unit
        if not (point or subsampled):  # a point tells the later blocks nothing
            sizes[name] = size
    return params, {name: units.get(name, 1.0) for name in params}


def choose_guide(sites: Any, owner: Mapping[str, str], most: int = MOST_WEIGHTS) -> tuple[str, str]:
    """The guide that ``"auto"`` means for a model, with at most that many weights, and why."""
    plates = {name: site["args"][0] for name, site in sites.items() if site["type"] == "plate"}
    for name in owner:
        for frame in sites[name]["cond_indep_stack"]:
            if plates.get(frame.name, frame.size) != frame.size:
                return "meanfield", f"{name!r} lives in a subsampled plate"
    sizes = [int(np.prod(np.shape(sites[name]["value"]))) for name in owner]
    full, within = sum(sizes) ** 2, sum(size**2 for size in sizes)
    if full <= most:
        return "conditional", f"{full} weights between coordinates are at most {most}"
    if within <= most:
        return "blockwise", (
            f"{sum(sizes)} coordinates make {full} weights between them, more than {most}"
        )
    return "meanfield", (
        f"{sum(sizes)} coordinates make {within} weights within blocks, more than {most}"
    )


def may_flow(sites: Any, owner: Mapping[str, str]) -> bool:
    """Whether ``"auto"`` may go on from a conditional guide to a flow."""
    kind = choose_guide(sites, owner)[0]
    size = sum(int(np.prod(np.shape(sites[name]["value"]))) for name in owner)
    return kind == "conditional" and size <= MOST_FLOW


def of_prior(draws: np.ndarray) -> tuple[np.ndarray, float]:
    """Medians of a site's prior and a robust standard deviation, unconstrained."""
    low, median, high = np.quantile(draws, [0.25, 0.5, 0.75], axis=0)
    spread = np.median((high - low) / 1.35)
    unit = float(spread) if np.isfinite(spread) and spread > 0 else 1.0
    return np.where(np.isfinite(median), median, 0.0), unit


def unconstrained(sites: Any, names: Iterable[str]) -> dict[str, Any]:
    """Values of latent sites in the coordinates of the built-in guides."""
    return {
        name: jnp.asarray(_transform(name, sites[name]["fn"]).inv(sites[name]["value"]), float)
        for name in names
    }


class Replace(Messenger):
    """Replaces every latent site's distribution by its guide as the model runs."""

    def __init__(self, params: dict[str, Any], point: frozenset[str], prior: frozenset[str]):
        super().__init__(None)
        self.params, self.point, self.prior = params, point, prior
        self.drawn: dict[str, Any] = {}  # earlier sites in the coordinates of their frames, flat
        self.rows: dict[str, Any] = {}  # the subsample of every plate
        self.transforms: dict[str, Any] = {}
        self.locs: dict[str, Any] = {}
        self.scanned: set[str] = set()  # sites of scans that the guide has drawn

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "control_flow" and msg["fn"] is scan_wrapper:
            self._draw_scanned(msg)
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        name = msg["name"]
        if name in self.scanned:  # drawn already; the scan only gives the values back
            msg["stop"] = is_scanned(msg)
            return
        self.transforms[name] = _transform(name, msg["fn"])
        if name in self.prior:
            return
        if msg["value"] is not None:
            raise ValueError(
                f"site {name!r} has its value before the guide can draw it: it is fixed inside "
                "the model, or drawn inside numpyro's cond. Observe it, or draw it outside and "
                "choose with jax.numpy.where."
            )
        msg["fn"] = self._guided(name, msg)

    def _draw_scanned(self, msg: Any) -> None:
        """Draw the latent sites of a scan from the guide, and let the scan follow their values.

        The scan of the guide would otherwise hand on draws of the prior.
        """
        _, (found, _) = msg["fn"](*msg["args"], rng_key=random.key(0))
        latent = {n: s for n, s in found.trace.items() if s["type"] == "sample"}
        values = {}
        for name, site in latent.items():
            if site["is_observed"] or name in self.prior:
                continue
            self.transforms[name] = _transform(name, site["fn"])
            if jax.tree.leaves(site["fn"].support) or site["scale"] is not None:
                raise ValueError(
                    f"site {name!r} inside a scan has bounds that are numbers, or a scale. Draw it "
                    "without bounds and transform it, and scale the observations only."
                )
            fn = self._guided(name, site)
            self.scanned.add(name)
            values[name] = numpyro.sample(name, fn)
        msg["kwargs"]["substitute_stack"].append(("substitute", values))

    def _guided(self, name: str, msg: Any) -> Any:
        prior = msg["fn"]
        loc = self.locs[name] = self._rows(self.params[f"{name}:loc"], msg)
        if name in self.point:
            at = self._outward(name, loc, self.params.get(f"{name}:root"))
            return dist.Delta(self.transforms[name](at), event_dim=prior.event_dim)
        fn = self._gaussian(name, loc, msg)
        masked = isinstance(prior, dist.MaskedDistribution) and not is_flat(prior)
        return fn.mask(prior._mask) if masked else fn

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "plate":
            self.rows[msg["name"]] = msg["value"]
        elif msg["type"] == "sample" and not msg["is_observed"] and not msg.get("stop"):
            name = msg["name"]
            self.drawn[name] = jnp.ravel(self._inward(name, msg["value"]))

    def _inward(self, name: str, value: Any) -> Any:
        """A drawn value in the coordinates of its frame, about its location.

        Centred, so a later block's weights and location do not pull on one another.
        """
        value = self.transforms[name].inv(value)
        if name not in self.locs:  # kept at its prior: in units of that, if they are known
            unit = self.params.get(f"{name}:unit", 1.0)
            return (value - self.params.get(f"{name}:origin", 0.0)) / unit
        loc = self.locs[name]
        value = value - self._base(name, jnp.shape(loc))
        root, unit = (self.params.get(f"{name}:{part}") for part in ("root", "unit"))
        if root is not None:
            flat = solve_triangular(stop_gradient(root), jnp.ravel(value), lower=True)
            value = jnp.reshape(flat, jnp.shape(loc))
        elif unit is not None:
            value = value / stop_gradient(unit)
        return value - loc

    def _base(self, name: str, shape: tuple[int, ...]) -> Any:
        """The origin of a site's frame, moved with the earlier sites."""
        origin = stop_gradient(self.params.get(f"{name}:origin", 0.0))
        for other, value in self.drawn.items():
            weights = self.params.get(f"{name}:root:{other}")
            if weights is not None:
                origin = origin + jnp.reshape(stop_gradient(weights) @ value, shape)
        return origin

    def _outward(self, name: str, inner: Any, root: Any) -> Any:
        """Coordinates of a site's frame as unconstrained coordinates of the site."""
        base, unit = self._base(name, jnp.shape(inner)), self.params.get(f"{name}:unit", 1.0)
        if root is None:
            return base + stop_gradient(unit) * inner
        return base + jnp.reshape(stop_gradient(root) @ jnp.ravel(inner), jnp.shape(inner))

    def _gaussian(self, name: str, loc: Any, msg: Any) -> Any:
        prior, transform, size = msg["fn"], self.transforms[name], jnp.size(loc)
        log_scale = self._rows(self.params[f"{name}:log_scale"], msg)
        inner, outputs = loc, None
        for other, value in self.drawn.items():
            weights = self.params.get(f"{name}:given:{other}")
            if weights is not None:
                inner = inner + jnp.reshape(weights @ value, jnp.shape(loc))
        if f"{name}:out" in self.params:
            outputs = self._network(name, size)
            inner = inner + jnp.exp(log_scale) * jnp.reshape(outputs.shift, jnp.shape(loc))
            log_scale = log_scale + jnp.reshape(outputs.log_scale, jnp.shape(loc))
        root = self.params.get(f"{name}:root")
        centre = self._outward(name, inner, root)
        # log of the conditional sd of every coordinate given those before it
        unit = stop_gradient(self.params.get(f"{name}:unit", 1.0))
        own = unit if root is None else jnp.reshape(stop_gradient(jnp.diagonal(root)), loc.shape)
        log_sd, ahead = log_scale + jnp.log(own), jnp.zeros(())
        follow = self.params.get(f"{name}:follow")
        if follow is not None:
            if outputs is not None and outputs.further.size:
                follow = follow + jnp.reshape(outputs.further, jnp.shape(loc))
            normal, share = underlying_normal(prior), jax.nn.sigmoid(follow)
            centre = share * normal.loc + (1.0 - share) * centre
            ahead = share * (jnp.log(normal.scale) - log_sd)
        real = _is_real(prior.support)
        lower, shape = (self.params.get(f"{name}:{part}") for part in ("lower", "spline"))
        if lower is None and shape is None:
            event_dim = prior.event_dim + jnp.ndim(loc) - len(prior.shape())
            base = dist.Normal(centre, jnp.exp(log_sd + ahead)).to_event(event_dim)
            return base if real else dist.TransformedDistribution(base, transform)
        lower = jnp.zeros((size, size)) if lower is None else lower
        inner_log_sd, ahead = (
            jnp.ravel(jnp.broadcast_to(part, loc.shape))
            for part in (log_sd if root is None else log_scale, ahead)
        )
        affine = Affine(jnp.ravel(centre), lower, inner_log_sd, root, ahead)
        shaping = [] if jnp.ndim(loc) == 1 else [ReshapeTransform(jnp.shape(loc), (size,))]
        transforms = shaping + ([] if real else [transform])
        if shape is None:
            base = dist.MultivariateNormal(affine.loc, scale_tril=affine.tril())
            return dist.TransformedDistribution(base, transforms) if transforms else base
        carry = self.params.get(f"{name}:carry")
        if carry is not None:
            carry = carry if outputs is None else carry + outputs.further
            affine = affine.chained(carry, size // jnp.shape(loc)[0])
        base = dist.Normal(0.0, 1.0).expand([size]).to_event(1)
        if outputs is not None and outputs.spline.size:
            shape = shape + outputs.spline
        return dist.TransformedDistribution(base, [Spline(shape), affine, *transforms])

    def _network(self, name: str, size: int) -> Outputs:
        """What the network makes of the earlier blocks, each in units of its own sd."""
        context = []
        for other, value in self.drawn.items():
            if f"{name}:given:{other}" not in self.params:
                continue
            scale = self.params.get(f"{other}:log_scale")
            unit = 1.0 if scale is None else jnp.exp(-jnp.ravel(stop_gradient(scale)))
            context.append(value * unit)
        hidden, out = self.params[f"{name}:hidden"], self.params[f"{name}:out"]
        return network(hidden, out, jnp.concatenate(context), size)

    def _rows(self, value: Any, msg: Any) -> Any:
        for frame in msg["cond_indep_stack"]:
            axis = frame.dim - msg["fn"].event_dim
            if jnp.shape(value)[axis] != frame.size:
                value = jnp.take(value, self.rows[frame.name], axis)
        return value


def _transform(name: str, prior: Any) -> Any:
    if prior.support.is_discrete:
        raise ValueError(
            f"site {name!r} is discrete, and these guides are continuous. Sum it out of the model "
            "(for a mixture: numpyro.distributions.MixtureSameFamily)."
        )
    return biject_to(prior.support)


def underlying_normal(fn: Any) -> Any:
    """The normal behind a site's prior, whose location and scale its guide can follow."""
    wrappers = dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
    while isinstance(fn, wrappers):
        fn = fn.base_dist
    return fn if isinstance(fn, dist.Normal) else None


def _varies(normal: Any) -> bool:
    """Whether a normal prior of a traced model may depend on other sites: it is traced too."""
    if normal is None:
        return False
    return any(isinstance(part, jax.core.Tracer) for part in (normal.loc, normal.scale))


def _is_real(support: Any) -> bool:
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return support in (constraints.real, constraints.real_vector)


def _is_not_guided(site: Any) -> bool:
    return site["type"] == "deterministic" or site.get("is_observed", False)
