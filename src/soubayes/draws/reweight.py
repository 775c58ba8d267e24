"""The posterior at other confidences by weights on draws at confidence 1."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from soubayes._docstrings import fill_docstrings
from soubayes._optional import require
from soubayes._types import Axes, DrawsOf, Number, Seed
from soubayes.blackbox.arguments import ARGUMENTS, DRAWS_ARGUMENTS, RANGES
from soubayes.confidence import check_confidence, check_mapping
from soubayes.draws.known import Draws
from soubayes.draws.ratios import Ratios, ratios
from soubayes.draws.sensitivity import kl_of_block, known_draws, standard_error
from soubayes.draws.weights import Weights, influence, log_weights, normalised_weights
from soubayes.families import (
    FAMILY_POINTS,
    ConfidenceFamily,
    Look,
    check_ranges,
    middle_of,
    range_points,
)
from soubayes.pareto import pareto_fit, pareto_smoothed, pareto_tail
from soubayes.results import Shown, coordinates
from soubayes.threads import SMALL, solver_threads
from soubayes.weighted import WeightedDraws, interval, weighted_mean

MOST_KHAT = 0.7
LIGHT = (
    10.0  # times the average: with no weight above it, a large k-hat is a poor fit to a short tail
)
FEWEST_EFFECTIVE = 100
PARETO_REACH = 30  # times the draws, for the tail in a standard error of an sd
MOST_WEIGHT_ERROR = 0.2  # of the log weights, in standard deviations over the reweighted draws


@fill_docstrings(DRAWS_ARGUMENTS)
def reweight(
    draws: DrawsOf,
    model: Any = None,
    *args: Any,
    confidence: Mapping[str, float],
    order: Sequence[str] | None = None,
    groups: Mapping[str, Iterable[str]] | None = None,
    **kwargs: Any,
) -> "Reweighted":
    r"""The SoU posterior at other confidences, by weights on draws of Bayes' posterior.

    Parameters
    ----------
    confidence : mapping of str to float
        The confidence of each block, above 0 and finite. A block that is not named has confidence
        1.

    Returns
    -------
    posterior : Reweighted
        The draws with their weights.

    Raises
    ------
    ValueError
        If the weights do not reach: PSIS k-hat exceeds 0.7, fewer than 100 draws are effective, or
        the weights themselves are uncertain.

    See Also
    --------
    sensitivity : Derivatives at confidence 1.
    fit : A fit at any confidence.

    Notes
    -----
    With :math:`r_k` as in :func:`sensitivity`, Theorem 1 of [1]_ gives the weight

    .. math::

        \log w = \sum_k (1/\gamma_k - 1)\, r_k
            + \sum_{k>1} (\gamma_k / \gamma_{k-1} - 1) \log C_k(\theta_{<k}),

    with :math:`C_k` the mean of the exponential of the part of block k given the earlier blocks. It
    is estimated by a regression.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> mu = np.random.default_rng(0).normal(1.0, np.sqrt(0.5), 4000)
    >>> doubted = reweight({"mu": mu}, model, 2.0, confidence={"mu": 0.7})
    >>> bool(abs(doubted.mean("mu") - 2 / 1.7) < 0.05)
    True
    """
    check_mapping(confidence)
    found = known_draws(draws, model, args, kwargs, order, groups)
    gammas = _finite(check_confidence(confidence, list(found.names)))
    with solver_threads(SMALL):
        return _reweighted(found, ratios(found), gammas)


def _finite(gammas: dict[str, float]) -> dict[str, float]:
    outside = {name: gamma for name, gamma in gammas.items() if not 0 < gamma < np.inf}
    if outside:
        raise ValueError(
            f"confidence is {outside}, but weights need finite confidences greater than 0; fit it "
            "with soubayes.fit."
        )
    return gammas


@fill_docstrings(DRAWS_ARGUMENTS + RANGES)
def reweight_family(
    draws: DrawsOf,
    model: Any = None,
    *args: Any,
    confidence: Mapping[str, float | tuple[float, float]],
    order: Sequence[str] | None = None,
    groups: Mapping[str, Iterable[str]] | None = None,
    **kwargs: Any,
) -> "ReweightedFamily":
    r"""The posteriors at all confidences of given ranges, by weights on draws of Bayes' posterior.

    Returns
    -------
    family : ReweightedFamily
        The posterior as a function of the confidences, where the weights hold.

    See Also
    --------
    reweight : The posterior at one set of confidences.
    fit_family : The same by a fit, at confidences that draws do not reach.

    Notes
    -----
    The weights are those of :func:`reweight`, by Theorem 1 of [1]_; what is estimated from the
    draws alone is estimated once.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> mu = np.random.default_rng(0).normal(1.0, np.sqrt(0.5), 4000)
    >>> family = reweight_family({"mu": mu}, model, 2.0, confidence={"mu": (0.7, 1.4)})
    >>> bool(abs(family.at({"mu": 0.7}).mean("mu") - 2 / 1.7) < 0.05)
    True
    """
    ranges = check_ranges(confidence, "soubayes.reweight")
    found = known_draws(draws, model, args, kwargs, order, groups)
    gammas = _finite(check_confidence(middle_of(confidence, ranges), list(found.names)))
    with solver_threads(SMALL):
        return ReweightedFamily(ranges, gammas, found, ratios(found))


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class Reweighted(WeightedDraws):
    """Draws with weights.

    Parameters
    ----------
    confidence : dict of str to float
        The confidence of each block.
    draws : dict of str to ndarray
        The draws.
    weights : ndarray
        Their weights, which sum to 1.
    khat : float
        PSIS k-hat of the weights.
    effective : float
        Effective number of draws.
    weight_error : float
        Standard deviation of the log weights between estimates.
    kl : dict of str to float
        The KL of each block in nats; NaN where the draws do not give it.
    value_change : float
        The value V minus its value at confidence 1, which is minus the log evidence.

    Notes
    -----
    :func:`reweight` returns it. Means under the weights are means of the SoU posterior (Theorem 1
    of [1]_).

    Examples
    --------
    >>> from soubayes import Reweighted
    >>> Reweighted.sample.__name__
    'sample'
    """

    confidence: dict[str, float]
    draws: dict[str, np.ndarray]
    weights: np.ndarray
    khat: float
    effective: float
    weight_error: float
    kl: dict[str, float]
    value_change: float
    _known: Draws
    _parts: Weights
    _simpler: tuple[np.ndarray, ...]  # weights by simpler estimates of r and C

    def _shown(self) -> Shown:
        reach = f"{self.effective:.0f} of {len(self.weights)} draws effective"
        head = f"confidence {self.confidence}, {reach}, k-hat {self.khat:.2f}"
        return [f"Reweighted({head})", self.summary()]

    def mean_se(self, name: str) -> Number:
        """Standard error of the mean, from the draws and from the weights.

        Parameters
        ----------
        name : str
            The quantity.

        Returns
        -------
        standard_error : float or ndarray
            An array of the shape of the quantity.
        """
        return self._error(self._values(name))

    def sd_se(self, name: str) -> Number:
        """Standard error of the standard deviation, from the draws and from the weights.

        Parameters
        ----------
        name : str
            The quantity.

        Returns
        -------
        standard_error : float or ndarray
            An array of the shape of the quantity. Where few draws reach the tails that the
            standard deviation depends on, the error is that of a Pareto distribution fitted to the
            tail of the weighted squares; ``inf`` if it has no mean.
        """
        values, mean, sd = self._values(name), self.mean(name), self.sd(name)
        squares = (values - mean) ** 2
        shape = squares.shape[1:]
        each = len(values) * self.weights[:, None] * squares.reshape(len(squares), -1)
        beyond = np.reshape([_beyond_the_draws(column) for column in each.T], shape)
        # the delta method
        return np.hypot(self._error(squares), beyond) / np.maximum(2 * sd, 1e-300)

    def _error(self, values: np.ndarray) -> np.ndarray:
        """Standard error of a weighted mean: sampling, and what simpler estimates differ by."""
        mean = weighted_mean(self.weights, values)
        n = len(values)
        each = n * self.weights[:, None] * (values - mean).reshape(n, -1)
        each = influence(self._known, self.confidence, self._parts, each)
        sampling = standard_error(self._known, each).reshape(np.shape(mean))
        simpler = [weighted_mean(weights, values) - mean for weights in self._simpler]
        return np.sqrt(sampling**2 + sum(gap**2 for gap in simpler))

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Draw by systematic resampling."""
        rng = np.random.default_rng(random_state)
        points = (np.arange(n) + rng.uniform()) / n
        rows = np.minimum(np.searchsorted(np.cumsum(self.weights), points), len(self.weights) - 1)
        rows = rng.permutation(rows)
        return {name: values[rows] for name, values in self.draws.items()}

    def _columns(self) -> dict[str, Callable[[str], Any]]:
        errors = {"mean": self.mean, "mean_se": self.mean_se, "sd": self.sd, "sd_se": self.sd_se}
        return {**errors, **interval(self.quantile)}

    def _about(self) -> dict[str, Any]:
        return {"khat": self.khat}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: values.shape[1:] for name, values in self.draws.items()}

    def _weighted(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        return self._values(name), self.weights

    def _values(self, name: str) -> np.ndarray:
        if name not in self.draws:
            raise ValueError(f"no {name!r} in the draws; they have {list(self.draws)}.")
        return self.draws[name]


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class ReweightedFamily(ConfidenceFamily):
    """The posteriors at all confidences of given ranges, from draws of Bayes' posterior.

    Notes
    -----
    :func:`reweight_family` returns it; its weights are those of Theorem 1 of [1]_. In ``path`` and
    on the page of ``to_html`` the value is a difference to its value at confidence 1, and nothing
    is shown where the weights do not hold.

    Examples
    --------
    >>> from soubayes import ReweightedFamily
    >>> ReweightedFamily.at.__name__
    'at'
    """

    _known: Draws
    _ratios: Ratios

    def at(self, confidence: Mapping[str, float] | None = None) -> Reweighted:
        """The posterior at one set of confidences.

        Returns
        -------
        posterior : Reweighted
            The draws with their weights.

        Raises
        ------
        ValueError
            If the weights do not hold there.
        """
        with solver_threads(SMALL):
            return _reweighted(self._known, self._ratios, self._inside(confidence or {}))

    def curve(
        self,
        name: str,
        quantity: str,
        points: int | Sequence[float] = FAMILY_POINTS,
        refit: Callable[[dict[str, float]], Any] | None = None,
    ) -> pd.DataFrame:
        """Follow a quantity along the confidence of one block, with its error.

        Parameters
        ----------
        name : str
            The block.
        quantity : str
            A quantity, or one of its coordinates such as ``"theta[0]"``.
        points : int or sequence of float, default=9
            The confidences, or how many, evenly spaced in the logarithm.
        refit : callable, optional
            What fits the model at confidences that the draws do not reach, with ``mean`` and ``sd``
            of a quantity: for a NumPyro model ``lambda c: fit(model, *args, confidence=c)``. It is
            called once for each end of the range that is not reached.

        Returns
        -------
        table : pandas.DataFrame
            A row for each confidence: mean and sd with their standard errors, and ``source``:
            ``"draws"`` where the weights hold, ``"refit"``, ``"joined"`` in between (linear in the
            log confidence, with the error of the draws' end), or ``"not reached"``.
        """
        if name not in self.ranges:
            raise ValueError(f"no range for {name!r}; the ranges are {list(self.ranges)}.")
        places = {
            label: (site, i)
            for site, shape in self._shapes().items()
            for i, label in enumerate(coordinates(site, shape))
        }
        if quantity not in places:
            raise ValueError(f"no quantity {quantity!r}; there are {list(places)}.")
        site, i = places[quantity]
        titles = ("mean", "mean_se", "sd", "sd_se")
        rows = []
        for gamma in range_points(self.ranges[name], points):
            gammas = self._inside({name: gamma})
            look = self._look(gammas)
            numbers = [float("nan")] * 4
            if look is not None:
                numbers = [np.ravel(getattr(look.posterior, t)(site))[i] for t in titles]
            source = "not reached" if look is None else "draws"
            row: dict[str, Any] = {"confidence": gamma, **dict(zip(titles, numbers, strict=True))}
            rows.append({**row, "source": source})
        table = pd.DataFrame(rows)
        if refit is not None:
            for end in (0, len(table) - 1):
                if table.loc[end, "source"] == "not reached":
                    found = refit(self._inside({name: float(table.loc[end, "confidence"])}))
                    ends = {t: float(np.ravel(getattr(found, t)(site))[i]) for t in ("mean", "sd")}
                    table.loc[end, ["mean", "sd", "source"]] = [*ends.values(), "refit"]
            _join(table)
        return table

    def plot_curve(
        self,
        name: str,
        quantity: str,
        points: int | Sequence[float] = FAMILY_POINTS,
        refit: Callable[[dict[str, float]], Any] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the mean of a quantity along a confidence, with two standard errors.

        Parameters
        ----------
        name : str
            The block.
        quantity : str
            As in ``curve``.
        points : int or sequence of float, default=9
            As in ``curve``.
        refit : callable, optional
            As in ``curve``.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ax : matplotlib.axes.Axes
            A line where the weights hold, points for refits, dashes that join the two, and grey
            where nothing is known.
        """
        table = self.curve(name, quantity, points, refit)
        if ax is None:
            pyplot = require("matplotlib.pyplot", "ReweightedFamily.plot_curve")
            ax = pyplot.subplots(figsize=(6, 3.5), layout="constrained")[1]
        gamma, source = table["confidence"], table["source"]
        known, error = table[source == "draws"], 2 * table["mean_se"]
        low, high = table["mean"] - error, table["mean"] + error
        ax.plot(gamma, table["mean"], "--", color="C0", lw=1)
        ax.plot(known["confidence"], known["mean"], color="C0", label="from the draws")
        ax.fill_between(gamma, low, high, where=source == "draws", color="C0", alpha=0.25, lw=0)
        again = table[source == "refit"]
        if len(again):
            ax.plot(again["confidence"], again["mean"], "o", color="C1", label="fitted again")
        missing = gamma[source == "not reached"]
        for x in missing:
            ax.axvline(x, color="0.85", lw=4, zorder=0)
        ax.set_xscale("log")
        ax.set_xlabel(f"confidence in {name}")
        ax.set_ylabel(f"mean of {quantity}")
        ax.legend(frameon=False)
        return ax

    def _look(self, gammas: dict[str, float]) -> Look | None:
        try:
            found = self.at({block: gammas[block] for block in self.ranges})
        except Unreached:
            return None
        return Look(found, found.value_change, found.kl, "")

    def _weighted(self, posterior: Reweighted, name: str) -> tuple[np.ndarray, np.ndarray]:
        return posterior._weighted(name)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: values.shape[1:] for name, values in self._known.quantities.items()}


def _join(table: pd.DataFrame) -> None:
    """Fill what lies between the draws and a refit, linear in the log confidence."""
    log = np.log(table["confidence"].to_numpy())
    known = np.flatnonzero(table["source"].isin(["draws", "refit"]))
    inside = (np.arange(len(table)) > known.min()) & (np.arange(len(table)) < known.max())
    gaps = np.flatnonzero(inside & (table["source"] == "not reached"))
    for title in ("mean", "mean_se", "sd", "sd_se"):
        values = table[title].to_numpy()
        here = known[np.isfinite(values[known])]
        table.loc[gaps, title] = np.interp(log[gaps], log[here], values[here])
    table.loc[gaps, "source"] = "joined"


def _beyond_the_draws(each: np.ndarray) -> float:
    """Error of a mean of positive numbers that their tail adds to the sampling error.

    If the largest of n draws are smaller than usual, so is their sample variance, and a mean that
    is too small has a standard error that is too small. So the tail is replaced by the Pareto
    distribution that it follows, up to what thirty times as many draws would reach: its variance
    in excess of that of the draws, and the difference of the means as a bias. Infinite where that
    distribution has no mean.
    """
    n, count = len(each), pareto_tail(len(each))
    largest = np.sort(each)[-count - 1 :]
    excess = largest[1:] - largest[0]
    if excess[0] <= 0 or np.ptp(excess) <= 1e-12 * largest[-1]:
        return 0.0
    khat, scale = pareto_fit(excess)
    if khat >= 1:
        return float("inf")
    levels = (np.arange(PARETO_REACH * count) + 0.5) / (PARETO_REACH * count)
    tail = scale * np.expm1(-khat * np.log1p(-levels)) / khat
    missing = count / n * (tail.mean() - excess.mean())
    squares = np.mean((largest[0] + tail) ** 2) - np.mean(largest[1:] ** 2)
    return float(np.sqrt(missing**2 + max(count / n * squares, 0.0) / n))


class Unreached(ValueError):
    """Confidences where the weights do not hold."""


def _reweighted(draws: Draws, estimate: Ratios, gammas: dict[str, float]) -> Reweighted:
    parts = log_weights(draws, gammas, estimate.best)
    others = [log_weights(draws, gammas, r).log_weight for r in estimate.others.values()]
    others.append(log_weights(draws, gammas, estimate.best, simple=True).log_weight)
    log_weight = parts.log_weight
    khat = pareto_smoothed(log_weight)[1]
    weights = normalised_weights(log_weight)
    effective = float(1 / np.sum(weights**2))
    gaps = np.stack([other - log_weight for other in others])
    gaps -= (gaps @ weights)[:, None]
    error = float(np.sqrt(np.max(gaps**2 @ weights)))
    trouble = []
    if khat > MOST_KHAT and weights.max() * len(weights) > LIGHT:
        trouble.append(f"PSIS k-hat is {khat:.2f}, above {MOST_KHAT}")
    if effective < FEWEST_EFFECTIVE:
        trouble.append(f"{effective:.0f} draws are effective, fewer than {FEWEST_EFFECTIVE}")
    if error > MOST_WEIGHT_ERROR:
        trouble.append(f"the log weights are uncertain by {error:.2f}, above {MOST_WEIGHT_ERROR}")
    if trouble:
        raise Unreached(
            f"the draws do not reach the confidences {gammas}: {', and '.join(trouble)}. Fit it "
            "with soubayes.fit."
        )
    # the ratio of the last block is known up to the log evidence, which its KL at 1 gives
    last, r = draws.names[-1], estimate.best
    missing = kl_of_block(draws, estimate, last)[0] - r[last].mean()
    kl = {name: float(weights @ (r[name] + parts.moved[name])) for name in draws.names}
    kl[last] += missing
    # a negative estimate within its error, unless a flat prior leaves a constant free
    kl = {name: x if name in draws.flat else max(x, 0.0) for name, x in kl.items()}
    value_change = parts.value_change - (1 - gammas[last]) * missing
    simpler = tuple(normalised_weights(other) for other in others[2:])  # after those of two halves
    return Reweighted(
        gammas,
        draws.quantities,
        weights,
        khat,
        effective,
        error,
        kl,
        float(value_change),
        draws,
        parts,
        simpler,
    )
