"""unit_gram, units, unit_posterior: elimination in blocks is the algebra of dense columns."""

import numpy as np
import pytest
import scipy.sparse as sp

from soubayes.sparse.designs.units import CentredRows
from soubayes.sparse.least_squares.fitting import rows_intake
from soubayes.sparse.least_squares.group_evidence import group_evidence
from soubayes.sparse.least_squares.unit_gram import unit_grams, unit_posterior

N, M = 120, 14


def table(intercept):
    """Two columns, intercepts and slopes of a unit, a last level without rows, and a column."""
    rng = np.random.default_rng(0)
    site, x = rng.integers(0, M - 1, N), rng.normal(size=N)
    member = np.eye(M)[site]
    fixed = rng.normal(size=(N, 3)) + np.array([0.0, 5.0, -2.0])
    X = np.hstack([fixed[:, :2], member, member * x[:, None], fixed[:, 2:]])
    unit = np.concatenate([[-1, -1], np.arange(M), np.arange(M), [-1]])
    shared = np.concatenate([[0, 1], np.full(M, 2), np.full(M, 3), [4]])
    y = fixed.sum(axis=1) + rng.normal(size=M)[site] + rng.normal(size=N)
    weight = rng.uniform(0.5, 2.0, N)
    dense = rows_intake(X, y[:, None], weight, intercept, shared=shared)
    blocks, units = unit_grams(sp.csr_array(X), y[:, None], weight, intercept, unit, shared)
    for ours, theirs in zip(units, dense.units, strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    return X, dense.designs[0], blocks[0], rng.uniform(0.1, 50.0, X.shape[1])


def same(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_ridge_fit_is_that_of_dense_columns(intercept):
    _, dense, blocks, w = table(intercept)
    one, two = dense.ridge(w), blocks.ridge(w)
    for name in ("mean", "variance", "s", "q", "rss", "log_det"):
        same(getattr(two, name), getattr(one, name))
    same(blocks.norms, dense.norms)
    same(blocks.scores, dense.scores)
    same(blocks.log_det(w), dense.log_det(w))
    same(blocks.inverse(w), dense.inverse(w))
    same(blocks.shrinkage_sums(w, two), dense.shrinkage_sums(w, one))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    "index",
    [
        np.arange(0, 2 * M + 3, 2),
        np.array([0, *range(2, 2 + M)]),
        np.array([0, 1, 2 * M + 2]),
        np.arange(2, 2 + M),
        np.zeros(0, int),
    ],
    ids=["some of all", "intercepts", "no unit", "intercepts alone", "nothing"],
)
def test_some_columns_and_those_outside(intercept, index):
    _, dense, blocks, w = table(intercept)
    others = np.setdiff1d(np.arange(len(w)), index)
    for ours, theirs in zip(
        blocks.outside(index, w[index], others), dense.outside(index, w[index], others), strict=True
    ):
        same(ours, theirs)
    if len(index):
        one, two = dense.take(index).ridge(w[index]), blocks.take(index).ridge(w[index])
        same(two.mean, one.mean)
        same(two.variance, one.variance)
        same(two.log_det, one.log_det)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_posterior_has_the_covariance_of_dense_columns(intercept):
    X, dense, blocks, w = table(intercept)
    p, active = X.shape[1], np.array([0, *range(2, 2 + M), 2 * M + 2])
    scale, variance = np.linspace(0.5, 2.0, p), np.full(p, 0.01)
    S = np.diag(variance)
    S[np.ix_(active, active)] = 2.0 * dense.take(active).inverse(w[active])
    variance, S = np.diag(S).copy(), S * scale * scale[:, None]
    given = np.arange(float(p)), variance, active, scale, 2.0
    q = unit_posterior(blocks, w, *given).joined(1.0, 0.7)
    S = np.pad(S, (0, 1))
    S[p, p] = 0.7
    same(q.full(), S)
    same(q.sd**2, np.diag(S))
    rows = np.hstack([X - X.mean(axis=0), np.ones((N, 1))])
    direct = np.einsum("ij,ij->i", rows @ S, rows)
    same(q.spread(rows), direct)
    lazy = CentredRows(sp.csr_array(X), X.mean(axis=0), ones=True)
    same(q.spread(lazy), direct)
    same(lazy.times(q.mean[None])[0], rows @ q.mean)
    same(q.times(rows), rows @ S)
    order = np.append(np.arange(p)[::-1], p)
    moved = q.moved(order, np.ones(p + 1))
    same(moved.full(), S[np.ix_(order, order)])
    place = np.append(np.arange(p), p + 3)
    wide = q.placed(place, p + 4)
    same(wide.full()[np.ix_(place, place)], S)
    draws = q.sample(20_000, np.random.default_rng(0))
    sd = np.sqrt(np.diag(S))
    off = (np.cov(draws.T) - S) / sd / sd[:, None]
    assert np.abs(off).max() < 5.0 / np.sqrt(20_000) * np.sqrt(2.0)


def test_the_evidence_of_a_support_is_that_of_dense_columns():
    _, dense, blocks, _ = table(intercept=True)
    groups = np.concatenate([[-1, -1], np.full(M, 0), np.full(M, 1), [-1]])
    given = groups, groups < 0, 1e-9, N - 4.0, 1.0
    one, two = group_evidence(dense, *given), group_evidence(blocks, *given)
    same(two.w, one.w)
    same(two.rss, one.rss)
    np.testing.assert_allclose(two.used, one.used, rtol=1e-8)
    # between the knots it is a spline
    np.testing.assert_allclose(two.log_integral, one.log_integral, atol=0.02)
