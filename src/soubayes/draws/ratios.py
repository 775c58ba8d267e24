"""Log ratios of posterior to prior, block by block, estimated from posterior draws.

For block k, r_k = log p(theta_k | theta_<k, y) - log pi(theta_k | theta_<k). The prior is known.
The posterior's density is estimated one coordinate at a time, in one of two ways. The regression
has a location and a log scale that are polynomials of everything before it, and a smooth density of
what is left (Lindsey's method, a Poisson regression of histogram counts on a natural spline). The
kernel estimate is for up to three dimensions (`soubayes.draws.kernels`) and is used if it
predicts each half of the draws clearly better from the other half. The first block of a model in
which y depends on it only through the later ones has a third estimate
(`soubayes.draws.crossed`), used if its parts agree better. Discrete blocks are counted. The r_k
add up to the log likelihood and a constant, so the last block needs no density of its own.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from soubayes.draws.crossed import crossed_ratios
from soubayes.draws.kernels import (
    MOST_DIMENSIONS,
    choose_bandwidths,
    kernel_log_density,
    rate,
)
from soubayes.draws.known import Draws

PER_FEATURE = 20  # draws that a feature of a regression must have
FEWEST = 100  # draws that a level of a discrete block must have for a density of its own
FEWEST_HALF = 20  # draws that each half must have of levels that share a density


class Effort(NamedTuple):
    """How flexible a regression is: degrees of location and log scale, and knots of the density."""

    location: int
    scale: int
    knots: int


FULL = Effort(3, 2, 9)
SIMPLE = Effort(2, 1, 6)  # the difference between the two says what flexibility is worth
JUDGES = 1000  # draws on which kernels and the regression are compared
CLEARLY = 3.0  # standard errors
SMOOTHER = np.sqrt(2)  # of kernels: doubles their bias, so the difference estimates it


class Estimates(NamedTuple):
    """Estimates at every draw: from all draws, from each half of every chain, and a simpler one."""

    best: np.ndarray
    first: np.ndarray
    second: np.ndarray
    simple: np.ndarray

    def error(self) -> float:
        """The standard deviation over draws of what halves and the simpler estimate disagree by."""
        halves = np.std(self.first - self.second) / 2
        return float(np.hypot(halves, np.std(self.simple - self.best)))

    def plus(self, other: "Estimates | np.ndarray") -> "Estimates":
        """The sum of two estimates, or of an estimate and something known."""
        parts = other if isinstance(other, Estimates) else (other,) * 4
        return Estimates(*(a + b for a, b in zip(self, parts, strict=True)))


class Ratios(NamedTuple):
    """r_k at every draw by block, with the last by difference, and estimates to judge them by."""

    best: dict[str, np.ndarray]
    others: dict[str, dict[str, np.ndarray]]  # "first half", "second half", "simple"
    last: np.ndarray  # the last block by a density of its own, which has its constant


def ratios(draws: Draws) -> Ratios:
    """Estimates of r_k at every draw, from all draws and from each half of them."""
    half = np.arange(len(draws.log_likelihood)) % draws.length < draws.length // 2
    rest = Estimates(*(draws.log_likelihood,) * 4)
    found: dict[str, Estimates] = {}
    for block in draws.names[:-1]:
        found[block] = _ratio(draws, block, half)
        rest = rest.plus(Estimates(*(-part for part in found[block])))
    found[draws.names[-1]] = rest
    by_kind = {
        kind: {b: getattr(fits, kind) for b, fits in found.items()} for kind in Estimates._fields
    }
    others = {"first half": "first", "second half": "second", "simple": "simple"}
    last = _density(draws, draws.names[-1], half, only_best=True).best
    return Ratios(
        by_kind["best"],
        {name: by_kind[kind] for name, kind in others.items()},
        last - draws.log_prior[draws.names[-1]],
    )


def _ratio(draws: Draws, block: str, half: np.ndarray) -> Estimates:
    """r_k of a block: from its density, or from crossed draws if their estimates agree better."""
    found = _density(draws, block, half).plus(-draws.log_prior[block])
    if draws.crossed is None or block != draws.names[0]:
        return found
    crossed = Estimates(*crossed_ratios(draws.crossed, half))  # unbiased: its spread is its error
    return crossed if crossed.error() < found.error() else found


def _density(draws: Draws, block: str, half: np.ndarray, only_best: bool = False) -> Estimates:
    """log p(theta_k | theta_<k, y) at every draw."""
    levels, context = _before(draws, block)
    values = draws.values[block]
    parts = np.empty((4, len(values)))
    for level in np.unique(levels):
        here = levels == level
        if block in draws.discrete:
            whole = np.ones(int(here.sum()), bool)
            kinds = (whole, half[here], ~half[here], whole)
            parts[:, here] = [_frequencies(values[here], values[here][rows]) for rows in kinds]
            continue
        if min(np.sum(half[here]), np.sum(~half[here])) < FEWEST_HALF:
            parts[:, here] = _normal_log_density(values[here], values.std(axis=0))
            continue
        total = np.zeros((4, int(here.sum())))
        for column in range(values.shape[1]):
            before = np.concatenate([context, values[:, :column]], axis=1)[here]
            total += _coordinate(values[here, column], before, half[here], only_best)
        parts[:, here] = total
    return Estimates(*(parts - draws.log_jacobian[block]))


def _normal_log_density(values: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """The independent normal density around their mean, for too few draws to say more."""
    z = (values - values.mean(axis=0)) / sd
    return np.sum(-0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi), axis=1)


def _coordinate(x: np.ndarray, before: np.ndarray, half: np.ndarray, only_best: bool) -> Estimates:
    """The log density of a coordinate given everything before it, by regression or by kernels."""
    every = np.ones(len(x), bool)
    small = 1 + before.shape[1] <= MOST_DIMENSIONS
    if only_best and not small:
        return Estimates(*(_regression(x, before, every, FULL),) * 4)
    halves = (half, ~half)
    first, second = (_regression(x, before, rows, FULL) for rows in halves)
    if small:
        widths = choose_bandwidths(x, before)
        wider = widths.times(2 ** rate(before))  # for half as many draws
        judges = [np.flatnonzero(~rows)[:: -(-len(x) // JUDGES)] for rows in halves]
        gain = np.concatenate(
            [
                kernel_log_density(x, before, rows, wider, judge) - regression[judge]
                for rows, regression, judge in zip(halves, (first, second), judges, strict=True)
            ]
        )
        # tails of kernel estimates are poor, so they have to be clearly better
        if gain.mean() > CLEARLY * gain.std() / np.sqrt(len(gain)):
            first, second = (kernel_log_density(x, before, rows, wider) for rows in halves)
            best, simple = (
                kernel_log_density(x, before, every, w) for w in (widths, widths.times(SMOOTHER))
            )
            return Estimates(best, first, second, simple)
    best, simple = (_regression(x, before, every, effort) for effort in (FULL, SIMPLE))
    return Estimates(best, first, second, simple)


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


def _regression(x: np.ndarray, before: np.ndarray, rows: np.ndarray, effort: Effort) -> np.ndarray:
    """The log density of a coordinate around a location and a scale, fitted to ``rows``."""
    centre, spread = x[rows].mean(), x[rows].std()
    z, log_scale = _location_scale((x - centre) / spread, before, rows, effort)
    return _smooth_log_density(z, rows, effort.knots) - log_scale - np.log(spread)


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
    """A normal log density and a natural spline, fitted to the counts of a histogram."""
    places = np.quantile(z[rows], np.linspace(0.003, 0.997, knots))
    low, high = z[rows].min() - 0.5, z[rows].max() + 0.5
    edges = np.linspace(low, high, 101)
    counts = np.histogram(z[rows], edges)[0]
    middle = 0.5 * (edges[1:] + edges[:-1])
    basis, offset = _natural(middle, places), _normal(middle, places)
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
    return _normal(z, places) + _natural(z, places) @ coef - total


def _normal(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """A normal log density between the knots, linear beyond them: tails may be exponential."""
    inside = np.clip(x, knots[0], knots[-1])
    return -0.5 * inside**2 - inside * (x - inside)


def _natural(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """The natural cubic splines with these knots (Hastie, Tibshirani and Friedman, eq. 5.4)."""
    last, size = knots[-1], knots[-1] - knots[0]
    cubes = np.maximum(x[:, None] - knots, 0) ** 3 / size**2
    d = (cubes[:, :-1] - cubes[:, -1:]) / (last - knots[:-1])
    return np.column_stack([np.ones(len(x)), x, d[:, :-1] - d[:, -1:]])
