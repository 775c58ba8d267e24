"""Factors and inverses against numpy's, on sizes around the one where the halves begin."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from soubayes.sparse.designs.linalg import (
    cholesky,
    eigenvalue_sums,
    invert,
    invert_triangle,
    log_determinant,
)


@pytest.fixture(params=[0, 1, 7, 49, 50, 51, 133])
def matrix(request: pytest.FixtureRequest) -> np.ndarray:
    size = request.param
    X = np.random.default_rng(size).normal(size=(size + 20, size))
    return X.T @ X


def test_factors_and_inverses_are_numpys(matrix: np.ndarray) -> None:
    w = np.linspace(0.5, 2.0, len(matrix))
    A = matrix + np.diag(w)
    before = matrix.copy()
    lower = cholesky(matrix, w)
    assert np.array_equal(matrix, before)
    assert_allclose(lower, np.linalg.cholesky(A), rtol=1e-10, atol=1e-12)
    assert_allclose(log_determinant(lower), np.linalg.slogdet(A)[1], rtol=1e-12)
    assert_allclose(invert(lower), np.linalg.inv(A), rtol=1e-9, atol=1e-12)
    assert_allclose(invert_triangle(lower) @ np.linalg.cholesky(A), np.eye(len(A)), atol=1e-10)


def test_rounding_is_forgiven_and_an_indefinite_matrix_is_not() -> None:
    x = np.random.default_rng(0).normal(size=(30, 1))
    twins = np.hstack([x, x, 3.0 * x])
    gram = (twins.T @ twins).astype(np.float32).astype(float)  # rank 1, rounded
    lower = cholesky(gram)
    assert_allclose(lower @ lower.T, gram, rtol=2e-6)
    with pytest.raises(np.linalg.LinAlgError, match="size 2"):
        cholesky(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_sums_of_eigenvalues(matrix: np.ndarray) -> None:
    lower = np.tril(matrix)
    values = np.linalg.eigvalsh(lower @ lower.T)
    for triangle in (lower, np.asfortranarray(lower)):
        assert_allclose(eigenvalue_sums(triangle), [values.sum(), (values**2).sum()], rtol=1e-12)
