"""What the sparse estimators share: one posterior, the views beside it, and their reports."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes._warnings import warn
from soubayes.data.rows import (
    RowSource,
    as_rows,
    check_weights,
    plain_labels,
    row_weights,
    walked_again,
)
from soubayes.sparse.blocks import GroupLabels, parse_blocks, parse_groups
from soubayes.sparse.choice.folds import check_groups
from soubayes.sparse.choice.race import Choice
from soubayes.sparse.choice.scoring import Recalibration
from soubayes.sparse.constants import ROW_LOCAL
from soubayes.sparse.designs.moments import Gathered, GatherPlan, gather
from soubayes.sparse.designs.standardise import blocks_of_rows
from soubayes.sparse.estimators.parameters import (
    ColumnParameters,
    SparseParameters,
    check_choosing,
    check_shared,
    shared_settings,
)
from soubayes.sparse.estimators.reports import PosteriorReports
from soubayes.sparse.estimators.terms import sparse_with_terms, support_of_terms
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.inclusion.view import Supports
from soubayes.sparse.levels import fit_levels
from soubayes.sparse.posterior import Mixture, SparsePoint, centred
from soubayes.sparse.rows.state import RowSettings
from soubayes.sparse.shell import Choosing, Family, TrainingRows, fit_design, fit_rows

Array = np.ndarray


# what stands beside rows that come from somewhere else
_REFUSED = {
    "groups": "groups were given, but X is streamed: groups can only be held out of rows in "
    "memory. Pass X and y as arrays, or leave groups out.",
    "offset": "offset was given, but X comes in blocks: make it a second column of y instead (for "
    "an exposure, its logarithm).",
}
# attributes that checking X and y sets
CHECKED = ("n_features_in_", "feature_names_in_", "classes_", "n_units_")
# attributes of a sparse point, which a mixture of candidates does not have
OF_THE_POINT = (
    "confidence_coef_", "effective_parameters_", "global_scale_", "kl_", "likelihood_",
    "local_scale_", "objective_", "path_", "path_coef_", "path_coef_sd_", "path_refit_coef_",
    "shrinkage_",
)  # fmt: skip


class SparseEstimator(PosteriorReports, BaseEstimator, SparseParameters):
    r"""One posterior, the mixture that predictions are made from, and its reports.

    A subclass's fit ends with `_report`. Arrays have a leading target axis only if ``_single`` is
    False. Beside the posterior stand ``sparse_``, an estimator of its own, and ``supports_``.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Posterior means of the coefficients, exactly 0 only where no candidate keeps a column.
    coef_sd_ : ndarray of the shape of ``coef_``
        Posterior standard deviations.
    covariance_ : ndarray of shape (p, p)
        Posterior covariance of the coefficients, computed when it is asked for.
    mixtures_ : list
        What predictions are made from, one mixture for each target.
    selected_ : ndarray of bool, of the shape of ``coef_``
        Which columns the sparse point keeps.
    shrinkage_ : ndarray of the shape of ``coef_``
        Shrinkage factors :math:`\kappa_j`, between 0 and 1; 1 for a dropped column. This and the
        attributes from here to ``path_coef_sd_`` are those of a sparse point: a mixture of
        candidates has them in ``sparse_``.
    effective_parameters_ : float
        The sum of :math:`1 - \kappa_j`.
    local_scale_ : ndarray of the shape of ``coef_``
        Fitted local scales, :math:`E[1/\tau_j^2]^{-1/2}`.
    global_scale_ : float
        Fitted global scale, :math:`E[1/\nu^2]^{-1/2}`.
    kl_ : dict of str to float
        What it cost each block to leave its prior, in nats, nuisance parameters included.
    objective_ : ndarray
        J after every step at the reported confidence.
    confidence_coef_ : float
        Confidence of the point that is reported.
    path_ : pandas.DataFrame
        The path, a row for each point: ``gamma``, ``chosen``, ``n_selected``, ``value`` (J),
        ``score``, ``intercept`` and, if the path chose its point, ``refit_intercept``.
    path_coef_ : pandas.DataFrame
        The coefficients along the path, a column for each feature; 0 where it is dropped. The
        sparse point is refitted, and may be reported without weak columns that its row has.
    path_coef_sd_ : pandas.DataFrame
        Their posterior standard deviations; NaN where the feature is dropped.
    solver_ : str
        The solver that ran.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the solver stopped by ``tol``.
    """

    _single: bool
    _path_solver = "path"  # the solver that follows a path, so there is something to choose
    _blocks: tuple[str, ...] = ("global", "intercept")  # what `confidence` may name
    # and `priors`
    _numbers: tuple[str, ...] = ("rate_local", "rate_global", "global", "intercept_variance")
    _x_mean: Array
    mixtures_: list[Mixture]
    selected_: Array

    @property
    def sparse_(self) -> Self:
        """The sparse point: the fit that keeps only the selected columns.

        It is an estimator of the same class. Without a choice by prediction it is this one.
        """
        check_is_fitted(self)
        if "_inner" in self.__dict__:
            return sparse_with_terms(self)
        return self.__dict__.get("_sparse_point", self)

    def __getattr__(self, name: str) -> Any:
        if "_inner" in self.__dict__ and not name.startswith("__"):
            return getattr(self._inner, name)
        if name in OF_THE_POINT and "_sparse_point" in self.__dict__:
            raise AttributeError(
                f"this {type(self).__name__} is a mixture of candidates, which has no {name}; its "
                f"sparse point has one: use sparse_.{name}."
            )
        if name == "terms_" and "mixtures_" in self.__dict__:
            raise AttributeError(
                f"this {type(self).__name__} has no terms; fit it with terms, such as 'curves'."
            )
        if name == "supports_" and "mixtures_" in self.__dict__:
            raise AttributeError(
                f"this {type(self).__name__} has no posterior over supports; fit it with "
                "inclusion=True."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def covariance_(self) -> Array:
        """The posterior covariance of all coefficients, computed when it is asked for."""
        check_is_fitted(self)
        p = len(self._x_mean)
        covariances = [mixture.covariance()[:p, :p] for mixture in self.mixtures_]
        return covariances[0] if self._single else np.stack(covariances)

    def _chooses(self) -> bool:
        """Whether confidences are left to the choice by prediction."""
        free = self.confidence_coef == "auto" and self.confidence_local == "auto"
        asked = self.choice == "prediction" and self.cv is not None
        return asked and free and self.solver == self._path_solver

    # ---- what a fit sets --------------------------------------------------------------------

    def _report(
        self,
        points: list[SparsePoint],
        x_mean: Array,
        choices: list[Choice] | None = None,
        supports: list[SupportPosterior] | None = None,
        recalibrations: list[Recalibration] | None = None,
    ) -> Self:
        """Set every attribute of a fit; those of an earlier fit go.

        Without ``choices`` it is that of the sparse points, recalibrated if held-out rows say how.
        """
        for name in [name for name in vars(self) if _is_stale(name)]:
            delattr(self, name)
        self._x_mean = x_mean
        if choices is None:
            self._report_points(points)
            known = recalibrations or [Recalibration()] * len(points)
            both = zip(points, known, strict=True)
            mixtures = [
                recalibration.of(Mixture((point.component,))) for point, recalibration in both
            ]
        else:
            alone = [choice.alone for choice in choices]
            self._sparse_point = self._as_point()._report(points, x_mean, recalibrations=alone)
            self.selected_ = self._sparse_point.selected_
            self._report_choice(points, choices)
            mixtures = [choice.mixture for choice in choices]
        self._report_mixtures(mixtures)
        self.solver_ = points[0].solver
        self.n_iter_ = max(point.n_iter for point in points)
        self.converged_ = all(point.converged for point in points)
        if supports is not None:
            names = self._feature_names(), self._target_names()
            labels = self._group_labels()
            grouped = None if labels is None else labels.names
            self.supports_ = Supports(supports, *names, single=self._flat, groups=grouped)
            if not self.supports_.converged:
                warn(
                    f"{type(self).__name__}: the posterior over supports did not settle. Its "
                    "probabilities may still be off by more than 0.001.",
                    ConvergenceWarning,
                )
        self._check_numbers()
        return self

    def _finish(
        self,
        points: list[SparsePoint],
        x_mean: Array,
        choices: list[Choice] | None = None,
        supports: list[SupportPosterior] | None = None,
    ) -> Self:
        """The end of a fit: its attributes, and a warning if a solver did not converge."""
        self._report(points, x_mean, choices, supports)
        self._warn_unconverged()
        return self

    def _group_labels(self) -> GroupLabels | None:
        """The groups of columns; None where every column is alone."""
        given = getattr(self, "feature_groups", None)
        names = self.__dict__.get("feature_names_in_")
        labels = parse_groups(given, len(self._x_mean), names)
        return None if labels is None or labels.single else labels

    def _as_point(self) -> Self:
        """An estimator of this class with the same data, to report the sparse point."""
        point = type(self)(**{**self.get_params(deep=False), "choice": "path"})
        for name in (*CHECKED, "_single"):
            if name in self.__dict__:
                setattr(point, name, self.__dict__[name])
        return point

    def _report_points(self, points: list[SparsePoint]) -> None:
        arrays: dict[str, list[Any]] = {
            "selected_": [point.selected for point in points],
            "shrinkage_": [point.shrinkage for point in points],
            "effective_parameters_": [point.effective for point in points],
            "local_scale_": [point.local_scale for point in points],
            "global_scale_": [point.global_scale for point in points],
            "confidence_coef_": [point.confidence for point in points],
        }
        for name, values in arrays.items():
            setattr(self, name, self._by_target(values))
        names = pd.Index(self._feature_names().tolist())
        paths = [point.path for point in points]
        lists: dict[str, list[Any]] = {
            "kl_": [point.kl for point in points],
            "objective_": [point.objective for point in points],
            "path_": [pd.DataFrame(path.columns) for path in paths],
            "path_coef_": [pd.DataFrame(path.coef, columns=names) for path in paths],
            "path_coef_sd_": [pd.DataFrame(path.coef_sd, columns=names) for path in paths],
        }
        if paths[0].refit_coef is not None:
            lists["path_refit_coef_"] = [
                pd.DataFrame(path.refit_coef, columns=names) for path in paths
            ]
        for name, parts in lists.items():
            setattr(self, name, self._listed(parts))
        self._coef_units = np.stack([point.units for point in points])

    def _report_choice(self, points: list[SparsePoint], choices: list[Choice]) -> None:
        """What the choice by prediction found."""
        self.candidates_ = self._listed([choice.candidates for choice in choices])
        if choices[0].out_of_fold is not None:
            self.out_of_fold_ = self._listed([choice.out_of_fold for choice in choices])
        costs = [c.sparsity(p.selected) for p, c in zip(points, choices, strict=True)]
        self.sparsity_ = self._listed(costs)
        self._coef_units = self._sparse_point._coef_units

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        """Means and standard deviations of the posterior."""
        self.mixtures_ = mixtures
        p, zero = len(self._x_mean), -self._x_mean
        means = [mixture.mean for mixture in mixtures]
        rows = np.append(zero, np.ones(len(means[0]) - p))[None]
        arrays: dict[str, list[Any]] = {
            "coef_": [mean[:p] for mean in means],
            "coef_sd_": [mixture.sd[:p] for mixture in mixtures],
            "intercept_": [float(mean[p:].sum() + zero @ mean[:p]) for mean in means],
            "intercept_sd_": [float(np.sqrt(m.spread(rows)[0])) for m in mixtures],
        }
        if mixtures[0].noise:
            arrays["noise_variance_"] = [mixture.noise for mixture in mixtures]
        for name, values in arrays.items():
            setattr(self, name, self._by_target(values))

    def _check_numbers(self) -> None:
        """A result that is not finite is an error, never a fit."""
        for name in ("coef_", "coef_sd_", "intercept_", "intercept_sd_", "noise_variance_"):
            if not np.isfinite(self.__dict__.get(name, 0.0)).all():
                raise ValueError(
                    f"{type(self).__name__} found a {name} that is not finite, because the data or "
                    "the weights are too extreme for float64; divide them by constants."
                )

    def _warn_unconverged(self) -> None:
        if self.converged_:
            return
        if self.solver_ == "coordinate":
            what = f"J was still falling by more than tol={self.tol} in a sweep"
            advice = (
                "Algorithm 1 creeps when confidence_local is small: raise max_iter or tol, or "
                "leave the solver at its default."
            )
        else:
            what = f"the solver did not converge within max_iter={self.max_iter} steps"
            advice = "Raise max_iter or tol."
        text = f"{type(self).__name__}: {what}. {advice}"
        warn(text, ConvergenceWarning)

    # ---- shapes and names -------------------------------------------------------------------

    def _by_target(self, values: Sequence[Any]) -> Any:
        """Numbers or arrays of the targets: the one, or an array with a target axis."""
        return values[0] if self._flat else np.stack(values)

    @property
    def _flat(self) -> bool:
        """Whether arrays of one target have no target axis."""
        return self._single

    def _listed(self, values: list[Any]) -> Any:
        """Tables and other objects of the targets: the one, or all in a list."""
        return values[0] if self._single else values

    def _target_names(self) -> list[Any]:
        return list(range(len(self.mixtures_)))

    @property
    def _eliminated(self) -> bool:
        """Whether X has columns of units that are eliminated, so it stays sparse."""
        given = getattr(self, "feature_groups", None)
        return isinstance(given, GroupLabels) and given.unit is not None

    def _fits_noise(self) -> bool:
        """Whether a row has noise beside what its likelihood says of its predictor."""
        return False

    def _eliminates_units(self) -> bool:
        """Whether the effects of a unit with many levels can be eliminated in blocks."""
        return False

    def _feature_names(self) -> Array:
        given = getattr(self, "feature_groups", None)
        if isinstance(given, GroupLabels):
            return np.array(given.columns, dtype=object)
        names = self.__dict__.get("feature_names_in_")
        return np.array([f"x{i}" for i in range(len(self._x_mean))]) if names is None else names

    # ---- predictions ------------------------------------------------------------------------

    def _by_rows(self, X: Any, work: Callable[[Mixture, Array], Array]) -> list[Array]:
        """``work`` of every target's mixture on all rows, a block of rows at a time.

        The last axis of what it returns is that of the rows.
        """
        parts: list[list[Array]] = [[] for _ in self.mixtures_]
        for _, block in blocks_of_rows(X, self._eliminated):
            for blocks, m in zip(parts, self.mixtures_, strict=True):
                blocks.append(work(m, centred(block, self._x_mean, m)))
        return [np.concatenate(blocks, axis=-1) for blocks in parts]


def _is_stale(name: str) -> bool:
    """Whether an attribute belongs to an earlier fit; what checking X and y sets does not."""
    beside = ("_sparse_point", "_inner")
    return name in beside or (name.endswith("_") and name not in CHECKED)


class ColumnEstimator(ColumnParameters, SparseEstimator):
    """A subclass gives a `Family` of the shell and its targets."""

    _stratified = False  # whether folds share out the labels evenly

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _fit_family(
        self,
        family: Family,
        X: Any,
        targets: list[Array],
        weight: Array,
        labels: Array,
        groups: Array | None,
    ) -> Self:
        """From rows of positive weight."""
        rows, how = TrainingRows(X, targets, weight, labels, groups), self._choosing()
        levels = self.__dict__.pop("_levels", None)
        if levels is None:
            fit = fit_rows(family, rows, how)
            self._finish(*fit)
            known = None if how.predicts else family.integrated(rows)
            if known is not None:
                self._fitted_scales = self.mixtures_, [ratios for _, ratios in known]
                self._report_mixtures([mixture for mixture, _ in known])
        else:
            fit = fit_levels(family, rows, how, levels)
            self._finish(*fit)
        groups_of_columns = self._settings_groups()
        if groups_of_columns is not None and groups_of_columns.curves:
            numbers = groups_of_columns.number
            curves = [np.flatnonzero(numbers == g) for g in groups_of_columns.curves]
            self._left_out = family.left_out(rows, fit.points, curves)

        def predictors() -> list[Array]:
            return self._by_rows(X, lambda mixture, block: block @ mixture.mean)

        self._unpulled = None
        if groups_of_columns is None:  # those of terms are shrunk together
            self._unpulled = family.estimates(rows, predictors, self.mixtures_)
        return self

    def _settings_groups(self) -> GroupLabels | None:
        """The columns of terms; None: there are none."""
        given = self.feature_groups
        return given if isinstance(given, GroupLabels) else None

    def _fit_design(self, family: Family, intake: Any) -> Self:
        """From rows that are not in memory."""
        self._unpulled = None
        return self._finish(*fit_design(family, intake, self._choosing()))

    def _choosing(self) -> Choosing:
        return Choosing(
            owner=type(self).__name__,
            predicts=self._chooses(),
            inclusion=self.inclusion,
            cv=self.cv,
            seed=self.random_state,
            jobs=effective_n_jobs(self.n_jobs),
            stratified=self._stratified,
            names=self._fitted_names(),
        )

    def _fitted_names(self) -> list[Any]:
        """Names of the targets that are fitted, before there is a result."""
        return []

    def _screening_target(self, y: Any) -> Array:
        """What pairs of terms are screened by, (n, targets)."""
        values = np.asarray(y, float)
        return values.reshape(len(values), -1)

    # ---- rows in memory, and rows from somewhere else ---------------------------------------

    _reads_once = False  # whether a source is read once; else every step of a solver reads it

    def _fit_source(
        self, X: Any, y: Any, sample_weight: Any, groups: Any = None, offset: Any = None
    ) -> Self:
        """From rows in memory; rows from somewhere else are taken to memory while they are few."""
        rows = as_rows(X, y, sample_weight)
        if rows is None:
            X, y = self._checked_rows(X, y)
            return self._fit_memory(X, y, sample_weight, check_groups(groups, X), offset)
        for name, given in (("groups", groups), ("offset", offset)):
            if given is not None:
                raise ValueError(_REFUSED[name])
        if not self._reads_once:
            walked_again(rows, type(self).__name__)
        gathered = gather(rows, self._plan())
        set_columns(self, gathered.n_columns, rows.names)
        if not gathered.n_rows:
            raise ValueError(
                "there are 0 rows of positive weight: give some rows a weight above 0."
            )
        if gathered.rows is not None:
            return self._fit_memory(*gathered.rows)
        return self._fit_gathered(rows, gathered)

    def _checked_rows(self, X: Any, y: Any) -> tuple[Any, Array]:
        """X and y of rows in memory, as scikit-learn checks them."""
        X, y = validate_data(
            self, X, plain_labels(y), accept_sparse=["csr"], dtype=[np.float64, np.float32],
            ensure_min_samples=2,
        )  # fmt: skip
        return X, y

    def _plan(self) -> GatherPlan:
        """What the first pass over a source keeps."""
        raise NotImplementedError

    def _fit_memory(
        self, X: Any, y: Array, sample_weight: Any, groups: Any = None, offset: Any = None
    ) -> Self:
        """From checked rows in memory."""
        raise NotImplementedError

    def _fit_gathered(self, rows: RowSource, gathered: Gathered) -> Self:
        """From a source of which only statistics are in memory."""
        raise NotImplementedError

    def _weigh(self, X: Any, sample_weight: Any, *beside: Any) -> tuple[Any, ...]:
        """X, the weights and what stands beside them, of rows of positive weight."""
        weight = row_weights(sample_weight, X.shape[0])
        check_weights(weight)
        keep = weight > 0
        if keep.all():
            return X, weight, *beside
        return X[keep], weight[keep], *(None if each is None else each[keep] for each in beside)

    def _column_settings(self, path_local: float) -> dict[str, Any]:
        """What the parameters say about the columns; ``path_local`` is the path's gamma_tau."""
        names = self.__dict__.get("feature_names_in_")
        return shared_settings(self, path_local) | {
            "blocks": tuple(parse_blocks(self.feature_blocks, self.n_features_in_, names)),
            "groups": parse_groups(self.feature_groups, self.n_features_in_, names),
        }


