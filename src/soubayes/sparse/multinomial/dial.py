"""The dial of several classes: q(beta) is a product over the c - 1 coordinates.

A point of the dial keeps all columns, so terms between the coordinates would cost (c - 1)^2 p^2
numbers; the sparse point has them. The mean takes full Newton steps, by conjugate gradients that
the coordinates' own factors precondition; a step costs about as much as c binary ones.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from soubayes.sparse.designs.linalg import (
    cholesky,
    eigenvalue_sums,
    invert_triangle,
    log_determinant,
)
from soubayes.sparse.dial import DialPoint, at_point
from soubayes.sparse.glm.dial import PARTS, RowEvidence, at_fitted, at_held
from soubayes.sparse.glm.state import RowModel
from soubayes.sparse.multinomial.posterior import ProductClasses
from soubayes.sparse.multinomial.rows import ClassProblem
from soubayes.sparse.multinomial.softmax import ClassTerms, Softmax
from soubayes.sparse.posterior import LowRankPosterior, Posterior

Array = np.ndarray

CG_STEPS = 30
CG_TOL = 1e-3  # of the squared length of the residual
TRIALS = 4  # of the length of a step
EVIDENCE_STEPS = 4
EVIDENCE_NATS = 1e-3
EVIDENCE_SHARE = 0.4  # of the fall at these variances: a step that gains less is the last
MOVED = 1e-2  # change of a logarithm from which its effect is read
SLOWEST = 0.2  # share of the way to another information that a step goes, at least


class ClassFitAt(NamedTuple):
    """A point: q of the coefficients of all coordinates, standardised, the intercept last."""

    posterior: ProductClasses
    effective: float
    n_iter: int
    converged: bool
    inflation: float


def fit_classes_at(problem: ClassProblem, model: RowModel, point: DialPoint) -> ClassFitAt:
    """The fit at one point of the dial; ``model`` is of all coordinates."""
    problem = problem._replace(likelihood=Softmax(problem.likelihood.classes, coarse=True))
    sparse, free = model.sparse, model.variance.copy()
    model = at_point(model, point)
    kept = _intercepts(problem, model) if point.held is None else np.zeros(len(sparse), bool)
    plain = 1.0 / np.where(kept, free, model.variance)[~sparse]
    evidence = class_evidence(problem, point.coef, sparse, plain)
    if point.held is None:
        at = at_fitted(evidence, model, point, None, None)
    else:
        at = at_held(evidence, np.full(int(sparse.sum()), point.held), None)
    # the type names the states of one predictor; `class_evidence` puts in that of all classes
    state: ClassState = at.evidence.state  # type: ignore[assignment]
    inflation = 1.0
    if point.held is not None:
        state, inflation = state._replace(confidence=1.0), point.coef
    effective = float(at.variance @ at.evidence.explained)
    return ClassFitAt(state.posterior(), effective, at.n_iter, at.converged, inflation)


def _intercepts(problem: ClassProblem, model: RowModel) -> Array:
    """Their prior stays as it is at every point."""
    found = np.zeros(len(model.sparse), bool)
    for name, own in model.sources:
        if name == "intercept":
            found[own] = True
    return found


def class_evidence(
    problem: ClassProblem, confidence: float, sparse: Array, plain: Array
) -> Callable[[Array, RowEvidence | None], RowEvidence]:
    """E[loss] + gamma_b KL(beta) without the scales, for `dial.minimise`; P of coordinates."""
    X, d = problem.design.matrix, problem.design.d
    wide = X.shape[1] > X.shape[0]

    def at(P: Array, last: RowEvidence | None) -> RowEvidence:
        w = np.empty(len(sparse))
        w[sparse], w[~sparse] = 1.0 / P, confidence * plain
        columns = w[::d]  # the coordinates of a column share their prior precision
        gram = (X / columns) @ X.T if wide else None
        before: ClassState | None = None if last is None else last.state  # type: ignore
        first = np.inf if before is None else before.at(columns, problem.weight)
        state: ClassState | None = None
        for _ in range(EVIDENCE_STEPS):
            new = _step(problem, X, gram, confidence, columns, before, state)
            if new is None:
                break
            fall = np.inf if state is None else state.value - new.value
            first = new.value if state is None and before is None else first
            before = state = new
            if fall < max(EVIDENCE_NATS, EVIDENCE_SHARE * (first - new.value)):
                break
        assert state is not None
        explained, mean = state.explained()[sparse], state.mean[sparse]
        return RowEvidence(state.value, explained, mean, 1.0, state, sparse)  # type: ignore

    return at


class _Tall(NamedTuple):
    """A = X'BX + diag(w) of one coordinate, by its Cholesky factor."""

    X: Array
    w: Array
    inverse: Array  # L^-1
    log_det: float  # log|A| - sum log w

    @classmethod
    def of(cls, X: Array, gram: Array | None, w: Array, b: Array) -> "_Tall":
        lower = cholesky(X.T @ (X * b[:, None]), w)
        log_det = log_determinant(lower) - float(np.log(w).sum())
        return cls(X, w, invert_triangle(lower), log_det)

    def diagonal(self) -> Array:
        """Of A^-1."""
        return np.einsum("ij,ij->j", self.inverse, self.inverse)

    def solve(self, v: Array) -> Array:
        """A^-1 v."""
        return self.inverse.T @ (self.inverse @ v)

    def row_variance(self) -> Array:
        """x_i'A^-1 x_i."""
        return np.square(self.X @ self.inverse.T).sum(axis=1)

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        """Sum and sum of squares of the eigenvalues of W^1/2 A^-1 W^1/2, and p'A^-1 p."""
        inside = self.inverse @ pulled
        return *eigenvalue_sums(self.inverse * np.sqrt(self.w)), float(inside @ inside)

    def posterior(self, mean: Array, confidence: float) -> Posterior:
        """N(mean, gamma_b A^-1)."""
        S = confidence * (self.inverse.T @ self.inverse)
        return Posterior(mean, np.diag(S).copy(), np.arange(len(S)), S)


