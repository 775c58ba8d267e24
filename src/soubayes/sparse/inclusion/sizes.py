"""How many columns carry an effect: a beta-binomial prior, and what the others say about it."""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

NODES = 64


@dataclass(frozen=True)
class SizePrior:
    """The share of columns with an effect is Beta(1, 1 + weight p) or uniform, with equal odds.

    The first says that effects are few: their number falls like (1 + weight)^-k. The second, a
    uniform prior of their number, takes over where they are many. The share is integrated out.
    """

    weight: float = 0.5

    def log_odds(
        self,
        log_bayes: Array,
        p: int,
        counted: Array | float = 1.0,
        known: Array | float = 0.0,
    ) -> Array:
        """Prior log odds of each place for an effect, given the Bayes factors of all the others.

        Given the share pi the places are independent, place k with a likelihood 1 - pi + pi B_k.
        So the odds of place j are the ratio of the integrals of pi and of 1 - pi against the
        prior times the likelihoods of all places but j. A place may be ``counted`` in part: a
        column that one of the effects has taken is no place of its own. ``known`` adds the log
        likelihoods of further places, (nodes,).

        >>> SizePrior(0.0).log_odds(np.full(3, -np.inf), 3).round(2)  # B(2, 3)/B(1, 4) = 1/3
        array([-1.1, -1.1, -1.1])
        """
        log_pi, log_rest = _nodes(p)
        each = self.log_likelihoods(log_bayes, p)
        few = np.log1p(self.weight * p) + self.weight * p * log_rest
        # densities of both, times dpi/dlogit
        log_weight = np.logaddexp(few, 0.0) + log_pi + log_rest + known
        each = each * np.reshape(counted, (-1, 1))
        without = log_weight + each.sum(axis=0) - each
        return log_sum(without + log_pi) - log_sum(without + log_rest)

    def log_likelihoods(self, log_bayes: Array, p: int) -> Array:
        """log(1 - pi + pi B_k) of each place at nodes of pi, (places, nodes)."""
        log_pi, log_rest = _nodes(p)
        return np.logaddexp(log_rest, log_pi + log_bayes[:, None])


def _nodes(p: int) -> tuple[Array, Array]:
    """log pi and log(1 - pi), evenly spaced in log(pi/(1 - pi))."""
    logit = np.linspace(-np.log(p) - 7.0, 12.0, NODES)
    return -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)


def log_sum(values: Array) -> Array:
    """log of the sum of exp(values) over the last axis, whose largest entry is finite.

    Three times as fast as scipy's at these shapes, where it is a large share of a sweep.

    >>> log_sum(np.log([[1.0, 2.0], [3.0, 4.0]])).round(4)
    array([1.0986, 1.9459])
    """
    top = values.max(axis=-1, keepdims=True)
    return np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0]
