"""Where a path begins: ridge regression, by a matrix or by products with X; fits by products.

J is not convex, so the start decides which minimum is found. On MNIST's digits the ridge fit with
d = rate_local * rate_global (tau^2 and nu^2 at their prior means) led to a lower J than weaker
and stronger ridges and than a cold start.

Of a large scipy-sparse X a dense copy, or X'X over all columns, would take longer than everything
else; of several classes the information of all coordinates would. A product with X takes as long as
it has nonzeros, so means are found by L-BFGS, and the path begins with the few columns that explain
most; the others are dropped and tested as all dropped columns are.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from soubayes.sparse.designs.columns import EQUAL, StandardColumns
from soubayes.sparse.designs.linalg import cholesky
from soubayes.sparse.designs.standardise import first_in_gram
from soubayes.sparse.dial import DialPoint, at_point
from soubayes.sparse.likelihoods.base import Likelihood, RowTerms, times_rows, weighted_terms
from soubayes.sparse.posterior import Posterior
from soubayes.sparse.rows.dial import NUISANCE_ROUNDS, RowFitAt
from soubayes.sparse.rows.dropped import own_precision
from soubayes.sparse.rows.passes import RowDesign, RowProblem, RowsInMemory, gram_of
from soubayes.sparse.rows.state import (
    RowModel,
    RowState,
    copies_out,
    dropped_terms,
    make_state,
    tau_precision,
)

Array = np.ndarray

PRODUCTS_TOL = 1e-9  # relative fall of the penalised loss at which L-BFGS stops
PRODUCTS_STEPS = 300  # of L-BFGS at most


class Penalised(NamedTuple):
    """The minimum of the loss plus w_j mean_j^2/2."""

    mean: Array
    terms: RowTerms  # of the rows there, weighted
    converged: bool
    n_iter: int


def penalised(problem: RowProblem, X: StandardColumns, w: Array) -> Penalised:
    """By L-BFGS in coordinates scaled by the diagonal of the Hessian at 0."""
    likelihood, y, weight = problem.likelihood, problem.y, problem.weight
    typical = likelihood.start_curvature * X.norms(weight)
    # in these units the diagonal of the Hessian is about 1, which L-BFGS starts from
    unit = 1.0 / np.sqrt(w + np.repeat(typical, likelihood.coordinates))

    def value(scaled: Array) -> tuple[float, Array]:
        mean = unit * scaled
        with np.errstate(over="ignore"):
            loss, slope = likelihood.plug_in(_times(X, mean, likelihood), y)
        total = float(weight @ loss) + 0.5 * float(mean @ (w * mean))
        return total, unit * (_left(X, times_rows(weight, slope)) + w * mean)

    options: Any = {"maxiter": PRODUCTS_STEPS, "ftol": PRODUCTS_TOL, "gtol": 0.0, "maxcor": 20}
    minimum = minimize(value, np.zeros(len(w)), jac=True, method="L-BFGS-B", options=options)
    mean = unit * minimum.x
    eta = _times(X, mean, likelihood)
    terms = weighted_terms(likelihood, eta, np.zeros_like(eta), y, weight)
    return Penalised(mean, terms, bool(minimum.success), int(minimum.nit))


def fit_held_by_products(problem: RowProblem, model: RowModel, point: DialPoint) -> RowFitAt:
    """A point with held scales; its covariance is that of each column alone."""
    assert point.held is not None
    X, sparse = _columns(problem), model.sparse
    plain = at_point(model, point).variance[~sparse]
    w = np.empty(len(sparse))
    w[sparse], w[~sparse] = 1.0 / point.held, point.coef / plain
    nuisance = problem.likelihood.nuisance is not None
    for turn in range(NUISANCE_ROUNDS if nuisance else 1):
        mode = penalised(problem, X, w)
        if nuisance and turn < NUISANCE_ROUNDS - 1:
            eta = X.times(mode.mean)
            problem = problem.updated_at(eta, np.zeros(len(eta)))
    # diagonal of the Hessian: off-diagonal terms would need X'BX, which is never formed
    s = X.norms(np.maximum(mode.terms.information, 0.0))
    none = np.zeros(0, int)
    posterior = Posterior(mode.mean, 1.0 / (s + w), none, np.zeros((0, 0)))
    effective = float(np.sum((s / (s + w))[sparse]))
    likelihood = problem.likelihood if nuisance else None
    return RowFitAt(posterior, effective, mode.n_iter, mode.converged, likelihood, point.coef)


def screened_start(problem: RowProblem, model: RowModel, precision: Array, room: int) -> RowState:
    """From ridge regression: at most ``room`` columns by their z^2 alone, whole groups of them."""
    X = _columns(problem)
    mode = penalised(problem, X, model.confidence * precision)
    information = mode.terms.information
    if information.ndim == 1:
        information = np.maximum(information, 0.0)
        s = X.norms(information)
    else:
        diagonals = np.einsum("naa->na", information)
        s = np.stack([X.norms(diagonal) for diagonal in diagonals.T], axis=1).ravel()
    # columns that nothing tells to leave are always in
    stay, sparse = ~model.selects, model.sparse
    # z_j^2 = s_j mean_j^2 of a column alone ranks the columns; the path tests them properly
    gain = model.groups.sum((s * mode.mean**2)[sparse])
    if model.copies is not None:
        gain = np.where(model.copies[sparse], 0.0, gain)
    stay[sparse] |= model.groups.largest(gain, room)
    j, precision, rest = np.flatnonzero(~stay), precision.copy(), np.zeros(len(s))
    local, top = model.scales.split(tau_precision(model, precision))
    precision[j] = own_precision(model, local, top, j, s[j], 0.0 * s[j])
    rest[j] = dropped_terms(model, j, s[j], 0.0 * s[j], precision[j])
    active = np.flatnonzero(stay)
    H = gram_of(problem.take(active).design, information)
    return make_state(model, active, mode.mean[active], H, precision, rest)


def _columns(problem: RowProblem) -> StandardColumns:
    design = problem.design
    X = design.by_products() or (design.standard() if isinstance(design, RowsInMemory) else None)
    assert X is not None
    return X


def _times(X: StandardColumns, mean: Array, likelihood: Likelihood) -> Array:
    """The predictors of the rows: (n,), or (n, d) of several coordinates."""
    if not likelihood.several:
        return X.times(mean)
    by_predictor = mean.reshape(-1, likelihood.coordinates).T
    return np.stack([X.times(vector) for vector in by_predictor], axis=1)


def _left(X: StandardColumns, values: Array) -> Array:
    """X' values, coordinates of a column together."""
    if values.ndim == 1:
        return X.left(values)
    return np.stack([X.left(vector) for vector in values.T], axis=1).ravel()


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
    # in x = L'b the quadratic form of the typical curvature is the identity
    factor = cholesky(gram, pull)

    def loss(scaled: Array) -> tuple[float, Array]:
        mean = solve_triangular(factor, scaled, lower=True, trans=1)
        value, slope = problem.plug_in(mean)
        # the prior N(0, 1/d) at confidence gamma adds gamma d m^2/2
        value += 0.5 * mean @ (pull * mean)
        return float(value), solve_triangular(factor, slope + pull * mean, lower=True)

    limits = {"maxiter": 25, "ftol": 2e-9}
    if problem.design.dtype == np.float32:  # or rounding sends line searches after noise
        limits |= {"ftol": 1e-7, "maxls": 4}
    minimum = minimize(loss, np.zeros(len(pull)), jac=True, method="L-BFGS-B", options=limits)
    mean = solve_triangular(factor, minimum.x, lower=True, trans=1)
    return make_state(model, active, mean, gram, precision, rest)


def first_in_rows(design: RowDesign, gram: Array, y: Any, weight: Any) -> Array:
    """The same from X'X and rows, which tell equal columns where X'X was summed in float32."""
    if design.dtype == np.float64:
        return first_in_gram(gram)
    first = first_in_gram(gram, 1e-5)
    copies = np.flatnonzero(first != np.arange(len(first)))
    if not len(copies):
        return first
    both = np.union1d(copies, first[copies])
    one, two = np.searchsorted(both, first[copies]), np.searchsorted(both, copies)
    sign = np.sign(gram[first[copies], copies])
    work = partial(_differences, one=one, two=two, sign=sign)
    apart = design.take(both).total(work, y, weight)[0]
    first[copies] = np.where(apart <= EQUAL * design.n_rows, first[copies], copies)
    return first


def _differences(
    Z: Array, y: Array, weight: Array, one: Array, two: Array, sign: Array
) -> tuple[Array]:
    """Squared distances of pairs of columns."""
    Z = Z.astype(float, copy=False)
    return (np.square(Z[:, one] - sign * Z[:, two]).sum(axis=0),)
