"""The prior side of the logistic J: what it says about each column, and its value at a state."""

from typing import NamedTuple

import numpy as np

from soubayes.sparse.jaakkola import Pass
from soubayes.sparse.scales import (
    Prior,
    Scale,
    balance_global,
    best_shape,
    scale_objective,
    split_precision,
)
from soubayes.sparse.triangles import cholesky, invert_triangle

Array = np.ndarray


class Columns(NamedTuple):
    """Confidence and prior of the coefficient of every column of a `Design`.

    Sparse columns have the prior N(0, tau_j^2 nu^2), the others N(0, 1/precision). The paper's q
    is q(alpha) q(beta): the intercept, if there is one the last column, has a factor of its own.
    q(beta) is one Gaussian; columns of different confidence are ordered sources of uncertainty,
    the last column first: with A = H + gamma D = LL', S = L^-T Gamma L^-1.
    """

    confidence: Array  # (p,) gamma_b, or gamma_alpha
    sparse: Array  # (p,) bool
    precision: Array  # (p,), used where not sparse
    local_prior: Prior
    global_prior: Prior
    local_confidence: Array  # (p,), used where sparse: gamma_tau
    global_confidence: float  # gamma_nu
    intercept: bool = True

    @property
    def selects(self) -> Array:
        """Where J has a minimum at an (almost) infinite prior precision: gamma_t < gamma_b/2."""
        return self.sparse & (self.local_confidence < self.confidence / 2.0)


class State(NamedTuple):
    """q of all factors. Dropped columns (not in ``active``) act on J only through ``rest``."""

    active: Array  # (k,) columns, ascending
    mean: Array  # (k,)
    root: Array  # (k, k) upper triangular: the covariance is root root'
    precision: Array  # (p,) d, the prior precision E[1/(tau_j^2 nu^2)]
    local: Scale  # of the sparse columns
    global_: Scale
    rest: Array  # (p,) what a dropped column adds to J beside its scales, see `dropped_terms`


class Fit(NamedTuple):
    """Where a solver ended, and how."""

    state: State
    data: Pass  # on the active columns
    history: list[float]  # J after every outer step; the last one is J of the state
    converged: bool
    interrupted: bool = False
    # wide data with nothing dropped: the rows' weighted 2 lambda(xi), from which the covariance
    # follows; ``state.root`` and the matrices of ``data`` are then empty
    rows: Array | None = None


def make_state(
    model: Columns,
    active: Array,
    mean: Array,
    bound: Array,
    precision: Array,
    rest: Array,
    near: tuple[Scale, Scale] | None = None,
) -> State:
    """The state whose covariance and scales are optimal for these prior precisions.

    From scales ``near`` the optimal ones one round of updates is enough.

    ``bound`` is H = 2 X' Lambda X on the active columns.
    """
    root = covariance_root(model, active, bound, precision)
    scales = refresh_scales(model, precision, near) if near else split_scales(model, precision)
    return State(active, mean, root, precision, *scales, rest)


def covariance_root(model: Columns, active: Array, bound: Array, precision: Array) -> Array:
    """The upper triangular R with S = R R' = gamma_b (H + gamma_b D)^-1, alpha apart."""
    gamma = model.confidence[active]
    lower = cholesky(apart(model, bound), gamma * precision[active])
    return invert_triangle(lower).T * np.sqrt(gamma)


def prior_value(model: Columns, state: State) -> float:
    """J without the loss: supplement C.4.3 from the second line on."""
    k = state.active
    gamma, d = model.confidence[k], state.precision[k]
    variance = np.einsum("ij,ij->i", state.root, state.root)
    # the diagonal of the triangular root gives log|S| of every source
    log_det = 2.0 * np.log(np.diag(state.root))
    gain = np.where(model.sparse[k], 0.0, np.log(d))
    total = np.sum(gamma * (d * (variance + state.mean**2) - log_det - 1.0 - gain)) / 2.0
    total += scales_value(model, state.local, state.global_)
    return float(total + state.rest.sum())


def scales_value(model: Columns, local: Scale, global_: Scale) -> float:
    """The part of J in q(tau^2) and q(nu^2), without their share in E[beta_j^2] d_j."""
    weight = model.confidence[model.sparse] / 2.0
    if not len(weight):
        return 0.0
    confidence = model.local_confidence[model.sparse]
    value = np.sum(scale_objective(model.local_prior, local, weight, 0.0, confidence))
    return float(
        value
        + scale_objective(model.global_prior, global_, weight.sum(), 0.0, model.global_confidence)
    )


def dropped_terms(
    model: Columns, columns: Array, information: Array, score: Array, precision: Array
) -> Array:
    """What dropped columns add to J beside their scales, from s_j, q_j and w_j = gamma_b d_j.

    gamma_b/2 log((s + w)/gamma_b) - q^2/(2 (s + w)): the column's own loss, KL and entropy at its
    optimal N(q/(s + w), gamma_b/(s + w)). It ignores what dropped columns do to each other,
    which is of order (s/w)^2.
    """
    gamma = model.confidence[columns]
    total = information + gamma * precision
    return gamma / 2.0 * np.log(total / gamma) - score**2 / (2.0 * total)


def split_scales(
    model: Columns, precision: Array, held: tuple[Scale, Scale] | None = None
) -> tuple[Scale, Scale]:
    """The q(tau^2) and q(nu^2) that minimise J given d, optionally with the shapes ``held``."""
    sparse = model.sparse
    if not sparse.any():
        return Scale(np.ones(0), np.ones(0)), Scale(np.array(2.0), np.array(1.0))
    d, gamma_t = precision[sparse], model.local_confidence[sparse]
    priors = model.local_prior, model.global_prior
    if held is not None:
        return balance_global(*priors, d, *held, gamma_t, model.global_confidence)
    return split_precision(*priors, d, model.confidence[sparse], gamma_t, model.global_confidence)


def refresh_scales(
    model: Columns, precision: Array, held: tuple[Scale, Scale]
) -> tuple[Scale, Scale]:
    """One round of `split_scales`: ratios for the shapes held, then the best shapes for them."""
    local, global_ = split_scales(model, precision, held)
    if not len(local.shape):
        return local, global_
    half = model.confidence[model.sparse] / 2.0
    gamma_t, gamma_n = model.local_confidence[model.sparse], model.global_confidence
    a = best_shape(model.local_prior, local.ratio, half, gamma_t)
    a_nu = best_shape(model.global_prior, global_.ratio, half.sum(), gamma_n)
    return Scale(a, local.ratio), Scale(a_nu, global_.ratio)


def apart(model: Columns, matrix: Array) -> Array:
    """A copy of H on some columns with nothing between the intercept and the rest."""
    matrix = matrix.copy()
    if model.intercept:
        matrix[-1, :-1] = matrix[:-1, -1] = 0.0
    return matrix
