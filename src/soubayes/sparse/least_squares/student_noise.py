"""Student's t noise: least squares on pseudo-observations.

The loss of a row is -log t of z = (y - eta)/sigma with d degrees of freedom, an average over normal
noise of variance sigma^2/lambda with lambda ~ Gamma(d/2, d/2). With the factor of lambda at its
best, its mean is (d + 1)/(d + E[z^2]), and the slope of the loss in the mean of eta is
-lambda (y - eta)/sigma^2. So around a predictor eta, and with the curvature averaged over rows,

    c = mean of lambda (1 - 2 (y - eta)^2/sigma^2/(d + E[z^2])),

the loss is that of least squares on the pseudo-observations

    y* = eta + lambda (y - eta)/c                                                          (1)

with noise variance v = sigma^2/c. Everything that least squares does (the path, the dial, the
posterior over supports) is done on y*, and (1) is repeated at the new eta until it moves no more.
X'X stays as it is. Least squares estimates v by RSS*/(n - k), which gives Huber's covariance of an
M-estimate. The weights lambda instead would give v = sigma^2, as if lambda were known: c has the
mean (d + 1)/(d + 3), so standard deviations would be too small by its square root.

E[z^2] adds the variance of eta, v k/n on average. Without it, a fit of many columns interpolates
rows: the t density has its peak there.

The degrees of freedom are given, or a block with d - 2 ~ Gamma(2, 0.1) on
`DEGREES_NODES`: above 2, so the noise has a variance. For every d, sigma^2 is at its best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from soubayes.sparse.constants import RATE, SHAPE
from soubayes.sparse.least_squares.designs import Gram, LeastSquares, Wide
from soubayes.sparse.least_squares.state import LeastSquaresFit

Array = np.ndarray

DEGREES_NODES = 2.0 + np.geomspace(0.05, 300.0, 33)  # evenly spaced in log(d - 2)
INSIDE = 100  # rounds at one support
OUTSIDE = 12  # supports
STILL = 1e-9  # relative change at which the rounds at one support end
SAME_PREDICTOR = 1e-3  # change by a new support, in units of sigma, that counts as none
EDGE = 5.0  # the same times sqrt(n) where two supports take turns: a column at its threshold
LEAST_SHARE = 0.5  # of the expected (d + 1)/(d + 3): far from the solution c may be negative


@dataclass(frozen=True)
class StudentPrior:
    """Degrees of freedom that are given, or a confidence in their prior."""

    degrees: float | None = None  # None: they are a block
    confidence: float = 1.0

    @property
    def nodes(self) -> Array:
        """The values that the degrees of freedom may take."""
        return DEGREES_NODES if self.degrees is None else np.array([self.degrees])

    @property
    def log_prior(self) -> Array:
        """Of the nodes, which are evenly spaced in log(d - 2)."""
        if self.degrees is not None:
            return np.zeros(1)
        log_prior = SHAPE * np.log(DEGREES_NODES - 2.0) - RATE * (DEGREES_NODES - 2.0)
        return log_prior - np.logaddexp.reduce(log_prior)

    def posterior(self, loss: Array) -> tuple[Array, float]:
        """q of the nodes, proportional to prior times exp(-loss/confidence), and its KL.

        >>> StudentPrior(4.0).posterior(np.array([7.0]))
        (array([1.]), 0.0)
        """
        log_prior = self.log_prior
        log_q = log_prior - loss / self.confidence
        log_q = log_q - np.logaddexp.reduce(log_q)
        q = np.exp(log_q)
        return q, float(q @ (log_q - log_prior))


class Tail(NamedTuple):
    """The noise between two passes, in standardised units."""

    log_scale: Array  # (nodes,) log sigma^2
    degrees: float  # d and sigma^2 of the weights
    scale: float
    kl: float = 0.0
    loss: float = 0.0  # of all rows, averaged over q of the nodes


class Sums(NamedTuple):
    """What a pass over the rows finds.

    u = lambda (y - eta). The last three are of every node: sum of lambda z^2, minus its derivative
    in log sigma^2, and sum of log(1 + z^2/d).
    """

    xu: Array  # (p,) X'u with X standardised
    u: float
    uu: float
    curvature: float
    fitted: Array
    slope: Array
    logs: Array


class Around(NamedTuple):
    """The predictor centre + X coef, the average variance of it, and the noise."""

    coef: Array
    centre: float
    spread: float
    tail: Tail
    nodes: Array


class RowUnits(NamedTuple):
    """Where the standardised units of one target came from."""

    x_mean: Array
    x_scale: Array
    y_mean: float
    y_scale: float

    def residual(self, X: Any, y: Array, coef: Array, centre: float) -> Array:
        """y - eta in standardised units, of rows in the user's units."""
        slope = coef / self.x_scale
        eta = np.asarray(X @ slope) + (centre - self.x_mean @ slope)
        return (y - self.y_mean) / self.y_scale - eta


