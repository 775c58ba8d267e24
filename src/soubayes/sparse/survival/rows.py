r"""Cox's loss as a quadratic form of the coefficients, expanded again where the solver goes.

The loss couples all rows, and its second derivative M in the predictors is no diagonal. About the
mean of q it is a least-squares problem with noise 1,

    V(X b) = |y~ - X~ b|^2/2 + constant,   X~'X~ = X'MX,   X~'(y~ - X~ m) = X'score,

with as many rows as X has rows or columns, whichever are fewer: X~ = L'X with M = LL', or X~ = L'
with X'MX = LL'. So every solver of row-wise models serves it as it is, with the full curvature in
J, scales, covariance and draws.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from soubayes.sparse.constants import SEPARATED_RANGE, WILD
from soubayes.sparse.designs.columns import first_in_columns
from soubayes.sparse.designs.linalg import cholesky
from soubayes.sparse.designs.standardise import first_in_gram
from soubayes.sparse.dial import DialPoint
from soubayes.sparse.likelihoods.base import RowLikelihood, RowTerms
from soubayes.sparse.posterior import LowRankPosterior, Posterior
from soubayes.sparse.rows.dial import RowFitAt, fit_rows_at
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory
from soubayes.sparse.rows.path import Limits, SharedRows, solve_from
from soubayes.sparse.rows.state import RowFit, RowModel
from soubayes.sparse.survival.risk_sets import PartialLoss, RiskSets

Array = np.ndarray

_FEW = 300  # columns up to which X'MX is formed, whatever the number of rows
_JITTER = 1e-11  # of the expected events: M has a null space, and is 0 where data are separated
_ROUNDS = 40  # expansions at a point that is reported
_LOOSE = 1e-5  # from this tolerance on a point is on the way
_LOOSE_ROUNDS = 4  # expansions there
_NEAR = 0.02  # change of the predictors at which a candidate needs no other expansion
_ENOUGH = 1e-6  # nats that the next step to a mode could gain
_DAMPED = 1e3  # largest factor of the curvature


class UnitNormal(RowLikelihood):
    """(y - eta)^2/2: the noise is known to be 1."""

    majorises = True

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """Of the squared loss."""
        return 0.5 * (y - eta) ** 2, eta - y, np.ones_like(eta)

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """In closed form."""
        one = np.ones_like(mean)
        return RowTerms(0.5 * ((y - mean) ** 2 + variance), y - mean, one, one)

    def predict(self, mean: Array, variance: Array) -> Array:
        """The mean."""
        return mean


class Expansion(NamedTuple):
    """The quadratic form of the loss about some coefficients."""

    rows: SharedRows
    loss: float  # V there
    constant: float  # V minus the squared loss there
    root: Array | None = None  # L of M = LL', if X~ = L'X

    @property
    def matrix(self) -> Array:
        """X~."""
        design = self.rows.design
        assert isinstance(design, RowsInMemory)
        return np.asarray(design.matrix)

    def squares(self, fit: RowFit) -> float:
        """The squared loss at the mean of a fit."""
        off = self.rows.y - self.matrix[:, fit.state.active] @ fit.state.mean
        return 0.5 * float(off @ off)

    def value(self, fit: RowFit) -> float:
        """J of a fit with its mean at this expansion."""
        spread = self.matrix[:, fit.state.active] @ fit.state.root
        return self.loss + fit.history[-1] - fit.data.loss + 0.5 * float(np.vdot(spread, spread))

    @property
    def problem(self) -> RowProblem:
        """For the solvers."""
        return self.rows.problem()


@dataclass
class SurvivalRows:
    """Standardised columns of subjects with their risk sets, for a path (`PathRows`)."""

    X: Array
    sets: RiskSets

    @property
    def n(self) -> float:
        """The events: these inform the coefficients."""
        return float(self.sets.weight @ self.sets.y["event"])

    @property
    def design(self) -> RowsInMemory:
        """The columns."""
        return RowsInMemory(self.X, intercept=False)

    def first_copies(self) -> Array:
        """From X'X, or from the columns of wide data."""
        wide = self.design.by_columns()
        if self._wide and wide is not None:
            return first_in_columns(wide)
        return first_in_gram(self.X.T @ self.X)

    def loss(self, fit: RowFit) -> float:
        """V at the posterior mean."""
        return PartialLoss.at(self.sets, self.eta(fit)).loss

    def minimise(
        self, model: RowModel, warm: RowFit | None, limits: Limits, readmit: bool = True
    ) -> RowFit:
        """Expand, solve, and expand again at the solution until the quadratic form tells J.

        J is compared before and after a step with the curvature of the expansion in both.
        """
        sets, here, place = self.sets, warm, self._mean(warm)
        at, before, damping = self.expand(place), np.inf, 1.0
        tight = limits.tol < _LOOSE
        best: RowFit | None = None
        falls: list[float] = []
        settled, value = False, np.inf
        # with eta = 0 nothing is explained, at no cost
        most = PartialLoss.at(sets, np.zeros(len(self.X))).loss  # no minimum of J explains less
        most += _LOOSE * abs(most)
        while len(falls) < (_ROUNDS if tight else _LOOSE_ROUNDS):
            fit = solve_from(at.rows, at.problem, model, here, limits, readmit)
            eta = self.eta(fit)
            loss = PartialLoss.at(sets, eta).loss
            # J with the loss itself in place of its quadratic form at the mean
            new = fit.history[-1] - at.squares(fit) + loss
            enough = limits.tol * abs(new)
            if not (new <= before + enough and loss <= most and np.ptp(eta) < SEPARATED_RANGE):
                damping *= 4.0  # the expansion does not reach so far: shorter steps
                if damping > _DAMPED and best is not None:
                    break
                if damping > _DAMPED and warm is not None:  # it is where the data are separated
                    return self.minimise(model, None, limits, readmit)
            else:
                fall = before - new
                # by how much the quadratic form about the last place misses J here
                # J by the quadratic form, less J by the loss itself
                error = abs(fit.history[-1] + at.constant - new)
                best, here, value = fit, fit, new
                falls.append(max(fall, 0.0))
                if damping == 1.0 and error <= enough and (fall <= enough or not tight):
                    settled = True
                    break
                place, damping = self._mean(fit), max(0.25 * damping, 1.0)
            at = self.expand(place, damping)
            before = np.inf if here is None else at.value(here)
        assert best is not None
        history = value + np.append(np.cumsum(falls[:0:-1])[::-1], 0.0)
        return best._replace(
            history=history.tolist(), converged=best.converged and (settled or not tight)
        )

    def fit_at(self, model: RowModel, point: DialPoint) -> RowFitAt:
        """The fit at a point of the dial, its quadratic form that of the mean but for ``_NEAR``."""
        last = np.zeros(len(self.X))
        if point.held is not None:
            held = point.held / max(int(model.sparse.sum()), 1)
            prior = np.where(model.sparse, held, model.variance / model.confidence)
            about = self.expand(self._mode(prior))
            fit = fit_rows_at(about.problem, model, point._replace(held=held))
            return fit._replace(posterior=self._shared(fit.posterior, about.root))

        def renew(mean: Array) -> RowProblem | None:
            nonlocal last
            eta = self.X @ mean
            moved, last = float(np.std(eta - last)), eta
            if moved < _NEAR or not np.std(eta) < WILD:
                return None
            return self.expand(mean).problem

        start = self.expand(np.zeros(self.X.shape[1])).problem
        return fit_rows_at(start, model, point, renew)

    def _shared(self, q: Posterior, root: Array | None) -> Posterior:
        """The same posterior from X in place of L'X: all candidates keep one matrix."""
        if root is None or not isinstance(q, LowRankPosterior) or q.T is None:
            return q
        T = q.T @ root.T
        return LowRankPosterior(q.mean, q.diagonal, self.X, q.d, T, q.inverse, q.scale, q.variance)

    def _mode(self, prior: Array) -> Array:
        """The minimum of V(Xb) + sum_j b_j^2/(2 prior_j), by Newton steps that lower it.

        Of wide data in the space of the rows, b = prior X'a.
        """
        sets = self.sets
        X = (self.X * prior) @ self.X.T if self._wide else self.X * np.sqrt(prior)
        a = np.zeros(X.shape[1])
        at = PartialLoss.at(sets, X @ a)
        for _ in range(_ROUNDS):
            if self._wide:
                # Newton in the space of the rows: (I + M P) a = M P a + score with P = X prior X'
                M = at.second()
                step = np.linalg.solve(np.eye(len(a)) + M @ X, M @ (X @ a) + at.score) - a
                slope = (a - at.score) @ (X @ step)
            else:
                # Newton in columns of unit prior variance: the penalty is the identity
                H = at.curvature(X) + np.eye(len(a))
                off = X.T @ at.score - a
                step = np.linalg.solve(H, off)
                slope = -off @ step
            if slope > -_ENOUGH:
                break
            value, length = at.loss + self._pull(X, a), 1.0
            while True:
                new = a + length * step
                at = PartialLoss.at(sets, X @ new)
                # Armijo: a share of the fall that the slope promises
                if at.loss + self._pull(X, new) <= value + 1e-4 * length * slope or length < 1e-6:
                    break
                length *= 0.5
            a = new
        return prior * (self.X.T @ a) if self._wide else np.sqrt(prior) * a

    def _pull(self, X: Array, a: Array) -> float:
        """The prior's part of the objective of `_mode`."""
        return 0.5 * float(a @ (X @ a if self._wide else a))

    def expand(self, mean: Array, damping: float = 1.0) -> Expansion:
        """About these coefficients; ``damping`` multiplies the curvature, for shorter steps."""
        X, used = self.X, np.flatnonzero(mean)
        eta = X[:, used] @ mean[used]
        at = PartialLoss.at(self.sets, eta)
        score = at.score
        gram = None
        if self._wide:
            # M = LL': |y~ - L'eta|^2/2 has the slope -score and the curvature M at eta
            lower = np.sqrt(damping) * _factor(at.second(), float(at.expected.max()))
            rows = lower.T @ X
            y = lower.T @ eta + solve_triangular(lower, score, lower=True)
            off = y - lower.T @ eta
        else:
            # X'MX = LL': as many rows as columns, the same form of the coefficients
            gram = damping * at.curvature(X)
            lower = _factor(gram, float(at.expected.sum()))
            rows = np.ascontiguousarray(lower.T)
            off = solve_triangular(lower, X.T @ score, lower=True)
            y = lower.T @ mean + off
        ones = np.ones(len(rows))
        design = RowsInMemory(rows, intercept=False)
        shared = SharedRows(UnitNormal(), design, y, ones, gram, self.n)
        constant = at.loss - 0.5 * float(off @ off)
        return Expansion(shared, at.loss, constant, lower if self._wide else None)

    @property
    def coordinates(self) -> int:
        """1."""
        return 1

    @property
    def n_columns(self) -> int:
        """p."""
        return self.X.shape[1]

    @property
    def grid_rows(self) -> float:
        """At confidence 1 wide data are separated: the path begins above."""
        return self.n

    @property
    def products(self) -> bool:
        """Expansions are of columns that are dense."""
        return False

    @property
    def _wide(self) -> bool:
        return self.X.shape[1] > max(self.X.shape[0], _FEW)

    def eta(self, fit: RowFit) -> Array:
        """The predictors at the mean of a fit."""
        return self.X[:, fit.state.active] @ fit.state.mean

    def _mean(self, fit: RowFit | None) -> Array:
        """The coefficients of a fit; 0 without one."""
        mean = np.zeros(self.X.shape[1])
        if fit is not None:
            mean[fit.state.active] = fit.state.mean
        return mean


def _factor(matrix: Array, size: float) -> Array:
    """The lower Cholesky factor of a difference of matrices of this size; it may be singular."""
    return cholesky(matrix, _JITTER * max(size, 1e-300))
