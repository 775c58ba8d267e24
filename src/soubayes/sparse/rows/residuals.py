"""Residuals that contradict the family, and what follows for intervals and prices of columns."""

from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import lapack, solve_triangular

from soubayes.sparse.constants import CLEAR, FULL_LEVERAGE
from soubayes.sparse.likelihoods.base import Likelihood
from soubayes.sparse.likelihoods.shifted import offset_apart, plain
from soubayes.sparse.rows.passes import RowProblem

Array = np.ndarray


def dispersion(problem: RowProblem, mean: Array) -> float:
    """phi at known coefficients and one standard error more, or 1 where the family explains it.

    Where a family does not say rightly how the variance of y follows from its mean, the variance of
    an estimate is H^-1 J H^-1 and not H^-1, with J the outer product of the slopes of the loss and
    H its curvature. For families of one mean and one variance the ratio J/H of a row is its squared
    Pearson residual, so the ratio of both is about the dispersion of a quasi-likelihood,

        phi = sum (y - mu)^2 / Var[y | mu] / (n - k).

    Where the family holds phi has the variance `residual_variance`/n. Where it does not, only the
    residuals say how well they tell phi, and a few of them often are most of it: phi alone would
    still be too small in most tables. Intervals are never narrower than those of the family.
    """
    work = partial(_residuals, likelihood=problem.likelihood, mean=mean)
    square, fourth, n = map(float, problem.total(work))
    left = n - len(mean)
    if not (left > 0.0 and np.isfinite(fourth)):
        return 1.0
    phi = square / left
    if phi <= 1.0 + CLEAR * float(np.sqrt(problem.likelihood.residual_variance / n)):
        return 1.0
    return phi + float(np.sqrt(max(fourth / n - (square / n) ** 2, 0.0) / left))


def price_factor(problem: RowProblem, mean: Array) -> float:
    """What multiplies the price of these columns, or 1 where the family explains the residuals.

    The loss of new rows exceeds that of the fitted rows by tr(J H^-1) on average [Takeuchi 1976],
    with J the outer product of the slopes of the loss and H its curvature: k, Akaike's count,
    where the family holds. With the leverages l and the Pearson residuals e of the rows it is
    sum(l e^2); here e/(1 - l), as of a fit without the row, since a column that was taken in for
    one row has its leverage there. The factor is sum(l e^2/(1 - l)^2)/sum(l), whose variance under
    the family is `residual_variance` sum(l^2)/sum(l)^2.
    """
    likelihood, mean = problem.likelihood, np.asarray(mean)
    (H,) = problem.total(partial(_information, likelihood=likelihood, mean=mean))
    root, failed = lapack.dpotrf(H, lower=1)
    if failed:  # some columns are not identified by these rows
        return 1.0
    work = partial(_leverages, likelihood=likelihood, mean=mean, root=root)
    left_out, leverage, square = map(float, problem.total(work))
    if not (leverage > 0.0 and np.isfinite(left_out)):
        return 1.0
    factor = left_out / leverage
    clear = CLEAR * np.sqrt(likelihood.residual_variance * square) / leverage
    return factor if factor > 1.0 + clear else 1.0


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def _pearson(Z: Array, y: Array, likelihood: Likelihood, mean: Array) -> tuple[Array, Array]:
    """Squared Pearson residuals, and the expected curvature mu^2/Var[y] under a log link."""
    base: Any = plain(likelihood)
    y, offset = offset_apart(y)
    eta = Z.astype(float, copy=False) @ mean + offset + likelihood.shift
    mu, variance = base.predict(eta, np.zeros_like(eta)), base.noise(eta)
    return (y - mu) ** 2 / variance, mu**2 / variance


def _residuals(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array
) -> tuple[Any, ...]:
    """Sums of the squared Pearson residuals, of their squares, and of the weights."""
    square, _ = _pearson(Z, y, likelihood, mean)
    with np.errstate(over="ignore"):
        return weight @ square, weight @ square**2, weight.sum()


def _information(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array
) -> tuple[Any, ...]:
    """The expected curvature of the loss in the coefficients."""
    _, curvature = _pearson(Z, y, likelihood, mean)
    return (Z.T @ ((weight * curvature)[:, None] * Z),)


def _leverages(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array, root: Array
) -> tuple[Any, ...]:
    """Sums of l e^2/(1 - l)^2, of the leverages l, and of their squares."""
    square, curvature = _pearson(Z, y, likelihood, mean)
    leverage = curvature * np.square(solve_triangular(root, Z.T, lower=True)).sum(axis=0)
    leverage = np.minimum(leverage, FULL_LEVERAGE)
    with np.errstate(over="ignore"):
        left_out = weight @ (leverage * square / (1.0 - leverage) ** 2)
    return left_out, weight @ leverage, weight @ leverage**2
