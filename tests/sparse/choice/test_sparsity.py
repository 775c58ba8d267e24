"""The sentence on what the selected columns alone cost."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from soubayes import (
    SoUCoxRegression,
    SoUGammaRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUPoissonRegression,
)
from soubayes.datasets import experiment1
from soubayes.sparse.choice.race import Sparsity
from soubayes.sparse.choice.scoring import COUNTS, DENSITIES, NUMBERS

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 6))
ETA = X[:, 0] + 0.3 * X[:, 1:4].sum(axis=1)
NORMAL = ETA + rng.normal(size=80)
POSITIVE = rng.gamma(2.0, np.exp(ETA) / 2.0)


@pytest.mark.parametrize(
    ("difference", "error", "said"),
    [
        (0.0, 0.0, "as well as all columns."),
        (0.5, 0.1, "worse than all columns (RMSE 1.5 against 1, a difference of 0.5 ± 0.1)."),
        (0.5, 0.3, "not clearly worse than all columns (RMSE 1.5 against 1, a difference of "),
        (-0.2, 0.05, "better than all columns (RMSE 0.8 against 1, a difference of 0.2 ± 0.05)."),
        (-0.2, 0.2, "not clearly better than all columns (RMSE 0.8 against 1, a difference "),
        (0.5, np.nan, "worse than all columns (RMSE 1.5 against 1, a difference of 0.5)."),
    ],
)
def test_the_sentence_says_how_much_is_lost(difference, error, said):
    sparsity = Sparsity(2, 1_500, 1.0 + difference, 1.0, "RMSE", difference, error)
    sentence = str(sparsity).replace("\n", " ")
    assert sentence.startswith(f"2 of 1,500 columns; alone they predict held-out rows {said}")


@pytest.mark.parametrize("weight", [np.ones(50), np.arange(1.0, 51.0)])
def test_the_difference_is_paired(weight):
    """What two predictions have in common is not in its standard error."""
    losses = np.random.default_rng(0).gamma(1.0, size=(50, 1)) * np.ones(2)
    losses[:, 0] += np.linspace(0.0, 0.2, 50)
    mean = np.average(losses[:, 0] - losses[:, 1], weights=weight)
    difference, error = DENSITIES.gap(losses, weight)
    assert difference == pytest.approx(mean)
    assert error < 0.02
    assert COUNTS.gap(losses, weight) == pytest.approx((difference / 2.0, error / 2.0))
    roots = np.sqrt(np.average(losses, axis=0, weights=weight))
    assert NUMBERS.gap(losses, weight)[0] == pytest.approx(roots[0] - roots[1])
    with np.errstate(all="raise"):
        difference, error = NUMBERS.gap(1e250 * losses, weight)
    assert np.isfinite([difference, error]).all()


def test_the_standard_error_is_that_of_new_rows():
    """Over samples of rows the difference varies as much as its standard error says."""
    rng = np.random.default_rng(1)
    normal = rng.normal(size=(2_000, 60, 1)) + [0.3, 0.1] * rng.normal(size=(2_000, 60, 1))
    for scoring, losses in ((NUMBERS, normal**2), (DENSITIES, normal)):
        gaps = np.array([scoring.gap(each, np.ones(60)) for each in losses])
        assert gaps[:, 1].mean() == pytest.approx(gaps[:, 0].std(), rel=0.05)


def test_the_error_is_that_of_the_held_out_predictions():
    model = SoULinearRegression().fit(X, NORMAL)
    held = model.out_of_fold_
    expected = np.sqrt(np.mean((held["y"] - held["mean"]) ** 2))
    sparsity = model.sparsity_
    assert sparsity.error_all == pytest.approx(expected)
    assert sparsity.difference == pytest.approx(sparsity.error - sparsity.error_all)
    assert sparsity.standard_error > 0.0
    assert sparsity.selected == model.selected_.sum()


def test_moments_have_a_standard_error_too():
    """Streams know their folds alone; it is that of the differences between the folds."""
    rows = SoULinearRegression().fit(X, NORMAL).sparsity_
    moments = SoULinearRegression().partial_fit(X, NORMAL).sparsity_
    assert moments.difference == pytest.approx(moments.error - moments.error_all)
    assert 0.2 < moments.standard_error / rows.standard_error < 5.0


FAMILIES = [
    (SoULinearRegression, NORMAL),
    (SoUGammaRegression, POSITIVE),
    (SoUCoxRegression, POSITIVE),
]


@pytest.mark.parametrize(("estimator", "y"), FAMILIES)
def test_units_of_y_do_not_change_the_verdict(estimator, y):
    def sentence(unit):
        target = (np.arange(80) % 4 > 0, y * unit) if estimator is SoUCoxRegression else y * unit
        return estimator().fit(X, target).sparsity_

    here = sentence(1.0)
    unit = 1e-3  # the same loss was "99% worse" where minus log density came close to 0
    other = sentence(unit)
    if estimator is not SoULinearRegression:  # nats a row
        assert str(other) == str(here)
    same = unit if estimator is SoULinearRegression else 1.0
    assert other.difference == pytest.approx(same * here.difference, rel=1e-4)
    assert other.standard_error == pytest.approx(same * here.standard_error, rel=1e-4)
    assert str(other).split("(")[0] == str(here).split("(")[0]


def test_other_measures_are_nats_a_row():
    counts = np.random.default_rng(2).poisson(np.exp(ETA))
    for estimator, y in ((SoUPoissonRegression, counts), (SoULogisticRegression, NORMAL > 0)):
        assert "nats a row)." in str(estimator().fit(X, y).sparsity_)


def test_a_mixture_that_is_the_sparse_point_predicts_as_well():
    data = experiment1(105, 100, 50, random_state=1)
    model = SoULinearRegression().fit(data.X, data.y)
    assert model.candidates_["candidate"].tolist() == ["sparse"]
    assert str(model.sparsity_).endswith("as well as all columns.")


def test_a_sparse_point_that_is_behind_is_not_said_to_predict_as_well():
    """Five nats behind are a small share of minus log density, but not of the weights."""
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(150, 12))
    risk = 0.25 * rows.sum(axis=1)
    time = 1e4 * rng.exponential(np.exp(-risk))
    model = SoUCoxRegression().fit(rows, (rng.random(150) < 0.8, time))
    table = model.candidates_.set_index("candidate")
    assert table["weight"]["sparse"] < 0.05
    assert table["score"]["sparse"] < table["score"].max() - 5.0
    sparsity = model.sparsity_
    assert abs(sparsity.error / sparsity.error_all - 1.0) < 0.03
    assert sparsity.difference > 0.0
    assert "worse than all columns" in str(sparsity)


def test_the_sparse_point_is_recalibrated_by_the_same_folds():
    """Its power of the odds is that of its own held-out log odds, not the mixture's and not 1."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 30))
    y = X @ np.append(np.full(6, 0.6), np.zeros(24)) + rng.logistic(size=150) > 0.0
    model = SoULogisticRegression().fit(X, y)
    sparse = model.sparse_
    assert float(sparse.odds_power_[0]) not in (1.0, float(model.odds_power_[0]))
    plain = SoULogisticRegression(choice="path").fit(X, y)
    np.testing.assert_allclose(sparse.coef_, plain.coef_)
    np.testing.assert_allclose(
        sparse.decision_function(X), sparse.odds_power_[0] * plain.decision_function(X)
    )
    fresh = rng.normal(size=(4000, 30))
    truth = fresh @ np.append(np.full(6, 0.6), np.zeros(24)) + rng.logistic(size=4000) > 0.0
    losses = [log_loss(truth, each.predict_proba(fresh)) for each in (sparse, plain)]
    assert losses[0] < losses[1] + 0.005


def test_the_sparse_point_of_numbers_has_wider_intervals_than_its_columns_promise():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(60, 40))
    y = X[:, :8] @ np.full(8, 0.4) + rng.normal(size=60)
    sparse = SoULinearRegression().fit(X, y).sparse_
    assert sparse.inflation_ > 1.0
    plain = SoULinearRegression(choice="path").fit(X, y)
    wide, narrow = (each.predict(X[:5], return_std=True)[1] for each in (sparse, plain))
    np.testing.assert_allclose(wide, np.sqrt(sparse.inflation_) * narrow)
