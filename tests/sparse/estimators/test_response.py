"""What every estimator of a response has: offsets, predictions, scores, files.

Covers response.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn.metrics import d2_tweedie_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import soubayes
from soubayes import (
    SoUGammaRegression,
    SoUNegativeBinomialRegression,
    SoUPoissonRegression,
    load_model,
    save_model,
)
from soubayes.sparse.likelihoods.poisson import Poisson


def counts(n=200, p=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.7)
    exposure = rng.uniform(0.5, 3.0, n)
    return X, rng.poisson(exposure * np.exp(1.0 + 0.6 * X[:, 0] - 0.4 * X[:, 3])), exposure


class Waiting(soubayes.RowLikelihood):
    def derivatives(self, eta, y):
        ratio = y * np.exp(-eta)
        return eta + ratio, 1.0 - ratio, ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


FIXED = {"confidence_coef": 4.0, "confidence_local": 1e-3, "tol": 1e-11}


def test_every_home_of_the_rows_gives_the_same_fit():
    X, y, exposure = counts()
    dense = SoUPoissonRegression(**FIXED).fit(X, y, exposure=exposure)
    assert dense.converged_
    both = np.column_stack([y, np.log(exposure)])
    blocks = [(X[:90], both[:90]), (X[90:], both[90:])]
    for other in (
        SoUPoissonRegression(**FIXED).fit(sp.csr_array(X), y, offset=np.log(exposure)),
        SoUPoissonRegression(**FIXED).fit(blocks),
        SoUPoissonRegression(**FIXED).fit(X * 10.0, y, exposure=exposure * 60.0),
    ):
        scale = 10.0 if other.intercept_ < 0 else 1.0
        np.testing.assert_allclose(other.coef_ * scale, dense.coef_, atol=1e-8)
    assert other.intercept_ == pytest.approx(dense.intercept_ - np.log(60.0), abs=1e-8)


def test_weights_count_rows_and_rows_of_weight_0_do_not_count():
    X, y, exposure = counts()
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    ours = SoUPoissonRegression(**FIXED).fit(X, y, sample_weight=weight, exposure=exposure)
    again = np.repeat(np.arange(len(y)), weight)
    theirs = SoUPoissonRegression(**FIXED).fit(X[again], y[again], exposure=exposure[again])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)


def test_predictions_scores_and_a_file_of_a_mixture(tmp_path):
    X, y, exposure = counts()
    model = SoUPoissonRegression(inclusion=True).fit(X[:150], y[:150], exposure=exposure[:150])
    new = {"exposure": exposure[150:]}
    mean, sd = model.predict(X[150:], return_std=True, **new)
    np.testing.assert_allclose(mean, model.predict(X[150:], offset=np.log(exposure[150:])))
    assert (sd > np.sqrt(mean)).all()  # more than Poisson noise
    low, high = model.predict(X[150:], quantiles=[0.05, 0.95], **new).T
    assert np.mean((low <= y[150:]) & (y[150:] <= high)) > 0.8
    assert model.score(X[150:], y[150:], **new) > 0.3
    assert model.score(X[150:], y[150:]) == pytest.approx(
        d2_tweedie_score(y[150:], model.predict(X[150:]), power=1)
    )
    density = model.log_density(X[150:], y[150:], **new)
    near = stats.poisson.logpmf(y[150:], mean)
    assert np.abs(density - near).max() < 0.5
    assert model.log_score(X[150:], y[150:], **new) == pytest.approx(density.mean())
    held = model.out_of_fold_
    assert np.isfinite(held["sd"]).all()
    np.testing.assert_array_equal(held["y"], y[:150])
    assert np.array_equal(np.flatnonzero(model.supports_.inclusion > 0.9), [0, 3])
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X[150:], **new), mean)
    np.testing.assert_array_equal(loaded.predict(X[150:], quantiles=[0.05, 0.95], **new)[:, 0], low)


def test_the_intercept_of_draws_and_path_has_no_shift_left():
    X, y, exposure = counts()
    model = SoUPoissonRegression().fit(X, y, exposure=exposure)
    draws = model.sample(4000, random_state=0)
    assert draws["intercept"].mean() == pytest.approx(model.intercept_, abs=0.01)
    path = model.sparse_.path_
    assert path["refit_intercept"][path["chosen"]].iloc[0] == pytest.approx(
        model.sparse_.intercept_, abs=1e-3
    )
    eta = model.sparse_.intercept_ + X @ model.sparse_.coef_ + np.log(exposure)
    assert np.exp(eta).sum() == pytest.approx(y.sum(), rel=0.01)  # the score of the intercept


def test_metadata_is_routed():
    from sklearn import config_context

    X, y, exposure = counts()
    with config_context(enable_metadata_routing=True):
        own = SoUPoissonRegression(**FIXED).set_fit_request(exposure=True)
        model = make_pipeline(StandardScaler(), own.set_predict_request(exposure=True))
        model.fit(X, y, exposure=exposure)
        plain = SoUPoissonRegression(**FIXED).fit(X, y, exposure=exposure)
        np.testing.assert_allclose(
            model.predict(X, exposure=exposure), plain.predict(X, exposure=exposure), rtol=1e-6
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": [-1, 2, 3]}, "negative values, the least -1"),
        ({"y": [0.5, 2, 3]}, "such as 0.5, but counts are whole numbers"),
        ({"y": ["a", "b", "c"]}, "must hold numbers"),
        ({"exposure": [1.0, 0.0, 1.0]}, "exposure has entries of 0 or less"),
        ({"offset": [1.0, 2.0]}, "there are 3 rows"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    given = {"y": [1, 2, 3], **change}
    with pytest.raises(ValueError, match=message):
        SoUPoissonRegression().fit(np.eye(3), **given)


def test_offsets_of_blocks_are_a_column_of_y():
    X, y, exposure = counts()
    with pytest.raises(ValueError, match="second column of y"):
        SoUPoissonRegression().fit([(X, y)], offset=exposure)
    with pytest.raises(ValueError, match="logarithm a second column of y"):
        SoUPoissonRegression().fit([(X, y)], exposure=exposure)


def test_exposures_need_a_logarithmic_link():
    X, y, exposure = counts()
    own = soubayes.SoUGeneralizedRegression(Poisson(), **FIXED).fit(X, y, exposure=exposure)
    named = SoUPoissonRegression(**FIXED).fit(X, y, exposure=exposure)
    np.testing.assert_allclose(own.coef_, named.coef_, atol=1e-9)
    gamma = soubayes.SoUGammaRegression(**FIXED).fit(X, y + 0.5, exposure=exposure)
    offset = soubayes.SoUGammaRegression(**FIXED).fit(X, y + 0.5, offset=np.log(exposure))
    np.testing.assert_array_equal(gamma.coef_, offset.coef_)
    with pytest.raises(ValueError, match="mean of Waiting is not known to be proportional"):
        soubayes.SoUGeneralizedRegression(Waiting()).fit(X, y + 0.5, exposure=exposure)


def test_a_likelihood_without_a_distribution_says_what_it_lacks():
    X, y, _ = counts()
    model = soubayes.SoUGeneralizedRegression(Waiting(), **FIXED).fit(X, y + 0.5)
    with pytest.raises(TypeError, match="does not define noise"):
        model.predict(X, return_std=True)
    with pytest.raises(TypeError, match="does not define cdf"):
        model.predict(X, quantiles=[0.5])


def test_a_standard_deviation_that_rests_on_the_far_tail_is_said():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 4))
    y = rng.poisson(np.exp(0.5 + 0.5 * X[:, 0]))
    y[3] = 1000
    model = SoUNegativeBinomialRegression(cv=5, random_state=0).fit(X, y)
    near, far = X.mean(axis=0, keepdims=True), 5.0 * np.ones((1, 4))
    sd = model.predict(near, return_std=True)[1]
    assert sd[0] < 300.0
    assert model.predict(X, quantiles=[0.95]).max() < 10_000
    with pytest.warns(UserWarning, match="1 of 2 rows rests on the far tail"):
        model.predict(np.vstack([near, far]), return_std=True)


@pytest.mark.parametrize(
    "model",
    [
        SoUPoissonRegression(**FIXED),
        SoUNegativeBinomialRegression(**FIXED),
        SoUGammaRegression(**FIXED),
    ],
)
def test_rows_without_computable_means_are_said(model):
    X, y, _ = counts()
    model.fit(X, y + 1.0)
    far = X[:3].copy()
    far[0, 0] = 1e6
    with pytest.warns(UserWarning, match="1 of 3 rows lie so far"):
        mean = model.predict(far)
    np.testing.assert_array_equal(mean[1:], model.predict(far[1:]))
    with pytest.warns(UserWarning, match="rows"):
        sd = model.predict(far, return_std=True)[1]
    with pytest.warns(UserWarning, match="so far"):
        ends = model.predict(far, quantiles=[0.05, 0.95])
    assert all(np.isfinite(part).all() for part in (mean, sd, ends))
    assert mean[0] > 1e20


def test_more_columns_than_rows_predict_alike_in_every_container():
    """Also where hardly anything pulls at the intercept, as in the candidates without variance."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 120)) * (rng.random((40, 120)) < 0.5)
    y = rng.poisson(np.exp(0.5 + X[:, :3] @ [0.8, -0.6, 0.5]))
    dense, sparse = (
        SoUPoissonRegression(cv=3, random_state=0).fit(Z, y) for Z in (X, sp.csr_array(X))
    )
    assert dense.candidates_["weight"].iloc[-3:].max() > 0.01
    np.testing.assert_allclose(sparse.predict(X), dense.predict(X), rtol=1e-9)
