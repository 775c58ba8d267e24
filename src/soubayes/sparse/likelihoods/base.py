"""What a solver asks of a likelihood.

A row sees the coefficients only through its linear predictor eta = alpha + x' beta, which is
normal under q. So a likelihood is four functions of the predictors' means and variances: the
expected loss, its slope and curvature in the means, and its slope in the variances. Everything else
(passes over the rows, solvers, dropped columns, data that are streamed) follows from these.

`RowLikelihood` is a loss with one predictor a row, `Likelihood` the general case. Either may
have nuisance parameters.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import check_array

from soubayes._docstrings import fill_docstrings

Array = np.ndarray


@cache
def normal_rule(count: int) -> tuple[Array, Array]:
    """Nodes and weights that average over a standard normal variable (Gauss-Hermite)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


HERMITE_NODES, HERMITE_WEIGHTS = normal_rule(40)

# parameters of the methods
_PARAMETERS = """
mean : ndarray
    Means of the linear predictors.
variance : ndarray
    Their variances.
eta : ndarray
    The linear predictors.
y : ndarray
    The targets.
weight : ndarray
    Weights of the rows.
"""


class RowTerms(NamedTuple):
    r"""Expected loss of every row and its derivatives.

    With one predictor a row these are arrays of one shape; with d of them ``score`` has the shape
    (n, d), ``information`` and ``curvature`` (n, d, d).

    Parameters
    ----------
    loss : ndarray
        The expected loss.
    score : ndarray
        Minus its slope in the mean of the linear predictor.
    information : ndarray
        Twice its slope in the variance of the predictor: the precision that a row gives.
    curvature : ndarray
        Its second derivative in the mean of the predictor. For an exact expectation it equals
        ``information``.

    Notes
    -----
    For a normal predictor :math:`\eta \sim N(m, v)` the derivatives of :math:`f(m, v) =
    E[\ell(\eta)]` are :math:`\partial f/\partial m = E[\ell']` and :math:`\partial f/\partial v =
    E[\ell'']/2`. They are all that the solvers of supplement C.4 of [1]_ need to know of a
    likelihood.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    Squared loss, (y - eta)\ :sup:`2` / 2:

    >>> mean, variance, y = np.array([1.0]), np.array([0.5]), np.array([3.0])
    >>> RowTerms(((y - mean) ** 2 + variance) / 2, y - mean, np.ones(1), np.ones(1)).loss
    array([2.25])
    """

    loss: Array
    score: Array
    information: Array
    curvature: Array