class RowwiseEstimator(ColumnEstimator):
    """A response whose rows are read by a likelihood."""

    solver: str = "newton"
    _path_solver = "newton"

    def _check_parameters(self) -> None:
        check_choosing(self)
        check_shared(self)

    def _fitted_names(self) -> list[Any]:
        return self._target_names()

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

    def _row_settings(self, intercept: tuple[float, float] | None) -> RowSettings:
        """The settings that the parameters say."""
        columns = self._column_settings(ROW_LOCAL)
        return RowSettings(**columns, centre=bool(self.fit_intercept), intercept=intercept)


class FeatureSelection(SelectorMixin):
    """``transform`` and ``get_support`` keep the columns selected for any target.

    With terms those are the columns of X that the kept terms read.
    """

    def _get_support_mask(self) -> Array:
        check_is_fitted(self)
        if "_inner" in self.__dict__:
            return support_of_terms(self)
        return np.any(np.atleast_2d(self.selected_), axis=0)


def check_predict_arguments(return_std: bool, quantiles: Any) -> None:
    """``predict`` has one kind of result."""
    if return_std and quantiles is not None:
        raise ValueError(
            "return_std and quantiles were both given: predict returns either the mean with "
            "its standard deviation or the quantiles. Call it twice."
        )


def quantile_levels(quantiles: Any) -> Array:
    """Levels of quantiles as an array."""
    levels = np.atleast_1d(np.asarray(quantiles, float))
    if levels.size == 0 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ValueError(
            f"quantiles are {levels.tolist()}, but they must be numbers between 0 and 1."
        )
    return levels


def set_columns(estimator: Any, count: int, names: Array | None) -> None:
    """What scikit-learn's ``validate_data`` sets, for X that it does not see whole."""
    estimator.n_features_in_ = count
    if names is not None and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
