"""Log ratios of posterior to prior, block by block, estimated from posterior draws.

For block k, r_k = log p(theta_k | theta_<k, y) - log pi(theta_k | theta_<k). The prior is known.
The posterior's density is estimated one coordinate at a time: a location and a log scale that are
polynomials of everything before it, and a smooth density of what is left (Lindsey's method, a
Poisson regression of histogram counts on a natural spline). Discrete blocks are counted. The r_k
add up to the log likelihood and a constant, so the last block needs no density of its own.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from soubayes.blackbox.draws import Draws

PER_FEATURE = 20  # draws that a feature of a regression must have
FEWEST = 100  # draws that a level of a discrete block must have for a density of its own


class Effort(NamedTuple):
    """How flexible an estimate is: degrees of location and log scale, and knots of the density."""

    location: int
    scale: int
    knots: int


FULL = Effort(3, 2, 9)
SIMPLE = Effort(2, 1, 6)  # the difference between the two says what flexibility is worth


class Ratios(NamedTuple):
    """r_k at every draw by block, with the last by difference, and estimates to judge them by."""

    best: dict[str, np.ndarray]
    others: dict[str, dict[str, np.ndarray]]  # "first half", "second half", "simple"
    last: np.ndarray  # the last block by a density of its own, which has its constant


def ratios(draws: Draws) -> Ratios:
    """Estimates of r_k at every draw, from all draws and from each half of them."""
    n = len(draws.log_likelihood)
    half = np.arange(n) % draws.length < draws.length // 2  # the first half of every chain
    every = np.ones(n, bool)
    fits = {
        "best": _ratios(draws, every, FULL),
        "first half": _ratios(draws, half, FULL),
        "second half": _ratios(draws, ~half, FULL),
        "simple": _ratios(draws, every, SIMPLE),
    }
    block = draws.names[-1]
    last = _density(draws, block, every, FULL) - draws.log_prior[block]
    return Ratios(fits.pop("best"), fits, last)


def _ratios(draws: Draws, rows: np.ndarray, effort: Effort) -> dict[str, np.ndarray]:
    found, rest = {}, draws.log_likelihood.copy()
    for block in draws.names[:-1]:
        found[block] = _density(draws, block, rows, effort) - draws.log_prior[block]
        rest -= found[block]
    return {**found, draws.names[-1]: rest}


def _density(draws: Draws, block: str, rows: np.ndarray, effort: Effort) -> np.ndarray:
    """log p(theta_k | theta_<k, y) at every draw, fitted to ``rows``."""
    levels, context = _before(draws, block)
    values = draws.values[block]
    result = np.empty(len(values))
    for level in np.unique(levels):
        here = levels == level
        fitted = here & rows
        if block in draws.discrete:
            result[here] = _frequencies(values[here], values[fitted])
        else:
            result[here] = sum(_coordinates(values[here], context[here], fitted[here], effort))
    return result - draws.log_jacobian[block]


def _before(draws: Draws, block: str) -> tuple[np.ndarray, np.ndarray]:
    """Earlier blocks: a number for each combination of discrete values, and the continuous ones."""
    earlier = draws.names[: draws.names.index(block)]
    n = len(draws.log_likelihood)
    continuous = [draws.values[name] for name in earlier if name not in draws.discrete]
    context = np.concatenate(continuous, axis=1) if continuous else np.empty((n, 0))
    counted = [draws.values[name] for name in earlier if name in draws.discrete]
    levels = np.zeros(n, int)
    if counted:
        table = np.concatenate(counted, axis=1)
        levels = np.unique(table, axis=0, return_inverse=True)[1].ravel()
        if block not in draws.discrete:
            rare = np.bincount(levels) < FEWEST
            levels[rare[levels]] = -1  # together, with a density that they share
    return levels, context


def _frequencies(values: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    names, level = np.unique(values, axis=0, return_inverse=True)
    seen = (fitted[:, None] == names).all(axis=2).sum(axis=0)
    return np.log(np.maximum(seen, 0.5) / max(len(fitted), 1))[level.ravel()]


def _coordinates(
    values: np.ndarray, context: np.ndarray, rows: np.ndarray, effort: Effort
) -> Iterator[np.ndarray]:
    """The log density of every coordinate given the context and the coordinates before it."""
    for column in range(values.shape[1]):
        before = np.concatenate([context, values[:, :column]], axis=1)
        x = values[:, column]
        centre, spread = x[rows].mean(), x[rows].std()
        z, log_scale = _location_scale((x - centre) / spread, before, rows, effort)
        yield _smooth_log_density(z, rows, effort.knots) - log_scale - np.log(spread)


def _location_scale(
    x: np.ndarray, before: np.ndarray, rows: np.ndarray, effort: Effort
) -> tuple[np.ndarray, np.ndarray]:
    """x less a polynomial of what is before it, over a scale that is one too; and its log."""
    if before.shape[1] == 0:
        return x, np.zeros(len(x))
    before = (before - before[rows].mean(axis=0)) / before[rows].std(axis=0)
    room = int(rows.sum()) // PER_FEATURE
    mean = polynomials(before, effort.location, room)
    x = x - mean @ np.linalg.lstsq(mean[rows], x[rows], rcond=None)[0]
    shape = polynomials(before, effort.scale, room)
    coef = _log_variance(shape[rows], x[rows] ** 2)
    log_scale = 0.5 * shape @ coef
    z = x * np.exp(-log_scale)
    spread = z[rows].std()
    return z / spread, log_scale + np.log(spread)


def _log_variance(features: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Coefficients of the log variance of normal errors, by damped Newton steps."""
    coef = np.zeros(features.shape[1])
    coef[0] = np.log(square.mean())
    ridge = 1e-3 * len(square) * np.eye(len(coef))
    loss = np.inf
    for _ in range(20):
        log_variance = np.clip(features @ coef, -30, 30)
        share = square * np.exp(-log_variance)
        new = float(np.sum(log_variance + share))
        if not new < loss - 1e-6 * len(square):
            break
        loss = new
        gradient = features.T @ (1 - share)
        # the expected Hessian, which is positive definite
        coef = coef - np.clip(cho_solve(cho_factor(features.T @ features + ridge), gradient), -1, 1)
    return coef


