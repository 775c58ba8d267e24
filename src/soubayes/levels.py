"""The level of intervals, everywhere; a module of its own, because it needs no library."""

LEVEL = 0.9  # one row in ten lies outside: few enough, and often enough to check


def check_level(name: str, value: float) -> None:
    """A probability between 0 and 1.

    >>> check_level("level", 90)
    Traceback (most recent call last):
    ValueError: level is 90, but it must lie between 0 and 1.
    """
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}, but it must lie between 0 and 1.")
