"""Sparse regression with a likelihood of your own."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from soubayes._types import FeatureBlocks, Folds, Label, Matrix, Rows, Targets
from soubayes.data.streams import as_rows, block_by_block, row_weights, walked_again
from soubayes.sparse.choice.folds import LARGE, check_groups, refuse_groups
from soubayes.sparse.designs.moments import GatherPlan, gather
from soubayes.sparse.estimators.base import FeatureSelection, intercept_prior, set_columns
from soubayes.sparse.estimators.rowwise import RowwiseEstimator, row_settings
from soubayes.sparse.glm.checking import check_derivatives
from soubayes.sparse.glm.fitting import RowCandidates, RowFamily, constant_weights
from soubayes.sparse.glm.likelihood import (
    CoupledLikelihood,
    Likelihood,
    RowLikelihood,
    weighted_terms,
)
from soubayes.sparse.glm.rows import StreamedTarget
from soubayes.sparse.posterior import Component, SparsePoint
from soubayes.sparse.scales.base import ScalePrior

Array = np.ndarray


class SoUGeneralizedRegression(FeatureSelection, RegressorMixin, RowwiseEstimator):
    r"""Sparse Bayesian regression with a likelihood of your own.

    Parameters
    ----------
    likelihood : RowLikelihood or CoupledLikelihood
        The loss and its derivatives in the linear predictor.
    confidence_coef : float or "auto", default="auto"
        Confidence in the prior of the coefficients (paper: :math:`\gamma_\beta`), the threshold of
        the selection. ``"auto"`` chooses it, as :class:`SoULogisticRegression` does.
    confidence_local : float or "auto", default="auto"
        Confidence in the prior of the local scales (:math:`\gamma_\tau`). A small value makes
        coefficients that share a scale either free or zero.
    confidence_global : float, default=1.0
        Confidence in the prior of the global scale (:math:`\gamma_\nu`).
    confidence_intercept : float, default=1.0
        Confidence in the prior of the intercept (:math:`\gamma_\alpha`).
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen, as in :class:`SoULogisticRegression`. A
        :class:`CoupledLikelihood` has no scores of single rows, and follows the path.
    cv : "auto", int, splitter, list of (train, test) or None, default="auto"
        Folds of ``choice="prediction"``. ``"auto"`` is 5 folds. None means the path alone.
    random_state : int or None, default=0
        Seed of the shuffle of the folds.
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
        Posterior means of the coefficients, exactly 0 only where no candidate keeps a column.
    coef_sd_ : ndarray of shape (p,)
        Posterior standard deviations.
    selected_ : ndarray of bool of shape (p,)
        Which columns the sparse point keeps.
    sparse_ : SoUGeneralizedRegression
        The sparse point, which keeps only the selected columns; this estimator itself if nothing
        was chosen by prediction.
    supports_ : Supports
        The posterior over supports (``inclusion=True``).
    candidates_ : pandas.DataFrame
        Candidates of a choice by prediction, with their held-out scores and weights.
    out_of_fold_ : pandas.DataFrame
        Held-out predictions of the training rows: ``y``, ``mean``, ``sd`` (unknown) and ``fold``.
    sparsity_ : object
        What it costs to keep only the selected columns; its text is a sentence.
    mixtures_ : list
        What predictions are made from.
    shrinkage_ : ndarray of shape (p,)
        Shrinkage factors :math:`\kappa_j`; 1 for a dropped column. This, the scales, ``kl_``,
        ``objective_``, ``path_`` and ``likelihood_`` are those of a sparse point: a mixture of
        candidates has them in ``sparse_``.
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
    solver_ : str
        The solver that ran.
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
    >>> from soubayes import RowLikelihood
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
    >>> model = SoUGeneralizedRegression(Exponential()).fit(X, y)
    >>> np.flatnonzero(model.selected_), model.sparse_.coef_[:1].round(1)
    (array([0]), array([1.]))
    """

    def __init__(
        self,
        likelihood: RowLikelihood | CoupledLikelihood,
        *,
        confidence_coef: float | str = "auto",
        confidence_local: float | str = "auto",
        confidence_global: float = 1.0,
        confidence_intercept: float = 1.0,
        choice: str = "prediction",
        cv: Folds | None = "auto",
        random_state: int | None = 0,
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
        self.choice = choice
        self.cv = cv
        self.random_state = random_state
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
        self,
        X: Rows,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
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
        groups : array-like of shape (n,), optional
            Which rows belong together, such as those of one patient. Folds hold out whole groups.

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
            refuse_groups(groups)
            walked_again(rows, type(self).__name__)
            keep = LARGE if self._chooses() else 0
            found = gather(rows, GatherPlan(self._numbers, keep=keep))
            set_columns(self, found.n_columns, rows.names)
            if found.rows is None:
                assert found.statistics is not None
                whole = found.statistics.total()
                total = float(whole.n * whole.y_mean[0])
                target = StreamedTarget(self._likelihood().check, total)
                return self._fit_streamed(self._family(), rows, found, [target], constant_weights)
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
        groups = check_groups(groups, X)
        if groups is not None and sample_weight is not None:
            groups = groups[row_weights(sample_weight, X.shape[0]) > 0]
        X, values, weight = self._weigh(X, values, sample_weight)
        checked = self._likelihood().check(values)
        self._check_terms(checked, weight)
        candidates = RowCandidates(self._family())
        return self._fit_candidates(candidates, X, checked, [checked], weight, groups)

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
        each = zip(
            self.mixtures_[0].components, *self._predictors(self._checked(X))[0], strict=True
        )
        return np.asarray(sum(q.weight * self._of(q).predict(m, v) for q, m, v in each))

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
        likelihood = self._likelihood()
        if not isinstance(likelihood, RowLikelihood):
            raise TypeError(
                f"{type(likelihood).__name__} is not a sum over rows, so a single row has no "
                "density."
            )
        values, mixture = likelihood.check(np.asarray(y)), self.mixtures_[0]
        each = zip(mixture.components, *self._predictors(self._checked(X))[0], strict=True)
        density = np.stack([self._of(q).log_density(m, v, values) for q, m, v in each])
        return logsumexp(density, b=mixture.weights[:, None], axis=0)

    def _of(self, component: Component) -> Any:
        """The likelihood of a component, with its nuisance parameters."""
        return component.likelihood or self._likelihood()

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

    def _family(self) -> RowFamily:
        likelihood = self._likelihood()
        own = intercept_prior(self) if likelihood.intercept else None
        return RowFamily(likelihood, row_settings(self, own))

    def _chooses(self) -> bool:
        """A loss that is not a sum over rows has no score of a held-out row."""
        return isinstance(self.likelihood, RowLikelihood) and super()._chooses()

    def _report_points(self, points: list[SparsePoint]) -> None:
        super()._report_points(points)
        self.likelihood_ = points[0].component.likelihood or self._likelihood()

    def _target_names(self) -> list[str]:
        return ["y"]

    def _numbers(self, y: Array) -> Array:
        """The targets of a block; what its rows say about the likelihood is checked on the way."""
        numbers = self._likelihood().check(y)
        check_derivatives(self._likelihood(), numbers, np.ones(len(numbers)))
        return numbers[:, None]
