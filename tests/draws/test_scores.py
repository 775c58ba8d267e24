"""Normal scores of a block in its prior, and how surprising the posterior is, at every level."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from soubayes import sensitivity
from soubayes.draws.forms import as_tree
from soubayes.draws.known import from_arviz
from soubayes.draws.scores import prior_scores, surprise

norm = stats.norm


def known(values, prior, likelihood):
    """Draws without a model."""
    columns = {}
    for name, x in values.items():
        x = x.reshape(len(x), -1)
        columns |= {f"{name}[{j}]" if x.shape[1] > 1 else name: x[:, j] for j in range(x.shape[1])}
    tables = (columns, prior, {"y": likelihood})
    names = ("posterior", "log_prior", "log_likelihood")
    return dict(zip(names, map(pd.DataFrame, tables), strict=True))


def chain(y, n=4000, seed=0):
    """mu ~ N(0, 1), x ~ N(mu, 1), y ~ N(x, 1): the posterior is normal."""
    rng = np.random.default_rng(seed)
    mu = rng.normal(y / 3, np.sqrt(2 / 3), n)
    x = rng.normal((mu + y) / 2, np.sqrt(1 / 2))
    prior = {"mu": norm.logpdf(mu), "x": norm(mu).logpdf(x)}
    return known({"mu": mu, "x": x}, prior, norm(x).logpdf(y))


@pytest.mark.parametrize("y", [0.8, 3.0, 5.0])
def test_both_levels_of_a_chain_are_as_surprising_as_y_is(y):
    """y is N(0, 3) under the model, and both posterior means are multiples of it."""
    draws = from_arviz(as_tree(chain(y)), ["mu", "x"], {})
    exact = y / np.sqrt(3)
    for block in ("mu", "x"):
        z = norm.isf(surprise(prior_scores(draws, block)) / 2)
        # z = mean / sqrt(1 - v) at v = 2 / 3, from 4,000 draws
        error = np.sqrt((v := 2 / 3) / (1 - v) / 4000 + (exact * v / (1 - v)) ** 2 / 8000)
        assert abs(z - exact) < 4 * error


def test_a_lower_level_is_rarely_called_a_conflict_by_chance():
    rng = np.random.default_rng(5)
    words = [
        sensitivity(chain(rng.normal(0, np.sqrt(3)), 1000, seed), order=["mu", "x"])
        .blocks["diagnosis"]
        .to_numpy()
        for seed in range(40)
    ]
    called = np.mean(np.stack(words) == "prior-data conflict", axis=0)
    assert np.all(called <= 0.15)  # 5.5 % expected: 0.15 is 2.6 standard errors above


def levels(n=2000, seed=1):
    """Draws of a normal, a gamma and a beta level with parents, as their priors have them."""
    rng = np.random.default_rng(seed)
    m, s = rng.normal(1, 0.5, n), np.exp(rng.normal(0, 0.4, n))
    x = rng.normal(m[:, None], s[:, None], (n, 3))
    g = rng.gamma(3, 1 / s[:, None], (n, 4))
    values = {"m": m, "s": s, "x": x, "g": g}
    prior = {
        "m": norm(1, 0.5).logpdf(m),
        "s": stats.lognorm(0.4).logpdf(s),
        "x": norm(m[:, None], s[:, None]).logpdf(x).sum(axis=1),
        "g": stats.gamma(3, scale=1 / s[:, None]).logpdf(g).sum(axis=1),
    }
    return known(values, prior, -0.5 * x[:, 0] ** 2), (x - m[:, None]) / s[:, None]


def test_scores_of_draws_from_the_prior_are_standard_normal():
    given, standard = levels()
    draws = from_arviz(as_tree(given), ["m", "s", "x", "g"], {})
    for block in draws.names:
        scores = prior_scores(draws, block)
        count, size = scores.normal.shape
        assert np.all(abs(scores.normal.mean(axis=0)) < 4 / np.sqrt(count) + 0.05)
        assert np.all(abs(scores.normal.std(axis=0) - 1) < 4 / np.sqrt(2 * count) + 0.1)
        np.testing.assert_allclose(scores.correlation, np.eye(size), atol=0.05)
    at = np.arange(0, 2000, -(-2000 // len(prior_scores(draws, "x").normal)))
    np.testing.assert_allclose(prior_scores(draws, "x").normal, standard[at], atol=0.02)


def test_the_power_of_a_lower_prior_leaves_its_normaliser_out():
    """Of x ~ N(m, s) the power is of exp(-(x - m)^2 / (2 s^2)), without the factor 1 / s."""
    given, standard = levels()
    draws = from_arviz(as_tree(given), ["m", "s", "x", "g"], {})
    power = prior_scores(draws, "x").log_prior + 0.5 * (standard**2).sum(axis=1)
    assert np.std(power) < 0.02 * np.std(draws.log_prior["x"])


def test_correlated_coordinates():
    """A normal level with a covariance: scores have the correlation of the precision."""
    rng = np.random.default_rng(2)
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    x = rng.multivariate_normal([0, 0], covariance, 2000)
    given = known({"x": x}, {"x": stats.multivariate_normal([0, 0], covariance).logpdf(x)}, x[:, 0])
    scores = prior_scores(from_arviz(as_tree(given), ["x"], {}), "x")
    np.testing.assert_allclose(scores.correlation[0, 1], -0.8, atol=0.01)
    np.testing.assert_allclose(np.corrcoef(scores.normal.T)[0, 1], -0.8, atol=0.05)
