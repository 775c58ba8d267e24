"""Flat priors: improper ones, which have no draws and whose density is known up to a constant.

q_k is proportional to exp(-V_k / gamma_k) and needs no more of a flat prior than its support. A
constant factor of the density adds a constant to V and to the KL of the block, so both are known
up to a constant. A support that depends on earlier blocks would make this constant a function of
them, and the later blocks' answer would hang on it: that is refused.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import substitute, trace
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger


def is_flat(fn: Any) -> bool:
    """Whether a site's distribution has the density 1: improper, or masked as a whole."""
    wrappers = dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution
    while isinstance(fn, wrappers):
        if isinstance(fn, dist.MaskedDistribution) and fn._mask is False:
            return True
        fn = fn.base_dist
    return isinstance(fn, dist.ImproperUniform)


class placeholders(Messenger):
    """Gives sites that cannot be drawn a value inside their support, if nothing else does.

    Outermost of all handlers, so values of a guide or of draws come first.
    """

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        fn = msg["fn"]
        if is_flat(fn):
            transform = biject_to(fn.support)
            shape = tuple(msg["kwargs"].get("sample_shape", ())) + fn.shape()
            msg["value"] = transform(jnp.zeros(transform.inverse_shape(shape)))


def flat_blocks(sites: Any, owner: Mapping[str, str]) -> tuple[str, ...]:
    """The blocks with a flat site, in order."""
    found = [block for name, block in owner.items() if is_flat(sites[name]["fn"])]
    return tuple(dict.fromkeys(found))


def check_flat(
    model: Callable, sites: Any, owner: Mapping[str, str], args: Any, kwargs: Any
) -> None:
    """Refuse a flat site whose support depends on another block."""
    flat = [name for name in owner if is_flat(sites[name]["fn"])]
    bounded = [name for name in flat if jax.tree.leaves(sites[name]["fn"].support)]
    if not bounded:
        return
    fixed = {n: s["value"] for n, s in sites.items() if s["type"] == "plate"}

    def supports(**values: Any) -> Any:
        data = {**fixed, **{name: values[f"site {name}"] for name in owner}}
        again = trace(substitute(model, data=data)).get_trace(*args, **kwargs)
        return {name: jax.tree.leaves(again[name]["fn"].support) for name in bounded}

    shapes = {f"site {n}": jnp.ones(jnp.shape(sites[n]["value"])) for n in owner}
    for name, of in eval_provenance(supports, **shapes).items():
        tags = {tag.removeprefix("site ") for leaf in jax.tree.leaves(of) for tag in leaf}
        others = sorted(parent for parent in tags if owner[parent] != owner[name])
        if others:
            raise ValueError(
                f"the flat prior of {name!r} has a support that depends on {others}, so its "
                "unknown constant does too and the answer would hang on it. Give it a proper "
                "prior there (for an interval numpyro.distributions.Uniform), or make them one "
                f"block with groups={{'name': {[*others, name]}}}."
            )
