"""Blocks, models and discrete priors: what they take and how they refuse."""

import numpy as np
import pytest
from scipy import stats

from soubayes import Block, Discrete, Model


def test_discrete_weights_are_normalised_and_checked():
    assert Discrete(["a", "b"], [1, 3]).weights == pytest.approx([0.25, 0.75])
    assert Discrete([0, 1], [[1, 1], [3, 1]]).weights[1] == pytest.approx([0.75, 0.25])
    for weights in ([-1, 2], [0, 0], [np.nan, 1]):
        with pytest.raises(ValueError, match="nonnegative"):
            Discrete([0, 1], weights)
    with pytest.raises(ValueError, match="m values and m weights"):
        Discrete([0, 1, 2], [1, 1])


@pytest.mark.parametrize("prior", ["norm", 3.0, None, stats.norm, (), [stats.norm(), 1]])
def test_a_prior_that_is_none_is_explained(prior):
    with pytest.raises(TypeError, match="prior of block 'mu'"):
        Block("mu", prior)


def test_models_are_checked():
    mu = Block("mu", stats.norm())
    with pytest.raises(ValueError, match=r"\['mu'\] occur twice"):
        Model([mu, mu], lambda a, b: a)
    with pytest.raises(TypeError, match="no earlier"):
        Model([Block("x", lambda: stats.norm())], lambda x: x)
    with pytest.raises(TypeError, match="loss must be a function"):
        Model([mu], 3.0)
    with pytest.raises(TypeError, match="at least one Block"):
        Model([], lambda: 0)
    with pytest.raises(TypeError, match="nonempty string"):
        Block("", stats.norm())
