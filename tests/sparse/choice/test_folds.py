"""Folds: what ``cv`` may be, groups that stay whole, and the estimators that take them."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from many_rows import set_large
from soubayes import SoULinearRegression, SoULogisticRegression, select_confidence
from soubayes.datasets import experiment1
from soubayes.sparse.choice import folds
from soubayes.sparse.choice.folds import make_folds

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
Y = X[:, 0] - X[:, 1] + rng.normal(size=60)
LABELS = np.where(Y + 2.0 * rng.normal(size=60) > 0.0, "yes", "no")
GROUPS = np.repeat(np.arange(12), 5)


def whole(fold, groups):
    """Whether no group is in two folds."""
    return all(len(set(fold[groups == group])) == 1 for group in np.unique(groups))


@pytest.mark.parametrize("cv", ["auto", 3, GroupKFold(3), LeaveOneGroupOut()])
@pytest.mark.parametrize(
    ("estimator", "y"), [(SoULinearRegression, Y), (SoULogisticRegression, LABELS)]
)
def test_groups_are_held_out_whole(estimator, y, cv):
    order = np.random.default_rng(0).permutation(60)
    weight = np.ones(60)
    weight[[3, 17, 40]] = 0.0
    model = estimator(cv=cv).fit(X[order], y[order], weight, groups=GROUPS[order])
    held = model.out_of_fold_
    assert whole(held["fold"].to_numpy(), GROUPS[order][weight > 0])
    assert "columns; alone they predict held-out rows" in str(model.sparsity_)


def test_rows_of_a_group_do_not_vouch_for_each_other():
    """Copies of rows: random folds find the noise predictable, folds of groups do not."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(30, 40))
    rows, y = np.repeat(few, 4, axis=0), np.repeat(rng.normal(size=30), 4)
    alone = SoULinearRegression().fit(rows, y).out_of_fold_
    grouped = SoULinearRegression().fit(rows, y, groups=np.repeat(np.arange(30), 4)).out_of_fold_
    errors = [np.sqrt(np.mean((held["y"] - held["mean"]) ** 2)) for held in (alone, grouped)]
    assert errors[0] < 0.7 * y.std()
    assert errors[1] > 0.9 * y.std()


def test_where_the_path_is_the_only_candidate_groups_stay_whole():
    data = experiment1(105, 100, 50, random_state=1)
    groups = np.repeat(np.arange(35), 3)
    model = SoULinearRegression().fit(data.X, data.y, groups=groups)
    assert model.candidates_["candidate"].tolist() == ["sparse"]
    held = model.out_of_fold_["fold"].to_numpy()
    assert whole(held, groups)


def test_many_rows_in_groups_are_held_out_as_rows(monkeypatch):
    set_large(monkeypatch, 50)
    for estimator, y in ((SoULinearRegression, Y), (SoULogisticRegression, LABELS)):
        model = estimator(cv=3).fit(X[:, :5], y, groups=GROUPS)
        assert whole(model.out_of_fold_["fold"].to_numpy(), GROUPS)
        auto = estimator().fit(X[:, :5], y, groups=GROUPS).out_of_fold_["fold"].to_numpy()
        assert whole(auto, GROUPS)


def test_groups_are_routed():
    """scikit-learn hands the rows of groups to the fit of every outer fold."""
    cancer = load_breast_cancer()
    rows, y = cancer.data[:150, :6], cancer.target[:150]
    groups = np.arange(150) // 3
    with config_context(enable_metadata_routing=True):
        for model, target in (
            (SoULinearRegression(cv=GroupKFold(3)), rows[:, 0] + y),
            (SoULogisticRegression(cv=GroupKFold(3)), y),
        ):
            model.set_fit_request(groups=True, sample_weight=False)
            pipeline = make_pipeline(StandardScaler(), model)
            found = cross_validate(
                pipeline,
                rows,
                target,
                cv=GroupKFold(3),
                params={"groups": groups},
                return_estimator=True,
                error_score="raise",
            )
            splits = GroupKFold(3).split(rows, target, groups)
            for fitted, (train, _) in zip(found["estimator"], splits, strict=True):
                assert whole(fitted[-1].out_of_fold_["fold"].to_numpy(), groups[train])


