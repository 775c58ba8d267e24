"""Kernel estimates of the density of one coordinate given a few others.

p(x | c) is a weighted mean of normal kernels around the draws, with weights that fall with the
distance of c. No shape is assumed, so it serves modes and bends that the regression of
`soubayes.draws.ratios` cannot follow, in up to `MOST_DIMENSIONS` dimensions. A draw is left out
of the estimate of its own density.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

MOST_DIMENSIONS = 3
MOST_CENTRES = 4000  # draws that carry a kernel, so time is linear in the draws
CENTRES = 2000  # of them while bandwidths are chosen
SCORED = 200  # draws that judge the bandwidths
PLACES = 400  # of the grid that stands for one coordinate alone
KERNEL_CHUNK = 500
FLOOR = 0.1  # draws' worth of a wide normal, for places that no kernel reaches
X_BANDWIDTHS = np.geomspace(0.05, 0.6, 7)
CONTEXT_BANDWIDTHS = np.geomspace(0.08, 2.5, 8)


class Bandwidths(NamedTuple):
    """In standard deviations of the coordinate and of the context."""

    x: float
    context: float

    def times(self, factor: float) -> "Bandwidths":
        """Smoother by that factor."""
        return Bandwidths(self.x * factor, self.context * factor)


def choose_bandwidths(x: np.ndarray, context: np.ndarray) -> Bandwidths:
    """The bandwidths with the largest likelihood of draws left out, over a grid."""
    x, context, _ = _standardised(x, context, np.ones(len(x), bool))
    n, thin = min(len(x), MOST_CENTRES), -(-len(x) // CENTRES)
    x, context = x[::thin], context[::thin]
    scored = np.arange(0, len(x), max(1, len(x) // SCORED))
    gaps = (x[scored, None] - x) ** 2
    kernels = [np.exp(-0.5 * gaps / h**2) / (h * np.sqrt(2 * np.pi)) for h in X_BANDWIDTHS]
    distances = _distances(context[scored], context)
    floor = _floor(x[scored])
    best, chosen = -np.inf, Bandwidths(1.0, 1.0)
    for width in CONTEXT_BANDWIDTHS if context.shape[1] else [1.0]:
        weights = np.exp(-0.5 * distances / width**2)
        weights[np.arange(len(scored)), scored] = 0.0
        total = weights.sum(axis=1) + FLOOR
        for h, kernel in zip(X_BANDWIDTHS, kernels, strict=True):
            density = (np.einsum("ij,ij->i", weights, kernel) + FLOOR * floor) / total
            score = float(np.log(density).sum())
            if score > best:
                best, chosen = score, Bandwidths(float(h), float(width))
    return chosen.times((len(x) / n) ** rate(context))


def rate(context: np.ndarray) -> float:
    """The power of the number of draws by which the best bandwidths shrink."""
    return 1 / (5 + context.shape[1])


def kernel_log_density(
    x: np.ndarray,
    context: np.ndarray,
    rows: np.ndarray,
    widths: Bandwidths,
    at: np.ndarray | None = None,
) -> np.ndarray:
    """log p(x | context) at the draws ``at`` (all of them), fitted to ``rows``."""
    carry = np.flatnonzero(rows)[:: -(-int(rows.sum()) // MOST_CENTRES)]
    rows = np.zeros(len(x), bool)
    rows[carry] = True
    x, context, log_unit = _standardised(x, context, rows)
    around, among = x[rows], context[rows]
    own = rows if at is None else rows[at]
    if at is not None:
        x, context = x[at], context[at]
    if context.shape[1] == 0:
        total, mass = _alone(x, around, widths.x), np.full(len(x), float(len(around)))
    else:
        total, mass = np.empty(len(x)), np.empty(len(x))
        for start in range(0, len(x), KERNEL_CHUNK):
            here = slice(start, start + KERNEL_CHUNK)
            weights = np.exp(-0.5 * _distances(context[here], among) / widths.context**2)
            kernel = np.exp(-0.5 * ((x[here, None] - around) / widths.x) ** 2)
            total[here] = np.einsum("ij,ij->i", weights, kernel)
            mass[here] = weights.sum(axis=1)
    total[own] -= 1.0  # its own kernel, of weight 1 and height 1
    mass[own] -= 1.0
    density = np.maximum(total, 0.0) / (widths.x * np.sqrt(2 * np.pi)) + FLOOR * _floor(x)
    return np.log(density / (np.maximum(mass, 0.0) + FLOOR)) - log_unit


def _alone(x: np.ndarray, fitted: np.ndarray, width: float) -> np.ndarray:
    """The sum of kernels of one coordinate, interpolated between places of a grid."""
    count = max(PLACES, int(np.ceil(4 * np.ptp(x) / width)))
    places = np.linspace(x.min(), x.max(), count)
    sums = np.exp(-0.5 * ((places[:, None] - fitted) / width) ** 2).sum(axis=1)
    return np.interp(x, places, sums)


def _standardised(
    x: np.ndarray, context: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The coordinate in its own sds, the context uncorrelated with unit sds, and the log sd."""
    spread = x[rows].std()
    x = (x - x[rows].mean()) / spread
    if context.shape[1]:
        root = np.linalg.cholesky(np.atleast_2d(np.cov(context[rows].T)))
        context = solve_triangular(root, (context - context[rows].mean(axis=0)).T, lower=True).T
    return x, context, float(np.log(spread))


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances between the rows of two matrices."""
    square = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(square, 0.0)


def _floor(x: np.ndarray) -> np.ndarray:
    """A normal density of twice the standard deviation."""
    return np.exp(-0.125 * x**2) / (2 * np.sqrt(2 * np.pi))
