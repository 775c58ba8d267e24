"""copies: equal columns are found in X'X, in columns and in rows, whatever their unit and sign."""

import numpy as np
import pytest
import scipy.sparse as sp

from soubayes import SoULinearRegression, SoULogisticRegression
from soubayes.sparse.designs.columns import first_in_columns, standard_columns
from soubayes.sparse.designs.standardise import column_units, first_in_gram
from soubayes.sparse.rows.passes import rows_in_memory
from soubayes.sparse.rows.starts import first_in_rows

N = 50
FIRST = [0, 1, 2, 3, 4, 5, 2, 0, 8, 3, 10, 11, 12]


def affine():
    """Copies of columns 2, 0 and 3, an almost equal column, a fresh one and two constant ones."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 6))
    X[:, 3] = rng.random(N) < 0.3
    near = X[:, 2] + 3e-4 * X[:, 1]
    rest = [rng.normal(size=N), np.zeros(N), np.full(N, 3.0)]
    return np.column_stack([X, 32.0 - 1.8 * X[:, 2], X[:, 0], near, 1.0 - X[:, 3], *rest])


def standardised(X):
    units = column_units(X, np.ones(N), True)
    return (X - units.mean) / units.divisor


def test_in_a_gram_matrix():
    Z = standardised(affine())
    np.testing.assert_array_equal(first_in_gram(Z.T @ Z), FIRST)


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("weighted", [False, True])
def test_in_columns(form, weighted):
    X = affine()
    units = column_units(X, np.ones(N), True)
    root = np.sqrt(np.random.default_rng(1).uniform(0.5, 2.0, N)) if weighted else None
    columns = standard_columns(form(X), units.mean, units.divisor, root)
    np.testing.assert_array_equal(first_in_columns(columns), FIRST)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_rows(dtype):
    """Columns that differ by 3e-4 agree in a sum of float32, but not in the rows."""
    X = affine().astype(dtype)
    units = column_units(X, np.ones(N), True)
    design = rows_in_memory(X, units, np.arange(X.shape[1]), True)
    Z = standardised(X)
    gram = np.pad((Z.T @ Z).astype(dtype).astype(float), (0, 1))
    found = first_in_rows(design, gram, np.ones(N), np.ones(N))
    np.testing.assert_array_equal(found, [*FIRST, 13])


@pytest.mark.parametrize("p", [40, 4000])
def test_almost_equal_columns(p):
    """In X'X and in columns, whatever their sign, beside columns a little farther apart."""
    rng = np.random.default_rng(p)
    X = rng.normal(size=(N, p))
    for j, (i, apart) in {17: (3, 1e-12), 20: (3, 1e-9), 31: (30, 1e-7), 8: (39, 2e-9)}.items():
        X[:, j] = np.sqrt(1.0 - 2.0 * apart) * X[:, i] + np.sqrt(2.0 * apart) * X[:, j]
    X[:, 20] *= -3.0
    Z = standardised(X)
    expected = np.arange(p)
    expected[[17, 20, 39]] = [3, 3, 8]
    np.testing.assert_array_equal(first_in_gram(Z.T @ Z), expected)
    columns = standard_columns(Z, np.zeros(p), np.ones(p))
    np.testing.assert_array_equal(first_in_columns(columns), expected)


def test_columns_that_agree_in_one_product_are_compared():
    """Mirrored about the random vector: equal products of different columns."""
    v = np.random.default_rng(0).standard_normal(N)
    x = np.random.default_rng(2).standard_normal(N)
    mirrored = 2.0 * (x @ v) / (v @ v) * v - x
    columns = standard_columns(np.column_stack([x, mirrored, -x]), np.zeros(3), np.ones(3))
    products = np.abs(columns.left(v))
    np.testing.assert_allclose(products, products[0], rtol=1e-12)
    np.testing.assert_array_equal(first_in_columns(columns), [0, 1, 0])


@pytest.mark.parametrize("make", [SoULinearRegression, SoULogisticRegression])
def test_a_constant_column_that_comes_first_has_no_copies(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 6))
    y = 2.0 * X[:, 0] - X[:, 1] + rng.normal(size=100)
    y = y > 0.0 if make is SoULogisticRegression else y
    plain = make(choice="path").fit(X, y)
    more = make(choice="path").fit(np.hstack([np.ones((100, 1)), X]), y)
    assert np.ravel(plain.selected_)[:2].all()
    np.testing.assert_array_equal(np.ravel(more.selected_)[1:], np.ravel(plain.selected_))
