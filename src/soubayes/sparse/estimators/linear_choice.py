"""How linear regression chooses its confidences by prediction: from rows, or from moments."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from soubayes.confidence import shown
from soubayes.sparse.choice.fold_moments import FoldMoments
from soubayes.sparse.choice.folds import make_folds
from soubayes.sparse.choice.least_squares_dial import LEAST_SQUARES_DIAL, LeastSquaresDial
from soubayes.sparse.choice.mixture import Component, Mixture
from soubayes.sparse.choice.prediction import Candidate, Fits
from soubayes.sparse.choice.scoring import FOLD_MOMENTS, NUMBERS, HeldOut
from soubayes.sparse.choice.supports import support_evidence
from soubayes.sparse.designs.base import LeastSquares
from soubayes.sparse.designs.moments import FoldedMoments, Moments
from soubayes.sparse.estimators.choosing import PATH, PATH_AVERAGE, ChoosingEstimator, InMemory
from soubayes.sparse.estimators.gaussian import GaussianEstimator, TargetUnits
from soubayes.sparse.solvers.path import path_fit
from soubayes.sparse.solvers.threads import solver_threads

Array = np.ndarray

CLEARLY = 10.0  # nats by which a sparse support beats ridge regression where folds cannot say
STREAM_FOLDS = 5  # of rows of which only the statistics are kept


class LinearChoice(ChoosingEstimator, GaussianEstimator):
    """The candidates of linear regression, and the two ways to hold rows out."""

    _moments: FoldedMoments | None

    @abstractmethod
    def _designs(
        self, X: Any, Y: Array, weight: Array | None, folds: int = 1, square: bool = False
    ) -> tuple[list[LeastSquares], TargetUnits, FoldedMoments | None]:
        """A standardised design a target, its units, and the statistics (if n >= p)."""

    @abstractmethod
    def _moment_designs(
        self, raw: Moments, x_unit: Array | float = 1.0, y_unit: Array | float = 1.0
    ) -> tuple[list[LeastSquares], TargetUnits]:
        """From the statistics of X/x_unit and y/y_unit."""

    _candidates = (
        PATH,
        PATH_AVERAGE,
        *(Candidate(point.label, *point) for point in LEAST_SQUARES_DIAL),
    )

    _own_solver = "path"

    def _n_folds(self) -> int:
        """How many folds the statistics are kept of."""
        if self.cv == "auto":
            return STREAM_FOLDS
        return max(int(self.cv), 2) if isinstance(self.cv, Integral) else 1

    def _choose_numbers(
        self,
        X: Any,
        Y: Array,
        weight: Array | None,
        groups: Array | None,
        path_alone: bool,
    ) -> None:
        counts = np.ones(len(Y)) if weight is None else weight
        targets = [np.ascontiguousarray(y) for y in Y.T]
        with solver_threads(int(min(X.shape)), effective_n_jobs(self.n_jobs)):
            if path_alone:
                n, p = X.shape
                if groups is None:
                    splits = few_at_a_time(n, p, self.random_state)
                else:
                    folds = self._auto_folds(n, p)
                    splits = make_folds(folds, Y[:, 0], groups, False, self.random_state, True)
                task = InMemory(self, X, targets, counts)
                self._choose_among(task, (PATH,), splits, NUMBERS)
            elif not self._choose(X, targets, counts, Y[:, 0], NUMBERS, groups):
                return
        self._set_mixture_attributes()

    def _clearly_sparse(self, designs: Sequence[LeastSquares], units: TargetUnits) -> bool:
        """Whether the path alone is the candidate: folds cannot say, and the evidence is clear.

        With p <= n and fewer training rows than columns in a fold, the path loses signals in folds
        that it finds on all rows. There the marginal likelihood of its support on all rows is
        compared with that of ridge regression.
        """
        n, p = int(designs[0].n), len(units.x_scale)
        if self.cv != "auto" or not p <= n or n - n // self._auto_folds(n, p) > p:
            return False
        selected = np.atleast_2d(self.selected_)
        for t, design in enumerate(designs):
            model, free = self._model(p, [], float(units.y_scale[t]))
            support, intercept = np.flatnonzero(selected[t]), model.intercept_variance is not None
            sparse = support_evidence(design, support, model.sparse, free, intercept)
            if sparse < LeastSquaresDial(design, model).evidence() + CLEARLY:
                return False
        return True

    def _choose_moments(self) -> None:
        """The choice by the moments of the folds."""
        folds = self._moments
        assert folds is not None
        if len(folds.folds) < 2:
            raise TypeError(
                f"cv is {shown(self.cv)}, but rows that are streamed are split by their numbers: "
                "use 'auto', an int, or None."
            )
        if folds.rows < len(folds.folds):
            raise ValueError(
                f"cv is {shown(self.cv)}, but there are {folds.rows} rows: every fold needs one."
            )
        task = FoldMoments(folds, len(self._candidates), self._fit_moments)
        with solver_threads(self.n_features_in_, effective_n_jobs(self.n_jobs)):
            self._choose_among(task, self._candidates, task.splits, FOLD_MOMENTS)
        self._set_mixture_attributes()

    def _fit_moments(self, raw: Moments, wanted: Sequence[set[str]], known: bool) -> Fits:
        return self._fit_designs(*self._moment_designs(raw), wanted, known)

    def _fit_candidates(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        designs, units, _ = self._designs(X, np.stack(targets, axis=1), weight, square=True)
        return self._fit_designs(designs, units, wanted, known)

    def _fit_designs(
        self,
        designs: Sequence[LeastSquares],
        units: TargetUnits,
        wanted: Sequence[set[str]],
        known: bool,
    ) -> Fits:
        found = Fits([], [], units.x_mean)
        for t, design in enumerate(designs):
            model, free = self._model(len(units.x_scale), [], float(units.y_scale[t]))
            parts: dict[str, tuple[Component, ...]] = {}
            sizes: dict[str, float] = {}
            if wanted[t] & {PATH.label, PATH_AVERAGE.label}:
                if known:
                    own = self._sparse_mixtures[t].components[0]
                    frames: Any = [self.path_coef_] if self._single else self.path_coef_
                    coefs = frames[t].to_numpy()
                    size = float(np.ravel(self.effective_parameters_)[t])
                else:
                    coefs, fit = path_fit(design, model, free, max_iter=int(self.max_iter))
                    (own,) = self._components(design, fit, units, t)
                    coefs, size = coefs * (units.y_scale[t] / units.x_scale), fit.effective
                parts[PATH.label], sizes[PATH.label] = (own,), size
                parts[PATH_AVERAGE.label] = _along(own, coefs)
                sizes[PATH_AVERAGE.label] = float(np.count_nonzero(coefs, axis=1).mean())
            points = [point for point in LEAST_SQUARES_DIAL if point.label in wanted[t]]
            dial = LeastSquaresDial(design, model) if points else None
            for point in points:
                assert dial is not None
                fit = dial.fit(point)
                parts[point.label] = self._components(design, fit, units, t)
                sizes[point.label] = fit.effective
            found.components.append({k: v for k, v in parts.items() if k in wanted[t]})
            found.effective.append(sizes)
        return found

    def _held_out(self, mixture: Mixture, rows: Array) -> HeldOut:
        mean, variance = mixture.predict(rows)
        return HeldOut(mean, variance, np.full_like(mean, mixture.noise))


def few_at_a_time(n: int, p: int, seed: Any) -> list[tuple[Array, Array]]:
    """Folds of so few rows that more rows than columns are left, or all but one.

    They end early, as all folds of one candidate do (`prediction.py`).
    """
    size = max(n - p - 1, 1)
    order = check_random_state(seed).permutation(n)
    held = [order[i * size : (i + 1) * size] for i in range(n // size)]
    return [(np.setdiff1d(order, test), np.sort(test)) for test in held]


def _along(own: Component, coefs: Array) -> tuple[Component, ...]:
    """The path's average: its points, each with the covariance and noise of the chosen one."""
    found = []
    for coef in coefs:
        mean = own.posterior.mean.copy()
        mean[: len(coef)] = coef
        found.append(replace(own, posterior=own.posterior.at(mean), weight=1.0 / len(coefs)))
    return tuple(found)
