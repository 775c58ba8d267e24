"""Roots of many one-dimensional functions at once."""

from collections.abc import Callable

import numpy as np

Array = np.ndarray


def newton_root(
    function: Callable[[Array], tuple[Array, Array]], start: Array, reach: float
) -> Array:
    """`find_root` without its care: a few Newton steps from a good start, if they settle.

    Where they do not, the root is sought within ``reach`` of the start.
    """
    t = start
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(4):
            value, slope = function(t)
            step = value / slope
            t = t - step
            far = np.abs(step).max(initial=0.0)
            if far < 1e-6:  # quadratic: the next would be below 1e-11
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
        good = (newton > low) & (newton < high) & (size < 0.7 * last)
        step = np.where(good, newton, np.where(near, t, 0.5 * (low + high)))
        t, last = step, size
        if (near | (high - low <= 1e-13 * (1.0 + np.abs(t)))).all():
            break
    return t
