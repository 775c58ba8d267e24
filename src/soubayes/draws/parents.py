"""Whether the order of the blocks fits their log priors, from the draws.

The log prior of a block is a function of the block and of earlier ones. It has no noise, so a
regression that has all its arguments and a form that can be it predicts it almost exactly at draws
that it was not fitted to.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

import numpy as np
from scipy.interpolate import RBFInterpolator

DETERMINED = 1e-3  # squared relative error below which all arguments are there
ARGUMENT_MISSING = 0.02  # squared relative error above which an argument is missing
MOST_DRAWS = 1200
FEWEST_DISTINCT = 300  # draws that differ; fewer are repeats of a sampler that moves rarely
SHARE_FITTED = 2 / 3  # of these draws; the others are predicted
MOST_SMOOTH = 4  # coordinates in which a smooth function is interpolated
MOST_PARENTS = 3
MANY_BLOCKS = 6  # from here on at most two parents are looked for
MOST_INDICATORS = 8  # of a discrete coordinate that has an indicator for each
LARGEST_TERM = 1e100  # a value whose square and product are still finite
MOST_PAIRED = 8  # coordinates of a block all of whose products are taken


def check_order(
    values: Mapping[str, np.ndarray],
    log_prior: Mapping[str, np.ndarray],
    without: Mapping[str, np.ndarray],
) -> None:
    """Refuse an order in which a log prior depends on a later block, or a joint log prior.

    ``values`` are the blocks in their order, (draw, coordinate), as they were given; ``without``
    are variables that have no log prior. A log prior that no regression predicts, with or without
    later blocks, is taken as it is.
    """
    names = list(values)
    rows = _rows(values)
    if len(rows) < FEWEST_DISTINCT:
        return
    values = {name: x[rows] for name, x in {**values, **without}.items()}
    log_prior = {name: x[rows] for name, x in log_prior.items()}
    if len(names) == 1:
        _check_alone(values, log_prior[names[0]], names[0])
        return
    for i, block in enumerate(names):
        if np.ptp(log_prior[block]) == 0:
            continue
        parents = _later_parents(values, log_prior[block], names, i)
        if parents is None:
            continue
        later = [name for name in names[i + 1 :] if name in parents]
        arguments = {
            name: parents if name == block else _parents(values, log_prior[name], names, name)
            for name in names
        }
        order = _sorted(names, arguments)
        unknown = [name for name in names if arguments[name] is None]
        advice = f"An order that fits is {order}."
        if order is None:
            advice = (
                "No order fits: it is a joint log prior, or a sum of several. Give each block its "
                "own, or join these blocks with groups=."
            )
        elif unknown:
            advice = (
                f"What those of {unknown} depend on is not known; place each after its parents."
            )
        raise ValueError(
            f"the log prior of {block!r} depends on {later}, which order= places after it, but a "
            f"block's prior can depend on earlier blocks only. {advice}"
        )


def _check_alone(values: Mapping[str, np.ndarray], target: np.ndarray, block: str) -> None:
    """Refuse a log prior of the only block that depends on variables without one."""
    if np.ptp(target) == 0:
        return
    finite = [
        name for name, x in values.items() if x.dtype.kind in "fiub" and np.all(np.isfinite(x))
    ]
    # a column of the log prior itself, such as lprior, says nothing
    others = [n for n in finite if _unexplained(values, target, n, ()) > DETERMINED]
    names = list(dict.fromkeys([block, *others]))[: MANY_BLOCKS + 1]
    parents = _later_parents(values, target, names, 0)
    # nor do columns that add up to it
    if parents and _unexplained(values, target, parents[0], parents[1:]) > DETERMINED:
        raise ValueError(
            f"the log prior of {block!r} depends on {list(parents)}, which have no log prior: it "
            "seems to be joint. Give the log prior of each of them on its own."
        )


def _rows(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Draws that differ from each other, in an order without trend."""
    joint = np.concatenate([np.asarray(x, float) for x in values.values()], axis=1)
    rows = np.sort(np.unique(joint, axis=0, return_index=True)[1])
    return np.random.default_rng(0).permutation(rows)[:MOST_DRAWS]


def _later_parents(
    values: Mapping[str, np.ndarray], target: np.ndarray, names: Sequence[str], i: int
) -> tuple[str, ...] | None:
    """The blocks that the log prior of block i needs if some are later, or None."""
    unexplained = np.inf
    for others in _subsets(names[:i], len(names)):
        unexplained = min(unexplained, _unexplained(values, target, names[i], others))
        if unexplained < ARGUMENT_MISSING:
            return None
    found = _parents(values, target, names, names[i])
    return found if found is not None and set(found) & set(names[i + 1 :]) else None


def _parents(
    values: Mapping[str, np.ndarray], target: np.ndarray, names: Sequence[str], block: str
) -> tuple[str, ...] | None:
    """The smallest set of other blocks that, with the block, determines its log prior, or None."""
    if np.ptp(target) == 0:
        return ()
    others = [name for name in names if name != block]
    for parents in _subsets(others, len(names)):
        if _unexplained(values, target, block, parents) < DETERMINED:
            return parents
    return None


def _subsets(names: Sequence[str], blocks: int) -> Iterator[tuple[str, ...]]:
    most = MOST_PARENTS if blocks < MANY_BLOCKS else MOST_PARENTS - 1
    for size in range(min(most, len(names)) + 1):
        yield from combinations(names, size)
    if len(names) > most:
        yield tuple(names)


def _sorted(
    names: Sequence[str], arguments: Mapping[str, tuple[str, ...] | None]
) -> list[str] | None:
    """The blocks, each after its parents and else as they are; None if there is no such order."""
    order: list[str] = []
    while len(order) < len(names):
        ready = [n for n in names if n not in order and set(arguments[n] or ()) <= set(order)]
        if not ready:
            return None
        order.append(ready[0])
    return order


def _unexplained(
    values: Mapping[str, np.ndarray], target: np.ndarray, block: str, parents: Sequence[str]
) -> float:
    """Squared error at draws that were not fitted over the spread, both by medians."""
    blocks = [values[name] for name in (block, *parents)]
    n = int(SHARE_FITTED * len(target))
    spread = np.median(abs(target - np.median(target))) or np.std(target)
    with np.errstate(all="ignore"):  # what is not finite is left out
        design = _design(blocks)[:, : int(0.8 * n)]
    design = design / np.sqrt(np.mean(design**2, axis=0))
    fitted = np.linalg.lstsq(design[:n], target[:n], rcond=1e-11)[0]
    misses = [np.median(abs(target[n:] - design[n:] @ fitted))]
    places = np.concatenate(blocks, axis=1).astype(float)
    places = places[:, np.ptp(places, axis=0) > 0]
    if 0 < places.shape[1] <= MOST_SMOOTH:
        misses.append(_interpolation_error(places, target, n))
    return float((min(misses) / spread) ** 2)


def _interpolation_error(places: np.ndarray, target: np.ndarray, n: int) -> float:
    """The median error of an interpolation of the first n draws at the others."""
    places = np.stack([np.log(x) if np.all(x > 0) else x for x in places.T], axis=1)
    places = (places - np.median(places, axis=0)) / places.std(axis=0)
    # draws that differ in other blocks alone are the same point here
    first = np.unique(places[:n], axis=0, return_index=True)[1]
    if len(first) < n / 2:
        return float("inf")
    try:
        smooth = RBFInterpolator(places[first], target[first], kernel="cubic", degree=1)
    except np.linalg.LinAlgError:  # coordinates that depend on each other linearly
        return float("inf")
    return float(np.median(abs(target[n:] - smooth(places[n:]))))


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
