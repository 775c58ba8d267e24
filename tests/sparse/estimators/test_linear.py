"""The linear estimator as a user meets it.

Covers linear, gaussian, base, blocks, posterior, plots, moments and standardise.
"""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from soubayes import SoULinearRegression, plot_path, plot_shrinkage
from soubayes.datasets import experiment1, wide_design
from soubayes.sparse.posterior import LowRankPosterior

DATA = experiment1(55, 50, 10, random_state=0)


@pytest.fixture(scope="module")
def fitted():
    return SoULinearRegression(choice="path").fit(DATA.X, DATA.y)


def test_attributes_are_consistent(fitted):
    assert fitted.solver_ == "path"
    assert fitted.converged_
    np.testing.assert_array_equal(fitted.coef_ != 0, fitted.selected_)
    np.testing.assert_allclose(np.sqrt(np.diag(fitted.covariance_)), fitted.coef_sd_)
    assert fitted.covariance_.shape == (50, 50)
    assert np.all(np.linalg.eigvalsh(fitted.covariance_) > 0)
    assert np.all((fitted.shrinkage_ >= 0) & (fitted.shrinkage_ <= 1))
    assert np.all(fitted.shrinkage_[~fitted.selected_] > 0.999)
    assert fitted.effective_parameters_ == pytest.approx(np.sum(1 - fitted.shrinkage_))
    assert set(fitted.kl_) == {"coef", "local", "global", "noise", "intercept"}
    assert min(fitted.kl_.values()) >= 0
    assert {type(cost) for cost in fitted.kl_.values()} == {float}
    assert np.all(fitted.coef_sd_ > 0)
    path = fitted.path_
    assert path["gamma"][0] == 1.0
    assert path["gamma"].iloc[-1] == pytest.approx(3 * np.log(50))
    np.testing.assert_array_equal(path["n_selected"], (fitted.path_coef_ != 0).sum(axis=1))
    np.testing.assert_array_equal(fitted.path_coef_ != 0, fitted.path_coef_sd_.notna())
    assert fitted.confidence_coef_ in path["gamma"].tolist()
    chosen = np.flatnonzero(path["gamma"] == fitted.confidence_coef_)[0]
    np.testing.assert_array_equal(fitted.path_coef_.loc[chosen] != 0, fitted.selected_)


def test_covariance_is_the_posterior_of_the_active_columns(fitted):
    """gamma_b sigma^2 A^-1 in the user's units, recomputed from X."""
    on = fitted.selected_
    X = DATA.X[:, on] - DATA.X[:, on].mean(axis=0)
    V = fitted.covariance_[np.ix_(on, on)]
    # A = V^-1 sigma^2 is X'X plus a diagonal: the prior precisions
    A = np.linalg.inv(V) * fitted.noise_variance_
    prior = A - X.T @ X
    off = prior - np.diag(np.diag(prior))
    assert np.max(np.abs(off)) < 1e-6 * np.max(A)
    assert np.all(np.diag(prior) > 0)
    m = np.linalg.solve(A, X.T @ (DATA.y - DATA.y.mean()))
    np.testing.assert_allclose(m, fitted.coef_[on], rtol=1e-6)
    np.testing.assert_allclose(
        fitted.shrinkage_[on], np.diag(prior) * np.diag(V) / fitted.noise_variance_, rtol=1e-5
    )


def test_a_number_means_that_confidence_without_refit():
    model = SoULinearRegression(confidence_coef=3.0).fit(DATA.X, DATA.y)
    assert model.path_["gamma"].iloc[-1] == pytest.approx(3.0)
    np.testing.assert_allclose(model.path_coef_.iloc[-1], model.coef_, atol=0.02)
    assert model.confidence_coef_ == 3.0


def test_no_selection_means_the_coordinate_solver():
    with pytest.warns(ConvergenceWarning, match="leave the solver at its default"):
        slow = SoULinearRegression(choice="path", solver="coordinate", max_iter=5).fit(
            DATA.X, DATA.y
        )
    assert (slow.solver_, slow.converged_, slow.n_iter_) == ("coordinate", False, 5)
    assert slow.confidence_coef_ == 1.0
    model = SoULinearRegression(confidence_coef=1.0, confidence_local=0.5).fit(DATA.X, DATA.y)
    assert model.solver_ == "coordinate"
    assert model.selected_.all()
    assert np.all(np.diff(model.objective_) <= 1e-9)
    path = SoULinearRegression(confidence_coef=1.1, confidence_local=0.5).fit(DATA.X, DATA.y)
    assert path.solver_ == "coordinate"  # the path would start at 1


