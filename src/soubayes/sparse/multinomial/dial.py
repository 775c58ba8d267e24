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
    invert,
    invert_triangle,
    log_determinant,
)
from soubayes.sparse.dial import DialPoint, at_point, rises
from soubayes.sparse.glm.dial import PARTS, RowEvidence, at_fitted, at_held
from soubayes.sparse.glm.state import RowModel
from soubayes.sparse.multinomial.posterior import ProductClasses
from soubayes.sparse.multinomial.rows import ClassDesign, ClassProblem
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
        first = np.inf if before is None else before.at(columns)
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
    """A_a = X'B_aX + diag(w) of every coordinate a, by their inverses."""

    design: ClassDesign
    w: Array
    inverse: Array  # (d, k, k)
    log_det: float  # sum over the coordinates of log|A| - sum log w

    @classmethod
    def of(cls, design: ClassDesign, gram: Array | None, w: Array, b: Array) -> "_Tall":
        X, lowers = design.matrix, []
        sums = None if design.pairs is None else design.pairs.sums(b)
        for a in range(b.shape[1]):
            H = X.T @ (X * b[:, [a]]) if sums is None else sums[a]
            lowers.append(cholesky(H, w))
        log_det = sum(map(log_determinant, lowers)) - len(lowers) * float(np.log(w).sum())
        return cls(design, w, np.stack([invert(lower) for lower in lowers]), log_det)

    def diagonals(self) -> Array:
        """(k, d): of A^-1."""
        return np.einsum("akk->ka", self.inverse)

    def solve(self, v: Array) -> Array:
        """A_a^-1 v_a of all coordinates, (k, d)."""
        return (self.inverse @ v.T[:, :, None])[:, :, 0].T

    def row_variance(self) -> Array:
        """(n, d): x_i'A^-1 x_i."""
        X, pairs = self.design.matrix, self.design.pairs
        if pairs is None:
            found = np.stack([np.einsum("nk,nk->n", X @ own, X) for own in self.inverse], axis=1)
        else:
            found = pairs.forms(self.inverse)
        return np.maximum(found, 0.0)

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        """Sum and sum of squares of the eigenvalues of W^1/2 A^-1 W^1/2, and p'A^-1 p."""
        own = np.square(self.inverse).sum(axis=0)
        total = float(self.w @ self.diagonals().sum(axis=1))
        return total, float(self.w @ own @ self.w), float(np.vdot(pulled, self.solve(pulled)))

    def posteriors(self, means: Array, confidence: float) -> list[Posterior]:
        """N(mean, gamma_b A^-1) of every coordinate."""
        every, S = np.arange(len(means)), confidence * self.inverse
        return [Posterior(means[:, a], np.diag(own).copy(), every, own) for a, own in enumerate(S)]


class _Wide(NamedTuple):
    """The same through K = I + B^1/2 X W^-1 X' B^1/2 = LL', n x n."""

    X: Array
    w: Array
    halves: list[Array]  # T = L^-1 B^1/2, so A^-1 = W^-1 - W^-1 X'T'T X W^-1
    inverses: list[Array]  # L^-1
    log_det: float  # sum of log|K|

    @classmethod
    def of(cls, design: ClassDesign, gram: Array | None, w: Array, b: Array) -> "_Wide":
        assert gram is not None
        roots = np.sqrt(b).T
        inverses = [invert_triangle(cholesky(r[:, None] * gram * r, 1.0)) for r in roots]
        log_det = -2.0 * sum(float(np.log(own.diagonal()).sum()) for own in inverses)
        halves = [own * r for own, r in zip(inverses, roots, strict=True)]
        return cls(design.matrix, w, halves, inverses, log_det)

    def diagonals(self) -> Array:
        t = np.stack([np.square(half @ self.X).sum(axis=0) for half in self.halves], axis=1)
        return (1.0 - t / self.w[:, None]) / self.w[:, None]

    def solve(self, v: Array) -> Array:
        scaled = v / self.w[:, None]
        U = self.X @ scaled
        inside = [half.T @ (half @ U[:, a]) for a, half in enumerate(self.halves)]
        return scaled - (self.X.T @ np.stack(inside, axis=1)) / self.w[:, None]

    def row_variance(self) -> Array:
        pairs = zip(self.inverses, self.halves, strict=True)
        # 1 - (K^-1)_ii in units of B, whose root is the ratio of the diagonals
        found = [
            (1.0 - np.einsum("ij,ij->j", own, own)) * np.square(own.diagonal() / half.diagonal())
            for own, half in pairs
        ]
        return np.stack(found, axis=1)

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        # of the columns' eigenvalues all but n are 1, which RowEvidence counts in neither sum
        total, squares = np.sum([eigenvalue_sums(own) for own in self.inverses], axis=0)
        return float(total), float(squares), float(np.vdot(pulled, self.solve(pulled)))

    def posteriors(self, means: Array, confidence: float) -> list[Posterior]:
        scale, variance = np.sqrt(confidence) / self.w, confidence / self.w
        return [
            LowRankPosterior(means[:, a], variance, self.X, scale, half, own)
            for a, (half, own) in enumerate(zip(self.halves, self.inverses, strict=True))
        ]


