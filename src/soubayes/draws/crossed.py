"""The first block's ratio where the data depend on it only through the later blocks.

Then p(theta_1 | y) / pi(theta_1) = E[ pi(theta_2 | theta_1) / pi(theta_2) | y ], an average over
draws of theta_2, each crossed with every theta_1 (the Rao-Blackwell form of Gelfand and Smith
1990). pi(theta_2) is itself an average over draws of theta_1 from its prior. Nothing is assumed of
shapes; but with many later coordinates few of the crossed draws matter, and the average is poor.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class Crossed(NamedTuple):
    """log pi(theta_2 | theta_1) for some draws of theta_2, (theta_1, theta_2).

    Rows of ``posterior`` are all draws; rows of ``prior`` are draws of theta_1 from its prior.
    ``columns`` says which of the draws the columns are.
    """

    posterior: np.ndarray
    prior: np.ndarray
    columns: np.ndarray


def crossed_ratios(crossed: Crossed, half: np.ndarray) -> list[np.ndarray]:
    """r_1 at every draw: from all columns, from those of each half, and with half of the prior."""
    first = half[crossed.columns]
    every = np.ones(len(first), bool)
    prior = crossed.prior
    return [
        *(_ratio(crossed, columns, prior) for columns in (every, first, ~first)),
        _ratio(crossed, every, prior[::2]),
    ]


def _ratio(crossed: Crossed, columns: np.ndarray, prior: np.ndarray) -> np.ndarray:
    marginal = logsumexp(prior[:, columns], axis=0) - np.log(len(prior))
    logs = crossed.posterior[:, columns] - marginal
    own = crossed.columns[columns]
    logs[own, np.arange(len(own))] = -np.inf  # a draw says nothing about itself
    count = np.full(len(logs), float(len(own)))
    count[own] -= 1
    return np.maximum(logsumexp(logs, axis=1), np.log(1e-300)) - np.log(count)