class _Wide(NamedTuple):
    """The same through K = I + B^1/2 X W^-1 X' B^1/2 = LL', n x n."""

    X: Array
    w: Array
    root: Array  # B^1/2
    inverse: Array  # L^-1
    log_det: float  # log|K|

    @classmethod
    def of(cls, X: Array, gram: Array | None, w: Array, b: Array) -> "_Wide":
        assert gram is not None
        root = np.sqrt(b)
        lower = cholesky(root[:, None] * gram * root, 1.0)
        return cls(X, w, root, (inverse := invert_triangle(lower)), _log_det(inverse))

    @property
    def half(self) -> Array:
        """T with A^-1 = W^-1 - W^-1 X'T'T X W^-1."""
        return self.inverse * self.root

    def diagonal(self) -> Array:
        t = np.square(self.half @ self.X).sum(axis=0)
        return (1.0 - t / self.w) / self.w

    def solve(self, v: Array) -> Array:
        scaled = v / self.w
        half = self.half
        return scaled - (self.X.T @ (half.T @ (half @ (self.X @ scaled)))) / self.w

    def row_variance(self) -> Array:
        kept = np.einsum("ij,ij->j", self.inverse, self.inverse)
        return (1.0 - kept) / np.square(self.root)

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        inside = self.half @ (self.X @ (pulled / self.w))
        shrunk = float(pulled @ (pulled / self.w)) - float(inside @ inside)
        # of the columns' eigenvalues all but n are 1, which RowEvidence counts in neither sum
        return *eigenvalue_sums(self.inverse), shrunk

    def posterior(self, mean: Array, confidence: float) -> Posterior:
        factor = self.X, np.sqrt(confidence) / self.w, self.half, self.inverse
        return LowRankPosterior(mean, confidence / self.w, *factor)


def _log_det(inverse: Array) -> float:
    """log|LL'| from L^-1."""
    return -2.0 * float(np.log(np.diag(inverse)).sum())


class ClassState(NamedTuple):
    """q = prod_a N(mean_a, gamma_b A_a^-1) and the rows there."""

    value: float
    means: Array  # (k, d)
    eta: Array  # (n, d)
    variance: Array  # (n, d) of eta
    information: Array  # (n, d) B of the factors
    speed: Array  # (n, d) share of the way to another information that a step goes
    terms: ClassTerms  # at this q
    factors: tuple[_Tall | _Wide, ...]
    diagonals: Array  # (k, d) of the A_a^-1
    columns: Array  # (k,) w
    confidence: float

    def at(self, w: Array, weight: Array) -> float:
        """J of this q at other prior precisions."""
        log_det = sum(f.log_det for f in self.factors)
        log_det += self.means.shape[1] * float(np.log(self.columns / w).sum())
        kept = float(w @ self.diagonals.sum(axis=1)) - self.means.size + log_det
        loss = float(weight @ self.terms.loss) + 0.5 * float(w @ np.square(self.means).sum(axis=1))
        return loss + 0.5 * self.confidence * kept

    @property
    def mean(self) -> Array:
        """Of all coordinates, those of a column together."""
        return self.means.ravel()

    @property
    def w(self) -> Array:
        """Of all coordinates."""
        return np.repeat(self.columns, self.means.shape[1])

    def explained(self) -> Array:
        """w_j (1 - w_j (A^-1)_jj) of all coordinates."""
        w = self.columns[:, None]
        return (w * (1.0 - w * self.diagonals)).ravel()

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        """The sums of the coordinates' factors."""
        pull = pulled.reshape(self.means.shape)
        each = [factor.sums(pull[:, a]) for a, factor in enumerate(self.factors)]
        return tuple(map(sum, zip(*each, strict=True)))  # type: ignore[return-value]

    def posterior(self) -> ProductClasses:
        """q(beta, alpha)."""
        parts = [f.posterior(self.means[:, a], self.confidence) for a, f in enumerate(self.factors)]
        return ProductClasses(tuple(parts))


