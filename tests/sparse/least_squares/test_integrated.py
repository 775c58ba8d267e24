"""integrated: two scales on a grid against quadrature of the dense marginal likelihood."""

import numpy as np
import pandas as pd

from soubayes import SoULinearRegression
from soubayes.terms.table import as_table


def test_two_crossed_units_against_quadrature():
    rng = np.random.default_rng(0)
    a, b = np.repeat(np.arange(8), 10), np.tile(np.arange(10), 8)
    y = rng.normal(size=8)[a] + 0.5 * rng.normal(size=10)[b] + rng.normal(size=80)
    X = pd.DataFrame({"a": a.astype(str), "b": b.astype(str)})
    model = SoULinearRegression(terms=["(1 | a)", "(1 | b)"]).fit(X, y)
    table = model.variance_components()
    # balanced: the restricted likelihood is a product of chi-squared densities of mean squares
    total = y.reshape(8, 10)
    rows, columns = total.mean(axis=1), total.mean(axis=0)
    ss_a, ss_b = 10 * np.sum((rows - y.mean()) ** 2), 8 * np.sum((columns - y.mean()) ** 2)
    ss = np.sum((total - rows[:, None] - columns + y.mean()) ** 2)
    r, s = np.meshgrid(np.linspace(0.01, 5, 300), np.linspace(0.005, 3, 300), indexing="ij")
    lambda_a, lambda_b = 1 + 10 * r**2, 1 + 8 * s**2
    log_density = -0.5 * (7 * np.log(lambda_a) + 9 * np.log(lambda_b))
    quadratic = ss_a / lambda_a + ss_b / lambda_b + ss
    log_density -= 0.5 * 79 * np.log(quadratic)
    weights = np.exp(log_density - log_density.max())
    sigma = np.sqrt(quadratic / 79)
    for name, ratio in (("(1 | a)", r), ("(1 | b)", s)):
        values, share = (ratio * sigma).ravel(), weights.ravel() / weights.sum()
        order = np.argsort(values)
        ends = np.interp([0.05, 0.95], np.cumsum(share[order]), values[order])
        ours = table.loc[name, ["lower", "upper"]].to_numpy(float)
        np.testing.assert_allclose(ours, ends, rtol=0.1, atol=0.03)
    assert table.loc["(1 | a)", "p_value"] < 0.01


def test_a_variance_that_is_fitted_as_zero_has_an_interval():
    rng = np.random.default_rng(1)
    X = pd.DataFrame({"site": np.repeat(np.arange(6), 5).astype(str)})
    found = []
    for _ in range(8):
        table = (
            SoULinearRegression(terms=["(1 | site)"])
            .fit(X, rng.normal(size=30))
            .variance_components()
        )
        if table["sd"].iloc[0] < 1e-3:
            found.append((table["upper"].iloc[0], table["p_value"].iloc[0]))
    assert len(found) >= 2
    assert all(upper > 0.1 and p >= 0.25 for upper, p in found), found


def test_a_curve_that_is_left_out_has_the_posterior_of_its_scale():
    """By quadrature over tau of the marginal distribution of y."""
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(120, 3))
    y = X[:, 0] + 0.1 * np.tanh(6 * (X[:, 0] - 0.5)) + 0.5 * rng.normal(size=120)
    model = SoULinearRegression(terms=["required(x1)", "s(x0)"], choice="path").fit(X, y)
    inner, blocks = model._inner, model._expansion.slices()
    known = {int(one.columns[0]): one for one in inner._left_out[0]}
    one = known[blocks[2].start]  # the curved part of x0
    Z = model._expansion.transform(as_table(X))
    kept = np.flatnonzero(inner.selected_)
    noise = inner.noise_variance_
    fixed, curve = Z[:, kept] - Z[:, kept].mean(axis=0), Z[:, one.columns]
    curve = curve - curve.mean(axis=0)
    unit = np.sqrt(curve.var(axis=0).sum())
    off = y - y.mean()
    part = inner.mixtures_[0].components[0]
    sd, shrinkage = inner.coef_sd_[kept], inner.shrinkage_[kept]
    prior = sd**2 / shrinkage  # of the columns that are kept
    degrees, total = 2.0 * part.noise_shape, np.zeros(len(one.columns) + 1)
    log_weights, means, seconds = [], [], []
    grid = np.linspace(-7.0, 7.0, 29)
    for t in grid:
        K = np.eye(120) + (fixed * (prior / noise)) @ fixed.T
        K += np.exp(2 * t) / unit**2 * curve @ curve.T
        inverse = np.linalg.inv(K)
        # K acts on centred y: log|K| is that of the rows
        log_weights.append(
            t - 0.5 * np.linalg.slogdet(K)[1] - 0.5 * degrees * np.log(off @ inverse @ off)
        )
        mean = np.exp(2 * t) / unit**2 * curve.T @ inverse @ off
        S = np.exp(2 * t) / unit**2 * np.eye(len(mean))
        S = noise * (S - S @ curve.T @ inverse @ curve @ S)
        means.append(mean)
        seconds.append(S + np.outer(mean, mean))
    share = np.exp(np.array(log_weights) - max(log_weights))
    share /= share.sum()
    mean = share @ np.array(means)
    total = np.tensordot(share, np.array(seconds), 1) - np.outer(mean, mean)
    np.testing.assert_allclose(one.mean, mean, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(one.covariance, total, rtol=1e-4, atol=1e-8)
    # so the band of a line is not that of a curve that is known to be straight
    band = model.terms_["s(x0)"]
    assert model.summary()["kind"]["s(x0)"] == "straight"
    middle = np.abs(band["x0"] - X[:, 0].mean()).to_numpy().argmin()
    assert (band["upper"] - band["lower"]).iloc[middle] > 0.05
