"""Sparse Bayesian Poisson regression as a scikit-learn estimator."""

import numpy as np

from soubayes.sparse.estimators.parameters import estimator
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.likelihoods.poisson import Poisson
from soubayes.sparse.rows.family import CountFamily

Array = np.ndarray


@estimator
class SoUPoissonRegression(ResponseRegression):
    r"""Sparse Bayesian regression of counts.

    Columns that do not matter are dropped, and predictions average over the posterior. By default
    the confidences are chosen by prediction. Columns are standardised inside; coefficients are
    reported in the units of X. Effects are on the logarithm of the mean.

    Parameters
    ----------
    priors : mapping of str to number, optional
        As in :class:`SoULogisticRegression`; the prior of the intercept lies about the logarithm of
        the mean of y.

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
    vary more than Poisson counts do. Predictive standard deviations, quantiles and densities are
    widened until they agree with the held-out rows (``inflation_``).

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

    _kind = CountFamily
    _positive = True

    _instead = "SoUNegativeBinomialRegression"

    def _likelihood(self) -> Poisson:
        return Poisson()