def _step(
    problem: ClassProblem,
    X: Array,
    gram: Array | None,
    gamma: float,
    w: Array,
    before: ClassState | None,
    here: ClassState | None,
) -> ClassState | None:
    """One step from ``before``; ``here`` is the best state at this w, None if there is none yet."""
    n, k, d, weight = len(X), len(w), problem.design.d, problem.weight[:, None]
    kind = _Tall if gram is None else _Wide
    if before is None:
        means, eta, speed, limit = np.zeros((k, d)), np.zeros((n, d)), np.ones((n, d)), np.inf
        typical = np.maximum(problem.weight * problem.likelihood.start_curvature, 1e-10)
        information = np.repeat(typical[:, None], d, axis=1)
        terms = problem.likelihood.terms(eta, np.zeros((n, d)), problem.y)
    else:
        means, eta, terms, speed = before.means, before.eta, before.terms, before.speed
        information, limit = before.information, before.at(w, problem.weight)
    B = problem.weight[:, None, None] * terms.information
    goal = np.maximum(np.einsum("naa->na", B), 1e-10)
    gradient = X.T @ (weight * terms.score) - w[:, None] * means
    move: Array | None = None
    for part in PARTS[:TRIALS]:
        way = part * speed
        mixed = information ** (1.0 - way) * goal**way
        factors = tuple(kind.of(X, gram, w, mixed[:, a]) for a in range(d))
        if move is None:
            move = _newton_step(X, B, w, gradient, factors)
        new = means + part * move
        new_eta = eta + part * (X @ move)
        spread = gamma * np.stack([factor.row_variance() for factor in factors], axis=1)
        found = problem.likelihood.terms(new_eta, np.sqrt(spread), problem.y)
        diagonals = np.stack([factor.diagonal() for factor in factors], axis=1)
        rest = mixed, speed, found, factors, diagonals, w, gamma
        state = ClassState(0.0, new, new_eta, spread, *rest)
        state = state._replace(value=state.at(w, problem.weight))
        if state.value <= limit:
            after = np.maximum(weight * np.einsum("naa->na", found.information), 1e-10)
            return state._replace(speed=_speed(speed, information, mixed, goal, after))
    return None if here is not None else state


def _speed(last: Array, start: Array, end: Array, goal: Array, after: Array) -> Array:
    """The share of the way to the goal of log B that ends there if goals move on as they did.

    A larger B makes variances smaller, and these often the next goal smaller: a full step then
    goes too far. With the slope s of log goal in log B the goal is reached by 1/(1 - s) of the way.
    """
    moved = np.log(end / start)
    far = np.abs(moved) > MOVED
    slope = np.log(after / goal) / np.where(far, moved, 1.0)
    return np.where(far, np.clip(1.0 / np.maximum(1.0 - slope, 1.0), SLOWEST, 1.0), last)


def _newton_step(
    X: Array, B: Array, w: Array, gradient: Array, factors: tuple[_Tall | _Wide, ...]
) -> Array:
    """(X'BX + W)^-1 gradient with all terms between the coordinates, by conjugate gradients."""

    def curve(v: Array) -> Array:
        return X.T @ np.einsum("nab,nb->na", B, X @ v) + w[:, None] * v

    def own(v: Array) -> Array:
        return np.stack([factor.solve(v[:, a]) for a, factor in enumerate(factors)], axis=1)

    step, left = np.zeros_like(gradient), gradient
    way = scaled = own(left)
    size = first = float(np.vdot(left, scaled))
    for _ in range(CG_STEPS):
        if size <= CG_TOL * first:
            break
        bent = curve(way)
        rate = size / float(np.vdot(way, bent))
        step, left = step + rate * way, left - rate * bent
        scaled = own(left)
        last, size = size, float(np.vdot(left, scaled))
        way = scaled + size / last * way
    return step
