"""What a solver asks of a likelihood whose loss is a sum over the rows.

A row sees the coefficients only through its linear predictor eta = alpha + x' beta, which is
normal under q. So a likelihood is four functions of the predictor's mean and variance: the
expected loss, its slope and curvature in the mean, and its slope in the variance. Everything else
(passes over the rows, solvers, dropped columns, data that are streamed) follows from these.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_array

Array = np.ndarray


class RowTerms(NamedTuple):
    """The expected loss of every row and its derivatives, arrays of one shape.

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


class RowLikelihood(ABC):
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

    majorises = False  # whether the loss is concave in the variance of eta (a bound with a slack
    # variable is): the quadratic model of a step then lies above J, and a full step cannot raise it
    start_curvature = 1.0  # a typical curvature of a row's loss, which scales the first steps

    @abstractmethod
    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The loss -log p(y | eta) of every row and its first two derivatives in eta."""

    @abstractmethod
    def predict(self, mean: Array, variance: Array) -> Array:
        """E[y] of rows whose predictor is N(mean, variance)."""

    def check(self, y: Array) -> Array:
        """y as (rows,) float64 numbers, or an error that says what is allowed."""
        return check_array(y, ensure_2d=False, dtype=np.float64, input_name="y").ravel()

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


_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
