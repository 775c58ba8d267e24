"""slabs: the prior of the sizes of effects, from the counts of effects at its points."""

import numpy as np
import pytest

from soubayes.sparse.inclusion.priors import SLAB_GRID, default_slab, log_normal_slab


def moments(slab, n):
    at = np.log(slab.variance * n)
    mean = slab.weight @ at
    return mean, slab.weight @ (at - mean) ** 2


def test_before_data_it_has_its_own_mean_and_width():
    slab = default_slab(50.0)
    assert slab.weight.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(slab.variance, SLAB_GRID / 50.0)
    np.testing.assert_allclose(moments(slab, 50.0), [np.log(64.0), 1.4**2], rtol=0.05)


def test_many_effects_give_it_their_mean_and_variance():
    rng = np.random.default_rng(0)
    sizes = rng.normal(np.log(4.0**8), 2.5, size=5000)
    place = np.abs(sizes[:, None] - np.log(SLAB_GRID)).argmin(axis=1)
    slab = log_normal_slab(200.0, np.bincount(place, minlength=len(SLAB_GRID)).astype(float))
    expected = np.log(SLAB_GRID)[place].mean(), np.log(SLAB_GRID)[place].var()
    np.testing.assert_allclose(moments(slab, 200.0), expected, rtol=0.02)


def test_it_has_one_peak_where_effects_have_two_sizes():
    counts = np.zeros(len(SLAB_GRID))
    counts[[1, 12]] = 40.0
    rises = np.diff(log_normal_slab(100.0, counts).weight) > 0
    assert np.sum(rises[:-1] != rises[1:]) == 1


def test_the_widest_variance_is_kept():
    assert default_slab(100.0, 25.0).variance.max() <= 25.0
    assert len(default_slab(1.0, 1e-6).variance) == 1
