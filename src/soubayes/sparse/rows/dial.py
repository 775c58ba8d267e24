"""The dial of row-wise models: its points, and the fit at one of them.

`RowEvidence` is the rows' share of J at given prior variances, for `minimise` of `sparse/dial.py`.
All columns have one confidence gamma_b, and q is a product over the d predictors a of a row (one,
but for several classes), since terms between them would cost (d p)^2 numbers. w are prior
precisions times gamma_b, shared by the predictors of a column, B_a is the information of the rows
in predictor a, A_a = X'B_aX + diag(w) and K_a = I + B_a^1/2 X W^-1 X' B_a^1/2, so

    J = E[loss] + 1/2 sum_a [ m_a'W m_a + gamma_b (log|K_a| - tr(B_a X A_a^-1 X')) ].

Means and covariances move together. The mean takes Newton steps with all terms between the
predictors, which with several of them are found by conjugate gradients that the A_a precondition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import blas

from soubayes.sparse.constants import ROW_POINTS, SURE_VARIANCES
from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.designs.linalg import (
    Woodbury,
    cholesky,
    eigenvalue_sums,
    invert_triangle,
    log_determinant,
)
from soubayes.sparse.dial import (
    DIAL_NATS,
    DialPoint,
    Evidence,
    Prior,
    Variances,
    at_point,
    minimise,
    rises,
)
from soubayes.sparse.likelihoods.base import Likelihood, weighted_terms
from soubayes.sparse.posterior import LowRankPosterior, Posterior
from soubayes.sparse.rows.classes import ProductClasses
from soubayes.sparse.rows.coordinates import few_pairs, pairs, triangle
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory, weighted_gram
from soubayes.sparse.rows.state import RowModel

Array = np.ndarray

PARTS = 0.4 ** np.arange(6)  # of a step on q(beta): the first that does not raise J is taken
FIRST_PARTS = 0.4 ** np.arange(12)  # of the first step, from predictors of 0
EVIDENCE_STEPS = 4  # on q(beta) at one set of prior variances, at most
EVIDENCE_NATS = 1e-3  # fall of J below which a step is the last
EVIDENCE_SHARE = 0.4  # of the fall at these variances: a step that gains less is the last
LEAST_OF_ROW = 1e-10  # of a row in a matrix that is factorised
CG_STEPS = 30  # of conjugate gradients at most
CG_TOL = 1e-3  # of the squared length of the residual
MOVED = 1e-2  # change of a logarithm from which its effect is read
SLOWEST = 0.2  # share of the way to another information that a step goes, at least


@dataclass(frozen=True)
class RowEvidence(Evidence):
    """E[loss] + gamma_b KL(beta) without the scales, at the best q(beta, alpha) found so far."""

    state: "DialState"  # where the next evidence starts from
    sparse: Array

    def reread(self, problem: RowProblem) -> "RowEvidence":
        """The same q where a nuisance parameter of the likelihood has moved."""
        state = self.state
        read = _Read.at(problem, state.eta, state.variance)
        value = state.value + read.loss - state.read.loss
        return replace(self, value=value, state=replace(state, value=value, read=read))

    @property
    def _energy(self) -> float:
        return float(self.mean**2 @ self.state.w[self.sparse])

    @property
    def slope(self) -> float:
        explained = float(self.explained @ (1.0 / self.state.w[self.sparse]))
        return 0.5 * (self.state.confidence * explained - self._energy)

    def curvature(self) -> float:
        state = self.state
        total, squares, shrunk = state.sums(np.where(self.sparse, state.w * state.mean, 0.0))
        return 0.5 * (state.confidence * (total - squares) + self._energy - 2.0 * shrunk)


RowEvidences = Callable[[Array, RowEvidence | None], RowEvidence]


SQUARE_ROWS = 1.5  # rows for each column up to which n x n systems are faster than p x p ones


def row_evidence(
    problem: RowProblem, confidence: float, sparse: Array, plain: Array
) -> RowEvidences:
    """The evidence of rows that are read by a likelihood.

    ``plain`` are the precisions of the columns that are not ``sparse``, the intercept among them:
    here it is one more coefficient, not a factor of its own. An evidence is a few damped steps.
    """
    design, d = problem.design, problem.likelihood.coordinates
    assert isinstance(design, RowsInMemory)
    # several predictors share the products with X, so there the two cost the same at n = p
    columns = design.by_columns(SQUARE_ROWS if d == 1 else 1.0)
    rows = TallRows(design, d) if columns is None else WideRows(columns)

    def at(P: Array, last: RowEvidence | None) -> RowEvidence:
        w = np.empty(len(sparse))
        w[sparse], w[~sparse] = 1.0 / P, confidence * plain
        step = _Steps(problem, rows, confidence, w[::d])  # the predictors of a column share w
        before = None if last is None else last.state
        first = np.inf if before is None else before.at(step.w)
        state: DialState | None = None
        for _ in range(EVIDENCE_STEPS):
            new = step.taken(before, state)
            if new is None:
                break
            fall = np.inf if state is None else state.value - new.value
            first = new.value if not np.isfinite(first) else first
            before = state = new
            few = EVIDENCE_SHARE * (first - new.value) if d > 1 else 0.0
            if fall < max(EVIDENCE_NATS, few):
                break
        assert state is not None
        explained, mean = state.explained.ravel()[sparse], state.mean[sparse]
        return RowEvidence(state.value, explained, mean, 1.0, state, sparse)

    return at


class TallRows:
    """X by blocks of rows, with p x p systems A_a."""

    def __init__(self, design: RowsInMemory, d: int) -> None:
        self.blocks = list(design.blocks())
        few = d > 1 and few_pairs(design.n_rows, design.n_columns, d)
        self.products = [pairs(Z) for _, Z in self.blocks] if few else None

    def times(self, v: Array) -> Array:
        """X v of vectors side by side."""
        return np.concatenate([Z.astype(float, copy=False) @ v for _, Z in self.blocks])

    def left(self, u: Array) -> Array:
        """X'u likewise."""
        return sum(Z.T.astype(float, copy=False) @ u[rows] for rows, Z in self.blocks)

    def prepared(self, w: Array) -> None:
        """Nothing depends on w alone."""

    def factors(self, w: Array, b: Array, _: None) -> "list[TallFactor]":
        """Of every predictor at information b (n, d)."""
        if self.products is None:
            squares = [
                np.asarray(sum(weighted_gram(Z, square[rows]) for rows, Z in self.blocks))
                for square in b.T
            ]
        else:
            both = zip(self.blocks, self.products, strict=True)
            sums = np.asarray(sum(products.T @ b[rows] for (rows, _), products in both))
            squares = [square[triangle(len(w))[2]] for square in sums.T]
        lowers = [cholesky(square, w) for square in squares]
        # log|K| = log|A| - log|W|
        log_dets = [log_determinant(lower) - float(np.log(w).sum()) for lower in lowers]
        both_of = zip(lowers, log_dets, strict=True)
        return [TallFactor(self, w, invert_triangle(lower), value) for lower, value in both_of]

    def solve(self, factors: "Sequence[TallFactor]", v: Array) -> Array:
        """A_a^-1 v_a, (k, d)."""
        both = zip(factors, v.T, strict=True)
        return np.stack([one.inverse.T @ (one.inverse @ vector) for one, vector in both], axis=1)


