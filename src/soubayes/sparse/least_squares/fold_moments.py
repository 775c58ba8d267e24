"""Held-out scores of least squares when only the moments of each fold are known.

Rows that are streamed are read once, so a fold is known by its means and cross-products. The
residuals of a fold enter squared errors, also those of a mixture, through their products between
candidates alone. L candidates therefore need L rows: a square root of that L x L matrix takes the
place of the fold. The predictive variance of a candidate is averaged over the fold.
"""

from collections.abc import Sequence

import numpy as np

from soubayes.sparse.choice.race import ChoiceTask, Fits, Predictions
from soubayes.sparse.choice.scoring import HeldOut
from soubayes.sparse.designs.linalg import cholesky
from soubayes.sparse.designs.moments import FoldedMoments, Moments
from soubayes.sparse.least_squares.fitting import moments_intake
from soubayes.sparse.least_squares.student_noise import StudentNoise
from soubayes.sparse.posterior import Component, Mixture
from soubayes.sparse.shell import Family

Array = np.ndarray


class FoldMoments(ChoiceTask):
    """Folds of rows that are no longer there; as many rows as candidates take the place of each."""

    def __init__(
        self,
        folds: FoldedMoments,
        family: Family,
        students: tuple[StudentNoise, ...] = (),
    ) -> None:
        self.folds, self.family, self.count = folds, family, len(family.candidates)
        self.size = folds.shape[0]
        self.students = students  # of moments of pseudo-observations, whose own noise is normal
        size = self.count
        counts = np.array([0.0 if fold is None else fold.n for fold in folds.folds])
        self.weight = np.repeat(counts / size, size)
        self.targets = [np.zeros(len(self.weight)) for _ in range(folds.shape[1])]

    @property
    def splits(self) -> list[tuple[Array, Array]]:
        """The rows that stand for all other folds and for one."""
        everything = np.arange(len(self.weight))
        rows_of_folds = np.split(everything, len(self.folds.folds))
        return [(np.setdiff1d(everything, rows), rows) for rows in rows_of_folds]

    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        if rows is None:
            return self._fit(self.folds.total(), wanted, True, self.students)
        inside = set((rows // self.count).tolist())
        (left_out,) = set(range(len(self.folds.folds))) - inside
        return self._fit(self.folds.total(left_out), wanted, False)

    def _fit(
        self,
        raw: Moments,
        wanted: Sequence[set[str]],
        known: bool,
        students: tuple[StudentNoise, ...] = (),
    ) -> Fits:
        settings = self.family.settings
        intake = moments_intake(raw, settings.intercept is not None, shared=settings.shared)
        return self.family.fit_candidates(intake.with_noise(students), wanted, known)

    def predict(self, fits: Fits, rows: Array) -> Predictions:
        fold = self.folds.folds[int(rows[0]) // self.count]
        assert fold is not None
        predictions: Predictions = []
        for t, components in enumerate(fits.components):
            means = [_mean(parts) for parts in components.values()]
            products = residual_products(fold, t, np.array(means), fits.x_mean)
            # rows whose products are those of the residuals: a square root of the L x L matrix
            spread, vectors = np.linalg.eigh(products / fold.n)
            root = np.zeros((self.count, len(means)))
            root[: len(means)] = np.sqrt(self.count * np.maximum(spread, 0.0))[:, None] * vectors.T
            predictions.append(
                {
                    label: HeldOut.of_numbers(
                        -root[:, k],
                        np.full(self.count, mean_variance(fold, parts, fits.x_mean)),
                        np.full(self.count, Mixture(parts).noise),
                    )
                    for k, (label, parts) in enumerate(components.items())
                }
            )
        return predictions


def residual_products(fold: Moments, target: int, means: Array, x_mean: Array) -> Array:
    """sum_i r_ik r_il over the rows of a fold, r_k = y - a_k - (x - x_mean)'b_k.

    ``means`` are (candidates, p) coefficients, or (candidates, p + 1) with a_k last.
    """
    p = len(x_mean)
    b = means[:, :p]
    a = means[:, p] if means.shape[1] > p else np.zeros(len(means))
    about = b @ fold.xy[:, target]
    # sum r_k r_l = those of centred residuals + n times the product of the means
    off = fold.y_mean[target] - a - b @ (fold.x_mean - x_mean)  # the mean residual
    products = fold.yy[target] - about[:, None] - about + b @ fold.xx @ b.T
    return products + fold.n * np.outer(off, off)


def mean_variance(fold: Moments, parts: tuple[Component, ...], x_mean: Array) -> float:
    """The predictive variance of a candidate, averaged over the rows of a fold."""
    p, size = len(x_mean), len(parts[0].posterior.mean)
    off = np.append(fold.x_mean - x_mean, np.ones(size - p))
    second = np.outer(off, off)
    second[:p, :p] += fold.xx / fold.n
    rows = cholesky(second, 1e-14 * float(np.trace(second)) / size).T  # rows'rows = E[z z']
    mean = _mean(parts)
    return float(
        sum(
            component.weight
            * (
                component.posterior.spread(rows).sum()
                + component.noise
                + np.sum((rows @ (component.posterior.mean - mean)) ** 2)
            )
            for component in parts
        )
    )


def _mean(parts: tuple[Component, ...]) -> Array:
    return np.asarray(sum(component.weight * component.posterior.mean for component in parts))
