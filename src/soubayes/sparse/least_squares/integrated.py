"""Scales of units that are integrated over: a mixture in the place of one fitted scale.

At confidence 1 and gamma_tau near 0 q(tau) is a point, and intervals of units take the variance
between units for known. Here every component has its own tau_g, on a grid, with weights

    p(tau | y) ~ p(y | w),  -2 log p(y | w) = m log y'K^-1 y + log|A| - sum_j log w_j,

m being n less the intercept and the columns with a flat prior, which are integrated out. The prior
of a standard deviation between units is flat. The scales of other terms stay as fitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from soubayes.sparse.least_squares.designs import LeastSquares, Ridge
from soubayes.sparse.least_squares.fitting import LinearIntake, Solved, in_units
from soubayes.sparse.least_squares.group_evidence import GroupPosterior
from soubayes.sparse.least_squares.state import LeastSquaresFit, Noise
from soubayes.sparse.least_squares.unit_gram import UnitGram
from soubayes.sparse.posterior import Component, Mixture, SparsePoint

Array = np.ndarray

SCALE_SCAN = np.linspace(
    -7.0, 7.0, 29
)  # log tau in units of the noise, all that data can tell apart
FINE = 11  # points about the mode, for the likelihood ratio
FAR_BELOW = 4.0  # nats below the mode at which a grid ends
SCALE_POINTS = {1: 15, 2: 9, 3: 5}  # of the grid of each scale, by their number
LARGE_POINTS = {1: 7, 2: 3, 3: 3}  # the same of many columns, whose covariances are kept
UNIT_POINTS = {1: 15, 2: 7, 3: 3}  # and of many units, whose scales are known well
MANY_COLUMNS = 300  # from which a grid is coarser, since every node keeps a covariance
LEAST_NODE = 1e-3  # components of less weight are left out
FLAT_SHARE = 1e4  # prior variances from which a normal prior takes a degree of freedom


class IntegratedScales(NamedTuple):
    """A posterior over scales, and a test of each of them."""

    mixture: Mixture
    # of every scale twice the log ratio of the marginal likelihood at its best value to that at 0;
    # without variance between units it is 0 half of the time, else chi-squared with one degree of
    # freedom [Self and Liang 1987]
    ratios: list[float]


def integrated(
    intake: LinearIntake, t: int, solved: Solved, scales: Sequence[Array]
) -> IntegratedScales:
    """The posterior of a target; ``scales`` are the columns of every scale that is integrated."""
    at = _Marginal(solved.design, solved.solution)
    scans = [_Scan.of(at, columns) for columns in scales]
    ratios = [scan.ratio(at, columns) for scan, columns in zip(scans, scales, strict=True)]
    scales = scales[: max(SCALE_POINTS)]
    grids = SCALE_POINTS if len(at.w) <= MANY_COLUMNS else LARGE_POINTS
    points = (UNIT_POINTS if isinstance(solved.design, UnitGram) else grids)[len(scales)]
    nodes, weights = [], []
    both = zip(scans, scales, strict=False)
    for node in product(*(scan.grid(at, columns, points) for scan, columns in both)):
        w = at.w.copy()
        for columns, log_tau in zip(scales, node, strict=True):
            w[columns] = np.exp(-2.0 * log_tau)
        ridge = solved.design.ridge(w)
        nodes.append((w, ridge))
        weights.append(at.log_density(w, ridge) + sum(node))  # flat in tau: tau in log tau
    share = np.exp(np.array(weights) - max(weights))
    share = np.where(share < LEAST_NODE * share.sum(), 0.0, share)
    share /= share.sum()
    parts = [
        replace(at.component(intake, t, w, ridge), weight=float(weight))
        for (w, ridge), weight in zip(nodes, share, strict=True)
        if weight > 0.0
    ]
    return IntegratedScales(Mixture(tuple(parts)), ratios)


class _Marginal:
    """p(y | w) of a design."""

    def __init__(self, design: LeastSquares, fit: LeastSquaresFit) -> None:
        self.design, self.fit, self.w, self.model = design, fit, fit.w, fit.model
        flat = np.nan_to_num(self.model.variance, nan=0.0) >= FLAT_SHARE
        self.left = design.n - (self.model.intercept_variance is not None) - float(flat.sum())
        self.proper = ~flat

    def log_density(self, w: Array, ridge: Ridge) -> float:
        """The log of p(y | w) but for a constant."""
        log_det = ridge.log_det - float(np.log(w[self.proper]).sum())
        return -0.5 * (self.left * np.log(self.quadratic(w, ridge)) + log_det)

    def quadratic(self, w: Array, ridge: Ridge) -> float:
        """y'K^-1 y, with the prior of the noise."""
        pull = float(ridge.mean @ (w * ridge.mean))
        return max(ridge.rss + pull + 2.0 * self.model.noise.scale, 1e-300)

    def at(self, columns: Array, log_tau: float) -> float:
        """The same with one scale moved."""
        w = self.w.copy()
        w[columns] = np.exp(-2.0 * log_tau)
        return self.log_density(w, self.design.ridge(w))

    def component(self, intake: LinearIntake, t: int, w: Array, ridge: Ridge) -> Component:
        """The fit at w in the user's units."""
        shape = self.model.noise.shape + 0.5 * self.left
        noise = Noise(shape, self.quadratic(w, ridge) / (2.0 * shape))
        selected = np.ones(len(w), bool)
        fit = LeastSquaresFit(
            w, ridge.mean, ridge.variance, selected, noise, self.model, triangle=ridge.triangle
        )
        return in_units(self.design, fit, intake.units, t)


