"""The candidates of linear regression, and which of them race in which folds."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from soubayes.sparse.choice.folds import (
    DENSE_BYTES,
    Splits,
    few_at_a_time,
    folds_of,
    make_folds,
    nearly_square,
    square_folds,
)
from soubayes.sparse.choice.race import PATH, PATH_AVERAGE, Candidate, Candidates, Fits, InMemory
from soubayes.sparse.choice.scoring import NUMBERS, HeldOut, student_scoring
from soubayes.sparse.dial import EACH_TERM, DialPoint
from soubayes.sparse.least_squares.criterion import support_evidence
from soubayes.sparse.least_squares.designs import LeastSquares
from soubayes.sparse.least_squares.dial import LEAST_SQUARES_DIAL, LeastSquaresDial
from soubayes.sparse.least_squares.fitting import (
    LinearIntake,
    LinearSettings,
    TargetUnits,
    in_units,
    rows_intake,
    settle_targets,
)
from soubayes.sparse.least_squares.objective import LeastSquaresModel
from soubayes.sparse.least_squares.path import coefficients_at, path_fit
from soubayes.sparse.least_squares.student_noise import MemoryTail, StudentPrior
from soubayes.sparse.posterior import Component, Mixture, SparsePoint

Array = np.ndarray

FOLD_STILL = 1e-4  # relative change at which the rounds for Student's t end in a fold
RATHER_SPARSE = 10.0  # nats by which a support beats ridge regression where folds cannot say
FAILED_PATH = 3.0  # errors relative to those claimed: 18 to 29 where signals were lost, else 1 to 2
TRIED_FOLDS = 3  # in which that is looked at
MEDIAN_NORMAL = 0.6745  # of |z|
CLEARLY_SPARSE = 1.0  # nats for each row by which it does: no dense candidate comes near


class LinearCandidates(Candidates):
    """The candidates of linear regression; ``points`` are those of all rows, already known."""

    rows = (PATH, PATH_AVERAGE, *(Candidate.of(point) for point in LEAST_SQUARES_DIAL))
    scoring = NUMBERS

    def __init__(
        self, settings: LinearSettings, points: Sequence[SparsePoint], students: Any = ()
    ) -> None:
        self.settings, self.points = settings, points
        self.dial: tuple[DialPoint, ...] = LEAST_SQUARES_DIAL
        if settings.shared is not None:
            self.dial = (*LEAST_SQUARES_DIAL, EACH_TERM)
            self.rows = (*self.rows, Candidate.of(EACH_TERM))
        # degrees of freedom are learnt from all rows; folds hold them
        self.priors = [StudentPrior(float(noise.degrees)) for noise in students]
        if students:
            self.scoring = student_scoring(min(noise.degrees for noise in students))

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        intake = rows_intake(
            X, np.stack(targets, axis=1), weight, self.settings.intercept is not None,
            square=True, shared=self.settings.shared,
        )  # fmt: skip
        if not self.priors:
            return self.fit_intake(intake, wanted, known)

        def rows(t: int) -> MemoryTail:
            return MemoryTail(X, targets[t], weight, intake.units.of(t))

        settled = partial(
            settle_targets, intake, rows, self.settings, self.priors, still=FOLD_STILL
        )
        dense = settled(dense=True)
        sparse = dense if known else settled()
        return self.fit_intake(sparse, wanted, known, dense)

    def fit_intake(
        self,
        intake: LinearIntake,
        wanted: Sequence[set[str]],
        known: bool,
        dense: LinearIntake | None = None,
    ) -> Fits:
        """The same from designs, which may be those of moments; the dial may have its own."""
        dense = dense or intake
        found = Fits([], [], intake.units.x_mean)
        for t, design in enumerate(intake.designs):
            model, free = self.settings.model(
                len(intake.units.x_scale), float(intake.units.y_scale[t])
            )
            parts: dict[str, tuple[Component, ...]] = {}
            sizes: dict[str, float] = {}
            if wanted[t] & {PATH.name, PATH_AVERAGE.name}:
                average = PATH_AVERAGE.name in wanted[t]
                own, coefs, size = (
                    _known(self.points[t])
                    if known
                    else self._sparse(design, model, free, intake.units, t, average)
                )
                parts[PATH.name], sizes[PATH.name] = (own,), size
                if average:
                    parts[PATH_AVERAGE.name] = _along(own, coefs)
                    sizes[PATH_AVERAGE.name] = float(np.count_nonzero(coefs, axis=1).mean())
            points = [point for point in self.dial if point.name in wanted[t]]
            dial = LeastSquaresDial(dense.designs[t], model) if points else None
            for point in points:
                assert dial is not None
                fit = dial.fit(point)
                parts[point.name] = (in_units(dense.designs[t], fit, dense.units, t),)
                sizes[point.name] = fit.effective
            found.components.append({k: v for k, v in parts.items() if k in wanted[t]})
            found.effective.append(sizes)
        return found

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        try:
            with np.errstate(over="raise"):
                mean, variance = mixture.predict(rows)
        except FloatingPointError:
            j = int(np.argmax(np.abs(rows).max(axis=0)))
            raise ValueError(
                f"column {j} of X has a value {np.abs(rows[:, j]).max():.2g} from the mean of the "
                "other rows, too far to predict its row when it is held out; correct the value, "
                "or leave out the row."
            ) from None
        zero = np.zeros_like(mean)
        return HeldOut(mean, variance, zero + mixture.noise, mean, zero, zero)

    def _sparse(
        self,
        design: LeastSquares,
        model: LeastSquaresModel,
        free: Array,
        units: TargetUnits,
        t: int,
        average: bool,
    ) -> tuple[Component, Array, float]:
        """The path of some rows: its chosen point, if asked its coefficients, and its size."""
        states, fit = path_fit(design, model, free, max_iter=self.settings.max_iter)
        coefs = np.array([coefficients_at(design, state) for state in states if average])
        own = in_units(design, fit, units, t)
        return own, coefs * (units.y_scale[t] / units.x_scale) if average else coefs, fit.effective


def _known(point: SparsePoint) -> tuple[Component, Array, float]:
    return point.component, point.path.coef, point.effective


def _along(own: Component, coefs: Array) -> tuple[Component, ...]:
    """The path's average: its points, each with the covariance and noise of the chosen one."""
    found = []
    for coef in coefs:
        mean = own.posterior.mean.copy()
        mean[: len(coef)] = coef
        found.append(replace(own, posterior=own.posterior.at(mean), weight=1.0 / len(coefs)))
    return tuple(found)


