"""Which block's module every observed site of a NumPyro model belongs to."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import random
from numpyro.handlers import seed, substitute, trace
from numpyro.ops.provenance import eval_provenance

from soubayes.blackbox.blocks import site_density
from soubayes.feedback import POWER, Feedback, check_feedback


class Modules(NamedTuple):
    """The observed sites of every block, and what the earlier blocks hear of them."""

    sites: dict[str, tuple[str, ...]]  # block -> observed sites
    feedback: Feedback

    @property
    def is_plain(self) -> bool:
        """Whether there is only one loss, which all blocks hear."""
        return self.feedback.is_full and set(self.feedback.weight.values()) == {1.0}

    def weight_of(self, site: str) -> float:
        """The weight of an observed site."""
        block = next(block for block, sites in self.sites.items() if site in sites)
        return self.feedback.weight[block]


def check_modules(
    model: Callable,
    sites: Any,
    owner: Mapping[str, str],
    args: tuple,
    kwargs: dict[str, Any],
    given: Mapping[str, Iterable[str]] | None = None,
    eta: Mapping[str, float] | None = None,
    kind: str = POWER,
    weight: Mapping[str, float] | None = None,
) -> Modules:
    """The modules as they were given, or each observed site with the last block it depends on."""
    order = list(dict.fromkeys(owner.values()))
    feedback = check_feedback(eta, kind, weight, order)
    observed = [n for n, s in sites.items() if s["type"] == "sample" and s["is_observed"]]
    if given is None and eta is None and weight is None:
        return Modules(dict.fromkeys(order, ()) | {order[-1]: tuple(observed)}, feedback)
    last = _last_block(model, sites, owner, order, observed, args, kwargs)
    if given is None:
        return Modules({b: tuple(s for s in observed if last[s] == b) for b in order}, feedback)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"modules is {given!r}, but it must be a mapping, {{block: [observed sites]}}."
        )
    named = {b: (s,) if isinstance(s, str) else tuple(s) for b, s in given.items()}
    unknown = [block for block in named if block not in order]
    if unknown:
        raise ValueError(f"modules names the blocks {unknown}, but the blocks are {order}.")
    listed = [site for members in named.values() for site in members]
    wrong = [site for site in listed if site not in observed]
    if wrong:
        raise ValueError(f"modules names {wrong}, but the observed sites are {observed}.")
    for site in observed:
        if listed.count(site) != 1:
            often = "no module" if site not in listed else "several modules"
            raise ValueError(
                f"the observed site {site!r} is in {often}. Name every observed site once, with "
                f"the block that its data inform last (for {site!r} that is {last[site]!r} or a "
                "later one), or leave modules out."
            )
    for block, members in named.items():
        for site in members:
            if order.index(last[site]) > order.index(block):
                raise ValueError(
                    f"modules puts {site!r} into the module of {block!r}, but it depends on "
                    f"{last[site]!r}, a later block. Put it into the module of {last[site]!r}."
                )
    return Modules({block: named.get(block, ()) for block in order}, feedback)


def _last_block(
    model: Callable,
    sites: Any,
    owner: Mapping[str, str],
    order: list[str],
    observed: list[str],
    args: tuple,
    kwargs: dict[str, Any],
) -> dict[str, str]:
    """For every observed site the last block that its density is a function of."""

    def densities(**values: Any) -> dict[str, Any]:
        data = {name.removeprefix("site "): value for name, value in values.items()}
        again = trace(substitute(seed(model, random.key(0)), data=data)).get_trace(*args, **kwargs)
        return {name: site_density(again[name]) for name in observed}

    zeros = {
        f"site {name}": jnp.zeros(sites[name]["value"].shape, sites[name]["value"].dtype)
        for name in owner
    }
    found = eval_provenance(densities, **zeros)
    last = {}
    for site, tags in found.items():
        ranks = [order.index(owner[tag.removeprefix("site ")]) for tag in _leaves(tags)]
        last[site] = order[max(ranks, default=0)]
    return last


def _leaves(tags: Any) -> set[str]:
    if isinstance(tags, frozenset | set):
        return set(tags)
    parts = tags.values() if isinstance(tags, dict) else tags
    return set().union(*(_leaves(part) for part in parts))
