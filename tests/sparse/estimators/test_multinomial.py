"""`SoULogisticRegression(multi_class="multinomial")`."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.base import clone

from soubayes import Block, Model, SoULogisticRegression, load_model, save_model, solve_exact
from soubayes.sparse.choice.folds import ChoiceWarning
from soubayes.sparse.estimators.parameters import intercept_prior
from soubayes.sparse.likelihoods.softmax import Softmax, class_basis
from soubayes.sparse.rows.family import RowFamily


def made(n=200, p=8, c=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    W = np.zeros((p, c))
    W[0, 0], W[0, 1], W[1, 2], W[1, 0] = 1.5, -1.5, 1.5, -1.5
    return X, np.argmax(X @ W + rng.gumbel(size=(n, c)), axis=1)


@pytest.fixture(scope="module")
def fitted():
    X, y = made()
    names = np.array(["a", "b", "c"])
    return X, names[y], SoULogisticRegression(multi_class="multinomial", cv=3).fit(X, names[y])


def test_a_column_comes_or_goes_for_all_classes(fitted):
    model = fitted[-1]
    assert model.coef_.shape == model.selected_.shape == (3, 8)
    assert (model.selected_ == model.selected_[0]).all()
    assert set(np.flatnonzero(model.selected_[0])) >= {0, 1}
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.sparse_.coef_.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(model.sparse_.coef_ != 0.0, model.selected_)


def test_probabilities(fitted):
    X, y, model = fitted
    p, sd = model.predict_proba(X, return_std=True)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.all((sd > 0.0) & (sd < 0.5))
    assert np.mean(model.predict(X) == y) == model.score(X, y) > 0.6
    odds = model.decision_function(X)
    np.testing.assert_allclose(odds, np.log(p / (1.0 - p)), atol=1e-8)
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(p), atol=1e-12)
    far = model.predict_proba(np.array([[1e305] + [0.0] * 7]))
    assert np.isfinite(far).all()


def test_probabilities_are_averages_over_draws(fitted):
    X, _, model = fitted
    point = model.sparse_
    draws = point.sample(20_000, random_state=0)
    eta = np.einsum("skj,nj->snk", draws["coef"], X[:5]) + draws["intercept"][:, None]
    share = np.exp(eta - np.logaddexp.reduce(eta, axis=2)[:, :, None])
    np.testing.assert_allclose(point.predict_proba(X[:5]), share.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(
        point.predict_proba(X[:5], return_std=True)[1], share.std(axis=0), atol=0.01
    )
    np.testing.assert_allclose(draws["coef"].std(axis=0), point.coef_sd_, rtol=0.05, atol=1e-3)
    S = np.cov(draws["coef"][:, 1].T)
    np.testing.assert_allclose(S, point.covariance_[1], atol=0.02 * S.max())


def test_reports(fitted, tmp_path):
    X, y, model = fitted
    table = model.summary()
    np.testing.assert_allclose(table["estimate"], model.coef_.ravel())
    assert (table["lower"] <= table["upper"]).all()
    assert len(model.candidates_) == 3
    held = [frame["mean"].to_numpy() for frame in model.out_of_fold_]
    np.testing.assert_allclose(np.sum(held, axis=0), 1.0)
    assert model.out_of_fold_[0]["y"].sum() == np.sum(y == "a")
    assert "log loss" in model.sparsity_[0].measure
    posterior = model.to_arviz(20).posterior
    assert posterior["coef"].shape == (1, 20, 3, 8)
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    for one, two in ((again, model), (again.sparse_, model.sparse_)):
        np.testing.assert_allclose(one.predict_proba(X), two.predict_proba(X), rtol=1e-12)
    assert np.isfinite(model.sparse_.objective_[0]).all()
    assert (np.diff(model.sparse_.objective_[0]) <= 1e-9).all()


def test_units_names_and_containers_do_not_matter(fitted):
    X, y, model = fitted
    p = model.predict_proba(X[:20])
    settings = {"multi_class": "multinomial", "cv": 3}
    scale = np.geomspace(1e-3, 1e3, 8)
    scaled = SoULogisticRegression(**settings).fit(X * scale + 5.0, y)
    np.testing.assert_allclose(scaled.predict_proba(X[:20] * scale + 5.0), p, rtol=1e-6)
    csr = SoULogisticRegression(**settings).fit(sp.csr_array(X), y)
    np.testing.assert_allclose(csr.predict_proba(sp.csr_array(X[:20])), p, rtol=1e-8)
    other = np.array([{"a": "z", "b": "m", "c": "b"}[label] for label in y])
    renamed = SoULogisticRegression(**settings).fit(X, other)
    np.testing.assert_allclose(renamed.predict_proba(X[:20])[:, ::-1], p, rtol=1e-6)
    back = SoULogisticRegression(**settings).fit(X[:, ::-1], y)
    np.testing.assert_allclose(back.predict_proba(X[:20, ::-1]), p, rtol=1e-6)


def test_a_weight_of_2_is_a_row_twice():
    X, y = made(60, 3)
    settings = {"multi_class": "multinomial", "choice": "path", "confidence_coef": 3.0}
    weight = 1 + (np.arange(60) % 2)
    one = SoULogisticRegression(**settings).fit(X, y, sample_weight=weight)
    two = SoULogisticRegression(**settings).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-5, atol=1e-7)


def test_feature_blocks_and_groups():
    X, y = made(150, 6)
    block = {"kept": {"columns": [5], "prior": "normal", "variance": 2.0}}
    model = SoULogisticRegression(multi_class="multinomial", choice="path", feature_blocks=block)
    model.fit(X, y)
    assert model.selected_[:, 5].all()
    assert set(model.kl_[0]) == {"coef", "kept", "local", "global", "intercept"}
    groups = SoULogisticRegression(
        multi_class="multinomial", choice="path", feature_groups=[0, 0, 1, 1, 2, 2]
    ).fit(X, y)
    pairs = groups.selected_[0].reshape(3, 2)
    assert (pairs[:, 0] == pairs[:, 1]).all()
    assert pairs[0].all()


@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_two_classes_are_logistic_regression_of_the_contrast(gamma):
    X, y = made(150, 6, c=3)
    y = (y == 0).astype(int)
    settings = {"fit_intercept": False, "confidence_coef": gamma, "confidence_local": 1e-3}
    model = SoULogisticRegression(**settings, tol=1e-10)
    model.n_features_in_ = 6
    fit = RowFamily(Softmax(2), model._row_settings(intercept_prior(model)))
    intake = fit.design(X, [1 - y], np.ones(150))
    solved = fit.solve(intake, [""])[0]
    # tau^2 nu^2 is the prior variance of a coordinate, twice that the one of the contrast
    peer = SoULogisticRegression(**settings, priors={"rate_global": 5.0}, tol=1e-10).fit(X, y)
    contrast = np.sqrt(2.0) * solved.component.posterior.mean[:, 0]
    np.testing.assert_array_equal(solved.points[0].selected, peer.selected_[0])
    np.testing.assert_allclose(contrast, peer.coef_[0], atol=2e-5)
    sd, kept = 2.0 * solved.component.posterior.of_class(0).sd, peer.selected_[0]
    np.testing.assert_allclose(sd[kept], peer.coef_sd_[0][kept], rtol=1e-3)


@pytest.mark.parametrize("confidence", [0.5, 2.0])
def test_one_column_of_three_classes_is_the_exact_posterior(confidence):
    rng = np.random.default_rng(3)
    x = rng.normal(size=80)
    x /= np.sqrt((x**2).mean())
    y = np.argmax(np.outer(x, [0.7, -0.2, -0.5]) + rng.gumbel(size=(80, 3)), axis=1)
    counts = np.bincount(y)
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    A = class_basis(3)[rank]

    def loss(first, second):
        u = np.stack(np.broadcast_arrays(first, second), axis=-1)
        eta = np.einsum("...a,ka,n->...nk", u, A, x)
        whole = np.logaddexp.reduce(eta, axis=-1)
        return (whole - eta[..., np.arange(80), y]).sum(axis=-1)

    one = stats.norm(0.0, 1.0)
    exact = solve_exact(
        Model([Block("first", one), Block("second", one)], loss=loss),
        confidence={"first": confidence, "second": confidence},
    )
    block = {"all": {"columns": [0], "prior": "normal", "variance": 1.0, "confidence": confidence}}
    model = SoULogisticRegression(
        multi_class="multinomial", feature_blocks=block, fit_intercept=False, choice="path"
    ).fit(x[:, None], y)
    mean = A @ [exact.mean("first"), exact.mean("second")]
    np.testing.assert_allclose(model.coef_[:, 0], mean, atol=0.06 * model.coef_sd_.max())
    total = exact.sd("first") ** 2 + exact.sd("second") ** 2
    assert np.sum(model.coef_sd_**2) == pytest.approx(total, rel=0.06)


def test_bad_input():
    X, y = made(40, 3)
    for settings, words in (
        ({"multi_class": "softmax"}, "'auto', 'ovr', 'multinomial'"),
        ({"multi_class": "multinomial", "bound": "jaakkola"}, "bound is 'jaakkola'"),
    ):
        with pytest.raises(ValueError, match=words):
            SoULogisticRegression(**settings).fit(X, y)
    y = np.where(np.arange(40) == 0, 7, y)
    with pytest.warns(ChoiceWarning, match="has one row"):
        model = SoULogisticRegression(multi_class="multinomial").fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_two_classes_are_fitted_as_ever():
    X, y = made(100, 3)
    settings = {"choice": "path"}
    one = SoULogisticRegression(multi_class="multinomial", **settings).fit(X, y > 0)
    two = SoULogisticRegression(**settings).fit(X, y > 0)
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_auto_is_softmax_where_it_is_affordable():
    X, y = made(60, 4)
    settings = {"choice": "path", "confidence_coef": 3.0}
    auto = SoULogisticRegression(**settings).fit(X, y)
    softmax = SoULogisticRegression(multi_class="multinomial", **settings).fit(X, y)
    np.testing.assert_array_equal(auto.coef_, softmax.coef_)
    np.testing.assert_allclose(auto.coef_.sum(axis=0), 0.0, atol=1e-12)
    assert np.isfinite(auto.path_coef_sd_[0].to_numpy()[-1][auto.selected_[0]]).all()
    bound = SoULogisticRegression(bound="jaakkola", **settings).fit(X, y)
    assert np.abs(bound.coef_.sum(axis=0)).max() > 1e-3


@pytest.mark.parametrize("confidence", ["auto", 2.0])
def test_the_container_does_not_decide_the_model_of_several_classes(confidence):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(240, 5))
    y = (X[:, :3] + rng.gumbel(size=(240, 3))).argmax(axis=1)
    model = SoULogisticRegression(confidence_coef=confidence)
    blocks = [(X[i : i + 80], y[i : i + 80]) for i in range(0, 240, 80)]
    whole, streamed = clone(model).fit(X, y), clone(model).fit(lambda: iter(blocks))
    np.testing.assert_allclose(whole.coef_, streamed.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(whole.coef_.sum(axis=0), 0.0, atol=1e-8)  # softmax
