"""One call from a NumPyro model and a confidence to a posterior."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import pandas as pd
from jax import random
from jax.typing import ArrayLike
from numpyro.handlers import seed
from sklearn.exceptions import ConvergenceWarning

from soubayes._docstrings import fill_docstrings
from soubayes._types import Key
from soubayes._warnings import warn
from soubayes.blackbox.arguments import ARGUMENTS
from soubayes.blackbox.descent import Descent, Settings, size_of
from soubayes.blackbox.elbo import Divergence
from soubayes.blackbox.flat import check_flat
from soubayes.blackbox.flows import chain_start
from soubayes.blackbox.guides import GUIDE_KINDS, MOST_WEIGHTS, choose_guide, may_flow
from soubayes.blackbox.modules import check_modules
from soubayes.blackbox.nuts import beside_nuts
from soubayes.blackbox.polish import MOST_PARAMETERS
from soubayes.blackbox.posterior import (
    SoUPosterior,
    as_key,
    by_chunks,
    evaluate,
    stage_table,
    too_small,
)
from soubayes.blackbox.program import (
    Inputs,
    Plan,
    Program,
    abstract_trace,
    chains,
    checked_confidence,
    compiled,
    numerics,
    plain_arguments,
    split_arguments,
    subsampled,
)
from soubayes.blackbox.progress import WINDOW, reporting
from soubayes.blackbox.stages import FitRequest, by_stages
from soubayes.blackbox.start import Scaled, at_scale, in_frame, is_constant, judge_modes
from soubayes.blackbox.verdict import TRUSTED

#: Below this confidence a standard deviation, about sqrt(gamma), is lost in float64 beside the
#: location it surrounds, and a block is made an explicit point estimate.
SMALLEST_CONFIDENCE = 1e-18
FIT_STEPS = 20_000
UNSHARED = 30.0  # taken off the logit of the share of a prior: the guide follows nothing
POLISH = 1024  # draws of Newton's method where it runs by itself
MOST_POLISHED = 300  # parameters for that: its Hessian costs as many gradients


@fill_docstrings(ARGUMENTS)
def fit(
    model: Callable,
    *args: Any,
    confidence: Mapping[str, float] | None = None,
    groups: Mapping[str, Iterable[str]] | None = None,
    modules: Mapping[str, Iterable[str]] | None = None,
    eta: Mapping[str, float] | None = None,
    feedback: str = "power",
    weight: Mapping[str, float] | None = None,
    guide: str | Callable = "auto",
    loss: Callable | Mapping[str, Callable] | None = None,
    divergence: Mapping[str, Divergence] | None = None,
    steps: int | str = "auto",
    learning_rate: float = 0.05,
    tol: float = 1e-4,
    num_particles: int = 16,
    polish: int | str = "auto",
    restarts: int = 3,
    num_draws: int = 4096,
    start: Mapping[str, ArrayLike] | None = None,
    check: str | None = None,
    progress: bool | Callable[[dict[str, float]], None] = False,
    random_state: Key = 0,
    **kwargs: Any,
) -> SoUPosterior:
    r"""Fit the SoU posterior of a NumPyro model within a family of guides.

    The arguments of the model follow it. Arguments that are named like a parameter below cannot be
    passed by keyword.

    Parameters
    ----------
    guide : str or callable, default="auto"
        ``"meanfield"``, ``"blockwise"``, ``"conditional"``, ``"flow"``, a NumPyro guide, or
        ``"auto"``: conditional up to 200 coordinates, upgraded to flow if that fit is poor and
        there are at most 100; then blockwise while no block has more than 200, then meanfield.
    loss : mapping of str to callable, or callable, optional
        Another loss than minus the log likelihood: ``{observed site: score(distribution, value)}``,
        or ``loss(values, *args, **kwargs)`` for a model that observes nothing.
    divergence : mapping of str to callable, optional
        What replaces the KL of a block; see :class:`Renyi` and :class:`ForwardKL`.
    learning_rate : float, default=0.05
        First learning rate of Adam.
    tol : float, default=1e-4
        The learning rate is lowered when J falls by less than this, in nats, five times in a row. A
        plateau at the lowest rate is convergence.
    num_particles : int, default=16
        Draws for one gradient.
    polish : int or "auto", default="auto"
        Draws of a last phase without noise: Newton's method on that many fixed draws. 0 means none.
        It is for guides of (transformed) normals with up to 2,000 parameters and plates that are
        not subsampled. ``"auto"`` uses 1,024 draws if Adam has not converged and the guide has at
        most 300 parameters; ``polished`` of the result says so.
    restarts : int, default=3
        Number of starts to try; the best one is continued.
    num_draws : int, default=4096
        Fresh draws for the reported value, its error and the verdict.
    check : None or "nuts", default=None
        With ``"nuts"`` the verdict rests on a short run of NUTS beside the fit. All confidences
        must be 1.
    start : mapping of str to array, optional
        Starting values for parameters of the guide, such as ``params`` of another fit.
    progress : bool or callable, default=False
        Whether to show how far it is; or a function that is called with a dict now and then.

    Returns
    -------
    posterior : SoUPosterior
        The best q of the family, its value, and what each block cost.

    See Also
    --------
    SoUELBO : The objective alone, for an SVI loop of your own.
    diagnose : How far the fit is from the exact answer.

    Notes
    -----
    Minimises eq. 5 of [1]_, not divided by n,

    .. math:: J(q) = E_q[L] + \sum_k \gamma_k E_q\,\mathrm{KL}(q_k \,\|\, \pi_k),

    over the parameters of the guide. Up to 200 coordinates the best Gaussian is found first, by
    Newton's method on its mean and covariance; its coordinates, in which all scales are 1, are
    those of the guide. Above, coordinates are independent there, and L-BFGS is used. Where that is
    not exact, Adam on draws of the guide follows (supplement B).
    With reduced feedback (``eta``) the posterior does not minimise J. It is found by one ordinary
    fit or by a sequence of them, in which the blocks that are known stay as they are; ``value`` is
    J there, and the verdict is the worst of the fits in ``stages``.

    A flat prior (``ImproperUniform``, or a distribution with ``.mask(False)``) is allowed where the
    posterior is proper; the value and the KL of its block are then known up to a constant.

    Each guide contains the ones before it: *meanfield* has independent coordinates; *blockwise* a
    full covariance within each block; *conditional* lets means depend on the earlier blocks and is
    exact for linear-Gaussian models; *flow* adds a spline for every coordinate and a network of the
    earlier blocks.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> posterior = fit(model, 2.0, confidence={"mu": 0.25})
    >>> print(f"{posterior.mean('mu'):.1f}")  # 2 / (1 + gamma)
    1.6
    >>> posterior.verdict
    'trusted'
    """
    args, kwargs = plain_arguments(args, kwargs)
    budget = check_fit_settings(guide, steps, num_particles, restarts, polish, check, num_draws)
    with numerics(), reporting(progress) as report:
        settings = Settings(learning_rate, tol, restarts, budget, polish, num_draws, report)
        sites = abstract_trace(model, args, kwargs)
        if polish not in (0, "auto") and subsampled(sites):
            raise ValueError(
                "polish needs all rows of every plate, and one is subsampled. Leave polish=0, or "
                "fit without subsampling."
            )
        grouped = {name: _names(members) for name, members in (groups or {}).items()}
        gammas, owner = checked_confidence(confidence or {}, grouped, sites)
        check_flat(seed(model, random.key(0)), sites, owner, args, kwargs)
        for block, gamma in gammas.items():
            if gamma < SMALLEST_CONFIDENCE:
                gammas[block] = 0.0
        parts = check_modules(model, sites, owner, args, kwargs, modules, eta, feedback, weight)
        if check and (set(gammas.values()) != {1.0} or not parts.is_plain):
            raise ValueError(
                "check='nuts' samples Bayes' posterior: all confidences, feedbacks and weights 1. "
                f"Here confidence is {gammas}, eta {parts.feedback.eta}."
            )
        request = FitRequest(
            args,
            kwargs,
            guide,
            grouped,
            loss,
            dict(divergence or {}),
            num_particles,
            settings,
            as_key(random_state),
            start,
        )
        if parts.is_plain:
            posterior = fitted_once(request, model, gammas, sites, owner)
        else:
            posterior = by_stages(request, model, gammas, owner, parts, fitted_once)
        if check:
            found = beside_nuts(
                posterior.draws, model, args, kwargs, random.fold_in(request.key, 9)
            )
            posterior = replace(posterior, quality=found)
    asked = polish not in (0, "auto")
    if not posterior.converged and (asked or posterior.verdict != TRUSTED):
        warn(posterior.trouble, ConvergenceWarning)
    return posterior


def fitted_once(
    request: FitRequest,
    model: Callable,
    gammas: dict[str, float],
    sites: Any,
    owner: dict[str, str],
) -> SoUPosterior:
    """One ordinary fit."""
    args, kwargs, polish = request.args, request.kwargs, request.settings.polish
    skeleton, arrays = split_arguments(args, kwargs)
    wanted, reason = request.guide, "as asked"
    if wanted == "auto":
        most = MOST_WEIGHTS if polish in (0, "auto") else MOST_PARAMETERS // 2
        wanted, reason = choose_guide(sites, owner, most)
    loss = request.loss
    plan = Plan(
        model,
        wanted,
        tuple(request.groups.items()),
        frozenset(b for b, g in gammas.items() if g == 0.0),
        frozenset(b for b, g in gammas.items() if g == float("inf")),
        tuple(loss.items()) if isinstance(loss, Mapping) else loss,
        tuple(request.divergence.items()),
        request.num_particles,
        WINDOW,
        skeleton,
        ranges=request.ranges,
    )
    upgrade = request.guide == "auto" and polish in (0, "auto") and may_flow(sites, owner)
    task = FitTask(
        plan, gammas, arrays, request.key, request.settings, request.start, upgrade, reason
    )
    try:
        return _solve(task)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        # the model's Python code reads its data, so they must be constants of the program
        constant = plan._replace(skeleton=split_arguments(args, kwargs, keep=True)[0])
        return _solve(task._replace(plan=constant, arrays=[]))


def descended_from(
    request: FitRequest, program: Program, gammas: dict[str, float], inputs: Inputs, params: Any
) -> SoUPosterior:
    """A descent that goes on from parameters of a guide."""
    task = FitTask(
        program.plan, gammas, inputs.arrays, request.key, request.settings, None, False, ""
    )
    stage = FitStage(program, inputs, params, "a family of confidences, then these alone")
    return _descended(task, stage)


class FitTask(NamedTuple):
    """Everything that a fit is given, checked."""

    plan: Plan
    gammas: dict[str, float]
    arrays: list[Any]
    key: Any
    settings: Settings
    start: Mapping[str, Any] | None
    upgrade: bool  # whether a conditional guide that is not enough may become a flow
    reason: str  # why this guide


def _solve(task: FitTask) -> SoUPosterior:
    """The fit at the posterior's scale where that can be found, else at the prior's."""
    plan = task.plan
    scaled = None
    if task.start is None and isinstance(plan.guide, str):
        # one program for all guides of a kind: the best Gaussian does not know them
        kind = "conditional" if plan.guide == "flow" else plan.guide
        program = _program(plan._replace(guide=kind))
        scaled = at_scale(program, task.gammas, task.arrays, task.key, task.settings.restarts)
    return _from_start(task) if scaled is None else _from_gaussian(task, scaled)


class FitStage(NamedTuple):
    """One guide with its coordinates, and where its parameters start (None: by themselves)."""

    program: Program
    inputs: Inputs
    start: Mapping[str, Any] | None
    reason: str


def _from_gaussian(task: FitTask, scaled: Scaled) -> SoUPosterior:
    """The best Gaussian itself if it is good enough, else a guide that starts there."""
    kind, reason = str(task.plan.guide), task.reason
    good = scaled.enough if task.upgrade else scaled.exact
    enough = good and task.settings.polish in (0, "auto")
    if task.upgrade and not good and not task.plan.divergence:
        kind = "flow"
        reason = f"the integrand of J varied by {scaled.spread:.2f} nats under the best Gaussian"
    frame, begun = in_frame(scaled, kind)
    program = _program(task.plan._replace(guide=kind, framed=True))
    stage = FitStage(program, Inputs(task.arrays, frame), begun, reason)
    if not enough:
        return _with_modes(_descended(task, stage), scaled)
    params = program.start(task.key, _traced(task.gammas), stage.inputs, spread=False)[0]
    alone = {name: x - UNSHARED if name.endswith(":follow") else x for name, x in params.items()}
    return _with_modes(_evaluated(task, stage, alone, scaled.history, "", polished=False), scaled)


def _with_modes(posterior: SoUPosterior, scaled: Scaled) -> SoUPosterior:
    """The posterior with a verdict that knows of the modes that other starts have found."""
    if not scaled.modes or posterior._program.plan.ranges:
        return posterior
    found = replace(
        posterior, quality=judge_modes(posterior.quality, posterior.draws, scaled.modes)
    )
    return replace(found, stages=stage_table([(found, found.names)]))


def _from_start(task: FitTask) -> SoUPosterior:
    """From the user's start, or at the scale of the priors; a flow starts at the conditional."""
    plan, reason = task.plan, task.reason
    given = dict(task.start or {})
    frame = {name: given.pop(name) for name in list(given) if is_constant(name)}
    staged = plan.guide == "flow" and task.start is None
    first = plan._replace(guide="conditional") if staged else plan
    inputs = Inputs(task.arrays, jax.tree.map(lambda x: jax.numpy.asarray(x, float), frame))
    start = None if task.start is None else given
    stage = FitStage(_program(first._replace(framed=bool(frame))), inputs, start, reason)
    posterior = _descended(task, stage, polish=not staged)
    if task.upgrade and too_small(posterior):
        staged, spread = True, posterior.quality.spread
        reason = f"the integrand of J varied by {spread:.2f} nats under the conditional guide"
    if not staged:
        return posterior
    args, kwargs = plan.arguments(task.arrays)
    begun = chain_start(posterior.params, chains(abstract_trace(plan.model, args, kwargs)))
    flow = _program(plan._replace(guide="flow", framed=bool(frame)))
    return _descended(task, stage._replace(program=flow, start=begun, reason=reason))


