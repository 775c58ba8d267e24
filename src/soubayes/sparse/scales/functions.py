"""Special functions of gamma factors, and roots of many one-dimensional functions at once."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi

Array = np.ndarray


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
