"""Sparse Bayesian gamma regression as a scikit-learn estimator."""

import numpy as np

from soubayes._types import FeatureBlocks, FeatureGroups, Folds
from soubayes.sparse.choice.mixture import Mixture
from soubayes.sparse.estimators.base import check_confidences, check_positive
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.glm.gamma import Gamma
from soubayes.sparse.scales.base import ScalePrior

Array = np.ndarray


class SoUGammaRegression(ResponseRegression):
    r"""Sparse Bayesian regression of positive numbers: waiting times, costs, sizes.

    Columns that do not matter are dropped, and predictions average over the posterior. By default
    the confidences are chosen by prediction. Columns are standardised inside; coefficients are
    reported in the units of X. Effects are on the logarithm of the mean.

    Parameters
    ----------
    shape : "auto" or float, default="auto"
        Shape k of the gamma distribution; the coefficient of variation of y is 1/sqrt(k).
        ``"auto"`` estimates it: it is a source of uncertainty of its own, with the prior
        log k ~ N(0, 2²). 1 is the exponential distribution.
    confidence_shape : float, default=1.0
        Confidence in the prior of the shape.
    confidence_coef : "auto" or float, default="auto"
        Confidence in the prior of the coefficients (paper: :math:`\gamma_\beta`), the threshold of
        the selection. ``"auto"`` leaves it to ``choice``.
    confidence_local : "auto" or float, default="auto"
        Confidence in the prior of the local scales (:math:`\gamma_\tau`). A small value makes a
        coefficient either free or zero. ``"auto"`` leaves it to ``choice``.
    confidence_global : float, default=1.0
        Confidence in the prior of the global scale (:math:`\gamma_\nu`).
    confidence_intercept : float, default=1.0
        Confidence in the prior of the intercept (:math:`\gamma_\alpha`).
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen. ``"prediction"`` weighs fits between dense and sparse by their
        log densities of held-out rows and predicts from their mixture. ``"path"`` follows
        ``confidence_coef`` from 1 upwards and chooses a point by an information criterion.
    cv : "auto", int, splitter, list of (train, test) or None, default="auto"
        Folds of ``choice="prediction"``. ``"auto"`` is 5 folds or more. None means the path alone.
    random_state : int or None, default=0
        Seed of the shuffle of the folds.
    prior : {"exponential", "horseshoe"} or ScalePrior, default="exponential"
        Prior of the squared scales.
    rate_local : float, default=10.0
        Rate of the exponential prior of the local scales.
    rate_global : float, default=10.0
        Rate of the exponential prior of the global scale.
    intercept_variance : float, default=10.0
        Variance of the normal prior of the intercept at the mean of X. The prior lies about the
        logarithm of the mean of y.
    feature_blocks : mapping of str to mapping, optional
        Groups of columns with a prior of their own, as in :class:`SoULogisticRegression`.
    feature_groups : sequence of labels or mapping, optional
        Columns that are kept or dropped together, such as the dummies of a category: one label for
        each column, or a mapping such as ``{"shelf": ["good", "bad"]}``. They share a local scale.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    inclusion : bool, default=False
        Also compute the posterior over supports, ``supports_``.
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
    shape_ : float
        The shape: the median of its posterior, averaged over the mixture.
    coef_ : ndarray of shape (p,)
        Posterior means of the coefficients, exactly 0 only where no candidate keeps a column.
    coef_sd_ : ndarray of shape (p,)
        Posterior standard deviations.
    intercept_ : float
        Posterior mean of the intercept.
    intercept_sd_ : float
        Posterior standard deviation of the intercept.
    selected_ : ndarray of bool of shape (p,)
        Which columns the sparse point keeps.
    sparse_ : SoUGammaRegression
        The sparse point, which keeps only the selected columns and has ``kl_``, ``objective_``,
        ``path_``, ``path_coef_``, ``shrinkage_``, the scales and ``likelihood_``; this estimator
        itself if nothing was chosen by prediction.
    supports_ : Supports
        The posterior over supports (``inclusion=True``).
    candidates_ : pandas.DataFrame
        Candidates of a choice by prediction, with their held-out scores and weights.
    out_of_fold_ : pandas.DataFrame
        Held-out predictions of the training rows: ``y``, ``mean``, ``sd`` and ``fold``.
    sparsity_ : object
        What it costs to keep only the selected columns; its text is a sentence.
    mixtures_ : list
        What predictions are made from.
    covariance_ : ndarray of shape (p, p)
        Posterior covariance of the coefficients, computed when it is asked for.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the solver stopped by ``tol``.

    See Also
    --------
    SoULinearRegression : Numbers of either sign with normal noise.
    SoUGeneralizedRegression : The same for a likelihood of your own.

    Notes
    -----
    The model of section 4.3 of [1]_ with another loss,

    .. math::

        y \sim \mathrm{Gamma}(k, k e^{-\eta}), \quad
        \eta = \alpha + x'\beta + \mathrm{offset}, \quad
        E[y] = e^{\eta}, \quad \mathrm{Var}[y] = e^{2 \eta} / k, \qquad
        J(q) = E_q[-\log p(y \mid \eta, k)] + \sum_j \gamma_j \mathrm{KL}_j .

    For :math:`\eta \sim N(m, v)` the expected loss is known: :math:`E[e^{-\eta}] = e^{-m + v/2}`.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 20))
    >>> y = rng.gamma(4.0, np.exp(1.0 + X[:, 0] - X[:, 1]) / 4.0)
    >>> model = SoUGammaRegression().fit(X, y)
    >>> np.flatnonzero(model.selected_), round(model.shape_)
    (array([0, 1]), 4)
    """

    def __init__(
        self,
        *,
        shape: float | str = "auto",
        confidence_shape: float = 1.0,
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
        self.shape = shape
        self.confidence_shape = confidence_shape

    _positive = True

    def _likelihood(self) -> Gamma:
        known = None if self.shape == "auto" else float(self.shape)
        return Gamma.of(known, float(self.confidence_shape))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_confidences(self, "confidence_shape")
        if self.shape != "auto":
            check_positive(self, "shape")

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        each = [(q.weight, self._of(q.likelihood).shape.mean) for q in mixtures[0].components]
        self.shape_ = float(sum(weight * np.exp(median) for weight, median in each))