def test_units_order_and_container_do_not_matter(fitted):
    rng = np.random.default_rng(0)
    scale = 10 ** rng.uniform(-6, 6, size=50)
    shift = rng.normal(size=50) * scale
    moved = SoULinearRegression(choice="path").fit(DATA.X * scale + shift, 1e5 * DATA.y - 3e4)
    np.testing.assert_allclose(moved.coef_ * scale / 1e5, fitted.coef_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(moved.noise_variance_ / 1e10, fitted.noise_variance_, rtol=1e-8)
    order = rng.permutation(50)
    swapped = SoULinearRegression(choice="path").fit(DATA.X[:, order], DATA.y)
    np.testing.assert_allclose(swapped.coef_, fitted.coef_[order], rtol=1e-8, atol=1e-12)
    names = [f"gene{i}" for i in range(50)]
    frame = pd.DataFrame(DATA.X, columns=names)
    for X in (
        frame,
        pl.DataFrame(DATA.X, schema=names),
        DATA.X.tolist(),
        np.asfortranarray(DATA.X),
    ):
        other = SoULinearRegression(choice="path").fit(X, DATA.y)
        np.testing.assert_allclose(other.coef_, fitted.coef_, rtol=1e-8, atol=1e-12)
    assert list(SoULinearRegression(choice="path").fit(frame, DATA.y).feature_names_in_) == names
    single = SoULinearRegression(choice="path").fit(DATA.X.astype(np.float32), DATA.y)
    np.testing.assert_array_equal(single.selected_, fitted.selected_)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array])