def plan_race(
    task: InMemory,
    candidates: LinearCandidates,
    intake: LinearIntake,
    groups: Array | None,
    *,
    cv: Any,
    seed: Any,
    owner: str,
) -> tuple[tuple[Candidate, ...], Splits] | None:
    """Which candidates race in which folds; None where there can be no folds.

    Where n is close to p, folds have fewer training rows than columns. If the evidence of all rows
    is for the path, there are more folds. If it is clearly so, or if the path loses its signals in
    these folds, the path is the only candidate, in folds of few rows.
    """
    (n, p), Y = task.X.shape, task.targets
    lead = -np.inf
    if cv == "auto" and nearly_square(n, p):
        lead = sparse_lead(intake, candidates.points, candidates.settings)
    if lead < RATHER_SPARSE:
        # all candidates are fitted from X'X or X X', whichever is smaller
        square = 8 * (p if p <= 2 * n else n) ** 2 <= DENSE_BYTES
        folds = folds_of(
            cv, task.X, Y[0], groups, seed=seed, stratified=False, owner=owner,
            products=square and (p <= n or not candidates.settings.blocks),
        )  # fmt: skip
        return None if folds is None else (candidates.rows, folds)
    folds = make_folds(square_folds(n), Y[0], groups, False, seed, True)
    if lead < CLEARLY_SPARSE * n and not path_fails(task, folds[:TRIED_FOLDS], candidates.points):
        return candidates.rows, folds
    return (PATH,), few_at_a_time(n, p, seed) if groups is None else folds


def sparse_lead(
    intake: LinearIntake, points: Sequence[SparsePoint], settings: LinearSettings
) -> float:
    """Nats by which the evidence of the path's support exceeds that of ridge regression.

    With p <= n and fewer training rows than columns in a fold, the path loses signals in folds
    that it finds on all rows, where their marginal likelihoods can be compared. The least of all
    targets.
    """
    found = []
    for t, (design, point) in enumerate(zip(intake.designs, points, strict=True)):
        model, free = settings.model(len(point.selected), float(intake.units.y_scale[t]))
        support, intercept = np.flatnonzero(point.selected), model.intercept_variance is not None
        places = free / model.group_size
        sparse = support_evidence(
            design, support, model.sparse, places, intercept, model.tau_numbers
        )
        found.append(sparse - LeastSquaresDial(design, model).evidence())
    return float(min(found))


def path_fails(
    task: InMemory, folds: Sequence[tuple[Array, Array]], points: Sequence[SparsePoint]
) -> bool:
    """Whether the path loses signals in folds that it has found on all rows.

    The median of its errors is then many times what it claims for new rows.
    """
    wanted = [{PATH.name}] * len(points)
    each = [(test, task.predict(task.fit(train, wanted), test)) for train, test in folds]
    for t, (point, y) in enumerate(zip(points, task.targets, strict=True)):
        off = [y[test] - said[t][PATH.name].middle for test, said in each]
        n, k = len(y), min(point.effective, 0.9 * len(y))
        claimed = math.sqrt(point.component.noise * n / (n - k))
        if float(np.median(np.abs(np.concatenate(off)))) > FAILED_PATH * MEDIAN_NORMAL * claimed:
            return True
    return False
