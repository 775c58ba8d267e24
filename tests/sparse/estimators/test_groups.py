"""Columns that come and go together: feature_groups everywhere (blocks), and grouped supports."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from soubayes import SoUGeneralizedRegression, SoULinearRegression, SoULogisticRegression
from soubayes.sparse.blocks import parse_groups
from soubayes.sparse.inclusion.field import Field, GramQuadratic
from soubayes.sparse.inclusion.grouped import look_at_groups
from soubayes.sparse.inclusion.priors import Slab
from soubayes.sparse.least_squares.criterion import search_degrees
from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.scales.balance import Groups, stationary_precision
from soubayes.sparse.scales.priors import Exponential

RNG = np.random.default_rng(0)
N, P = 120, 20
X = RNG.normal(size=(N, P))
COEF = np.zeros(P)
COEF[:4], COEF[8:12] = [0.8, -0.5, 0.3, 0.6], [0.5, 0.5, -0.5, 0.5]
Y = X @ COEF + RNG.normal(size=N)
LABELS = np.arange(P) // 4
ESTIMATORS = {
    "linear": lambda **given: SoULinearRegression(**given).fit(X, Y),
    "student": lambda **given: SoULinearRegression(noise="student", **given).fit(X, Y),
    "logistic": lambda **given: SoULogisticRegression(**given).fit(X, Y > 0),
    "generalized": lambda **given: SoUGeneralizedRegression(Bernoulli(), **given).fit(X, Y > 0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_one_column_a_group_is_no_group(name):
    fit = ESTIMATORS[name]
    plain, own = fit(choice="path"), fit(choice="path", feature_groups=[f"g{j}" for j in range(P)])
    np.testing.assert_allclose(own.coef_, plain.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(own.coef_sd_, plain.coef_sd_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_group_comes_or_goes_whole(name):
    model = ESTIMATORS[name](choice="path", feature_groups=LABELS)
    selected = np.ravel(model.selected_).reshape(-1, 4)
    np.testing.assert_array_equal(selected.all(axis=1), selected.any(axis=1))
    assert selected[[0, 2]].all()
    assert not selected[[1, 3, 4]].any()
    scale = np.ravel(model.local_scale_).reshape(-1, 4)
    np.testing.assert_allclose(scale, np.repeat(scale[:, :1], 4, axis=1), rtol=1e-9)
    mapped = ESTIMATORS[name](
        choice="path", feature_groups={str(g): np.flatnonzero(g == LABELS) for g in range(5)}
    )
    np.testing.assert_allclose(mapped.coef_, model.coef_, rtol=1e-10, atol=1e-12)


def test_groups_help_where_they_are_true():
    """Also with more columns than rows, and in a mixture of candidates."""
    wide = np.random.default_rng(1).normal(size=(60, 80))
    y = wide[:, :8] @ np.append(COEF[:4], COEF[8:12]) + np.random.default_rng(2).normal(size=60)
    error = []
    for groups in (None, np.arange(80) // 4):
        model = SoULinearRegression(feature_groups=groups).fit(wide, y)
        error.append(np.linalg.norm(model.coef_[:8] - np.append(COEF[:4], COEF[8:12])))
        error[-1] += np.linalg.norm(model.coef_[8:])
    assert error[1] < error[0]


def test_the_order_of_columns_and_a_block_in_a_group():
    turned = SoULinearRegression(choice="path", feature_groups=LABELS[::-1]).fit(X[:, ::-1], Y)
    model = SoULinearRegression(choice="path", feature_groups=LABELS).fit(X, Y)
    np.testing.assert_allclose(turned.coef_[::-1], model.coef_, rtol=1e-8, atol=1e-10)
    blocks = {"b": {"columns": [0, 1, 2, 3], "prior": "normal"}}
    assert SoULinearRegression(feature_groups=LABELS, feature_blocks=blocks).fit(X, Y).selected_[0]
    with pytest.raises(ValueError, match="group '0' lie in more than one feature block"):
        SoULinearRegression(
            feature_groups=LABELS, feature_blocks={"b": {"columns": [0], "confidence": 2.0}}
        ).fit(X, Y)


def test_grouped_steps_are_those_of_single_columns():
    s, signal = RNG.uniform(1.0, 9.0, 6), RNG.uniform(0.1, 90.0, 6)
    given = Exponential(10.0), s, signal, np.full(6, 0.05), np.full(6, 2.0), np.full(6, 10.0)
    alone = stationary_precision(*given)
    grouped = stationary_precision(*given, Groups(np.arange(6), 6, False))
    np.testing.assert_allclose(grouped, alone, rtol=1e-8)


def test_degrees_that_a_search_takes():
    """By simulation: what null groups explain above one degree a column."""
    z = np.random.default_rng(0).normal(size=(200_000, 3)) ** 2
    passed = z.mean(axis=1) > 2.0
    expected = (z.sum(axis=1)[passed].sum() - 3.0 * passed.sum()) / len(z)
    assert search_degrees(2.0, 1.0, 3.0) == pytest.approx(expected, rel=0.03)
    assert search_degrees(8.0, 90) == pytest.approx(
        90 * (stats.chi2.sf(8.0, 3) - stats.chi2.sf(8.0, 1))
    )


def test_labels_and_names():
    names = ["price", "good", "bad"]
    found = parse_groups({"shelf": ["good", "bad"]}, 3, names)
    assert found.names == ["price", "shelf"]
    assert parse_groups({"shelf": [False, True, True]}, 3, names).number.tolist() == [0, 1, 1]
    assert parse_groups({"shelf": slice(1, None)}, 3, None).names == ["x0", "shelf"]
    assert parse_groups({"price": ["good", "bad"]}, 3, names).number.tolist() == [0, 1, 1]
    assert parse_groups([1, "a", 1], 3).names == ["1", "a"]
    assert parse_groups(pd.Series(list("aab")), 3).number.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([1, 2, 3], "3 labels, but X has 20 columns"),
        ({"a": []}, "feature group 'a' has no columns"),
        ({"a": slice(30, 40)}, "feature group 'a' has no columns"),
        ({"a": [0, 1], "b": [1]}, "column 'x1' is in the groups 'a' and 'b'"),
        ({"a": [0, 0]}, "lists a column twice"),
        ({"a": [99]}, "asks for column 99, but X has 20 columns"),
        ({"a": ["shelf"]}, "names the column 'shelf', but X has no column names"),
        ("shelf", "one label for each column"),
        (7, "one label for each column"),
    ],
)
@pytest.mark.parametrize("name", ["linear", "generalized"])
def test_bad_groups(name, groups, text):
    with pytest.raises((TypeError, ValueError), match=text):
        ESTIMATORS[name](feature_groups=groups)


def test_a_group_is_judged_by_its_evidence():
    """The Bayes factor of a group beside another one, from the normal density of y."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(30, 5))
    y = Z @ [0.8, 0.5, 0.0, 0.0, 0.0] + rng.normal(size=30)
    data = GramQuadratic(Z.T @ Z, Z.T @ y, float(y @ y), 30.0)
    field, own = Field(data), np.array([0, 1])
    d = np.array([0.3, 0.3, 0.0, 0.2, 0.2])
    field.reset(d)
    slab = Slab(np.array([0.1, 2.0]), np.array([0.4, 0.6]))
    grams, both = data.within(own)[None], np.array([0.3])
    found = look_at_groups(field, own[None], grams, both, slab, np.inf)
    others = np.eye(30) + Z[:, 2:] @ np.diag(d[2:]) @ Z[:, 2:].T

    def density(cov):
        return stats.multivariate_normal(np.zeros(30), cov).logpdf(y)

    each = [density(others + V * Z[:, :2] @ Z[:, :2].T) for V in slab.variance]
    total = np.logaddexp.reduce(np.log(slab.weight) + each)
    assert found.log_bayes[0] == pytest.approx(total - density(others))
    weights = np.exp(np.log(slab.weight) + each - total)
    mean = sum(
        w * V * Z[:, :2].T @ np.linalg.solve(others + V * Z[:, :2] @ Z[:, :2].T, y)
        for w, V in zip(weights, slab.variance, strict=True)
    )
    np.testing.assert_allclose(found.mean[0], mean, rtol=1e-8)


