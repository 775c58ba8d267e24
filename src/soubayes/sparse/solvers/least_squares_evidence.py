"""The share of least squares in J at given prior variances, for `majorise.minimise`.

All columns have one confidence gamma_b. w are prior precisions times gamma_b in units of the noise,
A = X'X + diag(w) and K = I + X W^-1 X'.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from soubayes.sparse.designs.base import LeastSquares, Ridge
from soubayes.sparse.solvers.majorise import Evidence
from soubayes.sparse.solvers.objective import LeastSquaresModel

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
        quadratic = ridge.rss + float(ridge.mean @ (w * ridge.mean)) + 2.0 * prior.scale
        v = quadratic / n if noise is None else noise
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
