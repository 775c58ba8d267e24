"""inclusion: what a fit with inclusion=True reports, of every estimator."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from soubayes import (
    SoUGeneralizedRegression,
    SoULinearRegression,
    SoULogisticRegression,
    plot_credible_sets,
)
from soubayes.sparse.likelihoods.bernoulli import Bernoulli

RNG = np.random.default_rng(7)
X = RNG.normal(size=(150, 12))
X[:, 4] = X[:, 1] + 0.05 * RNG.normal(size=150)
ETA = 1.5 * X[:, 1] - 1.5 * X[:, 8]
Y = ETA + RNG.normal(size=150)
LABELS = np.where(RNG.random(150) < 1 / (1 + np.exp(-ETA)), "yes", "no")
FITS = {
    "linear": lambda X, **k: SoULinearRegression(choice="path", inclusion=True, **k).fit(X, Y),
    "logistic": lambda X, **k: SoULogisticRegression(choice="path", inclusion=True, **k).fit(
        X, LABELS
    ),
    "generalized": lambda X, **k: SoUGeneralizedRegression(
        Bernoulli(), inclusion=True, confidence_coef=3.0, **k
    ).fit(X, (LABELS == "yes").astype(float)),
}


@pytest.fixture(scope="module", params=FITS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def model(kind):
    return FITS[kind](X)


def test_look_alikes_are_one_set(model):
    sets = model.supports_.credible_sets()
    assert sorted(sorted(names) for names in sets["features"]) == [["x1", "x4"], ["x8"]]
    assert (sets["probability"] >= 0.95 * 0.9).all()
    assert (sets["lower"] <= sets["effect"]).all()
    assert (sets["effect"] <= sets["upper"]).all()
    pair = sets[sets["features"].map(len) == 2].iloc[0]
    assert pair["purity"] == pytest.approx(np.corrcoef(X[:, 1], X[:, 4])[0, 1], abs=1e-3)
    assert model.supports_.inclusion.shape == model.selected_.shape
    assert np.all((model.supports_.complete > 0.1) & (model.supports_.complete < 1.0))


def test_summary_and_discoveries(model):
    table = model.summary()
    np.testing.assert_array_equal(table["inclusion"], model.supports_.inclusion.ravel())
    assert table[["lower", "upper"]].notna().all(axis=None)
    assert set(table.index[table["set"] > 0]) == {"x1", "x4", "x8"}
    chosen = model.supports_.discoveries(0.1)
    assert chosen.shape == model.supports_.inclusion.shape
    wrong = 1 - model.supports_.inclusion.ravel()[chosen.ravel()]
    assert wrong.mean() <= 0.1
    assert chosen.ravel()[8]


def test_units_and_containers(kind, model):
    scaled = FITS[kind](pd.DataFrame(4.0 * X - 3.0).add_prefix("c"))
    np.testing.assert_allclose(scaled.supports_.inclusion, model.supports_.inclusion, atol=1e-3)
    np.testing.assert_allclose(
        scaled.supports_.credible_sets()["effect"],
        model.supports_.credible_sets()["effect"],
        rtol=1e-2,
    )
    np.testing.assert_allclose(4.0 * scaled.summary()["upper"], model.summary()["upper"], atol=0.02)
    sparse = FITS[kind](sp.csr_array(X))
    np.testing.assert_allclose(sparse.supports_.inclusion, model.supports_.inclusion, atol=1e-3)


def test_a_plain_fit_says_how_to_get_it():
    plain = SoULinearRegression(choice="path").fit(X, Y)
    assert not hasattr(plain, "inclusion_")
    with pytest.raises(AttributeError, match="inclusion=True"):
        plain.supports_.credible_sets()
    both = SoULinearRegression(choice="path", inclusion=True).fit(X, Y)
    np.testing.assert_array_equal(both.coef_, plain.coef_)
    both.set_params(inclusion=False).fit(X, Y)
    assert not hasattr(both, "inclusion_")


@pytest.mark.parametrize("fdr", [0.0, 1.0, -1.0])
def test_targets_lie_between_0_and_1(model, fdr):
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.supports_.discoveries(fdr)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.supports_.credible_sets(presence=fdr)
    with pytest.raises(ValueError, match="purity is"):
        model.supports_.credible_sets(purity=fdr - 1.5)


def test_several_targets_and_classes():
    model = SoULinearRegression(choice="path", inclusion=True).fit(X, np.c_[Y, X[:, 3]])
    assert model.supports_.inclusion.shape == (2, 12)
    assert model.supports_.inclusion[1, 3] > 0.99
    assert model.supports_.credible_sets().index.names == ["target", "set"]
    assert model.supports_.discoveries().shape == (2, 12)
    three = np.where(ETA > 1, "c", LABELS)
    model = SoULogisticRegression(choice="path", inclusion=True).fit(X, three)
    assert model.supports_.inclusion.shape == (3, 12)


def test_wide_data_and_their_sparse_form():
    rng = np.random.default_rng(0)
    wide = rng.poisson(0.3, size=(60, 200)).astype(float)
    y = 2 * wide[:, 5] + 0.5 * rng.normal(size=60)
    dense = SoULinearRegression(choice="path", inclusion=True).fit(wide, y)
    sparse = SoULinearRegression(choice="path", inclusion=True).fit(sp.csr_array(wide), y)
    assert dense.supports_.inclusion[5] > 0.99
    np.testing.assert_allclose(dense.supports_.inclusion, sparse.supports_.inclusion, atol=1e-6)


def test_a_block_of_normal_columns_is_in_every_support():
    blocks = {"free": {"columns": [8], "prior": "normal"}}
    for fit in (FITS["linear"], FITS["logistic"]):
        model = fit(X, feature_blocks=blocks)
        assert model.supports_.inclusion.ravel()[8] == 0.0
        assert model.supports_.inclusion.ravel()[[1, 4]].sum() > 0.9


@pytest.mark.parametrize(("n", "p"), [(100, 40), (50, 200)])
def test_pure_noise_has_no_sets(n, p):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        noise, y = rng.normal(size=(n, p)), rng.normal(size=n)
        model = SoULinearRegression(choice="path", inclusion=True).fit(noise, y)
        assert len(model.supports_.credible_sets()) == 0
        assert model.supports_.inclusion.max() < 0.5
    labels = y > 0
    model = SoULogisticRegression(choice="path", inclusion=True).fit(noise, labels)
    assert len(model.supports_.credible_sets()) == 0


def test_streamed_rows_of_a_classifier_are_refused_unless_they_are_few():
    blocks = [(X[:80], LABELS[:80]), (X[80:], LABELS[80:])]
    with pytest.raises(ValueError, match="rows in memory"):
        SoULogisticRegression(choice="path", inclusion=True, multi_class="ovr").fit(blocks)
    few = SoULogisticRegression(choice="path", inclusion=True)  # few rows are gathered
    found = few.fit(blocks).supports_.inclusion
    np.testing.assert_allclose(found, few.fit(X, LABELS).supports_.inclusion, rtol=1e-8)
    model = SoULinearRegression(choice="path", inclusion=True).fit(
        [(X[:80], Y[:80]), (X[80:], Y[80:])]
    )
    np.testing.assert_allclose(
        model.supports_.inclusion, FITS["linear"](X).supports_.inclusion, atol=1e-6
    )


def test_figure_shows_every_column_and_names_the_sets():
    names = [f"_x{j}$" for j in range(X.shape[1])]  # matplotlib hides labels that begin with _
    model = FITS["linear"](pd.DataFrame(X, columns=names))
    axes = plot_credible_sets(model)
    assert sum(len(line.get_xdata()) for line in axes.lines) == X.shape[1]
    first = model.supports_.credible_sets()["features"].map(lambda features: features[0])
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert len(labels) == 2
    assert all(label.startswith(f"{i}: {first[i]}") for i, label in enumerate(labels, 1))
    with pytest.raises(AttributeError, match="inclusion=True"):
        plot_credible_sets(SoULinearRegression(choice="path").fit(X, Y))


def test_columns_that_never_vary_carry_no_effect():
    still = np.ones((30, 3))
    for model in (SoULinearRegression, SoULogisticRegression):
        found = model(choice="path", inclusion=True).fit(still, np.arange(30) % 2)
        assert np.all(found.supports_.inclusion == 0.0)
        assert len(found.supports_.credible_sets()) == 0
        assert not found.supports_.discoveries().any()


@pytest.mark.filterwarnings("ignore:.*did not settle")
def test_data_that_a_column_explains_entirely():
    exact = SoULinearRegression(choice="path", inclusion=True).fit(X, 3.0 * X[:, 2])
    assert exact.supports_.inclusion[2] > 0.99
    constant = SoULinearRegression(choice="path", inclusion=True).fit(X, np.ones(150))
    assert constant.supports_.inclusion.max() < 0.5
    apart = SoULogisticRegression(choice="path", inclusion=True).fit(X, X[:, 2] > 0)
    assert apart.supports_.inclusion[0, 2] > 0.9


@pytest.mark.parametrize("p", [2, 3, 4, 5, 10])
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.01])
def test_a_strong_effect_has_a_set_where_columns_are_few(p, noise):
    """With few columns a second effect in a copy is probable a priori; it takes nothing away."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, p))
        X[:, 1] = X[:, 0] + noise * rng.normal(size=200)
        y = X[:, 0] + rng.normal(size=200)
        sets = (
            SoULinearRegression(inclusion=True, choice="path").fit(X, y).supports_.credible_sets()
        )
        assert any({"x0", "x1"} <= set(features) for features in sets["features"]), seed


@pytest.mark.slow
@pytest.mark.parametrize("p", range(2, 11))
@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.01])
def test_a_strong_effect_has_a_set_in_19_of_20(p, noise):
    found = 0
    for seed in range(100, 120):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, p))
        X[:, 1] = X[:, 0] + noise * rng.normal(size=200)
        y = X[:, 0] + rng.normal(size=200)
        sets = (
            SoULinearRegression(inclusion=True, choice="path").fit(X, y).supports_.credible_sets()
        )
        found += any({"x0", "x1"} & set(features) for features in sets["features"])
    assert found >= 19


@pytest.mark.parametrize("estimator", [SoULinearRegression, SoULogisticRegression])
@pytest.mark.parametrize("k", [2, 20])
def test_a_set_holds_all_copies_of_a_column(estimator, k):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 40))
    X[:, 1:k] = X[:, [0]] * np.where(np.arange(1, k) % 2, 1.0, -2.0)
    y = 2.0 * X[:, 0] + rng.logistic(size=150)
    y = y if estimator is SoULinearRegression else y > 0
    sets = estimator(inclusion=True, choice="path").fit(X, y).supports_.credible_sets()
    assert set(sets["features"].iloc[0]) == {f"x{j}" for j in range(k)}
