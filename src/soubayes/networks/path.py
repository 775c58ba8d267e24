"""A path of confidences in one training: its stages, its table, and the choice of a network.

Training starts at the first confidence in the weights. Every later stage starts from the network of
the one before, moves the confidence gradually, and takes a part of its epochs. Units are only
removed, never added, so the networks of a path are ordered from large to small. A lower confidence
after a higher one estimates the weights of a small network again, with less regularisation.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from soubayes.networks.removal import network_size
from soubayes.networks.state import PathStage, StageEnd
from soubayes.networks.structure import Spec

DIAL_CONFIDENCES = (0.03, 0.1, 0.3, 1.0)  # of confidence_weights="auto"
LATER, ALL_LATER = 0.5, 1.5  # epochs of a later stage, and of all of them, over the first one's
AUTO_LATER, REFIT = 1.0, 0.5  # of all later stages of "auto", and of the training on all rows after
# with fewer rows "auto" trains each confidence by itself, for this part of the epochs
SEPARATE_ROWS, SEPARATE = 4000, 0.5
HELD_OUT, FEW_HELD_OUT, HELD_OUT_ROWS = 0.1, 0.3, 250  # part of the rows that "auto" scores on
FEWEST_TO_CHOOSE = 10  # with fewer "auto" has nothing to choose by and is confidence 1
PAIRED = 1.0  # standard errors that a held-out loss may lie above the lowest: see the measurements
ROUND = 20  # default numbers of epochs are multiples of it, so several fit into one call


def confidences(setting: Any) -> tuple[float, ...]:
    """The confidences of a setting of `confidence_weights`, in the order of their stages.

    >>> confidences(0.5), confidences([1, 0.1]), len(confidences("auto"))
    ((0.5,), (1.0, 0.1), 4)
    """
    if isinstance(setting, str):
        return DIAL_CONFIDENCES
    return tuple(float(value) for value in np.atleast_1d(setting))


def held_out_part(n: int) -> float:
    """Part of n rows to choose and to calibrate on: a tenth, more of few rows.

    >>> held_out_part(200), held_out_part(1000), held_out_part(60_000)
    (0.3, 0.25, 0.1)
    """
    return min(FEW_HELD_OUT, max(HELD_OUT, HELD_OUT_ROWS / n))


def stages(
    values: Sequence[float],
    epochs: int | Sequence[int],
    rounded: bool = False,
    all_later: float = ALL_LATER,
) -> tuple[PathStage, ...]:
    """Epochs of every confidence: given one by one, or shares of the number for the first.

    Shares are `rounded` to multiples of ROUND unless a number was given.

    >>> stages([0.1, 1.0], 100)
    (PathStage(start=0, stop=100, confidence=0.1), PathStage(start=100, stop=150, confidence=1.0))
    >>> stages([0.1, 1.0], [10, 30])
    (PathStage(start=0, stop=10, confidence=0.1), PathStage(start=10, stop=40, confidence=1.0))
    """
    if isinstance(epochs, int):
        share = min(LATER, all_later / max(1, len(values) - 1))
        later = max(1, int(share * epochs))
        if rounded:
            epochs, later = (-(-count // ROUND) * ROUND for count in (epochs, later))
        epochs = [epochs, *[later] * (len(values) - 1)]
    stops = np.cumsum(epochs).tolist()
    return tuple(map(PathStage, [0, *stops[:-1]], stops, values))


def path_columns(spec: Spec, ends: Sequence[StageEnd]) -> dict[str, list[Any]]:
    """Columns of a path's table that the networks themselves tell."""
    rows = []
    for end in ends:
        units, reads = network_size(spec, end.kept)
        adds, parameters = spec.cost(units, reads)
        counts = {f"units_{i}": count for i, count in enumerate(units[:-1], start=1)}
        inputs = {"inputs": reads} if spec.gate is not None else {}
        rows.append({**inputs, **counts, "multiply_adds": adds, "parameters": parameters})
    return {name: [row[name] for row in rows] for name in rows[0]}


def best_confidence(
    losses: Sequence[np.ndarray], values: Sequence[float], weight: np.ndarray
) -> int:
    """The highest confidence that is not clearly worse than the one of the lowest mean loss.

    Clearly worse is a mean difference of the rows' losses above PAIRED standard errors of it: few
    rows cannot tell neighbours apart, and there the more regularised network is the safer one.

    >>> losses = [np.array([1.0, 2.0, 3.0]), np.array([1.1, 1.9, 3.05]), np.array([4.0, 5.0, 6.0])]
    >>> best_confidence(losses, [0.1, 0.3, 1.0], np.ones(3))
    1
    """
    means, _ = mean_and_error(losses, weight)
    lowest = int(np.argmin(means))
    gaps, errors = mean_and_error([loss - losses[lowest] for loss in losses], weight)
    good = np.flatnonzero(gaps <= PAIRED * errors).tolist()
    return max(good, key=lambda i: values[i])


def smallest_good(losses: Sequence[np.ndarray], sizes: Sequence[int], weight: np.ndarray) -> int:
    """The smallest network whose mean loss is within one standard error of the lowest.

    >>> losses = [np.array([1.0, 1.4]), np.array([1.1, 1.4]), np.array([3.0, 3.0])]
    >>> smallest_good(losses, [300, 200, 100], np.ones(2))
    1
    """
    means, errors = mean_and_error(losses, weight)
    best = int(np.argmin(means))
    good = np.flatnonzero(means <= means[best] + errors[best]).tolist()
    return min(good, key=lambda i: sizes[i])


def mean_and_error(
    losses: Sequence[np.ndarray], weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means of the rows' losses and their standard errors."""
    share = weight / weight.sum()
    table = np.array(losses, float)
    means = table @ share
    spread = ((table - means[:, None]) ** 2) @ share**2
    return means, np.sqrt(spread)
