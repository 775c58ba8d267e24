"""The bridge to NumPyro: an ELBO that weights the KL of every block by its confidence."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import random
from jax.lax import stop_gradient
from numpyro import distributions as dist
from numpyro.distributions import Distribution
from numpyro.distributions.kl import kl_divergence
from numpyro.distributions.util import scale_and_mask, sum_rightmost
from numpyro.handlers import replay, seed, substitute, trace
from numpyro.infer.elbo import ELBO

from soubayes._docstrings import fill_docstrings
from soubayes.blackbox.arguments import ARGUMENTS
from soubayes.blackbox.blocks import Blocks, assign_blocks, block_confidence, check_scans, scans

Divergence = Callable[[Distribution, Distribution, jax.Array], jax.Array]


@fill_docstrings(ARGUMENTS)
class SoUELBO(ELBO):
    r"""The SoU objective of a NumPyro model and guide, in the place of ``TraceMeanField_ELBO``.

    Every latent site is a block, in the order of the model.

    Parameters
    ----------
    confidence : mapping of str to float, optional
        The confidence of each block. A block that is not named has confidence 1. Scalar JAX arrays
        are allowed, so a compiled step that takes confidences as an argument compiles once. 0
        drops the term: the block is a point estimate, and its guide should be a ``Delta``. ``inf``
        keeps the block at its prior: leave the site out of the guide.
    divergence : mapping of str to callable, optional
        What replaces the KL of a block of one site; see :class:`Renyi` and :class:`ForwardKL`.
    num_particles : int, default=1
        Draws of the guide for one estimate.
    vectorize_particles : bool, default=True
        Whether draws are computed together or one after the other, as in NumPyro.
    analytic : bool, default=True
        Use closed-form KLs where they are known.
    entropy : bool, default=False
        Where a KL is not known but the entropy of the guide is, use that, with draws for the
        prior's share only. Less noise than NumPyro's estimate.
    path_gradient : bool, default=False
        Leave the score of the guide, whose mean is zero, out of the gradient. At the exact answer
        this gradient has no noise [2]_. For guides without auxiliary sites.

    See Also
    --------
    fit : The whole fit in one call.

    Notes
    -----
    The objective is eq. 5 of [1]_, not divided by n,

    .. math::

        J(q) = E_q[L(\theta)] + \sum_k \gamma_k
            E_q \mathrm{KL}\big(q(\theta_k \mid \theta_{<k}) \| \pi(\theta_k \mid \theta_{<k})\big),

    with L minus the log density of the observed sites and factors. With all confidences 1 the loss
    and its gradients are those of ``TraceMeanField_ELBO`` for the same key.

    References
    ----------
    .. [2] G. Roeder, Y. Wu and D. Duvenaud (2017), "Sticking the landing: simple, lower-variance
       gradient estimators for variational inference", NeurIPS.

    Examples
    --------
    >>> import jax, numpyro, numpyro.distributions as dist
    >>> from numpyro.infer import SVI
    >>> from numpyro.infer.autoguide import AutoNormal
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0, 1))
    ...     numpyro.sample("y", dist.Normal(mu, 1), obs=y)
    >>> optimiser = numpyro.optim.Adam(0.05)
    >>> svi = SVI(model, AutoNormal(model), optimiser, SoUELBO({"mu": 1e-6}, num_particles=4))
    >>> result = svi.run(jax.random.key(0), 300, 2.0, progress_bar=False)
    >>> print(f"{result.params['mu_auto_loc']:.1f}")  # the prior has lost its say: the data, 2.0
    2.0
    """

    def __init__(
        self,
        confidence: Mapping[str, float | jax.Array] | None = None,
        *,
        groups: Mapping[str, Iterable[str]] | None = None,
        divergence: Mapping[str, Divergence] | None = None,
        num_particles: int = 1,
        vectorize_particles: bool = True,
        analytic: bool = True,
        entropy: bool = False,
        path_gradient: bool = False,
    ) -> None:
        self.confidence = dict(confidence or {})
        self.groups = dict(groups or {})
        self.divergence = dict(divergence or {})
        self.analytic = analytic and not path_gradient
        self.entropy = entropy and not path_gradient
        self.path_gradient = path_gradient
        super().__init__(num_particles=num_particles, vectorize_particles=vectorize_particles)

    def loss_with_mutable_state(
        self,
        rng_key: jax.Array,
        param_map: Mapping[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The objective, estimated with ``num_particles`` draws; what SVI calls.

        Parameters
        ----------
        *args : object
            Arguments of model and guide.
        **kwargs : object
            Keyword arguments of both.

        Returns
        -------
        result : dict
            ``"loss"`` and ``"mutable_state"``, as NumPyro expects them.
        """

        def particle(key: jax.Array) -> tuple[jax.Array, Any]:
            terms = self.terms(key, param_map, model, guide, *args, **kwargs)
            return terms.objective, terms.mutable_state

        if self.num_particles == 1:
            value, mutable_state = particle(rng_key)
            return {"loss": value, "mutable_state": mutable_state}
        keys = random.split(rng_key, self.num_particles)
        values, _ = self.vectorize_particles_fn(particle, keys)
        return {"loss": jnp.mean(values), "mutable_state": None}

    def terms(
        self,
        rng_key: jax.Array,
        param_map: Mapping[str, Any],
        model: Callable,
        guide: Callable,
        *args: Any,
        **kwargs: Any,
    ) -> "Terms":
        """One draw of the guide with its loss and the divergence of each block, not weighted.

        Parameters
        ----------
        *args : object
            Arguments of model and guide.
        **kwargs : object
            Keyword arguments of both.

        Returns
        -------
        terms : Terms
            The loss and the divergences.
        """
        model_key, guide_key = random.split(rng_key)
        guided = substitute(seed(guide, guide_key), data=param_map)
        guide_trace = trace(guided).get_trace(*args, **kwargs)
        mutable = _values(guide_trace, "mutable")
        replayed = replay(seed(model, model_key), guide_trace)
        modelled = substitute(replayed, data={**param_map, **mutable})
        scanned = scans(modelled)
        model_trace = trace(scanned).get_trace(*args, **kwargs)
        mutable.update(_values(model_trace, "mutable"))

        blocks = assign_blocks(
            model_trace, guide_trace, self.groups, modelled, guided, args, kwargs
        )
        check_scans(scanned.sites, blocks.owner)
        gammas = block_confidence(self.confidence, blocks, model_trace, guide_trace)
        _check_divergences(self.divergence, blocks)
        density = guide_trace
        if self.path_gradient:
            held = substitute(substitute(guide, stop_gradient(param_map)), _drawn(guide_trace))
            density = trace(seed(held, guide_key)).get_trace(*args, **kwargs)
        loss = jnp.zeros(())
        cost = dict.fromkeys(blocks.order, jnp.zeros(()))
        objective = jnp.zeros(())
        for index, (name, site) in enumerate(model_trace.items()):
            if site["type"] != "sample":
                continue
            if site["is_observed"]:
                term = -site_log_prob(site)
                loss = loss + term
                objective = objective + term
            elif name in guide_trace:  # else a block of confidence inf, drawn from its prior
                block = blocks.owner[name]
                if block in self.divergence:
                    key = random.fold_in(rng_key, index)
                    each = self.divergence[block](guide_trace[name]["fn"], site["fn"], key)
                    term = jnp.sum(scale_and_mask(each, scale=guide_trace[name]["scale"]))
                else:
                    analytic = self.analytic and block in blocks.analytic
                    term = _kl(density[name], site, analytic, self.entropy)
                cost[block] = cost[block] + term
                objective = objective + _weighted(gammas[block], term)
        for name in blocks.auxiliary:
            term = site_log_prob(density[name])
            cost[blocks.owner[name]] = cost[blocks.owner[name]] + term
            objective = objective + _weighted(gammas[blocks.owner[name]], term)
        drawn = {**_values(model_trace, "sample"), **_values(model_trace, "deterministic")}
        return Terms(objective, loss, cost, drawn, mutable or None)