@fill_docstrings(_PARAMETERS)
class Likelihood(ABC):
    """A loss that is a sum over rows, each with ``coordinates`` linear predictors.

    Predictors have means (n, d) and covariances (n, d, d). `RowLikelihood` is the case of one
    predictor, whose arrays have no axis of coordinates.

    A nuisance parameter has a factor q of its own, which lives in the instance: ``nuisance`` is its
    name in ``kl_``, `kl` its KL divergence from the prior, and `updated` the likelihood with the
    best q, given sums over the rows of `statistics`. J counts ``confidence`` times `kl`.

    Attributes
    ----------
    coordinates : int
        Number of linear predictors of a row.
    several : bool
        Whether arrays of predictors have an axis of coordinates.
    nuisance : str or None
        Name of a nuisance parameter in ``kl_``, or None if there is none.
    confidence : float
        Confidence in the prior of the nuisance parameter.
    intercept : bool
        False if a constant added to all predictors changes nothing.
    start_curvature : float
        A typical curvature of the loss of a row, which scales the first steps.
    majorises : bool
        Whether the loss is concave in the variance of the predictor, so a full step cannot
        raise J.
    kl : float
        KL divergence of the nuisance parameters, in nats.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    """

    # true of a bound with a slack variable: the quadratic model of a step then lies above J
    majorises = False
    coordinates = 1
    several = True
    start_curvature: float = 1.0
    intercept = True
    nuisance: str | None = None
    confidence = 1.0
    log_link = False  # whether E[y | eta] is proportional to exp(eta): rows may have exposures
    shift = 0.0  # added to every predictor inside the solvers, see `shifted.py`

    @abstractmethod
    def predict(self, mean: Array, variance: Array) -> Array:
        """Mean of y for rows whose predictor is normal.

        Returns
        -------
        prediction : ndarray
            E[y] of every row.
        """

    @abstractmethod
    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """Expected loss and its derivatives when the predictors are normal.

        Returns
        -------
        terms : RowTerms
            The expected loss of every row and its derivatives.
        """

    @abstractmethod
    def plug_in(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """Loss at known predictors, and its slope.

        Returns
        -------
        loss : ndarray
            The loss of every row.
        slope : ndarray
            Its derivative in the predictors.
        """

    @property
    def plain(self) -> "Likelihood":
        """The likelihood that predicts: without offsets."""
        return self

    @property
    def residual_variance(self) -> float:
        """Variance of (y - mean)^2/Var[y], both fitted; infinite: it is not compared with data."""
        return np.inf

    @property
    def coarse(self) -> Self:
        """The same likelihood by a faster rule with fewer digits, for points on the way."""
        return self

    def check(self, y: Array) -> Array:
        """Convert y to numbers, or raise an error that says what is allowed.

        Parameters
        ----------
        y : array-like
            The targets as the user gave them.

        Returns
        -------
        y : ndarray of shape (rows,)
            The targets as float64.
        """
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
        """What the nuisance parameters need to know of every row.

        Returns
        -------
        statistics : tuple of ndarray
            Arrays with a number for each row; their weighted sums go to :meth:`updated`.
        """
        return ()

    def updated(self, totals: tuple[float, ...]) -> Self:
        """The likelihood with the best q of its nuisance parameters.

        Parameters
        ----------
        totals : tuple of float
            Weighted sums over the rows of :meth:`statistics`.

        Returns
        -------
        likelihood : Likelihood
            A new instance; likelihoods are immutable.
        """
        return self


@fill_docstrings(_PARAMETERS)
class RowLikelihood(Likelihood):
    r"""Base class of losses that are a sum over rows, each with one linear predictor.

    A subclass defines :meth:`derivatives` and :meth:`predict`, and perhaps :meth:`check`. It
    overrides :meth:`terms` where the expected loss has a closed form. Instances are sent to Dask
    workers, so they must be picklable.

    Attributes
    ----------
    whole : bool
        Whether y, and so its quantiles, are whole numbers.
    lowest : float
        The least value of y.
    log_link : bool
        Whether the mean of y is proportional to exp(eta), so rows may have exposures.

    Notes
    -----
    By default :meth:`terms` averages :meth:`derivatives` over :math:`\eta \sim N(m, v)` by
    Gauss-Hermite quadrature with 40 nodes. The loss enters the objective of section 4.3 of [1]_ in
    the place of the logistic loss. :meth:`noise` and :meth:`cdf` are needed for predictive standard
    deviations and quantiles only, :meth:`deviance` for ``score``.

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

    several = False
    whole = False
    lowest = -np.inf

    @abstractmethod
    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """Loss of every row and its first two derivatives in the linear predictor.

        Returns
        -------
        loss : ndarray
            Minus the log density of y.
        slope : ndarray
            Its first derivative.
        curvature : ndarray
            Its second derivative.
        """

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """Expected loss and its derivatives when the predictor is normal.

        Returns
        -------
        terms : RowTerms
            The expected loss of every row and its derivatives.
        """
        eta = mean[:, None] + np.sqrt(variance)[:, None] * HERMITE_NODES
        parts = self.derivatives(eta, y[:, None])
        loss, slope, curvature = (
            np.broadcast_to(values, eta.shape) @ HERMITE_WEIGHTS for values in parts
        )
        return RowTerms(loss, -slope, curvature, curvature)

    def plug_in(self, eta: Array, y: Array) -> tuple[Array, Array]:
        """Loss at a known predictor, and its slope.

        Returns
        -------
        loss : ndarray
            The loss of every row.
        slope : ndarray
            Its derivative in the predictor.
        """
        loss, slope, _ = self.derivatives(eta, y)
        return loss, slope

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """Log predictive density of every row.

        Returns
        -------
        log_density : ndarray
            The logarithm of E[p(y | eta)].
        """
        eta = mean[:, None] + np.sqrt(variance)[:, None] * HERMITE_NODES
        loss = self.derivatives(eta, y[:, None])[0]
        least = loss.min(axis=1, keepdims=True)
        return np.log(np.exp(least - loss) @ HERMITE_WEIGHTS) - least[:, 0]

    def noise(self, eta: Array) -> Array:
        """Variance of y at known predictors; NaN if a subclass does not say it.

        Returns
        -------
        variance : ndarray
            Var[y | eta].
        """
        return np.full(np.shape(eta), np.nan)

    def cdf(self, y: Array, eta: Array) -> Array:
        """Distribution function of y at known predictors; NaN if a subclass does not say it.

        Parameters
        ----------
        y : ndarray
            Values.

        Returns
        -------
        probability : ndarray
            P(Y <= y | eta).
        """
        return np.full(np.broadcast_shapes(np.shape(y), np.shape(eta)), np.nan)

    def predict_variance(self, mean: Array, variance: Array) -> Array:
        """Variance of y for rows whose predictor is normal.

        Returns
        -------
        variance : ndarray
            E[Var[y | eta]] + Var[E[y | eta]].
        """
        eta = mean[:, None] + np.sqrt(variance)[:, None] * HERMITE_NODES
        middle = self.predict(eta, np.zeros_like(eta))
        centre = middle @ HERMITE_WEIGHTS
        return self.noise(eta) @ HERMITE_WEIGHTS + (middle - centre[:, None]) ** 2 @ HERMITE_WEIGHTS

    def predict_cdf(self, y: Array, mean: Array, variance: Array) -> Array:
        """Distribution function of y for rows whose predictor is normal.

        Parameters
        ----------
        y : ndarray
            A value for each row.

        Returns
        -------
        probability : ndarray
            The mean of :meth:`cdf` over the predictor.
        """
        eta = mean[:, None] + np.sqrt(variance)[:, None] * HERMITE_NODES
        return self.cdf(y[:, None], eta) @ HERMITE_WEIGHTS

    def _rough_cdf(self, y: Array, mean: Array, variance: Array) -> Array:
        """`predict_cdf` with few digits, by three nodes of the predictor."""
        nodes, weights = normal_rule(3)
        eta = mean[:, None] + np.sqrt(variance)[:, None] * nodes
        return self.cdf(y[:, None], eta) @ weights

    def deviance(self, y: Array, mean: Array) -> Array:
        """Unit deviance of a prediction, which ``score`` sums; by default the squared error.

        Parameters
        ----------
        mean : ndarray
            Predicted means.

        Returns
        -------
        deviance : ndarray
            0 where the prediction equals y, and above 0 elsewhere.
        """
        return (y - mean) ** 2

    def centre(self, mean: float, rows: float) -> float:
        """Predictor about which the prior of the intercept lies.

        Parameters
        ----------
        mean : float
            The mean of y.
        rows : float
            The number of rows.

        Returns
        -------
        eta : float
            0 by default. With a logarithmic link the logarithm of the mean makes a fit
            independent of the units of y.
        """
        return 0.0


def weighted_terms(
    likelihood: Any, mean: Array, variance: Array, y: Any, weight: Array
) -> RowTerms:
    """The terms of rows that count ``weight`` times.

    Trial steps of a solver may go where an exponential overflows; J is infinite there.
    """
    with np.errstate(over="ignore"):
        terms = likelihood.terms(mean, variance, y)
        information = times_rows(weight, terms.information)
        same = terms.curvature is terms.information
        curvature = information if same else times_rows(weight, terms.curvature)
        score = times_rows(weight, terms.score)
        return RowTerms(weight * terms.loss, score, information, curvature)


def times_rows(weight: Array, values: Array) -> Array:
    """Values of rows, of any number of axes, each times the weight of its row."""
    return weight.reshape(-1, *[1] * (values.ndim - 1)) * values


def offset_apart(y: Array) -> tuple[Array, Array | float]:
    """The targets and their offsets (`shifted.py`); 0 if none stand beside them."""
    return (y, 0.0) if y.ndim == 1 else (y[:, 0], y[:, 1])
