"""What the estimators of row-wise likelihoods share: from checked rows to a reported fit."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes.confidence import shown
from soubayes.data.rows import RowBlock, RowSource, check_weights, row_weights
from soubayes.sparse.blocks import parse_blocks, parse_groups
from soubayes.sparse.choice.folds import LARGE, enough_rows, folds_of, say_path
from soubayes.sparse.choice.race import Choice, InMemory, choose
from soubayes.sparse.designs.moments import Gathered
from soubayes.sparse.estimators.base import SparseEstimator
from soubayes.sparse.estimators.parameters import (
    ColumnParameters,
    check_choosing,
    check_intercept,
    check_shared,
    shared_settings,
)
from soubayes.sparse.intervals.estimates import one_step
from soubayes.sparse.intervals.fab import Estimates
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.shifted import offset_apart, plain
from soubayes.sparse.posterior import Mixture
from soubayes.sparse.rows.fitting import RowCandidates, RowFamily, RowSettings
from soubayes.sparse.rows.many_rows import choose_ends
from soubayes.threads import solver_threads

Array = np.ndarray

ROW_LOCAL = 1e-6  # gamma_tau of the path: every tau follows the data
FAR_MORE = 10  # rows for each column at which losses of new rows are estimated in the fitted ones


class RowwiseEstimator(ColumnParameters, SparseEstimator):
    """A subclass gives its family, a likelihood with settings, and its targets."""

    solver: str = "newton"
    _path_solver = "newton"
    _stratified = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        check_choosing(self)
        check_shared(self)
        check_intercept(self)

    def _weigh(self, X: Any, y: Array, sample_weight: Any) -> tuple[Any, Array, Array]:
        """Rows of positive weight."""
        weight = row_weights(sample_weight, X.shape[0])
        check_weights(weight)
        keep = weight > 0
        return (X, y, weight) if keep.all() else (X[keep], y[keep], weight[keep])

    def _fit_candidates(
        self,
        candidates: RowCandidates,
        X: Any,
        labels: Array,
        targets: Sequence[Array],
        weight: Array,
        groups: Array | None,
    ) -> Self:
        """From rows: the sparse point, the supports, then the choice among candidates."""
        family, jobs = candidates.family, effective_n_jobs(self.n_jobs)
        intake = family.in_memory(X, weight, targets)
        names = ["all classes"] if family.several else self._target_names()
        solved = family.solve(intake, names, jobs)
        candidates.solved = solved
        points = candidates.in_order([point for each in solved for point in each.points])
        supports, choices = None, None
        if self.inclusion:
            supports = candidates.in_order(family.supports(X, weight, targets, solved))
        some = bool(intake.plan.model.sparse.any())  # normal priors leave nothing to choose
        if some and self._chooses() and enough_rows(len(weight), type(self).__name__):
            many = len(weight) >= max(LARGE, FAR_MORE * X.shape[1])
            single = not family.several and not intake.rows[0].products
            if many and single and self.cv == "auto" and groups is None:
                choices = choose_ends(intake, solved)
            else:
                choices = self._choose_rows(candidates, X, labels, targets, weight, groups)
                choices = choices and candidates.reported(choices)
        self._finish(points, intake.units.mean, choices, supports)
        self._debiased = self._one_steps(family, X, targets, weight)
        return self

    def _one_steps(
        self, family: RowFamily, X: Any, targets: Sequence[Array], weight: Array
    ) -> list[Estimates] | None:
        """One Newton step with all columns from the fitted predictors; None where there is none."""
        if family.several or not isinstance(family.likelihood, RowLikelihood):
            return None
        etas = self._by_rows(X, lambda mixture, rows: rows @ mixture.mean)
        found = []
        for y, eta, mixture in zip(targets, etas, self.mixtures_, strict=True):
            values, offset = offset_apart(y)
            likelihood: Any = plain(mixture.components[0].likelihood or family.likelihood)
            _, slope, curvature = likelihood.derivatives(eta + offset, values)
            noise = max(part.dispersion for part in mixture.components)
            intercept = family.settings.intercept is not None
            found.append(one_step(X, eta, slope, curvature, weight, intercept, noise))
        return None if None in found else [each for each in found if each is not None]

    def _without_them(self) -> str:
        if "_debiased" not in self.__dict__:
            return "the sparse point keeps no statistics, so call summary of the fit itself"
        return "they need rows in memory, and a likelihood of rows with one predictor"

    def _choose_rows(
        self,
        candidates: RowCandidates,
        X: Any,
        labels: Array,
        targets: Sequence[Array],
        weight: Array,
        groups: Array | None,
    ) -> list[Choice] | None:
        jobs = effective_n_jobs(self.n_jobs)
        folds = folds_of(
            self.cv, X, labels, groups, seed=self.random_state, stratified=self._stratified,
            owner=type(self).__name__, products=candidates.products,
        )  # fmt: skip
        if folds is None:
            return None
        task = InMemory(candidates, X, list(targets), weight)
        with solver_threads(int(min(X.shape)), jobs):
            return choose(task, candidates.among(X), folds, candidates.scoring, jobs)

    def _fit_streamed(
        self,
        family: RowFamily,
        rows: RowSource,
        found: Gathered,
        targets: Sequence[Any],
        weigh: Callable[[RowBlock], Array],
    ) -> Self:
        """From blocks that every pass reads again, by one problem at a time."""
        if self.inclusion:
            raise ValueError(
                "inclusion=True needs the rows in memory: pass arrays, or select columns first."
            )
        intake = family.streamed(rows, found, weigh, targets)
        solved = family.solve(intake, self._target_names())
        choices = None
        if self._chooses() and self.cv == "auto":
            choices = choose_ends(intake, solved)
        elif self._chooses():
            what = f"cv is {shown(self.cv)}, but streamed rows cannot be held out"
            say_path(type(self).__name__, what)
        self._debiased = None
        return self._finish([each.point for each in solved], intake.units.mean, choices)

    def _predictors(self, X: Any) -> list[tuple[Array, Array]]:
        """Of every target: means and variances of alpha + x' beta, (components, n)."""
        both = self._by_rows(X, self._each)
        return [(means, variances) for means, variances in both]

    def _each(self, mixture: Mixture, rows: Array) -> Array:
        """(2, components, rows): means and variances of the predictors."""
        return np.stack(mixture.predict_each(rows))

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(
            self, X, reset=False, accept_sparse=["csr"], dtype=[np.float64, np.float32]
        )


def row_settings(estimator: Any, intercept: tuple[float, float] | None) -> RowSettings:
    """The settings that an estimator's parameters say."""
    names = getattr(estimator, "feature_names_in_", None)
    blocks = parse_blocks(estimator.feature_blocks, estimator.n_features_in_, names)
    return RowSettings(
        **shared_settings(estimator, ROW_LOCAL),
        centre=bool(estimator.fit_intercept),
        intercept=intercept,
        blocks=tuple(blocks),
        groups=parse_groups(estimator.feature_groups, estimator.n_features_in_, names),
    )