class Terms(NamedTuple):
    """What one draw from the guide says: the integrand of J and its parts."""

    objective: jax.Array
    loss: jax.Array
    kl: dict[str, jax.Array]
    values: dict[str, jax.Array]
    mutable_state: dict[str, Any] | None


def _kl(guide_site: Any, model_site: Any, analytic: bool, entropy: bool) -> jax.Array:
    if analytic:
        try:
            each = kl_divergence(guide_site["fn"], model_site["fn"])
            return jnp.sum(scale_and_mask(each, scale=guide_site["scale"]))
        except NotImplementedError:
            pass
    if not entropy:
        return site_log_prob(guide_site) - site_log_prob(model_site)
    averaged = {**guide_site, "fn": _averaged(guide_site["fn"]), "intermediates": []}
    try:
        each = _cross_entropy(guide_site["fn"], model_site["fn"])
        return site_log_prob(averaged) + jnp.sum(scale_and_mask(each, scale=guide_site["scale"]))
    except NotImplementedError:
        return site_log_prob(averaged) - site_log_prob(model_site)


def _cross_entropy(q: Any, prior: Any) -> jax.Array:
    """-E_q[log prior] for a normal prior, which needs no more of q than two moments."""
    normal = prior
    while isinstance(normal, dist.ExpandedDistribution | dist.Independent):
        normal = normal.base_dist
    if not isinstance(normal, dist.Normal) or q.event_dim != prior.event_dim:
        raise NotImplementedError
    second = q.variance + (q.mean - normal.loc) ** 2
    each = 0.5 * second / normal.scale**2 + jnp.log(normal.scale) + 0.5 * jnp.log(2 * jnp.pi)
    return sum_rightmost(each, prior.event_dim)


