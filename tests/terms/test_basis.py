"""basis: natural coordinates, checked against integrals and closed forms."""

import numpy as np
import pytest
from scipy.integrate import quad

from soubayes.terms.basis import cycle, spline


def test_columns_are_uncorrelated_with_each_other_and_with_x():
    x = np.random.default_rng(0).gamma(2.0, size=300)
    Z = spline(x).curved(x)
    gram = Z.T @ Z / len(x)
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-8)
    np.testing.assert_allclose(Z.T @ np.column_stack([np.ones(300), x]) / 300, 0.0, atol=1e-8)
    np.testing.assert_allclose(Z.var(axis=0).sum(), 1.0, rtol=1e-6)


def test_variances_are_inverse_to_the_roughness():
    x = np.sort(np.random.default_rng(1).normal(size=200))
    basis = spline(x, 5)
    Z, width = basis.curved(x), x[-1] - x[0]

    def bend(k):
        def second(t):
            h = 1e-4 * width
            at = np.array([t - h, t, t + h])
            return float((basis.curved(at)[:, k] @ [1.0, -2.0, 1.0] / h**2) ** 2)

        return quad(second, x[0] + 2e-4 * width, x[-1] - 2e-4 * width, limit=200)[0]

    rough = np.array([bend(k) for k in range(5)])
    # the columns were divided by the root of their eigenvalue: all have the same roughness
    np.testing.assert_allclose(rough / rough.mean(), 1.0, rtol=0.02)
    assert np.all(np.diff(Z.var(axis=0)) < 0)


def test_beyond_the_data_a_curve_goes_on_straight():
    x = np.random.default_rng(2).uniform(size=100)
    basis = spline(x)
    far = basis.curved(np.array([x.max(), x.max() + 1.0, x.max() + 2.0]))
    np.testing.assert_allclose(far[2] - far[1], far[1] - far[0], rtol=1e-8)
    near = basis.curved(np.array([x.max() - 1e-6, x.max(), x.max() + 1e-6]))
    np.testing.assert_allclose(near[2] - near[1], near[1] - near[0], rtol=1e-3, atol=1e-12)


def test_shift_and_unit_of_x_change_nothing():
    x = np.random.default_rng(3).normal(size=150)
    np.testing.assert_allclose(
        spline(x).curved(x), spline(5.0 + 1e3 * x).curved(5.0 + 1e3 * x), atol=1e-6
    )


def test_a_weight_counts_rows():
    x = np.random.default_rng(4).normal(size=80)
    twice = np.concatenate([x, x[:30]])
    weight = 1.0 + (np.arange(80) < 30)
    np.testing.assert_allclose(
        spline(x, 6, weight).curved(x), spline(twice, 6).curved(x), atol=1e-8
    )


@pytest.mark.parametrize("distinct", [3, 4, 7])
def test_ties_leave_as_many_columns_as_there_are_values(distinct):
    x = np.random.default_rng(5).integers(0, distinct, 200).astype(float)
    Z = spline(x).curved(x)
    assert Z.shape[1] == distinct - 2
    assert np.linalg.matrix_rank(np.column_stack([np.ones(200), x, Z])) == distinct


def test_a_cycle_repeats_smoothly_and_has_mean_zero():
    x = np.random.default_rng(6).uniform(0.5, 12.5, 200)
    basis = cycle(x, 0.5, 12.5)
    Z = basis.curved(x)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-10)
    ends = basis.curved(np.array([0.5, 12.5 - 1e-9, 24.5, 0.5 + 1e-5, 12.5 - 1e-5]))
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-6)
    np.testing.assert_allclose(ends[0], ends[2], atol=1e-9)
    np.testing.assert_allclose(ends[3] - ends[0], ends[0] - ends[4], atol=1e-7)


def test_too_few_values_are_refused():
    with pytest.raises(ValueError, match="at least 3 distinct values, but there are 2"):
        spline(np.array([0.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="its end must lie above its begin"):
        cycle(np.arange(5.0), 3.0, 3.0)
