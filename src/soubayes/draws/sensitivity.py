"""Which prior a conclusion hangs on, from posterior draws that are there already."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from soubayes._docstrings import fill_docstrings
from soubayes._files import atomic_path
from soubayes._optional import explain_missing_extra, require
from soubayes._types import Axes, DrawsOf
from soubayes.blackbox.arguments import DRAWS_ARGUMENTS
from soubayes.draws.forms import as_tree
from soubayes.draws.known import Draws, check_statistics, from_arviz
from soubayes.draws.pymc_model import is_pymc, pymc_groups
from soubayes.draws.ratios import Ratios, ratios
from soubayes.draws.scores import prior_scores, surprise
from soubayes.draws.stan import is_program, program_order
from soubayes.results import Printable, Shown, coordinates
from soubayes.threads import SMALL, solver_threads

MOST_GAP = 1.0  # nats by which a density of the last block may miss its known shape
SURELY = 4.0  # standard errors below 0 at which a KL cannot be one
SURPRISE = 0.055  # two-sided; of data sets drawn from the prior as many are called a conflict
CONFLICT = "prior-data conflict"
UNCERTAIN = "too uncertain: draw more"
LIKELIHOOD = "likelihood"  # the row of its power
SHORT = 10  # quantities of the short table
LARGE_MOVE = 0.1  # posterior sds that a mean moves with a log confidence or a power of the prior


@fill_docstrings(DRAWS_ARGUMENTS)
def sensitivity(
    draws: DrawsOf,
    model: Any = None,
    *args: Any,
    order: Sequence[str] | None = None,
    groups: Mapping[str, Iterable[str]] | None = None,
    quantities: Mapping[str, np.ndarray] | Sequence[str] | None = None,
    quantiles: float | Sequence[float] = (0.05, 0.95),
    **kwargs: Any,
) -> "Sensitivity":
    r"""How a posterior moves with the confidence in each of its priors, from draws.

    Parameters
    ----------
    quantities : sequence of str, or mapping of str to array, optional
        What to report: names among the draws, or values at every draw, of shape (draw, ...) or
        (chain, draw, ...). All draws by default.
    quantiles : sequence of float, default=(0.05, 0.95)
        Levels whose derivatives are reported beside those of mean and sd.

    Returns
    -------
    sensitivity : Sensitivity
        Tables of derivatives and of blocks, with errors and a diagnosis in words.

    See Also
    --------
    reweight : The posterior at other confidences, from the same draws.

    Notes
    -----
    Theorem 1 of [1]_, differentiated where all confidences are 1, gives

    .. math::

        \frac{d E[f]}{d \gamma_k} = -\mathrm{Cov}(f, r_k), \qquad
        r_k = \log p(\theta_k \mid \theta_{<k}, y) - \log \pi(\theta_k \mid \theta_{<k}).

    Summed over the blocks, :math:`r_k` is the log likelihood and a constant. So the derivatives of
    a quantity add up to minus its derivative by the power of the likelihood.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     x = numpyro.sample("x", dist.Normal(mu, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
    >>> rng = np.random.default_rng(0)  # y = 3: (mu, x) is normal
    >>> mu = rng.normal(1.0, np.sqrt(2 / 3), 4000)
    >>> x = rng.normal((mu + 3) / 2, np.sqrt(1 / 2))
    >>> found = sensitivity({"mu": mu, "x": x}, model, 3.0, quantities=["mu"])
    >>> found.derivatives["block"].tolist()
    ['mu', 'x', 'likelihood']
    >>> found.derivatives["mean"].round(1).tolist()  # more confidence in its prior lowers mu
    [-0.8, 0.4, 0.4]
    >>> found.sentence().partition(":")[0]
    'Conclusions depend most on the prior of mu'
    """
    levels = tuple(np.ravel(quantiles))
    if not all(0 < p < 1 for p in levels):
        raise ValueError(f"quantiles is {quantiles}, but each must lie between 0 and 1.")
    found = known_draws(draws, model, args, kwargs, order, groups)
    wanted = _columns(found, quantities)
    with solver_threads(SMALL):
        estimate = ratios(found)
        table = _derivatives(found, estimate, wanted, levels)
        return Sensitivity(table, *_blocks(found, estimate, wanted, table))


@dataclass(frozen=True, repr=False)
class Sensitivity(Printable):
    """What :func:`sensitivity` found.

    Parameters
    ----------
    derivatives : pandas.DataFrame
        A row for each quantity and block: derivatives of mean, sd and quantiles by the confidence
        of the block, in posterior standard deviations of the quantity, each with its standard
        error. The row "likelihood" has the derivatives by the power of the likelihood, which are
        minus the sum of the others.
    blocks : pandas.DataFrame
        A row for each block: its KL in nats with its standard error (NaN where the draws do not
        give the density of the last block, or where its log prior is not normalised), the largest
        change of a mean or sd by its confidence and by the power of its prior, and a diagnosis.
    notes : tuple of str
        Why a KL is missing.

    Notes
    -----
    The diagnosis compares the two changes, as power scaling does [1]_. If both the confidence and
    the power of the prior move a mean, prior and data both matter. It is a "prior-data conflict"
    only if, besides, the posterior is further out in the prior than data drawn from that prior
    would take it in about 93 of 100 cases.

    References
    ----------
    .. [1] N. Kallioinen, T. Paananen, P.-C. Bürkner and A. Vehtari (2024), "Detecting and
       diagnosing prior and likelihood sensitivity with power-scaling", Statistics and Computing 34.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"block": ["mu"], "diagnosis": ["informed by the data"]})
    >>> Sensitivity(table, table).blocks["block"].tolist()
    ['mu']
    """

    derivatives: pd.DataFrame
    blocks: pd.DataFrame
    notes: tuple[str, ...] = ()

    def _shown(self) -> Shown:
        notes = [f"{note}\n" for note in self.notes]
        title = (
            "Change of a posterior mean by a unit of each confidence, in posterior sds (* within"
        )
        title += " two standard errors of 0):"
        return [f"{self.sentence()}\n", self.blocks, "", *notes, title, self._short()]

    def sentence(self) -> str:
        """Say in a sentence or two which priors the conclusions depend on.

        Returns
        -------
        words : str
            Conflicts of prior and data, and the largest change of a mean that is certain.
        """
        conflicts = list(self.blocks["block"][self.blocks["diagnosis"] == CONFLICT])
        words = [f"The data are in conflict with the prior of {name}." for name in conflicts]
        unclear = list(self.blocks["block"][self.blocks["diagnosis"] == UNCERTAIN])
        rows = self.derivatives[self.derivatives["block"] != LIKELIHOOD]
        certain = abs(rows["mean"]) - 2 * rows["mean_se"]
        if len(rows) and certain.max() > LARGE_MOVE:
            row = rows.loc[certain.idxmax()]
            direction = "raises" if row["mean"] > 0 else "lowers"
            words.append(
                f"Conclusions depend most on the prior of {row['block']}: more confidence in it "
                f"{direction} the mean of {row['quantity']}, by {abs(row['mean']):.2f} ± "
                f"{row['mean_se']:.2f} posterior sds for a unit."
            )
        elif not unclear:
            words.append(f"No confidence moves a mean by more than {LARGE_MOVE} posterior sds.")
        if unclear:
            words.append(f"For {', '.join(unclear)} the draws are too few to tell.")
        return " ".join(words)

    def _short(self) -> pd.DataFrame:
        """Quantities by blocks: the changes of means, for the quantities that move most."""
        rows = self.derivatives
        marks = np.where(abs(rows["mean"]) < 2 * rows["mean_se"], "*", "")
        cells = rows["mean"].map("{:.2f}".format) + marks
        table = rows.assign(cell=cells).pivot(index="quantity", columns="block", values="cell")
        moved = abs(rows["mean"]).groupby(rows["quantity"]).max()
        scalar = ~moved.index.str.contains("[", regex=False)
        # numbers first, then the coordinates that move most
        ranked = moved.index[np.lexsort((-moved, ~scalar))][:SHORT]
        table = table.loc[ranked, list(dict.fromkeys(rows["block"]))].reset_index()
        table.columns.name = None
        return table

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the sentence, the tables and the figure as one page (extras ``cli``, ``plot``).

        Parameters
        ----------
        path : str or path-like
            The file. It needs no other file and no network.
        """
        from soubayes.pages.sensitivity import sensitivity_page

        page = sensitivity_page(self)
        with atomic_path(path) as temporary:
            temporary.write_text(page, encoding="utf-8")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the derivative of every mean by every confidence, with two standard errors.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ax : matplotlib.axes.Axes
            One row for each quantity, one colour for each block.
        """
        pyplot = require("matplotlib.pyplot", "Sensitivity.plot")
        quantities = list(dict.fromkeys(self.derivatives["quantity"]))
        blocks = list(self.blocks["block"])
        if ax is None:
            ax = pyplot.subplots(figsize=(6, 1 + 0.3 * len(quantities)), layout="constrained")[1]
        for i, block in enumerate(blocks):
            rows = self.derivatives["block"] == block
            height = np.arange(len(quantities)) + (i - (len(blocks) - 1) / 2) * 0.7 / len(blocks)
            mean, error = self.derivatives["mean"][rows], self.derivatives["mean_se"][rows]
            ax.errorbar(mean, height, xerr=2 * error, fmt="o", ms=4, capsize=2, label=block)
        ax.axvline(0.0, color="0.6", lw=1, zorder=0)
        ax.set_yticks(range(len(quantities)), quantities)
        ax.invert_yaxis()
        ax.set_xlabel("change of the posterior mean by a confidence (posterior sds)")
        ax.legend(title="confidence of", frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        return ax


def known_draws(
    draws: Any,
    model: Any,
    args: tuple,
    kwargs: Mapping[str, Any],
    order: Sequence[str] | None,
    groups: Mapping[str, Iterable[str]] | None,
) -> Draws:
    """Draws with prior and likelihood, from the model or from what comes with the draws."""
    draws, blocks = as_tree(draws), groups or {}
    if order is not None and (is_program(order) or is_pymc(order)):
        raise ValueError("order is a model or a program. Pass it as the model, after the draws.")
    order = [order] if isinstance(order, str) else order
    if is_program(model) or is_pymc(model):
        if order is not None or args or kwargs:
            raise ValueError("order and further arguments are not for models of PyMC or Stan.")
        if is_program(model):
            return from_arviz(draws, None, blocks, program_order(model))
        check_statistics(draws)
        with explain_missing_extra("draws of a PyMC model"):
            arrays, sites = pymc_groups(draws, model)
        return from_arviz(as_tree(arrays), None, blocks, sites)
    if model is None:
        if args or kwargs:
            given = [*(["positional ones"] if args else []), *kwargs]
            raise ValueError(
                f"arguments of a model were given ({', '.join(given)}), but no model. Pass the "
                "model before them, or correct the name."
            )
        if isinstance(draws, dict) or hasattr(draws, "get_samples"):
            raise ValueError(
                "these draws say nothing of priors and likelihood. Pass the model as well (for "
                "NumPyro with its arguments), or draws with log_prior and log_likelihood: an ArviZ "
                "object, or a dictionary of the three with DataFrames or dictionaries of arrays."
            )
        return from_arviz(draws, order, blocks)
    if not callable(model):
        raise ValueError(
            f"model is a {type(model).__name__}, but it must be a model of PyMC or Bambi, a "
            "NumPyro model (a function; its arguments follow it), or a Stan program (its text, or "
            "its Path)."
        )
    if order is not None:
        raise ValueError("order is for draws without a model; a model has its own order.")
    with explain_missing_extra("draws of a NumPyro model"):
        from soubayes.draws.model_draws import from_model
    return from_model(draws, model, args, dict(kwargs), blocks)


def covariances(draws: Draws, functions: np.ndarray, r: np.ndarray) -> tuple[Any, Any]:
    """Covariances of (draw, function) with r, and their standard errors by batch means."""
    each = (functions - functions.mean(axis=0)) * (r - r.mean())[:, None]
    return each.mean(axis=0), standard_error(draws, each)


def standard_error(draws: Draws, each: np.ndarray) -> np.ndarray:
    """Standard errors of means of (draw, function), by means of batches within chains."""
    size = max(1, int(np.sqrt(draws.length)))
    count = draws.length // size
    chains = each.reshape(draws.chains, draws.length, -1)[:, : count * size]
    means = chains.reshape(draws.chains * count, size, -1).mean(axis=1)
    return np.std(means, axis=0, ddof=1) / np.sqrt(len(means))


def _derivatives(
    draws: Draws, estimate: Ratios, wanted: dict[str, np.ndarray], levels: tuple[float, ...]
) -> pd.DataFrame:
    titles = ["mean", "sd", *(f"q{100 * p:g}" for p in levels)]
    values = np.stack(list(wanted.values()), axis=1)
    sd = values.std(axis=0)
    centred = (values - values.mean(axis=0)) / sd
    functions = [centred, 0.5 * centred**2]  # d sd = d var / (2 sd)
    for p in levels:
        near = np.quantile(centred, [max(p - 0.03, 0.005), p, min(p + 0.03, 0.995)], axis=0)
        share = min(p + 0.03, 0.995) - max(p - 0.03, 0.005)
        # d Q = -d F(Q) / density(Q)
        functions.append((centred > near[1]) * (near[2] - near[0]) / share)
    columns: dict[str, Any] = {"quantity": [], "block": []}
    columns |= {title + end: [] for title in titles for end in ("", "_se")}
    parts = {}
    for title, function in zip(titles, functions, strict=True):
        for block in draws.names:
            parts[title, block] = derivative(draws, estimate, block, function)
        # by the power of the likelihood: minus the sum over the blocks
        parts[title, LIKELIHOOD] = covariances(draws, function, draws.log_likelihood)
    for i, quantity in enumerate(wanted):
        for block in (*draws.names, LIKELIHOOD):
            columns["quantity"].append(quantity)
            columns["block"].append(block)
            for title in titles:
                value, error = parts[title, block]
                columns[title].append(value[i])
                columns[title + "_se"].append(error[i])
    return pd.DataFrame(columns)


def derivative(
    draws: Draws, estimate: Ratios, block: str, functions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """d E[f] / d gamma_k and its standard error: of the draws, and of the estimate of r_k."""
    value, error = covariances(draws, functions, estimate.best[block])
    other = {
        name: covariances(draws, functions, each[block])[0]
        for name, each in estimate.others.items()
    }
    split = (other["first half"] - other["second half"]) / 2
    return 0.0 - value, np.sqrt(error**2 + split**2 + (other["simple"] - value) ** 2)


def _blocks(
    draws: Draws, estimate: Ratios, wanted: dict[str, np.ndarray], table: pd.DataFrame
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    values = np.stack(list(wanted.values()), axis=1)
    standard = (values - values.mean(axis=0)) / values.std(axis=0)
    rows: dict[str, list[Any]] = {
        title: [] for title in ("block", "kl", "kl_se", "by_confidence", "by_prior", "diagnosis")
    }
    notes = []
    for block in draws.names:
        kl, error = kl_of_block(draws, estimate, block)
        if block in draws.flat:
            notes.append(f"The prior of {block!r} is flat: its KL is known up to a constant.")
        elif kl < -SURELY * error:  # the posterior's density is normalised, so the prior's is not
            notes.append(
                f"The log prior of {block!r} is not that of a normalised density: the KL from it "
                f"would be {kl:.2g}. A constant that is missing changes no derivative, but the KL "
                "is unknown and given as nan."
            )
            kl = error = float("nan")
        # a negative estimate within its error
        kl = kl if block in draws.flat else max(kl, 0.0)
        here = table["block"] == block
        confidence = [_largest(table[t][here], table[f"{t}_se"][here]) for t in ("mean", "sd")]
        scores = prior_scores(draws, block)
        log_prior = draws.log_prior[block] if scores is None else scores.log_prior
        prior = [
            _largest(*covariances(draws, function, log_prior))
            for function in (standard, 0.5 * standard**2)
        ]
        rows["block"].append(block)
        rows["kl"].append(kl)
        rows["kl_se"].append(error)
        rows["by_confidence"].append(max(confidence))
        rows["by_prior"].append(max(prior))
        unclear = _unclear(table["mean"][here], table["mean_se"][here])
        surprising = surprise(scores) < SURPRISE
        words = _diagnosis(confidence, prior, surprising)
        words = UNCERTAIN if unclear else words
        rows["diagnosis"].append(words)
    return pd.DataFrame(rows), tuple(notes)


def kl_of_block(draws: Draws, estimate: Ratios, block: str) -> tuple[float, float]:
    """The mean of r_k with its standard error, or NaN where no density is good enough for it."""
    r = estimate.best[block]
    if block != draws.names[-1]:
        error = standard_error(draws, r[:, None])[0]
        first, second, simple = (each[block].mean() for each in estimate.others.values())
        error = np.sqrt(error**2 + (first - second) ** 2 / 4 + (simple - r.mean()) ** 2)
        return float(r.mean()), float(error)
    # the two estimates of the last block should differ by a constant, the log evidence
    gap = r - estimate.last
    if gap.std() > MOST_GAP:
        return float("nan"), float("nan")
    # fitting the draws raises their log density by half the variance that it brings
    excess = 0.5 * (1.4826 * np.median(abs(gap - np.median(gap)))) ** 2
    error = np.hypot(standard_error(draws, estimate.last[:, None])[0], excess)
    return float(estimate.last.mean() - excess), float(error)


def _largest(change: np.ndarray, error: np.ndarray) -> float:
    """The largest change that is more than two standard errors."""
    return float(np.max(np.where(abs(change) > 2 * error, abs(change), 0.0)))


def _unclear(change: np.ndarray, error: np.ndarray) -> bool:
    """Whether the errors hide a large change of some mean, and none is large beyond doubt."""
    return bool(np.any(error > LARGE_MOVE) and not np.any(abs(change) - 2 * error > LARGE_MOVE))


def _diagnosis(confidence: list[float], prior: list[float], surprising: bool) -> str:
    """In words, from the largest changes of a mean and of an sd, and from the prior's surprise."""
    if min(confidence[0], prior[0]) > LARGE_MOVE:
        return CONFLICT if surprising else "informed by prior and data"
    if min(max(confidence), max(prior)) > LARGE_MOVE:
        return "prior and data agree"
    if max(prior) > LARGE_MOVE:
        return "strong prior or weak likelihood"
    return "informed by the data" if max(confidence) > LARGE_MOVE else "no sensitivity"


def _columns(draws: Draws, quantities: Any) -> dict[str, np.ndarray]:
    """Every scalar quantity with its label."""
    if isinstance(quantities, str):
        quantities = [quantities]
    chosen = quantities if isinstance(quantities, Mapping) else {}
    if quantities is None:
        chosen = draws.quantities
    elif not isinstance(quantities, Mapping):
        unknown = [name for name in quantities if name not in draws.quantities]
        if unknown:
            raise ValueError(f"no {unknown[0]!r} in the draws; they have {list(draws.quantities)}.")
        chosen = {name: draws.quantities[name] for name in quantities}
    n = len(draws.log_likelihood)
    found = {}
    for name, given in chosen.items():
        values = np.asarray(given, float)
        if values.shape[:2] == (draws.chains, draws.length):
            values = values.reshape(n, *values.shape[2:])
        if len(values) != n:
            raise ValueError(f"quantity {name!r} has {len(values)} draws, and there are {n}.")
        for i, label in enumerate(coordinates(name, values.shape[1:])):
            column = values.reshape(n, -1)[:, i]
            if np.ptp(column) > 0:  # a constant moves with nothing
                found[label] = column
    if not chosen:
        raise ValueError("quantities is empty; name one, or leave it out for all draws.")
    if not found:
        raise ValueError("every quantity is constant over the draws; name one that varies.")
    return found