def _averaged(fn: Any) -> Any:
    """A distribution whose log-density has the base's replaced by its mean, minus the entropy.

    Its mean over draws is the same. And it stays exact for a block whose standard deviation is lost
    in rounding beside its location, where recovering the base's value from a draw does not.
    """
    if isinstance(fn, dist.TransformedDistribution):
        return dist.TransformedDistribution(_averaged(fn.base_dist), fn.transforms)
    if isinstance(fn, dist.MaskedDistribution):
        return dist.MaskedDistribution(_averaged(fn.base_dist), fn._mask)
    if isinstance(fn, dist.Independent):
        return dist.Independent(_averaged(fn.base_dist), fn.reinterpreted_batch_ndims)
    if isinstance(fn, dist.ExpandedDistribution):
        return _averaged(fn.base_dist).expand(fn.batch_shape)
    try:
        return _MeanDensity(fn)
    except NotImplementedError:
        return fn


class _MeanDensity(Distribution):
    def __init__(self, base: Any) -> None:
        self.minus_entropy = -base.entropy()
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    def log_prob(self, value: Any) -> Any:
        shape = jnp.shape(value)[: jnp.ndim(value) - self.event_dim]
        return jnp.broadcast_to(self.minus_entropy, shape)


def _weighted(gamma: Any, term: jax.Array) -> jax.Array:
    # 0 and inf are structure, not numbers: 0 * inf would poison the gradient of a point block
    if isinstance(gamma, float) and gamma in (0.0, float("inf")):
        return jnp.zeros(())
    return gamma * term


def site_log_prob(site: Any) -> jax.Array:
    """The log density of a site at its value, scaled and masked as its plates say."""
    if site["intermediates"]:
        log_prob = site["fn"].log_prob(site["value"], site["intermediates"])
    else:
        log_prob = site["fn"].log_prob(site["value"])
    return jnp.sum(scale_and_mask(log_prob, site["scale"]))


def _values(sites: Any, kind: str) -> dict[str, Any]:
    return {
        name: site["value"]
        for name, site in sites.items()
        if site["type"] == kind and not site.get("is_observed", False)
    }


def _drawn(sites: Any) -> dict[str, Any]:
    return {n: s["value"] for n, s in sites.items() if s["type"] in ("sample", "plate")}


def _check_divergences(divergence: Mapping[str, Divergence], blocks: Blocks) -> None:
    for name in divergence:
        sites = [site for site, owner in blocks.owner.items() if owner == name]
        if name not in blocks.order:
            raise ValueError(
                f"divergence names {name!r}, but the model's blocks are {list(blocks.order)}."
            )
        if len(sites) != 1:
            raise ValueError(
                f"divergence of {name!r}: only KL adds up over the sites of a block, and this "
                f"block has {sites}. Give each site its own block or keep KL."
            )
