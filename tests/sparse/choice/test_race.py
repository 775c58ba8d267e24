"""The race: when its folds end, and that jobs change nothing."""

import numpy as np
import pytest
from scipy.stats import norm

from soubayes import SoULinearRegression
from soubayes.datasets import wide_design
from soubayes.sparse.choice import race
from soubayes.sparse.choice.race import Candidate, ChoiceTask, Fits, choose
from soubayes.sparse.choice.scoring import CLASSES_POWER, DENSITIES, HeldOut, predictive_weights

NAMES = ("one", "two", "three")
CANDIDATES = tuple(Candidate(name, "", np.nan, np.nan) for name in NAMES)


class Said(ChoiceTask):
    """Candidates whose predictions are known: means of y with the noise 1."""

    def __init__(self, y, means):
        self.targets, self.weight, self.means, self.size = [y], np.ones(len(y)), means, 1
        self.fitted = []

    def fit(self, rows, wanted):
        self.fitted.append(set(wanted[0]))
        return Fits([dict.fromkeys(wanted[0], ())], [{}], np.zeros(1))

    def predict(self, fits, rows):
        y, found = self.targets[0][rows], {}
        for name in fits.components[0]:
            mean = self.means[NAMES.index(name)][rows]
            density, one = norm.logpdf(y, mean), np.ones(len(y))
            found[name] = HeldOut(density, mean, one, 0.0 * one, density, norm.cdf(y, mean))
        return [found]


def said(shifts, n=4_000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    return Said(y, [shift * rng.normal(size=n) for shift in shifts])


def fifths(n):
    rows = np.arange(n)
    return [(rows[rows % 5 != i], rows[rows % 5 == i]) for i in range(5)]


@pytest.mark.parametrize(("shifts", "folds"), [((0.02, 0.02, 0.02), 2), ((0.3, 0.3, 0.3), 5)])
def test_folds_end_where_further_ones_would_change_little(shifts, folds):
    task = said(shifts)
    choice = choose(task, CANDIDATES, fifths(4_000), DENSITIES)[0]
    assert choice.out_of_fold["fold"].max() == folds - 1
    assert len(task.fitted) == folds + 1  # and to all rows


def test_few_rows_wait_for_all_folds():
    choice = choose(said((0.02,) * 3, n=400), CANDIDATES, fifths(400), DENSITIES)[0]
    assert choice.out_of_fold["fold"].max() == 4


def test_what_further_folds_change_is_what_was_estimated():
    """The mean score by the weights of all rows less that by the weights of a part, many times."""
    n, m, estimates, changes = 4_000, 1_000, [], []
    for seed in range(60):
        task = said((0.0, 0.1, 0.2), n, seed)
        scores = norm.logpdf(task.targets[0][:, None], np.stack(task.means, axis=1))
        contest = race._Race(task, CANDIDATES, DENSITIES, 1)
        part = predictive_weights(scores[:m], CLASSES_POWER * n / m)
        now = DENSITIES.score(task.targets[0][:m], _held(task, m), np.ones(m), n / m)
        np.testing.assert_allclose(now.weights, part)
        estimates.append(contest._to_gain(now))
        weights = predictive_weights(scores, CLASSES_POWER)
        changes.append(abs(scores.mean(axis=0) @ (weights - part)))
    assert 0.5 * np.mean(changes) < np.mean(estimates) < 4.0 * np.mean(changes)


def _held(task, m):
    each = [task.predict(Fits([{name: ()}], [{}], np.zeros(1)), np.arange(m)) for name in NAMES]
    parts = [found[0][name] for found, name in zip(each, NAMES, strict=True)]
    return HeldOut(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))


@pytest.mark.parametrize("slow", [np.inf, 0.0])
def test_threads_and_processes_give_the_digits_of_one(slow, monkeypatch):
    data = wide_design(50, 120, 4, random_state=3)
    alone = SoULinearRegression().fit(data.X, data.y)
    kinds, run = [], race.run_jobs

    def seen(work, items, jobs, slow):
        kinds.append((jobs, len(items), slow))
        return run(work, items, jobs, slow)

    monkeypatch.setattr(race, "run_jobs", seen)
    monkeypatch.setattr(race, "SLOW", slow)
    both = SoULinearRegression(n_jobs=2).fit(data.X, data.y)
    np.testing.assert_array_equal(both.coef_, alone.coef_)
    assert both.candidates_.equals(alone.candidates_)
    assert both.out_of_fold_.equals(alone.out_of_fold_)
    assert kinds == [(2, 1, False), *[(2, 2, slow == 0.0)] * 2]
