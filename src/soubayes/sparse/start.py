"""Where the logistic solvers start: ridge logistic regression at the prior's own scale.

J is not convex, so the start decides which minimum is found. On MNIST's digits the ridge fit with
d = rate_local * rate_global (tau^2 and nu^2 at their prior means) led to a lower J than weaker
and stronger ridges and than a cold start.
"""

from functools import partial

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

from soubayes.sparse.columns import Columns, State, make_state
from soubayes.sparse.jaakkola import Design, gram
from soubayes.sparse.triangles import cholesky

Array = np.ndarray


def ridge_start(
    design: Design, y: Array, weight: Array, model: Columns, precision: Array, gram: Array
) -> State:
    """Ridge logistic regression with these prior precisions by a few L-BFGS steps.

    ``gram`` is X'X/4, the largest curvature the loss can have; its Cholesky factor with the
    prior makes the steps well scaled, and one serves every class.
    """
    pull = model.confidence * precision
    factor = cholesky(gram, pull)

    def loss(scaled: Array) -> tuple[float, Array]:
        mean = solve_triangular(factor, scaled, lower=True, trans=1)
        value, slope = design.total(partial(_loss_block, mean=mean), y, weight)
        value += 0.5 * mean @ (pull * mean)
        return float(value), solve_triangular(factor, slope + pull * mean, lower=True)

    # below this the rounding of float32 rows would send line searches after noise, 20 passes each
    enough = 1e-7 if design.dtype == np.float32 else 2e-9
    limits = {"maxiter": 25, "ftol": enough}
    found = minimize(loss, np.zeros(len(pull)), jac=True, method="L-BFGS-B", options=limits)
    mean = solve_triangular(factor, found.x, lower=True, trans=1)
    p = design.n_columns
    return make_state(model, np.arange(p), mean, gram, precision, np.zeros(p))


def _loss_block(Z: Array, y: Array, weight: Array, mean: Array) -> tuple[float, Array]:
    eta = (Z @ mean.astype(Z.dtype)).astype(float)
    slope = Z.T @ (weight * (expit(eta) - y)).astype(Z.dtype)
    value = weight @ (np.logaddexp(0.0, eta) - y * eta)
    return float(value), slope.astype(float, copy=False)


def quarter_gram(design: Design, weight: Array) -> Array:
    """X' diag(weight) X / 4 over all columns."""
    return design.total(_quarter_block, weight, weight)[0]


def _quarter_block(Z: Array, y: Array, weight: Array) -> tuple[Array]:
    return (gram(Z, weight / 4.0),)
