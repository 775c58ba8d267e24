"""Sparse Bayesian Poisson regression as a scikit-learn estimator."""

import numpy as np

from soubayes.sparse.estimators.counts import CountRegression
from soubayes.sparse.glm.fitting import CountCandidates
from soubayes.sparse.glm.poisson import Poisson

Array = np.ndarray


class SoUPoissonRegression(CountRegression):
    r"""Sparse Bayesian regression of counts.

    Columns that do not matter are dropped, and predictions average over the posterior. By default
    the confidences are chosen by prediction. Columns are standardised inside; coefficients are
    reported in the units of X. Effects are on the logarithm of the mean.

    Parameters
    ----------
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
        deviances of held-out rows and predicts from their mixture. ``"path"`` follows
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
    sparse_ : SoUPoissonRegression
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
    SoUNegativeBinomialRegression : Counts that vary more than Poisson counts do.
    SoUGeneralizedRegression : The same for a likelihood of your own.

    Notes
    -----
    The model of section 4.3 of [1]_ with another loss,

    .. math::

        y \sim \mathrm{Poisson}(e^{\eta}), \quad \eta = \alpha + x'\beta + \mathrm{offset}, \quad
        \beta_j \sim N(0, \tau_j^2 \nu^2), \qquad
        J(q) = E_q[-\log p(y \mid \eta)] + \sum_k \gamma_k \mathrm{KL}_k .

    For :math:`\eta \sim N(m, v)` the expected loss is known: :math:`E[e^\eta] = e^{m + v/2}`. An
    exposure e, such as the time for which a row was observed, is the offset log e.

    The choice by prediction compares deviances of held-out rows, divided by their mean where counts
    vary more than Poisson counts do. Predictive standard deviations and quantiles are widened by
    the dispersion of the held-out rows; ``log_density`` is that of Poisson counts.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 20))
    >>> exposure = rng.uniform(1.0, 3.0, 300)
    >>> y = rng.poisson(exposure * np.exp(0.5 + 0.5 * X[:, 0] - 0.5 * X[:, 1]))
    >>> model = SoUPoissonRegression().fit(X, y, exposure=exposure)
    >>> np.flatnonzero(model.selected_), model.sparse_.coef_[:2].round(1)
    (array([0, 1]), array([ 0.5, -0.5]))
    >>> model.predict(X[:2], exposure=2.0, quantiles=[0.05, 0.95])
    array([[1., 7.],
           [0., 4.]])
    """

    _candidates = CountCandidates

    def _likelihood(self) -> Poisson:
        return Poisson()
