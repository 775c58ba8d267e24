"""Confidences chosen by prediction: the limits, and what must not matter.

Covers race and the candidates of linear regression.
"""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.model_selection import KFold, TimeSeriesSplit

from soubayes import (
    SoULinearRegression,
    SoULogisticRegression,
    load_model,
    plot_confidences,
    save_model,
)
from soubayes.datasets import correlated_design, experiment1
from soubayes.sparse.choice import folds, scoring
from soubayes.sparse.choice.race import PATH
from soubayes.sparse.least_squares import designs, family
from soubayes.sparse.least_squares.family import LinearFamily
from soubayes.sparse.rows.family import ClassFamily

rng = np.random.default_rng(0)
DENSE = rng.normal(size=(60, 6)) @ rng.normal(size=(6, 30)) + 0.5 * rng.normal(size=(60, 30))
TARGET = DENSE @ (0.2 * rng.normal(size=30)) + rng.normal(size=60)
LABELS = np.where(np.median(TARGET) < TARGET, "yes", "no")


@pytest.fixture(scope="module")
def linear():
    return SoULinearRegression(cv=4).fit(DENSE, TARGET)


@pytest.fixture(scope="module")
def logistic():
    return SoULogisticRegression(cv=3).fit(DENSE, LABELS)


def test_the_mixture_predicts_and_is_described(linear):
    mean, std = linear.predict(DENSE, return_std=True)
    np.testing.assert_allclose(mean, DENSE @ linear.coef_ + linear.intercept_)
    table = linear.candidates_
    assert table["weight"].sum() == pytest.approx(1.0)
    assert linear.mixtures_[0].weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(np.sqrt(np.diag(linear.covariance_)), linear.coef_sd_)
    low, high = linear.predict(DENSE, quantiles=[0.05, 0.95]).T
    assert np.all((low < mean) & (mean < high))
    draws = linear.sample(4000, random_state=0)
    eta = draws["coef"] @ DENSE[:5].T + draws["intercept"][:, None]
    inside = eta.var(axis=0) + linear.noise_variance_
    assert np.all(std[:5] ** 2 > 0.9 * inside)  # recalibration only widens
    held = linear.out_of_fold_
    assert np.bincount(held["fold"]).tolist() == [15, 15, 15, 15]
    rows = np.mean((held["y"] - held["mean"]) ** 2) ** 0.5
    assert 0.5 < rows < 0.5 * np.std(TARGET)
    assert "columns; alone they predict held-out rows" in str(linear.sparsity_)
    assert plot_confidences(linear).get_xlabel().startswith("held-out")


def test_dense_data_get_a_dense_answer_that_predicts_better():
    test = np.random.default_rng(5)
    mixing, coef = test.normal(size=(6, 80)), 0.2 * test.normal(size=80)

    def draw(n):
        X = test.normal(size=(n, 6)) @ mixing + test.normal(size=(n, 80))
        return X, X @ coef + test.normal(size=n)

    (X, y), (new, truth) = draw(50), draw(2000)
    errors = [
        np.mean((model.fit(X, y).predict(new) - truth) ** 2)
        for model in (SoULinearRegression(), SoULinearRegression(choice="path"))
    ]
    assert errors[0] < 0.9 * errors[1]


def test_one_candidate_is_that_fit(monkeypatch):
    data = experiment1(55, 50, 10)
    path = SoULinearRegression(choice="path").fit(data.X, data.y)
    monkeypatch.setattr(LinearFamily, "candidates", (PATH,))
    only = SoULinearRegression(cv=3).fit(data.X, data.y)
    np.testing.assert_allclose(only.coef_, path.coef_, atol=1e-10)
    assert only.candidates_["weight"].tolist() == [1.0]
    np.testing.assert_array_equal(only.selected_, only.coef_ != 0.0)
    monkeypatch.setattr(ClassFamily, "candidates", (PATH,))
    one = SoULogisticRegression(cv=3).fit(DENSE, LABELS)
    two = SoULogisticRegression(choice="path").fit(DENSE, LABELS)
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-10)
    power = one.mixtures_[0].power
    np.testing.assert_allclose(
        one.decision_function(DENSE), power * two.decision_function(DENSE), rtol=1e-6
    )


