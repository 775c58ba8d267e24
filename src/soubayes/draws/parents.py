"""Whether the order of the blocks fits their log priors, from the draws.

The log prior of a block is a function of the block and of earlier ones. It has no noise, so a
regression that has all its arguments and a form that can be it predicts it almost exactly at draws
that it was not fitted to.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from soubayes.draws.functions import DETERMINED, unexplained

ARGUMENT_MISSING = 0.02  # squared relative error above which an argument is missing
MOST_DRAWS = 1200
FEWEST_DISTINCT = 300  # draws that differ; fewer are repeats of a sampler that moves rarely
MOST_PARENTS = 3
MANY_BLOCKS = 6  # from here on at most two parents are looked for


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
    rows = distinct_rows(values)
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
            name: parents if name == block else find_parents(values, log_prior[name], names, name)
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
    others = [n for n in finite if unexplained([values[n]], target) > DETERMINED]
    names = list(dict.fromkeys([block, *others]))[: MANY_BLOCKS + 1]
    parents = _later_parents(values, target, names, 0)
    # nor do columns that add up to it
    if parents and unexplained([values[name] for name in parents], target) > DETERMINED:
        raise ValueError(
            f"the log prior of {block!r} depends on {list(parents)}, which have no log prior: it "
            "seems to be joint. Give the log prior of each of them on its own."
        )


def distinct_rows(values: Mapping[str, np.ndarray]) -> np.ndarray:
    """Draws that differ from each other, in an order without trend."""
    joint = np.concatenate([np.asarray(x, float) for x in values.values()], axis=1)
    rows = np.sort(np.unique(joint, axis=0, return_index=True)[1])
    return np.random.default_rng(0).permutation(rows)[:MOST_DRAWS]


def _later_parents(
    values: Mapping[str, np.ndarray], target: np.ndarray, names: Sequence[str], i: int
) -> tuple[str, ...] | None:
    """The blocks that the log prior of block i needs if some are later, or None."""
    for others in _subsets(names[:i], len(names)):
        if _miss(values, target, names[i], others) < ARGUMENT_MISSING:
            return None
    found = find_parents(values, target, names, names[i])
    return found if found is not None and set(found) & set(names[i + 1 :]) else None


def find_parents(
    values: Mapping[str, np.ndarray], target: np.ndarray, names: Sequence[str], block: str
) -> tuple[str, ...] | None:
    """The smallest set of other blocks that, with the block, determines its log prior, or None."""
    if np.ptp(target) == 0:
        return ()
    others = [name for name in names if name != block]
    for parents in _subsets(others, len(names)):
        if _miss(values, target, block, parents) < DETERMINED:
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


def _miss(
    values: Mapping[str, np.ndarray], target: np.ndarray, block: str, parents: Sequence[str]
) -> float:
    return unexplained([values[name] for name in (block, *parents)], target)
