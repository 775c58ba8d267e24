"""The factors q(tau_g^2) and q(nu^2) of every global-local model, and what a scale prior is.

Each squared scale x has an inverse-gamma factor q(x) = Inv-Gamma(a, b), kept as its shape a and
its ratio rho = b/a = 1/E[1/x], which stays accurate when a is 5e8 (confidence 1e-9). Whatever
the likelihood, J (supplement C.4) depends on q(x) only through

    log_weight * E[log x] + inverse_weight * E[1/x] + confidence * KL(q(x) || prior),

so the same methods serve normal means, linear and logistic regression. With the sums over the
columns j that share a scale (one column each, unless they are grouped):

| factor   | log_weight         | inverse_weight                                           |
| tau_g^2  | sum_j gamma_b / 2  | gamma_b / 2 * E[1/nu^2] * sum_j E[beta_j^2 (/ sigma^2)]   |
| nu^2     | gamma_b p / 2      | gamma_b / 2 * sum_j E[1/tau_j^2] E[beta_j^2 (/ sigma^2)]  |

All arguments broadcast; confidences are finite and positive.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from soubayes._docstrings import fill_docstrings
from soubayes.sparse.scales.functions import find_root, log_minus_psi, negative_entropy

Array = np.ndarray

# parameters of the methods of a prior
_PARAMETERS = """
q : Scale
    The factors.
log_weight : array-like
    Weight of E[log x].
inverse_weight : array-like
    Weight of E[1/x].
confidence : array-like
    Confidence in the prior.
shape : array-like
    The shapes a.
ratio : array-like
    The ratios b/a.
