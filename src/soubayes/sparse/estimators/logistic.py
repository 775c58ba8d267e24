"""Sparse Bayesian logistic regression as a scikit-learn estimator (section 4.3)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from scipy.special import expit, logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from soubayes.data.streams import RowSource, as_rows, block_by_block, plain_labels, walked_again
from soubayes.sparse.choice.mixture import Component, Mixture
from soubayes.sparse.choice.prediction import Candidate, Fits
from soubayes.sparse.choice.row_dial import ROW_DIAL, fit_rows_at
from soubayes.sparse.choice.scoring import CLASSES
from soubayes.sparse.designs.streamed import StreamedTarget
from soubayes.sparse.estimators.base import FeatureSelection, check_choice, set_columns
from soubayes.sparse.estimators.choosing import LARGE, PATH, ChoosingEstimator
from soubayes.sparse.estimators.classes import one_against_rest, survey, weigh_block
from soubayes.sparse.estimators.rowwise import RowwiseEstimator
from soubayes.sparse.estimators.rowwise_report import report_on
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.bernoulli import Bernoulli, JaakkolaBernoulli
from soubayes.sparse.likelihoods.probits import (
    log_mean_probability,
    mean_probability,
    probability_sd,
)
from soubayes.sparse.solvers.rowwise_path import Limits, SharedRows, solve_rows
from soubayes.sparse.solvers.threads import solver_threads

Array = np.ndarray

STRIDE = 3  # a fold's path visits every third point

_BOUNDS: dict[str | None, type[RowLikelihood]] = {None: Bernoulli, "jaakkola": JaakkolaBernoulli}


class SoULogisticRegression(FeatureSelection, ClassifierMixin, ChoosingEstimator, RowwiseEstimator):
    """Logistic regression that selects columns by the confidence in its coefficients.

    The model of section 4.3 and supplement A.3, with a confidence gamma for every source::

        y ~ Bernoulli(sigma(alpha + x' beta)),   beta_j ~ N(0, tau_j^2 nu^2)
        J(q) = E_q[loss] + sum_k gamma_k KL_k            (supplement C.4.3, sign corrected)

    Several classes are fitted one against the rest. A small ``confidence_local`` makes every tau_j
    follow the data, so that beta_j is either free or zero, and ``confidence_coef`` is the
    threshold: beta_j stays when z_j^2 = q_j^2/s_j > gamma_b, q_j its score with the other
    coefficients adjusted and s_j its information. Columns are standardised inside; coefficients
    are reported in your units.

    Parameters
    ----------
    confidence_coef, confidence_local : "auto" or float
        gamma_b and gamma_tau. "auto" leaves them to ``choice``. A number is that one: nothing
        is then chosen by prediction, and the other one, if "auto", is 1e-6 (local) or chosen along
        the path (coef). ``confidence_local=1`` is the ordinary global-local model (GL); from
        confidence_coef/2 on nothing is selected. (1, 1e-6) are the paper's.
    confidence_global, confidence_intercept : float
        gamma_nu, gamma_alpha.
    choice : "prediction" or "path"
        "prediction" weighs fits between dense and sparse by their scores of held-out rows and
        predicts from their mixture (the page "Choosing confidences"). "path" raises gamma_b from 1
        to max(2, 3 log p), chooses for each class the point of least
        2 loss + 2 k n/(n - k - 1) + 2 k log(p/e), and refits its support at confidence 1. From
        10,000 rows on, or for rows that are streamed, "prediction" is gamma_b = 1.
    cv : "auto", int, splitter, list of (train, test) or None
        Folds of "prediction": "auto" is 5, stratified, of which one is held out from 2,000 rows on.
        None: the path alone.
    random_state : int or None
        Shuffle of the folds.
    prior : "exponential" or "horseshoe"
        tau_j^2, nu^2 ~ Exp(rate), or tau_j, nu ~ half-Cauchy.
    prior_global : None, "exponential" or "horseshoe"
        Of nu alone; None is ``prior``.
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
    inclusion : bool
        Also find the posterior over supports: ``inclusion_``, `credible_sets`, `discoveries`, and
        intervals in `summary` that average over supports (the page "Which columns").
    bound : None or "jaakkola"
        How E_q[log(1 + exp(eta))] is computed. None is exact (to 1e-8). "jaakkola" is the upper
        bound of Jaakkola and Jordan that the paper uses; it makes q too narrow.
    class_weight : dict, "balanced" or None
        Multiplies ``sample_weight`` as in scikit-learn.
    solver : "newton" or "coordinate"
        "coordinate" is Algorithm 1, which has the same fixed points and takes very long when
        ``confidence_local`` is small; it needs ``bound="jaakkola"``, and its "auto" is 1.
    max_iter, tol : int, float
        Steps for each confidence, and the relative fall of J in a step at which a solver stops.
    n_jobs : int or None
        Threads over the classes and the folds.
    verbose : int
        1 prints a line a step.

    Attributes
    ----------
    classes_ : the labels, sorted
    coef_, coef_sd_, selected_, shrinkage_, local_scale_ : (1, p), or (n_classes, p)
        ``coef_`` is exactly 0 where not selected, unless it is that of a mixture; shrinkage
        kappa_j = d_j S_jj is 1 there.
    intercept_, intercept_sd_, global_scale_, effective_parameters_, confidence_coef_ : (1,) or \
(n_classes,)
    covariance_ : (p, p), or (n_classes, p, p); computed when asked for
    kl_ : nats of each block (a list of them for several classes, as the following)
    objective_ : J after every step at the reported confidence; never rises
    path_ : Table with gamma, chosen (the reported row), n_selected, value (J), score (of "auto"), \
selected, coef, intercept, and, of "auto", refit_coef and refit_intercept
    inclusion_, mass_held_ : of ``inclusion=True``, (1, p) and (1,), or (n_classes, ...)
        The probability of every column to carry an effect; that of supports without an effect
        besides those of ``support_posteriors_``.
    candidates_, out_of_fold_, sparsity_ : of a choice by prediction, a list for several classes
        Table of candidates; held-out probabilities; what keeping only the selected columns costs.
    mixtures_ : what is predicted from, a `Mixture` a class
    solver_, n_iter_, converged_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 20))
    >>> y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=400) / 2 > 0, "yes", "no")
    >>> model = SoULogisticRegression().fit(X, y)
    >>> np.flatnonzero(model.selected_[0])
    array([0, 1])
    >>> model.predict_proba(X[:2]).round(1)
    array([[0.3, 0.7],
           [0.9, 0.1]])
    """

    def __init__(
        self,
        *,
        confidence_coef: float | str = "auto",
        confidence_local: float | str = "auto",
        confidence_global: float = 1.0,
        confidence_intercept: float = 1.0,
        choice: str = "prediction",
        cv: Any = "auto",
        random_state: int | None = 0,
        prior: str = "exponential",
        prior_global: str | None = None,
        rate_local: float = 10.0,
        rate_global: float = 10.0,
        intercept_variance: float = 10.0,
        feature_blocks: Mapping[str, Mapping[str, Any]] | None = None,
        fit_intercept: bool = True,
        inclusion: bool = False,
        bound: str | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        solver: str = "newton",
        max_iter: int = 500,
        tol: float = 1e-7,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.confidence_coef = confidence_coef
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_intercept = confidence_intercept
        self.choice = choice
        self.cv = cv
        self.random_state = random_state
        self.prior = prior
        self.prior_global = prior_global
        self.rate_local = rate_local
        self.rate_global = rate_global
        self.intercept_variance = intercept_variance
        self.feature_blocks = feature_blocks
        self.fit_intercept = fit_intercept
        self.inclusion = inclusion
        self.bound = bound
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
            self,
            X,
            plain_labels(y),
            accept_sparse=["csr"],
            dtype=[np.float64, np.float32],
            ensure_min_samples=2,
        )
        return self._fit_memory(X, y, sample_weight)

    def _fit_rows(self, rows: RowSource) -> Self:
        walked_again(rows, type(self).__name__)
        found = survey(rows, self.class_weight, self._keep())
        set_columns(self, found.gathered.n_columns, rows.names)
        if found.gathered.rows is not None:
            return self._fit_memory(*found.gathered.rows)
        labels = found.labels
        self._set_classes(labels.names[labels.weight > 0])
        totals = dict(zip(labels.names.tolist(), labels.weight.tolist(), strict=True))
        targets = [
            StreamedTarget(partial(one_against_rest, label), totals[label.tolist()])
            for label in self._targets()
        ]
        weigh = partial(weigh_block, found.weights)
        return self._solve_streamed(rows, found.gathered, targets, weigh)

    def _fit_memory(self, X: Any, y: Array, sample_weight: Any) -> Self:
        X, y, weight = self._weigh(X, y, sample_weight)
        self._set_classes(np.unique(y))
        targets = [one_against_rest(label, y) for label in self._targets()]
        shared, plan, units = self._shared(X, weight)
        self._solve(shared, targets, plan, units, effective_n_jobs(self.n_jobs))
        self._include(X, weight, targets)
        if len(y) < LARGE and self._by_prediction() and self._enough(len(y)):
            with solver_threads(int(min(X.shape))):
                if self._choose(X, targets, weight, y, CLASSES):
                    self._set_mixture_attributes()
        return self

    @block_by_block
    def decision_function(self, X: Any) -> Array:
        """Log odds of the averaged probability, (n,) or (n, n_classes) one against the rest."""
        odds = self._log_odds(self._checked(X))
        return odds[:, 0] if self._single else odds

    @block_by_block
    def predict(self, X: Any) -> Array:
        """The class of highest averaged probability."""
        odds = self.decision_function(X)
        index = (odds > 0).astype(int) if self._single else np.argmax(odds, axis=1)
        return self.classes_[index]

    @block_by_block
    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Probabilities averaged over the posterior, E_q[sigma(alpha + x' beta)].

        The average of the logistic function over the Gaussian linear predictor is computed by a
        mixture of eight probits (error below 3e-9); several classes are normalised to sum to 1.
        Probabilities of confidences chosen by prediction are those of the mixture, recalibrated on
        held-out rows. ``return_std`` adds the posterior standard deviation of the (one against the
        rest) probabilities before recalibration, divided by the same sum.
        """
        X = self._checked(X)
        p = np.exp(self._log_proba(X))
        if not return_std:
            return p
        sd = self._probability_sd(X)
        if self._single:
            return p, np.column_stack([sd[:, 0], sd[:, 0]])
        total = expit(self._log_odds(X)).sum(axis=1, keepdims=True)
        return p, sd / np.maximum(total, 1e-7)

    @block_by_block
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`, accurate for small probabilities."""
        return self._log_proba(self._checked(X))

    def _log_proba(self, X: Any) -> Array:
        odds = self._log_odds(X)
        log_p = -np.logaddexp(0.0, -odds)
        if self._single:
            return np.column_stack([-np.logaddexp(0.0, odds[:, 0]), log_p[:, 0]])
        shift = log_p.max(axis=1, keepdims=True)
        return log_p - shift - np.log(np.exp(log_p - shift).sum(axis=1, keepdims=True))

    def _log_odds(self, X: Any) -> Array:
        """Of every class against the rest, recalibrated, (n, targets)."""
        return np.stack(
            [
                mixture.power * average_log_odds(means, variances, mixture.weights)
                for mixture, (means, variances) in zip(
                    self.mixtures_, self._predictors(X), strict=True
                )
            ],
            axis=1,
        )

    def _probability_sd(self, X: Any) -> Array:
        found = []
        for mixture, (means, variances) in zip(self.mixtures_, self._predictors(X), strict=True):
            p, sd = mean_probability(means, variances), probability_sd(means, variances)
            square = mixture.weights @ (p * p + sd * sd) - (mixture.weights @ p) ** 2
            found.append(np.sqrt(np.maximum(square, 0.0)))
        return np.stack(found, axis=1)

    # ---- confidences chosen by prediction ---------------------------------------------------

    def _asked(self, shared: SharedRows) -> float | None:
        """1 for many rows or rows from somewhere else: the data decide, and a path is dear."""
        many = shared.weight is None or shared.design.n_rows >= LARGE
        if self.confidence_coef == "auto" and self.choice == "prediction" and many:
            return 1.0
        return super()._asked(shared)

    _candidates = (PATH, *(Candidate(point.label, *point) for point in ROW_DIAL))
    _stratified = True
    _own_solver = "newton"
    _one_part = 2000
    _error_name = "log loss"

    def _fit_candidates(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        shared, plan, units = self._shared(X, weight)
        back = np.argsort(plan.order)
        order, scale = back, 1.0 / units.scale
        if self.fit_intercept:
            order, scale = np.append(back, len(back)), np.append(scale, 1.0)
        limits = Limits(int(self.max_iter), max(float(self.tol), 1e-5), stride=STRIDE)
        found = Fits([], [], units.mean)
        for t, y in enumerate(targets):
            parts, sizes = {}, {}
            if PATH.label in wanted[t] and known:
                parts[PATH.label] = self._sparse_mixtures[t].components
                sizes[PATH.label] = float(self.effective_parameters_[t])
            elif PATH.label in wanted[t]:
                rows = shared, y, plan.model, plan.free
                outcome = solve_rows(*rows, None, self.solver, limits)
                report = report_on(shared.design, outcome, units, back)
                parts[PATH.label] = (self._component(report),)
                sizes[PATH.label] = float(np.sum(1.0 - report.shrinkage))
            for point in ROW_DIAL:
                if point.label in wanted[t]:
                    fit = fit_rows_at(shared.problem(y), plan.model, point)
                    parts[point.label] = (Component(fit.posterior.moved(order, scale)),)
                    sizes[point.label] = fit.effective
            found.components.append(parts)
            found.effective.append(sizes)
        return found

    def _held_out(self, mixture: Mixture, rows: Array) -> tuple[Array, Array]:
        parts = [component.predict(rows) for component in mixture.components]
        means, variances = (np.stack(each) for each in zip(*parts, strict=True))
        odds = average_log_odds(means, variances, mixture.weights)
        return odds, np.zeros_like(odds)

    def _likelihood(self) -> RowLikelihood:
        return _BOUNDS[self.bound]()

    def _check_parameters(self) -> None:
        self._check_choosing()
        check_choice("bound", self.bound, tuple(_BOUNDS))
        super()._check_parameters()

    def _weigh(self, X: Any, y: Array, sample_weight: Any) -> tuple[Any, Array, Array]:
        """Rows of positive weight; labels as the user gave them."""
        check_classification_targets(y)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        return super()._weigh(X, y, weight)

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = classes
        self._single = len(classes) == 2
        if len(classes) < 2:
            given = f"the one class {classes[0]}" if len(classes) else "no row of positive weight"
            raise ValueError(
                f"y has {given}, but a classifier needs rows of at least two classes; "
                "use stratified folds if this is a cross-validation."
            )

    def _targets(self) -> Array:
        """The classes that are fitted against the rest."""
        return self.classes_[1:] if self._single else self.classes_

    def _target_names(self) -> list[Any]:
        return list(self._targets())

    def _by_target(self, values: Array) -> Array:
        """With a leading axis also for two classes, as scikit-learn's LogisticRegression."""
        return values


def average_log_odds(means: Array, variances: Array, weights: Array) -> Array:
    """Log odds of the probability averaged over predictors N(mean, variance), (components, n)."""
    if len(weights) == 1:
        mean, variance = means[0], variances[0]
        return log_mean_probability(mean, variance) - log_mean_probability(-mean, variance)
    up = logsumexp(log_mean_probability(means, variances), b=weights[:, None], axis=0)
    return up - logsumexp(log_mean_probability(-means, variances), b=weights[:, None], axis=0)
