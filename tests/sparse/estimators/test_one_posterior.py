"""One object, one posterior: every number of an estimator, a view or a table is of the same q.

Covers base, point, parameters, reports, view and mixture.
"""

import pickle

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.preprocessing import KBinsDiscretizer

from soubayes import (
    RowLikelihood,
    SoUGeneralizedRegression,
    SoULinearRegression,
    SoULogisticRegression,
    load_model,
    save_model,
)


class Waiting(RowLikelihood):
    """y > 0 is exponential with mean exp(eta)."""

    def derivatives(self, eta, y):
        ratio = y * np.exp(-eta)
        return eta + ratio, 1.0 - ratio, ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


def fitted(name):
    if name == "linear":
        return SoULinearRegression(inclusion=True).fit(*load_diabetes(return_X_y=True))
    if name == "generalized":
        X, y = load_diabetes(return_X_y=True)
        return SoUGeneralizedRegression(Waiting(), inclusion=True).fit(X, y / 100.0)
    if name == "targets":
        X, y = load_diabetes(return_X_y=True)
        return SoULinearRegression(inclusion=True).fit(X, np.column_stack([y, X[:, 2] + y / 1e3]))
    X, y = (load_wine if name == "classes" else load_breast_cancer)(return_X_y=True)
    return SoULogisticRegression(inclusion=True).fit(X[::2, :8], y[::2])


@pytest.fixture(scope="module", params=["linear", "generalized", "targets", "classes", "two"])
def model(request):
    return fitted(request.param)


def test_a_table_is_of_one_posterior(model):
    for each in (model, model.sparse_):
        table = each.summary()
        np.testing.assert_array_equal(table["estimate"], np.ravel(each.coef_))
        np.testing.assert_allclose(table["sd"], np.ravel(each.coef_sd_))
        np.testing.assert_array_equal(table["selected"], np.ravel(model.selected_))
        variance = np.diagonal(each.covariance_, axis1=-2, axis2=-1)
        np.testing.assert_allclose(np.sqrt(variance).ravel(), np.ravel(each.coef_sd_), rtol=1e-6)
    assert model.summary().columns.name == "full model"
    given = "sparse point, intervals take its columns as given"
    assert model.sparse_.summary().columns.name == given


def test_the_recalibration_has_a_name_of_its_own(model):
    if hasattr(model, "odds_power_"):
        for each in (model, model.sparse_):
            np.testing.assert_array_equal(each.odds_power_, [m.power for m in each.mixtures_])
    if hasattr(model, "inflation_"):
        tables = model.candidates_ if isinstance(model.candidates_, list) else [model.candidates_]
        mean = [table["weight"] @ table["inflation"].fillna(0.0) for table in tables]
        np.testing.assert_allclose(np.ravel(model.inflation_), mean)
        assert np.all(np.asarray(model.inflation_) >= 1.0)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_every_estimate_lies_in_its_own_interval(model, level):
    for table in (each.summary(level=level) for each in (model, model.sparse_, model.supports_)):
        assert (table["lower"] <= table["median"]).all()
        assert (table["median"] <= table["upper"]).all()
        assert table.drop(columns=["selected"], errors="ignore").notna().all(axis=None)


def test_intervals_are_those_of_draws(model):
    n, t = 4000, 0
    draws = model.sample(n, random_state=1)["coef"]
    draws = draws if draws.ndim == 2 else draws[:, t]
    table = model.summary(level=0.8)
    rows = table if table.index.nlevels == 1 else table.loc[model._target_names()[t]]
    below = (draws <= rows["lower"].to_numpy()).mean(axis=0)
    above = (draws >= rows["upper"].to_numpy()).mean(axis=0)
    # draws of a component are normal, its intervals Student's: alike with hundreds of rows
    margin = 5.0 * np.sqrt(0.1 * 0.9 / n) + 0.005
    np.testing.assert_allclose(below, 0.1, atol=margin)
    np.testing.assert_allclose(above, 0.1, atol=margin)


def test_quantiles_of_a_mixture_solve_for_its_distribution_function(model):
    mixture, levels = model.mixtures_[0], np.array([0.05, 0.5, 0.95])
    p = model.n_features_in_
    found = mixture.coefficient_quantiles(levels, p)
    for level, at in zip(levels, found, strict=True):
        below = sum(
            part.weight
            * stats.t.cdf(
                at, 2.0 * part.noise_shape, part.posterior.mean[:p], part.posterior.sd[:p]
            )
            for part in mixture.components
        )
        np.testing.assert_allclose(below, level, atol=1e-7)


def test_the_sparse_point_is_an_estimator_of_its_own(model):
    point = model.sparse_
    assert type(point) is type(model)
    assert point.sparse_ is point
    assert (np.asarray(point.coef_)[~np.asarray(point.selected_)] == 0.0).all()
    assert point.get_params()["choice"] == "path"
    X = load_wine().data if model.n_features_in_ == 13 else None
    if X is not None:
        assert point.predict(X[:3]).shape == (3,)
        np.testing.assert_array_equal(model.transform(X[:3]), point.transform(X[:3]))


def test_what_belongs_to_the_sparse_point_is_asked_of_it(model):
    for name in ("path_", "path_coef_", "kl_", "objective_", "shrinkage_", "local_scale_"):
        assert not hasattr(model, name)
        assert hasattr(model.sparse_, name)
    with pytest.raises(AttributeError, match=r"sparse_\.kl_"):
        _ = model.kl_
    with pytest.raises(AttributeError, match="inclusion=True"):
        _ = model.sparse_.supports_


def test_the_sparse_point_equals_a_fit_along_the_path():
    X, y = load_diabetes(return_X_y=True)
    alone = SoULinearRegression(choice="path").fit(X, y)
    point = SoULinearRegression().fit(X, y).sparse_
    # the moments of folds are added in another order
    np.testing.assert_allclose(alone.coef_, point.coef_, rtol=1e-12)
    np.testing.assert_allclose(alone.objective_[-1], point.objective_[-1], rtol=1e-12)
    assert alone.sparse_ is alone


def test_clones_pickles_and_files_bear_the_views(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    label = KBinsDiscretizer(2, encode="ordinal", quantile_method="averaged_inverted_cdf")
    for estimator, target in (
        (SoULinearRegression(inclusion=True), y),
        (SoULogisticRegression(inclusion=True), label.fit_transform(y[:, None]).ravel()),
    ):
        model = estimator.fit(X, target)
        save_model(model, tmp_path / "model.soubayes")
        for other in (pickle.loads(pickle.dumps(model)), load_model(tmp_path / "model.soubayes")):
            np.testing.assert_array_equal(other.sparse_.coef_, model.sparse_.coef_)
            assert other.sparse_.sparse_ is other.sparse_
            assert other.summary().equals(model.summary())
            assert other.supports_.summary().equals(model.supports_.summary())
            assert str(other.sparsity_) == str(model.sparsity_)
        assert not hasattr(clone(model), "sparse_")


def test_a_second_fit_leaves_nothing_of_the_first():
    X, y = load_diabetes(return_X_y=True)
    model = SoULinearRegression(inclusion=True).fit(X, y)
    model.set_params(choice="path", inclusion=False).fit(X, y)
    assert model.sparse_ is model
    for name in ("candidates_", "out_of_fold_", "sparsity_", "supports_"):
        assert not hasattr(model, name)