@pytest.mark.parametrize("settings", [{"cv": None}, {"choice": "path"}, {"confidence_coef": 2.0}])
def test_without_a_choice_there_are_no_folds(settings):
    model = SoULinearRegression(**settings).fit(DENSE, TARGET)
    assert not hasattr(model, "candidates_")
    assert len(model.mixtures_[0].components) == 1
    with pytest.raises(ValueError, match="not chosen by prediction"):
        plot_confidences(model)
    other = SoULinearRegression(**settings, random_state=3).fit(DENSE, TARGET)
    np.testing.assert_array_equal(model.coef_, other.coef_)


def test_what_does_not_matter(linear):
    again = SoULinearRegression(cv=4, n_jobs=2).fit(DENSE, TARGET)
    np.testing.assert_array_equal(again.coef_, linear.coef_)
    units = 10.0 ** np.random.default_rng(1).integers(-3, 4, size=30)
    scaled = SoULinearRegression(cv=4).fit(DENSE * units, 7.0 * TARGET + 3.0)
    np.testing.assert_allclose(scaled.coef_ * units, 7.0 * linear.coef_, rtol=1e-4, atol=1e-6)
    order = np.random.default_rng(2).permutation(30)
    moved = SoULinearRegression(cv=4).fit(DENSE[:, order], TARGET)
    np.testing.assert_allclose(moved.coef_, linear.coef_[order], rtol=1e-4, atol=1e-6)
    for X in (pd.DataFrame(DENSE), sp.csr_array(DENSE)):
        other = SoULinearRegression(cv=4).fit(X, TARGET)
        np.testing.assert_allclose(other.coef_, linear.coef_, rtol=1e-5, atol=1e-7)


def test_a_fold_knows_nothing_of_its_held_out_rows(linear):
    changed = TARGET.copy()
    test = linear.out_of_fold_["fold"] == 1
    changed[test] += 100.0
    labels = [{candidate.name for candidate in LinearFamily.candidates}]
    fits = []
    for y in (TARGET, changed):
        model = SoULinearRegression(cv=4).fit(DENSE, y)
        linear = LinearFamily(model._settings())
        fits.append(linear.fit(DENSE[~test], [y[~test]], np.ones(45), labels, known=False))
    for label in labels[0]:
        for one, two in zip(
            fits[0].components[0][label], fits[1].components[0][label], strict=True
        ):
            np.testing.assert_array_equal(one.posterior.mean, two.posterior.mean)


def test_splitters():
    data = correlated_design(60, 20, 5)
    for cv in (KFold(3), TimeSeriesSplit(3)):
        model = SoULinearRegression(cv=cv).fit(data.X, data.y)
        assert model.out_of_fold_["fold"].max() == 2
    with pytest.raises(ValueError, match="choice is 'best'"):
        SoULinearRegression(choice="best").fit(data.X, data.y)
    with pytest.raises(ValueError, match="confidence_local is 'small'"):
        SoULinearRegression(confidence_local="small").fit(data.X, data.y)


def test_too_few_rows_are_said_aloud():
    with pytest.warns(UserWarning, match="5 rows are too few"):
        model = SoULinearRegression().fit(DENSE[:5], TARGET[:5])
    assert not hasattr(model, "candidates_")
    rare = np.array(["a"] * 30 + ["b"] * 29 + ["c"])
    with pytest.warns(UserWarning, match="one row"):
        SoULogisticRegression(max_iter=20).fit(DENSE[:, :3], rare)


def test_weights_count_rows_and_zero_removes_them():
    weight = np.ones(60)
    weight[-10:] = 0.0
    splits = list(KFold(3, shuffle=True, random_state=0).split(np.zeros(50)))
    kept = SoULinearRegression(cv=splits).fit(DENSE[:50], TARGET[:50])
    weighted = SoULinearRegression(cv=splits).fit(DENSE, TARGET, weight)
    np.testing.assert_allclose(weighted.coef_, kept.coef_, rtol=1e-6, atol=1e-9)


def test_targets_choose_for_themselves():
    Y = np.column_stack([TARGET, DENSE[:, 0] + 0.1 * np.random.default_rng(1).normal(size=60)])
    both = SoULinearRegression(cv=4).fit(DENSE, Y)
    alone = SoULinearRegression(cv=4).fit(DENSE, Y[:, 1])
    np.testing.assert_allclose(both.coef_[1], alone.coef_, rtol=1e-6, atol=1e-9)
    assert len(both.candidates_) == len(both.sparsity_) == 2
    assert both.predict(DENSE, quantiles=[0.1, 0.5]).shape == (60, 2, 2)
    mean, std = both.predict(DENSE, return_std=True)
    assert mean.shape == std.shape == (60, 2)


