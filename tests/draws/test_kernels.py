"""Kernel estimates of conditional densities, and when they replace the regression."""

import numpy as np
import pytest
from scipy import stats

from soubayes.draws.kernels import Bandwidths, choose_bandwidths, kernel_log_density
from soubayes.draws.known import Draws
from soubayes.draws.ratios import FULL, _regression, ratios


def test_a_kernel_estimate_by_hand():
    """Five draws: normal kernels weighted by context, a draw left out of its own estimate."""
    x, context = np.array([0.0, 1.0, 3.0, -1.0, 0.5]), np.array([0.3, -1.0, 0.2, 0.7, 2.0])
    widths = Bandwidths(0.4, 0.6)
    z, c = ((v - v.mean()) / v.std(ddof=d) for v, d in ((x, 0), (context, 1)))
    expected = []
    for i in range(5):
        others = [j for j in range(5) if j != i]
        weight = stats.norm.pdf((c[i] - c[others]) / 0.6) / stats.norm.pdf(0)
        kernel = stats.norm.pdf(z[i], z[others], 0.4)
        total = weight @ kernel + 0.1 * stats.norm.pdf(z[i], 0, 2)
        expected.append(np.log(total / (weight.sum() + 0.1) / x.std()))
    every = np.ones(5, bool)
    found = kernel_log_density(x, context[:, None], every, widths)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    some = kernel_log_density(x, context[:, None], every, widths, np.array([3, 0]))
    np.testing.assert_allclose(some, found[[3, 0]])


def test_one_coordinate_alone():
    x = np.random.default_rng(0).normal(size=3000) * 3 + 1
    widths = choose_bandwidths(x, np.empty((3000, 0)))
    found = kernel_log_density(x, np.empty((3000, 0)), np.ones(3000, bool), widths)
    assert np.std(found - stats.norm(1, 3).logpdf(x)) < 0.15
    assert 0.1 < widths.x < 0.6  # the best for a normal density is 0.21


def shells(seed, n=4000):
    """(a, b) near a circle of radius 2: given a there are two modes, at places that depend on a."""
    rng = np.random.default_rng(seed)
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(2.0, 0.3, n)
    a, b = radius * np.cos(angle), radius * np.sin(angle)
    grid = np.linspace(-4, 4, 401)

    def joint(a, b):
        r = np.hypot(a, b)
        return stats.norm(2.0, 0.3).logpdf(r) - np.log(2 * np.pi * r)

    marginal = np.log(np.trapezoid(np.exp(joint(a[:, None], grid)), grid, axis=1))
    return a, b, marginal, joint(a, b) - marginal


def test_kernels_are_used_where_the_regression_cannot_follow():
    a, b, of_a, of_b = shells(0)
    c = np.random.default_rng(1).normal(size=4000)
    flat = np.zeros(4000)
    names = ("a", "b", "c")
    draws = Draws(
        names,
        {"a": a[:, None], "b": b[:, None], "c": c[:, None]},
        dict.fromkeys(names, flat),
        dict.fromkeys(names, flat),
        of_a + of_b + stats.norm.logpdf(c),
        frozenset(),
        {},
        {},
        4,
    )
    found = ratios(draws)
    every = np.ones(4000, bool)
    regression = np.std(_regression(b, a[:, None], every, FULL) - of_b)
    assert regression > 0.5
    assert np.std(found.best["b"] - of_b) < 0.5 * regression
    assert np.std(found.best["a"] - of_a) < 0.15
    assert np.std(found.last - stats.norm.logpdf(c)) < 0.15


def test_a_level_with_a_handful_of_draws():
    """Three draws of one level, all in the first half: a normal density, and nothing fails."""
    rng = np.random.default_rng(3)
    kind = np.zeros((4000, 1), int)
    kind[:3] = 1
    x, last = rng.normal(size=(2, 4000, 1))
    names, flat = ("kind", "x", "last"), np.zeros(4000)
    values = dict(zip(names, (kind, x, last), strict=True))
    zeros = dict.fromkeys(names, flat)
    found = ratios(Draws(names, values, zeros, zeros, flat, frozenset({"kind"}), {}, {}, 1))
    by_hand = stats.norm(x[:3].mean(), x.std()).logpdf(x[:3, 0])
    np.testing.assert_allclose(found.best["x"][:3], by_hand)
    assert np.all(np.isfinite(found.others["second half"]["x"]))


@pytest.mark.parametrize("bend", [0.0, 0.5])
def test_the_regression_is_kept_where_it_is_better(bend):
    rng = np.random.default_rng(2)
    a = rng.normal(size=4000)
    b = bend * a**2 + np.exp(0.3 * a) * rng.normal(size=4000)
    flat = np.zeros(4000)
    draws = Draws(
        ("a", "b"),
        {"a": a[:, None], "b": b[:, None]},
        {"a": flat, "b": flat},
        {"a": flat, "b": flat},
        flat,
        frozenset(),
        {},
        {},
        4,
    )
    every = np.ones(4000, bool)
    np.testing.assert_array_equal(ratios(draws).last, _regression(b, a[:, None], every, FULL))
