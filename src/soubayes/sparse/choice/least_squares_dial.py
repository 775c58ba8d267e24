"""The dial of least squares: its points, and their fits from one design."""

import numpy as np

from soubayes.sparse.choice.dial import LOOSE, DialPoint, at_point
from soubayes.sparse.choice.supports import dense_evidence
from soubayes.sparse.designs.base import LeastSquares
from soubayes.sparse.likelihoods.gaussian import Noise
from soubayes.sparse.solvers.least_squares_evidence import (
    LeastSquaresEvidence,
    least_squares_evidence,
)
from soubayes.sparse.solvers.least_squares_state import LeastSquaresFit
from soubayes.sparse.solvers.majorise import Prior, Variances, minimise
from soubayes.sparse.solvers.objective import LeastSquaresModel

RIDGE = DialPoint("exponential", 100.0, 1.0)
LEAST_SQUARES_DIAL = (
    RIDGE,
    DialPoint("exponential", 400.0, 4.0),  # ridge regression that shrinks more
    DialPoint("exponential", 0.6, 2.0),
    DialPoint("exponential", 0.1, 4.0),
    DialPoint("horseshoe", 0.2, 2.0),
)
UNEXPLAINED = 0.8  # of var(y): gamma_b times the noise does not exceed it, or nothing is fitted


class LeastSquaresDial:
    """The points of one least-squares design; each fit starts from the dense one.

    The noise is that of the dense end, which is ridge regression with its scale and noise fitted,
    and is held: at p > n a small gamma_tau would drive it to 0, and its joint minimiser at
    gamma_b > 1 is inflated (`solvers/path.py`).
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
        limit = max(UNEXPLAINED * self.design.yy / self.design.n / self.noise, 1.0)
        coef = min(point.coef, limit)
        lower = point._replace(coef=coef, local=point.local * coef / point.coef)
        model = at_point(self.model, lower)
        return fit_of(self.design, model, self._minimise(model, self.noise))

    def evidence(self) -> float:
        """The log marginal likelihood of the dense end."""
        assert self._dense is not None
        found = self._dense.evidence
        n = self.design.n - (self.model.intercept_variance is not None)
        quadratic = found.ridge.rss + float(found.ridge.mean @ (found.w * found.ridge.mean))
        return dense_evidence(n, quadratic, found.ridge.log_det - float(np.log(found.w).sum()))

    def _minimise(
        self, model: LeastSquaresModel, noise: float | None
    ) -> Variances[LeastSquaresEvidence]:
        prior = Prior(model.scales, model.groups, float(model.confidence[0]))
        evidence = least_squares_evidence(self.design, model, noise)
        start = self._dense or common_variance(self.design)
        return minimise(evidence, prior, start=start, tol=LOOSE)


def common_variance(design: LeastSquares) -> float | None:
    """A prior variance to start ridge regression from, where X X' is small.

    The smallest whose evidence is within half a nat of the largest. Where X nearly interpolates y,
    the evidence is flat towards large variances, and the noise would vanish there.
    """
    found = design.spectrum()
    if found is None:
        return None
    values, squares = found
    trial = np.geomspace(1e-6, 1e4, 90)[:, None] / max(float(values.mean()), 1e-300)
    grown = 1.0 + trial * values
    cost = len(values) * np.log((squares / grown).sum(axis=1)) + np.log(grown).sum(axis=1)
    return float(trial[int(np.argmax(cost <= cost.min() + 1.0)), 0])


def fit_of(design: LeastSquares, model: LeastSquaresModel, found: Variances) -> LeastSquaresFit:
    """What a prediction needs, with every column in."""
    ridge, w = found.evidence.ridge, found.evidence.w
    degrees = model.noise_degrees(design.n, float(np.sum(1.0 - w * ridge.variance)))
    noise = Noise(model.noise.shape + 0.5 * degrees, found.evidence.noise)
    return LeastSquaresFit(w, ridge.mean, ridge.variance, np.ones(len(w), bool), noise, model)
