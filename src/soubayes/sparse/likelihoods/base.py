"""What a solver asks of a likelihood.

A row sees the coefficients only through its linear predictor eta = alpha + x' beta, which is
normal under q. So a likelihood is four functions of the predictors' means and variances: the
expected loss, its slope and curvature in the means, and its slope in the variances. Everything else
(passes over the rows, solvers, dropped columns, data that are streamed) follows from these.

`RowLikelihood` is a loss that is a sum over the rows, each of which is read alone. A
`CoupledLikelihood` reads all rows at once. Either may have nuisance parameters.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import check_array

Array = np.ndarray


class RowTerms(NamedTuple):
    """The expected loss of every row and its derivatives, arrays of one shape.

    Of a coupled likelihood ``loss`` is any split of the expected loss over the rows, and the
    derivatives are those of the whole.

    Parameters
    ----------
    loss : ndarray
        E_q[loss].
    score : ndarray
        Minus its slope in the mean of eta.
    information : ndarray
        Twice its slope in the variance of eta: the precision that a row gives.
    curvature : ndarray
        Its second derivative in the mean of eta; equal to ``information`` for an exact expectation.

    Examples
    --------
    Squared loss, (y - eta)^2/2:

    >>> mean, variance, y = np.array([1.0]), np.array([0.5]), np.array([3.0])
    >>> RowTerms(((y - mean) ** 2 + variance) / 2, y - mean, np.ones(1), np.ones(1)).loss
    array([2.25])
    """

    loss: Array
    score: Array
    information: Array
    curvature: Array


class Likelihood(ABC):
    """How y is read and predicted, and nuisance parameters such as a dispersion.

    A nuisance parameter has a factor q of its own, which lives in the instance: ``nuisance`` is its
    name in ``kl_``, `kl` its KL divergence from the prior, and `updated` the likelihood with the
    best q, given sums over the rows of `statistics`. J counts ``confidence`` times `kl`.
    """

    majorises = False  # whether the loss is concave in the variance of eta (a bound with a slack
    # variable is): the quadratic model of a step then lies above J, and a full step cannot raise it
    start_curvature = 1.0  # a typical curvature of a row's loss, which scales the first steps
    intercept = True  # False: a constant added to all predictors changes nothing
    nuisance: str | None = None
    confidence = 1.0  # gamma of the nuisance parameters

    @abstractmethod
    def predict(self, mean: Array, variance: Array) -> Array:
        """E[y] of rows whose predictor is N(mean, variance)."""

    def check(self, y: Array) -> Array:
        """y as (rows,) float64 numbers, or an error that says what is allowed."""
        try:
            y = np.asarray(y).astype(float)
        except (TypeError, ValueError):
            raise ValueError(
                f"y holds values such as {str(np.ravel(y)[0])!r}, but {type(self).__name__} reads "
                "numbers."
            ) from None
        return check_array(y, ensure_2d=False, dtype=np.float64, input_name="y").ravel()

    @property
    def kl(self) -> float:
        """Nats of the nuisance parameters."""
        return 0.0

    def statistics(self, mean: Array, variance: Array, y: Array) -> tuple[Array, ...]:
        """Arrays, a number a row, whose weighted sums are all that `updated` needs."""
        return ()

    def updated(self, totals: tuple[float, ...]) -> Self:
        """The likelihood whose nuisance parameters have the best q for these sums."""
        return self


class RowLikelihood(Likelihood):
    """A loss that is a sum over rows, each with one linear predictor.

    A subclass gives `derivatives` and `predict`, and perhaps `check`. `terms` averages
    the derivatives over the normal predictor by Gauss-Hermite quadrature; a subclass overrides it
    where the average has a closed form. Instances are sent to Dask workers, so they must be
    picklable.

    Examples
    --------
    >>> class Waiting(RowLikelihood):
    ...     "Waiting times with mean exp(eta): the loss is eta + y exp(-eta)."
    ...     def derivatives(self, eta, y):
    ...         ratio = y * np.exp(-eta)
    ...         return eta + ratio, 1.0 - ratio, ratio
    ...     def predict(self, mean, variance):
    ...         return np.exp(mean + variance / 2.0)
    >>> Waiting().terms(np.zeros(1), np.ones(1), np.ones(1)).loss.round(4)  # exp(1/2)
    array([1.6487])
    """

    @abstractmethod
    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The loss -log p(y | eta) of every row and its first two derivatives in eta."""

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """The expected loss and its derivatives at eta ~ N(mean, variance).

        For a normal predictor dE[f]/dvariance = E[f'']/2, so the precision that a row gives to
        the covariance is its expected curvature.
        """
        eta = mean[:, None] + np.sqrt(variance)[:, None] * _NODES
        parts = self.derivatives(eta, y[:, None])
        loss, slope, curvature = (np.broadcast_to(part, eta.shape) @ _WEIGHTS for part in parts)
        return RowTerms(loss, -slope, curvature, curvature)

    def plug_in(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """The loss at a known predictor, and its slope."""
        loss, slope, _ = self.derivatives(eta, y)
        return loss, slope

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """log E[p(y | eta)], the log predictive density of every row."""
        eta = mean[:, None] + np.sqrt(variance)[:, None] * _NODES
        loss = self.derivatives(eta, y[:, None])[0]
        least = loss.min(axis=1, keepdims=True)
        return np.log(np.exp(least - loss) @ _WEIGHTS) - least[:, 0]


class CoupledLikelihood(Likelihood):
    """A loss that is no sum over rows, such as the partial likelihood of Cox's model.

    A subclass gives `terms` and `predict`. All rows must be in memory.

    Examples
    --------
    The loss log(sum_i exp(eta_i)) - eta_0, by Jensen's inequality:

    >>> class First(CoupledLikelihood):
    ...     "The first row was chosen among all."
    ...     intercept = False
    ...     def terms(self, mean, variance, y, weight):
    ...         risk = weight * np.exp(mean + variance / 2.0)
    ...         share = risk / risk.sum() / weight
    ...         loss = np.where(y > 0, np.log(risk.sum()) - mean, 0.0)
    ...         return RowTerms(loss, (y > 0) - share, share, share)
    ...     def predict(self, mean, variance):
    ...         return np.exp(mean + variance / 2.0)
    >>> First().terms(np.zeros(2), np.zeros(2), np.array([1, 0]), np.ones(2)).score
    array([ 0.5, -0.5])
    """

    @abstractmethod
    def terms(self, mean: Array, variance: Array, y: Array, weight: Array) -> RowTerms:
        """The expected loss of all rows, or an upper bound of it, and its derivatives.

        Row i counts ``weight[i]`` times: the loss is weight @ loss, and its slope in the mean of
        the i-th predictor is -weight[i] * score[i], and so on.
        """

    def plug_in(self, eta: Array, y: Array, weight: Array) -> tuple[Array, Array]:
        """The loss at known predictors, and its slope."""
        terms = self.terms(eta, np.zeros_like(eta), y, weight)
        return terms.loss, -terms.score


def weighted_terms(
    likelihood: Likelihood, mean: Array, variance: Array, y: Any, weight: Array
) -> RowTerms:
    """The terms of rows that count ``weight`` times; all rows, if the likelihood is coupled.

    Trial steps of a solver may go where an exponential overflows; J is infinite there.
    """
    with np.errstate(over="ignore"):
        if isinstance(likelihood, CoupledLikelihood):
            terms = likelihood.terms(mean, variance, y, weight)
        else:
            assert isinstance(likelihood, RowLikelihood)
            terms = likelihood.terms(mean, variance, y)
        information = weight * terms.information
        same = terms.curvature is terms.information
        curvature = information if same else weight * terms.curvature
        return RowTerms(weight * terms.loss, weight * terms.score, information, curvature)


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