class StudentNoise(NamedTuple):
    """The noise of one target as fitted, and what its pseudo-observations are made with."""

    degrees: float
    learnt: bool
    ratio: float  # of the variance of the noise to the v of least squares
    kl: float
    loss: float  # expected, in standardised units, the confidence's share of ``kl`` included
    converged: bool
    centre: float  # mean of the pseudo-observations, in standardised units
    around: Around  # where they were made
    curvature: float
    units: RowUnits

    @property
    def information(self) -> float:
        """What a row says about log sigma, relative to a row with normal noise."""
        return 1.0 if np.isinf(self.degrees) else self.degrees / (self.degrees + 3.0)

    def observations(self, X: Any, y: Array) -> Array:
        """y* of rows in the user's units."""
        at = self.around
        residual = self.units.residual(X, y, at.coef, at.centre)
        u = student_weights(residual, at)[0] * residual
        return y + self.units.y_scale * (u / self.curvature - residual)


def student_weights(residual: Array, at: Around) -> tuple[Array, Array]:
    """lambda and d + E[z^2] of every row."""
    total = at.tail.degrees + (residual**2 + at.spread) / at.tail.scale
    return (at.tail.degrees + 1.0) / total, total


class TailRows(NamedTuple):
    """The rows of one target, which every round reads again."""

    X: Any
    y: Array
    weight: Array
    units: RowUnits

    def read(self, at: Around) -> tuple[Sums, Array]:
        """The sums, and u of every row."""
        X, weight, units = self.X, self.weight, self.units
        residual = units.residual(X, self.y, at.coef, at.centre)
        lam, total = student_weights(residual, at)
        u = lam * residual
        bend = lam * (1.0 - 2.0 * residual**2 / (at.tail.scale * total))
        square = residual**2 + at.spread
        fitted, slope, logs = np.zeros((3, len(at.nodes)))
        for k, (node, scale) in enumerate(zip(at.nodes, np.exp(at.tail.log_scale), strict=True)):
            z = square / scale
            share = z / (node + z)
            fitted[k] = (node + 1.0) * (weight @ share)
            slope[k] = (node + 1.0) * (weight @ (share * (1.0 - share)))
            logs[k] = weight @ np.log1p(z / node)
        weighted = weight * u
        xu = (np.asarray(X.T @ weighted) - units.x_mean * weighted.sum()) / units.x_scale
        rest = float(weighted.sum()), float(weighted @ u), float(weight @ bend)
        return Sums(xu, *rest, fitted, slope, logs), u


