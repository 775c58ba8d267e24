"""L-BFGS on all of q at once, for row-wise models whose quadratic model is poor.

Newton's steps hold H, the information of the rows, while the covariance moves. Under an exact
expectation H depends on the covariance, and strongly so where the variance of eta is large, as in
separated data: steps then overshoot, are cut, and converge slowly. Here mean, covariance and prior
precisions move together, by the gradient of J itself. Whitened by the covariance at the start,
the second derivatives of J are of the size of the confidences.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.optimize import Bounds, minimize

from soubayes.sparse.rows.passes import Pass, RowProblem
from soubayes.sparse.rows.state import RowModel, RowState, prior_value, tau_precision
from soubayes.sparse.scales.balance import Groups

Array = np.ndarray

_RENEWALS = 4  # rounds of shapes and all the rest in turn, at a precise end
_STILL = 1e-8  # slope of J there, in units of the posterior, that is none
_REACH = 4.0  # how far log d and the log sds go in one call, at most
_FEW = 5_000  # coordinates; SciPy takes longer to read more bounds than a pass takes


def descend_jointly(
    problem: RowProblem,
    model: RowModel,
    start: RowState,
    enough: float,
    max_iter: int,
    precise: bool = False,
) -> tuple[RowState, bool]:
    """The state after at most ``max_iter`` steps on the active columns, and whether they ended.

    They end when one gains less than ``enough``. J is that of the shapes of ``start``. A
    ``precise`` end has as many digits as the gradient of J and not only as J itself; the shapes
    follow it.
    """
    rows, at = problem.take(start.active), _Coordinates.of(model, start)
    if not at.size:
        return start, True
    objective, zero = partial(_objective, rows, at), np.zeros(at.size)
    value = objective(zero)[0]
    minimum = minimize(
        objective,
        zero,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(-at.most, at.most) if at.size <= _FEW else None,
        options={
            "maxiter": max_iter,
            "ftol": enough / max(abs(value), 1.0),
            "gtol": 0.0,
            "maxcor": 20,
            # slopes of a rough rule are not those of its J: more trials would find nothing
            "maxls": 20 if precise else 8,
        },
    )
    state = at.renewed(np.clip(minimum.x, -at.most, at.most))
    for _ in range(_RENEWALS if precise else 0):
        at = _Coordinates.of(model, state)
        if np.abs(_slope(rows, at, zero)).max() < _STILL:
            break
        state = at.renewed(_precise(zero, partial(_slope, rows, at)))
    return state, bool(minimum.success)


def _objective(rows: RowProblem, at: "_Coordinates", x: Array) -> tuple[float, Array]:
    """J and its gradient; J is flat beyond the bounds, which are not passed on if too many."""
    state, inside = at.state(np.clip(x, -at.most, at.most)), np.abs(x) <= at.most
    with np.errstate(over="ignore", invalid="ignore"):
        data = rows.sweep(state.mean, state.root, curvature=False)
        value, slope = data.loss + prior_value(at.model, state), at.slope(state, data)
    if not np.isfinite(value) or not np.isfinite(slope).all():
        return 1e300, np.zeros_like(x)
    return value, slope * inside


def _slope(rows: RowProblem, at: "_Coordinates", x: Array) -> Array:
    return _objective(rows, at, x)[1]


def _precise(x: Array, slope: Callable[[Array], Array]) -> Array:
    """A few Newton steps by conjugate gradients, with differences of the slope."""
    here = slope(x)
    for _ in range(4):
        step, left = np.zeros_like(x), -here
        way, size = left, left @ left
        for _ in range(40):
            if size <= 1e-2 * (here @ here):
                break
            # the Hessian times a direction, by a forward difference of the slope
            far = 1e-6 / max(float(np.abs(way).max()), 1e-300)
            bent = (slope(x + far * way) - here) / far
            curvature = way @ bent
            if not curvature > 0.0:
                break
            step, left = step + size / curvature * way, left - size / curvature * bent
            way, size = left + left @ left / size * way, left @ left
        if not np.abs(step).max() < 1.0:  # in units of the posterior: the end is not near
            break
        new = slope(x + step)
        if not new @ new < 0.25 * (here @ here):
            break
        x, here = x + step, new
    return x


@dataclass(frozen=True)
class _Coordinates:
    """theta = log d of every tau, the mean and the root R, as steps from a state.

    The mean is m + R u. The root is R U with U upper triangular, the logarithms of its diagonal
    being coordinates; nothing stands between the intercept and the rest.
    """

    model: RowModel
    start: RowState
    sparse: Array  # the active columns that have a tau
    groups: Groups  # of these columns
    taus: Array  # their number among all
    upper: tuple[Array, Array]  # rows and columns of the free entries above the diagonal

    @classmethod
    def of(cls, model: RowModel, start: RowState) -> "_Coordinates":
        sparse = model.sparse[start.active]
        columns, k = start.active[sparse], len(start.active)
        upper = np.triu_indices(k, 1)
        if model.intercept:
            inside = upper[1] < k - 1
            upper = upper[0][inside], upper[1][inside]
        groups = model.take(columns).groups
        return cls(model, start, sparse, groups, model.taus_of(columns), upper)

    @property
    def size(self) -> int:
        return self.groups.n_groups + 2 * len(self.start.active) + len(self.upper[0])

    @cached_property
    def most(self) -> Array:
        """The logarithms go at most so far; far from the start its covariance whitens badly."""
        g, k = self.groups.n_groups, len(self.start.active)
        most = np.full(self.size, np.inf)
        most[:g] = most[g + k : g + 2 * k] = _REACH
        return most

    def state(self, x: Array) -> RowState:
        model, start, k = self.model, self.start, len(self.start.active)
        theta, u, log_diagonal, above = np.split(x, np.cumsum([self.groups.n_groups, k, k]))
        U = np.diag(np.exp(log_diagonal))
        U[self.upper] = above
        precision = start.precision.copy()
        precision[start.active[self.sparse]] *= np.exp(self.groups.each(theta))
        scales = model.scales.balance(tau_precision(model, precision), (start.local, start.top))
        # whitened: u and U - I are of order 1 in units of the posterior
        mean, root = start.mean + start.root @ u, start.root @ U
        return RowState(start.active, mean, root, precision, *scales, start.rest)

    def renewed(self, x: Array) -> RowState:
        """The state with the best shapes of its scales."""
        state, model = self.state(x), self.model
        held = model.scales.refresh(tau_precision(model, state.precision), (state.local, state.top))
        return state._replace(local=held[0], top=held[1])

    def slope(self, state: RowState, data: Pass) -> Array:
        """The gradient of J in the coordinates."""
        model, k, R = self.model, self.start.active, self.start.root
        gamma, pull = model.confidence[k], model.confidence[k] * state.precision[k]
        # dJ/dm = gamma D m - score, in the coordinates m + R u
        by_mean = R.T @ (pull * state.mean - data.score)
        # dJ/dR of E[loss] + gamma_b KL at S = RR': (H + gamma D) R - gamma R^-T, upper part
        by_root = data.slope @ state.root + pull[:, None] * state.root
        by_root[np.diag_indices_from(by_root)] -= gamma / np.diag(state.root)
        by_U = R.T @ by_root
        by_diagonal = np.diag(by_U) * np.diag(state.root) / np.diag(R)
        # dJ/dtheta = [w E[beta^2] - gamma]/2 less the slope of the KL of tau
        energy = pull * (np.einsum("ij,ij->i", state.root, state.root) + state.mean**2)
        by_theta = self.groups.total(((energy - gamma) / 2.0)[self.sparse])
        scales = model.scales
        kl = scales.local_confidence * scales.local_prior.kl_slope(state.local)[0]
        return np.concatenate([by_theta - kl[self.taus], by_mean, by_diagonal, by_U[self.upper]])
