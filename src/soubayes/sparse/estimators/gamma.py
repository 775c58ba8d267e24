"""Sparse Bayesian gamma regression as a scikit-learn estimator."""

import numpy as np

from soubayes.sparse.estimators.parameters import check_positive, estimator, trust
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.likelihoods.gamma import Gamma
from soubayes.sparse.posterior import Mixture

Array = np.ndarray


@estimator
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
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), ``"intercept"`` and ``"shape"``.
    priors : mapping of str to number, optional
        As in :class:`SoULogisticRegression`; the prior of the intercept lies about the logarithm of
        the mean of y.

    Attributes
    ----------
    shape_ : float
        The shape: the median of its posterior, averaged over the mixture.

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

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 20))
    >>> y = rng.gamma(4.0, np.exp(1.0 + X[:, 0] - X[:, 1]) / 4.0)
    >>> model = SoUGammaRegression().fit(X, y)
    >>> np.flatnonzero(model.selected_), round(model.shape_)
    (array([0, 1]), 4)
    """

    shape: float | str = "auto"
    _blocks = ("global", "intercept", "shape")
    _positive = True
    _instead = "SoULinearRegression on log(y)"

    def _likelihood(self) -> Gamma:
        known = None if self.shape == "auto" else float(self.shape)
        return Gamma.of(known, trust(self, "shape"))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.shape != "auto":
            check_positive(self, "shape")

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        weighted = [(q.weight, self._of(q.likelihood).shape.mean) for q in mixtures[0].components]
        self.shape_ = float(sum(weight * np.exp(median) for weight, median in weighted))
