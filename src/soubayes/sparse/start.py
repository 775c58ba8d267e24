"""Where the logistic solvers start: ridge logistic regression at the prior's own scale.

J is not convex, so the start decides which minimum is found. On MNIST's digits the ridge fit with
d = rate_local * rate_global (tau^2 and nu^2 at their prior means) led to a lower J than weaker
and stronger ridges and than a cold start.
"""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

from soubayes.sparse.columns import Columns, State, cholesky, make_state
from soubayes.sparse.jaakkola import Design

Array = np.ndarray


def ridge_start(
    design: Design, y: Array, weight: Array, model: Columns, precision: Array, gram: Array
) -> State:
    """Ridge logistic regression with these prior precisions by a few L-BFGS steps.

    ``gram`` is X'X/4, the largest curvature the loss can have; its Cholesky factor with the
    prior makes the steps well scaled, and one serves every class.
    """
    pull = model.confidence * precision
    factor = cholesky(gram + np.diag(pull))

    def loss(scaled: Array) -> tuple[float, Array]:
        mean = solve_triangular(factor, scaled, lower=True, trans=1)
        total, slope = 0.5 * mean @ (pull * mean), pull * mean
        for rows, Z in design.blocks():
            eta = (Z @ mean.astype(Z.dtype)).astype(float)
            total += weight[rows] @ (np.logaddexp(0.0, eta) - y[rows] * eta)
            slope = slope + Z.T @ (weight[rows] * (expit(eta) - y[rows])).astype(Z.dtype)
        return float(total), solve_triangular(factor, slope, lower=True)

    found = minimize(
        loss, np.zeros(len(pull)), jac=True, method="L-BFGS-B", options={"maxiter": 25}
    )
    mean = solve_triangular(factor, found.x, lower=True, trans=1)
    p = design.n_columns
    return make_state(model, np.arange(p), mean, gram, precision, np.zeros(p))


def quarter_gram(design: Design, weight: Array) -> Array:
    """X' diag(weight) X / 4 over all columns."""
    total = np.zeros((design.n_columns, design.n_columns))
    for rows, Z in design.blocks():
        scaled = Z * np.sqrt(weight[rows] / 4.0).astype(Z.dtype)[:, None]
        total += scaled.T @ scaled
    return total
