"""Many confidences: the posterior along a path, and the confidences that meet given KL radii."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from soubayes.confidence import check_confidence, check_gamma
from soubayes.exact.gaussian import GaussianModel
from soubayes.exact.model import Model
from soubayes.exact.posterior import ExactPosterior
from soubayes.exact.solve import solve_exact
from soubayes.results import coordinates

Solver = Callable[[Any, Mapping[str, float]], ExactPosterior]
SMALLEST_GAMMA, LARGEST_GAMMA = 1e-9, 1e9


def confidence_path(
    model: Model | GaussianModel,
    name: str,
    gammas: Sequence[float],
    confidence: Mapping[str, float] | None = None,
    *,
    solve: Solver = solve_exact,
) -> pd.DataFrame:
    r"""Solve a model along the confidence of one block.

    Parameters
    ----------
    model : Model or GaussianModel
        The model; ``solve`` must accept it.
    name : str
        The block whose confidence varies.
    gammas : sequence of float
        Its confidences, in the order of the rows.
    confidence : mapping of str to float, optional
        The confidences of the other blocks. A block that is not named has confidence 1.
    solve : callable, default=solve_exact
        :func:`soubayes.solve_exact` or :func:`soubayes.solve_gaussian`.

    Returns
    -------
    path : pandas.DataFrame
        One row for each confidence, with the columns ``gamma``, ``value``, ``expected_loss`` and,
        for each block, ``kl_``, ``mean_``, ``sd_``, ``lower_`` and ``upper_`` (5 % and 95 %
        quantiles) followed by its name. A block of several dimensions has a column for each
        coordinate, such as ``mean_theta[0]``.

    Notes
    -----
    The column ``kl_`` of the block is also the slope of ``value``: :math:`dV/d\gamma_k` is the KL
    of block k at the minimiser of eq. 5 of [1]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from scipy import stats
    >>> from soubayes import Block, Model
    >>> model = Model([Block("mu", stats.norm(0, 1))], loss=lambda mu: (mu - 2) ** 2 / 2)
    >>> path = confidence_path(model, "mu", [0.1, 1.0, 10.0])
    >>> path["mean_mu"].round(3).tolist()
    [1.818, 1.0, 0.182]
    """
    if name not in model.names:
        raise ValueError(f"no block {name!r}; the blocks are {list(model.names)}.")
    rows = []
    for gamma in gammas:
        posterior = solve(model, {**(confidence or {}), name: check_gamma(name, gamma)})
        row: dict[str, float] = {
            "gamma": gamma,
            "value": posterior.value,
            "expected_loss": posterior.expected_loss,
        }
        for block in model.names:
            row[f"kl_{block}"] = posterior.kl[block]
            for title, values in {
                "mean": posterior.mean(block),
                "sd": posterior.sd(block),
                "lower": posterior.quantile(block, 0.05),
                "upper": posterior.quantile(block, 0.95),
            }.items():
                names = coordinates(f"{title}_{block}", np.shape(values))
                row |= dict(zip(names, np.ravel(values).tolist(), strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def confidence_for_kl(
    model: Model | GaussianModel,
    radii: Mapping[str, float],
    confidence: Mapping[str, float] | None = None,
    *,
    solve: Solver = solve_exact,
    tolerance: float = 1e-4,
) -> dict[str, float]:
    r"""Find the confidences at which the blocks have given KL divergences.

    Parameters
    ----------
    model : Model or GaussianModel
        The model; ``solve`` must accept it.
    radii : mapping of str to float
        The wanted KL of each block, in nats, at least 0. A radius of 0 gives confidence ``inf``.
    confidence : mapping of str to float, optional
        The confidences of blocks without a radius. A block in neither mapping has confidence 1.
    solve : callable, default=solve_exact
        :func:`soubayes.solve_exact` or :func:`soubayes.solve_gaussian`.
    tolerance : float, default=1e-4
        Relative accuracy of the KL divergences.

    Returns
    -------
    confidence : dict of str to float
        A confidence for every block.

    Notes
    -----
    The SoU posterior (eq. 5 of [1]_) minimises :math:`E_q[L]` subject to :math:`\mathrm{KL}_k \le
    r_k`, with the confidences as Lagrange multipliers. The minimum V is concave in the confidences
    and its gradient is :math:`\mathrm{KL}_k`, so the confidences maximise :math:`V(\gamma) - \sum_k
    \gamma_k r_k`. They are found one at a time, in rounds.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from scipy import stats
    >>> from soubayes import Block, Model, solve_exact
    >>> model = Model([Block("mu", stats.norm(0, 1))], loss=lambda mu: (mu - 2) ** 2 / 2)
    >>> found = confidence_for_kl(model, {"mu": 0.1})
    >>> round(solve_exact(model, found).kl["mu"], 4)
    0.1
    """
    gammas = check_confidence(confidence, model.names)
    check_radii(radii, gammas, confidence or {})
    gammas |= {name: np.inf for name, radius in radii.items() if radius == 0}
    wanted = {name: radius for name, radius in radii.items() if radius > 0}
    for sweep in range(50):
        kl = solve(model, gammas).kl
        off = {k: abs(kl[k] / radius - 1.0) for k, radius in wanted.items()}
        if max(off.values(), default=0.0) <= tolerance:
            return gammas
        accuracy = tolerance / 10 if sweep else min(0.05, tolerance * 10)
        for name, radius in wanted.items():
            if off[name] > tolerance / 4 or sweep == 0:
                gammas[name] = match_radius(model, name, radius, gammas, solve, accuracy)
    raise RuntimeError(
        f"the KL terms {kl} did not settle at the radii {dict(radii)} in 50 rounds; loosen "
        "tolerance, or check that all radii can be met together."
    )


def match_radius(
    model: Model | GaussianModel,
    name: str,
    radius: float,
    gammas: Mapping[str, float],
    solve: Solver,
    accuracy: float,
) -> float:
    """The gamma of one block at which its KL equals a radius, the others held fixed."""

    def excess(log_gamma: float) -> float:
        kl = solve(model, {**gammas, name: float(np.exp(log_gamma))}).kl[name]
        return float(np.log(max(kl, 1e-300) / radius))

    edge = float(np.log(gammas[name])) if np.isfinite(gammas[name]) else 0.0
    here = excess(edge)
    step = 2.0 if here > 0 else -2.0  # a larger gamma lowers the KL
    inside = edge
    while here * step > 0:
        inside, edge = edge, edge + step
        if not np.log(SMALLEST_GAMMA) <= edge <= np.log(LARGEST_GAMMA):
            raise ValueError(
                f"the KL of block {name!r} cannot be {radius} nats: it is "
                f"{radius * np.exp(here):.4g} at confidence {np.exp(inside):.2g} and stays on that "
                "side. Choose a radius that the loss can move this block to."
            )
        here = excess(edge)
    if inside == edge:
        return float(np.exp(edge))
    low, high = sorted((inside, edge))
    return float(np.exp(brentq(excess, low, high, xtol=accuracy / 2)))


def check_radii(
    radii: Mapping[str, float], gammas: Mapping[str, float], confidence: Mapping[str, float]
) -> None:
    for name, radius in radii.items():
        if name not in gammas:
            raise ValueError(f"radii name {name!r}, but the blocks are {list(gammas)}.")
        if name in confidence:
            raise ValueError(f"block {name!r} has both a radius and a confidence; give one.")
        if not (np.isfinite(radius) and radius >= 0):
            raise ValueError(f"radius of {name!r} is {radius}; it must be a number >= 0 (nats).")
