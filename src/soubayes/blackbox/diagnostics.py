"""How far to trust a black-box posterior: what can be said, and what cannot."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jax import random
from numpyro.infer import Predictive
from scipy import stats

from soubayes._docstrings import fill_docstrings
from soubayes._types import Key
from soubayes.blackbox.arguments import ARGUMENTS
from soubayes.blackbox.guides import GUIDE_KINDS, MOST_FLOW
from soubayes.blackbox.posterior import SoUPosterior, as_key, too_small
from soubayes.blackbox.program import abstract_trace, numerics
from soubayes.blackbox.variational import fit
from soubayes.blackbox.verdict import ROUGH, USELESS
from soubayes.exact.posterior import ExactPosterior
from soubayes.feedback import reduced
from soubayes.pareto import pareto_smoothed
from soubayes.results import Printable, Shown

MOST_NESTED = 10  # coordinates for which nested sampling takes about a minute with two blocks


@fill_docstrings()
def diagnose(posterior: SoUPosterior, exact: ExactPosterior | None = None) -> "Diagnosis":
    r"""Measure how far a fit is from the exact answer.

    Parameters
    ----------
    posterior : SoUPosterior
        The fit.
    exact : ExactPosterior, optional
        The result of :func:`solve_exact` or :func:`solve_gaussian` for the same model; the gap in
        value and the errors of mean and sd are then reported too.

    Returns
    -------
    diagnosis : Diagnosis
        The diagnostics; NaN where one does not apply, with the reason in ``notes``.

    Notes
    -----
    At the exact posterior the integrand :math:`L + \sum_k \gamma_k \log(q_k / \pi_k)` is constant
    (Theorem 1 of [1]_). So its standard deviation, ``flatness``, measures the distance in nats at
    any confidences. PSIS k-hat [2]_ needs the density of the target, which is known only if all
    confidences are equal. Where the spread is large, ``notes`` names the next stronger guide.

    References
    ----------
    .. [2] A. Vehtari, D. Simpson, A. Gelman, Y. Yao and J. Gabry (2024), "Pareto smoothed
       importance sampling", Journal of Machine Learning Research 25.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> report = diagnose(fit(model, 2.0, restarts=1))
    >>> bool(report.khat < 0.7 and report.flatness < 0.1)
    True
    """
    if reduced(posterior.eta):
        raise ValueError(
            f"diagnose is about a posterior that minimises J, and with the feedback "
            f"{posterior.eta} it does not. posterior.stages has the verdict of every fit."
        )
    notes = []
    gammas = set(posterior.confidence.values())
    flatness = float(np.std(posterior.integrand))
    if posterior._program.plan.divergence:
        flatness = float("nan")
        notes.append("flatness: not applicable, a block's KL was replaced by another divergence.")
    if len(gammas) == 1 and 0 < min(gammas) < np.inf and not np.isnan(flatness):
        khat = pareto_smoothed(-posterior.integrand / min(gammas))[1]
        if khat > 0.7:
            notes.append(f"k-hat is {khat:.2f}: the guide misses the posterior.")
    else:
        khat = float("nan")
        notes.append(
            "k-hat: not applicable, the target's density is known only for equal confidences and "
            "KL; compare with soubayes.solve_exact where the model is small enough."
        )
    if posterior.verdict in (ROUGH, USELESS):
        notes.append(f"{posterior.verdict}, {posterior.quality.reason}: {_stronger(posterior)}.")
    elif too_small(posterior):
        notes.append(f"the integrand of J varies by {flatness:.2f} nats: {_stronger(posterior)}.")
    if not posterior.converged:
        notes.append("the fit did not converge; everything here is about where it stopped.")
    gap, table = float("nan"), None
    if exact is not None:
        if exact.confidence != posterior.confidence:
            raise ValueError(
                f"exact was solved at {exact.confidence}, the fit at {posterior.confidence}."
            )
        gap = posterior.value - exact.value
        names = [name for name in exact.confidence if name in posterior.draws]
        mean = [np.max(np.abs(posterior.mean(n) - exact.mean(n)) / exact.sd(n)) for n in names]
        ratio = [np.ravel(posterior.sd(n) / exact.sd(n)) for n in names]
        sd = [float(r[np.argmax(abs(np.log(r)))]) for r in ratio]
        table = pd.DataFrame({"block": names, "mean_error_in_sd": mean, "sd_ratio": sd})
    return Diagnosis(khat, flatness, gap, table, tuple(notes))


def _stronger(posterior: SoUPosterior) -> str:
    """What to try next when the family of the guide is too small, of what is feasible."""
    size = sum(int(np.prod(posterior.draws[name].shape[1:])) for name in posterior.owner)
    if posterior.guide in GUIDE_KINDS[:-2] or (
        posterior.guide == "conditional" and size <= MOST_FLOW
    ):
        return f"try guide={GUIDE_KINDS[GUIDE_KINDS.index(posterior.guide) + 1]!r}"
    if posterior.guide not in GUIDE_KINDS:
        return "try guide='flow' in the place of your own"
    if set(posterior.confidence.values()) == {1.0}:
        return "no built-in guide is stronger; let check='nuts' decide, or reparametrise the model"
    if len(posterior.names) <= 2 and size <= MOST_NESTED and not posterior.flat:
        return "no built-in guide is stronger; compare with soubayes.sample_sou"
    return "no built-in guide is stronger; reparametrise the model, or write a guide"


@fill_docstrings()
@dataclass(frozen=True, repr=False)
class Diagnosis(Printable):
    """What :func:`diagnose` found.

    Parameters
    ----------
    khat : float
        PSIS k-hat; below 0.7 is good. ``-inf`` if all weights are equal, as for an exact guide.
    flatness : float
        Standard deviation of the integrand of J, in nats; 0 at the exact answer.
    gap : float
        The value minus the exact value.
    moments : pandas.DataFrame or None
        Errors of means and standard deviations against the exact posterior.
    notes : tuple of str
        Why a diagnostic does not apply, and what to do.

    Notes
    -----
    A number is NaN where the diagnostic does not apply. ``flatness`` rests on Theorem 1 of [1]_.

    Examples
    --------
    >>> Diagnosis(0.1, 0.0, float("nan"), None, ()).khat
    0.1
    """

    khat: float
    flatness: float
    gap: float
    moments: pd.DataFrame | None
    notes: tuple[str, ...]

    def _shown(self) -> Shown:
        khat = "none: all weights are equal" if self.khat == -np.inf else f"{self.khat:.3g}"
        head = f"k-hat {khat}, flatness {self.flatness:.3g}, gap {self.gap:.3g}"
        tables = [] if self.moments is None else [self.moments]
        return [f"Diagnosis({head})", *self.notes, *tables]


@fill_docstrings(ARGUMENTS)
def simulation_based_calibration(
    model: Callable,
    *args: Any,
    observed: Mapping[str, str],
    simulations: int = 100,
    draws: int = 99,
    confidence: Mapping[str, float] | None = None,
    random_state: Key = 0,
    **settings: Any,
) -> pd.DataFrame:
    """Rank prior draws among posterior draws of data that were simulated from them.

    Parameters
    ----------
    model : callable
        A NumPyro model. It is run with None for each observed argument to simulate data.
    observed : mapping of str to str
        For each keyword argument that holds data, the site that is observed there.
    simulations : int, default=100
        Number of simulated data sets.
    draws : int, default=99
        Posterior draws that each prior draw is ranked among.
    confidence : mapping of str to float, optional
        Must be 1 for every block; calibration is a property of Bayes' posterior.
    **settings : object
        Passed on to :func:`fit`; other keywords of the model may be among them.

    Returns
    -------
    table : pandas.DataFrame
        One row for each scalar: the chi-square p-value of uniform ranks, and ``ranks``,
        an array with the rank in each simulation.

    Notes
    -----
    If the fit is right, the ranks are uniform on 0, ..., ``draws`` [1]_. At other confidences
    compare with the exact engine instead.

    References
    ----------
    .. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari and A. Gelman (2018), "Validating
       Bayesian inference algorithms with simulation-based calibration".

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y=None):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> settings = {"observed": {"y": "y"}, "simulations": 5, "draws": 9, "restarts": 1}
    >>> simulation_based_calibration(model, **settings)["ranks"][0].shape
    (5,)
    """
    if any(gamma != 1 for gamma in (confidence or {}).values()):
        raise ValueError(
            f"confidence is {dict(confidence or {})}, but simulation-based calibration holds for "
            "Bayes' posterior only, all confidences 1. Compare with soubayes.solve_exact instead."
        )
    known = {name: settings.pop(name) for name in list(settings) if name not in _FIT_SETTINGS}
    with numerics():
        absent = {**known, **dict.fromkeys(observed)}
        sites = abstract_trace(model, args, absent)
        latent = [
            n for n, s in sites.items() if s["type"] == "sample" and n not in observed.values()
        ]
        key = as_key(random_state)
        prior = Predictive(model, num_samples=simulations)(key, *args, **absent)
    ranks: dict[str, list[Any]] = {name: [] for name in latent}
    for i in range(simulations):
        data: dict[str, Any] = {name: np.asarray(prior[site][i]) for name, site in observed.items()}
        posterior = fit(model, *args, **known, **data, random_state=i, **settings)
        drawn = posterior.sample(draws, random_state=random.fold_in(key, i))
        for name in latent:
            ranks[name].append(np.ravel(np.sum(drawn[name] < np.asarray(prior[name][i]), axis=0)))
    rows, labels = [], []
    for name in latent:
        for j, column in enumerate(np.stack(ranks[name], axis=1)):
            labels.append(name if len(ranks[name][0]) == 1 else f"{name}[{j}]")
            rows.append(column)
    p_values = [_uniform(ranks, draws) for ranks in rows]
    return pd.DataFrame({"block": labels, "p_value": p_values, "ranks": rows})


_FIT_SETTINGS = set(fit.__annotations__) - {"model", "args", "kwargs", "return"}


def _uniform(ranks: np.ndarray, draws: int) -> float:
    bins = max(2, min(10, len(ranks) // 5))
    counts = np.histogram(ranks, bins=np.linspace(-0.5, draws + 0.5, bins + 1))[0]
    return float(stats.chisquare(counts).pvalue)