def test_groups_of_one_column_have_the_probabilities_of_columns():
    """One pair of null columns makes the rest go through the groups too."""
    labels = np.minimum(np.arange(P), P - 2)
    alone = SoULinearRegression(choice="path", inclusion=True).fit(X, Y).supports_
    grouped = SoULinearRegression(choice="path", inclusion=True, feature_groups=labels)
    grouped = grouped.fit(X, Y).supports_
    np.testing.assert_allclose(grouped.inclusion[:-2], alone.inclusion[:-2], atol=0.08)
    np.testing.assert_allclose(
        grouped.summary()["estimate"][:-2], alone.summary()["estimate"][:-2], atol=0.03
    )


def test_a_factor_has_one_probability():
    """Five levels whose F-test has a p-value below 0.001, no level of which is clear alone."""
    rng = np.random.default_rng(5)
    level = rng.integers(0, 6, 240)
    dummies = np.eye(6)[level][:, 1:]
    rest = rng.normal(size=(240, 6))
    y = np.array([0.0, 0.5, 0.4, -0.3, 0.55, -0.25])[level] + rng.normal(size=240)
    table = pd.DataFrame(
        np.hstack([dummies, rest]), columns=[*(f"level{k}" for k in range(1, 6)), *"abcdef"]
    )
    p_value = stats.f_oneway(*(y[level == k] for k in range(6))).pvalue
    assert p_value < 1e-3
    groups = {"level": [f"level{k}" for k in range(1, 6)]}
    for make, target in (
        (SoULinearRegression, y),
        (SoULogisticRegression, y + 0.3 * rng.normal(size=240) > 0.1),
    ):
        fit = {"choice": "path", "inclusion": True}
        found = make(feature_groups=groups, **fit).fit(table, target).supports_
        alone = make(**fit).fit(table, target).supports_
        assert found.groups == ["level", *"abcdef"]
        chance = np.ravel(found.group_inclusion)
        assert chance[0] > np.ravel(alone.inclusion)[:5].max() or chance[0] > 0.95
        assert chance[0] > 0.6
        assert chance[1:].max() < 0.5
        np.testing.assert_array_equal(np.ravel(found.inclusion)[:5], chance[0])
    linear = SoULinearRegression(feature_groups=groups, **fit).fit(table, y).supports_
    assert linear.discoveries(0.1).tolist() == [True] * 5 + [False] * 6
    sets = linear.credible_sets(presence=0.5)
    assert sets.loc[1, "features"] == ["level"]
    assert linear.summary().loc["level3", "set"] == linear.summary().loc["level1", "set"]
    with pytest.raises(AttributeError, match="pass feature_groups"):
        _ = alone.group_inclusion


