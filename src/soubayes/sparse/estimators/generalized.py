"""Sparse regression with a likelihood of your own."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from soubayes._types import FeatureBlocks, Label, Matrix, Rows, Targets
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
from soubayes.sparse.likelihoods.checking import check_derivatives
from soubayes.sparse.scales import ScalePrior
from soubayes.sparse.solvers.rowwise_path import RowOutcome

Array = np.ndarray


class SoUGeneralizedRegression(FeatureSelection, RegressorMixin, RowwiseEstimator):
    r"""Sparse Bayesian regression with a likelihood of your own.

    Parameters
    ----------
    likelihood : RowLikelihood or CoupledLikelihood
        The loss and its derivatives in the linear predictor.
    confidence_coef : float or "auto", default=1.0
        Confidence in the prior of the coefficients (paper: :math:`\gamma_\beta`), the threshold of
        the selection. ``"auto"`` follows a path and chooses a point of it, as
        :class:`SoULogisticRegression` does.
    confidence_local : float, default=1e-6
        Confidence in the prior of the local scales (:math:`\gamma_\tau`). A small value makes
        coefficients that share a scale either free or zero.
    confidence_global : float, default=1.0
        Confidence in the prior of the global scale (:math:`\gamma_\nu`).
    confidence_intercept : float, default=1.0
        Confidence in the prior of the intercept (:math:`\gamma_\alpha`).
    prior : {"exponential", "horseshoe"} or ScalePrior, default="exponential"
        Prior of the squared scales.
    rate_local : float, default=10.0
        Rate of the exponential prior of the local scales.
    rate_global : float, default=10.0
        Rate of the exponential prior of the global scale.
    intercept_variance : float, default=10.0
        Variance of the normal prior of the intercept at the mean of X.
    feature_blocks : mapping of str to mapping, optional
        Groups of columns with a prior of their own, as in :class:`SoULogisticRegression`.
    feature_groups : sequence of labels, optional
        One label for each column. Columns with equal labels share a local scale and are kept or
        dropped together.
    fit_intercept : bool, default=True
        Whether the model has an intercept. For a likelihood without one, such as Cox's, the columns
        are only centred.
    inclusion : bool, default=False
        Also compute the posterior over supports, as in :class:`SoULogisticRegression`.
    max_iter : int, default=500
        Largest number of steps for each confidence.
    tol : float, default=1e-7
        The solver stops when J falls by less than this in relative terms.
    verbose : int, default=0
        1 prints a line for each point of the path.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Posterior means of the coefficients, exactly 0 for a dropped column.
    coef_sd_ : ndarray of shape (p,)
        Posterior standard deviations.
    selected_ : ndarray of bool of shape (p,)
        Which columns are kept.
    shrinkage_ : ndarray of shape (p,)
        Shrinkage factors :math:`\kappa_j`; 1 for a dropped column.
    local_scale_ : ndarray of shape (p,)
        Fitted local scales.
    intercept_ : float
        Posterior mean of the intercept.
    intercept_sd_ : float
        Posterior standard deviation of the intercept.
    global_scale_ : float
        Fitted global scale.
    effective_parameters_ : float
        The sum of :math:`1 - \kappa_j`.
    confidence_coef_ : float
        Confidence of the point that is reported.
    covariance_ : ndarray of shape (p, p)
        Posterior covariance of the coefficients, computed when it is asked for.
    kl_ : dict of str to float
        What it cost each block to leave its prior, in nats, nuisance parameters included.
    objective_ : ndarray
        J after every step at the reported confidence.
    path_ : pandas.DataFrame
        The path, as in :class:`SoULogisticRegression`.
    path_coef_ : pandas.DataFrame
        The coefficients along the path; 0 where one is dropped.
    path_coef_sd_ : pandas.DataFrame
        Their posterior standard deviations; NaN where one is dropped.
    likelihood_ : RowLikelihood or CoupledLikelihood
        The likelihood with its nuisance parameters as fitted.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the solver stopped by ``tol``.

    See Also
    --------
    RowLikelihood : Base class of losses that are sums over rows.
    CoupledLikelihood : Base class of losses that are not.
    ScalePrior : Base class of scale priors.

    Notes
    -----
    The model of section 4.3 of [1]_ with another loss,

    .. math::

        y \sim p(y \mid \eta), \quad \eta = \alpha + x'\beta, \quad
        \beta_j \sim N(0, \tau_{g(j)}^2 \nu^2), \qquad
        J(q) = E_q[-\log p(y \mid \eta)] + \sum_k \gamma_k \mathrm{KL}_k .

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

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
        feature_blocks: FeatureBlocks | None = None,
        feature_groups: Sequence[Label] | None = None,
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

    def fit(
        self, X: Rows, y: Targets | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), Dask collection, path or iterable
            The rows. Data that do not fit in memory come as in :meth:`SoULogisticRegression.fit`.
        y : array-like of shape (n,), or str, optional
            The targets, or the name of the target column of a parquet file.
        sample_weight : array-like of shape (n,), optional
            A weight of 2 counts a row twice.

        Returns
        -------
        self : SoUGeneralizedRegression
            The fitted estimator.
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
            X, values, sample_weight = found.rows
        else:
            X, values = validate_data(
                self,
                X,
                y,
                accept_sparse=["csr"],
                dtype=[np.float64, np.float32],
                ensure_min_samples=2,
            )
        X, values, weight = self._weigh(X, values, sample_weight)
        checked = self._likelihood().check(values)
        self._check_terms(checked, weight)
        return self._solve_memory(X, weight, [checked])

    def _check_terms(self, y: Array, weight: Array) -> None:
        """What a likelihood gives must be finite at predictors of 0, with the right slopes."""
        terms = weighted_terms(self._likelihood(), np.zeros_like(y), np.zeros_like(y), y, weight)
        for name, part in terms._asdict().items():
            if part.shape != y.shape or not np.isfinite(part).all():
                raise ValueError(
                    f"{type(self.likelihood).__name__} gives a {name} that is not a finite number "
                    "for every row where all predictors are 0; check its formulas and y."
                )
        check_derivatives(self._likelihood(), y, weight)

    @block_by_block
    def predict(self, X: Matrix) -> Array:
        """Predict the mean of new observations, averaged over the posterior.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The rows.

        Returns
        -------
        mean : ndarray of shape (n,)
            E[y]. For a likelihood without an intercept it is relative to an average row.
        """
        mean, variance = (part[0] for part in self._predictors(self._checked(X))[0])
        return self.likelihood_.predict(mean, variance)

    @block_by_block
    def log_density(self, X: Matrix, y: ArrayLike) -> Array:
        """Log predictive density of observations.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            The rows.
        y : array-like of shape (n,)
            Their targets.

        Returns
        -------
        log_density : ndarray of shape (n,)
            The logarithm of p(y | x), averaged over the posterior.
        """
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
        """The targets of a block; what its rows say about the likelihood is checked on the way."""
        numbers = self._likelihood().check(y)
        check_derivatives(self._likelihood(), numbers, np.ones(len(numbers)))
        return numbers[:, None]
