"""field and quadratics: the evidence under changes of a few prior variances, against Omega."""

import numpy as np
import pytest
import scipy.sparse as sp

from soubayes.sparse.designs.columns import standard_columns
from soubayes.sparse.inclusion.field import ColumnQuadratic, Field, GramQuadratic

RNG = np.random.default_rng(0)
RAW = RNG.poisson(0.7, size=(20, 30)).astype(float)
MEAN, SD = RAW.mean(axis=0), RAW.std(axis=0)
X = (RAW - MEAN) / SD
Y = RNG.normal(size=20)
SOURCES = {
    "gram": lambda: GramQuadratic(X.T @ X, X.T @ Y, float(Y @ Y), 20.0),
    "columns": lambda: ColumnQuadratic(standard_columns(RAW, MEAN, SD), Y, 20.0),
    "sparse": lambda: ColumnQuadratic(standard_columns(sp.csr_array(RAW), MEAN, SD), Y, 20.0),
}


def direct(d):
    inverse = np.linalg.inv(np.eye(20) + (X * d) @ X.T)
    return np.einsum("ij,ij->j", X, inverse @ X), X.T @ inverse @ Y, Y @ inverse @ Y


def check(evidence, d):
    for found, expected in zip(evidence, direct(d), strict=True):
        # Omega has condition numbers up to 2e7, so that its inverse has 8 digits on any BLAS
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.fixture(params=SOURCES)
def field(request):
    return Field(SOURCES[request.param]())


def test_evidence_after_every_change_is_that_of_omega(field):
    d = np.zeros(30)
    check(field.evidence, d)
    for columns, delta in (([3, 7], [2.0, 50.0]), ([7, 29, 0], [-50.0, 0.1, 1e4]), ([3], [1e-3])):
        field.change(np.array(columns), np.array(delta))
        d[columns] += delta
        check(field.evidence, d)
    other = d.copy()
    other[[0, 3]] -= [9e3, 1.0]
    check(field.without(np.array([3, 0]), np.array([1.0, 9e3])), other)
    check(field.evidence, d)


def test_reset_equals_changes(field):
    d = np.zeros(30)
    d[[1, 2, 28]] = 0.5, 20.0, 1e6
    field.change(np.array([5, 28]), np.array([3.0, 3.0]))
    field.reset(d)
    check(field.evidence, d)


def test_correlations(field):
    expected = np.corrcoef(X.T)
    columns = np.array([9, 2, 4])
    found = field.correlations(columns)
    np.testing.assert_allclose(found, expected[np.ix_(columns, columns)], atol=1e-12)
    np.testing.assert_array_equal(field.similar(4, 0.3), np.abs(expected[4]) >= 0.3)
