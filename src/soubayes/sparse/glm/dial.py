"""The dial of row-wise models: its points, and the fit at one of them.

`RowEvidence` is the rows' share of J at given prior variances, for `minimise` of `sparse/dial.py`.
All columns have one confidence gamma_b. w are prior precisions times gamma_b, A = X'BX + diag(w)
and K = I + B^1/2 X W^-1 X' B^1/2, with B the information of the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

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
from soubayes.sparse.glm.likelihood import Likelihood, weighted_terms
from soubayes.sparse.glm.rows import RowProblem
from soubayes.sparse.glm.state import RowModel
from soubayes.sparse.posterior import LowRankPosterior, Posterior

Array = np.ndarray

PARTS = 0.4 ** np.arange(6)  # of a step on q(beta): the first that does not raise J is taken
FIRST_PARTS = 0.4 ** np.arange(12)  # of the first step, from predictors of 0


@dataclass(frozen=True)
class RowEvidence(Evidence):
    """E[loss] + gamma_b KL(beta) without the scales, at the best q(beta, alpha) found so far."""

    state: "WideRows | TallRows"  # where the next evidence starts from
    sparse: Array

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
    here it is one more coefficient, not a factor of its own. Mean and covariance move together, a
    few damped steps a call.
    """
    columns = problem.design.by_columns(SQUARE_ROWS)
    step: Callable[[Array, Any, Any], Any] = partial(_tall_step, problem, confidence)
    if columns is not None:
        step = partial(_wide_step, problem, columns, confidence)

    def at(P: Array, last: RowEvidence | None) -> RowEvidence:
        w = np.empty(len(sparse))
        w[sparse], w[~sparse] = 1.0 / P, confidence * plain
        before, state = None if last is None else last.state, None
        for _ in range(4):
            new = step(w, before, state)
            if new is None:
                break
            fall = np.inf if state is None else state.value - new.value
            before = state = new
            if fall < 1e-3:
                break
        assert state is not None
        explained, mean = state.explained()[sparse], state.mean[sparse]
        return RowEvidence(state.value, explained, mean, 1.0, state, sparse)

    return at


class WideRows(NamedTuple):
    """q(beta, alpha) = N(mean, gamma_b A^-1) of more columns than rows, through n x n systems."""

    value: float
    mean: Array
    eta: Array
    variance: Array  # of eta
    information: Array  # B
    kernel: Woodbury
    X: StandardColumns
    w: Array
    confidence: float

    def explained(self) -> Array:
        """x_j' B^1/2 K^-1 B^1/2 x_j."""
        return self.kernel.projected(self.X, self.kernel.root)[0]

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        """Sum and sum of squares of the eigenvalues of K^-1, and pulled' A^-1 pulled."""
        inside = self.kernel.half @ self.X.times(pulled / self.w)
        shrunk = float(pulled @ (pulled / self.w)) - float(inside @ inside)
        return *eigenvalue_sums(self.kernel.inverse), shrunk

    def posterior(self) -> Posterior:
        """q(beta, alpha)."""
        d, diagonal = np.sqrt(self.confidence) / self.w, self.confidence / self.w
        factor = self.X.dense(), d, self.kernel.half, self.kernel.inverse
        return LowRankPosterior(self.mean, diagonal, *factor)

    def updated(self, problem: RowProblem) -> RowProblem:
        """With the best q of the nuisance parameters at this q(beta, alpha)."""
        return problem.updated_at(self.eta, self.variance)


@np.errstate(over="ignore", invalid="ignore")  # where a trial step overflows it is not taken
def _wide_step(
    problem: RowProblem,
    X: StandardColumns,
    gamma: float,
    w: Array,
    before: WideRows | None,
    here: WideRows | None,
) -> WideRows | None:
    """One step from ``before``; ``here`` is the best state at this w, None if there is none yet."""
    terms_at = partial(weighted_terms, problem.likelihood, y=problem.y, weight=problem.weight)
    n = len(problem.weight)
    gram = X.gram(w) if here is None else here.kernel.gram
    if before is None:
        mean, eta, variance = np.zeros(len(w)), np.zeros(n), np.zeros(n)
        information = np.maximum(problem.weight * problem.likelihood.start_curvature, 1e-10)
    else:
        mean, eta, variance = before.mean, before.eta, before.variance
        information = before.information
    terms = terms_at(eta, variance)
    first = float(terms.loss.sum()) if before is None else None
    goal = np.maximum(terms.information, 1e-10)
    for part in PARTS if before is not None else FIRST_PARTS:
        # a geometric mean of two informations is positive; the part 0 would be the present q
        B = information ** (1.0 - part) * goal**part
        root = np.sqrt(B)
        lower = cholesky(root[:, None] * gram * root, 1.0)
        log_det = log_determinant(lower)
        kernel = Woodbury(root, gram, invert_triangle(lower), log_det)
        linear = B * eta + terms.score
        half = kernel.half
        left = linear - half.T @ (half @ (gram @ linear))
        new = mean + part * (X.left(left) / w - mean)
        new_eta = eta + part * (gram @ left - eta)
        # x_i'A^-1 x_i = (1 - (K^-1)_ii)/B_i: no product with X
        kept = np.einsum("ij,ij->j", kernel.inverse, kernel.inverse)  # the diagonal of K^-1
        new_variance = gamma * (1.0 - kept) / B
        loss = float(terms_at(new_eta, new_variance).loss.sum())
        penalised = loss + 0.5 * float(new @ (w * new))
        value = penalised + 0.5 * gamma * (log_det - n + kept.sum())
        found = WideRows(value, new, new_eta, new_variance, B, kernel, X, w, gamma)
        if _may_go(value, penalised, here and here.value, first):
            return found
    return None if here is not None else found


