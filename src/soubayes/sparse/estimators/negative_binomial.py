"""Sparse Bayesian negative binomial regression as a scikit-learn estimator."""

import numpy as np

from soubayes.sparse.estimators.parameters import check_positive, estimator, trust
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.likelihoods.negative_binomial import NegativeBinomial
from soubayes.sparse.posterior import Mixture

Array = np.ndarray


@estimator
class SoUNegativeBinomialRegression(ResponseRegression):
    r"""Sparse Bayesian regression of counts that vary more than Poisson counts do.

    Columns that do not matter are dropped, and predictions average over the posterior. By default
    the confidences are chosen by prediction. Columns are standardised inside; coefficients are
    reported in the units of X. Effects are on the logarithm of the mean.

    Parameters
    ----------
    dispersion : "auto" or float, default="auto"
        The a of Var[y] = mean + a mean². ``"auto"`` estimates it: it is a source of uncertainty of
        its own, with the prior log a ~ N(-1, 2²).
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), ``"intercept"`` and ``"dispersion"``.
    priors : mapping of str to number, optional
        As in :class:`SoULogisticRegression`; the prior of the intercept lies about the logarithm of
        the mean of y.

    Attributes
    ----------
    dispersion_ : float
        The dispersion: the median of its posterior, averaged over the mixture.

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

    dispersion: float | str = "auto"
    _blocks = ("global", "intercept", "dispersion")
    _instead = "SoULinearRegression on log(1 + y)"
    _positive = True

    def _likelihood(self) -> NegativeBinomial:
        known = None if self.dispersion == "auto" else float(self.dispersion)
        return NegativeBinomial.of(known, trust(self, "dispersion"))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.dispersion != "auto":
            check_positive(self, "dispersion")

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        weighted = [
            (q.weight, self._of(q.likelihood).dispersion.mean) for q in mixtures[0].components
        ]
        self.dispersion_ = float(sum(weight * np.exp(median) for weight, median in weighted))
