"""One problem whose rows are read by a likelihood, and what a pass over them says about q."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas

from soubayes.sparse.designs.base import RowDesign
from soubayes.sparse.likelihoods.base import RowLikelihood, RowTerms

Array = np.ndarray


class Pass(NamedTuple):
    """What one pass over the rows says about q(alpha, beta) = N(mean, root root')."""

    loss: float  # E[loss], summed with the weights
    score: Array  # (k,) minus its gradient in the mean
    information: Array  # (k, k) H, twice its gradient in the covariance
    curvature: Array  # (k, k) W, its second derivative in the mean


class RowProblem(NamedTuple):
    """Rows with their likelihood; all solvers of such likelihoods take one of these."""

    likelihood: RowLikelihood
    design: RowDesign
    y: Any  # (n,), or what the design takes for y
    weight: Any  # (n,); None: known to the design

    def take(self, columns: Array) -> "RowProblem":
        """The same rows with some columns (ascending)."""
        return self._replace(design=self.design.take(columns))

    def total(self, work: Any) -> Any:
        """work(Z, y, weight) of every block of rows, summed entry by entry."""
        return self.design.total(work, self.y, self.weight)

    def sweep(self, mean: Array, root: Array, *, curvature: bool = True) -> Pass:
        """One pass at q = N(mean, root root'); ``root`` is upper triangular."""
        root = np.asfortranarray(root, dtype=self.design.dtype)
        work = partial(
            _sweep_block, likelihood=self.likelihood, mean=mean, root=root, curvature=curvature
        )
        return Pass(*self.total(work))

    def plug_in(self, mean: Array) -> tuple[float, Array]:
        """The loss at known coefficients, and its gradient."""
        value, slope = self.total(partial(_plug_in_block, likelihood=self.likelihood, mean=mean))
        return float(value), slope


def block_terms(
    likelihood: RowLikelihood, Z: Array, y: Array, mean: Array, root: Array
) -> RowTerms:
    """The terms of a block of rows at q = N(mean, root root')."""
    trmm = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
    eta = Z.astype(float, copy=False) @ mean
    spread = trmm(1.0, root, Z.T, trans_a=1)  # (k, rows)
    variance = np.einsum("ij,ij->j", spread, spread).astype(float)
    return likelihood.terms(eta, variance, y)


def weighted_gram(Z: Array, weight: Array) -> Array:
    """Z' diag(weight) Z; NumPy sees that both factors are one array and uses syrk."""
    scaled = Z * np.sqrt(weight).astype(Z.dtype)[:, None]
    return (scaled.T @ scaled).astype(float, copy=False)


def _sweep_block(
    Z: Array,
    y: Array,
    weight: Array,
    likelihood: RowLikelihood,
    mean: Array,
    root: Array,
    curvature: bool,
) -> tuple[float, Array, Array, Array]:
    terms = block_terms(likelihood, Z, y, mean, root)
    H = weighted_gram(Z, weight * terms.information)
    if terms.curvature is terms.information:
        W = H.copy()
    else:
        W = weighted_gram(Z, weight * terms.curvature) if curvature else np.zeros_like(H)
    score = Z.T.astype(float, copy=False) @ (weight * terms.score)
    return float(weight @ terms.loss), score, H, W


def _plug_in_block(
    Z: Array, y: Array, weight: Array, likelihood: RowLikelihood, mean: Array
) -> tuple[float, Array]:
    eta = (Z @ mean.astype(Z.dtype)).astype(float)
    loss, slope = likelihood.plug_in(eta, y)
    total = Z.T @ (weight * slope).astype(Z.dtype)
    return float(weight @ loss), total.astype(float, copy=False)