def test_normal_blocks_are_always_in():
    blocks = {"b": {"columns": [0, 1, 2, 3], "prior": "normal"}}
    model = SoULinearRegression(
        choice="path", inclusion=True, feature_groups=LABELS, feature_blocks=blocks
    ).fit(X, Y)
    assert model.supports_.group_inclusion[0] == 1.0
    assert model.supports_.group_inclusion[2] > 0.95


def test_groups_that_look_alike_share_a_set():
    """Two measurements of one set of quantities: which of them matters is not known."""
    rng = np.random.default_rng(3)
    first, other = rng.normal(size=(N, 3)), rng.normal(size=(N, 6))
    again = first + 0.02 * rng.normal(size=(N, 3))
    y = first @ [0.8, -0.8, 0.8] + other @ [0.0, 0.0, 0.0, 0.9, 0.9, 0.0] + rng.normal(size=N)
    table = np.hstack([first, again, other])
    groups = {"first": [0, 1, 2], "again": [3, 4, 5], "null": [6, 7, 8], "other": [9, 10, 11]}
    model = SoULinearRegression(choice="path", inclusion=True, feature_groups=groups)
    found = model.fit(table, y).supports_
    assert 0.05 < found.group_inclusion[1] < 0.95
    assert found.group_inclusion[:2].sum() == pytest.approx(1.0, abs=0.3)
    sets = found.credible_sets()
    assert sorted(map(sorted, sets["features"])) == [["again", "first"], ["other"]]
    assert sets["purity"].min() > 0.9
    assert sets["effect"].isna().all()
    # the column's estimates average over which group it is
    estimate = found.summary()["estimate"]
    assert estimate["x0"] + estimate["x3"] == pytest.approx(0.8, abs=0.3)