@pytest.mark.parametrize("shape", [(80, 20), (20, 40)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_sparse_matrices(kind, shape, fit_intercept):
    rng = np.random.default_rng(1)
    X = rng.normal(size=shape) * (rng.random(shape) < 0.3)
    y = 3 * X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=shape[0]) + 4
    model = SoULinearRegression(choice="path", fit_intercept=fit_intercept)
    dense = clone(model).fit(X, y)
    sparse = clone(model).fit(kind(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(sparse.predict(kind(X)), dense.predict(X), rtol=1e-7)
    for one, two in zip(
        sparse.predict(kind(X), return_std=True), dense.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-6)


@pytest.mark.parametrize("shape", [(60, 8), (12, 20)])
def test_weights_count_rows(shape):
    rng = np.random.default_rng(2)
    X = rng.normal(size=shape)
    y = 2 * X[:, 0] + rng.normal(size=shape[0])
    weight = rng.integers(0, 4, size=shape[0]).astype(float)
    weighted = SoULinearRegression(choice="path").fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(shape[0]), weight.astype(int))
    repeated = SoULinearRegression(choice="path").fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6, atol=1e-9)
    assert weighted.noise_variance_ == pytest.approx(repeated.noise_variance_, rel=1e-6)


@pytest.mark.parametrize("cuts", [[20], [1, 2, 30], list(range(5, 55, 5))])
def test_any_number_of_chunks_gives_the_same_fit(fitted, cuts):
    model = SoULinearRegression(choice="path")
    for X, y in zip(np.split(DATA.X, cuts), np.split(DATA.y, cuts), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.partial_fit(X, y)
    np.testing.assert_allclose(model.coef_, fitted.coef_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(model.covariance_, fitted.covariance_, rtol=1e-6, atol=1e-14)
    assert model.intercept_ == pytest.approx(fitted.intercept_, rel=1e-8)
    assert model.noise_variance_ == pytest.approx(fitted.noise_variance_, rel=1e-8)


def test_chunks_of_a_wide_design_and_after_a_wide_fit():
    data = wide_design(n=40, p=60, signals=4)
    whole = SoULinearRegression(choice="path").fit(data.X, data.y)
    parts = SoULinearRegression(choice="path").partial_fit(data.X[:25], data.y[:25])
    parts.partial_fit(data.X[25:], data.y[25:])
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="kept no sufficient statistics"):
        whole.partial_fit(data.X, data.y)


def test_two_targets_are_two_fits(fitted):
    Y = np.column_stack([DATA.y, DATA.X[:, 3] * 2 + np.random.default_rng(0).normal(size=55)])
    both = SoULinearRegression(choice="path").fit(DATA.X, Y)
    second = SoULinearRegression(choice="path").fit(DATA.X, Y[:, 1])
    np.testing.assert_allclose(both.coef_, np.stack([fitted.coef_, second.coef_]), rtol=1e-9)
    np.testing.assert_allclose(both.intercept_, [fitted.intercept_, second.intercept_])
    assert both.covariance_.shape == (2, 50, 50)
    assert both.predict(DATA.X).shape == (55, 2)
    mean, std = both.predict(DATA.X, return_std=True)
    assert mean.shape == std.shape == (55, 2)
    assert both.sample(7, random_state=0)["coef"].shape == (7, 2, 50)
    assert len(both.summary()) == 100
    assert len(both.kl_) == len(both.path_) == len(both.objective_) == 2
    np.testing.assert_array_equal(both.get_support(), both.selected_.any(axis=0))
    plot_path(both, target=1)


def test_wide_data_finds_the_signals_and_gives_a_covariance_only_on_request():
    data = wide_design(n=80, p=600, signals=6, random_state=3)
    model = SoULinearRegression(choice="path").fit(data.X, data.y)
    assert model.selected_[:6].all()
    assert model.selected_.sum() <= 9
    state = pickle.dumps(model)
    assert len(state) < 600 * 600 * 8 / 2  # nothing p x p inside
    assert model.covariance_.shape == (600, 600)


def test_wide_dense_posterior_in_low_rank_form():
    """All columns in, p > n: the covariance, the draws and x'Sx against the direct inverse."""
    data = wide_design(n=15, p=25, signals=3)
    model = SoULinearRegression(confidence_coef=1.0, confidence_local=1.0, fit_intercept=False)
    model.fit(data.X, data.y)
    S = model.covariance_
    X = data.X
    A = np.linalg.inv(S) * model.noise_variance_
    off = A - X.T @ X
    assert np.max(np.abs(off - np.diag(np.diag(off)))) < 1e-6 * np.max(A)
    std = model.predict(X[:4], return_std=True)[1]
    expected = np.einsum("ij,jk,ik->i", X[:4], S, X[:4]) + model.noise_variance_
    np.testing.assert_allclose(std**2, expected, rtol=1e-8)
    draws = model.sample(40_000, random_state=1)["coef"]
    np.testing.assert_allclose(np.cov(draws.T), S, atol=6 * np.max(np.diag(S)) / 200)


def test_dense_candidates_of_wide_data_share_their_rows():
    """Of the n x p matrices of all candidates one is kept."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 400))
    model = SoULinearRegression().fit(X, X @ rng.normal(size=400) + rng.normal(size=60))
    parts = [part.posterior for part in model.mixtures_[0].components]
    dense = [q for q in parts if isinstance(q, LowRankPosterior)]
    assert len(dense) > 1
    assert len({id(q.X) for q in dense}) == 1
    assert len(pickle.dumps(model)) < 4 * X.nbytes


def test_draws_have_the_posteriors_moments(fitted):
    draws = fitted.sample(40_000, random_state=0)
    error = fitted.coef_sd_ / 200
    assert np.all(np.abs(draws["coef"].mean(axis=0) - fitted.coef_) < 5 * error)
    np.testing.assert_allclose(draws["coef"].std(axis=0), fitted.coef_sd_, rtol=0.03)
    assert abs(draws["intercept"].mean() - fitted.intercept_) < 5 * fitted.intercept_sd_ / 200
    assert draws["intercept"].std() == pytest.approx(fitted.intercept_sd_, rel=0.03)
    assert 1 / np.mean(1 / draws["noise_variance"]) == pytest.approx(
        fitted.noise_variance_, rel=0.02
    )
    again = fitted.sample(3, random_state=0)["coef"]
    np.testing.assert_array_equal(again, fitted.sample(3, random_state=0)["coef"])
    data = fitted.to_arviz(draws=50, random_state=0)
    assert data.posterior["coef"].shape == (1, 50, 50)


def test_predictions(fitted):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 50))
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, X @ fitted.coef_ + fitted.intercept_)
    centred = X - DATA.X.mean(axis=0)
    spread = np.einsum("ij,jk,ik->i", centred, fitted.covariance_, centred)
    draws = fitted.sample(20_000, random_state=1)
    eta = draws["coef"] @ X[:3].T + draws["intercept"][:, None]
    np.testing.assert_allclose(std[:3] ** 2, eta.var(axis=0) + fitted.noise_variance_, rtol=0.05)
    assert np.all(std**2 > spread + fitted.noise_variance_)


def test_feature_blocks_keep_their_columns_in():
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(rng.normal(size=(60, 30)), columns=[f"gene{i}" for i in range(30)])
    frame["age"], frame["sex"] = rng.normal(50, 10, size=60), rng.integers(0, 2, size=60)
    y = 2.0 * frame["gene0"] + 0.02 * frame["age"] + rng.normal(size=60)
    blocks = {
        "clinical": {
            "columns": ["age", "sex"],
            "prior": "normal",
            "variance": 10.0,
            "confidence": 1.0,
        }
    }
    model = SoULinearRegression(choice="path", feature_blocks=blocks).fit(frame, y)
    assert model.selected_[[0, 30, 31]].all()
    assert model.selected_.sum() < 8
    assert np.isnan(model.local_scale_[30])
    assert "clinical" in model.kl_
    # a wide normal prior leaves the block at its least squares estimate
    kept = model.selected_
    plain = LinearRegression().fit(frame.loc[:, kept], y)
    assert np.all(np.abs(model.coef_[30:] - plain.coef_[-2:]) < 0.1 * model.coef_sd_[30:])
    by_index = {"clinical": {**blocks["clinical"], "columns": [30, -1]}}
    other = SoULinearRegression(choice="path", feature_blocks=by_index).fit(frame, y)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-9)
    strict = {"half": {"columns": slice(0, 15), "confidence": 50.0, "confidence_local": 1e-8}}
    model = SoULinearRegression(choice="path", feature_blocks=strict).fit(frame, y)
    assert model.selected_[1:15].sum() == 0
    assert model.converged_
    wide = SoULinearRegression(choice="path", feature_blocks=blocks).fit(frame[:25], y[:25])
    assert wide.selected_[[30, 31]].all()


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([1], "must be a dict"),
        ({"a": {"prior": "normal"}}, "key 'columns'"),
        ({"a": {"columns": [0], "prior": "flat"}}, "'normal' or 'sparse'"),
        ({"a": {"columns": [0], "variance": 2.0}}, "unknown keys"),
        ({"a": {"columns": ["age"]}}, "no column names"),
        ({"a": {"columns": [99]}}, "asks for column 99"),
        ({"a": {"columns": [0]}, "b": {"columns": [0]}}, "already has"),
        ({"a": {"columns": [0, 0]}}, "twice"),
        ({"a": {"columns": []}}, "no columns"),
        ({"a": {"columns": [0], "prior": "normal", "variance": -1}}, "positive"),
        ({"a": {"columns": [True, False]}}, "mask"),
        ({"noise": {"columns": [0]}}, "block of the model"),
        ({"a": {"columns": [0], "confidence": -1}}, "greater than 0"),
    ],
)
def test_wrong_feature_blocks_are_explained(blocks, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SoULinearRegression(choice="path", feature_blocks=blocks).fit(DATA.X, DATA.y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"confidence_coef": -1.0}, "greater than 0"),
        ({"confidence_coef": "always"}, "'auto'"),
        ({"confidence_local": 0.0}, "greater than 0"),
        ({"confidence": {"noise": float("inf")}}, "finite"),
        ({"prior": "laplace"}, "'horseshoe'"),
        ({"solver": "newton"}, "'coordinate'"),
        ({"priors": {"rate_local": -3}}, "rate_local"),
        ({"priors": {"noise_scale": 0.0}}, "noise_scale"),
        ({"priors": {"noise_shape": "1"}}, "noise_shape"),
        ({"priors": {"intercept_variance": -1.0}}, "intercept_variance"),
        ({"max_iter": 0}, "max_iter"),
    ],
)
def test_wrong_parameters_are_explained(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SoULinearRegression(choice="path", **parameters).fit(DATA.X, DATA.y)


def test_wrong_data_is_explained():
    X, y = DATA.X[:10, :3], DATA.y[:10]
    model = SoULinearRegression(choice="path")
    with pytest.raises(ValueError, match="hold numbers"):
        model.fit(X, np.array(["a"] * 10))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(np.arange(10)[:, None] == 3, np.nan, X), y)
    with pytest.raises(ValueError, match="infinite values"):
        model.fit(X, np.r_[np.inf, y[1:]])
    with pytest.raises(ValueError, match="inconsistent"):
        model.fit(X, y[:-1])
    with pytest.raises(ValueError, match="1 sample"):
        model.fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="too large"):
        model.fit([(X * 1e200, y)])
    with pytest.raises(ValueError, match="too large"):
        model.fit([(np.full((10, 1), 1e200), y)])  # a constant has no scale to divide by
    with pytest.raises(ValueError, match="divide y by a constant"):
        model.fit(X, y * 1e200)
    with pytest.raises(ValueError, match="above 0"):
        model.fit(X, y, sample_weight=np.zeros(10))
    with pytest.raises(ValueError, match="between 0 and 1"):
        SoULinearRegression(choice="path").fit(X, y).summary(level=2)
    with pytest.raises(NotFittedError):
        SoULinearRegression(choice="path").predict(X)


NOISE = pytest.mark.parametrize("noise", ["normal", "student"])


@NOISE
@pytest.mark.parametrize("size", [5e307, 1e-310])
def test_units_that_no_coefficient_has_are_refused(noise, size):
    X, y = DATA.X[:30, :3], DATA.y[:30]
    model = SoULinearRegression(noise=noise)
    with pytest.raises(ValueError, match=r"column \d of X has a standard deviation of"):
        model.fit(X / np.abs(X).max() * size, y)
    with pytest.raises(ValueError, match="divide y by a constant"):
        model.fit(X, y / np.abs(y).max() * size)


@NOISE
@pytest.mark.parametrize("size", [1e155, 1e170, 1e200])
def test_a_value_that_no_fold_can_predict_is_named(noise, size):
    X = DATA.X[:30, :3].copy()
    X[4, 1] = size
    with pytest.raises(ValueError, match=r"column 1 of X has a value .* correct the value"):
        SoULinearRegression(noise=noise).fit(X, DATA.y[:30])


@NOISE
def test_weights_count_two_rows_at_least(noise):
    X, y = DATA.X[:30, :3], DATA.y[:30]
    model, one = SoULinearRegression(noise=noise), np.eye(30)[3]
    with pytest.raises(ValueError, match="1 rows of positive weight, but 2 are needed"):
        model.fit(X, y, one)
    for weight in (1e-12, 0.05):
        for rows in ((X, y, np.full(30, weight)), ([(X, y, np.full(30, weight))],)):
            with pytest.raises(ValueError, match="multiply the weights"):
                model.fit(*rows)


@pytest.mark.parametrize("shape", [(30, 5), (25, 40), (8, 2)])
@pytest.mark.parametrize("values", [[4.0], [0.0], [0.0] * 7 + [1.0]])
def test_student_noise_where_most_rows_are_equal(shape, values):
    """Without residuals sigma has no largest likelihood; its prior holds it above 0."""
    y = np.resize(values, shape[0])
    model = SoULinearRegression(noise="student", choice="path").fit(
        DATA.X[: shape[0], : shape[1]], y
    )
    assert 0.0 < model.noise_variance_ < 10.0
    assert np.isfinite([*model.coef_, *model.coef_sd_, model.intercept_sd_]).all()
    if len(values) == 1:
        assert not model.selected_.any()
        np.testing.assert_array_equal(model.predict(DATA.X[:9, : shape[1]]), values[0])


def test_degenerate_data_has_a_sensible_answer():
    X, y = DATA.X[:30, :5].copy(), DATA.y[:30]
    flat = SoULinearRegression(choice="path").fit(X, np.full(30, 4.0))
    assert not flat.selected_.any()
    assert flat.intercept_ == 4.0
    np.testing.assert_array_equal(flat.predict(X), 4.0)
    X[:, 2] = 7.0
    constant = SoULinearRegression(choice="path").fit(X, y)
    assert constant.coef_[2] == 0
    assert np.all(np.isfinite(constant.coef_sd_))
    doubled = SoULinearRegression(choice="path").fit(np.column_stack([X, X[:, 4]]), y)
    assert np.all(np.isfinite(doubled.coef_))
    perfect = SoULinearRegression(choice="path").fit(
        DATA.X[:30, :5], DATA.X[:30, :5] @ np.arange(5.0)
    )
    np.testing.assert_allclose(perfect.coef_, np.arange(5.0), atol=1e-4)
    two = SoULinearRegression(choice="path").fit(DATA.X[:2], DATA.y[:2])
    assert np.all(np.isfinite(two.coef_))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    n=st.integers(2, 12),
    p=st.integers(1, 14),
    x_scale=st.integers(-8, 8),
    y_scale=st.integers(-8, 8),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
    dtype=st.sampled_from([np.float64, np.float32, np.int64]),
    intercept=st.booleans(),
    seed=st.integers(0, 50),
    confidence=st.sampled_from(["auto", 0.3, 1.0, 7.0]),
)
def test_fuzz_never_a_silent_nan(
    n, p, x_scale, y_scale, offset, dtype, intercept, seed, confidence
):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, p)) + offset) * 10.0**x_scale
    y = (X[:, 0] / 10.0**x_scale + rng.normal(size=n)) * 10.0**y_scale
    with np.errstate(all="ignore"):
        X = X.astype(dtype)
    model = SoULinearRegression(choice="path", fit_intercept=intercept, confidence_coef=confidence)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    mean, std = model.predict(X, return_std=True)
    for values in (mean, std, model.coef_, model.coef_sd_, model.shrinkage_, model.objective_):
        assert np.all(np.isfinite(values))
    assert np.isfinite([model.noise_variance_, model.intercept_, model.intercept_sd_]).all()
    assert model.noise_variance_ > 0
    assert np.all(np.isfinite(list(model.kl_.values())))


def test_works_inside_scikit_learn(fitted):
    scores = cross_val_score(SoULinearRegression(choice="path"), DATA.X, DATA.y, cv=3)
    assert scores.min() > 0.9
    grid = GridSearchCV(
        SoULinearRegression(choice="path"), {"confidence_coef": ["auto", 4.0]}, cv=3
    )
    assert grid.fit(DATA.X, DATA.y).best_score_ > 0.9
    chain = make_pipeline(StandardScaler(), SoULinearRegression(choice="path"), LinearRegression())
    assert chain.fit(DATA.X, DATA.y).score(DATA.X, DATA.y) > 0.95
    frame = pd.DataFrame(DATA.X, columns=[f"c{i}" for i in range(50)])
    selector = SoULinearRegression(choice="path").set_output(transform="pandas").fit(frame, DATA.y)
    assert list(selector.transform(frame).columns) == list(frame.columns[selector.selected_])
    table = selector.summary(level=0.8)
    assert list(table.columns) == ["estimate", "sd", "median", "lower", "upper", "selected"]
    assert table.index[0] == "c0"
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(DATA.X), fitted.predict(DATA.X))


def test_verbose_says_where_it_is(capsys):
    SoULinearRegression(choice="path", verbose=1).fit(DATA.X, DATA.y)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 22
    assert lines[0].startswith("confidence 1.000:")
    SoULinearRegression(verbose=1, confidence_coef=1, confidence_local=1).fit(DATA.X, DATA.y)
    assert "sweep 1: J = " in capsys.readouterr().err


def test_plots(fitted):
    ax = plot_path(fitted)
    assert "confidence" in ax.get_xlabel()
    assert len(ax.lines) > fitted.selected_.sum()
    # standardised: the picture does not depend on units; long names keep both of their ends
    frame = pd.DataFrame(DATA.X * np.geomspace(1e-3, 1e3, DATA.X.shape[1]))
    strict = SoULinearRegression(confidence_coef=12.0).fit(DATA.X, DATA.y)
    other = clone(strict).fit(frame.add_prefix("a name of many letters "), 50 * DATA.y)
    theirs = plot_path(other)
    for mine, line in zip(plot_path(strict).lines, theirs.lines, strict=True):
        np.testing.assert_allclose(line.get_ydata(), mine.get_ydata(), rtol=1e-6, atol=1e-9)
    names = [text.get_text() for text in theirs.get_legend().get_texts()]
    assert len(set(names)) == other.selected_.sum()
    assert max(map(len, names)) <= 24
    ax = plot_shrinkage(fitted)
    assert len(ax.get_legend().get_texts()) == 2


def test_the_number_of_threads_does_not_matter():
    data = experiment1(205, 200, 10, random_state=0)  # large enough for threaded BLAS
    fits = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            fits.append(SoULinearRegression(choice="path").fit(data.X, data.y))
    one, two = fits
    np.testing.assert_array_equal(one.selected_, two.selected_)
    for name in ("coef_", "coef_sd_", "noise_variance_", "shrinkage_", "objective_"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-8, atol=1e-12)