def polynomials(x: np.ndarray, degree: int, most: int) -> np.ndarray:
    """1, x, products of pairs and cubes, up to ``degree`` and as many as there are draws for."""
    p = x.shape[1]
    parts = [np.ones((len(x), 1)), x]
    if degree >= 2 and 1 + p + p * (p + 1) // 2 <= most:
        i, j = np.triu_indices(p)
        parts.append(x[:, i] * x[:, j])
        if degree >= 3 and 1 + 2 * p + p * (p + 1) // 2 <= most:
            parts.append(x**3)
    return np.concatenate(parts, axis=1)


def _smooth_log_density(z: np.ndarray, rows: np.ndarray, knots: int) -> np.ndarray:
    """A normal log density plus a natural spline, fitted to the counts of a histogram."""
    ends = np.quantile(z[rows], [0.003, 0.997])
    places = np.quantile(z[rows], np.linspace(0.003, 0.997, knots))
    low, high = z[rows].min() - 0.5, z[rows].max() + 0.5
    edges = np.linspace(low, high, 101)
    counts = np.histogram(z[rows], edges)[0]
    middle = 0.5 * (edges[1:] + edges[:-1])
    basis, offset = _natural(middle, places), -0.5 * middle**2
    coef = np.zeros(basis.shape[1])
    coef[0] = np.log(counts.sum()) - np.log(np.exp(offset).sum())
    penalty = 1e-3 * np.eye(len(coef))
    for _ in range(50):
        expected = np.exp(np.clip(offset + basis @ coef, -50, 50))
        gradient = basis.T @ (counts - expected) - penalty @ coef
        step = np.linalg.solve(basis.T @ (expected[:, None] * basis) + penalty, gradient)
        coef = coef + step / max(1.0, np.abs(step).max() / 2)
        if np.abs(step).max() < 1e-8:
            break
    total = np.log(np.exp(offset + basis @ coef).sum() * (edges[1] - edges[0]))
    at = np.clip(z, ends[0] - 3, ends[1] + 3)
    return -0.5 * z**2 + _natural(at, places) @ coef - total


def _natural(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """The natural cubic splines with these knots (Hastie, Tibshirani and Friedman, eq. 5.4)."""
    last, size = knots[-1], knots[-1] - knots[0]
    cubes = np.maximum(x[:, None] - knots, 0) ** 3 / size**2
    d = (cubes[:, :-1] - cubes[:, -1:]) / (last - knots[:-1])
    return np.column_stack([np.ones(len(x)), x, d[:, :-1] - d[:, -1:]])