def test_classes(logistic):
    p = logistic.predict_proba(DENSE)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(p), logistic.predict_log_proba(DENSE))
    np.testing.assert_array_equal(logistic.predict(DENSE) == "yes", p[:, 1] > 0.5)
    odds = logistic.decision_function(DENSE)
    np.testing.assert_allclose(p[:, 1], 1.0 / (1.0 + np.exp(-odds)))
    _, sd = logistic.predict_proba(DENSE, return_std=True)
    assert np.all((sd > 0) & (sd < 0.5))
    mixture, rows = logistic.mixtures_[0], DENSE[:4] - logistic._x_mean
    z, mean, power = np.random.default_rng(0).normal(size=20_000), 0.0, mixture.power
    for part in mixture.components:  # predictions average over a share of the posterior variance
        q = part.posterior
        m, v = rows @ q.mean[:-1] + q.mean[-1], q.spread(np.hstack([rows, np.ones((4, 1))]))
        eta = m + np.sqrt(part.inflation * v) * z[:, None]
        mean += part.weight * (1.0 / (1.0 + np.exp(-eta))).mean(axis=0)
    np.testing.assert_allclose(odds[:4], power * np.log(mean / (1 - mean)), atol=0.15)
    assert logistic.candidates_["weight"].sum() == pytest.approx(1.0)
    assert logistic.sparsity_.measure == "log loss"


def test_chosen_models_are_saved_whole(tmp_path, linear, logistic):
    for name, model in (("linear", linear), ("logistic", logistic)):
        save_model(model, tmp_path / name)
        again = load_model(tmp_path / name)
        np.testing.assert_array_equal(again.predict(DENSE), model.predict(DENSE))
        assert str(again.candidates_) == str(model.candidates_)


def path_sd(model, X):
    """The predictive sd of the sparse point of a fit."""
    return model.sparse_.predict(X, return_std=True)[1]


@pytest.mark.parametrize("count", [1, 3, 10])
@pytest.mark.parametrize("shape", [(100, 5), (60, 80), (10_500, 4)])
def test_outliers_widen_intervals_once(shape, count):
    """The noise pays for them; the recalibration does not pay again."""
    sizes = (10.0, 30.0, 100.0, 1000.0, 1e6) if shape[0] == 100 else (100.0, 1e6)
    for size in sizes:
        rng = np.random.default_rng(0)
        X = rng.normal(size=shape)
        y = 2.0 * X[:, 0] - X[:, 1] + rng.normal(size=len(X))
        y[rng.permutation(len(X))[:count]] = size * rng.choice([-1.0, 1.0], size=count)
        model = SoULinearRegression().fit(X, y)
        _, sd = model.predict(X[:20], return_std=True)
        assert np.median(sd / path_sd(model, X[:20])) < 1.5


def test_intervals_under_noise_with_heavy_tails():
    covered = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(100, 5))
        model = SoULinearRegression().fit(X, X[:, 0] + rng.standard_t(3, size=100))
        new = rng.normal(size=(200, 5))
        ends = model.predict(new, quantiles=[0.05, 0.95]) - new[:, :1]
        covered.append(np.mean(np.diff(stats.t.cdf(ends, 3), axis=1)))
    error = np.std(covered) / np.sqrt(len(covered))
    assert 0.88 - 2.0 * error < np.mean(covered) < 0.93 + 2.0 * error


def test_folds_do_not_end_among_outliers(monkeypatch):
    """105 rows and 100 columns, in folds of 4: calm rows end after 10 folds."""
    data = experiment1(105, 100, 50, random_state=1)
    y = data.y.copy()
    calm = SoULinearRegression().fit(data.X, y)
    assert calm.out_of_fold_["fold"].max() == 9
    y[calm.out_of_fold_["fold"] == 0] += 20.0 * np.array([1.0, 0.0, 0.0, 0.0])
    wild = SoULinearRegression().fit(data.X, y)
    assert wild.candidates_["candidate"].tolist() == ["sparse"]
    assert wild.out_of_fold_["fold"].max() == 25
    monkeypatch.setattr(scoring, "SETTLED_ERROR", np.inf)
    hasty = SoULinearRegression().fit(data.X, y)
    assert hasty.out_of_fold_["fold"].max() == 9
    later, early = (m.predict(data.X[:20], return_std=True)[1] for m in (wild, hasty))
    assert (later < 0.9 * early).all()


