"""One problem whose rows are read by a likelihood, and what a pass over them says about q."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas

from soubayes.sparse.designs.base import RowDesign
from soubayes.sparse.likelihoods.base import (
    CoupledLikelihood,
    Likelihood,
    RowLikelihood,
    RowTerms,
    weighted_terms,
)

Array = np.ndarray


class Pass(NamedTuple):
    """What one pass over the rows says about q(alpha, beta) = N(mean, root root')."""

    loss: float  # E[loss], summed with the weights
    score: Array  # (k,) minus its gradient in the mean
    information: Array  # (k, k) H, twice its gradient in the covariance
    curvature: Array  # (k, k) W, its second derivative in the mean


class RowProblem(NamedTuple):
    """Rows with their likelihood; all solvers of such likelihoods take one of these."""

    likelihood: Likelihood
    design: RowDesign
    y: Any  # (n,), or what the design takes for y
    weight: Any  # (n,); None: known to the design

    def take(self, columns: Array) -> "RowProblem":
        """The same rows with some columns (ascending)."""
        return self._replace(design=self.design.take(columns))

    def total(self, work: Any) -> Any:
        """work(Z, y, weight) of every block of rows, summed entry by entry."""
        return self.design.total(work, self.y, self.weight)

    def read(self, work: Any, mean: Array, root: Array, inside: Array | None = None) -> Any:
        """The sum of work(Z, terms) with the weighted `RowTerms` at q = N(mean, root root').

        ``root`` is upper triangular. q is that of the columns ``inside``, of all if None. A coupled
        likelihood costs one more pass.
        """
        q = _Predictor(inside, mean, np.asfortranarray(root, dtype=self.design.dtype))
        if not isinstance(self.likelihood, CoupledLikelihood):
            return self.total(partial(_read_block, work=work, likelihood=self.likelihood, q=q))
        spread = self.design.total(
            partial(_predictors_block, n=self.design.n_rows, q=q),
            np.arange(self.design.n_rows),
            self.weight,
        )
        terms = np.stack(
            weighted_terms(self.likelihood, spread[0], spread[1], self.y, self.weight), axis=1
        )
        return self.design.total(partial(_work_on_terms, work=work), terms, self.weight)

    def sweep(self, mean: Array, root: Array, *, curvature: bool = True) -> Pass:
        """One pass at q = N(mean, root root'); J's share of the nuisance parameters is a loss."""
        loss, *rest = self.read(partial(_sweep_block, curvature=curvature), mean, root)
        return Pass(loss + self.likelihood.confidence * self.likelihood.kl, *rest)

    def updated(self, mean: Array, root: Array) -> "RowProblem":
        """With the best q of the nuisance parameters at this q(alpha, beta)."""
        q = _Predictor(None, mean, np.asfortranarray(root, dtype=self.design.dtype))
        work = partial(_statistics_block, likelihood=self.likelihood, q=q)
        return self._replace(likelihood=self.likelihood.updated(tuple(self.total(work))))

    def plug_in(self, mean: Array) -> tuple[float, Array]:
        """The loss at known coefficients, and its gradient."""
        if isinstance(self.likelihood, CoupledLikelihood):
            k = self.design.n_columns
            found = self.sweep(mean, np.zeros((k, k)), curvature=False)
            return found.loss, -found.score
        value, slope = self.total(partial(_plug_in_block, likelihood=self.likelihood, mean=mean))
        return float(value), slope


class _Predictor(NamedTuple):
    """q of the coefficients, which gives every row the mean and the variance of its predictor."""

    columns: Array | None  # of the block; None: all
    mean: Array
    root: Array

    def of(self, Z: Array) -> tuple[Array, Array]:
        Z = Z if self.columns is None else Z[:, self.columns]
        trmm = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
        eta = Z.astype(float, copy=False) @ self.mean
        spread = trmm(1.0, self.root, Z.T, trans_a=1)  # (k, rows)
        return eta, np.einsum("ij,ij->j", spread, spread).astype(float)


def weighted_gram(Z: Array, weight: Array) -> Array:
    """Z' diag(weight) Z; NumPy sees that both factors are one array and uses syrk."""
    scaled = Z * np.sqrt(weight).astype(Z.dtype)[:, None]
    return (scaled.T @ scaled).astype(float, copy=False)


def _read_block(
    Z: Array, y: Array, weight: Array, work: Any, likelihood: Likelihood, q: _Predictor
) -> Any:
    return work(Z, weighted_terms(likelihood, *q.of(Z), y, weight))


def _work_on_terms(Z: Array, terms: Array, weight: Array, work: Any) -> Any:
    return work(Z, RowTerms(*terms.T))


def _predictors_block(
    Z: Array, index: Array, weight: Array, n: int, q: _Predictor
) -> tuple[Array, Array]:
    eta, variance = np.zeros(n), np.zeros(n)  # the blocks are summed
    eta[index], variance[index] = q.of(Z)
    return eta, variance


def _statistics_block(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, q: _Predictor
) -> tuple[float, ...]:
    parts = likelihood.statistics(*q.of(Z), y)
    return tuple(float(weight @ np.broadcast_to(part, weight.shape)) for part in parts)


def _sweep_block(Z: Array, terms: RowTerms, curvature: bool) -> tuple[float, Array, Array, Array]:
    H = weighted_gram(Z, terms.information)
    if terms.curvature is terms.information:
        W = H.copy()
    else:
        W = weighted_gram(Z, terms.curvature) if curvature else np.zeros_like(H)
    score = Z.T.astype(float, copy=False) @ terms.score
    return float(terms.loss.sum()), score, H, W


def _plug_in_block(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array
) -> tuple[float, Array]:
    assert isinstance(likelihood, RowLikelihood)
    eta = (Z @ mean.astype(Z.dtype)).astype(float)
    with np.errstate(over="ignore"):
        loss, slope = likelihood.plug_in(eta, y)
    total = Z.T @ (weight * slope).astype(Z.dtype)
    return float(weight @ loss), total.astype(float, copy=False)
