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
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi

from soubayes._docstrings import fill_docstrings

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


# ---- special functions of gamma factors, and roots of many functions at once ---------------------


def log_minus_psi(a: ArrayLike) -> Array:
    """log(a) - psi(a), accurate for any a > 0.

    >>> round(float(log_minus_psi(5e8)) * 1e9, 6)
    1.0
    """
    return _two_branches(
        a,
        lambda a: np.log(a) - psi(a),
        # log a - psi(a) ~ 1/(2a) + sum_k B_2k/(2k a^2k), Abramowitz and Stegun 6.3.18
        lambda x, y: x * (1 / 2 + x * _series(y, 1 / 12, 1 / 120, 1 / 252, 1 / 240, 1 / 132)),
    )


def delta1(a: ArrayLike) -> Array:
    """1/a - psi'(a), the derivative of `log_minus_psi`; negative."""
    return _two_branches(
        a,
        lambda a: 1.0 / a - _shifted(a, 2) - 1.0 / (a + _SHIFT) + delta1(a + _SHIFT),
        # the same series differentiated, 6.4.12
        lambda x, y: -y * (1 / 2 + x * _series(y, 1 / 6, 1 / 30, 1 / 42, 1 / 30, 5 / 66)),
    )


def delta2(a: ArrayLike) -> Array:
    """-1/a^2 - psi''(a), the derivative of `delta1`; positive."""
    return _two_branches(
        a,
        lambda a: -1.0 / (a * a) + 2.0 * _shifted(a, 3) + (a + _SHIFT) ** -2.0 + delta2(a + _SHIFT),
        lambda x, y: x * y * (1.0 + x * _series(y, 1 / 2, 1 / 6, 1 / 6, 3 / 10, 5 / 6)),
    )


def negative_entropy(a: ArrayLike) -> Array:
    """E[log q(x)] of Inv-Gamma(a, a), i.e. (a + 1) psi(a) - log(a) - log Gamma(a) - a."""
    return _two_branches(
        a,
        lambda a: (a + 1.0) * psi(a) - np.log(a) - gammaln(a) - a,
        # Stirling for log Gamma(a), 6.1.40: a log a, which cancels, is never formed
        lambda x, y: (
            -0.5 * np.log(2.0 * np.pi * x)
            - x * _series(y, 1 / 12, 1 / 360, 1 / 1260, 1 / 1680, 1 / 1188)
            - (1.0 / x + 1.0) * log_minus_psi(1.0 / x)
        ),
    )


def _series(y: Array, *terms: float) -> Array:
    """terms[0] - y terms[1] + y^2 terms[2] - ..."""
    total: Array | float = terms[-1]
    for term in reversed(terms[:-1]):
        total = term - y * total
    return np.asarray(total)


def _shifted(a: Array, power: int) -> Array:
    """sum_k (a + k)^-power for k below `_SHIFT`: psi' and psi'' there from those beyond.

    Ten times as fast as `scipy.special.polygamma`.
    """
    terms = 1.0 / np.add.outer(np.arange(float(_SHIFT)), a)
    return (terms**power).sum(axis=0)


_LARGE = 30.0  # from here on the asymptotic series are exact to rounding
_SHIFT = 30  # recurrences take smaller arguments there


def _two_branches(
    a: ArrayLike, direct: Callable[[Array], Array], series: Callable[[Array, Array], Array]
) -> Array:
    """``direct(a)`` for small a and ``series(1/a, 1/a^2)`` for large a."""
    a = np.asarray(a, float)
    small = a < _LARGE
    if small.all():
        return direct(a)
    x = 1.0 / np.maximum(a, _LARGE)
    large = series(x, x * x)
    return np.where(small, direct(np.minimum(a, _LARGE)), large) if small.any() else large


LAST_STEP = 1e-6  # steps of Newton are quadratic: the next would be below 1e-11


def newton_root(
    function: Callable[[Array], tuple[Array, Array]],
    start: Array,
    reach: float,
    near: float = LAST_STEP,
) -> Array:
    """A few Newton steps from a good start, if they settle; `find_root` brackets the root.

    They end with one that is shorter than ``near``. Where they do not, the root is sought within
    ``reach`` of the start.
    """
    t = start
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(4):
            value, slope = function(t)
            step = value / slope
            t = t - step
            far = np.abs(step).max() if step.size else 0.0
            if far < near:
                return t
            if not far < 3.0:
                break
    return find_root(function, start, start - reach, start + reach)


def find_root(
    function: Callable[[Array], tuple[Array, Array]], start: Array, low: Array, high: Array
) -> Array:
    """Elementwise root of a function that goes from negative to positive on [low, high].

    ``function`` returns value and derivative. Newton steps, replaced by bisection whenever they
    leave the bracket or do not shrink the value.
    """
    t = np.clip(np.array(start, float), low, high)
    low, high = (
        np.array(np.broadcast_to(low, t.shape), float),
        np.array(np.broadcast_to(high, t.shape), float),
    )
    last = np.full(t.shape, np.inf)
    for _ in range(200):
        value, slope = function(t)
        size = np.abs(value)
        low = np.where(value <= 0.0, t, low)
        high = np.where(value >= 0.0, t, high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton = t - value / slope
        # at the rounding floor values stop shrinking: stay there, do not bisect the old bracket
        near = (value == 0.0) | (np.abs(newton - t) <= 1e-13 * (1.0 + np.abs(t)))
        # a value that does not fall to 0.7 of the last may mean that Newton cycles: halve the
        # bracket
        good = (newton > low) & (newton < high) & (size < 0.7 * last)
        step = np.where(good, newton, np.where(near, t, 0.5 * (low + high)))
        t, last = step, size
        if (near | (high - low <= 1e-13 * (1.0 + np.abs(t)))).all():
            break
    return t
