"""A likelihood whose formulas contradict each other is refused before it is fitted."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from soubayes import RowLikelihood, RowTerms, SoUGeneralizedRegression
from soubayes.sparse.likelihoods.bernoulli import Bernoulli, JaakkolaBernoulli
from soubayes.sparse.likelihoods.checking import check_derivatives


class Poisson(RowLikelihood):
    """Counts with log mean eta; one of the four formulas can be made wrong."""

    def __init__(self, loss=1.0, slope=1.0, curvature=1.0):
        self.factors = loss, slope, curvature

    def derivatives(self, eta, y):
        mean = np.exp(eta)
        right = mean - y * eta + gammaln(y + 1.0), mean - y, mean
        return tuple(f * part for f, part in zip(self.factors, right, strict=True))

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


class ClosedPoisson(Poisson):
    """The same with its expectation in closed form."""

    def __init__(self, loss=1.0, score=1.0, information=1.0, curvature=1.0):
        super().__init__()
        self.closed = loss, score, information, curvature

    def terms(self, mean, variance, y):
        rate = np.exp(mean + variance / 2.0)
        right = rate - y * mean + gammaln(y + 1.0), y - rate, rate, rate
        return RowTerms(*(f * part for f, part in zip(self.closed, right, strict=True)))


class Laplace(RowLikelihood):
    """|y - eta| has a kink and no curvature."""

    def derivatives(self, eta, y):
        return np.abs(y - eta), np.sign(eta - y), np.zeros(np.broadcast(eta, y).shape)

    def predict(self, mean, variance):
        return mean


def counts(n=60):
    return np.random.default_rng(0).poisson(3.0, n).astype(float)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_right_formulas_pass_whatever_the_size_of_y(scale):
    rng = np.random.default_rng(1)
    check_derivatives(Poisson(), rng.poisson(scale, 50).astype(float))
    check_derivatives(ClosedPoisson(), rng.poisson(scale, 50).astype(float))
    check_derivatives(Laplace(), scale * rng.normal(size=50))
    for likelihood in (Bernoulli(), JaakkolaBernoulli()):
        check_derivatives(likelihood, (rng.random(50) < 0.3).astype(float))


@pytest.mark.parametrize("factor", [-1.0, 0.5, 100.0])
@pytest.mark.parametrize("wrong", ["slope", "curvature"])
def test_a_wrong_derivative_is_named(wrong, factor):
    X = np.random.default_rng(2).normal(size=(60, 3))
    model = SoUGeneralizedRegression(Poisson(**{wrong: factor}))
    with pytest.raises(ValueError, match=rf"Poisson\.derivatives gives {wrong} = .* give"):
        model.fit(X, counts())


@pytest.mark.parametrize("factor", [-1.0, 0.5, 100.0])
@pytest.mark.parametrize("wrong", ["score", "information", "curvature"])
def test_a_wrong_closed_form_is_named(wrong, factor):
    X = np.random.default_rng(2).normal(size=(60, 3))
    model = SoUGeneralizedRegression(ClosedPoisson(**{wrong: factor}))
    with pytest.raises(ValueError, match=rf"ClosedPoisson\.terms gives {wrong} = .* give"):
        model.fit(X, counts())


def test_blocks_of_rows_are_checked_too():
    X = np.random.default_rng(4).normal(size=(60, 3))
    blocks = [(X[i : i + 20], counts()[i : i + 20]) for i in (0, 20, 40)]
    with pytest.raises(ValueError, match="slope"):
        SoUGeneralizedRegression(Poisson(slope=-1.0)).fit(blocks)


def test_a_slope_that_is_wrong_for_some_rows_only_is_found():
    class Partly(Poisson):
        """Wrong where y is 0, which a fifth of the rows are."""

        def derivatives(self, eta, y):
            loss, slope, curvature = super().derivatives(eta, y)
            return loss, np.where(y > 0, slope, -slope), curvature

    y = stats.poisson.rvs(1.5, size=100, random_state=5).astype(float)
    with pytest.raises(ValueError, match=r"slope = .*\(y = 0\)"):
        check_derivatives(Partly(), y)
