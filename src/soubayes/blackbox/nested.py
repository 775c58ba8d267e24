"""Sampling the exact SoU posterior of Theorem 1 by nested Monte Carlo."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jax import random

from soubayes._docstrings import fill_docstrings
from soubayes._types import Key, Seed
from soubayes.blackbox.arguments import ARGUMENTS
from soubayes.blackbox.blocks import is_scanned
from soubayes.blackbox.flat import flat_blocks
from soubayes.blackbox.levels import Levels
from soubayes.blackbox.modules import check_modules
from soubayes.blackbox.outer import Outer, check_budget
from soubayes.blackbox.posterior import DrawnPosterior, as_key, pointwise
from soubayes.blackbox.program import (
    abstract_trace,
    checked_confidence,
    numerics,
    plain_arguments,
)
from soubayes.progress import progress_line


@fill_docstrings(ARGUMENTS)
def sample_sou(
    model: Callable,
    *args: Any,
    confidence: Mapping[str, float],
    groups: Mapping[str, Iterable[str]] | None = None,
    modules: Mapping[str, Iterable[str]] | None = None,
    eta: Mapping[str, float] | None = None,
    feedback: str = "power",
    weight: Mapping[str, float] | None = None,
    num_draws: int = 1000,
    particles: int = 128,
    inner_particles: int = 64,
    temperatures: int = 8,
    moves: int = 2,
    replicates: int = 4,
    budget: float = 60.0,
    progress: bool = False,
    random_state: Key = 0,
    **kwargs: Any,
) -> "NestedPosterior":
    r"""Draw from the exact SoU posterior of a NumPyro model with two or three blocks.

    Parameters
    ----------
    model : callable
        A NumPyro model with continuous latent sites.
    confidence : mapping of str to float
        The confidence of each block, above 0 and finite. A block that is not named has confidence
        1.
    num_draws : int, default=1000
        Draws to keep, from Metropolis chains that start at the outer particles.
    particles : int, default=128
        Particles of the outer SMC.
    inner_particles : int, default=64
        Particles of each inner SMC. The work grows as ``particles * inner_particles**(blocks -
        1)``.
    temperatures : int, default=8
        Tempering steps of each SMC.
    moves : int, default=2
        Metropolis moves at each temperature.
    replicates : int, default=4
        Independent outer runs, which give the value its standard error.
    budget : float, default=60.0
        Seconds that the sampling may take. The cost is estimated before it begins, and a run that
        would take longer is refused.
    progress : bool, default=False
        Whether to show how far it is.

    Returns
    -------
    posterior : NestedPosterior
        The draws, the value, and the error of the nested estimates.

    Notes
    -----
    The recursion of Theorem 1 of [1]_,

    .. math:: V_{k-1} = -\gamma_k \log \int e^{-V_k / \gamma_k}\, d\pi_k,

    with every integral but the first estimated by tempered SMC whenever an outer move needs it. The
    outer moves are pseudo-marginal [2]_: they are exact for equal confidences. Otherwise the
    variance of the inner estimates biases the answer, by an amount that ``error`` reports.

    References
    ----------
    .. [2] C. Andrieu and G. O. Roberts (2009), "The pseudo-marginal approach for efficient Monte
       Carlo computations", Annals of Statistics 37.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     x = numpyro.sample("x", dist.Normal(mu, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
    >>> settings = {"num_draws": 200, "particles": 64, "inner_particles": 32, "temperatures": 4}
    >>> posterior = sample_sou(model, 2.0, confidence={"mu": 0.5}, **settings)
    >>> bool(abs(posterior.mean("mu") - 0.8) < 0.2)  # 2 / (2 + gamma_mu)
    True
    """
    least = {"replicates": (replicates, 2), "num_draws": (num_draws, 1), "moves": (moves, 1)}
    least |= {"particles": (particles, 2), "inner_particles": (inner_particles, 2)}
    for name, (number, smallest) in {**least, "temperatures": (temperatures, 1)}.items():
        if number < smallest:
            raise ValueError(f"{name} is {number}, but it must be at least {smallest}.")
    args, kwargs = plain_arguments(args, kwargs)
    with numerics():
        sites = abstract_trace(model, args, kwargs)
        grouped = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in (groups or {}).items()}
        gammas, owner = checked_confidence(confidence, grouped, sites)
        _check(gammas, owner, sites)
        parts = check_modules(model, sites, owner, args, kwargs, modules, eta, feedback, weight)
        sizes = (particles, *[inner_particles] * (len(gammas) - 1))
        levels = Levels(model, args, kwargs, gammas, owner, parts, sizes, temperatures, moves)
        rng = np.random.default_rng(np.asarray(random.key_data(as_key(random_state))))
        outer = Outer(levels, replicates, rng)
        check_budget(outer, budget)
        with progress_line("sample_sou: look", outer.looks, progress) as outer.line:
            found = outer.run(num_draws)
    return NestedPosterior(
        confidence=gammas,
        owner=owner,
        eta=parts.feedback.eta,
        **found._asdict(),
        _model=model,
        _arguments=(args, kwargs),
    )


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class NestedPosterior(DrawnPosterior):
    """Draws from the exact SoU posterior, with the error of the nested estimates.

    Parameters
    ----------
    value : float
        J at the posterior, which is its minimum :math:`V_0` unless feedback was reduced; corrected
        to first order for the bias of the inner estimates.
    value_se : float
        Its Monte Carlo standard error joined with the whole of that correction.
    expected_loss : float
        The expected loss.
    kl : dict of str to float
        The KL of each block in nats.
    confidence : dict of str to float
        The confidence of each block.
    owner : dict of str to str
        The block of each latent site.
    eta : dict of str to float
        The feedback of each block to the earlier ones, 1 unless it was reduced.
    draws : dict of str to ndarray
        The draws.
    error : pandas.DataFrame
        For each block the standard deviation of one estimate of its log normaliser, the bias that
        was taken off, and effective sample size, R-hat and acceptance of the chains.

    Attributes
    ----------
    names : tuple of str
        The blocks, in order.

    Notes
    -----
    :func:`sample_sou` returns it. :math:`V_0` is the minimum of J in Theorem 1 of [1]_.

    Examples
    --------
    >>> from soubayes import NestedPosterior
    >>> NestedPosterior.sample.__name__
    'sample'
    """

    error: pd.DataFrame
    _model: Callable
    _arguments: tuple[tuple, dict]

    def _log_likelihood(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        latent = {name: draws[name] for name in self.owner}
        return pointwise(self._model, latent, *self._arguments)

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Take some of the draws, with replacement if there are fewer."""
        have = len(next(iter(self.draws.values())))
        rng = np.random.default_rng(random_state)
        rows = rng.choice(have, size=n, replace=n > have)
        return {name: values[rows] for name, values in self.draws.items()}