class ClassState(NamedTuple):
    """q = prod_a N(mean_a, gamma_b A_a^-1) and the rows there."""

    value: float
    means: Array  # (k, d)
    eta: Array  # (n, d)
    variance: Array  # (n, d) of eta
    information: Array  # (n, d) B of the factors
    speed: Array  # (n, d) share of the way to another information that a step goes
    terms: ClassTerms  # at this q
    factors: _Tall | _Wide
    diagonals: Array  # (k, d) of the A_a^-1
    columns: Array  # (k,) w
    confidence: float

    def at(self, w: Array) -> float:
        """J of this q at other prior precisions."""
        more = w - self.columns
        second = np.square(self.means) + self.confidence * self.diagonals
        prior = float(more @ second.sum(axis=1))
        prior += self.confidence * self.means.shape[1] * float(np.log(self.columns / w).sum())
        return self.value + 0.5 * prior

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
        return self.factors.sums(pulled.reshape(self.means.shape))

    def posterior(self) -> ProductClasses:
        """q(beta, alpha)."""
        return ProductClasses(tuple(self.factors.posteriors(self.means, self.confidence)))


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
        information, limit = before.information, before.at(w)
    B = problem.weight[:, None, None] * terms.information
    goal = np.maximum(np.einsum("naa->na", B), 1e-10)
    gradient = X.T @ (weight * terms.score) - w[:, None] * means
    move: Array | None = None
    for part in PARTS[:TRIALS]:
        way = part * speed
        mixed = information ** (1.0 - way) * goal**way
        factors = kind.of(problem.design, gram, w, mixed)
        if move is None:
            move = _newton_step(X, B, w, gradient, factors)
        new = means + part * move
        new_eta = eta + part * (X @ move)
        spread = factors.row_variance()
        found = problem.likelihood.terms(new_eta, np.sqrt(gamma * spread), problem.y)
        # tr(W A^-1) = k - tr(B X A^-1 X')
        kl = factors.log_det - float(np.vdot(mixed, spread))
        value = float(problem.weight @ found.loss) + 0.5 * float(w @ np.square(new).sum(axis=1))
        value += 0.5 * gamma * kl
        if not rises(value, limit):
            break
    else:
        if here is not None:
            return None
    after = np.maximum(weight * np.einsum("naa->na", found.information), 1e-10)
    speed = _speed(speed, information, mixed, goal, after)
    rest = mixed, speed, found, factors, factors.diagonals(), w, gamma
    return ClassState(value, new, new_eta, gamma * spread, *rest)


def _speed(last: Array, start: Array, end: Array, goal: Array, after: Array) -> Array:
    """The share of the way to the goal of log B that ends there if goals move on as they did.

    A larger B makes variances smaller, and these often the next goal smaller: a full step then
    goes too far. With the slope s of log goal in log B the goal is reached by 1/(1 - s) of the way.
    """
    moved = np.log(end / start)
    far = np.abs(moved) > MOVED
    slope = np.log(after / goal) / np.where(far, moved, 1.0)
    return np.where(far, np.clip(1.0 / np.maximum(1.0 - slope, 1.0), SLOWEST, 1.0), last)


def _newton_step(X: Array, B: Array, w: Array, gradient: Array, factors: _Tall | _Wide) -> Array:
    """(X'BX + W)^-1 gradient with all terms between the coordinates, by conjugate gradients."""

    def curve(v: Array) -> Array:
        return X.T @ np.einsum("nab,nb->na", B, X @ v) + w[:, None] * v

    step, left = np.zeros_like(gradient), gradient
    way = scaled = factors.solve(left)
    size = first = float(np.vdot(left, scaled))
    for _ in range(CG_STEPS):
        if size <= CG_TOL * first:
            break
        bent = curve(way)
        rate = size / float(np.vdot(way, bent))
        step, left = step + rate * way, left - rate * bent
        scaled = factors.solve(left)
        last, size = size, float(np.vdot(left, scaled))
        way = scaled + size / last * way
    return step
