"""The Newton solver where a loss is not convex."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from soubayes import RowLikelihood, SoUGeneralizedRegression
from soubayes.sparse.rows.passes import weighted_gram


class Student(RowLikelihood):
    """y - eta is Student's t with 3 degrees of freedom; its loss bends down in the tails."""

    def derivatives(self, eta, y):
        r = y - eta
        q = 3.0 + r * r
        return 2.0 * np.log1p(r * r / 3.0), -4.0 * r / q, 4.0 * (3.0 - r * r) / q**2

    def predict(self, mean, variance):
        return mean


def outliers(n=200, p=6):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = X[:, 0] - X[:, 1] + rng.standard_t(3, size=n)
    y[: n // 10] += 20.0
    return X, y


@pytest.mark.filterwarnings("ignore:the loss of Student is not convex")
@pytest.mark.parametrize("choice", ["path", "prediction"])
def test_a_loss_that_bends_down_is_minimised_all_the_same(choice):
    X, y = outliers()
    model = SoUGeneralizedRegression(Student(), choice=choice).fit(X, y)

    def loss(b):
        return -stats.t.logpdf(y - b[0] - X @ b[1:], 3).sum()

    best = minimize(loss, np.array([0.0, 1.0, -1.0, 0.0, 0.0, 0.0, 0.0])).x
    assert model.converged_
    np.testing.assert_allclose(model.coef_[:2], best[1:3], atol=0.15)
    assert (np.diff(model.sparse_.objective_) <= 1e-9).all()


def test_it_is_said():
    X, y = outliers()
    with pytest.warns(UserWarning, match="not convex"):
        SoUGeneralizedRegression(Student(), choice="path", confidence_coef=4.0).fit(X, y)


def test_rows_of_negative_weight():
    rng = np.random.default_rng(0)
    Z, w = rng.normal(size=(20, 3)), rng.normal(size=20)
    np.testing.assert_allclose(weighted_gram(Z, w), Z.T @ np.diag(w) @ Z)