def _check(gammas: Mapping[str, float], owner: Mapping[str, str], sites: Any) -> None:
    for block, gamma in gammas.items():
        if gamma == 0 or gamma == float("inf"):
            raise ValueError(
                f"confidence of {block!r} is {gamma}, but sampling needs one greater than 0 and "
                "finite. Use soubayes.fit for points and for blocks kept at their prior."
            )
    if len(gammas) > 3:
        raise ValueError(
            f"the model has {len(gammas)} blocks, {list(gammas)}, and nested sampling is for up to "
            "3. Join some with groups=, or use soubayes.fit."
        )
    scanned = [name for name in owner if is_scanned(sites[name])]
    if scanned:
        raise ValueError(
            f"{scanned} are drawn inside a scan, which nested sampling cannot enter. Use "
            "soubayes.fit, or write the recursion as a Python loop."
        )
    flat = flat_blocks(sites, owner)
    if flat:
        raise ValueError(
            f"the priors of {list(flat)} are flat, and nested sampling starts from draws of the "
            "prior. Use soubayes.fit, or a wide proper prior."
        )
    discrete = [name for name in owner if sites[name]["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"{discrete} are discrete, and nested sampling moves on the real line. Sum them out of "
            "the model (for a mixture: numpyro.distributions.MixtureSameFamily)."
        )
