"""The dial of least squares: its points, and their fits from one design.

`LeastSquaresEvidence` is the data's share of J at given prior variances, for `minimise` of
`sparse/dial.py`. All columns have one confidence gamma_b. w are prior precisions times gamma_b in
units of the noise, A = X'X + diag(w) and K = I + X W^-1 X'.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from soubayes.sparse.constants import LEAST_SQUARES_POINTS, UNEXPLAINED
from soubayes.sparse.dial import (
    DIAL_NATS,
    DialPoint,
    Evidence,
    Prior,
    Variances,
    at_point,
    minimise,
)
from soubayes.sparse.least_squares.criterion import dense_evidence
from soubayes.sparse.least_squares.designs import LeastSquares, Ridge
from soubayes.sparse.least_squares.state import LeastSquaresFit, LeastSquaresModel, Noise

Array = np.ndarray


@dataclass(frozen=True)
class LeastSquaresEvidence(Evidence):
    """gamma_b/2 log|K| + y'K^-1 y/(2 v) + n/2 log v."""

    w: Array  # of all columns
    ridge: Ridge
    design: LeastSquares
    confidence: float
    free_noise: float  # 1/(y'K^-1 y) if the noise is fitted, 0 if it is held
    sparse: Array

    @property
    def _energy(self) -> float:
        return float(self.mean**2 @ self.w[self.sparse])

    @property
    def slope(self) -> float:
        explained = float(self.explained @ (1.0 / self.w[self.sparse]))
        return 0.5 * (self.confidence * explained - self._energy / self.noise)

    def curvature(self) -> float:
        total, squares, shrunk = self.design.shrinkage_sums(self.w, self.ridge)
        energy = self._energy
        # with D = W^1/2 A^-1 W^1/2: d2/dt2 log|K| = tr D - tr D^2; of y'K^-1 y m'W m - 2 m'W A^-1 W
        # m
        bend = self.confidence * (total - squares) + (energy - 2.0 * shrunk) / self.noise
        return 0.5 * (bend - energy**2 / self.noise * self.free_noise)


def least_squares_evidence(
    design: LeastSquares, model: LeastSquaresModel, noise: float | None
) -> Callable[[Array, LeastSquaresEvidence | None], LeastSquaresEvidence]:
    """The evidence of a least-squares design; the noise is held, or fitted (None)."""
    gamma, sparse, prior = float(model.confidence[0]), model.sparse, model.noise
    n = design.n - (model.intercept_variance is not None) + 2.0 * prior.shape

    def at(P: Array, last: LeastSquaresEvidence | None) -> LeastSquaresEvidence:
        v = design.yy / design.n if last is None else last.noise
        v = v if noise is None else noise
        w = np.empty(len(sparse))
        w[sparse], w[~sparse] = 1.0 / P, gamma * v / model.variance[~sparse]
        ridge = design.ridge(w)
        # y'K^-1 y = RSS + m'W m, so K is never formed
        quadratic = ridge.rss + float(ridge.mean @ (w * ridge.mean)) + 2.0 * prior.scale
        v = quadratic / n if noise is None else noise
        # log|K| = log|A| - log|W|
        log_det = ridge.log_det - float(np.log(w).sum())
        return LeastSquaresEvidence(
            value=0.5 * (n * float(np.log(v)) + quadratic / v + gamma * log_det),
            explained=(w * (1.0 - w * ridge.variance))[sparse],
            mean=ridge.mean[sparse],
            noise=v,
            w=w,
            ridge=ridge,
            design=design,
            confidence=gamma,
            free_noise=1.0 / quadratic if noise is None else 0.0,
            sparse=sparse,
        )

    return at


LEAST_SQUARES_DIAL = tuple(DialPoint(*point) for point in LEAST_SQUARES_POINTS)
RIDGE = LEAST_SQUARES_DIAL[0]


class LeastSquaresDial:
    """The points of one least-squares design; each fit starts from the dense one.

    The noise is that of the dense end, which is ridge regression with its scale and noise fitted,
    and is held: at p > n a small gamma_tau would drive it to 0, and its joint minimiser at
    gamma_b > 1 is inflated (`path.py`).
    """

    def __init__(self, design: LeastSquares, model: LeastSquaresModel) -> None:
        self.design, self.model = design, model
        self._dense: Variances[LeastSquaresEvidence] | None = None
        self._dense = self._minimise(at_point(self.model, RIDGE), None)
        self.noise = self._dense.evidence.noise

    def fit(self, point: DialPoint) -> LeastSquaresFit:
        """The fit at a point; gamma_b is lowered where it would leave nothing to explain."""
        if point == RIDGE:
            assert self._dense is not None
            return fit_of(self.design, at_point(self.model, point), self._dense)
        # gamma_b sigma^2 against var(y): above it every coefficient is 0
        limit = max(UNEXPLAINED * self.design.yy / self.design.n / self.noise, 1.0)
        coef = min(point.coef, limit)
        lower = point._replace(coef=coef, local=point.local * coef / point.coef)
        model = at_point(self.model, lower)
        return fit_of(self.design, model, self._minimise(model, self.noise))

    def evidence(self) -> float:
        """The log marginal likelihood of the dense end."""
        assert self._dense is not None
        evidence = self._dense.evidence
        n = self.design.n - (self.model.intercept_variance is not None)
        quadratic = evidence.ridge.rss + float(
            evidence.ridge.mean @ (evidence.w * evidence.ridge.mean)
        )
        return dense_evidence(
            n, quadratic, evidence.ridge.log_det - float(np.log(evidence.w).sum())
        )

    def _minimise(
        self, model: LeastSquaresModel, noise: float | None
    ) -> Variances[LeastSquaresEvidence]:
        prior = Prior(model.scales, model.groups, float(model.confidence[0]))
        evidence = least_squares_evidence(self.design, model, noise)
        start = self._dense or common_variance(self.design)
        return minimise(evidence, prior, start=start, tol=DIAL_NATS)


def common_variance(design: LeastSquares) -> float | None:
    """A prior variance to start ridge regression from, where X X' is small.

    The smallest whose evidence is within half a nat of the largest. Where X nearly interpolates y,
    the evidence is flat towards large variances, and the noise would vanish there.
    """
    spectrum = design.spectrum()
    if spectrum is None:
        return None
    values, squares = spectrum
    trial = np.geomspace(1e-6, 1e4, 90)[:, None] / max(float(values.mean()), 1e-300)
    # log evidence of y ~ N(0, sigma^2 (I + P XX')) in the eigenbasis of XX', sigma^2 fitted
    # eigenvalues of I + P XX'
    grown = 1.0 + trial * values
    cost = len(values) * np.log((squares / grown).sum(axis=1)) + np.log(grown).sum(axis=1)
    return float(trial[int(np.argmax(cost <= cost.min() + 1.0)), 0])


def fit_of(design: LeastSquares, model: LeastSquaresModel, found: Variances) -> LeastSquaresFit:
    """What a prediction needs, with every column in."""
    ridge, w = found.evidence.ridge, found.evidence.w
    degrees = model.noise_degrees(design.n, 0.0)  # of y'K^-1 y, which the noise is estimated by
    noise = Noise(model.noise.shape + 0.5 * degrees, found.evidence.noise)
    selected, triangle = np.ones(len(w), bool), ridge.triangle
    return LeastSquaresFit(w, ridge.mean, ridge.variance, selected, noise, model, triangle=triangle)
