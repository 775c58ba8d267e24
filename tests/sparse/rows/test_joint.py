"""All of q moved at once: its gradient, and separated data, where Newton's steps alone are slow."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from soubayes import SoULogisticRegression
from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.rows.joint import _Coordinates, descend_jointly
from soubayes.sparse.rows.newton import ActiveRows
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory
from soubayes.sparse.rows.state import RowModel, make_state
from soubayes.sparse.scales.balance import Groups
from soubayes.sparse.scales.priors import Exponential, HalfCauchy


def setting(intercept=True, groups=None, prior=None, sources=False):
    """A problem of 6 columns, the fourth dropped and the second of a plain prior, and a state."""
    rng = np.random.default_rng(4)
    p, plain = 6, np.arange(6) == 1
    X = rng.normal(size=(30, p))
    problem = RowProblem(
        Bernoulli(), RowsInMemory(X, intercept), 1.0 * (X[:, 0] > 0), rng.uniform(0.5, 2.0, 30)
    )
    extra = [1.0] * intercept
    confidence = np.where(np.arange(p) < 3, 2.0, 0.7) if sources else np.full(p, 1.4)
    split = (("late", np.arange(3)), ("early", np.arange(3, p))) if sources else None
    model = RowModel(
        confidence=np.append(confidence, extra),
        variance=np.append(np.where(plain, 2.0, np.nan), np.multiply(extra, 10.0)),
        local_confidence=np.full(p + intercept, 0.3),
        global_confidence=1.3,
        local_prior=prior or Exponential(10.0),
        global_prior=prior or Exponential(10.0),
        sources=split or (("coef", np.arange(p)),),
        groups=groups or Groups.single(5),
        intercept=intercept,
    )
    active = np.flatnonzero(np.arange(p + intercept) != 3)
    precision = model.precisions(model.each_tau(rng.uniform(1.0, 4.0, model.groups.n_groups)))
    mean, rest = rng.normal(size=len(active)), np.zeros(p + intercept)
    data = problem.take(active).sweep(mean, 0.3 * np.eye(len(active)))
    return problem, model, make_state(model, active, mean, data.information, precision, rest)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"intercept": False, "prior": HalfCauchy()},
        {"groups": Groups.of([0, 0, 1, 2, 2])},
        {"sources": True},
    ],
)
def test_the_slope_is_that_of_the_objective(given):
    problem, model, start = setting(**given)
    at = _Coordinates.of(model, start)
    x = 0.2 * np.random.default_rng(5).normal(size=at.size)

    def value(x):
        return ActiveRows(problem).evaluate(model, at.state(x))[1]

    state = at.state(x)
    slope = at.slope(state, ActiveRows(problem).evaluate(model, state)[0])
    np.testing.assert_allclose(slope, approx_fprime(x, value, 1e-7), atol=2e-5)
    np.testing.assert_allclose(at.state(np.zeros(at.size)).root, start.root)


def test_it_ends_where_every_slope_vanishes():
    problem, model, state = setting()
    value = ActiveRows(problem).evaluate(model, state)[1]
    for _ in range(20):  # the shapes of the scales move between the calls
        state, _ = descend_jointly(problem, model, state, 1e-13, 400, precise=True)
        data, new_value = ActiveRows(problem).evaluate(model, state)
        assert new_value <= value + 1e-10
        value = new_value
    slope = _Coordinates.of(model, state).slope(state, data)
    np.testing.assert_allclose(slope, 0.0, atol=1e-6)


def test_nothing_active_is_nothing_to_move():
    problem, model, start = setting(intercept=False)
    none = start._replace(active=np.arange(0), mean=np.zeros(0), root=np.zeros((0, 0)))
    assert descend_jointly(problem, model, none, 1e-9, 10)[0] is none


@pytest.mark.parametrize("count", [1.0, 1e7])
def test_separated_rows_counted_many_times_converge_in_tens_of_steps(count):
    X = np.random.default_rng(6).normal(size=(12, 40))
    y, weight = X[:, 0] > 0, np.full(12, count)
    model = SoULogisticRegression(confidence_coef=1.0).fit(X, y, sample_weight=weight)
    assert model.converged_
    assert model.n_iter_ < 60
    assert np.all(np.diff(model.objective_) <= 0.0)
    # from here no step of the solver gains, so that a fit at a finer tolerance ends there too
    finer = SoULogisticRegression(confidence_coef=1.0, tol=1e-10).fit(X, y, sample_weight=weight)
    assert finer.objective_[-1] == pytest.approx(model.objective_[-1], rel=1e-4)
