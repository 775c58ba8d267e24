"""One call from a NumPyro model and a confidence to a posterior."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import random
from jax.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from soubayes._types import Key
from soubayes.blackbox.blocks import is_scanned
from soubayes.blackbox.elbo import Divergence
from soubayes.blackbox.flows import chain_start
from soubayes.blackbox.guides import GUIDE_KINDS, MOST_WEIGHTS, choose_guide, may_flow
from soubayes.blackbox.polish import MOST_PARAMETERS, newton
from soubayes.blackbox.posterior import SoUPosterior, as_key, evaluate, too_small
from soubayes.blackbox.program import (
    CHUNK,
    Plan,
    Program,
    abstract_trace,
    checked_confidence,
    compiled,
    double_precision,
    split_arguments,
)
from soubayes.blackbox.progress import DECAY, LAST_RATE, PATIENCE, WINDOW, Report, reporting

#: Below this confidence a standard deviation, about sqrt(gamma), is lost in float64 beside the
#: location it surrounds, and a block is made an explicit point estimate.
SMALLEST_CONFIDENCE = 1e-18
MOST_STEPS = 20_000
JUDGES = 8  # chunks of common draws: the best of many windows on one chunk is too narrow a guide


def fit(
    model: Callable,
    *args: Any,
    confidence: Mapping[str, float] | None = None,
    groups: Mapping[str, Iterable[str]] | None = None,
    guide: str | Callable = "auto",
    loss: Callable | Mapping[str, Callable] | None = None,
    divergence: Mapping[str, Divergence] | None = None,
    steps: int | str = "auto",
    learning_rate: float = 0.05,
    tol: float = 1e-4,
    num_particles: int = 8,
    polish: int = 0,
    restarts: int = 3,
    num_draws: int = 2048,
    start: Mapping[str, ArrayLike] | None = None,
    progress: bool | Callable[[dict[str, float]], None] = False,
    random_state: Key = 0,
    **kwargs: Any,
) -> SoUPosterior:
    r"""Fit the SoU posterior of a NumPyro model within a family of guides.

    The arguments of the model follow it. Arguments that are named like a parameter below cannot be
    passed by keyword.

    Parameters
    ----------
    model : callable
        A NumPyro model. It is called as ``model(*args, **kwargs)``.
    *args : object
        Positional arguments of the model.
    confidence : mapping of str to float, optional
        The confidence of each block, by name. A block that is not named has confidence 1. ``inf``
        keeps a block at its prior; 0 makes it a point estimate without a prior.
    groups : mapping of str to iterable of str, optional
        Sites that form one block under a common name.
    guide : str or callable, default="auto"
        ``"meanfield"``, ``"blockwise"``, ``"conditional"``, ``"flow"``, a NumPyro guide, or
        ``"auto"``: conditional up to 200 coordinates (a flow where that is not enough and there are
        at most 100), then blockwise while no block has more than 200, then meanfield.
    loss : mapping of str to callable, or callable, optional
        Another loss than minus the log likelihood: ``{observed site: score(distribution, value)}``,
        or ``loss(values, *args, **kwargs)`` for a model that observes nothing.
    divergence : mapping of str to callable, optional
        What replaces the KL of a block; see :class:`Renyi` and :class:`ForwardKL`.
    steps : int or "auto", default="auto"
        Largest number of steps; ``"auto"`` means 20,000.
    learning_rate : float, default=0.05
        First learning rate of Adam.
    tol : float, default=1e-4
        The learning rate is lowered when J falls by less than this, in nats, twice in a row. A
        plateau at the lowest rate is convergence.
    num_particles : int, default=8
        Draws for one gradient.
    polish : int, default=0
        Draws of a last phase without noise: Newton's method on that many fixed draws. 0 means none,
        1024 is a good number. For guides of (transformed) normals with up to 2,000 parameters and
        plates that are not subsampled.
    restarts : int, default=3
        Number of starts to try; the best one is continued.
    num_draws : int, default=2048
        Fresh draws for the reported value and its error.
    start : mapping of str to array, optional
        Starting values for parameters of the guide, such as ``params`` of another fit.
    progress : bool or callable, default=False
        Whether to show a progress bar; or a function that is called with a dict now and then.
    random_state : int or jax.Array, default=0
        The seed.
    **kwargs : object
        Keyword arguments of the model.

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

    over the parameters of the guide, by Adam on draws of the guide (supplement B). Each guide
    contains the ones before it: *meanfield* has independent coordinates; *blockwise* a full
    covariance within each block; *conditional* lets means depend on the earlier blocks and is exact
    for linear-Gaussian models; *flow* adds a spline for every coordinate and a network of the
    earlier blocks.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> posterior = fit(model, 2.0, confidence={"mu": 0.25})
    >>> print(f"{posterior.mean('mu'):.1f}")  # 2 / (1 + gamma)
    1.6
    >>> posterior.converged
    True
    """
    budget = _check_settings(guide, steps, num_particles, restarts, polish)
    with double_precision():
        key = as_key(random_state)
        skeleton, arrays = split_arguments(args, kwargs)
        sites = abstract_trace(model, args, kwargs)
        if polish:
            _check_whole_plates(sites)
        grouped = {name: _names(members) for name, members in (groups or {}).items()}
        gammas, owner = checked_confidence(confidence or {}, grouped, sites)
        for block, gamma in gammas.items():
            if gamma < SMALLEST_CONFIDENCE:
                gammas[block] = 0.0
        wanted, reason = guide, "as asked"
        if guide == "auto":
            wanted, reason = choose_guide(
                sites, owner, MOST_PARAMETERS // 2 if polish else MOST_WEIGHTS
            )
        staged = wanted == "flow" and start is None  # a flow starts at the conditional guide
        plan = Plan(
            model,
            "conditional" if staged else wanted,
            tuple(grouped.items()),
            frozenset(b for b, g in gammas.items() if g == 0.0),
            frozenset(b for b, g in gammas.items() if g == float("inf")),
            tuple(loss.items()) if isinstance(loss, Mapping) else loss,
            tuple((divergence or {}).items()),
            num_particles,
            WINDOW,
            skeleton,
        )

        def solve(plan: Plan, arrays: list[Any], polish: int, start: Any) -> SoUPosterior:
            settings = (learning_rate, tol, restarts, budget, polish, num_draws, start, reason)
            with reporting(progress) as report:
                return _solve(plan, gammas, arrays, key, report, *settings)

        try:
            posterior = solve(plan, arrays, 0 if staged else polish, start)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
            # the model's Python code reads its data, so they must be constants of the program
            plan, arrays = plan._replace(skeleton=split_arguments(args, kwargs, keep=True)[0]), []
            posterior = solve(plan, arrays, 0 if staged else polish, start)
        if guide == "auto" and not polish and may_flow(sites, owner) and too_small(posterior):
            staged, spread = True, float(np.std(posterior.integrand))
            reason = f"the integrand of J varied by {spread:.2f} nats under the conditional guide"
        if not staged:
            return posterior
        chains = {name: site for name, site in sites.items() if is_scanned(site)}
        widths = {name: int(np.prod(site["value"].shape[1:])) for name, site in chains.items()}
        begun = chain_start(posterior.params, widths)
        return solve(plan._replace(guide="flow"), arrays, polish, begun)


def _solve(
    plan: Plan,
    gammas: dict[str, float],
    arrays: list[Any],
    key: Any,
    report: Report,
    rate: float,
    tol: float,
    restarts: int,
    budget: int,
    polish: int,
    num_draws: int,
    start: Mapping[str, Any] | None,
    reason: str,
) -> SoUPosterior:
    try:
        program = compiled(plan)
    except TypeError:  # an argument or a loss that cannot be hashed: compile for this call
        program = Program(plan)
    run = _Run(program, gammas, arrays, rate, tol, report)
    params = run.best_start(random.fold_in(key, 0), restarts, start)
    if polish:
        run.check_polish(params)
    params, trouble = run.to_convergence(params, random.fold_in(key, 1), budget)
    if polish:
        params, trouble = run.polished(params, random.fold_in(key, 3), polish)
    if trouble:
        warnings.warn(trouble, ConvergenceWarning, stacklevel=4)
    history = pd.DataFrame(run.history)
    return evaluate(
        program,
        params,
        gammas,
        arrays,
        random.fold_in(key, 2),
        num_draws,
        converged=not trouble,
        guide=plan.guide if isinstance(plan.guide, str) else "custom",
        guide_reason=reason,
        history=history,
    )


class _Run:
    """One optimisation: windows of steps, judged on common draws."""

    def __init__(
        self,
        program: Program,
        gammas: Mapping[str, float],
        arrays: list[Any],
        rate: float,
        tol: float,
        report: Report,
    ) -> None:
        self.program, self.arrays = program, arrays
        self.traced = {b: jnp.asarray(g) for b, g in gammas.items() if 0 < g < float("inf")}
        self.rate, self.tol, self.report = rate, tol, report
        self.judges = [random.fold_in(random.key(20), i) for i in range(JUDGES)]  # common draws
        self.history: dict[str, list[float]] = {"step": [], "value": [], "learning_rate": []}
        self.steps = 0
        self.units: Any = None  # of the parameters, from the spreads of the priors

    def best_start(self, key: Any, restarts: int, start: Mapping[str, Any] | None) -> Any:
        """The most promising of several starts, each given two windows at the full rate."""
        candidates: list[tuple[float, int, Any]] = []
        tries = 1 if start is not None else restarts
        for attempt in range(tries):
            key, first, later = random.split(key, 3)
            params, self.units = self.program.start(
                first, self.traced, self.arrays, spread=attempt > 0
            )
            params = _overwrite(params, start)
            value = self.value(params)
            if not np.isfinite(value) and attempt == tries - 1 and not candidates:
                raise ValueError(self._explain(params))
            if not np.isfinite(value):
                continue
            if tries > 1:
                momentum = self.program.optimiser.init(params)
                for i in range(2):
                    params, momentum, average, _ = self._window(
                        params, momentum, random.fold_in(later, i), self.rate
                    )
                value, params = self.value(average), average
            if np.isfinite(value):
                candidates.append((value, attempt, params))
        if not candidates:
            raise ValueError(
                "the loss is not finite along any of the starts. Check the data for NaN and the "
                "priors for values where the loss is infinite, or pass start=."
            )
        return min(candidates)[2]

    def to_convergence(self, params: Any, key: Any, budget: int) -> tuple[Any, str]:
        """Lower the learning rate on every plateau until the last; what is wrong with the end."""
        momentum = self.program.optimiser.init(params)
        rate, best, answer, converged = self.rate, self.value(params), params, False
        idle = 0
        while self.steps < budget and not converged:
            params, momentum, average, finite = self._window(
                params, momentum, random.fold_in(key, self.steps), rate
            )
            value = self.value(average)
            self._record(value, rate)
            gained = best - value
            if np.isfinite(value) and value <= best:
                best, answer = value, average
            idle = 0 if gained > max(self.tol, 1e-7 * abs(best)) else idle + 1
            if idle == PATIENCE:
                converged = rate <= LAST_RATE * self.rate
                rate, idle, params = rate * DECAY, 0, answer
            if finite < 0.5 or (converged and not np.isfinite(value)):
                raise ValueError(self._explain(average))
        if converged:
            return answer, ""
        return answer, (
            f"J still fell by more than tol={self.tol} in {self.steps} steps. Allow more steps=, "
            "raise tol=, or give start= or a guide closer to the posterior."
        )

    def check_polish(self, params: Any) -> None:
        """Refuse what Newton's method cannot do before any time is spent."""
        if _size(params) > MOST_PARAMETERS:
            raise ValueError(
                f"polish holds a Hessian of all parameters, and the guide has {_size(params)}, "
                f"more than {MOST_PARAMETERS}. Leave polish=0, or use guide='meanfield'."
            )
        jax.eval_shape(self.program._fixed, params, self.judges[0], self.traced, self.arrays)

    def polished(self, params: Any, key: Any, num_draws: int) -> tuple[Any, str]:
        """Newton's method on fixed draws, kept if other draws find it no worse."""
        size = _size(params)
        keys = random.split(key, -(-num_draws // CHUNK))
        given = (keys, self.traced, self.arrays)
        end = newton(
            lambda params: self.program.fixed_value_and_gradient(params, *given),
            lambda params: self.program.fixed_hessian(params, *given),
            params,
            self.units,
            self.tol / 100,
            self._report_newton,
        )
        # other draws than those on which ``params`` was the best of many
        fresh = random.split(random.fold_in(key, 1), JUDGES)
        rise = np.asarray(self._judged(end.params, fresh) - self._judged(params, fresh))
        if not rise.mean() <= self.tol + 3 * rise.std() / np.sqrt(len(rise)):
            return params, (
                f"polish lowered J on its own {len(keys) * CHUNK} draws and raised it on others, "
                f"so it was not kept. The guide has {size} parameters: give polish= more draws."
            )
        return end.params, "" if end.converged else "polishing ran out of steps; raise tol=."

    def value(self, params: Any) -> float:
        """J on the common draws, comparable between iterates."""
        return float(jnp.mean(self._judged(params, self.judges)))

    def _judged(self, params: Any, keys: Iterable[Any]) -> Any:
        given = (self.traced, self.arrays)
        parts = [self.program.draws(params, key, *given).objective for key in keys]
        return jnp.concatenate(parts)

    def _window(self, params: Any, momentum: Any, key: Any, rate: float) -> Any:
        result = self.program.window(
            params, self.units, momentum, key, rate, self.traced, self.arrays
        )
        self.steps += WINDOW
        return result

    def _record(self, value: float, rate: float) -> None:
        row = {"step": float(self.steps), "value": value, "learning_rate": rate}
        for name, entry in row.items():
            self.history[name].append(entry)
        self.report(row)

    def _report_newton(self, step: int, value: float, promised: float) -> None:
        self.report({"newton_step": float(step), "value": value, "gain": promised})

    def _explain(self, params: Any) -> str:
        terms = self.program.draws(params, self.judges[0], self.traced, self.arrays)
        bad = [f"the KL of {b!r}" for b, v in terms.kl.items() if b in self.traced and _bad(v)]
        bad = (["the loss"] if _bad(terms.loss) else []) + bad or ["a gradient"]
        share = float(np.mean(~np.isfinite(terms.objective)))
        return (
            f"{' and '.join(bad)} is not finite in {share:.0%} of the draws from the guide. Check "
            "the data for NaN and the priors for values where the loss is infinite; a smaller "
            "learning_rate= or other start= may keep the guide away from them."
        )


def _check_settings(guide: Any, steps: Any, num_particles: int, restarts: int, polish: int) -> int:
    if isinstance(guide, str) and guide not in ("auto", *GUIDE_KINDS):
        allowed = ("auto", *GUIDE_KINDS)
        raise ValueError(f"guide is {guide!r}, but it must be one of {allowed} or a callable.")
    if steps != "auto" and not (isinstance(steps, int) and steps > 0):
        raise ValueError(f"steps is {steps!r}, but it must be 'auto' or a positive integer.")
    for name, number in {"num_particles": num_particles, "restarts": restarts}.items():
        if number < 1:
            raise ValueError(f"{name} is {number}, but it must be at least 1.")
    if isinstance(polish, bool) or not (isinstance(polish, int) and polish >= 0):
        raise ValueError(f"polish is {polish!r}, but it must be a number of draws, or 0 for none.")
    return MOST_STEPS if steps == "auto" else int(steps)


def _check_whole_plates(sites: Any) -> None:
    for name, site in sites.items():
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            raise ValueError(
                f"polish needs all rows of plate {name!r}, which is subsampled. Leave polish=0, or "
                "fit without subsampling."
            )


def _names(members: str | Iterable[str]) -> tuple[str, ...]:
    return (members,) if isinstance(members, str) else tuple(members)


def _overwrite(params: dict[str, Any], start: Mapping[str, Any] | None) -> dict[str, Any]:
    unknown = [name for name in start or {} if name not in params]
    if unknown:
        raise ValueError(f"start names {unknown}, but the guide's parameters are {list(params)}.")
    return {**params, **jax.tree.map(lambda value: jnp.asarray(value, float), dict(start or {}))}


def _size(params: Any) -> int:
    return sum(x.size for x in jax.tree.leaves(params))


def _bad(values: Any) -> bool:
    return not bool(np.all(np.isfinite(values)))
