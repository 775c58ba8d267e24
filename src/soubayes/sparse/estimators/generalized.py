"""Sparse regression with a likelihood of your own."""

from dataclasses import field

import numpy as np

from soubayes._warnings import warn
from soubayes.sparse.estimators.parameters import estimator
from soubayes.sparse.estimators.response import ResponseRegression
from soubayes.sparse.likelihoods.base import RowLikelihood, weighted_terms
from soubayes.sparse.likelihoods.checking import check_derivatives

Array = np.ndarray


@estimator
class SoUGeneralizedRegression(ResponseRegression):
    r"""Sparse Bayesian regression with a likelihood of your own.

    Parameters
    ----------
    likelihood : RowLikelihood
        The loss and its derivatives in the linear predictor.
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen, as in :class:`SoULogisticRegression`.
    fit_intercept : bool, default=True
        Whether the model has an intercept. For a likelihood without one the columns are only
        centred.

    Attributes
    ----------
    out_of_fold_ : pandas.DataFrame
        Held-out predictions of the training rows: ``y``, ``mean``, ``sd`` (unknown) and ``fold``.

    See Also
    --------
    RowLikelihood : Base class of losses.
    ScalePrior : Base class of scale priors.

    Notes
    -----
    The model of section 4.3 of [1]_ with another loss,

    .. math::

        y \sim p(y \mid \eta), \quad \eta = \alpha + x'\beta, \quad
        \beta_j \sim N(0, \tau_{g(j)}^2 \nu^2), \qquad
        J(q) = E_q[-\log p(y \mid \eta)] + \sum_k \gamma_k \mathrm{KL}_k .

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

    likelihood: RowLikelihood = field(kw_only=False)

    def _check_likelihood(self, y: Array, weight: Array) -> None:
        """What a likelihood gives must be finite at predictors of 0, with the right slopes."""
        terms = weighted_terms(self._likelihood(), np.zeros_like(y), np.zeros_like(y), y, weight)
        for name, values in terms._asdict().items():
            if values.shape != y.shape or not np.isfinite(values).all():
                raise ValueError(
                    f"{type(self.likelihood).__name__} gives a {name} that is not a finite number "
                    "for every row where all predictors are 0; check its formulas and y."
                )
        check_derivatives(self._likelihood(), y)
        if (terms.curvature < 0.0).any():
            warn(
                f"the loss of {type(self.likelihood).__name__} is not convex in the predictor, so "
                "that J may have several minima: steps are damped, and the start decides which "
                "minimum is found.",
            )

    def _likelihood(self) -> RowLikelihood:
        if not isinstance(self.likelihood, RowLikelihood):
            if isinstance(self.likelihood, type):
                name = self.likelihood.__name__
                raise TypeError(f"likelihood is the class {name}: pass an instance, {name}().")
            raise TypeError(
                f"likelihood is a {type(self.likelihood).__name__}, but it must be an instance of "
                "a subclass of RowLikelihood."
            )
        return self.likelihood

    def _read_block(self, values: Array) -> Array:
        """The targets of a block; what its rows say about the likelihood is checked on the way."""
        numbers = self._read(values)
        check_derivatives(self._likelihood(), numbers)
        return numbers
