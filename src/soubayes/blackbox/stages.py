"""Reduced feedback between modules as a sequence of ordinary fits.

Write c_m for the product of the feedbacks eta of the blocks after k up to m. Then block k of the
recursion in `soubayes.feedback` is the first block of an ordinary problem, in which module m has
the weight c_m, and block m the confidence gamma_m c_m (power) or gamma_m c_{m-1} (smi):
-eta gamma log E exp(-U / gamma) is a soft minimum of eta U at the confidence eta gamma, and
-gamma log E exp(-eta U / gamma) is one of eta U at gamma. What such a fit finds for the later
blocks is right for power and discarded for smi. The next fit starts at the first block that is not
known yet; the blocks before it are drawn from what was found for them, and do not move.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import random
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, substitute, trace
from numpyro.primitives import Messenger

from soubayes.blackbox.blocks import is_scanned
from soubayes.blackbox.compiling import jit
from soubayes.blackbox.descent import Settings
from soubayes.blackbox.elbo import Divergence, site_log_prob
from soubayes.blackbox.guides import Replace
from soubayes.blackbox.losses import with_loss
from soubayes.blackbox.modules import Modules
from soubayes.blackbox.posterior import SoUPosterior, stage_table
from soubayes.blackbox.program import LogRange, abstract_trace, numerics
from soubayes.blackbox.verdict import BADNESS, Quality, guide_log_weights, quality
from soubayes.feedback import POWER, Feedback

#: Below this feedback a block is fitted again with its own weight, because in the joint problem its
#: part of the value is too small for the optimiser's tolerance and for the verdict.
LEAST_JOINT = 0.2
KNOWN_DRAWS, SHARING = (
    256,
    32,
)  # draws of the known blocks, and of the others at each, for a verdict


class FitRequest(NamedTuple):
    """What a caller of `fit` asked for, checked, apart from model and confidences."""

    args: tuple
    kwargs: dict[str, Any]
    guide: str | Callable
    groups: dict[str, tuple[str, ...]]
    loss: Any
    divergence: dict[str, Divergence]
    num_particles: int
    settings: Settings
    key: Any
    start: Mapping[str, Any] | None
    ranges: tuple[LogRange, ...] = ()  # of blocks whose confidence varies


def by_stages(
    request: FitRequest,
    model: Callable,
    gammas: dict[str, float],
    owner: dict[str, str],
    modules: Modules,
    fit: Callable[[FitRequest, Callable, dict[str, float], Any, dict[str, str]], SoUPosterior],
) -> SoUPosterior:
    """The posterior with reduced feedback, by ordinary fits of the models of all stages."""
    stages = feedback_stages(gammas, modules.feedback)
    _check(request, stages, gammas, owner, abstract_trace(model, request.args, request.kwargs))
    known: dict[str, Any] = {}
    found: list[SoUPosterior] = []
    for i, stage in enumerate(stages):
        staged = staged_model(model, stage, owner, modules.sites, known)
        left = {site: block for site, block in owner.items() if block not in stage.dropped}
        of_stage = request._replace(
            groups={b: s for b, s in request.groups.items() if b not in stage.dropped},
            divergence={b: d for b, d in request.divergence.items() if b in stage.confidence},
            key=random.fold_in(request.key, 20 + i),
        )
        sites = abstract_trace(staged, request.args, request.kwargs)
        fitted = fit(of_stage, staged, stage.confidence, sites, left)
        if stage.earlier and not request.divergence:
            fitted = replace(fitted, quality=_given_known(fitted, stage, of_stage.key))
        elif len(stages) > 1 and not request.divergence:
            fitted = replace(fitted, quality=_of_kept(fitted, stage))
        found.append(fitted)
        kept = {site for site, block in owner.items() if block in stage.kept}
        known |= {n: x for n, x in found[-1].params.items() if n.split(":")[0] in kept}
    return _joined(request, model, gammas, modules, stages, found)


def _of_kept(fitted: SoUPosterior, stage: "FeedbackStage") -> Quality:
    """The verdict on the blocks that a fit is for; later fits give the others.

    Their part of the integrand has a small weight here, and so has an error of theirs.
    """
    kept = {site: block for site, block in fitted.owner.items() if block in stage.kept}
    drawn = {site: fitted.draws[site] for site in kept}
    return quality(guide_log_weights(fitted.integrand, drawn, kept, stage.confidence), drawn)


def _given_known(fitted: SoUPosterior, stage: "FeedbackStage", key: Any) -> Quality:
    """The verdict on a fit given the known blocks: weights of draws that share their values.

    The known blocks do not move, so how the integrand varies with them is no error.
    """
    program, inputs = fitted._program, fitted._inputs
    params = {n: jnp.asarray(x) for n, x in fitted.params.items() if n not in inputs.frame}
    gammas = {b: jnp.asarray(g) for b, g in stage.confidence.items() if 0 < g < float("inf")}
    shared = [site for site, block in fitted.owner.items() if block in stage.earlier]

    def one(known: Any, key: Any) -> Any:
        at = inputs._replace(frame={**inputs.frame, **known})
        terms = program._terms(key, params, gammas, at, analytic=False)
        return terms.objective, terms.values

    def group(known: Any, key: Any) -> Any:
        return jax.vmap(lambda k: one(known, k))(random.split(key, SHARING))

    with numerics():
        known = {site: jnp.asarray(fitted.draws[site][:KNOWN_DRAWS]) for site in shared}
        keys = random.split(random.fold_in(key, 7), len(next(iter(known.values()))))
        integrand, drawn = jax.tree.map(np.asarray, jit(jax.vmap(group))(known, keys))
    integrand = np.ravel(integrand - integrand.mean(axis=1, keepdims=True))
    drawn = {name: drawn[name].reshape((len(integrand), *drawn[name].shape[2:])) for name in drawn}
    free = {site: block for site, block in fitted.owner.items() if block not in stage.earlier}
    log_w = guide_log_weights(integrand, drawn, free, stage.confidence).reshape(-1, SHARING)
    log_w = log_w - np.logaddexp.reduce(log_w, axis=1, keepdims=True)
    kept = [site for site, block in free.items() if block in stage.kept]
    return quality(np.ravel(log_w), {site: drawn[site] for site in kept})


def _joined(
    request: FitRequest,
    model: Callable,
    gammas: dict[str, float],
    modules: Modules,
    stages: Sequence["FeedbackStage"],
    found: Sequence[SoUPosterior],
) -> SoUPosterior:
    """The last fit, whose draws are of all blocks, with what the others say about theirs."""
    last = found[-1]
    kl = {block: fit.kl[block] for fit, s in zip(found, stages, strict=True) for block in s.kept}
    losses = _losses(request, model, modules, {name: last.draws[name] for name in last.owner})
    loss_se = float(np.std(losses) / np.sqrt(len(losses)))
    costs = [gammas[b] * kl[b] for b in gammas if gammas[b] < float("inf")]
    worst = max(found, key=lambda fit: BADNESS.index(fit.verdict))
    quality = worst.quality
    if len(found) > 1:
        blocks = ", ".join(stages[found.index(worst)].kept)
        quality = replace(quality, reason=f"fit of {blocks}: {quality.reason}")
    guides = dict.fromkeys(fit.guide for fit in found)
    return replace(
        last,
        value=float(np.mean(losses) + sum(costs)),
        value_se=float(np.sqrt(loss_se**2 + sum(fit.value_se**2 for fit in found))),
        expected_loss=float(np.mean(losses)),
        expected_loss_se=loss_se,
        kl={block: kl[block] for block in gammas},
        confidence=dict(gammas),
        eta=dict(modules.feedback.eta),
        converged=all(fit.converged for fit in found),
        trouble=" ".join(fit.trouble for fit in found if fit.trouble),
        guide=", ".join(guides),
        polished=any(fit.polished for fit in found),
        quality=quality,
        history=pd.concat([fit.history.assign(stage=i) for i, fit in enumerate(found)]),
        stages=stage_table([(fit, s.kept) for fit, s in zip(found, stages, strict=True)]),
        _model=model,
    )


def _losses(
    request: FitRequest, model: Callable, modules: Modules, draws: Mapping[str, np.ndarray]
) -> np.ndarray:
    """The loss of all modules at every draw."""
    weights = {s: modules.weight_of(s) for sites in modules.sites.values() for s in sites}
    scored = with_loss(model, request.loss)

    def one(values: Any) -> Any:
        run = substitute(seed(scored, random.key(0)), data=values)
        sites = trace(run).get_trace(*request.args, **request.kwargs)
        terms = [-w * site_log_prob(sites[name]) for name, w in weights.items() if w > 0]
        return sum(terms, jnp.zeros(()))

    with numerics():
        each = jax.jit(lambda values: jax.lax.map(one, values, batch_size=64))
        return np.asarray(each({name: jnp.asarray(x) for name, x in draws.items()}))


def _check(
    request: FitRequest,
    stages: Sequence["FeedbackStage"],
    gammas: Mapping[str, float],
    owner: Mapping[str, str],
    sites: Any,
) -> None:
    """What a sequence of fits cannot do."""
    if request.start is not None:
        raise ValueError("start= is for a single fit; leave it out if eta or weight is given.")
    if not isinstance(request.loss, Mapping | None):
        raise ValueError(
            "eta and weight need observed sites that belong to modules, but loss is one function. "
            "Observe the data in the model, and replace scores with loss={site: score}."
        )
    if len(stages) == 1:
        return
    if not isinstance(request.guide, str):
        raise ValueError(
            "with this feedback the blocks are fitted one after the other, and a guide of your "
            "own draws them together. Use guide='auto' or another name."
        )
    points = [block for block, gamma in gammas.items() if gamma == 0]
    scanned = [name for name in owner if is_scanned(sites[name])]
    if points or scanned:
        raise ValueError(
            f"with reduced feedback {points + scanned} must be blocks with a finite confidence "
            "above 0, drawn outside a scan, because later fits draw from what was found for them."
        )


class FeedbackStage(NamedTuple):
    """One ordinary fit."""

    kept: tuple[str, ...]  # blocks whose q it gives
    earlier: tuple[str, ...]  # blocks that are known
    dropped: tuple[str, ...]  # later blocks that it does not hear
    weight: dict[str, float]  # of the modules of blocks that it hears
    confidence: dict[str, float]  # of all blocks but the dropped ones; inf for the known ones


def feedback_stages(gammas: Mapping[str, float], feedback: Feedback) -> list[FeedbackStage]:
    """The fits that a model with these confidences needs."""
    order, power = list(gammas), feedback.kind == POWER
    stages, first = [], 0
    while first < len(order):
        later = range(first + 1, len(order))
        least = LEAST_JOINT if power else 1.0
        stop = next((m for m in later if feedback.eta[order[m]] < least), len(order))
        weight: dict[str, float] = dict.fromkeys(order[:first], 0.0)
        confidence = dict.fromkeys(order[:first], float("inf"))
        heard = 1.0
        for m in range(first, len(order)):
            before = heard
            heard *= feedback.eta[order[m]] if m > first else 1.0
            if heard == 0:
                break
            weight[order[m]] = heard * feedback.weight[order[m]]
            confidence[order[m]] = gammas[order[m]] * (heard if power else before)
        dropped = tuple(name for name in order if name not in confidence)
        kept, earlier = tuple(order[first:stop]), tuple(order[:first])
        stages.append(FeedbackStage(kept, earlier, dropped, weight, confidence))
        first = stop
    return stages


def staged_model(
    model: Callable,
    stage: FeedbackStage,
    owner: Mapping[str, str],
    observed: Mapping[str, Sequence[str]],
    params: Mapping[str, Any],
) -> Callable:
    """The model of one stage: known blocks are drawn from their guide, modules have weights.

    ``observed`` has the observed sites of every block, and ``params`` the parameters of the guide
    of the known blocks.
    """
    weights = {s: stage.weight.get(block, 0.0) for block, sites in observed.items() for s in sites}
    known = {s for s, block in owner.items() if block in stage.earlier and f"{s}:loc" in params}
    fixed = frozenset(s for s, block in owner.items() if block in stage.dropped)
    free = frozenset(set(owner) - known)

    def staged(*args: Any, **kwargs: Any) -> Any:
        with Replace(dict(params), frozenset(), free), _Weigh(weights, fixed):
            return model(*args, **kwargs)

    return staged


class _Weigh(Messenger):
    """Multiplies the log density of observed sites, and fixes sites that do not take part."""

    def __init__(self, weights: Mapping[str, float], fixed: frozenset[str]) -> None:
        super().__init__(None)
        self.weights, self.fixed = weights, fixed

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample":
            return
        weight = self.weights.get(msg["name"], 1.0)
        if msg["name"] in self.fixed:
            transform = biject_to(msg["fn"].support)
            shape = tuple(msg["kwargs"].get("sample_shape", ())) + msg["fn"].shape()
            msg["value"] = transform(jnp.zeros(transform.inverse_shape(shape)))
            msg["is_observed"], weight = True, 0.0
        if not msg["is_observed"] or weight == 1.0:
            return
        msg["scale"] = weight if msg["scale"] is None else weight * msg["scale"]
        if weight == 0.0:  # 0 times an infinite density is not a number
            msg["fn"] = msg["fn"].mask(False)