class TallFactor(NamedTuple):
    """The inverse of A_a = LL' of one predictor."""

    rows: TallRows
    w: Array
    inverse: Array  # L^-1
    log_det: float  # log|K_a|

    def explained(self) -> Array:
        """x_j' B_a^1/2 K_a^-1 B_a^1/2 x_j of every column."""
        return self.w * (1.0 - self.w * np.einsum("ij,ij->j", self.inverse, self.inverse))

    def row_variance(self) -> Array:
        """x_i'A_a^-1 x_i of every row."""
        if self.rows.products is not None:
            i, j, _ = triangle(len(self.w))
            whole = (self.inverse.T @ self.inverse)[i, j] * np.where(i == j, 1.0, 2.0)
            return np.maximum(np.concatenate([p @ whole for p in self.rows.products]), 0.0)
        parts = []
        for _, Z in self.rows.blocks:
            trmm = blas.strmm if Z.dtype == np.float32 else blas.dtrmm
            inside = trmm(1.0, self.inverse, Z.T, lower=1)  # L^-1 X'
            parts.append(np.einsum("ij,ij->j", inside, inside).astype(float))
        return np.concatenate(parts)

    def sums(self) -> tuple[float, float]:
        """Sum and sum of squares of the eigenvalues of W^1/2 A_a^-1 W^1/2."""
        return eigenvalue_sums(self.inverse * np.sqrt(self.w))

    def posterior(self, mean: Array, confidence: float) -> Posterior:
        """N(mean, gamma_b A_a^-1)."""
        S = confidence * (self.inverse.T @ self.inverse)
        return Posterior(mean, np.diag(S).copy(), np.arange(len(mean)), S)


