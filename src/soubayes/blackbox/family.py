"""One training for all confidences: a guide that takes the confidences as context."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import random
from numpyro.distributions import constraints
from numpyro.handlers import seed

from soubayes._docstrings import fill_docstrings
from soubayes._types import Key
from soubayes.blackbox.arguments import ARGUMENTS, RANGES
from soubayes.blackbox.descent import Settings
from soubayes.blackbox.flat import check_flat
from soubayes.blackbox.mixture import MixturePosterior
from soubayes.blackbox.posterior import SoUPosterior, as_key, by_chunks, evaluate, stage_table
from soubayes.blackbox.program import (
    RANGE,
    LogRange,
    abstract_trace,
    checked_confidence,
    numerics,
    plain_arguments,
)
from soubayes.blackbox.progress import reporting
from soubayes.blackbox.stages import FitRequest
from soubayes.blackbox.variational import check_fit_settings, descended_from, fitted_once
from soubayes.families import (
    FAMILY_POINTS,
    ConfidenceFamily,
    Look,
    check_ranges,
    middle_of,
    range_points,
)
from soubayes.progress import is_watched
from soubayes.results import Printable, Shown
from soubayes.sparse.choice.scoring import predictive_weights

BEYOND = 0.1  # of a range, trained on beyond each end: a network is poor at the ends
SINGLE_ONLY = ("modules", "eta", "feedback", "weight", "guide", "divergence", "polish", "start")
FAMILY_PATIENCE = 12  # windows of a plateau: some confidences learn slowly


@fill_docstrings(ARGUMENTS + RANGES)
def fit_family(
    model: Callable,
    *args: Any,
    confidence: Mapping[str, float | tuple[float, float]],
    groups: Mapping[str, Iterable[str]] | None = None,
    loss: Mapping[str, Callable] | Callable | None = None,
    steps: int | str = "auto",
    learning_rate: float = 0.02,
    tol: float = 1e-4,
    num_particles: int = 64,
    num_draws: int = 4096,
    progress: bool | None = None,
    random_state: Key = 0,
    **kwargs: Any,
) -> "PosteriorFamily":
    r"""Fit the SoU posteriors of a NumPyro model at all confidences of given ranges, at once.

    Parameters
    ----------
    loss : mapping of str to callable, or callable, optional
        Another loss than minus the log likelihood, as in :func:`fit`.
    learning_rate : float, default=0.02
        First learning rate of Adam.
    tol : float, default=1e-4
        As in :func:`fit`.
    num_particles : int, default=64
        Draws for one gradient, each at confidences of its own.
    num_draws : int, default=4096
        Draws of a posterior of the family.
    progress : bool, optional
        Whether to show how far it is; by default on a terminal and in a notebook. Training costs
        about four times a single fit.

    Returns
    -------
    family : PosteriorFamily
        The posterior as a function of the confidences.

    See Also
    --------
    fit : The posterior at one set of confidences.

    Notes
    -----
    The flow guide of :func:`fit` with the log confidences as further context,
    :math:`q(\theta_k \mid \theta_{<k}, \gamma)`, minimises the mean of J (eq. 5 of [1]_) over
    confidences that are log-uniform on the ranges. If the guide is rich enough, the minimum is that
    of J at every confidence.

    The KL of a block that has a range is reported as the derivative of the value by its confidence,
    with the guide moving along. For the exact posterior the two are equal (section 3 of [1]_). An
    error of the guide changes J, and so this derivative, to second order only, but the KL of the
    guide to first order.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> family = fit_family(model, 2.0, confidence={"mu": (0.5, 2.0)}, steps=2000, tol=1e-3)
    >>> print(f"{family.at({'mu': 1.0}).mean('mu'):.1f}")  # 2 / (1 + gamma)
    1.0
    """
    unknown = [name for name in SINGLE_ONLY if name in kwargs]
    if unknown:
        raise TypeError(
            f"{unknown[0]}= is for single fits, and a family does not take it. Use soubayes.fit at "
            "each confidence; a model argument of this name must be passed by position."
        )
    args, kwargs = plain_arguments(args, kwargs)
    ranges = check_ranges(confidence, "soubayes.fit")
    most = check_fit_settings("flow", steps, num_particles, 1, 0, None, num_draws)
    with numerics(), reporting(is_watched() if progress is None else progress) as report:
        settings = Settings(learning_rate, tol, 1, most, 0, num_draws, report, FAMILY_PATIENCE)
        sites = abstract_trace(model, args, kwargs)
        grouped = {b: (s,) if isinstance(s, str) else tuple(s) for b, s in (groups or {}).items()}
        gammas, owner = checked_confidence(middle_of(confidence, ranges), grouped, sites)
        check_flat(seed(model, random.key(0)), sites, owner, args, kwargs)
        key = as_key(random_state)
        request = FitRequest(
            args,
            kwargs,
            "flow",
            grouped,
            loss,
            {},
            num_particles,
            settings,
            key,
            None,
            tuple(LogRange(block, *_widened(limits)) for block, limits in ranges.items()),
        )
        wide = _with_ranges(model, request.ranges)
        traced = abstract_trace(wide, args, kwargs)
        found = fitted_once(
            request, wide, {RANGE: np.inf, **gammas}, traced, {RANGE: RANGE, **owner}
        )
    return PosteriorFamily(ranges, gammas, found, model, request)


@dataclass(frozen=True, repr=False)
class ChosenConfidence(Printable):
    """What `PosteriorFamily.choose` found."""

    best: dict[str, float]
    posterior: SoUPosterior
    mixture: MixturePosterior
    table: pd.DataFrame

    def _shown(self) -> Shown:
        at = ", ".join(f"{block} {value:.4g}" for block, value in self.best.items())
        return [f"ChosenConfidence({at})", self.table]


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class PosteriorFamily(ConfidenceFamily):
    """The posteriors of a model at all confidences of given ranges.

    Notes
    -----
    :func:`fit_family` returns it. The value as a function of the confidences rises in each of them,
    and its derivative by the confidence of a block is the KL of that block (section 3 of [1]_).

    Examples
    --------
    >>> from soubayes import PosteriorFamily
    >>> PosteriorFamily.at.__name__
    'at'
    """

    _found: SoUPosterior
    _model: Callable
    _request: FitRequest

    def at(
        self, confidence: Mapping[str, float] | None = None, *, polish: bool = False
    ) -> SoUPosterior:
        """The posterior at one set of confidences.

        Parameters
        ----------
        polish : bool, default=False
            Whether to go on from here with the confidences fixed, as :func:`fit` would.

        Returns
        -------
        posterior : SoUPosterior
            The posterior, as :func:`fit` returns it, with its verdict.
        """
        gammas = self._inside(confidence or {})
        found = self._found
        logs = jnp.asarray([np.log(gammas[block]) for block in self.ranges])
        inputs = found._inputs._replace(frame={**found._inputs.frame, RANGE: logs})
        params = {n: x for n, x in found.params.items() if n not in found._inputs.frame}
        everything = {RANGE: np.inf, **gammas}
        with numerics():
            if polish:
                posterior = descended_from(
                    self._request, found._program, everything, inputs, params
                )
                return self._without_range(posterior, gammas)
            given, n = (params, everything, inputs), self._request.settings.num_draws
            first, second = (random.fold_in(self._request.key, i) for i in (2, 3))
            # slopes vary far less from draw to draw than KLs: half of the draws are enough
            half = -(-n // 2)
            drawn, slopes = by_chunks(found._program.draws_and_slopes, *given, first, half)
            if n > half:
                rest = by_chunks(found._program.draws, *given, second, n - half)
                drawn = jax.tree.map(lambda *parts: np.concatenate(parts), drawn, rest)
            posterior = evaluate(
                found._program,
                *given,
                drawn,
                converged=found.converged,
                trouble=found.trouble,
                guide=found.guide,
                guide_reason="a family of confidences",
                polished=False,
                history=found.history,
            )
        kl = dict(posterior.kl)
        for block, slope in zip(self.ranges, np.mean(slopes, axis=0), strict=True):
            kl[block] = max(float(slope) / gammas[block], 0.0)
        costs = [gamma * kl[block] for block, gamma in gammas.items() if 0 < gamma < np.inf]
        posterior = replace(posterior, kl=kl, expected_loss=posterior.value - sum(costs))
        return self._without_range(posterior, gammas)

    def choose(self, *args: Any, points: int = FAMILY_POINTS, **kwargs: Any) -> ChosenConfidence:
        """Choose the confidences that predict held-out data best.

        Parameters
        ----------
        *args : object
            Arguments of the model with data that the family has not seen.
        points : int, default=9
            How many confidences of each range to try.
        **kwargs : object
            Keyword arguments of the model.

        Returns
        -------
        chosen : ChosenConfidence
            With the names ``best`` (the confidences), ``posterior`` (there), ``mixture`` (over
            confidences, by how well they predict) and ``table`` (of scores and weights).
        """
        grids = [range_points(limits, points) for limits in self.ranges.values()]
        places = [dict(zip(self.ranges, place, strict=True)) for place in product(*grids)]
        posteriors = [self.at(place) for place in places]
        rows = []
        for posterior in posteriors:
            found = posterior.log_likelihood(*args, **kwargs).values()
            log_p = np.concatenate([v.reshape(len(v), -1) for v in found], axis=1)
            rows.append(np.logaddexp.reduce(log_p, axis=0) - np.log(len(log_p)))
        scores = np.stack(rows, axis=1)
        weights = predictive_weights(scores)
        kept = np.flatnonzero(weights)
        table = pd.DataFrame(places).assign(score=scores.mean(axis=0), weight=weights)
        best = int(np.argmax(scores.mean(axis=0)))
        mixture = MixturePosterior(weights[kept], tuple(posteriors[k] for k in kept))
        return ChosenConfidence(places[best], posteriors[best], mixture, table)

    def _shown(self) -> Shown:
        return [*super()._shown(), self.at().summary()]

    def _look(self, gammas: dict[str, float]) -> Look:
        found = self.at({block: gammas[block] for block in self.ranges})
        return Look(found, found.value, found.kl, found.verdict)

    def _weighted(self, posterior: SoUPosterior, name: str) -> tuple[np.ndarray, np.ndarray]:
        values = posterior.draws[name]
        return values, np.full(len(values), 1 / len(values))

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {n: x.shape[1:] for n, x in self._found.draws.items() if n != RANGE}

    def _without_range(self, posterior: SoUPosterior, gammas: dict[str, float]) -> SoUPosterior:
        """The posterior without the site that holds the confidences."""

        def rest(of: Mapping[str, Any]) -> dict[str, Any]:
            return {name: x for name, x in of.items() if name != RANGE}

        clean = replace(
            posterior,
            confidence=gammas,
            kl=rest(posterior.kl),
            owner=rest(posterior.owner),
            eta=rest(posterior.eta),
            draws=rest(posterior.draws),
            _model=self._model,
        )
        return replace(clean, stages=stage_table([(clean, clean.names)]))


class _Within(dist.Distribution):
    """Uniform on a box, on the scale of its numbers: no bounds for a guide to transform."""

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = constraints.real_vector

    def __init__(self, low: Any, high: Any) -> None:
        self.low, self.high = low, high
        super().__init__((), (len(low),), validate_args=False)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        shape = (*sample_shape, len(self.low))
        return self.low + (self.high - self.low) * random.uniform(key, shape)

    def log_prob(self, value: Any) -> Any:
        return jnp.zeros(jnp.shape(value)[:-1])


def _widened(limits: tuple[float, float]) -> tuple[float, float]:
    low, high = (float(np.log(end)) for end in limits)
    return low - BEYOND * (high - low), high + BEYOND * (high - low)


def _with_ranges(model: Callable, ranges: Sequence[LogRange]) -> Callable:
    low, high = np.array([[r.low, r.high] for r in ranges]).T

    def wide(*args: Any, **kwargs: Any) -> Any:
        numpyro.sample(RANGE, _Within(low, high))
        return model(*args, **kwargs)

    return wide
