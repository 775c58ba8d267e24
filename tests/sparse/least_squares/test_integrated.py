"""integrated: two scales on a grid against quadrature of the dense marginal likelihood."""

import numpy as np
import pandas as pd

from soubayes import SoULinearRegression


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