class WideRows:
    """X by columns, with n x n systems K_a."""

    def __init__(self, X: StandardColumns) -> None:
        self.X = X
        self.whole = X.raw if X.mean is None and not X.ones else None  # X as it is

    def times(self, v: Array) -> Array:
        """X v of vectors side by side."""
        if self.whole is not None:
            return self.whole @ v
        return np.stack([self.X.times(vector) for vector in v.T], axis=1)

    def left(self, u: Array) -> Array:
        """X'u likewise."""
        if self.whole is not None:
            return self.whole.T @ u
        return np.stack([self.X.left(vector) for vector in u.T], axis=1)

    def prepared(self, w: Array) -> Array:
        """X W^-1 X'."""
        return self.X.gram(w)

    def factors(self, w: Array, b: Array, gram: Array) -> "list[WideFactor]":
        """Of every predictor at information b (n, d)."""
        return [WideFactor(self, w, Woodbury.of_gram(gram, square)) for square in b.T]

    def solve(self, factors: "Sequence[WideFactor]", v: Array) -> Array:
        """The same: A^-1 = W^-1 - W^-1 X'T'T X W^-1."""
        w = factors[0].w[:, None]
        both = zip([one.kernel.half for one in factors], self.times(v / w).T, strict=True)
        inside = np.stack([half.T @ (half @ u) for half, u in both], axis=1)
        return (v - self.left(inside)) / w


class WideFactor(NamedTuple):
    """The same through K_a."""

    rows: WideRows
    w: Array
    kernel: Woodbury

    @property
    def log_det(self) -> float:
        return self.kernel.kernel_log_det

    def explained(self) -> Array:
        return self.kernel.projected(self.rows.X, self.kernel.root)[0]

    def row_variance(self) -> Array:
        # x_i'A^-1 x_i = (1 - (K^-1)_ii)/B_i: no product with X
        inverse = self.kernel.inverse
        return (1.0 - np.einsum("ij,ij->j", inverse, inverse)) / self.kernel.root**2

    def sums(self) -> tuple[float, float]:
        # of the columns' eigenvalues all but n are 1, which RowEvidence counts in neither sum
        return eigenvalue_sums(self.kernel.inverse)

    def posterior(self, mean: Array, confidence: float) -> Posterior:
        X, scale = self.rows.X.dense(), np.sqrt(confidence) / self.w
        kernel = self.kernel
        return LowRankPosterior(mean, confidence / self.w, X, scale, kernel.half, kernel.inverse)


Factors = Sequence[Any]  # `TallFactor` or `WideFactor`, one for each predictor


