"""How many columns carry an effect: a beta-binomial prior, and what the others say about it."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

Array = np.ndarray

NODES = 64


@dataclass(frozen=True)
class SizePrior:
    """The share of columns with an effect is Beta(1, 1 + weight p), unknown and integrated out.

    Weight 0 is a uniform prior of the number of effects, weight 1 halves it with each effect.
    """

    weight: float = 0.5

    def log_odds(self, log_bayes: Array, p: int, counted: Array | float = 1.0) -> Array:
        """Prior log odds of each place for an effect, given the Bayes factors of all the others.

        Given the share pi the places are independent, place k with a likelihood 1 - pi + pi B_k.
        So the odds of place j are the ratio of the integrals of pi and of 1 - pi against the
        prior times the likelihoods of all places but j. A place may be ``counted`` in part: a
        column that one of the effects has taken is no place of its own.

        >>> SizePrior(0.0).log_odds(np.full(3, -np.inf), 3).round(2)  # B(2, 3)/B(1, 4) = 1/3
        array([-1.1, -1.1, -1.1])
        """
        logit = np.linspace(-np.log(p) - 7.0, 12.0, NODES)
        log_pi, log_rest = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
        each = np.logaddexp(log_rest, log_pi + log_bayes[:, None])  # (places, nodes)
        # density of Beta(1, 1 + weight p), times dpi/dlogit
        log_weight = self.weight * p * log_rest + log_pi + log_rest
        each = each * np.reshape(counted, (-1, 1))
        without = log_weight + each.sum(axis=0) - each
        return logsumexp(without + log_pi, axis=1) - logsumexp(without + log_rest, axis=1)
