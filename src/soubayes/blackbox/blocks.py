"""Which block every site of a NumPyro model and guide belongs to, or why none can be said."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
from numpyro.contrib.control_flow.scan import scan_wrapper
from numpyro.handlers import substitute, trace
from numpyro.ops.provenance import eval_provenance
from numpyro.primitives import Messenger

from soubayes.blackbox.grouping import block_of
from soubayes.confidence import check_confidence

DECENTRED = "_decentered"  # what NumPyro adds to the name of a site under LocScaleReparam


class Blocks(NamedTuple):
    """The blocks of a model in order, and who owns each latent site."""

    order: tuple[str, ...]
    owner: dict[str, str]  # latent site of the model or auxiliary site of the guide -> block
    auxiliary: tuple[str, ...]  # sites of the guide that the model does not have
    analytic: frozenset[str]  # blocks whose sites' KLs may be taken one by one in closed form


def assign_blocks(
    model_trace: Any,
    guide_trace: Any,
    groups: Mapping[str, Iterable[str]],
    model: Callable,
    guide: Callable,
    args: Any,
    kwargs: Any,
) -> Blocks:
    """The blocks of the model with the guide's density attributed to them.

    The objective weights q(theta_k | theta_<k), so each site of the guide may depend only on
    sites of its own and of earlier blocks, and an auxiliary site must serve one block. What a
    site of the guide depends on is read off its computation, not off the order of its lines.
    """
    order, owner = model_blocks(model_trace, groups)
    check_block_groups(model, model_trace, owner, args, kwargs)
    sites = [name for name in _latent(guide_trace) if name not in model_trace]
    missing = [name for name in _latent(model_trace) if name not in guide_trace]
    depends = _dependencies(guide, guide_trace, args, kwargs)
    for name in sites:
        if not guide_trace[name]["infer"].get("is_auxiliary"):
            raise ValueError(
                f"the guide samples {name!r}, which the model does not have. Rename it to one of "
                f"{list(owner)}, or mark it infer={{'is_auxiliary': True}} if it only helps to "
                "build those."
            )
        served = {owner[s] for s in owner if s not in missing and name in depends[s]}
        if len(served) != 1:
            raise ValueError(_not_attributable(name, [b for b in order if b in served]))
    owner = {
        **owner,
        **{a: next(owner[s] for s in owner if a in depends.get(s, ())) for a in sites},
    }
    rank = {block: i for i, block in enumerate(order)}
    position = {name: i for i, name in enumerate(owner)}
    analytic = set(order)
    for name, parents in depends.items():
        for parent in parents - {name}:
            if rank[owner[parent]] > rank[owner[name]]:
                raise ValueError(
                    f"the guide draws {name!r} given {parent!r}, but the model has block "
                    f"{owner[name]!r} before {owner[parent]!r}, so the KL of {owner[name]!r} needs "
                    "a marginal that the guide does not have. Let the guide condition in the "
                    "model's order, or make the two one block with "
                    f"groups={{'name': [{name!r}, {parent!r}]}}."
                )
            if owner[parent] == owner[name] and position[parent] > position[name]:
                analytic.discard(owner[name])
    return Blocks(order, owner, tuple(sites), frozenset(analytic))


def model_blocks(
    model_trace: Any, groups: Mapping[str, Iterable[str]]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Block names in the order of the model, and the block of every latent site.

    What `LocScaleReparam` draws in the place of a site is a block under the name of that site:
    given the earlier blocks one is a function of the other, so their KLs are the same.
    """
    latent = _latent(model_trace)
    if not latent:
        raise ValueError(
            "the model has no latent sample site, so there is nothing to be uncertain about. "
            "Check that it is called without values for its parameters."
        )
    named = {name for members in groups.values() for name in members}
    own = {
        name.removesuffix(DECENTRED): [name]
        for name in latent
        if name.endswith(DECENTRED)
        and name not in named
        and model_trace.get(name.removesuffix(DECENTRED), {}).get("type") == "deterministic"
    }
    owner = block_of(latent, {**own, **groups})
    return tuple(dict.fromkeys(owner.values())), owner


def check_block_groups(
    model: Callable, model_trace: Any, owner: Mapping[str, str], args: Any, kwargs: Any
) -> None:
    """Refuse a block whose prior depends on a later block, so it has none of its own.

    Only a group with another block between its sites can be one: a site depends on earlier ones.
    """
    order = list(dict.fromkeys(owner.values()))
    runs = [
        name
        for name, previous in zip(owner.values(), [None, *owner.values()], strict=False)
        if name != previous
    ]
    if len(runs) == len(order):
        return
    depends = _dependencies(model, model_trace, args, kwargs)
    for name, block in owner.items():
        for parent in depends[name]:
            if order.index(owner[parent]) > order.index(block):
                raise ValueError(
                    f"groups puts {name!r} in {block!r}, which comes before {owner[parent]!r}, but "
                    f"the prior of {name!r} depends on {parent!r}. Put {parent!r} into the group "
                    f"as well, or {name!r} into a block after it."
                )


