"""The posterior over supports of several classes."""

import numpy as np
import pytest
from scipy.optimize import minimize

from soubayes import SoULogisticRegression
from soubayes.sparse.likelihoods.softmax import Softmax
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory
from soubayes.sparse.rows.supports import class_quadratic

N, P, C = 240, 12, 3


def _table(seed):
    rng = np.random.default_rng(seed)
    X, beta = rng.normal(size=(N, P)), np.zeros((P, C))
    X[:, 7] = X[:, 0] + 0.05 * rng.normal(size=N)
    beta[:3] = 1.5 * np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 0.0, -1.0]])
    return X, np.argmax(X @ beta + rng.gumbel(size=(N, C)), axis=1), beta


@pytest.mark.parametrize("intercept", [True, False])
def test_the_quadratic_is_that_of_the_loss(intercept):
    """Against finite differences of the loss with the intercepts minimised out."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)) + 0.5, rng.integers(0, C, 30)
    weight = rng.uniform(0.5, 2.0, 30)
    problem = RowProblem(Softmax(C), RowsInMemory(X, intercept=False), y, weight)
    eta = 0.3 * rng.normal(size=(30, C - 1))
    data, place = class_quadratic(problem, X, eta, intercept)
    terms = Softmax(C).terms(eta, np.zeros_like(eta), y)

    def second_order(b, alpha):
        move = alpha + X @ b.reshape(3, C - 1) - eta
        bent = np.einsum("na,nab,nb->n", move, terms.curvature, move) / 2.0
        return weight @ (bent - np.einsum("na,na->n", terms.score, move))

    def loss(b):
        if not intercept:
            return second_order(b, np.zeros(C - 1))
        return minimize(lambda a: second_order(b, a), np.zeros(C - 1), tol=1e-12).fun

    b = rng.normal(size=6)
    gram = data.cross(np.arange(6))
    np.testing.assert_allclose(data.within(np.array([1, 4])), gram[np.ix_([1, 4], [1, 4])])
    np.testing.assert_allclose(np.diag(gram), data.norms)
    slope = [(loss(b + e) - loss(b - e)) / 2e-4 for e in 1e-4 * np.eye(6)]
    np.testing.assert_allclose(gram @ b - data.scores, slope, rtol=1e-4, atol=1e-4)
    best = np.zeros(C - 1)
    if intercept:
        best = minimize(lambda a: second_order(b, a), np.zeros(C - 1), tol=1e-12).x
    np.testing.assert_allclose(place(b), (best + X @ b.reshape(3, C - 1)).ravel(), atol=1e-4)


@pytest.fixture(scope="module")
def found():
    X, y, _ = _table(1)
    model = SoULogisticRegression(multi_class="multinomial", choice="path", inclusion=True)
    return model.fit(X, np.array(["a", "b", "c"])[y])


def test_columns_carry_effects_for_all_classes(found):
    _, _, beta = _table(1)
    supports = found.supports_
    assert supports.converged
    assert supports.inclusion.shape == (C, P)
    np.testing.assert_array_equal(supports.inclusion, supports.inclusion[[0] * C])
    assert supports.inclusion[0, 1:3].min() > 0.95
    assert supports.inclusion[0, [0, 7]].sum() > 0.95  # a column and its look-alike
    assert np.delete(supports.inclusion[0], [0, 1, 2, 7]).max() < 0.5
    assert supports.discoveries(0.1)[0, 1:3].all()
    table = supports.summary()
    mean = table["estimate"].to_numpy().reshape(C, P)
    np.testing.assert_allclose(mean.sum(axis=0), 0.0, atol=1e-10)
    inside = (table["lower"] <= beta.T.ravel()) & (beta.T.ravel() <= table["upper"])
    assert inside.mean() > 0.85
    assert "inclusion" in found.summary()


def test_look_alikes_share_a_set(found):
    sets = found.supports_.credible_sets(0.99)
    assert sets.loc["a", "features"].tolist() == sets.loc["c", "features"].tolist()
    shared = [one for one in sets.loc["a", "features"] if len(one) > 1]
    assert sorted(shared[0]) == ["x0", "x7"]
    assert sets["effect"].notna().all()


def test_the_names_of_the_classes_do_not_matter(found):
    X, y, _ = _table(1)
    other = SoULogisticRegression(multi_class="multinomial", choice="path", inclusion=True)
    other.fit(X, np.array(["c", "a", "b"])[y])
    np.testing.assert_allclose(
        other.supports_.inclusion[0], found.supports_.inclusion[0], atol=1e-6
    )
    own = found.supports_.summary().loc["a", "estimate"].to_numpy()
    same = other.supports_.summary().loc["c", "estimate"].to_numpy()
    np.testing.assert_allclose(same, own, atol=1e-6)


def test_groups_of_columns():
    X, y, _ = _table(2)
    labels = np.array([0, 1, 1, *range(2, 11)])
    model = SoULogisticRegression(
        multi_class="multinomial", choice="path", inclusion=True, feature_groups=labels
    ).fit(X, y)
    assert model.supports_.group_inclusion.shape == (C, 11)
    assert model.supports_.group_inclusion[0, 1] > 0.95
    assert model.supports_.inclusion[0, 1] == model.supports_.inclusion[0, 2]
