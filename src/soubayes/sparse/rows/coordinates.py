"""Rows with several linear predictors: the linear algebra of their coordinates.

A likelihood with d predictors a row (`Likelihood`) gives every column of X d coefficients.
To the solvers these are d columns, neighbours that share a tau. So a mean has d k entries, the
information is d k x d k, and what is read of X is its k columns. One predictor a row needs nothing
of this file.
"""

from functools import lru_cache

import numpy as np

Array = np.ndarray

_NUMBERS = 2**22  # in what is made of a block of rows
# products of pairs of columns are formed while they are fewer than what they are multiplied with:
# one large matrix product then replaces d (d + 1)/2 small ones
_PAIRS = 120


def columns_of(coordinates: Array, d: int) -> Array:
    """The columns of X with these coordinates; all coordinates of a column stand together.

    >>> columns_of(np.array([2, 3, 8, 9]), 2)
    array([1, 4])
    """
    return coordinates[::d] // d


def predictors(Z: Array, mean: Array, root: Array, d: int) -> tuple[Array, Array]:
    """(n, d) means and (n, d, d) covariances of the rows' predictors at q = N(mean, root root').

    Only the lower triangles of the covariances are filled where products of pairs serve.
    """
    n, k = Z.shape
    V = np.zeros((n, d, d))
    if few_pairs(n, k, d):
        (i, j, _), (a, b, _) = triangle(k), triangle(d)
        S = (root @ root.T).reshape(k, d, k, d)
        covariance = S[i[:, None], a, j[:, None], b] + S[j[:, None], a, i[:, None], b]
        covariance[i == j] *= 0.5
        V[:, b, a] = pairs(Z) @ covariance
        return Z @ mean.reshape(k, d), V
    step = max(1, _NUMBERS // max(d * len(root), 1))
    for rows in (slice(begin, begin + step) for begin in range(0, n, step)):
        T = np.stack([Z[rows] @ root[a::d] for a in range(d)], axis=1)  # (rows, d, k d)
        V[rows] = T @ T.transpose(0, 2, 1)
    return Z @ mean.reshape(k, d), V


def gram(Z: Array, B: Array) -> Array:
    """sum_i B_i x (x_i x_i'), coordinates of a column together, (k d, k d); B is (n, d, d)."""
    (n, k), d = Z.shape, B.shape[1]
    if few_pairs(n, k, d):
        a, b, place = triangle(d)
        sums = pairs(Z).T @ B[:, a, b]
        total = sums[triangle(k)[2][:, None, :, None], place[:, None, :]]
        return total.reshape(k * d, k * d)
    total = np.empty((k, d, k, d))
    for i in range(d):
        for j in range(i + 1):
            total[:, i, :, j] = total[:, j, :, i] = Z.T @ (Z * B[:, i, j][:, None])
    return total.reshape(k * d, k * d)


def one_out(Z: Array, B: Array, inside: Array, outside: Array) -> tuple[Array, Array]:
    """Of `gram`: coordinates of columns ``inside`` with those ``outside``, and its diagonal there.

    >>> Z, B = np.array([[1.0, 2.0], [3.0, 1.0]]), np.stack([np.eye(2), 2.0 * np.eye(2)])
    >>> one_out(Z, B, np.array([0]), np.array([1]))
    (array([[8., 0.],
           [0., 8.]]), array([6., 6.]))
    """
    X, out, d = Z[:, inside], Z[:, outside], B.shape[1]
    cross = np.empty((X.shape[1], d, out.shape[1], d))
    for a in range(d):
        for b in range(a + 1):
            cross[:, a, :, b] = cross[:, b, :, a] = (X * B[:, a, b][:, None]).T @ out
    diagonal = np.square(out).T @ np.einsum("naa->na", B)
    return cross.reshape(X.shape[1] * d, out.shape[1] * d), diagonal.ravel()


def few_pairs(n: int, k: int, d: int) -> bool:
    """Whether products of all pairs of k columns are worth forming."""
    return 0 < k * (k + 1) // 2 <= min(_PAIRS * d**2, _NUMBERS / max(n, 1))


def pairs(Z: Array) -> Array:
    """(n, pairs) products of two columns, the first not after the second."""
    columns = np.ascontiguousarray(Z.T)
    parts = [columns[i:] * column for i, column in enumerate(columns)]
    return np.concatenate(parts).T


@lru_cache(64)
def triangle(size: int) -> tuple[Array, Array, Array]:
    """The pairs i <= j, and a symmetric matrix of their numbers."""
    i, j = np.triu_indices(size)
    place = np.empty((size, size), int)
    place[i, j] = place[j, i] = np.arange(len(i))
    return i, j, place