def test_large_data_hold_out_one_part(monkeypatch):
    monkeypatch.setattr(folds, "ONE_PART", 60)
    model = SoULogisticRegression().fit(DENSE, LABELS)
    held = model.out_of_fold_
    assert set(held["fold"]) == {-1, 0}
    assert np.isnan(held["mean"]).sum() == 48
    scores = model.candidates_["score"]
    ratio = np.exp(60 / 12 * 0.1 * (scores[1] - scores[2]))  # as if all 60 rows were held out
    assert model.candidates_["weight"][1] / model.candidates_["weight"][2] == pytest.approx(ratio)
    asked = SoULogisticRegression(cv=3).fit(DENSE, LABELS)  # folds that were asked for are made
    assert set(asked.out_of_fold_["fold"]) == {0, 1, 2}


def test_where_folds_cannot_say_the_evidence_may():
    """100 columns and 105 rows: folds of 94 rows lose signals that all rows show."""
    data = experiment1(105, 100, 50, random_state=1)
    close = SoULinearRegression().fit(data.X, data.y)
    assert close.candidates_["candidate"].tolist() == ["sparse"]
    path = SoULinearRegression(choice="path").fit(data.X, data.y)
    np.testing.assert_allclose(close.coef_, path.coef_, atol=1e-10)
    held = close.out_of_fold_["fold"]
    assert np.bincount(held[held >= 0]).tolist() == [4] * 10  # more rows than columns are left
    assert len(SoULinearRegression().fit(data.X[:, :60], data.y).candidates_["candidate"]) == 7
    rng = np.random.default_rng(0)
    dense = data.X @ (0.3 * rng.normal(size=100)) + 3.0 * rng.normal(size=105)
    assert len(SoULinearRegression().fit(data.X, dense).candidates_["candidate"]) == 7


@pytest.mark.parametrize("columns", [30, 90, 180])
def test_a_large_sparse_matrix_chooses_as_a_dense_one(monkeypatch, tmp_path, columns):
    """All candidates come from X'X or X X', so no dense copy of X is made."""
    X = np.hstack([np.roll(DENSE**k, shift, axis=0) for shift in (0, 7) for k in (1, 2, 3)])
    X = X[:, :columns]
    dense = SoULinearRegression(random_state=0).fit(X, TARGET)
    for module in (folds, designs):
        monkeypatch.setattr(module, "SPARSE_BYTES", 0)  # every scipy-sparse X counts as large
    rows = sp.csr_array(X)
    sparse = SoULinearRegression(random_state=0).fit(rows, TARGET)
    np.testing.assert_allclose(sparse.candidates_["weight"], dense.candidates_["weight"], atol=1e-5)
    said = sparse.predict(rows[:9], return_std=True), dense.predict(X[:9], return_std=True)
    np.testing.assert_allclose(*said, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sparse.coef_sd_, dense.coef_sd_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(sparse.covariance_, dense.covariance_, rtol=1e-4, atol=1e-7)
    draws = (one.mixtures_[0].sample(40, np.random.default_rng(0))[0] for one in (sparse, dense))
    np.testing.assert_allclose(*draws, rtol=1e-4, atol=1e-5)
    save_model(sparse, tmp_path / "model")
    again = load_model(tmp_path / "model").predict(rows[:9], return_std=True)[1]
    np.testing.assert_allclose(again, said[0][1])


def test_a_large_sparse_matrix_of_many_rows_and_more_columns_follows_the_path(monkeypatch):
    for name in ("SPARSE_BYTES", "DENSE_BYTES"):
        monkeypatch.setattr(folds, name, 0)
    monkeypatch.setattr(family, "DENSE_BYTES", 0)
    with pytest.warns(folds.ChoiceWarning, match="60 x 30 numbers in memory"):
        SoULinearRegression().fit(sp.csr_array(DENSE), TARGET)
