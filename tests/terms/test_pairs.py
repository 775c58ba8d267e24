"""pairs, levels: products that stay where the data end, and pairs found in the rows of a fold."""

import numpy as np

from soubayes.terms.expansion import learn
from soubayes.terms.levels import margins_of, with_pairs
from soubayes.terms.pairs import CentredProduct, additive_residual
from soubayes.terms.parsing import parse_terms
from soubayes.terms.table import as_table


def table(n=300, p=6, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, p))
    terms = learn(parse_terms("pairs"), as_table(X))
    return X, terms, terms.transform(as_table(X))


def test_a_product_is_of_centred_columns_and_ends_with_the_data():
    Z = np.random.default_rng(0).normal(size=(50, 3))
    product = CentredProduct.learn(Z, np.array([0]), np.array([1, 2]))
    units = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    np.testing.assert_allclose(product.of(Z), units[:, [0]] * units[:, 1:])
    far = np.full((1, 3), 1e6)
    top = np.array([Z.max(axis=0)])
    np.testing.assert_allclose(product.of(far), product.of(top))


def test_screening_finds_the_pair_that_is_there():
    X, terms, Z = table()
    rng = np.random.default_rng(1)
    y = X[:, 0] + X[:, 1] ** 2 + 1.5 * X[:, 2] * X[:, 4] + rng.normal(size=len(X))
    margins = margins_of(terms)
    assert margins.screen(Z, y[:, None], None, 1) == [(2, 4)]
    twice = np.concatenate([Z, Z[:100]]), np.concatenate([y, y[:100]])[:, None]
    weight = 1.0 + (np.arange(len(X)) < 100)
    assert margins.screen(Z, y[:, None], weight, 5) == margins.screen(*twice, None, 5)


def test_the_additive_residual_has_nothing_straight_left():
    X, _, Z = table(n=2_000)
    residual = additive_residual(Z, (X @ np.arange(6.0))[:, None], np.ones(len(Z)))
    assert np.abs(residual).max() < 0.05
    wide = np.random.default_rng(2).normal(size=(40, 100))
    y = np.random.default_rng(3).normal(size=(40, 1))
    tall_way = ridge_residual(wide, y)
    np.testing.assert_allclose(additive_residual(wide, y, np.ones(40)), tall_way, atol=1e-8)


def ridge_residual(Z, y):
    """The same from n x n systems, over the same penalties."""
    Zs = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    y = y - y.mean()
    best = (np.inf, None)
    for penalty in np.geomspace(1e-4, 1e3, 15) * len(Z) / 10.0:
        K = np.eye(len(Z)) + Zs @ Zs.T / penalty
        inside = np.linalg.solve(K, y)
        cost = len(Z) * np.log(float((y.T @ inside).item())) + np.linalg.slogdet(K)[1]
        best = min(best, (cost, inside), key=lambda pair: pair[0])
    return best[1]


def test_levels_are_nested_and_folds_screen_their_own_pairs():
    X, terms, Z = table()
    y = (X[:, 0] * X[:, 1])[:, None]
    terms, found = with_pairs(terms, Z, y, None, True)
    assert found.levels == [0, 1, 2, 3]
    assert [found.title(k) for k in found.levels] == ["straight", "curves", "8 pairs", "15 pairs"]
    Z = terms.transform(as_table(X))
    sizes = [found.on_all_rows(Z, k).matrix.shape[1] for k in found.levels]
    assert sizes == [6, 6 * 9, 6 * 9 + 8 * 9, 6 * 9 + 15 * 9]
    rows = np.arange(150)
    pairs = found.screen(Z, rows)
    assert pairs[0] == (0, 1)
    moved = Z.copy()
    moved[150:] = 7.0  # rows that are held out do not matter
    assert found.screen(moved, rows) == pairs
    here = found.in_fold(Z, 2, pairs, rows)
    assert here.matrix.shape == (300, 6 * 9 + 8 * 9)
    assert len(here.names) == here.number.max() + 1
