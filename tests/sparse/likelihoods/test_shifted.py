"""Offsets and the centre of the intercept's prior."""

import numpy as np
import pytest

from soubayes.sparse.likelihoods.poisson import Poisson
from soubayes.sparse.likelihoods.shifted import (
    Shifted,
    about,
    beside,
    offset_apart,
    row_offsets,
    shifted,
    with_exposure,
)


def test_an_offset_is_added_to_the_predictor():
    rng = np.random.default_rng(0)
    mean, variance, offset = rng.normal(size=5), rng.uniform(0.1, 1.0, 5), rng.normal(size=5)
    y = rng.poisson(2.0, 5).astype(float)
    wrapped = Shifted(Poisson(), 0.7)
    ours = wrapped.terms(mean, variance, beside(y, offset))
    theirs = Poisson().terms(mean + offset + 0.7, variance, y)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(
        wrapped.derivatives(mean, beside(y, offset))[0],
        Poisson().derivatives(mean + offset + 0.7, y)[0],
    )
    assert isinstance(wrapped.plain, Poisson)
    np.testing.assert_array_equal(offset_apart(beside(y, offset))[1], offset)


def test_the_centre_is_that_of_the_mean_without_the_offsets():
    y = beside(np.array([2.0, 4.0]), np.array([1.0, 3.0]))
    found = shifted(Poisson(), y, np.array([1.0, 3.0]), True)
    assert found.shift == pytest.approx(np.log(3.5) - 2.5)
    assert found.start_curvature == pytest.approx(3.5)
    streamed = about(Poisson(), 4.0, np.array([3.5, 2.5]), True)
    assert streamed.shift == pytest.approx(found.shift)
    assert shifted(Poisson(), y, np.ones(2), False).shift == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: row_offsets([1.0, np.nan], 2), "NaN"),
        (lambda: row_offsets([1.0], 2), r"shape \(1,\), but there are 2 rows"),
        (lambda: with_exposure(None, [1.0, 0.0], 2), "exposure has entries of 0 or less"),
        (lambda: with_exposure(None, [1.0, -2.0], 2), "the least -2"),
        (lambda: with_exposure(None, ["a", "b"], 2), "exposure has entries such as 'a'"),
    ],
)
def test_bad_offsets_and_exposures(call, message):
    with pytest.raises(ValueError, match=message):
        call()