def _descended(task: FitTask, stage: FitStage, polish: bool = True) -> SoUPosterior:
    """Adam to convergence, then Newton's method where it is asked for or pays."""
    settings, key = task.settings, task.key
    run = Descent(stage.program, task.gammas, stage.inputs, settings)
    params = run.best_start(random.fold_in(key, 0), settings.restarts, stage.start)
    asked = settings.polish if isinstance(settings.polish, int) and polish else 0
    if asked:
        run.check_polish(params)
    params, trouble = run.to_convergence(params, random.fold_in(key, 1))
    if asked:
        params, trouble = run.polished(params, random.fold_in(key, 3), asked)
    posterior = _evaluated(task, stage, params, run.history, trouble, polished=bool(asked))
    # A fit that Adam has taken to its end gains nothing: docs/development/blackbox.md.
    pays = trouble and settings.polish == "auto" and polish and size_of(params) <= MOST_POLISHED
    if not pays or not run.may_polish(params):
        return posterior
    params, trouble = run.polished(params, random.fold_in(key, 3), POLISH)
    return _evaluated(task, stage, params, run.history, trouble, polished=True)


def _evaluated(
    task: FitTask, stage: FitStage, params: Any, history: Any, trouble: str, polished: bool
) -> SoUPosterior:
    kind, given = stage.program.plan.guide, (params, task.gammas, stage.inputs)
    key = random.fold_in(task.key, 2)
    return evaluate(
        stage.program,
        *given,
        by_chunks(stage.program.draws, *given, key, task.settings.num_draws),
        converged=not trouble,
        trouble=trouble,
        guide=kind if isinstance(kind, str) else "custom",
        guide_reason=stage.reason,
        polished=polished,
        history=pd.DataFrame(history),
    )