class TallRows(NamedTuple):
    """The same with at least as many rows as columns: each step passes over the rows."""

    value: float
    mean: Array
    inverse: Array  # L^-1, A = LL'
    information: Array  # X'BX of this A
    goal: Array  # X'BX of the rows at this state
    score: Array
    w: Array
    confidence: float

    def explained(self) -> Array:
        """x_j' B^1/2 K^-1 B^1/2 x_j."""
        return self.w * (1.0 - self.w * np.einsum("ij,ij->j", self.inverse, self.inverse))

    def sums(self, pulled: Array) -> tuple[float, float, float]:
        """Sum and sum of squares of the eigenvalues of W^1/2 A^-1 W^1/2, and p' A^-1 p."""
        inside = self.inverse @ pulled
        return *eigenvalue_sums(self.inverse * np.sqrt(self.w)), float(inside @ inside)

    def posterior(self) -> Posterior:
        """q(beta, alpha)."""
        S = self.confidence * (self.inverse.T @ self.inverse)
        return Posterior(self.mean, np.diag(S).copy(), np.arange(len(S)), S)

    def updated(self, problem: RowProblem) -> RowProblem:
        """With the best q of the nuisance parameters at this q(beta, alpha)."""
        return problem.updated(self.mean, self.inverse.T * np.sqrt(self.confidence))


@np.errstate(over="ignore", invalid="ignore")
def _tall_step(
    problem: RowProblem, gamma: float, w: Array, before: TallRows | None, here: TallRows | None
) -> TallRows | None:
    k = len(w)
    start: float | None = None
    if before is None:
        first = problem.sweep(np.zeros(k), np.zeros((k, k)))
        mean, score, goal = np.zeros(k), first.score, first.information
        information, start = goal, first.loss
    else:
        mean, score, goal = before.mean, before.score, before.goal
        information = before.information
    for part in PARTS if before is not None else FIRST_PARTS:
        # the part 0 is the present q, at which J has a descent direction towards part 1
        H = information + part * (goal - information)
        try:
            lower = cholesky(H, w)
        except np.linalg.LinAlgError:  # one row outweighs the others beyond the digits of float64
            if before is None:
                raise
            if here is None:  # the state ran off: begin again
                return _tall_step(problem, gamma, w, None, None)
            continue
        log_det = log_determinant(lower) - float(np.log(w).sum())
        inverse = invert_triangle(lower)
        new = mean + part * (inverse.T @ (inverse @ (score - w * mean)))
        found = problem.sweep(new, inverse.T * np.sqrt(gamma), curvature=False)
        kept = float(w @ np.einsum("ij,ij->j", inverse, inverse))
        penalised = found.loss + 0.5 * float(new @ (w * new))
        value = penalised + 0.5 * gamma * (log_det - k + kept)
        trial = TallRows(value, new, inverse, H, found.information, found.score, w, gamma)
        if _may_go(value, penalised, here and here.value, start):
            return trial
    return None if here is not None else trial


def _may_go(value: float, penalised: float, last: float | None, start: float | None) -> bool:
    """Whether a step is taken: J must not rise, nor the penalised loss at the very first step.

    A loss that grows exponentially overflows where the first step is too long. From another w, J
    may take any finite value.
    """
    if last is not None:
        return not rises(value, last)
    return bool(np.isfinite(value)) and (start is None or penalised <= start)


NUISANCE_ROUNDS = 4  # of nuisance parameters and coefficients in turn: a candidate needs few digits
ROW_DIAL = (
    DialPoint("ridge", "exponential", 1.0, 1.0),
    DialPoint("cautious", "exponential", 0.003, 3.0),
    DialPoint("nearly sparse", "exponential", 0.001, 1.0),
    DialPoint("horseshoe", "horseshoe", 1.0, 1.0),
    # penalties on which cross-validation settles in standardised columns, from faint to separable
    *map(DialPoint.sure, (0.01, 0.1, 1.0)),
)
NEAR = 0.01  # nats
HELD_STEPS = 30  # evidences at held scales, of a few steps each: the last ones gain nothing


class RowFitAt(NamedTuple):
    """A point of a row-wise problem: q(beta, alpha), standardised, the intercept last."""

    posterior: Posterior
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
        state, inflation = state._replace(confidence=1.0), point.coef
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
    found = minimise(evidence, prior, start=start, tol=DIAL_NATS)
    P = model.groups.each(found.variance)
    return AtPoint(P, found.evidence, len(found.history), found.converged, found)


def at_held(evidence: RowEvidences, P: Array, last: RowEvidence | None) -> AtPoint:
    """At held variances: steps on q(beta) until one evidence lowers J by less than `NEAR` nats."""
    found = evidence(P, last)
    for n_iter in range(1, HELD_STEPS):
        last, found = found, evidence(P, found)
        if last.value - found.value < NEAR:
            return AtPoint(P, found, n_iter, True)
    return AtPoint(P, found, HELD_STEPS, False)