@pytest.mark.parametrize("estimator", [SoULinearRegression, SoULogisticRegression])
def test_what_cannot_be_held_out_is_said(estimator):
    y = Y if estimator is SoULinearRegression else LABELS
    for groups, message in (
        (np.zeros(60), "only one of the groups"),
        (np.where(GROUPS[0] == GROUPS, np.nan, 1.0), "missing in"),
        ([None, *GROUPS[1:]], "missing in 1 rows"),
        (GROUPS[:-1], "inconsistent numbers"),
        (np.zeros((60, 2)), "1d array"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator().fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="splits a group"):
        estimator(cv=KFold(3, shuffle=True, random_state=0)).fit(X, y, groups=GROUPS)
    with pytest.raises(ValueError, match="groups were given, but X is streamed"):
        estimator().fit([(X, y)], groups=GROUPS)


everything = np.arange(60)
WRONG = [
    ("foo", "cv is 'foo'"),
    ([], r"cv is \[\]"),
    ((), r"cv is \(\)"),
    (0, "cv is 0"),
    (1, "cv is 1"),
    (True, "cv is True"),
    (-3, "cv is -3"),
    (2.5, "cv is 2.5"),
    (61, "cv is 61, but the number of rows is 60"),
    ([(everything, [])], "fold 0 of cv has no test rows"),
    ([(everything[5:], everything[:5]), ([], everything)], "fold 1 of cv has no training rows"),
    ([(everything, everything[:5])], "both in training and test"),
    ([(everything[5:] + 5, everything[:5])], "row numbers below 60"),
    ([(everything[5:], [0.5])], "row numbers below 60"),
]


@pytest.mark.parametrize(("cv", "message"), WRONG)
def test_what_cv_may_not_be(cv, message):
    for model, y in ((SoULinearRegression(cv=cv), Y), (SoULogisticRegression(cv=cv), LABELS)):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
    with pytest.raises(ValueError, match=message):
        select_confidence(SoULinearRegression(), (X, Y), {"confidence_coef": [1.0]}, cv=cv)


def test_masks_are_folds():
    test = np.arange(60) % 4 == 0
    masks = SoULinearRegression(cv=[(~test, test)]).fit(X, Y)
    numbers = SoULinearRegression(cv=[(everything[~test], everything[test])]).fit(X, Y)
    np.testing.assert_array_equal(masks.coef_, numbers.coef_)


def test_folds_of_an_int_are_shuffled_and_repeatable():
    one, two = (make_folds(5, Y, None, False, 0) for _ in range(2))
    for (_, first), (_, second) in zip(one, two, strict=True):
        np.testing.assert_array_equal(first, second)
    expected = KFold(5, shuffle=True, random_state=0).split(X)
    for (_, found), (_, wanted) in zip(one, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert len(make_folds(20, Y, GROUPS, False, 0, at_most=True)) == 12


def test_select_confidence_holds_out_groups():
    seen = []

    def score(fitted, rows, y):
        seen.append(set(rows[:, 0].astype(int)))
        return -float(np.mean((fitted.predict(rows) - y) ** 2))

    rows = np.column_stack([GROUPS, X])
    grid = {"confidence_coef": [1.0]}
    for cv in (3, GroupKFold(3)):
        seen.clear()
        select_confidence(SoULinearRegression(), (rows, Y), grid, score, cv=cv, groups=GROUPS)
        assert sum(map(len, seen)) == 12
    with pytest.raises(ValueError, match="confidences"):
        select_confidence(Ridge(), (rows, Y), grid, score, cv=3, groups=GROUPS)


@pytest.mark.parametrize(("signal", "sure"), [(5.0, True), (0.8, False)])
def test_as_many_rows_as_columns(signal, sure):
    """The path alone only where the evidence for it is overwhelming."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(62, 60))
    y = signal * X[:, :4].sum(axis=1) + rng.normal(size=62)
    model = SoULinearRegression().fit(X, y)
    assert len(model.candidates_) == (1 if sure else 7)


def test_more_folds_where_rows_are_as_many_as_columns():
    assert folds.nearly_square(210, 209)
    assert not folds.nearly_square(210, 211)
    assert not folds.nearly_square(210, 150)
    assert folds.square_folds(210) == 20 > folds.auto_folds(210, 209)