class _Read(NamedTuple):
    """The rows at q, weighted."""

    loss: float  # with J's share of the nuisance parameters
    score: Array  # (n, d)
    information: Array  # (n, d, d)
    goal: Array  # (n, d) its diagonals, at least `LEAST_OF_ROW`

    @classmethod
    def at(cls, problem: RowProblem, eta: Array, variance: Array) -> "_Read":
        """Predictors of these means and variances, (n, d)."""
        likelihood, (n, d) = problem.likelihood, eta.shape
        q = (eta, variance) if likelihood.several else (eta[:, 0], variance[:, 0])
        terms = weighted_terms(likelihood, *q, problem.y, problem.weight)
        information = terms.information.reshape(n, d, d)
        goal = np.maximum(np.einsum("naa->na", information), LEAST_OF_ROW)
        loss = float(terms.loss.sum()) + likelihood.confidence * likelihood.kl
        return cls(loss, terms.score.reshape(n, d), information, goal)


@dataclass(frozen=True)
class DialState:
    """q = prod_a N(mean_a, gamma_b A_a^-1) and the rows there."""

    value: float  # E[loss] + gamma_b KL(beta, alpha), without the scales
    means: Array  # (k, d)
    eta: Array  # (n, d)
    variance: Array  # (n, d) of eta
    information: Array  # (n, d) B of the factors
    speed: Array  # (n, d) share of the way to another information that a step goes
    read: _Read
    factors: Factors
    columns: Array  # (k,) w
    confidence: float

    @cached_property
    def explained(self) -> Array:
        """(k, d): w_j (1 - w_j (A_a^-1)_jj)."""
        return np.stack([one.explained() for one in self.factors], axis=1)

    @property
    def mean(self) -> Array:
        """Of all coefficients, those of a column together."""
        return self.means.ravel()

    @property
    def w(self) -> Array:
        """Likewise."""
        return np.repeat(self.columns, self.means.shape[1])

    def at(self, w: Array) -> float:
        """J of this q at other prior precisions."""
        if np.array_equal(w, self.columns):
            return self.value
        precision = self.columns[:, None]
        second = (
            np.square(self.means) + self.confidence * (1.0 - self.explained / precision) / precision
        )
        # of J only w E[b^2]/2 and -gamma/2 log w depend on w when q is held
        prior = float((w - self.columns) @ second.sum(axis=1))
        prior += self.confidence * self.means.shape[1] * float(np.log(self.columns / w).sum())
        return self.value + 0.5 * prior

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        """What the curvature of J in a common scale is made of."""
        total, squares = np.sum([one.sums() for one in self.factors], axis=0)
        pulled = pulled.reshape(self.means.shape)
        inside = self.factors[0].rows.solve(self.factors, pulled)
        return float(total), float(squares), float(np.vdot(pulled, inside))

    def posterior(self) -> Any:
        """q(beta, alpha), a `Posterior` or of several predictors `ProductClasses`."""
        both = zip(self.factors, self.means.T, strict=True)
        parts = [one.posterior(mean, self.confidence) for one, mean in both]
        return parts[0] if len(parts) == 1 else ProductClasses(tuple(parts))

    def updated(self, problem: RowProblem) -> RowProblem:
        """With the best q of the nuisance parameters at this q(beta, alpha)."""
        return problem.updated_at(self.eta[:, 0], self.variance[:, 0])


