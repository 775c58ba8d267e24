"""Sparse Bayesian negative binomial regression as a scikit-learn estimator."""

import numpy as np

from soubayes._types import FeatureBlocks, FeatureGroups, Folds
from soubayes.sparse.choice.mixture import Mixture
from soubayes.sparse.estimators.base import check_confidences, check_positive
from soubayes.sparse.estimators.counts import CountRegression
from soubayes.sparse.glm.negative_binomial import NegativeBinomial
from soubayes.sparse.scales.base import ScalePrior

Array = np.ndarray


class SoUNegativeBinomialRegression(CountRegression):
    r"""Sparse Bayesian regression of counts that vary more than Poisson counts do.

    Columns that do not matter are dropped, and predictions average over the posterior. By default
    the confidences are chosen by prediction. Columns are standardised inside; coefficients are
    reported in the units of X. Effects are on the logarithm of the mean.

    Parameters
    ----------
    dispersion : "auto" or float, default="auto"
        The a of Var[y] = mean + a mean². ``"auto"`` estimates it: it is a source of uncertainty of
        its own, with the prior log a ~ N(-1, 2²).
    confidence_dispersion : float, default=1.0
        Confidence in the prior of the dispersion.
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
    dispersion_ : float
        The dispersion: the median of its posterior, averaged over the mixture.
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
    sparse_ : SoUNegativeBinomialRegression
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
    SoUPoissonRegression : The limit of no dispersion.
    SoUGeneralizedRegression : The same for a likelihood of your own.

    Notes
    -----
    The model of section 4.3 of [1]_ with another loss,

    .. math::

        y \sim \mathrm{NB}(\mu, a), \quad \log \mu = \alpha + x'\beta + \mathrm{offset}, \quad
        E[y] = \mu, \quad \mathrm{Var}[y] = \mu + a \mu^2, \qquad
        J(q) = E_q[-\log p(y \mid \mu, a)] + \sum_k \gamma_k \mathrm{KL}_k .

    The expected loss is computed by quadrature over the predictor and the dispersion. Predictions
    average over both.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 20))
    >>> mean = np.exp(1.0 + 0.7 * X[:, 0] - 0.7 * X[:, 1])
    >>> y = rng.poisson(mean * rng.gamma(2.0, 0.5, 300))  # dispersion 0.5
    >>> model = SoUNegativeBinomialRegression().fit(X, y)
    >>> np.flatnonzero(model.selected_), round(model.dispersion_, 1)
    (array([0, 1]), 0.5)
    """

    def __init__(
        self,
        *,
        dispersion: float | str = "auto",
        confidence_dispersion: float = 1.0,
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
        self.dispersion = dispersion
        self.confidence_dispersion = confidence_dispersion

    def _likelihood(self) -> NegativeBinomial:
        known = None if self.dispersion == "auto" else float(self.dispersion)
        return NegativeBinomial.of(known, float(self.confidence_dispersion))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_confidences(self, "confidence_dispersion")
        if self.dispersion != "auto":
            check_positive(self, "dispersion")

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        each = [(q.weight, self._of(q.likelihood).dispersion.mean) for q in mixtures[0].components]
        self.dispersion_ = float(sum(weight * np.exp(median) for weight, median in each))
