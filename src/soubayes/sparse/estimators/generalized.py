"""Sparse regression with a likelihood of your own."""

import numpy as np

from soubayes._types import FeatureBlocks, FeatureGroups, Folds
from soubayes._warnings import warn
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.glm.checking import check_derivatives
from soubayes.sparse.glm.likelihood import (
    CoupledLikelihood,
    Likelihood,
    RowLikelihood,
    weighted_terms,
)
from soubayes.sparse.scales.base import ScalePrior

Array = np.ndarray


class SoUGeneralizedRegression(ResponseRegression):
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
    feature_groups : sequence of labels or mapping, optional
        Columns that are kept or dropped together, such as the dummies of a category: one label for
        each column, or a mapping such as ``{"shelf": ["good", "bad"]}``. They share a local scale.
    fit_intercept : bool, default=True
        Whether the model has an intercept. For a likelihood without one, such as Cox's, the columns
        are only centred.
    inclusion : bool, default=False
        Also compute the posterior over supports, as in :class:`SoULogisticRegression`.
    max_iter : int, default=500
        Largest number of steps for each confidence.
    tol : float, default=1e-7
        The solver stops when J falls by less than this in relative terms.
    n_jobs : int or None, default=None
        Number of threads over the folds.
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
        feature_groups: FeatureGroups | None = None,
        fit_intercept: bool = True,
        inclusion: bool = False,
        max_iter: int = 500,
        tol: float = 1e-7,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            confidence_coef=confidence_coef,
            confidence_local=confidence_local,
            confidence_global=confidence_global,
            confidence_intercept=confidence_intercept,
            choice=choice,
            cv=cv,
            random_state=random_state,
            prior=prior,
            rate_local=rate_local,
            rate_global=rate_global,
            intercept_variance=intercept_variance,
            feature_blocks=feature_blocks,
            feature_groups=feature_groups,
            fit_intercept=fit_intercept,
            inclusion=inclusion,
            max_iter=max_iter,
            tol=tol,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.likelihood = likelihood

    def _check_likelihood(self, y: Array, weight: Array) -> None:
        """What a likelihood gives must be finite at predictors of 0, with the right slopes."""
        terms = weighted_terms(self._likelihood(), np.zeros_like(y), np.zeros_like(y), y, weight)
        for name, part in terms._asdict().items():
            if part.shape != y.shape or not np.isfinite(part).all():
                raise ValueError(
                    f"{type(self.likelihood).__name__} gives a {name} that is not a finite number "
                    "for every row where all predictors are 0; check its formulas and y."
                )
        check_derivatives(self._likelihood(), y, weight)
        if (terms.curvature < 0.0).any():
            warn(
                f"the loss of {type(self.likelihood).__name__} is not convex in the predictor, so "
                "that J may have several minima: steps are damped, and the start decides which "
                "minimum is found.",
            )

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

    def _chooses(self) -> bool:
        """A loss that is not a sum over rows has no score of a held-out row."""
        return isinstance(self.likelihood, RowLikelihood) and super()._chooses()

    def _read_block(self, values: Array) -> Array:
        """The targets of a block; what its rows say about the likelihood is checked on the way."""
        numbers = self._read(values)
        check_derivatives(self._likelihood(), numbers, np.ones(len(numbers)))
        return numbers
