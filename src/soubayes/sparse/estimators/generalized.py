"""Sparse regression with a likelihood of your own."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from soubayes.data.streams import as_rows, block_by_block, walked_again
from soubayes.sparse.designs.base import RowDesign
from soubayes.sparse.designs.gather import GatherPlan, gather
from soubayes.sparse.designs.standardise import ColumnUnits
from soubayes.sparse.designs.streamed import StreamedTarget
from soubayes.sparse.estimators.base import FeatureSelection, set_columns
from soubayes.sparse.estimators.rowwise import RowwiseEstimator, constant_weights
from soubayes.sparse.likelihoods.base import (
    CoupledLikelihood,
    Likelihood,
    RowLikelihood,
    weighted_terms,
)
from soubayes.sparse.scales import ScalePrior
from soubayes.sparse.solvers.rowwise_path import RowOutcome

Array = np.ndarray


class SoUGeneralizedRegression(FeatureSelection, RegressorMixin, RowwiseEstimator):
    """Sparse regression with a likelihood of your own.

    The model of section 4.3 with another loss, and a confidence gamma for every source::

        y ~ p(y | eta),   eta = alpha + x' beta,   beta_j ~ N(0, tau_g(j)^2 nu^2)
        J(q) = E_q[-log p(y | eta)] + sum_k gamma_k KL_k

    A small ``confidence_local`` makes every tau follow the data, so that the coefficients that
    share it are free or zero, and ``confidence_coef`` is the threshold, as in
    `SoULogisticRegression`.

    Parameters
    ----------
    likelihood : RowLikelihood or CoupledLikelihood
        The loss and its derivatives in the linear predictors; see the page "Adding a likelihood".
    confidence_coef : float or "auto"
        gamma_b; "auto" chooses a point of the path as in `SoULogisticRegression`.
    confidence_local, confidence_global, confidence_intercept : float
        gamma_tau, gamma_nu, gamma_alpha.
    prior : "exponential", "horseshoe" or ScalePrior
        Of tau^2 and nu^2.
    rate_local, rate_global : float
        lambda_tau, lambda_nu of the exponential priors.
    intercept_variance : float
        Of the normal prior of the intercept at the mean of X.
    feature_blocks : dict or None
        Named groups of columns with their own prior, as in `SoULogisticRegression`.
    feature_groups : sequence of labels or None
        One label a column; columns with equal labels share a tau, so that they stay or go together.
    fit_intercept : bool
        A likelihood without an intercept, such as Cox's, only has its columns centred.
    max_iter, tol, verbose
        As in `SoULogisticRegression`.

    Attributes
    ----------
    coef_, coef_sd_, selected_, shrinkage_, local_scale_ : (p,)
    intercept_, intercept_sd_, global_scale_, effective_parameters_, confidence_coef_ : float
    covariance_, kl_, objective_, path_, n_iter_, converged_
        As in `SoULogisticRegression` for two classes. Nuisance parameters have their own ``kl_``.
    likelihood_ : the likelihood with its nuisance parameters as fitted

    Examples
    --------
    >>> from soubayes.sparse.likelihoods import RowLikelihood
    >>> class Exponential(RowLikelihood):
    ...     "Waiting times with mean exp(eta): the loss is eta + y exp(-eta)."
    ...     def derivatives(self, eta, y):
    ...         ratio = y * np.exp(-eta)
    ...         return eta + ratio, 1.0 - ratio, ratio
    ...     def predict(self, mean, variance):
    ...         return np.exp(mean + variance / 2.0)
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 10))
    >>> y = rng.exponential(np.exp(X[:, 0]))
    >>> model = SoUGeneralizedRegression(Exponential(), confidence_coef="auto").fit(X, y)
    >>> np.flatnonzero(model.selected_), model.coef_[:1].round(1)
    (array([0]), array([1.]))
    """

    def __init__(
        self,
        likelihood: RowLikelihood | CoupledLikelihood,
        *,
        confidence_coef: float | str = 1.0,
        confidence_local: float = 1e-6,
        confidence_global: float = 1.0,
        confidence_intercept: float = 1.0,
        prior: str | ScalePrior = "exponential",
        rate_local: float = 10.0,
        rate_global: float = 10.0,
        intercept_variance: float = 10.0,
        feature_blocks: Mapping[str, Mapping[str, Any]] | None = None,
        feature_groups: Sequence[Any] | None = None,
        fit_intercept: bool = True,
        inclusion: bool = False,
        max_iter: int = 500,
        tol: float = 1e-7,
        verbose: int = 0,
    ) -> None:
        self.likelihood = likelihood
        self.confidence_coef = confidence_coef
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_intercept = confidence_intercept
        self.prior = prior
        self.rate_local = rate_local
        self.rate_global = rate_global
        self.intercept_variance = intercept_variance
        self.feature_blocks = feature_blocks
        self.feature_groups = feature_groups
        self.fit_intercept = fit_intercept
        self.inclusion = inclusion
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to X (n, p), dense or scipy-sparse, and y (n,).

        ``sample_weight`` counts a row that many times. Data that do not fit in memory come as for
        `SoULogisticRegression.fit`.
        """
        self._check_parameters()
        self._single = True
        rows = as_rows(X, y, sample_weight)
        if rows is not None:
            if isinstance(self.likelihood, CoupledLikelihood):
                raise ValueError(
                    f"{type(self.likelihood).__name__} reads all rows at once, so that it cannot "
                    "be fitted to data that come in blocks; pass X and y as arrays in memory."
                )
            walked_again(rows, type(self).__name__)
            found = gather(rows, GatherPlan(self._numbers))
            set_columns(self, found.n_columns, rows.names)
            if found.rows is None:
                assert found.statistics is not None
                whole = found.statistics.total()
                total = float(whole.n * whole.y_mean[0])
                target = StreamedTarget(self._likelihood().check, total)
                return self._solve_streamed(rows, found, [target], constant_weights)
            X, y, sample_weight = found.rows
        else:
            X, y = validate_data(
                self,
                X,
                y,
                accept_sparse=["csr"],
                dtype=[np.float64, np.float32],
                ensure_min_samples=2,
            )
        X, y, weight = self._weigh(X, y, sample_weight)
        y = self._likelihood().check(y)
        self._check_terms(y, weight)
        return self._solve_memory(X, weight, [y])

    def _check_terms(self, y: Array, weight: Array) -> None:
        """What a likelihood gives must be finite somewhere, at predictors of 0."""
        terms = weighted_terms(self._likelihood(), np.zeros_like(y), np.zeros_like(y), y, weight)
        for name, part in terms._asdict().items():
            if part.shape != y.shape or not np.isfinite(part).all():
                raise ValueError(
                    f"{type(self.likelihood).__name__} gives a {name} that is not a finite number "
                    "for every row where all predictors are 0; check its formulas and y."
                )

    @block_by_block
    def predict(self, X: Any) -> Array:
        """E[y] averaged over the posterior; of a likelihood without an intercept, relative to an
        average row."""
        mean, variance = (part[0] for part in self._predictors(self._checked(X))[0])
        return self.likelihood_.predict(mean, variance)

    @block_by_block
    def log_density(self, X: Any, y: Any) -> Array:
        """log p(y | x) of every row, averaged over the posterior."""
        mean, variance = (part[0] for part in self._predictors(self._checked(X))[0])
        likelihood = self.likelihood_
        if not isinstance(likelihood, RowLikelihood):
            raise TypeError(
                f"{type(likelihood).__name__} is no sum over rows, so that a single row has no "
                "density."
            )
        return likelihood.log_density(mean, variance, likelihood.check(np.asarray(y)))

    def _likelihood(self) -> Likelihood:
        if not isinstance(self.likelihood, RowLikelihood | CoupledLikelihood):
            if isinstance(self.likelihood, type):
                name = self.likelihood.__name__
                raise TypeError(f"likelihood is the class {name}: pass an instance, {name}().")
            raise TypeError(
                f"likelihood is a {type(self.likelihood).__name__}, but it must be an instance of "
                "a subclass of RowLikelihood or CoupledLikelihood."
            )
        return self.likelihood

    def _set_attributes(
        self, design: RowDesign, outcomes: list[RowOutcome], units: ColumnUnits, back: Array
    ) -> None:
        super()._set_attributes(design, outcomes, units, back)
        self.likelihood_ = outcomes[0].fit.likelihood or self._likelihood()

    def _target_names(self) -> list[str]:
        return ["y"]

    def _numbers(self, y: Array) -> Array:
        return self._likelihood().check(y)[:, None]
