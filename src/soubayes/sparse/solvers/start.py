"""Where the row-wise solvers start: ridge regression at the prior's own scale.

J is not convex, so the start decides which minimum is found. On MNIST's digits the ridge fit with
d = rate_local * rate_global (tau^2 and nu^2 at their prior means) led to a lower J than weaker
and stronger ridges and than a cold start.
"""

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from soubayes.sparse.designs.base import RowDesign
from soubayes.sparse.designs.triangles import cholesky
from soubayes.sparse.solvers.row_problem import RowProblem, weighted_gram
from soubayes.sparse.solvers.row_state import RowModel, RowState, copies_out, make_state

Array = np.ndarray


def start_precision(model: RowModel) -> Array:
    """The prior precision with tau^2 and nu^2 at typical values under their priors."""
    return model.precisions(model.local_prior.start_precision * model.global_prior.start_precision)


def ridge_start(problem: RowProblem, model: RowModel, precision: Array, gram: Array) -> RowState:
    """Ridge regression with these prior precisions by a few L-BFGS steps.

    ``gram`` is X'X times a typical curvature of the loss; its Cholesky factor with the prior makes
    the steps well scaled, and one serves every class.
    """
    active = model.distinct
    precision, rest = copies_out(model, precision, np.diag(gram))
    problem, gram = problem.take(active), gram[np.ix_(active, active)]
    pull = (model.confidence * precision)[active]
    factor = cholesky(gram, pull)

    def loss(scaled: Array) -> tuple[float, Array]:
        mean = solve_triangular(factor, scaled, lower=True, trans=1)
        value, slope = problem.plug_in(mean)
        value += 0.5 * mean @ (pull * mean)
        return float(value), solve_triangular(factor, slope + pull * mean, lower=True)

    limits = {"maxiter": 25, "ftol": 2e-9}
    if problem.design.dtype == np.float32:  # or rounding sends line searches after noise
        limits |= {"ftol": 1e-7, "maxls": 4}
    found = minimize(loss, np.zeros(len(pull)), jac=True, method="L-BFGS-B", options=limits)
    mean = solve_triangular(factor, found.x, lower=True, trans=1)
    return make_state(model, active, mean, gram, precision, rest)


def gram_of(design: RowDesign, y: Array, weight: Array) -> Array:
    """X' diag(weight) X over all columns."""
    return design.total(_gram_block, y, weight)[0]


def _gram_block(Z: Array, y: Array, weight: Array) -> tuple[Array]:
    return (weighted_gram(Z, weight),)