class _Scan(NamedTuple):
    """log p(y | tau) of one scale on a coarse grid, the others held."""

    values: Array

    @classmethod
    def of(cls, at: _Marginal, columns: Array) -> "_Scan":
        return cls(np.array([at.at(columns, t) for t in SCALE_SCAN]))

    def ratio(self, at: _Marginal, columns: Array) -> float:
        """Twice the log ratio of the best value to that at 0."""
        mode, step = SCALE_SCAN[int(np.argmax(self.values))], SCALE_SCAN[1] - SCALE_SCAN[0]
        fine = [at.at(columns, t) for t in np.linspace(mode - step, mode + step, FINE)]
        return max(2.0 * (max(fine) - float(self.values[0])), 0.0)

    def grid(self, at: _Marginal, columns: Array, points: int) -> Array:
        """Where the posterior is."""
        ends = _near(SCALE_SCAN, self.values)
        while True:  # the scale of many units is known to a few percent
            finer, width = np.linspace(*ends, 2 * FINE), ends[1] - ends[0]
            ends = _near(finer, np.array([at.at(columns, t) for t in finer]))
            if ends[1] - ends[0] > 0.5 * width:
                return np.linspace(*ends, points)


def _near(log_tau: Array, values: Array) -> tuple[float, float]:
    """The ends of the range in which the posterior is not far below its mode."""
    density = values + log_tau
    near = np.flatnonzero(density > density.max() - FAR_BELOW)
    first, last = max(near[0] - 1, 0), min(near[-1] + 1, len(log_tau) - 1)
    return float(log_tau[first]), float(log_tau[last])


@dataclass(frozen=True)
class LeftOut:
    """The coefficients of a curved part that the sparse point leaves out, its scale integrated."""

    columns: Array
    mean: Array
    covariance: Array


def left_out_curves(
    intake: LinearIntake, t: int, point: SparsePoint, curves: Sequence[Array]
) -> list[LeftOut]:
    """For each of these groups of columns, all dropped: its posterior beside the sparse point.

    Where tau is fitted as 0 a plug-in says that the curve is known to be straight. Here tau has a
    flat prior, the columns of the sparse point the precisions that they have there.
    """
    design, units = intake.designs[t], intake.units
    if not point.component.noise:
        return []
    active, q, p = np.flatnonzero(point.selected), point.component.posterior, len(units.x_scale)
    v = point.component.noise / float(units.y_scale[t]) ** 2
    unit = units.y_scale[t] / units.x_scale
    variance = ((q.sd[:p] / unit) ** 2 / v)[active]  # of A^-1
    w = np.maximum(point.shrinkage[active] / variance, 1e-12)
    degrees, found = 2.0 * point.component.noise_shape, []
    for columns in curves:
        both = np.union1d(active, columns)
        precision = np.ones(len(both))  # of the curve any: it is taken off again
        precision[np.searchsorted(both, active)] = w
        at = GroupPosterior.of(design.take(both), precision, degrees)
        inside = np.searchsorted(both, columns)
        # (A^-1)_gg = (S + I)^-1 and b_g = (S + I)^-1 score, S the information with the others held
        values, vectors = np.linalg.eigh(at.block(inside))
        values = np.maximum(1.0 / values - 1.0, 0.0)
        score = (values + 1.0) * (vectors.T @ at.mean[inside])
        rss = at.rss + float(score**2 @ (1.0 / (values + 1.0)))
        total = values + np.exp(-2.0 * SCALE_SCAN)[:, None]
        left = np.maximum(rss - (score**2 / total).sum(axis=1), 1e-12 * rss)
        # log p(y | tau), and tau for a flat prior on a grid of log tau; log w = -2 log tau
        log_density = -0.5 * (degrees * np.log(left) + np.log(total).sum(axis=1))
        log_density += (1.0 - len(columns)) * SCALE_SCAN
        share = np.exp(log_density - log_density.max())
        share /= share.sum()
        means = score / total
        mean = share @ means
        square = np.diag(share @ (v / total)) + ((means - mean).T * share) @ (means - mean)
        scale = unit[columns]
        covariance = (vectors @ square @ vectors.T) * scale * scale[:, None]
        found.append(LeftOut(columns, (vectors @ mean) * scale, covariance))
    return found
