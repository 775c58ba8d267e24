"""Standardised columns of logistic regression in memory."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from soubayes.sparse.base import check_finite_columns, column_scales
from soubayes.sparse.jaakkola import ROWS, Design
from soubayes.sparse.wide_columns import weighted_moments

Array = np.ndarray


class Units(NamedTuple):
    """Mean and scale of the columns, and which are constant."""

    mean: Array
    scale: Array
    constant: Array


def standardise(X: Any, weight: Array, centre: bool) -> tuple[Units, Any]:
    """Weighted mean and standard deviation of every column, and X with them taken out.

    A dense X is copied in its own dtype, a block of rows at a time, followed by a column of ones
    (if ``centre``) that passes over the rows need not add; a sparse one stays as it is. Without an
    intercept the columns are only scaled, to mean square 1.
    """
    n = float(weight.sum())
    share = weight / n
    blocks = [slice(i, i + ROWS) for i in range(0, X.shape[0], ROWS)]
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        if sp.issparse(X):
            mean, square = weighted_moments(X, share, centre)
        else:
            mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1])
            for rows in blocks if centre else []:
                mean += share[rows] @ X[rows]
            for rows in blocks:
                square += share[rows] @ np.square(np.asarray(X[rows], float) - mean)
        scale, constant = column_scales(mean, square, n)
    check_finite_columns(square)
    units = Units(mean, scale, constant)
    if sp.issparse(X):
        return units, sp.csr_array(X)
    out = np.ones((X.shape[0], X.shape[1] + centre), X.dtype)
    for rows in blocks:
        part = (np.asarray(X[rows], float) - mean) / scale
        part[:, constant] = 0.0
        out[rows, : X.shape[1]] = part
    return units, out


def make_design(matrix: Any, units: Units, order: Array, intercept: bool) -> Design:
    """The design of these columns in this order."""
    moved = not np.array_equal(order, np.arange(len(order)))
    if not sp.issparse(matrix):
        places = np.append(order, len(order)) if intercept else order
        return Design(matrix[:, places] if moved else matrix, intercept=False)
    matrix = matrix[:, order] if moved else matrix
    # a constant column minus its mean is 0 only up to rounding; an infinite scale makes it 0
    scale = np.where(units.constant, np.inf, units.scale)
    return Design(matrix, intercept, units.mean[order], scale[order])