"""


class _ShapeAndRatio(NamedTuple):
    shape: Array
    ratio: Array


class Scale(_ShapeAndRatio):
    r"""Inverse-gamma factors of squared scales, arrays of one shape.

    Parameters
    ----------
    shape : ndarray
        The shapes a.
    ratio : ndarray
        The ratios b/a, which are 1 / E[1/x].

    Attributes
    ----------
    mean_inverse : ndarray
        E[1/x].
    mean_log : ndarray
        E[log x].
    mean_log_density : ndarray
        E[log q(x)], minus the entropy.

    Notes
    -----
    :math:`q(x) = \text{Inv-Gamma}(a, b)`, the factor of :math:`\tau_j^2` and :math:`\nu^2` in
    supplement C.4 of [1]_. The ratio stays accurate when a is very large, as it is for a very small
    confidence.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> Scale(np.array(2.0), np.array(0.5)).mean_inverse
    np.float64(2.0)
    """

    def at(self, ratio: Array) -> "Scale":
        """Move to other ratios; what was computed from the shapes alone is kept.

        Parameters
        ----------
        ratio : ndarray
            The new ratios.

        Returns
        -------
        scale : Scale
            Factors of the same shapes.
        """
        moved = Scale(self.shape, ratio)
        moved.__dict__.update(self.__dict__)
        return moved

    @cached_property
    def _log_minus_psi(self) -> Array:
        return log_minus_psi(self.shape)

    @cached_property
    def _negative_entropy(self) -> Array:
        return negative_entropy(self.shape)

    @property
    def mean_inverse(self) -> Array:
        """E[1/x] = a/b."""
        return 1.0 / self.ratio

    @property
    def mean_log(self) -> Array:
        """E[log x] = log b - psi(a)."""
        return np.log(self.ratio) + self._log_minus_psi

    @property
    def mean(self) -> Array:
        """E[x] = b/(a - 1); the shape must be above 1."""
        return self.ratio * self.shape / (self.shape - 1.0)

    @property
    def mean_log_density(self) -> Array:
        """E[log q(x)], minus the entropy."""
        return self._negative_entropy - np.log(self.ratio)

    def take(self, index: Array) -> "Scale":
        """Select some coordinates.

        Parameters
        ----------
        index : ndarray
            Numbers or a mask of the coordinates.

        Returns
        -------
        scale : Scale
            Their factors.
        """
        return Scale(self.shape[index], self.ratio[index])


@fill_docstrings(_PARAMETERS)
class ScalePrior(ABC):
    r"""Base class of priors of squared scales.

    A subclass defines :meth:`kl`, :meth:`kl_slope` and ``start_precision``. The other methods have
    defaults that work for any prior whose KL is convex in the logarithm of the ratio.

    Attributes
    ----------
    start_precision : float
        A typical 1/x under the prior, where solvers start.

    See Also
    --------
    SoUGeneralizedRegression : Takes a scale prior as its ``prior``.

    Notes
    -----
    Whatever the likelihood, J (supplement C.4 of [1]_) depends on q(x) only through

    .. math:: u\,E[\log x] + w\,E[1/x] + \gamma\,\mathrm{KL}(q(x) \,\|\, \pi(x)),

    where u and w are the arguments ``log_weight`` and ``inverse_weight`` of the methods.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from soubayes.sparse.scales.priors import Exponential
    >>> isinstance(Exponential(10.0), ScalePrior), Exponential(10.0).start_precision
    (True, 10.0)
    """

    least_shape = 0.0  # the shapes a of q(x) are above this

    @property
    @abstractmethod
    def start_precision(self) -> float:
        """The 1/x from which solvers start: a typical value under the prior."""

    @abstractmethod
    def kl(self, q: Scale) -> Array:
        """KL divergence of q(x) from the prior.

        Returns
        -------
        kl : ndarray
            One number for each factor, in nats.
        """

    @abstractmethod
    def kl_slope(self, q: Scale) -> tuple[Array, Array]:
        """Derivatives of the KL in the logarithm of the ratio, at a fixed shape.

        Returns
        -------
        slope : ndarray
            First derivatives.
        curvature : ndarray
            Second derivatives.
        """

    def objective(
        self, q: Scale, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike
    ) -> Array:
        """The part of J that depends on q(x).

        Returns
        -------
        value : ndarray
            One number for each factor.
        """
        return (
            np.asarray(log_weight) * q.mean_log
            + np.asarray(inverse_weight) * q.mean_inverse
            + np.asarray(confidence) * self.kl(q)
        )

    def best_ratio(
        self,
        shape: ArrayLike,
        log_weight: ArrayLike,
        inverse_weight: ArrayLike,
        confidence: ArrayLike,
    ) -> Array:
        """The ratio that minimises J at a given shape.

        Returns
        -------
        ratio : ndarray
            The best ratios b/a.
        """
        a, A, E, gamma = as_floats(shape, log_weight, inverse_weight, confidence)

        def slope(t: Array) -> tuple[Array, Array]:
            one, two = self.kl_slope(Scale(a, np.exp(t)))
            pull = E * np.exp(-t)
            return A - pull + gamma * one, pull + gamma * two

        # without the KL the root is E/A; exp(+-690) are the ends of float64
        start = np.log(np.maximum(E, 1e-300) / np.maximum(A, 1e-300))
        return np.exp(find_root(slope, start, np.full_like(a, -690.0), np.full_like(a, 690.0)))

    def best_shape(self, ratio: ArrayLike, log_weight: ArrayLike, confidence: ArrayLike) -> Array:
        """The shape that minimises J at a given ratio.

        Returns
        -------
        shape : ndarray
            The best shapes.
        """
        rho, A, gamma = as_floats(ratio, log_weight, confidence)

        def value(t: Array) -> Array:
            return self.objective(Scale(self.least_shape + np.exp(t), rho), A, 0.0, gamma)

        # the best shape is near A/gamma (exact as gamma -> 0), so 12 on a log scale brackets it
        centre = np.log(np.maximum(A / gamma, 1.0))
        low, high = centre - 12.0, centre + 12.0
        for _ in range(45):  # to 1e-8, where J is flat
            left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
            lower = value(left) < value(right)
            low, high = np.where(lower, low, left), np.where(lower, right, high)
        return self.least_shape + np.exp(0.5 * (low + high))

    def fit(self, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike) -> Scale:
        """The q(x) that minimises :meth:`objective` over shape and ratio together.

        Returns
        -------
        q : Scale
            The best factors.
        """
        A, E, gamma = as_floats(log_weight, inverse_weight, confidence)
        q = Scale(np.maximum(A / gamma, self.least_shape + 1.0), np.ones_like(A))
        for _ in range(100):
            ratio = self.best_ratio(q.shape, A, E, gamma)
            moved = np.max(np.abs(np.log(ratio / q.ratio)), initial=0.0)
            q = Scale(self.best_shape(ratio, A, gamma), ratio)
            if moved < 1e-10:
                break
        return q

    def coordinate_step(
        self, q: Scale, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike
    ) -> Scale:
        """One step of Algorithm 1, which never raises J.

        Returns
        -------
        q : Scale
            The next factors; by default the joint minimum.
        """
        return self.fit(log_weight, inverse_weight, confidence)


def as_floats(*values: ArrayLike) -> list[Array]:
    """Float arrays of one common shape."""
    return list(np.broadcast_arrays(*(np.asarray(value, float) for value in values)))


def positive_root(square: Array, linear: Array, constant: Array) -> Array:
    """The positive root of square x^2 + linear x = constant, all but linear >= 0."""
    # of the two forms of the root the one that adds terms of one sign: nothing cancels
    root = np.sqrt(linear * linear + 4.0 * square * constant)
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = 2.0 * constant / (linear + root)
        rising = (root - linear) / (2.0 * square)
    return np.where(linear > 0.0, falling, rising)


_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0  # ratio of golden-section search
