"""Log priors as functions of a block and its parents, learnt from their values at the draws.

A log prior has no noise, so a regression that has all its arguments and a form that can be it
predicts it almost exactly at draws that it was not fitted to.
"""

from collections.abc import Callable, Sequence
from itertools import combinations, product

import numpy as np
from scipy.interpolate import RBFInterpolator

DETERMINED = 1e-3  # squared relative error below which all arguments are there
FORM_EXACT = 1e-10  # squared relative error of a form that needs no other beside it
SHARE_FITTED = 2 / 3  # of the draws; the others are predicted
MOST_SMOOTH = 4  # coordinates in which a smooth function is interpolated
MOST_INDICATORS = 8  # of a discrete coordinate that has an indicator for each
LARGEST_TERM = 1e100  # a value whose square and product are still finite
MOST_PAIRED = 8  # coordinates of a block all of whose products are taken


def unexplained(blocks: Sequence[np.ndarray], target: np.ndarray) -> float:
    """Squared error at draws that were not fitted over the spread, both by medians."""
    error = _error(_regression, blocks, target)
    return error if error < DETERMINED else min(error, _error(_interpolation, blocks, target))


class LogPrior:
    """A log prior as a function of a block and its parents, by the form that predicts it best.

    ``blocks`` and ``target`` are what is known of it at some draws.
    """

    def __init__(self, blocks: Sequence[np.ndarray], target: np.ndarray) -> None:
        self._blocks, self._target = blocks, target
        self._form: Callable[..., np.ndarray | None] = _regression
        error = _error(_regression, blocks, target)
        if error > FORM_EXACT and _error(_interpolation, blocks, target) < error:
            self._form = _interpolation

    def __call__(self, blocks: Sequence[np.ndarray]) -> np.ndarray:
        """Its values at other places."""
        stacked = [np.concatenate(pair) for pair in zip(self._blocks, blocks, strict=True)]
        values = self._form(stacked, self._target)
        return np.zeros(len(blocks[0])) if values is None else values


def _error(form: Callable, blocks: Sequence[np.ndarray], target: np.ndarray) -> float:
    n = int(SHARE_FITTED * len(target))
    spread = np.median(abs(target - np.median(target))) or np.std(target)
    values = form(blocks, target[:n])
    return (
        float("inf")
        if values is None
        else float((np.median(abs(target[n:] - values)) / spread) ** 2)
    )


def _regression(blocks: Sequence[np.ndarray], target: np.ndarray) -> np.ndarray:
    """The rows after those of the target, by a regression on the functions of `_design`."""
    n = len(target)
    with np.errstate(all="ignore"):  # what is not finite is left out
        design = _design(blocks)[:, : int(0.8 * n)]
    design = design / np.sqrt(np.mean(design**2, axis=0))
    return design[n:] @ np.linalg.lstsq(design[:n], target, rcond=1e-11)[0]


def _interpolation(blocks: Sequence[np.ndarray], target: np.ndarray) -> np.ndarray | None:
    """The rows after those of the target by a cubic interpolation, or nothing if there is none."""
    n = len(target)
    places = np.concatenate(blocks, axis=1).astype(float)
    places = places[:, np.ptp(places, axis=0) > 0]
    if not 0 < places.shape[1] <= MOST_SMOOTH:
        return None
    places = np.stack([np.log(x) if np.all(x > 0) else x for x in places.T], axis=1)
    places = (places - np.median(places, axis=0)) / places.std(axis=0)
    # draws that differ in other blocks alone are the same point here
    first = np.unique(places[:n], axis=0, return_index=True)[1]
    if len(first) < n / 2:
        return None
    try:
        smooth = RBFInterpolator(places[first], target[first], kernel="cubic", degree=1)
    except np.linalg.LinAlgError:  # coordinates that depend on each other linearly
        return None
    return smooth(places[n:])


def _design(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Functions that are enough for most densities: of a block, of two, and of three.

    The statistics of a block are sums over its coordinates. Products of those of two blocks, and of
    two locations and a scale, make (x - mu)^2 / tau^2.
    """
    every, location, scale, alone = [], [], [], []
    for x in blocks:
        positive = x.dtype.kind == "f" and bool(np.all(x > 0))
        if x.dtype.kind != "f" and len(levels := np.unique(x)) <= MOST_INDICATORS:
            sums = [np.sum(x == level, axis=1) for level in levels[1:]]
            every.append(sums)
            scale += sums
            continue
        x = x.astype(float)
        sums = [x.sum(axis=1), (x**2).sum(axis=1), abs(x).sum(axis=1)][: 2 if np.all(x > 0) else 3]
        location.append(sums[0])
        if positive:
            log = np.log(x).sum(axis=1)
            scale += [(1 / x).sum(axis=1), (1 / x**2).sum(axis=1)]
            sums += [log, *scale[-2:]]
            alone += [log**2, (np.log(x) ** 2).sum(axis=1)]
            alone += list(np.log(x).T) if x.shape[1] > 1 else []
            if np.all(x < 1):
                sums.append(np.log1p(-x).sum(axis=1))
        if x.shape[1] > 1:
            sums.append((np.diff(x, axis=1) ** 2).sum(axis=1))  # of a random walk
            alone += [*x.T, *(x.T**2)]
        every.append(sums)
        if 1 < x.shape[1] <= MOST_PAIRED:
            alone += [x[:, a] * x[:, b] for a, b in combinations(range(x.shape[1]), 2)]
    for x, other in combinations(blocks, 2):
        if 1 < x.shape[1] == other.shape[1]:  # coordinates that may belong together
            x, other = x.astype(float), other.astype(float)
            matched = [(x * other).sum(axis=1)]
            for a, b in ((x, other), (other, x)):
                if np.all(b > 0):
                    matched += [(a**2 / b**2).sum(axis=1), (a / b).sum(axis=1)]
            every.append(matched)
    columns = [np.ones(len(blocks[0])), *(one for sums in every for one in sums)]
    for some, others in combinations(every, 2):
        columns += [a * b for a, b in product(some, others)]
    for a, b in combinations(location, 2):
        columns += [a * b * c for c in scale]
    columns += alone  # last, because those that are too many for the draws are left out
    return np.stack([c for c in columns if 0 < np.max(abs(c)) < LARGEST_TERM], axis=1).astype(float)
