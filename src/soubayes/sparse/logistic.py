"""Sparse Bayesian logistic regression as a scikit-learn estimator (section 4.3)."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from soubayes.sparse.base import (
    FeatureSelection,
    SparseEstimator,
    as_dense,
    check_choice,
    check_confidence_coef,
    check_confidences,
    check_positive,
    row_slices,
    set_columns,
    warn_unconverged,
)
from soubayes.sparse.blocks import parse_blocks, sources
from soubayes.sparse.columns import Columns
from soubayes.sparse.logistic_path import Outcome, Problem, make_problem, solve_class
from soubayes.sparse.logistic_report import Report, path_table, report_on
from soubayes.sparse.predictive import log_mean_probability, mean_probability, probability_sd
from soubayes.sparse.scales import make_prior
from soubayes.sparse.streamed import stream_problem, survey
from soubayes.sparse.streams import Rows, as_rows, block_by_block
from soubayes.sparse.threads import solver_threads
from soubayes.sparse.units import Units, make_design, standardise

Array = np.ndarray


class SoULogisticRegression(FeatureSelection, ClassifierMixin, SparseEstimator):
    """Logistic regression that selects columns by the confidence in its coefficients.

    The model of section 4.3 and supplement A.3, with a confidence gamma for every source::

        y ~ Bernoulli(sigma(alpha + x' beta)),   beta_j ~ N(0, tau_j^2 nu^2)
        J(q) = E_q[loss] + sum_k gamma_k KL_k            (supplement C.4.3, sign corrected)

    with the Jaakkola-Jordan bound for the loss; several classes are fitted one against the rest.
    A small ``confidence_local`` makes every tau_j follow the data, so that beta_j is either free
    or zero, and ``confidence_coef`` is the threshold: beta_j stays when z_j^2 = q_j^2/s_j >
    gamma_b, q_j its score with the other coefficients adjusted and s_j the information that the
    bound gives it. The bound overstates information where the classes are well separated, so
    that fewer than the 32 % of useless columns that linear regression keeps at gamma_b = 1 stay.
    Columns are standardised inside; coefficients are reported in your units.

    Parameters
    ----------
    confidence_coef : float or "auto"
        gamma_b. "auto" raises it from 1 to max(2, 3 log p), chooses for each class the point of
        least 2 loss + 2 k n/(n - k - 1) + 2 k log(p/e), and refits its support at confidence 1.
    confidence_local, confidence_global, confidence_intercept : float
        gamma_tau, gamma_nu, gamma_alpha. ``confidence_local=1`` is the ordinary global-local
        model (GL); from confidence_coef/2 on nothing is selected.
    prior : "exponential" or "horseshoe"
        tau_j^2, nu^2 ~ Exp(rate), or tau_j, nu ~ half-Cauchy.
    rate_local, rate_global : float
        lambda_tau, lambda_nu of the exponential priors.
    intercept_variance : float
        Of the normal prior of the intercept at the mean of X.
    feature_blocks : dict or None
        Named groups of columns with their own prior: ``{"clinical": {"columns": ["age", "sex"],
        "prior": "normal", "variance": 10.0, "confidence": 1.0}}`` is not shrunk (variance in
        units of 1/var(x)); ``"prior": "sparse"`` with its own ``confidence`` and
        ``confidence_local`` stays sparse. Other columns are sparse.
    fit_intercept : bool
    class_weight : dict, "balanced" or None
        Multiplies ``sample_weight`` as in scikit-learn.
    solver : "newton" or "coordinate"
        "coordinate" is Algorithm 1, which has the same fixed points and takes very long when
        ``confidence_local`` is small; its "auto" is 1.
    max_iter, tol : int, float
        Steps for each confidence, and the relative fall of J in a step at which a solver stops.
    n_jobs : int or None
        Threads over the classes.
    verbose : int
        1 prints a line a step.

    Attributes
    ----------
    classes_ : the labels, sorted
    coef_, coef_sd_, selected_, shrinkage_, local_scale_ : (1, p), or (n_classes, p)
        ``coef_`` is exactly 0 where not selected; shrinkage kappa_j = d_j S_jj is 1 there.
    intercept_, intercept_sd_, global_scale_, effective_parameters_, confidence_coef_ : (1,) or \
(n_classes,)
    covariance_ : (p, p), or (n_classes, p, p); computed when asked for
    kl_ : nats of each block (a list of them for several classes, as the following)
    objective_ : J after every step at the reported confidence; never rises
    path_ : Table with gamma, n_selected, value (J), score (of "auto"), selected, coef, intercept, \
and, of "auto", refit_coef and refit_intercept
    solver_, n_iter_, converged_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 20))
    >>> y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=400) / 2 > 0, "yes", "no")
    >>> model = SoULogisticRegression(confidence_coef="auto").fit(X, y)
    >>> np.flatnonzero(model.selected_[0])
    array([0, 1])
    >>> model.predict_proba(X[:2]).round(1)
    array([[0.4, 0.6],
           [0.9, 0.1]])
    """

    def __init__(
        self,
        *,
        confidence_coef: float | str = 1.0,
        confidence_local: float = 1e-6,
        confidence_global: float = 1.0,
        confidence_intercept: float = 1.0,
        prior: str = "exponential",
        rate_local: float = 10.0,
        rate_global: float = 10.0,
        intercept_variance: float = 10.0,
        feature_blocks: Mapping[str, Mapping[str, Any]] | None = None,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        solver: str = "newton",
        max_iter: int = 200,
        tol: float = 1e-7,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.confidence_coef = confidence_coef
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_intercept = confidence_intercept
        self.prior = prior
        self.rate_local = rate_local
        self.rate_global = rate_global
        self.intercept_variance = intercept_variance
        self.feature_blocks = feature_blocks
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to X (n, p), dense or scipy-sparse, and labels y (n,) of any type.

        float32 data stay float32. ``sample_weight`` counts a row that many times. Data that do
        not fit in memory: X and y Dask collections; paths of ``.npy`` files; the path of a parquet
        folder and the name of its label column; or X alone, an iterable of (X, y) or
        (X, y, weight) blocks that can be walked again, as every step does.
        """
        self._check_parameters()
        rows = as_rows(X, y, sample_weight)
        if rows is not None:
            return self._fit_rows(rows)
        X, y = validate_data(
            self, X, y, accept_sparse=["csr"], dtype=[np.float64, np.float32], ensure_min_samples=2
        )
        return self._fit_memory(X, y, sample_weight)

    def _fit_rows(self, rows: Rows) -> Self:
        found = survey(rows, self.class_weight)
        set_columns(self, found.n_columns, rows.names)
        if found.gathered.rows is not None:
            return self._fit_memory(*found.gathered.rows)
        self._set_classes(found.labels.names[found.labels.weight > 0])
        model, free, order, groups = self._model(found.n_columns)
        problem, units = stream_problem(rows, found, order, self.fit_intercept, self.class_weight)
        return self._solve(problem, lambda label: label, model, free, order, groups, units)

    def _fit_memory(self, X: Any, y: Array, sample_weight: Any) -> Self:
        X, y, weight = self._weigh(X, y, sample_weight)
        units, matrix = standardise(X, weight, self.fit_intercept)
        model, free, order, groups = self._model(X.shape[1])
        design = make_design(matrix, units, order, self.fit_intercept)
        problem = make_problem(design, weight, self.solver)

        def target(label: Any) -> Array:
            return (y == label).astype(float)

        return self._solve(problem, target, model, free, order, groups, units)

    def _solve(
        self,
        problem: Problem,
        target: Callable[[Any], Any],
        model: Columns,
        free: Array,
        order: Array,
        groups: dict[str, Array],
        units: Units,
    ) -> Self:
        """Every class against the rest; ``target`` of a label is what the design takes as y."""
        targets = self.classes_ if len(self.classes_) > 2 else self.classes_[1:]
        self._single = len(self.classes_) == 2
        confidence = None if self.confidence_coef == "auto" else float(self.confidence_coef)
        stopped: list[Any] = []

        def one(label: Any) -> Outcome:
            outcome = solve_class(
                problem,
                target(label),
                model,
                free,
                confidence,
                solver=self.solver,
                max_iter=0 if stopped else int(self.max_iter),
                tol=float(self.tol),
                report=self._reporter(label),
            )
            if outcome.fit.interrupted:
                stopped.append(label)
            return outcome

        back = np.argsort(order)
        # blocks from somewhere else are walked by one class at a time
        jobs = min(effective_n_jobs(None if problem.weight is None else self.n_jobs), len(targets))
        with solver_threads(min(problem.design.n_rows, problem.design.n_columns), jobs):
            outcomes = Parallel(n_jobs=jobs, prefer="threads")(
                delayed(one)(label) for label in targets
            )
            reports = [report_on(problem, fit, groups, back, units.scale) for fit in outcomes]
        self._set_attributes(outcomes, reports, units, back)
        if not self.converged_:
            self._warn(stopped)
        return self

    @block_by_block
    def decision_function(self, X: Any) -> Array:
        """Log odds of the averaged probability, (n,) or (n, n_classes) one against the rest."""
        mean, variance = self._predictor(self._checked(X))
        odds = log_mean_probability(mean, variance) - log_mean_probability(-mean, variance)
        return odds[:, 0] if self._single else odds

    @block_by_block
    def predict(self, X: Any, average: bool = False) -> Array:
        """The class of highest averaged probability; ``average`` as in `predict_proba`."""
        if average:
            return self.classes_[np.argmax(self.predict_proba(X, average=True), axis=1)]
        odds = self.decision_function(X)
        index = (odds > 0).astype(int) if self._single else np.argmax(odds, axis=1)
        return self.classes_[index]

    @block_by_block
    def predict_proba(self, X: Any, return_std: bool = False, average: bool = False) -> Any:
        """Probabilities averaged over the posterior, E_q[sigma(alpha + x' beta)].

        The average of the logistic function over the Gaussian linear predictor is computed by a
        mixture of eight probits (error below 3e-9); several classes are normalised to sum to 1.
        ``return_std`` adds the posterior standard deviation of the (one against the rest)
        probabilities, divided by the same sum. ``average=True`` also averages over the points of
        the path, each with the variance of the reported point, and adds their spread.
        """
        X = self._checked(X)
        mean, variance = self._predictor(X)
        p = mean_probability(mean, variance)
        sd = probability_sd(mean, variance) if return_std else p
        if average:
            p, sd = self._along_path(X, variance, return_std)
        if self._single:
            p = np.minimum(p, 1.0)  # the probits' weights sum to 1 up to rounding
            p, sd = np.column_stack([1.0 - p, p]), np.column_stack([sd, sd])
        else:
            total = p.sum(axis=1, keepdims=True)
            # every class at (almost) 0: the largest log odds decide
            log_p = log_mean_probability(mean, variance)
            safe = np.exp(log_p - log_p.max(axis=1, keepdims=True))
            p = np.where(total > 1e-7, p / np.maximum(total, 1e-7), safe / safe.sum(1)[:, None])
            sd = sd / np.maximum(total, 1e-7)
        return (p, sd) if return_std else p

    @block_by_block
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`, accurate for small probabilities."""
        mean, variance = self._predictor(self._checked(X))
        log_p = log_mean_probability(mean, variance)
        if self._single:
            return np.column_stack([log_mean_probability(-mean, variance), log_p])
        shift = log_p.max(axis=1, keepdims=True)
        return log_p - shift - np.log(np.exp(log_p - shift).sum(axis=1, keepdims=True))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _predictor(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of alpha + x' beta, (n, 1) or (n, n_classes), for a checked X."""
        mean = np.empty((X.shape[0], len(self.posteriors_)))
        variance = np.empty_like(mean)
        for rows in row_slices(X):
            centred = as_dense(X[rows]) - self._x_mean
            for t, q in enumerate(self.posteriors_):
                mean[rows, t] = centred @ q.mean + self._alpha[t]
                variance[rows, t] = q.spread(centred) + self._alpha_variance[t]
        return mean, variance

    def _along_path(self, X: Any, variance: Array, spread: bool) -> tuple[Array, Array]:
        """Probabilities averaged over the path's points, and their standard deviations."""
        p, square = np.zeros_like(variance), np.zeros_like(variance)
        for t, table in enumerate([self.path_] if self._single else self.path_):
            v = variance[:, t]
            for coef, intercept in zip(table["coef"], table["intercept"], strict=True):
                mean = X @ coef + intercept
                here = mean_probability(mean, v)
                p[:, t] += here / len(table["coef"])
                if spread:
                    square[:, t] += (here**2 + probability_sd(mean, v) ** 2) / len(table["coef"])
        return p, np.sqrt(np.maximum(square - p**2, 0.0))

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(
            self, X, reset=False, accept_sparse=["csr"], dtype=[np.float64, np.float32]
        )

    def _check_parameters(self) -> None:
        check_confidences(self, "confidence_local", "confidence_global")
        check_confidence_coef(self.confidence_coef)
        check_choice("prior", self.prior, ("exponential", "horseshoe"))
        check_choice("solver", self.solver, ("newton", "coordinate"))
        check_positive(self, "rate_local", "rate_global", "tol", "max_iter")
        if self.fit_intercept:
            check_positive(self, "intercept_variance")
            check_confidences(self, "confidence_intercept")

    def _weigh(self, X: Any, y: Array, sample_weight: Any) -> tuple[Any, Array, Array]:
        """Rows of positive weight; labels as the user gave them."""
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        keep = weight > 0
        if not keep.all():
            X, y, weight = X[keep], y[keep], weight[keep]
        self._set_classes(np.unique(y))
        return X, y, weight

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = classes
        if len(classes) < 2:
            given = f"the one class {classes[0]}" if len(classes) else "no row of positive weight"
            raise ValueError(
                f"y has {given}, but a classifier needs rows of at least two classes; "
                "use stratified folds if this is a cross-validation."
            )

    def _model(self, p: int) -> tuple[Columns, Array, Array, dict[str, Array]]:
        """The columns' model, which of them follow the path, their order, and the sources."""
        blocks = parse_blocks(self.feature_blocks, p, getattr(self, "feature_names_in_", None))
        coef = 1.0 if self.confidence_coef == "auto" else float(self.confidence_coef)
        given = sources(blocks, p, coef, float(self.confidence_local))
        order = np.concatenate([columns for _, columns in given.groups[::-1]])
        extra = [1.0] if self.fit_intercept else []
        variance = np.append(given.variance[order], np.multiply(extra, self.intercept_variance))
        sparse = np.isnan(variance)
        model = Columns(
            confidence=np.append(given.gamma[order], np.multiply(extra, self.confidence_intercept)),
            sparse=sparse,
            precision=1.0 / variance,
            local_prior=make_prior(self.prior, float(self.rate_local)),
            global_prior=make_prior(self.prior, float(self.rate_global)),
            local_confidence=np.append(given.local[order], extra),
            global_confidence=float(self.confidence_global),
            intercept=self.fit_intercept,
        )
        free = np.append(given.free[order], np.zeros(len(extra), bool)) & sparse
        return model, free, order, dict(given.groups)

    def _reporter(self, label: Any) -> Any:
        def report(step: int, value: float, active: int) -> None:
            if self.verbose:
                print(f"class {label}: step {step}, J = {value:.8g}, {active} active", flush=True)

        return report

    def _set_attributes(
        self, outcomes: list[Outcome], reports: list[Report], units: Units, back: Array
    ) -> None:
        self._x_mean = units.mean
        self.posteriors_ = [report.posterior for report in reports]
        self.coef_ = np.stack([q.mean for q in self.posteriors_])
        self.coef_sd_ = np.stack([q.sd for q in self.posteriors_])
        self._alpha = np.array([report.intercept for report in reports])
        self._alpha_variance = np.array([report.intercept_variance for report in reports])
        self.intercept_ = self._alpha - self.coef_ @ units.mean
        spread = [q.spread(units.mean[None])[0] for q in self.posteriors_]
        self.intercept_sd_ = np.sqrt(self._alpha_variance + spread)
        self.selected_ = np.stack([report.selected for report in reports])
        self.shrinkage_ = np.stack([report.shrinkage for report in reports])
        self.effective_parameters_ = np.sum(1.0 - self.shrinkage_, axis=1)
        self.local_scale_ = np.stack([report.local_scale for report in reports])
        self.global_scale_ = np.array([report.global_scale for report in reports])
        self.confidence_coef_ = np.array([outcome.gamma for outcome in outcomes])
        self.solver_ = self.solver
        self.n_iter_ = max(outcome.n_iter for outcome in outcomes)
        self.converged_ = all(outcome.fit.converged for outcome in outcomes)
        self.kl_, self.objective_, self.path_ = (
            parts[0] if self._single else parts
            for parts in (
                [report.kl for report in reports],
                [outcome.history for outcome in outcomes],
                [path_table(outcome, units, back) for outcome in outcomes],
            )
        )

    def _warn(self, stopped: list[Any]) -> None:
        if stopped:
            what, advice = "the fit was interrupted", "Call fit again to finish it."
        elif self.solver == "coordinate":
            what = f"J was still falling by more than tol={self.tol} of itself a sweep"
            advice = (
                "Algorithm 1 creeps when confidence_local is small: raise max_iter or tol, or use "
                "solver='newton'."
            )
        else:
            what = f"a class did not converge within max_iter={self.max_iter} steps"
            advice = "Raise max_iter or tol."
        warn_unconverged(self, what, advice)

    def _target_names(self) -> list[Any]:
        return list(self.classes_ if not self._single else self.classes_[1:])

    def _draws(self, n: int, rng: np.random.Generator) -> dict[str, list[Array]]:
        draws = super()._draws(n, rng)
        if self.fit_intercept:
            draws["intercept"] = [
                self._alpha[t]
                + rng.standard_normal(n) * np.sqrt(self._alpha_variance[t])
                - draws["coef"][t] @ self._x_mean
                for t in range(len(self.posteriors_))
            ]
        return draws