def _program(plan: Plan) -> Program:
    try:
        return compiled(plan)
    except TypeError:  # an argument or a loss that cannot be hashed: compile for this call
        return Program(plan)


def _traced(gammas: Mapping[str, float]) -> dict[str, Any]:
    return {b: jax.numpy.asarray(g) for b, g in gammas.items() if 0 < g < float("inf")}


def check_fit_settings(
    guide: Any,
    steps: Any,
    num_particles: int,
    restarts: int,
    polish: Any,
    check: Any,
    num_draws: int,
) -> int:
    """Refuse settings that mean nothing; the largest number of steps."""
    if isinstance(guide, str) and guide not in ("auto", *GUIDE_KINDS):
        allowed = ("auto", *GUIDE_KINDS)
        raise ValueError(f"guide is {guide!r}, but it must be one of {allowed} or a callable.")
    if steps != "auto" and not (isinstance(steps, int) and steps > 0):
        raise ValueError(f"steps is {steps!r}, but it must be 'auto' or a positive integer.")
    counts = {"num_particles": num_particles, "restarts": restarts, "num_draws": num_draws}
    for name, number in counts.items():
        if number < 1:
            raise ValueError(f"{name} is {number}, but it must be at least 1.")
    number = isinstance(polish, int) and not isinstance(polish, bool) and polish >= 0
    if not number and polish != "auto":
        raise ValueError(
            f"polish is {polish!r}, but it must be 'auto', a number of draws, or 0 for none."
        )
    if check not in (None, "nuts"):
        raise ValueError(f"check is {check!r}, but it must be None or 'nuts'.")
    return FIT_STEPS if steps == "auto" else int(steps)


def _names(members: str | Iterable[str]) -> tuple[str, ...]:
    return (members,) if isinstance(members, str) else tuple(members)
