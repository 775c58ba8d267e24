"""The logistic estimator: answers against independent ones, inputs people have, bad input.

Covers logistic, rowwise_report, rows and bernoulli.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy import sparse as sps
from scipy.special import expit
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_dict_unchanged,
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

import soubayes
from soubayes import SoULogisticRegression
from soubayes.sparse.likelihoods import bernoulli
from soubayes.sparse.likelihoods.bernoulli import Bernoulli, JaakkolaBernoulli
from soubayes.sparse.rows import newton
from soubayes.sparse.rows.passes import RowProblem, RowsInMemory
from soubayes.sparse.rows.path import share_rows
from soubayes.sparse.rows.state import make_state


@pytest.mark.filterwarnings("ignore:No features were selected")
@parametrize_with_checks(
    [
        SoULogisticRegression(confidence_coef=1.0),
        SoULogisticRegression(confidence_coef=1.0, confidence_local=1.0),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No features were selected")
@parametrize_with_checks([SoULogisticRegression(choice="path")])
def test_scikit_learn_checks_of_the_path(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:No features were selected")
def test_a_few_scikit_learn_checks_of_the_path():
    """Those that look at what the path alone decides; the others are slow."""
    estimator = SoULogisticRegression(choice="path")
    check_sample_weight_equivalence_on_dense_data("SoULogisticRegression", estimator)
    check_dict_unchanged("SoULogisticRegression", estimator)


def data(n=200, p=12, seed=0, classes=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * np.logspace(-1, 1, p) + rng.normal(size=p)
    signal = np.zeros((p, classes))
    signal[:2, 0], signal[2:4, -1] = [1.5, -1.0], [1.0, 1.5]
    score = (X - X.mean(0)) / X.std(0) @ signal + rng.gumbel(size=(n, classes))
    return X, np.argmax(score, axis=1)


@pytest.fixture(scope="module")
def fitted():
    X, y = data()
    return SoULogisticRegression(confidence_coef=1.0).fit(X, y), X, y


# ---- probabilities ------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [0.0, 0.3, 4.0, 100.0])
def test_averaged_probability_and_its_sd_against_quadrature(variance):
    for mean in (-12.0, -2.0, 0.0, 0.7, 5.0):
        sd = np.sqrt(variance)

        def average(power, mean=mean, sd=sd):
            if sd == 0.0:
                return expit(mean) ** power
            grid = np.linspace(-9.0, 9.0, 20_001)
            return integrate.simpson(expit(mean + sd * grid) ** power * norm.pdf(grid), x=grid)

        p = average(1)
        assert bernoulli.mean_probability(mean, variance) == pytest.approx(p, abs=4e-9)
        spread = np.sqrt(max(average(2) - p**2, 0.0))
        assert bernoulli.probability_sd(mean, variance) == pytest.approx(spread, abs=2e-4)
        log_p = bernoulli.log_mean_probability(np.array(mean), np.array(variance))
        assert log_p == pytest.approx(np.log(p), abs=5e-3)


def test_log_probability_has_the_right_tail():
    mean = np.array([-20.0, -60.0])
    expected = mean + 0.25
    np.testing.assert_allclose(bernoulli.log_mean_probability(mean, np.full(2, 0.5)), expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_predict_proba_averages_over_the_posterior(classes):
    X, y = data(n=60, classes=classes)
    settings = {"confidence_coef": 1.0, "confidence_local": 1.0, "multi_class": "ovr"}
    model = SoULogisticRegression(**settings).fit(X, y)
    draws = model.sample(20_000, random_state=0)
    coef, intercept = draws["coef"], draws["intercept"]
    if classes == 2:
        coef, intercept = coef[:, None], intercept[:, None]
    each = expit(np.einsum("ij,dkj->dik", X[:20], coef) + intercept[:, None])  # (draw, row, class)
    mean, error = each.mean(0), 4.0 * each.std(0) / np.sqrt(len(each)) + 1e-4
    p, sd = model.predict_proba(X[:20], return_std=True)
    if classes == 2:
        assert np.all(np.abs(p[:, 1] - mean[:, 0]) < error[:, 0])
        np.testing.assert_allclose(sd[:, 1], each.std(0)[:, 0], rtol=0.05, atol=1e-3)
        plug_in = expit(X[:20] @ model.coef_[0] + model.intercept_)
        assert np.any(np.abs(plug_in - mean[:, 0]) > error[:, 0])  # averaging matters here
    else:
        total = mean.sum(1, keepdims=True)
        assert np.all(np.abs(p - mean / total) < 2.0 * error / total)
    np.testing.assert_allclose(p.sum(1), 1.0)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X[:20])), p, atol=1e-8)
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[model.predict_proba(X).argmax(1)]
    )


def test_draws_have_the_reported_moments(fitted):
    model, _, _ = fitted
    draws = model.sample(40_000, random_state=1)
    z = (draws["coef"].mean(0) - model.coef_[0]) / model.coef_sd_[0] * np.sqrt(40_000)
    assert np.abs(z).max() < 4.5
    np.testing.assert_allclose(draws["coef"].std(0), model.coef_sd_[0], rtol=0.03)
    assert draws["intercept"].mean() == pytest.approx(
        model.intercept_[0], abs=4.5 * model.intercept_sd_[0] / 200
    )
    assert draws["intercept"].std() == pytest.approx(model.intercept_sd_[0], rel=0.03)
    np.testing.assert_allclose(np.sqrt(np.diag(model.covariance_)), model.coef_sd_[0])


# ---- the objective ------------------------------------------------------------------------------


KEPT = {"kept": {"columns": [5, 1], "prior": "normal", "confidence": 0.5}}


@pytest.mark.parametrize(
    ("n", "p", "options"),
    [
        (150, 8, {"confidence_coef": 2.0}),
        (150, 8, {"confidence_local": 1.0}),
        (30, 320, {"confidence_local": 1.0}),  # more columns than rows
        (150, 8, {"feature_blocks": KEPT}),
        (30, 320, {"confidence_local": 1.0, "feature_blocks": KEPT}),
        (150, 8, {"feature_blocks": {"b": {"columns": [0, 7], "confidence": 3.0}}}),
    ],
)
def test_value_is_expected_loss_plus_what_every_source_cost(n, p, options):
    X, y = data(n, p)
    given = {"confidence_coef": 1.0, "confidence_local": 1e-6} | options
    model = SoULogisticRegression(tol=1e-10, **given).fit(X, y)
    gamma = dict.fromkeys(model.kl_, 1.0)
    gamma["coef"] = model.confidence_coef
    gamma["local"] = model.confidence_local
    for name, block in (model.feature_blocks or {}).items():
        gamma[name] = block["confidence"]
    q, centred = model.mixtures_[0].components[0].posterior, X - X.mean(0)
    spread = np.einsum("ij,jk,ik->i", centred, model.covariance_, centred)
    eta = X @ model.coef_[0] + model.intercept_
    variance = spread + q.sd[p] ** 2
    loss = Bernoulli().terms(eta, variance, y.astype(float)).loss.sum()
    value = loss + sum(gamma[name] * cost for name, cost in model.kl_.items())
    assert model.objective_[-1] == pytest.approx(value, rel=2e-6)
    assert np.all(np.diff(model.objective_) <= 0.0)
    assert q.spread(np.c_[centred, np.zeros(n)]) == pytest.approx(spread)
    assert model.converged_


def test_wide_data_reach_the_minimum_of_the_dense_solver(monkeypatch):
    X, y = data(40, 330)
    options = {"confidence_local": 1.0, "tol": 1e-10}
    wide = SoULogisticRegression(**({"confidence_coef": 1.0} | options)).fit(X, y)
    monkeypatch.setattr("soubayes.sparse.rows.path.FEW_COLUMNS", 1000)
    dense = SoULogisticRegression(**({"confidence_coef": 1.0} | options)).fit(X, y)
    assert wide.objective_[-1] == pytest.approx(dense.objective_[-1], rel=1e-6)
    np.testing.assert_allclose(wide.coef_, dense.coef_, atol=2e-3 * np.abs(dense.coef_).max())
    np.testing.assert_allclose(wide.coef_sd_, dense.coef_sd_, rtol=1e-2)
    np.testing.assert_allclose(wide.predict_proba(X[:5]), dense.predict_proba(X[:5]), atol=1e-3)


def test_wide_selection_ends_where_the_dense_solver_cannot_improve():
    X, y = data(60, 500)
    model = SoULogisticRegression(confidence_coef=1.0, bound="jaakkola").fit(X, y)
    assert model.converged_
    assert 1 <= model.selected_.sum() < 30
    Z = (X - X.mean(0)) / X.std(0)
    design, weight = RowsInMemory(Z), np.ones(60)
    # a solver that never forms n x n systems, from this end point with everything active
    inner = model._family().settings.plan(500).model
    precision = np.append(1.0 / (model.local_scale_[0] * model.global_scale_[0]) ** 2, 0.1)
    q = model.mixtures_[0].components[0].posterior
    mean = q.mean * np.append(X.std(0), 1.0)
    shared = share_rows(JaakkolaBernoulli(), design, [y.astype(float)], weight, "coordinate")[0]
    start = make_state(inner, np.arange(501), mean, shared.gram / 4.0, precision, np.zeros(501))
    again = newton.solve(shared.problem(), inner, start, max_iter=30)
    assert again.history[-1] == pytest.approx(model.objective_[-1], rel=1e-5)


def test_coordinate_solver_agrees_and_says_when_it_did_not_finish():
    X, y = data(n=100, p=5)
    given = {"confidence_local": 0.1, "tol": 1e-12, "bound": "jaakkola"}
    fast = SoULogisticRegression(**({"confidence_coef": 1.0} | given)).fit(X, y)
    slow = SoULogisticRegression(
        **({"confidence_coef": 1.0} | given), solver="coordinate", max_iter=3000
    ).fit(X, y)
    np.testing.assert_allclose(slow.coef_, fast.coef_, atol=1e-4)
    assert fast.objective_[-1] <= slow.objective_[-1] * (1 + 1e-9)
    with pytest.warns(ConvergenceWarning, match="leave the solver at its default"):
        short = SoULogisticRegression(
            confidence_coef=1.0, solver="coordinate", bound="jaakkola", max_iter=3
        ).fit(X, y)
    assert not short.converged_
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        SoULogisticRegression(confidence_coef=1.0, max_iter=1).fit(X, y)


def test_without_selection_a_flat_prior_is_ordinary_logistic_regression():
    X, y = data(n=400, p=5)
    blocks = {"all": {"columns": slice(None), "prior": "normal", "variance": 1e6}}
    model = SoULogisticRegression(
        confidence_coef=1.0, feature_blocks=blocks, priors={"intercept_variance": 1e6}, tol=1e-12
    ).fit(X, y)
    assert model.selected_.all()
    plain = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-10).fit(X, y)
    # the bound's mean is not the likelihood's mode, but close for 400 rows
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=0.1, atol=0.02)


# ---- several classes, labels, weights -----------------------------------------------------------


@pytest.mark.parametrize("labels", [["a", "b", "c"], [3, 5, 9], [-1.0, 0.0, 7.0]])
def test_one_against_the_rest_is_one_binary_fit_a_class(labels):
    X, y = data(classes=3)
    names = np.array(labels)[y]
    model = SoULogisticRegression(confidence_coef=1.0, n_jobs=2, multi_class="ovr").fit(X, names)
    assert model.coef_.shape == (3, 12)
    np.testing.assert_array_equal(model.classes_, np.unique(names))
    for t, label in enumerate(model.classes_):
        one = SoULogisticRegression(confidence_coef=1.0).fit(X, names == label)
        np.testing.assert_allclose(model.coef_[t], one.coef_[0], rtol=1e-8, atol=1e-12)
    assert set(model.predict(X)) <= set(labels)
    assert model.score(X, names) > 0.7
    assert list(model.summary().index.get_level_values(0).unique()) == list(model.classes_)


def test_binary_labels_of_any_type():
    X, y = data()
    reference = SoULogisticRegression(confidence_coef=1.0).fit(X, y).coef_
    for labels in (np.array(["no", "yes"])[y], y.astype(bool), np.array([2.0, 7.0])[y], list(y)):
        model = SoULogisticRegression(confidence_coef=1.0).fit(X, labels)
        np.testing.assert_array_equal(model.coef_, reference)
        assert model.predict(X[:1])[0] in set(labels)


def test_weights_count_rows():
    X, y = data(n=80, p=4)
    weight = np.random.default_rng(0).integers(0, 3, 80)
    weighted = SoULogisticRegression(confidence_coef=1.0, tol=1e-11).fit(X, y, weight)
    repeated = SoULogisticRegression(confidence_coef=1.0, tol=1e-11).fit(
        np.repeat(X, weight, 0), np.repeat(y, weight)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7, atol=1e-10)


# ---- inputs people have -------------------------------------------------------------------------


def test_units_order_and_container_do_not_matter(fitted):
    model, X, y = fitted
    p = model.predict_proba(X)
    scale = np.logspace(-8, 8, 12)
    moved = SoULogisticRegression(confidence_coef=1.0).fit(X * scale, y)
    np.testing.assert_allclose(moved.coef_ * scale, model.coef_, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(moved.predict_proba(X * scale), p, rtol=1e-8)
    shifted = SoULogisticRegression(confidence_coef=1.0).fit(X + 100.0, y)
    np.testing.assert_allclose(shifted.predict_proba(X + 100.0), p, rtol=1e-7)
    order = np.random.default_rng(0).permutation(12)
    mixed = SoULogisticRegression(confidence_coef=1.0).fit(X[:, order], y)
    np.testing.assert_allclose(mixed.coef_, model.coef_[:, order], rtol=1e-7, atol=1e-12)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(12)])
    named = SoULogisticRegression(confidence_coef=1.0).fit(frame, y)
    np.testing.assert_allclose(named.coef_, model.coef_, rtol=1e-10)
    assert list(named.feature_names_in_) == list(frame.columns)
    assert list(named.get_feature_names_out()) == [f"c{i}" for i in np.flatnonzero(model.selected_)]
    np.testing.assert_array_equal(
        SoULogisticRegression(confidence_coef=1.0).fit(X.tolist(), y).coef_, model.coef_
    )
    single = SoULogisticRegression(confidence_coef=1.0).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.coef_, model.coef_, rtol=1e-3, atol=1e-6)


def test_sparse_matrices_are_standardised_without_being_made_dense():
    X, y = data(n=300)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.4, X, 0.0)
    dense = SoULogisticRegression(confidence_coef=1.0).fit(X, y)
    for kind in (sps.csr_array, sps.csc_matrix, sps.coo_array):
        lazy = SoULogisticRegression(confidence_coef=1.0).fit(kind(X), y)
        np.testing.assert_allclose(lazy.coef_, dense.coef_, rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(lazy.predict_proba(kind(X)), dense.predict_proba(X), rtol=1e-7)


def test_float32_stays_float32(monkeypatch):
    seen = []
    original = RowProblem.sweep

    def spy(problem, *args, **options):
        seen.append(problem.design.dtype)
        return original(problem, *args, **options)

    monkeypatch.setattr(RowProblem, "sweep", spy)
    X, y = data()
    SoULogisticRegression(confidence_coef=1.0).fit(X.astype(np.float32), y)
    assert set(seen) == {np.dtype(np.float32)}


def test_feature_blocks_leave_named_columns_unshrunk():
    X, y = data(n=60, p=8)
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    blocks = {"clinical": {"columns": ["h", "e"], "prior": "normal", "variance": 10.0}}
    for coef in (1.0, 4.0, "auto"):
        model = SoULogisticRegression(confidence_coef=coef, feature_blocks=blocks).fit(frame, y)
        assert model.selected_[0][[4, 7]].all()
        assert np.all(model.coef_[0][[4, 7]] != 0.0)
        assert np.isnan(model.sparse_.local_scale_[0][[4, 7]]).all()
        assert "clinical" in model.sparse_.kl_
    moved = SoULogisticRegression(confidence_coef=1.0, feature_blocks=blocks).fit(
        frame[list("hgfedcba")], y
    )
    model = SoULogisticRegression(confidence_coef=1.0, feature_blocks=blocks).fit(frame, y)
    np.testing.assert_allclose(moved.coef_[:, ::-1], model.coef_, rtol=1e-7, atol=1e-12)


def test_horseshoe_prior_and_the_global_local_model_shrink_without_dropping():
    X, y = data(n=100)
    horseshoe = SoULogisticRegression(
        confidence_coef=1.0, prior="horseshoe", confidence_local=1.0
    ).fit(X, y)
    assert horseshoe.selected_.all()
    assert horseshoe.shrinkage_[0][:4].max() < horseshoe.shrinkage_[0][4:].mean()
    sparse = SoULogisticRegression(confidence_coef=1.0, prior="horseshoe").fit(X, y)
    assert 2 <= sparse.selected_.sum() < 12
    assert horseshoe.converged_
    assert sparse.converged_


@pytest.mark.parametrize("options", [{}, {"confidence_local": 1.0}, {"confidence_coef": "auto"}])
def test_separable_constant_and_collinear_columns(options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6))
    X[:, 2], X[:, 4] = 5.0, X[:, 0]
    y = (X[:, 0] > 0).astype(int)
    model = SoULogisticRegression(**({"confidence_coef": 1.0} | options)).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict_proba(X * 1e3)).all()
    assert model.score(X, y) == 1.0
    assert model.coef_[0, 2] == 0.0
    assert model.converged_


@settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    n=st.integers(2, 12),
    p=st.integers(1, 14),
    scale=st.integers(-8, 8),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
    dtype=st.sampled_from([np.float64, np.float32, np.int64]),
    labels=st.sampled_from([[0, 1], ["a", "b", "c"], [False, True], [-1.0, 0.0, 2.0, 1e9]]),
    intercept=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 50),
    confidences=st.sampled_from(
        [(1.0, 1e-6), ("auto", 1e-6), (0.3, 1e-3), (7.0, 1e-6), (1.0, 1.0)]
    ),
)
def test_fuzz_never_a_silent_nan(
    n, p, scale, offset, dtype, labels, intercept, weighted, seed, confidences
):
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, p)) + offset) * 10.0**scale
    with np.errstate(all="ignore"):
        X = X.astype(dtype)
    y = np.array(labels)[np.concatenate([[0, 1], rng.integers(0, len(labels), n - 2)])]
    weight = 10.0 ** rng.uniform(-3, 3, n) if weighted else None
    coef, local = confidences
    model = SoULogisticRegression(
        confidence_coef=coef, confidence_local=local, fit_intercept=intercept
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y, sample_weight=weight)
    probability, sd = model.predict_proba(X, return_std=True)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    assert np.all(probability >= 0.0)
    assert np.all(np.isfinite(sd))
    for values in (model.coef_, model.coef_sd_, model.shrinkage_, model.decision_function(X)):
        assert np.all(np.isfinite(values))
    assert np.isfinite([model.intercept_, model.intercept_sd_]).all()
    several = len(model.classes_) > 2
    for history, costs in zip(
        model.objective_ if several else [model.objective_],
        model.kl_ if several else [model.kl_],
        strict=True,
    ):
        assert np.all(np.isfinite(history))
        assert np.all(np.diff(history) <= 0.0)
        assert np.all(np.isfinite(list(costs.values())))
    assert set(model.predict(X)) <= set(y)


def test_only_noise_leaves_the_class_frequencies():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), (rng.random(200) < 0.3).astype(int)
    model = SoULogisticRegression(confidence_coef=20.0).fit(X, y)
    assert not model.selected_.any()
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], y.mean(), atol=0.01)
    bare = SoULogisticRegression(confidence_coef=20.0, fit_intercept=False).fit(X, y)
    assert not bare.selected_.any()
    np.testing.assert_allclose(bare.predict_proba(X), 0.5)


# ---- the path -----------------------------------------------------------------------------------


def test_auto_follows_the_path_and_refits_its_point():
    X, y = data(n=300, p=30)
    model = SoULogisticRegression(choice="path", confidence_coef="auto").fit(X, y)
    path = model.path_
    assert path["gamma"][0] == 1.0
    assert np.all(np.diff(path["gamma"]) > 0)
    assert path["n_selected"].iloc[0] > path["n_selected"].iloc[-1]
    chosen = int(np.argmin(path["score"]))
    assert model.confidence_coef_ == path["gamma"][chosen]
    np.testing.assert_array_equal(model.path_coef_.loc[chosen] != 0, model.selected_[0])
    np.testing.assert_array_equal(
        np.flatnonzero(model.coef_[0]), np.flatnonzero(model.selected_[0])
    )
    again = model.path_refit_coef_.loc[chosen]
    np.testing.assert_allclose(again, model.coef_[0], rtol=0.05, atol=1e-6)
    # the refit undoes the shrinkage of a high confidence
    assert np.abs(model.coef_[0]).sum() > np.abs(model.path_coef_.loc[chosen]).sum()
    # the score, recomputed
    coef, intercept = again, path["refit_intercept"][chosen]
    eta = X @ coef.to_numpy() + intercept
    k = int(model.selected_.sum()) + 1
    score = 2.0 * np.sum(np.logaddexp(0, eta) - y * eta) + 2.0 * k * 300 / (300 - k - 1)
    score += 2.0 * (k - 1) * (np.log(30) - 1)
    score += 360.0 * (k - 1) / (300 - k - 2) ** 2  # few rows
    assert path["score"][chosen] == pytest.approx(score, rel=1e-6)
    assert model.selected_[0][:4].sum() >= 3
    assert model.selected_[0][4:].sum() <= 2


def test_a_number_is_reached_by_the_path_and_reported_there():
    X, y = data(n=300, p=30)
    model = SoULogisticRegression(confidence_coef=4.0).fit(X, y)
    assert model.path_["gamma"].iloc[-1] == pytest.approx(4.0)
    np.testing.assert_allclose(model.path_coef_.iloc[-1], model.coef_[0], rtol=1e-10)
    loose = SoULogisticRegression(confidence_coef=0.5).fit(X, y)
    assert loose.selected_.sum() > model.selected_.sum()


def test_plots_summary_export_and_selection(fitted):
    model, X, _ = fitted
    ax = soubayes.plot_path(model)
    assert ax.get_xscale() == "log"
    soubayes.plot_shrinkage(model)
    several = SoULogisticRegression(confidence_coef=3.0).fit(*data(classes=3))
    soubayes.plot_path(several, target=2)
    table = model.summary(level=0.8)
    assert list(table.columns) == ["estimate", "sd", "median", "lower", "upper", "selected"]
    np.testing.assert_array_equal(table["estimate"], model.coef_[0])
    assert model.to_arviz(draws=10).posterior["coef"].shape == (1, 10, 12)
    assert several.to_arviz(draws=10).posterior["coef"].shape == (1, 10, 3, 12)
    assert model.transform(X).shape[1] == model.selected_.sum()
    assert model.shrinkage_.shape == model.coef_.shape


def test_grid_search_and_pipeline(fitted):
    model, X, y = fitted
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SoULogisticRegression(confidence_coef=1.0)),
        {"soulogisticregression__confidence_coef": [1.0, 8.0]},
        scoring="neg_log_loss",
        cv=3,
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert clone(model).get_params() == model.get_params()


# ---- trouble ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence_coef": -1.0}, "greater than 0"),
        ({"confidence_coef": "best"}, "'auto' or a number"),
        ({"confidence_local": 0.0}, "greater than 0"),
        ({"prior": "cauchy"}, "'exponential', 'horseshoe'"),
        ({"solver": "path"}, "'newton', 'coordinate'"),
        ({"priors": {"rate_local": -1.0}}, "rate_local is -1.0"),
        ({"priors": {"intercept_variance": 0.0}}, "intercept_variance is 0.0"),
        ({"priors": {"noise_scale": 1.0}}, "numbers here are 'rate_local'"),
        ({"confidence": {"noise": 1.0}}, "blocks are 'global', 'intercept'"),
        ({"feature_blocks": {"a": {"columns": ["x"]}}}, "has no column names"),
    ],
)
def test_bad_parameters_say_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=message):
        SoULogisticRegression(**({"confidence_coef": 1.0} | options)).fit(*data(n=30, p=4))


def test_bad_data_say_what_is_wrong():
    X, y = data(n=30, p=4)
    with pytest.raises(ValueError, match="one class 1"):
        SoULogisticRegression(confidence_coef=1.0).fit(X, np.ones(30, int))
    with pytest.raises(ValueError, match="at least two classes"):
        SoULogisticRegression(confidence_coef=1.0).fit(X, y, sample_weight=(y == 0).astype(float))
    with pytest.raises(ValueError, match="NaN"):
        SoULogisticRegression(confidence_coef=1.0).fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        SoULogisticRegression(confidence_coef=1.0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="too large"):
        SoULogisticRegression(confidence_coef=1.0, multi_class="ovr").fit([(X * 1e200, y)])
    with pytest.raises(ValueError, match="divide the column by a constant"):
        SoULogisticRegression(confidence_coef=1.0).fit(X * 1e300, y)


@pytest.mark.parametrize("choice", ["prediction", "path"])
@pytest.mark.parametrize("columns", [np.ones((60, 2)), np.zeros((60, 1))])
def test_constant_columns_alone_are_not_selected(choice, columns):
    y = np.random.default_rng(0).integers(0, 2, 60)
    model = SoULogisticRegression(choice=choice).fit(columns, y)
    assert not model.selected_.any()
    assert model.sparse_.path_["n_selected"].eq(0).all()
    np.testing.assert_array_equal(model.coef_, 0.0)
    assert model.predict_proba(columns)[0, 1] == pytest.approx(y.mean(), abs=0.02)


@pytest.mark.parametrize("labels", [2, 3])
def test_probabilities_far_away_are_those_of_the_limit(labels):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.digitize(X[:, 0] + rng.logistic(size=200), [-1.0, 1.0][: labels - 1])
    for choice in ("prediction", "path"):
        model = SoULogisticRegression(choice=choice).fit(X, y)
        near = model.predict_proba(X * 1e12)
        for size in (1e150, 1e300):
            far, sd = model.predict_proba(X * size, return_std=True)
            np.testing.assert_allclose(far, near, atol=1e-6)
            assert np.isfinite(sd).all()
            assert not np.isnan(model.decision_function(X * size)).any()
            np.testing.assert_array_equal(model.predict(X * size), model.predict(X * 1e12))


def test_sd_of_several_classes_is_possible_and_that_of_draws():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 3))
    y = np.digitize(X[:, 0] + 0.3 * rng.logistic(size=150), [-0.7, 0.7])
    model = SoULogisticRegression(choice="path", multi_class="ovr").fit(X, y)
    _, sd = model.predict_proba(X, return_std=True)
    draws = model.sample(4000, random_state=0)
    odds = np.einsum("skp,np->snk", draws["coef"], X) + draws["intercept"][:, None]
    each = expit(odds)
    sampled = (each / each.sum(axis=2, keepdims=True)).std(axis=0)
    assert np.median(np.abs(sd - sampled) / sampled) < 0.1
    far, wide = model.predict_proba(np.array([[0.0, 1e3, 1e3], [0.0, -1e3, 1e3]]), return_std=True)
    assert (wide <= np.sqrt(far * (1 - far)) + 1e-12).all()