def settle_tails(
    design: LeastSquares,
    rows: TailRows,
    prior: StudentPrior,
    solve: Callable[[LeastSquares], LeastSquaresFit],
    intercept: bool,
    still: float = STILL,
) -> tuple[LeastSquares, StudentNoise]:
    """The design of the pseudo-observations, which are a fixed point of (1).

    ``solve`` finds a support and precisions for a design; rounds of (1) at these follow, which need
    one factorisation for all of them, until the support that is found next changes nothing.
    """
    n, here = design.n, design
    fit = solve(here)
    v = fit.noise.variance
    # without residuals t has no largest density in sigma: the prior of the noise ends its descent
    floor = fit.model.noise.estimate(0.0, n)
    tail = Tail(np.full(len(prior.nodes), np.log(v)), float(prior.nodes.min()), v)
    at = Around(fit.coef, 0.0, 0.0, tail, prior.nodes)
    curvature, done, seen = 1.0, False, {fit.selected.tobytes()}
    for _ in range(OUTSIDE):
        active, before = np.flatnonzero(fit.selected), fit.selected.tobytes()
        again = _means(design, active, fit.w[active])
        share = 1.0 - fit.model.noise_degrees(n, fit.effective) / n
        coef, centre = fit.coef, at.centre
        for _ in range(INSIDE):
            at = Around(coef, centre, share * tail.scale / curvature, tail, prior.nodes)
            sums, u = rows.read(at)
            # sigma^2 of every d first: the weights of (1) are those of the present scale
            new = updated(tail, sums, n, prior, floor)
            expected = (tail.degrees + 1.0) / (tail.degrees + 3.0)
            curvature = max(sums.curvature / n, LEAST_SHARE * expected)
            here, shift = _respond(design, coef, sums, u, curvature, intercept)
            coef, centre = again(here), centre + shift
            moved = (_size(design, coef - at.coef) + abs(shift)) / np.sqrt(new.scale)
            moved += abs(np.log(new.scale / tail.scale)) + abs(np.log(new.degrees / tail.degrees))
            tail = new
            if moved < still:
                break
        fit = solve(here)
        moved, name = (
            _size(design, fit.coef - at.coef) / np.sqrt(tail.scale),
            fit.selected.tobytes(),
        )
        repeated = name in seen and name != before
        done = moved < SAME_PREDICTOR or (repeated and moved < EDGE / np.sqrt(n))
        if done:
            break
        seen.add(name)
    d = tail.degrees
    variance = tail.scale * d / (d - 2.0)
    mean = sums.u / n if intercept else 0.0
    # what the search took from the noise is not a variance of the predictor
    searched = share * n - fit.effective - intercept
    v = max((sums.uu / n - mean**2) / curvature**2 / (1.0 - share), floor)
    noise = StudentNoise(
        degrees=d,
        learnt=prior.degrees is None,
        ratio=variance / v,
        kl=tail.kl,
        loss=tail.loss + prior.confidence * tail.kl - 0.5 * searched,
        converged=done,
        centre=centre,
        around=at,
        curvature=curvature,
        units=rows.units,
    )
    return here, noise


def updated(tail: Tail, sums: Sums, n: float, prior: StudentPrior, floor: float) -> Tail:
    """A Newton step of every log sigma^2, not below the floor, and q of the degrees of freedom."""
    nodes = prior.nodes
    step = np.clip((sums.fitted - n) / np.maximum(sums.slope, 1e-3 * n), -1.5, 1.5)
    loss = n * (log_constant(nodes) + 0.5 * tail.log_scale) + 0.5 * (nodes + 1.0) * sums.logs
    q, kl = prior.posterior(loss)
    log_scale = np.maximum(tail.log_scale + step, np.log(floor))
    degrees = prior.degrees
    if degrees is None:
        degrees = 2.0 + float(np.exp(q @ np.log(nodes - 2.0)))
    return Tail(log_scale, degrees, float(np.exp(q @ log_scale)), kl, float(q @ loss))


def log_constant(degrees: Array) -> Array:
    """-log of the density of Student's t at 0."""
    return gammaln(degrees / 2.0) - gammaln((degrees + 1.0) / 2.0) + 0.5 * np.log(degrees * np.pi)


def _respond(
    design: LeastSquares, coef: Array, sums: Sums, u: Array, c: float, intercept: bool
) -> tuple[LeastSquares, float]:
    """The design of the pseudo-observations around X coef, and how far their mean moved."""
    n = design.n
    mean = sums.u / n if intercept else 0.0
    if isinstance(design, Wide):
        y = design.columns.times(coef) + design.columns.root * (u - mean) / c
        return Wide(design.columns, y, n), mean / c
    assert isinstance(design, Gram)
    # X'y* = X'X b + X'u/c, and y*'y* likewise: rows are read once a round
    fitted = design.gram @ coef
    xu = np.where(design.norms > 0.0, sums.xu, 0.0)
    yy = coef @ fitted + 2.0 * (coef @ xu) / c + (sums.uu - n * mean**2) / c**2
    return Gram(design.gram, fitted + xu / c, float(yy), n), mean / c


def _means(design: LeastSquares, active: Array, w: Array) -> Callable[[LeastSquares], Array]:
    """Posterior means at held precisions as a function of the response."""
    subset = design.take(active)
    half = subset.ridge(w).triangle if len(active) else None

    def mean(other: LeastSquares) -> Array:
        whole = np.zeros(len(design.norms))
        if half is None:
            return whole
        if isinstance(subset, Wide):
            assert isinstance(other, Wide)
            whole[active] = subset.columns.left(half.T @ (half @ other.y)) / w
        else:
            whole[active] = half.T @ (half @ other.scores[active])
        return whole

    return mean


def _size(design: LeastSquares, coef: Array) -> float:
    """Root mean square of X coef, as if the columns were orthogonal."""
    return float(np.sqrt((coef**2 @ design.norms) / design.n))
