"""sizes: odds given the Bayes factors of other columns, against the sum over all supports."""

import itertools

import numpy as np
import pytest

from enumeration import log_size_prior
from soubayes.sparse.inclusion.priors import SizePrior


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_odds_are_those_of_all_supports_of_orthogonal_columns(weight):
    log_bayes = np.array([3.0, -0.7, 0.4, 8.0, -1.0])
    p = len(log_bayes)
    total = np.zeros((2, p))  # mass of supports without and with each column
    for support in itertools.product([0, 1], repeat=p):
        k = sum(support)
        mass = np.exp(log_size_prior(k, p, weight) + log_bayes @ np.array(support))
        for j in range(p):
            total[support[j], j] += mass
    expected = np.log(total[1] / total[0]) - log_bayes
    found = SizePrior(weight).log_odds(log_bayes, p)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_a_place_that_is_not_counted_says_nothing():
    few = SizePrior().log_odds(np.array([2.0, 1.0]), 6)
    more = SizePrior().log_odds(np.array([2.0, 1.0, 9.0]), 6, np.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(more[:2], few, atol=1e-12)
