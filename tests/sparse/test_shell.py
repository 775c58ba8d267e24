"""The shell: one way from rows to what is reported, for a family of two constants."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

from soubayes import SoULinearRegression
from soubayes.sparse.choice.race import PATH, Candidate
from soubayes.sparse.choice.scoring import DENSITIES, HeldOut
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.posterior import Component, PathPoints, Posterior, SparsePoint
from soubayes.sparse.shell import Choosing, Family, TrainingRows, fit_design, fit_rows

MEAN = Candidate("mean", "", np.nan, np.nan)
HOW = Choosing("test", True, False, 4, 0, 1, False, ["y"])


def constant(value):
    q = Posterior(np.array([0.0, value]), np.zeros(2), np.arange(0), np.zeros((0, 0)))
    return Component(q, noise=1.0)


def point(component):
    one, path = np.ones(1), PathPoints({}, np.zeros((1, 1)), np.zeros((1, 1)))
    return SparsePoint(component, one, one > 1, one, one, 1.0, {}, 1.0, one, 1, True, "x", path)


class Solved:
    def __init__(self, value):
        self.component = constant(value)
        self.points = [point(self.component)]


class Constants(Family):
    """y ~ N(a, 1): the sparse point has a = 0, the other candidate the mean of the rows."""

    candidates = (PATH, MEAN)
    scoring = DENSITIES
    settings = SimpleNamespace(unit=None, system_size=lambda X: min(X.shape))

    def __init__(self):
        self.rows_of_fits = []

    def design(self, X, targets, weight):
        return Intake(X, targets)

    def solve(self, intake, names, jobs=1):
        return [Solved(0.0) for _ in intake.targets]

    def supports(self, intake, solved, rows):
        return [None if rows is None else len(rows.weight)]

    def fitted(self, intake, t, wanted, known):
        self.rows_of_fits.append((len(intake.targets[t]), known))
        if PATH.name in wanted:
            yield PATH.name, (self.sparse[t][0] if known else constant(0.0),), 0.0
        if MEAN.name in wanted:
            yield MEAN.name, (constant(intake.targets[t].mean()),), 1.0

    def held_out(self, mixture, rows, y):
        mean, one = rows @ mixture.mean, np.ones(len(y))
        density = norm.logpdf(y, mean)
        return HeldOut(density, mean, one, 0.0 * one, density, norm.cdf(y, mean))


class Intake:
    def __init__(self, X, targets):
        self.targets, self.x_mean = targets, X.mean(axis=0)


def rows(shift, n=200):
    rng = np.random.default_rng(0)
    return TrainingRows(
        rng.normal(size=(n, 1)), [rng.normal(size=n) + shift], np.ones(n), np.zeros(n)
    )


def test_weights_are_those_of_the_held_out_log_densities():
    family, given = Constants(), rows(0.3)
    choice = fit_rows(family, given, HOW).choices[0]
    y, held = given.targets[0], choice.out_of_fold["fold"].to_numpy()
    mean = np.array([y[held != fold].mean() for fold in held])
    gain = norm.logpdf(y, mean).sum() - norm.logpdf(y).sum()
    odds = np.exp(DENSITIES.power * gain)
    np.testing.assert_allclose(
        choice.candidates["weight"], [1.0 / (1.0 + odds), odds / (1.0 + odds)]
    )
    fits = family.rows_of_fits
    assert fits[-1] == (200, True)  # the mixture is of fits to all rows
    assert fits[:-1] == [(150, False)] * 4


def test_the_sparse_point_of_all_rows_is_not_fitted_again():
    family = Constants()
    fit = fit_rows(family, rows(0.0), HOW)
    parts = {part.candidate: part for part in fit.choices[0].mixture.components}
    assert parts[PATH.name].posterior is fit.points[0].component.posterior


@pytest.mark.parametrize("given", [None, rows(0.0)])
def test_supports_and_the_choice_are_made_only_if_asked_for(given):
    none = HOW._replace(predicts=False)
    family, X = Constants(), rows(0.0)
    work = (lambda how: fit_rows(family, X, how)) if given else None
    work = work or (lambda how: fit_design(family, family.design(X.X, X.targets, X.weight), how))
    fit = work(none)
    assert (fit.choices, fit.supports) == (None, None)
    np.testing.assert_allclose(fit.x_mean, X.X.mean(axis=0))
    supported = work(none._replace(inclusion=True)).supports
    assert supported == [200 if given else None]
    assert family.rows_of_fits == []


def test_an_estimator_takes_this_way():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    model = SoULinearRegression(inclusion=True).fit(X, y)
    assert isinstance(model.supports_.posteriors[0], SupportPosterior)
    assert set(model.candidates_["candidate"]) >= {PATH.name}
