"""Both ends of a path, scored by the fitted rows: by simulation, and in a classifier."""

import numpy as np
import pytest

from many_rows import set_large
from soubayes import SoULogisticRegression
from soubayes.sparse.posterior import Component, Posterior
from soubayes.sparse.rows import newton
from soubayes.sparse.rows.many_rows import End, degrees_of_freedom, mix_ends
from soubayes.sparse.rows.passes import RowProblem


def thresholded(z, gamma):
    return np.where(z * z > gamma, z - gamma / z, 0.0)


def test_degrees_of_freedom_are_the_covariance_with_the_data():
    """df = sum_j cov(estimate_j, z_j): Efron's definition, by Monte Carlo."""
    rng = np.random.default_rng(0)
    truth = np.array([0.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
    z = truth + rng.normal(size=(200_000, 7))
    soft = thresholded(z, 1.0)
    expected = np.sum((soft * (z - truth)).mean(axis=0))
    kappa = np.where(z * z > 1.0, 1.0 / (z * z), 1.0)
    found = np.mean([degrees_of_freedom(row) for row in kappa[:20_000]]) - 1.0
    assert found == pytest.approx(expected, abs=0.03)
    gamma = 6.0  # searched among nulls, then refitted at confidence 1
    nulls = rng.normal(size=(200_000, 7))
    hard = np.where(nulls**2 > gamma, thresholded(nulls, 1.0), 0.0)
    kappa = np.where(nulls**2 > gamma, 1.0 / nulls**2, 1.0)
    found = np.mean([degrees_of_freedom(row, gamma) for row in kappa[:20_000]]) - 1.0
    assert found == pytest.approx(np.sum((hard * nulls).mean(axis=0)), abs=0.03)


def test_ends_are_weighed_by_loss_and_degrees():
    q = Posterior(np.ones(1), np.ones(1), np.array([0]), np.eye(1))
    ends = [
        End("sparse", Component(q), 100.0, 5.0, 4.0),
        End("all", Component(q), 90.0, 25.0, 20.0),
    ]
    mixture, table, *_ = mix_ends(ends, 50.0)
    assert mixture.weights[0] / mixture.weights[1] == pytest.approx(np.exp(0.1 * 10.0))
    np.testing.assert_allclose(table["error"], [105.0 / 50.0, 115.0 / 50.0])
    assert table["mixture_error"][0] == pytest.approx(mixture.weights @ table["error"])


def rows(n, p=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    return X, (X[:, :5].sum(axis=1) / 2.0 + rng.logistic(size=n) > 0).astype(int)


def test_passes_that_are_saved_change_no_minimum(monkeypatch):
    """With as many rows the first steps are those of the last pass, and none is tried in vain."""
    X, y = rows(6_000, p=20)
    passes, sweep = [], RowProblem.sweep
    monkeypatch.setattr(
        RowProblem, "sweep", lambda *args, **more: passes.append(1) or sweep(*args, **more)
    )
    few = SoULogisticRegression(choice="path").fit(X, y)
    spent, rounds = len(passes), newton.MANY_ROWS
    assert len(X) > rounds
    monkeypatch.setattr(newton, "MANY_ROWS", np.inf)
    all_of_them = SoULogisticRegression(choice="path").fit(X, y)
    assert spent < 0.7 * (len(passes) - spent)
    assert few.converged_
    assert all_of_them.converged_
    np.testing.assert_array_equal(few.selected_, all_of_them.selected_)
    np.testing.assert_allclose(few.coef_, all_of_them.coef_, atol=1e-3 * few.coef_sd_.max())
    np.testing.assert_allclose(few.objective_[-1], all_of_them.objective_[-1], rtol=1e-7)
    np.testing.assert_allclose(few.path_["value"], all_of_them.path_["value"], rtol=2e-5)
    assert np.all(np.diff(few.objective_) <= 0)


@pytest.mark.parametrize("n", [9_990, 10_010])
def test_the_sparse_point_of_many_rows_is_that_of_the_path(n):
    X, y = rows(n)
    chosen = SoULogisticRegression(cv="auto" if n > 10_000 else None).fit(X, y)
    path = SoULogisticRegression(choice="path").fit(X, y)
    np.testing.assert_array_equal(chosen.selected_, path.selected_)
    assert chosen.sparse_.confidence_coef_ == path.confidence_coef_
    assert np.flatnonzero(chosen.selected_[0]).tolist()[:5] == [0, 1, 2, 3, 4]
    assert chosen.selected_.sum() <= 6
    if n > 10_000:
        assert chosen.candidates_["candidate"].tolist() == ["sparse", "confidence 1"]
        assert chosen.candidates_["weight"].sum() == pytest.approx(1.0)
        assert "new rows, by an estimate," in str(chosen.sparsity_)


def test_a_stream_of_many_rows_is_fitted_as_in_memory(monkeypatch):
    set_large(monkeypatch, 500)
    X, y = rows(900)
    memory = SoULogisticRegression().fit(X, y)
    stream = SoULogisticRegression().fit(
        [(X[i : i + 200], y[i : i + 200]) for i in range(0, 900, 200)]
    )
    np.testing.assert_array_equal(stream.selected_, memory.selected_)
    np.testing.assert_allclose(stream.coef_, memory.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(stream.predict_proba(X), memory.predict_proba(X), rtol=1e-6)
    assert memory.selected_[0, 5:].sum() <= 2
    with pytest.warns(UserWarning, match="streamed rows cannot be held out"):
        SoULogisticRegression(cv=3).fit([(X[:450], y[:450]), (X[450:], y[450:])])
    folds = SoULogisticRegression(cv=3).fit(X, y)  # folds that were asked for are made
    assert set(folds.out_of_fold_["fold"]) == {0, 1, 2}


def test_many_faint_effects_are_predicted_from_the_dense_end():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12_000, 60))
    coef = 0.06 * rng.normal(size=60)
    y = (X @ coef + rng.logistic(size=12_000) > 0).astype(int)
    model = SoULogisticRegression().fit(X[:10_500], y[:10_500])
    weight = dict(zip(model.candidates_["candidate"], model.candidates_["weight"], strict=True))
    assert weight["confidence 1"] > 0.5
    assert np.count_nonzero(model.coef_) > model.selected_.sum()


def test_a_path_in_two_passes_ends_where_the_whole_path_does(monkeypatch):
    for seed in range(3):
        X, y = rows(700, seed=seed)
        whole = SoULogisticRegression(choice="path").fit(X, y)
        set_large(monkeypatch, 500)
        coarse = SoULogisticRegression(choice="path").fit(X, y)
        monkeypatch.undo()
        np.testing.assert_array_equal(coarse.selected_, whole.selected_)
        np.testing.assert_allclose(coarse.coef_, whole.coef_, rtol=1e-3, atol=1e-5)
        gamma = coarse.path_["gamma"]
        assert len(gamma) < len(whole.path_["gamma"])
        assert np.all(np.diff(gamma) > 0)
