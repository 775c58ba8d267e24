"""The posterior at other confidences by weights on draws at confidence 1."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from soubayes._types import DataTree, DrawsOf, Number, Seed
from soubayes.confidence import check_confidence, check_mapping
from soubayes.draws.known import Draws
from soubayes.draws.ratios import PER_FEATURE, polynomials, ratios
from soubayes.draws.sensitivity import known_draws, standard_error
from soubayes.results import coordinates, pareto_smoothed, printed, to_inference_data
from soubayes.threads import SMALL, solver_threads

MOST_KHAT = 0.7
LIGHT = (
    10.0  # times the average: with no weight above it, a large k-hat is a poor fit to a short tail
)
FEWEST_EFFECTIVE = 100
MOST_WEIGHT_ERROR = 0.2  # of the log weights, in standard deviations over the reweighted draws


def reweight(
    draws: DrawsOf,
    model: Callable | None = None,
    *args: Any,
    confidence: Mapping[str, float],
    order: Sequence[str] | Any = None,
    groups: Mapping[str, Iterable[str]] | None = None,
    **kwargs: Any,
) -> "Reweighted":
    r"""The SoU posterior at other confidences, by weights on draws of Bayes' posterior.

    Parameters
    ----------
    draws : MCMC, mapping of str to array, or ArviZ object
        Draws at confidence 1, as in :func:`sensitivity_from_draws`.
    model : callable, optional
        The NumPyro model, for draws without prior and likelihood.
    *args : object
        Positional arguments of the model.
    confidence : mapping of str to float
        The confidence of each block, above 0 and finite. A block that is not named has confidence
        1.
    order : sequence of str, PyMC model, or Stan program, optional
        The blocks of an ArviZ object, outermost first, as in :func:`sensitivity_from_draws`.
    groups : mapping of str to iterable of str, optional
        Sites that form one block under a common name.
    **kwargs : object
        Keyword arguments of the model.

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
    sensitivity_from_draws : Derivatives at confidence 1.
    fit : A fit at any confidence.

    Notes
    -----
    With :math:`r_k` as in :func:`sensitivity_from_draws`, Theorem 1 of [1]_ gives the weight

    .. math::

        \log w = \sum_k (1/\gamma_k - 1)\, r_k
            + \sum_{k>1} (\gamma_k / \gamma_{k-1} - 1) \log C_k(\theta_{<k}),

    with :math:`C_k` the mean of the exponential of the part of block k given the earlier blocks. It
    is estimated by a regression.

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
    >>> mu = np.random.default_rng(0).normal(1.0, np.sqrt(0.5), 4000)
    >>> doubted = reweight({"mu": mu}, model, 2.0, confidence={"mu": 0.7})
    >>> bool(abs(doubted.mean("mu") - 2 / 1.7) < 0.05)
    True
    """
    check_mapping(confidence)
    found = known_draws(draws, model, args, kwargs, order, groups)
    gammas = check_confidence(confidence, list(found.names))
    outside = {name: gamma for name, gamma in gammas.items() if not 0 < gamma < np.inf}
    if outside:
        raise ValueError(
            f"confidence is {outside}, but weights need finite confidences greater than 0; fit it "
            "with soubayes.fit."
        )
    with solver_threads(SMALL):
        estimate = ratios(found)
        log_weight = _log_weights(found, gammas, estimate.best, simple=False)
        others = [_log_weights(found, gammas, r, simple=False) for r in estimate.others.values()]
        others.append(_log_weights(found, gammas, estimate.best, simple=True))
    return _checked(found, gammas, log_weight, others)


@dataclass(frozen=True)
class Reweighted:
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

    Notes
    -----
    :func:`reweight` returns it. Means under the weights are means of the SoU posterior (Theorem 1
    of [1]_).

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

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
    _known: Draws
    _other_weights: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        reach = f"{self.effective:.0f} of {len(self.weights)} draws effective"
        head = f"confidence {self.confidence}, {reach}, k-hat {self.khat:.2f}"
        return f"Reweighted({head})\n{printed(self.summary())}"

    def mean(self, name: str) -> Number:
        """Posterior mean of a quantity.

        Parameters
        ----------
        name : str
            The quantity.

        Returns
        -------
        mean : float or ndarray
            An array of the shape of the quantity.
        """
        return _mean(self.weights, self._values(name))

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
        values = self._values(name)
        mean = self.mean(name)
        each = len(values) * self.weights[:, None] * (values - mean).reshape(len(values), -1)
        error = standard_error(self._known, each).reshape(np.shape(mean))
        own = self._disagreement(values)
        # two halves and a simpler estimate may agree about one mean by chance: what they disagree
        # by about all of them, in standard deviations, is a floor
        floor = self.sd(name) * self._typical_disagreement
        return np.sqrt(error**2 + np.maximum(own, floor) ** 2)

    def _disagreement(self, values: np.ndarray) -> np.ndarray:
        """What estimates of the weights disagree by about a mean, in root mean squares."""
        mean = _mean(self.weights, values)
        first, second, simple, link = (_mean(w, values) for w in self._other_weights)
        # for a linear estimate both halves are off by (first - second) / 2; a bias adds to that
        halves = ((first - mean) ** 2 + (second - mean) ** 2) / 2
        return np.sqrt(halves + (simple - mean) ** 2 + (link - mean) ** 2)

    @cached_property
    def _typical_disagreement(self) -> float:
        """The same in standard deviations, in root mean square over all coordinates."""
        found = [
            np.ravel(self._disagreement(values) / np.maximum(self.sd(name), 1e-300))
            for name, values in self.draws.items()
            if np.all(np.ptp(values, axis=0) > 0)
        ]
        return float(np.sqrt(np.mean(np.concatenate(found) ** 2))) if found else 0.0

    def sd(self, name: str) -> Number:
        """Posterior standard deviation of a quantity.

        Parameters
        ----------
        name : str
            The quantity.

        Returns
        -------
        sd : float or ndarray
            An array of the shape of the quantity.
        """
        values = self._values(name)
        return np.sqrt(_mean(self.weights, (values - self.mean(name)) ** 2))

    def quantile(self, name: str, p: ArrayLike) -> Number:
        """Posterior quantiles of a quantity, coordinate by coordinate.

        Parameters
        ----------
        name : str
            The quantity.
        p : float or array-like
            Probabilities between 0 and 1.

        Returns
        -------
        quantile : float or ndarray
            The quantiles on the first axes, the coordinates on the last.
        """
        values = self._values(name)
        levels = np.asarray(p, float)
        return np.quantile(values, levels, axis=0, weights=self.weights, method="inverted_cdf")

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Draw by systematic resampling.

        Parameters
        ----------
        n : int
            The number of draws.
        random_state : int or Generator, default=0
            The seed.

        Returns
        -------
        draws : dict of str to ndarray
            Draws of every quantity.
        """
        rng = np.random.default_rng(random_state)
        points = (np.arange(n) + rng.uniform()) / n
        rows = np.minimum(np.searchsorted(np.cumsum(self.weights), points), len(self.weights) - 1)
        rows = rng.permutation(rows)
        return {name: values[rows] for name, values in self.draws.items()}

    def to_arviz(self, draws: int = 1000, random_state: Seed = 0) -> DataTree:
        """Export resampled draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, default=1000
            The number of draws.
        random_state : int or Generator, default=0
            The seed.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``.
        """
        return to_inference_data(
            self.sample(draws, random_state), engine="reweight", khat=self.khat
        )

    def summary(self) -> pd.DataFrame:
        """Summarise the posterior in a table.

        Returns
        -------
        table : pandas.DataFrame
            One row for each coordinate: mean with its standard error, sd, central 90 % interval.
        """
        rows: dict[str, list[Any]] = {
            title: [] for title in ("quantity", "mean", "mean_se", "sd", "lower", "upper")
        }
        for name, values in self.draws.items():
            low, high = (np.ravel(self.quantile(name, p)) for p in (0.05, 0.95))
            parts = [np.ravel(f(name)) for f in (self.mean, self.mean_se, self.sd)]
            for i, label in enumerate(coordinates(name, values.shape[1:])):
                rows["quantity"].append(label)
                for title, part in zip(("mean", "mean_se", "sd"), parts, strict=True):
                    rows[title].append(part[i])
                rows["lower"].append(low[i])
                rows["upper"].append(high[i])
        return pd.DataFrame(rows)

    def _values(self, name: str) -> np.ndarray:
        if name not in self.draws:
            raise ValueError(f"no {name!r} in the draws; they have {list(self.draws)}.")
        return self.draws[name]


