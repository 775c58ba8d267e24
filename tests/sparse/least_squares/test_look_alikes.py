"""look_alikes: columns that look alike leave and return one at a time in linear regression."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

from soubayes import SoULinearRegression
from soubayes.sparse.least_squares.descent import descend, leaders
from soubayes.sparse.least_squares.fitting import rows_intake
from soubayes.sparse.least_squares.path import _polish, solve_path
from soubayes.sparse.least_squares.state import OUT, PathState, assemble


def table(n, p, k, noise, seed):
    """y = x0 + noise, and k columns that are x0 plus noise of this size."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X[:, 1:k] = X[:, [0]] + noise * rng.normal(size=(n, k - 1))
    return X, X[:, 0] + rng.normal(size=n)


def fitted(X, y):
    model = SoULinearRegression(choice="path").fit(X, y)
    (design,), units, *_ = rows_intake(X, y[:, None], None, True)
    columns, free = model._settings().model(X.shape[1], float(units.y_scale[0]))
    limits = {"tol": model.tol, "max_iter": model.max_iter}
    return design, *solve_path(design, columns, free, None, **limits)


def value_with_one(design, solution, cluster, j):
    """J of the refit whose support has column j and no other of the cluster."""
    active = np.setdiff1d(np.flatnonzero(solution.selected), cluster)
    w = solution.w.copy()
    w[cluster] = OUT * design.norms[cluster]
    w[j] = 1.0
    shape = solution.tau.shape.copy()
    state = PathState(
        w, np.sort(np.append(active, j)), solution.noise.variance, shape, solution.nu, refit=True
    )
    state = descend(design, solution.model, state, 1e-6, 500)[0]
    state, history, _ = _polish(design, solution.model, state, 1e-6, 500)
    return assemble(design, solution.model, state, np.array(history), 1, True).value.value


@pytest.mark.parametrize(("n", "p"), [(120, 40), (60, 120)])
@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 5e-5, 1e-3, 0.05, 0.33])
def test_no_other_choice_among_look_alikes_has_a_lower_value(n, p, k, noise):
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(p)
        X, y = table(n, p, k, noise, seed)
        cluster = np.flatnonzero(order < k)
        design, points, chosen, solution = fitted(X[:, order], y)
        assert solution.selected[cluster].any()
        np.testing.assert_array_equal(
            points[chosen].state.active, np.flatnonzero(solution.selected)
        )
        if noise < 1e-2:
            assert solution.selected[cluster].sum() == 1
        others = [value_with_one(design, solution, cluster, j) for j in cluster[:: max(k // 5, 1)]]
        assert solution.value.value <= min(others) + 1e-6


def test_a_signal_in_the_difference_of_look_alikes_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20))
    X[:, 1] = X[:, 0] + 0.01 * rng.normal(size=200)
    y = 200.0 * (X[:, 1] - X[:, 0]) + X[:, 5] + 0.1 * rng.normal(size=200)
    model = SoULinearRegression(choice="path").fit(X, y)
    np.testing.assert_array_equal(np.flatnonzero(model.selected_), [0, 1, 5])
    np.testing.assert_allclose(model.coef_[[0, 1]], [-200.0, 200.0], rtol=0.02)


@pytest.mark.parametrize("form", ["dense", "csr", "blocks", "partial_fit", "weights", "float32"])
@pytest.mark.parametrize("copy", ["equal", "negated", "affine", "complement"])
def test_of_copies_the_first_is_selected(form, copy):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 12))
    if copy == "complement":
        X[:, 4] = rng.random(150) < 0.4
    scale, shift = {
        "equal": (1, 0), "negated": (-1, 0), "affine": (1.8, 32), "complement": (-1, 1)
    }[copy]  # fmt: skip
    X[:, [7, 9]] = scale * X[:, [4]] + shift
    y = 3.0 * X[:, 4] + rng.normal(size=150)
    model, weight = SoULinearRegression(choice="path"), None
    if form == "float32" and copy == "affine":
        pytest.skip("a copy up to rounding only, and the stronger one is kept")
    if form == "weights":
        weight = rng.uniform(0.5, 2.0, 150)
    if form == "blocks":
        model.fit([(X[i : i + 40], y[i : i + 40]) for i in range(0, 150, 40)])
    elif form == "partial_fit":
        for i in range(0, 150, 50):
            model.partial_fit(X[i : i + 50], y[i : i + 50])
    else:
        make = {"csr": sp.csr_array, "float32": np.float32}.get(form, np.asarray)
        model.fit(make(X), y, sample_weight=weight)
    others = np.setdiff1d(np.arange(12), [7, 9])
    single = SoULinearRegression(choice="path").fit(X[:, others], y, sample_weight=weight)
    np.testing.assert_array_equal(model.selected_[[4, 7, 9]], [True, False, False])
    np.testing.assert_array_equal(model.selected_[others], single.selected_)
    np.testing.assert_allclose(model.coef_[4], single.coef_[4], rtol=1e-3)
    low = model.summary().loc["x4", "lower"]
    assert low > 0.0


def test_copies_in_different_blocks_are_not_merged():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(100, 6))
    X[:, 3] = X[:, 0]
    y = X[:, 0] + rng.normal(size=100)
    blocks = {"known": {"columns": [3], "prior": "normal", "variance": 1.0}}
    model = SoULinearRegression(choice="path", feature_blocks=blocks).fit(X, y)
    assert model.selected_[3]  # a plain prior: always in


def test_leaders_are_the_strongest_and_first():
    r = np.eye(4)
    r[0, 2] = r[2, 0] = -0.95
    np.testing.assert_array_equal(leaders(np.array([1.0, 1.0, 1.0, 0.1]), r), [1, 1, 0, 1])
    np.testing.assert_array_equal(leaders(np.array([1.0, 1.0, 1.1, 0.1]), r), [0, 1, 1, 1])


def test_a_model_without_copies_is_itself():
    X, y = table(60, 5, 1, 0.0, 0)
    _, _, _, solution = fitted(X, y)
    assert solution.model.copies is None
    model = solution.model
    assert model.barring(np.arange(5)) is model
    barred = model.barring(np.array([0, 1, 0, 3, 1]))
    np.testing.assert_array_equal(barred.distinct, [0, 1, 3])
    np.testing.assert_array_equal(barred.take(np.array([2, 3])).copies, [True, False])
    apart = replace(model, sources=(("a", np.array([0, 1])), ("b", np.array([2, 3, 4]))))
    assert apart.barring(np.array([0, 1, 0, 3, 1])).copies is None
