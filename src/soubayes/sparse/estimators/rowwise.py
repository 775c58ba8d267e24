"""Estimators of any likelihood that is read row by row: from data to attributes."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes.data.streams import RowBlock, RowSource, check_weights, row_weights
from soubayes.sparse.choice.mixture import Component, Mixture, centred
from soubayes.sparse.designs.base import RowDesign
from soubayes.sparse.designs.gather import Gathered
from soubayes.sparse.designs.rows import rows_in_memory
from soubayes.sparse.designs.standardise import (
    ColumnUnits,
    check_squares,
    check_units,
    column_units,
    in_range,
)
from soubayes.sparse.designs.streamed import StreamedRows
from soubayes.sparse.estimators.base import (
    as_dense,
    check_choice,
    check_confidence_coef,
    check_confidences,
    check_positive,
    row_slices,
    warn_unconverged,
)
from soubayes.sparse.estimators.blocks import Sources, parse_blocks, sources
from soubayes.sparse.estimators.choosing import LARGE
from soubayes.sparse.estimators.inclusion import InclusionReports
from soubayes.sparse.estimators.rowwise_report import Report, report_on
from soubayes.sparse.inclusion.row_supports import Rows, row_supports
from soubayes.sparse.likelihoods.base import Likelihood, RowLikelihood
from soubayes.sparse.scales import Groups, make_prior
from soubayes.sparse.solvers.row_state import RowModel
from soubayes.sparse.solvers.rowwise_path import (
    Limits,
    RowOutcome,
    SharedRows,
    share_rows,
    solve_rows,
)
from soubayes.sparse.solvers.threads import solver_threads

Array = np.ndarray


SPARSE = 1e-6  # gamma_tau of the path: every tau follows the data
STRIDE = 4  # a path on many rows visits every fourth point, then those beside the best


class RowPlan(NamedTuple):
    """The model of a fit, which columns follow the path, and their order in the solver."""

    model: RowModel
    free: Array
    order: Array


class RowwiseEstimator(InclusionReports):
    """Parameters to model, rows to design, solutions to attributes in the user's units.

    A subclass gives `_likelihood` and its targets: one, or one a class against the rest.
    """

    feature_groups: Any = None
    n_jobs: int | None = None
    solver: str = "newton"
    inclusion: bool = False

    @abstractmethod
    def _likelihood(self) -> Likelihood:
        """What the rows are read with."""

    @property
    def _has_intercept(self) -> bool:
        """Whether a column of ones is added; without it the columns may still be centred."""
        return self.fit_intercept and self._likelihood().intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_parameters(self) -> None:
        check_confidences(self, "confidence_global")
        if self.confidence_local != "auto":
            check_confidences(self, "confidence_local")
        check_confidence_coef(self.confidence_coef)
        make_prior(self.prior, 1.0)
        check_choice("solver", self.solver, ("newton", "coordinate"))
        check_positive(self, "rate_local", "rate_global", "tol", "max_iter")
        if self.fit_intercept:
            check_positive(self, "intercept_variance")
            check_confidences(self, "confidence_intercept")
        if self.solver == "coordinate" and not self._likelihood().majorises:
            raise ValueError(
                "solver='coordinate' is Algorithm 1 of the paper, which needs its bound: pass "
                "bound='jaakkola' as well, or use solver='newton'."
            )

    def _local_confidence(self) -> float:
        """gamma_tau of the path."""
        return SPARSE if self.confidence_local == "auto" else float(self.confidence_local)

    def _plan(self, p: int) -> RowPlan:
        """The columns' model; the sources stand in reverse order, the intercept last."""
        blocks = parse_blocks(self.feature_blocks, p, getattr(self, "feature_names_in_", None))
        coef = 1.0 if self.confidence_coef == "auto" else float(self.confidence_coef)
        given = sources(blocks, p, coef, self._local_confidence())
        order = np.concatenate([columns for _, columns in given.groups[::-1]])
        place = np.argsort(order)
        extra = [1.0] if self._has_intercept else []
        variance = np.append(given.variance[order], np.multiply(extra, self.intercept_variance))
        sparse = np.isnan(variance)
        confidence = np.append(given.gamma[order], np.multiply(extra, self.confidence_intercept))
        model = RowModel(
            confidence=confidence,
            variance=variance,
            local_confidence=np.append(given.local[order], extra),
            global_confidence=float(self.confidence_global),
            local_prior=make_prior(self.prior, float(self.rate_local)),
            global_prior=make_prior(
                getattr(self, "prior_global", None) or self.prior, float(self.rate_global)
            ),
            sources=tuple((name, np.sort(place[columns])) for name, columns in given.groups),
            groups=_tau_groups(self.feature_groups, order, given),
            intercept=self._has_intercept,
        )
        free = np.append(given.free[order], np.zeros(len(extra), bool)) & sparse
        return RowPlan(model, free, order)

    def _weigh(self, X: Any, y: Array, sample_weight: Any) -> tuple[Any, Array, Array]:
        """Rows of positive weight."""
        weight = row_weights(sample_weight, X.shape[0])
        check_weights(weight)
        keep = weight > 0
        return (X, y, weight) if keep.all() else (X[keep], y[keep], weight[keep])

    def _solve_memory(self, X: Any, weight: Array, targets: Sequence[Array]) -> Self:
        """Fit every target to rows in memory; ``targets`` are numbers a row each."""
        shared, plan, units = self._shared(X, weight)
        self._solve(shared, targets, plan, units, effective_n_jobs(self.n_jobs))
        self._include(X, weight, targets)
        return self

    def _shared(self, X: Any, weight: Array) -> tuple[SharedRows, RowPlan, ColumnUnits]:
        """What the problems of rows in memory share."""
        X, unit = in_range(X)
        units = column_units(X, weight, self.fit_intercept)
        plan = self._plan(X.shape[1])
        design = rows_in_memory(X, units, plan.order, self._has_intercept)
        shared = share_rows(self._likelihood(), design, weight, self.solver)
        units = units._replace(mean=units.mean * unit, scale=units.scale * unit)
        check_units(units.scale)
        return shared, plan, units

    def _include(self, X: Any, weight: Array, targets: Sequence[Array]) -> None:
        """The posterior over supports of rows in memory, from the fit that was found."""
        if not self.inclusion:
            return
        X, unit = in_range(X)
        units, plan = column_units(X, weight, self.fit_intercept), self._plan(X.shape[1])
        scale, always = units.scale * unit, np.zeros(X.shape[1])
        always[plan.order] = np.nan_to_num(plan.model.variance[: X.shape[1]], nan=0.0)
        likelihood = self._likelihood()
        if not isinstance(likelihood, RowLikelihood) or likelihood.nuisance is not None:
            raise ValueError(
                f"inclusion=True needs a RowLikelihood without nuisance parameters, but likelihood "
                f"is a {type(likelihood).__name__}."
            )
        found = []
        with solver_threads(int(min(X.shape))):
            for t, y in enumerate(targets):
                rows = Rows(X, units, y, weight, self.fit_intercept)
                coef = np.where(np.atleast_2d(self.selected_)[t], self.posteriors_[t].mean, 0.0)
                alpha = float(self._alpha[t])
                found.append(row_supports(likelihood, rows, coef * scale, alpha, always, scale))
        self._set_supports(found)

    def _as_reported(self, values: Array) -> Any:
        return self._by_target(values)

    def _solve_streamed(
        self,
        rows: RowSource,
        found: Gathered,
        targets: Sequence[Any],
        weigh: Callable[[RowBlock], Array],
    ) -> Self:
        """Fit every target (a `StreamedTarget`) to blocks that every pass walks again."""
        if self.inclusion:
            raise ValueError(
                "inclusion=True needs the rows in memory: pass arrays, or select columns first."
            )
        assert found.statistics is not None
        whole = found.statistics.total()
        use = whole if self.fit_intercept else whole.about_zero()
        check_squares(whole.x_mean, np.diag(use.xx) / use.n)
        units = ColumnUnits.of_moments(use)
        plan = self._plan(found.n_columns)
        order, divisor = plan.order, units.divisor[plan.order]
        p, centre = len(order), self._has_intercept
        gram = np.zeros((p + centre, p + centre))
        gram[:p, :p] = use.xx[np.ix_(order, order)] / np.outer(divisor, divisor)
        gram[p:, p:] = use.n
        design = StreamedRows(
            rows, order, units.mean[order], divisor, centre, found.dtype, found.n_rows, weigh
        )
        shared = SharedRows(self._likelihood(), design, None, gram, use.n)
        # blocks from somewhere else are walked by one problem at a time
        outcomes = self._solve(shared, targets, plan, units, 1)
        self._choose_streamed(shared, targets, outcomes, plan, units)
        return self

    def _choose_streamed(
        self,
        shared: SharedRows,
        targets: Sequence[Any],
        outcomes: list[RowOutcome],
        plan: RowPlan,
        units: ColumnUnits,
    ) -> None:
        """Confidences chosen by prediction, where an estimator has that."""

    def _solve(
        self,
        shared: SharedRows,
        targets: Sequence[Any],
        plan: RowPlan,
        units: ColumnUnits,
        jobs: int,
    ) -> list[RowOutcome]:
        confidence = self._asked(shared)

        def one(target: Any, name: Any) -> RowOutcome:
            limits = Limits(int(self.max_iter), float(self.tol), self._reporter(name))
            if shared.design.n_rows >= LARGE:
                limits = limits._replace(stride=STRIDE, refine=True)
            return solve_rows(
                shared, target, plan.model, plan.free, confidence, self.solver, limits
            )

        jobs = min(jobs, len(targets))
        with solver_threads(min(shared.design.n_rows, shared.design.n_columns), jobs):
            outcomes = Parallel(n_jobs=jobs, prefer="threads")(
                delayed(one)(target, name)
                for target, name in zip(targets, self._target_names(), strict=True)
            )
            self._set_attributes(shared.design, outcomes, units, np.argsort(plan.order))
        self._check_numbers()
        if not self.converged_:
            self._warn()
        return outcomes

    def _set_attributes(
        self, design: RowDesign, outcomes: list[RowOutcome], units: ColumnUnits, back: Array
    ) -> None:
        reports = [report_on(design, outcome, units, back) for outcome in outcomes]
        self._forget_supports()
        self._x_mean = units.mean
        self.posteriors_ = [report.posterior for report in reports]
        self._alpha = np.array([report.intercept for report in reports])
        self._alpha_variance = np.array([report.intercept_variance for report in reports])
        spread = [q.spread(units.mean[None])[0] for q in self.posteriors_]
        coef = np.stack([q.mean for q in self.posteriors_])
        shrinkage = np.stack([report.shrinkage for report in reports])
        arrays = {
            "coef_": coef,
            "coef_sd_": np.stack([q.sd for q in self.posteriors_]),
            "intercept_": self._alpha - coef @ units.mean,
            "intercept_sd_": np.sqrt(self._alpha_variance + spread),
            "selected_": np.stack([report.selected for report in reports]),
            "shrinkage_": shrinkage,
            "effective_parameters_": np.sum(1.0 - shrinkage, axis=1),
            "local_scale_": np.stack([report.local_scale for report in reports]),
            "global_scale_": np.array([report.global_scale for report in reports]),
            "confidence_coef_": np.array([outcome.gamma for outcome in outcomes]),
        }
        for name, values in arrays.items():
            setattr(self, name, self._by_target(values))
        self.solver_ = self.solver
        self.n_iter_ = max(outcome.n_iter for outcome in outcomes)
        self.converged_ = all(outcome.fit.converged for outcome in outcomes)
        lists: dict[str, list[Any]] = {
            "kl_": [report.kl for report in reports],
            "objective_": [outcome.history for outcome in outcomes],
        }
        for name, parts in lists.items():
            setattr(self, name, parts[0] if self._single else parts)
        self._set_paths([report.path for report in reports])
        for name in ("candidates_", "out_of_fold_", "sparsity_"):
            self.__dict__.pop(name, None)
        self.mixtures_ = self._sparse_mixtures = [
            Mixture((self._component(report),)) for report in reports
        ]

    def _component(self, report: Report) -> Component:
        """A fit as a mixture of one."""
        q = report.posterior
        if self._has_intercept:
            q = q.joined(report.intercept, report.intercept_variance)
        return Component(q)

    def _set_mixture_attributes(self) -> None:
        """Posterior means and sds of the mixtures."""
        p = len(self._x_mean)
        means = np.stack([mixture.mean for mixture in self.mixtures_])
        sds = np.stack([np.sqrt(mixture.variance) for mixture in self.mixtures_])
        coef = means[:, :p]
        arrays = {"coef_": coef, "coef_sd_": sds[:, :p]}
        if means.shape[1] > p:
            rows = np.append(-self._x_mean, 1.0)[None]
            arrays["intercept_"] = means[:, p] - coef @ self._x_mean
            spread = [mixture.spread(rows)[0] for mixture in self.mixtures_]
            arrays["intercept_sd_"] = np.sqrt(spread)
        for name, values in arrays.items():
            setattr(self, name, self._by_target(values))

    def _asked(self, shared: SharedRows) -> float | None:
        """The confidence in the coefficients; None: along the path."""
        return None if self.confidence_coef == "auto" else float(self.confidence_coef)

    def _by_target(self, values: Array) -> Any:
        """An attribute with a leading axis of targets, as this estimator reports it."""
        return values[0] if self._single else values

    def _predictors(self, X: Any) -> list[tuple[Array, Array]]:
        """Of every target: means and variances of alpha + x' beta, (components, n)."""
        parts = [self._block_predictors(as_dense(X[rows])) for rows in row_slices(X)]
        return [
            (np.concatenate([part[t][0] for part in parts], axis=1),
             np.concatenate([part[t][1] for part in parts], axis=1))
            for t in range(len(self.mixtures_))
        ]  # fmt: skip

    def _block_predictors(self, block: Array) -> list[tuple[Array, Array]]:
        return [m.predict_each(centred(block, self._x_mean, m)) for m in self.mixtures_]

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(
            self, X, reset=False, accept_sparse=["csr"], dtype=[np.float64, np.float32]
        )

    def _reporter(self, name: Any) -> Callable[[int, float, int], None]:
        def report(step: int, value: float, active: int) -> None:
            if self.verbose:
                print(f"{name}: step {step}, J = {value:.8g}, {active} active", flush=True)

        return report

    def _warn(self) -> None:
        if self.solver == "coordinate":
            what = f"J was still falling by more than tol={self.tol} of itself a sweep"
            advice = (
                "Algorithm 1 creeps when confidence_local is small: raise max_iter or tol, or use "
                "solver='newton'."
            )
        else:
            what = f"the solver did not converge within max_iter={self.max_iter} steps"
            advice = "Raise max_iter or tol."
        warn_unconverged(self, what, advice)


def _tau_groups(labels: Any, order: Array, given: Sources) -> Groups:
    """Which sparse columns share a tau, in the solver's order; equal labels share one."""
    sparse = np.isnan(given.variance[order])
    if labels is None:
        return Groups.single(int(sparse.sum()))
    labels = np.asarray(labels)
    if labels.shape != order.shape:
        raise ValueError(
            f"feature_groups has {labels.size} labels, but X has {len(order)} columns: give every "
            "column the label of its group."
        )
    for label in np.unique(labels):
        inside = labels == label
        if sum(bool(inside[columns].any()) for _, columns in given.groups) > 1:
            raise ValueError(
                f"the columns of the group {str(label)!r} lie in more than one feature block; a "
                "group must lie in one."
            )
    return Groups.of(labels[order][sparse])


def constant_weights(block: RowBlock) -> Array:
    """The weights that a block came with."""
    return np.ones(len(block.y)) if block.weight is None else block.weight