class _Steps:
    """Steps on q(beta, alpha) at prior precisions w of the columns."""

    def __init__(
        self, problem: RowProblem, rows: TallRows | WideRows, gamma: float, w: Array
    ) -> None:
        self.problem, self.rows, self.gamma, self.w = problem, rows, gamma, w
        self.prepared: Any = rows.prepared(w)

    @np.errstate(over="ignore", invalid="ignore")  # where a trial step overflows it is not taken
    def taken(self, before: DialState | None, here: DialState | None) -> DialState | None:
        """One step from ``before``; ``here`` is the best state at this w, None if none is known."""
        rows, w, gamma = self.rows, self.w[:, None], self.gamma
        # J of the start at these precisions, which no step may exceed
        limit = np.inf if before is None else before.at(self.w)
        start = self._blank() if before is None else before
        speed, goal, state = start.speed, start.read.goal, None
        # minus dJ/dm = X'score - W m
        gradient = rows.left(start.read.score) - w * start.means
        move: Array | None = None
        for share in PARTS if before is not None else FIRST_PARTS:
            way = share * speed
            # a geometric mean of two informations is positive; the part 0 is the present one
            mixed = start.information ** (1.0 - way) * goal**way
            try:
                factors: Factors = rows.factors(self.w, mixed, self.prepared)
            except np.linalg.LinAlgError:  # a row outweighs the others beyond the digits
                if before is None:
                    raise
                if here is None:  # the state ran off: begin again
                    return self.taken(None, None)
                continue
            if move is None:
                move = self._newton_step(start.read, gradient, factors, mixed)
            # X (m + s move) = eta + s X move: the predictors of the start are kept
            means, eta = start.means + share * move, start.eta + share * rows.times(move)
            spread = np.stack([one.row_variance() for one in factors], axis=1)
            log_det = sum(one.log_det for one in factors)
            read = _Read.at(self.problem, eta, gamma * spread)
            penalised = read.loss + 0.5 * float(self.w @ np.square(means).sum(axis=1))
            # the formula of the module: tr(W A^-1) = k - tr(B X A^-1 X')
            value = penalised + 0.5 * gamma * (log_det - float(np.vdot(mixed, spread)))
            new = speed
            if before is not None and eta.shape[1] > 1:  # one predictor needs no shorter steps
                new = _speed(speed, start.information, mixed, goal, read)
            state = DialState(
                value, means, eta, gamma * spread, mixed, new, read, factors, self.w, gamma
            )
            # a loss that grows exponentially overflows where the first step is too long
            first = before is None and not penalised <= start.read.loss
            if np.isfinite(value) and not rises(value, limit) and not first:
                return state
        return None if here is not None else state

    def _blank(self) -> DialState:
        """Predictors of 0 that are known."""
        n, d = len(self.problem.weight), self.problem.likelihood.coordinates
        zero, ones = np.zeros((n, d)), np.ones((n, d))
        typical = self.problem.likelihood.start_curvature * self.problem.weight[:, None] * ones
        read, means = _Read.at(self.problem, zero, zero), np.zeros((len(self.w), d))
        typical = np.maximum(typical, LEAST_OF_ROW)
        none: Any = None
        return DialState(np.inf, means, zero, zero, typical, ones, read, none, self.w, self.gamma)

    def _newton_step(self, read: _Read, gradient: Array, factors: Factors, mixed: Array) -> Array:
        """(X'BX + W)^-1 gradient with all terms between the predictors."""
        alone = gradient.shape[1] == 1
        if alone and np.array_equal(mixed, read.goal):
            return self.rows.solve(factors, gradient)
        B = read.goal[:, :, None] if alone else read.information

        def curve(v: Array) -> Array:
            bent = np.einsum("nab,nb->na", B, self.rows.times(v))
            return self.rows.left(bent) + self.w[:, None] * v

        step, left = np.zeros_like(gradient), gradient
        way = scaled = self.rows.solve(factors, left)
        size = first = float(np.vdot(left, scaled))
        for _ in range(CG_STEPS):
            if not size > CG_TOL * first:
                break
            bent = curve(way)
            # preconditioned conjugate gradients; the factors A_a are the preconditioner
            rate = size / float(np.vdot(way, bent))
            step, left = step + rate * way, left - rate * bent
            scaled = self.rows.solve(factors, left)
            last, size = size, float(np.vdot(left, scaled))
            way = scaled + size / last * way
        return step


def _speed(last: Array, start: Array, end: Array, goal: Array, after: _Read) -> Array:
    """The share of the way to the goal of log B that ends there if goals move on as they did.

    A larger B makes variances smaller, and these often the next goal smaller: a full step then
    goes too far. With the slope s of log goal in log B the goal is reached by 1/(1 - s) of the way.
    """
    moved = np.log(end / start)
    far = np.abs(moved) > MOVED
    slope = np.log(after.goal / goal) / np.where(far, moved, 1.0)
    return np.where(far, np.clip(1.0 / np.maximum(1.0 - slope, 1.0), SLOWEST, 1.0), last)