def _log_weights(
    draws: Draws, gammas: Mapping[str, float], r: Mapping[str, np.ndarray], simple: bool
) -> np.ndarray:
    """log w at every draw, from the last block to the first (see `reweight`)."""
    total = np.zeros(len(draws.log_likelihood))
    after = np.zeros(len(total))  # gamma_{k+1} log C_{k+1}, what the later blocks say
    names = draws.names
    for k in range(len(names) - 1, -1, -1):
        gamma = gammas[names[k]]
        part = (1 / gamma - 1) * r[names[k]]
        total += part
        if k == 0:
            break
        inside = part + after / gamma
        if gamma == gammas[names[k - 1]] == 1 and not np.any(inside):
            after = np.zeros(len(total))
            continue
        log_c = _log_mean_given(draws, names[:k], inside, simple)
        total += (gamma / gammas[names[k - 1]] - 1) * log_c
        after = gamma * log_c
    return total - total.max()


def _log_mean_given(
    draws: Draws, names: tuple[str, ...], log_values: np.ndarray, simple: bool
) -> np.ndarray:
    """log E[e^value | earlier blocks], a polynomial of them, by a regression with a log link."""
    n = len(log_values)
    continuous = [draws.values[name] for name in names if name not in draws.discrete]
    x = np.concatenate(continuous, axis=1) if continuous else np.empty((n, 0))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    features = polynomials(np.clip(x, -4, 4), 2 if simple else 3, n // PER_FEATURE)
    counted = [draws.values[name] for name in names if name in draws.discrete]
    if counted:  # a regression of its own for every combination of discrete values
        levels = np.unique(np.concatenate(counted, axis=1), axis=0, return_inverse=True)[1].ravel()
        result = np.empty(n)
        for level in np.unique(levels):
            here = levels == level
            result[here] = _log_link(features[here], log_values[here])
        return result
    return _log_link(features, log_values)


def _log_link(features: np.ndarray, log_values: np.ndarray) -> np.ndarray:
    """Fitted log means of e^value: Newton's method on the quasi-likelihood, which is concave."""
    top = log_values.max()
    values = np.exp(log_values - top)
    coef = np.zeros(features.shape[1])
    coef[0] = np.log(values.mean())
    penalty = 1e-6 * len(values) * values.mean() * np.eye(len(coef))
    penalty[0, 0] = 1e-12
    for _ in range(100):
        mean = np.exp(np.clip(features @ coef, -60, 30))
        gradient = features.T @ (values - mean) - penalty @ coef
        step = np.linalg.solve(features.T @ (mean[:, None] * features) + penalty, gradient)
        coef = coef + step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    return np.clip(features @ coef, -60, 30) + top


def _checked(
    draws: Draws, gammas: dict[str, float], log_weight: np.ndarray, others: list[np.ndarray]
) -> Reweighted:
    khat = pareto_smoothed(log_weight)[1]
    weights = _normalised(log_weight)
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
        raise ValueError(
            f"the draws do not reach the confidences {gammas}: {', and '.join(trouble)}. Fit it "
            "with soubayes.fit."
        )
    known = tuple(_normalised(other) for other in others)
    return Reweighted(gammas, draws.quantities, weights, khat, effective, error, draws, known)


def _normalised(log_weight: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weight - log_weight.max())
    return weights / weights.sum()


def _mean(weights: np.ndarray, values: np.ndarray) -> Any:
    return np.tensordot(weights, values, axes=1)