def is_scanned(site: Any) -> bool:
    """Whether a site was drawn inside `numpyro.contrib.control_flow.scan`."""
    return bool(site.get("_control_flow_done", False))


class scans(Messenger):
    """Remembers which latent sites each scan of a program draws."""

    def __init__(self, fn: Callable) -> None:
        super().__init__(fn)
        self.sites: list[list[str]] = []

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "control_flow" and msg["fn"] is scan_wrapper:
            self.sites.append(_latent(msg["value"][1][0].trace))


def check_scans(found: Iterable[list[str]], owner: Mapping[str, str]) -> None:
    """Refuse a scan that draws several blocks, whose priors its densities do not give.

    Step t of a scan draws each site given all of step t - 1, so the product of the densities of
    one site is not its prior given the earlier blocks. Together they are the prior of a chain.
    """
    for sites in found:
        blocks = list(dict.fromkeys(owner[name] for name in sites))
        if len(blocks) > 1:
            raise ValueError(
                f"one scan draws the blocks {blocks}, each given the past of the others, so no "
                "block has a prior of its own. Make them one block with "
                f"groups={{'name': {sites}}}."
            )


def block_confidence(
    confidence: Mapping[str, Any], blocks: Blocks, model_trace: Any, guide_trace: Any
) -> dict[str, Any]:
    """The confidence of every block: floats are checked, JAX arrays are taken as they are."""
    gammas = check_names(confidence, blocks.order, model_trace)
    for name in _latent(model_trace):
        if name not in guide_trace and gammas[blocks.owner[name]] != float("inf"):
            raise ValueError(
                f"the guide does not sample {name!r}. Add it, or give its block "
                f"{blocks.owner[name]!r} the confidence inf to leave it at its prior."
            )
    return gammas


def check_names(
    confidence: Mapping[str, Any], order: Iterable[str], model_trace: Any
) -> dict[str, Any]:
    """The confidence of every block by name, with an error of its own for observed sites."""
    for name in confidence:
        if name in model_trace and model_trace[name].get("is_observed", False):
            raise ValueError(
                f"confidence names {name!r}, which is observed: the data carry no prior. "
                f"The blocks are {list(order)}; to temper the likelihood divide every "
                "confidence by the same number."
            )
    traced = {k: v for k, v in confidence.items() if isinstance(v, jax.Array)}
    numbers = {k: v for k, v in confidence.items() if k not in traced}
    order = list(order)
    check_confidence(dict.fromkeys(traced, 1.0), order)
    return {**check_confidence(numbers, order, allow_zero=True), **traced}


def _latent(sites: Any) -> list[str]:
    return [n for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]]


def _dependencies(
    guide: Callable, guide_trace: Any, args: Any, kwargs: Any
) -> dict[str, frozenset[str]]:
    """For each latent site of the guide, the sites its density is a function of."""
    latent = _latent(guide_trace)
    fixed = {n: s["value"] for n, s in guide_trace.items() if s["type"] == "plate"}

    def densities(**values: Any) -> dict[str, Any]:
        data = {**fixed, **{name: values[f"site {name}"] for name in latent}}
        again = trace(substitute(guide, data=data)).get_trace(*args, **kwargs)
        return {name: site_density(again[name]) for name in latent}

    found = eval_provenance(densities, **{f"site {n}": guide_trace[n]["value"] for n in latent})
    return {
        name: frozenset(tag.removeprefix("site ") for tags in jax.tree.leaves(of) for tag in tags)
        for name, of in found.items()
    }


def site_density(site: Any) -> Any:
    """The log density of a site, or something that depends on the same sites."""
    try:
        return site["fn"].log_prob(site["value"])
    except NotImplementedError:  # a flow without an inverse: a draw depends on the same sites
        return site["value"], site["fn"].sample(jax.random.key(0))


def _not_attributable(name: str, served: list[str]) -> str:
    if not served:
        return f"the guide's auxiliary site {name!r} feeds no site of the model. Remove it."
    return (
        f"the guide draws the blocks {served} together through {name!r}, so its density cannot be "
        "attributed to them and their KLs cannot be weighted one by one. Make them one block with "
        f"groups={{'name': {served}}}, or use a guide that draws block after block: AutoNormal, "
        "soubayes.fit(..., guide='blockwise' or 'conditional'), or your own with "
        "q(theta_k | theta_<k)."
    )