NUISANCE_ROUNDS = 4  # of nuisance parameters and coefficients in turn: a candidate needs few digits
ROW_DIAL = (
    *(DialPoint(*point) for point in ROW_POINTS),
    *map(DialPoint.sure, SURE_VARIANCES),
)
NEAR = 0.01  # nats
HELD_STEPS = 30  # evidences at held scales, of a few steps each: the last ones gain nothing


class RowFitAt(NamedTuple):
    """A point of a row-wise problem: q(beta, alpha), standardised, the intercept last."""

    posterior: Any  # `Posterior` or, of several predictors, `ProductClasses`
    effective: float
    n_iter: int
    converged: bool
    likelihood: Likelihood | None  # with its nuisance parameters; None: it has none
    inflation: float = 1.0  # of the variance of predictors


# a candidate that diverges, as a shape may where columns interpolate, loses the choice
@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def fit_rows_at(
    problem: RowProblem,
    model: RowModel,
    point: DialPoint,
    renew: Callable[[Array], RowProblem | None] | None = None,
) -> RowFitAt:
    """The fit of a row-wise problem at one point; nuisance parameters in turn with the rest.

    ``renew`` gives the problem as it is about another mean, or None where nothing changes.
    """
    problem = problem._replace(likelihood=problem.likelihood.coarse)
    sparse = model.sparse
    model = at_point(model, point)
    plain, nuisance = 1.0 / model.variance[~sparse], problem.likelihood.nuisance is not None
    at: AtPoint | None = None
    for _ in range(NUISANCE_ROUNDS if nuisance or renew else 1):
        last = at and at.evidence
        if at is not None and renew:
            renewed = renew(at.evidence.state.mean)
            if renewed is None:
                break
            problem, last = renewed, None
        elif at is not None:
            problem = at.evidence.state.updated(problem)
            last = at.evidence.reread(problem)
        before = np.inf if at is None else at.evidence.value
        evidence = row_evidence(problem, point.coef, sparse, plain)
        if point.held is None:
            at = at_fitted(evidence, model, point, at and at.scales, last)
        else:
            at = at_held(evidence, np.full(int(sparse.sum()), point.held), last)
        if not renew and abs(before - at.evidence.value) < DIAL_NATS:
            break
    assert at is not None
    state, inflation = at.evidence.state, 1.0
    if point.held is not None:
        # coefficients are reported with their uncertainty at confidence 1, at the same penalty
        state, inflation = replace(state, confidence=1.0), point.coef
    return RowFitAt(
        state.posterior(),
        float(at.variance @ at.evidence.explained),
        at.n_iter,
        at.converged,
        problem.likelihood if nuisance else None,
        inflation,
    )


class AtPoint(NamedTuple):
    """Where the coefficients ended at a point."""

    variance: Array  # P of the sparse columns
    evidence: RowEvidence
    n_iter: int
    converged: bool
    scales: Variances[RowEvidence] | None = None  # None: they are held


def at_fitted(
    evidence: RowEvidences,
    model: RowModel,
    point: DialPoint,
    before: Variances[RowEvidence] | None,
    last: RowEvidence | None,
) -> AtPoint:
    """With the scales fitted, from those ``before`` and from the coefficients of ``last``."""
    prior = Prior(model.scales, model.groups, point.coef)
    # None where the problem was renewed: the scales are a start, the coefficients are not
    start = before and before._replace(evidence=last)  # type: ignore[arg-type]
    minimum = minimise(evidence, prior, start=start, tol=DIAL_NATS)
    P = model.groups.each(minimum.variance)
    return AtPoint(P, minimum.evidence, len(minimum.history), minimum.converged, minimum)


def at_held(evidence: RowEvidences, P: Array, last: RowEvidence | None) -> AtPoint:
    """At held variances: steps on q(beta) until one evidence lowers J by less than `NEAR` nats."""
    here = evidence(P, last)
    for n_iter in range(1, HELD_STEPS):
        last, here = here, evidence(P, here)
        if last.value - here.value < NEAR:
            return AtPoint(P, here, n_iter, True)
    return AtPoint(P, here, HELD_STEPS, False)
