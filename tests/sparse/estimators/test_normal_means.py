"""Normal means: the paper's figure, and agreement with regression on an identity design."""

import numpy as np
import pytest

from soubayes import SoUNormalMeans
from soubayes.datasets import normal_means


def test_figure_of_the_paper():
    """Section 4.1: 20 signals of 10 among 100 units, 5 replicates, sigma = 1."""
    nulls, signals = [], []
    for seed in range(20):
        data = normal_means(random_state=seed)
        model = SoUNormalMeans().fit(data.Y)
        kappa = model.shrinkage_
        nulls.append(np.mean(kappa[data.coef == 0] > 0.99))
        signals.append(kappa[data.coef != 0].max())
        assert model.noise_variance_ == pytest.approx(1.0, abs=0.35)
    assert np.mean(nulls) > 0.95
    assert max(signals) < 0.05


def test_units_and_order_do_not_matter():
    data = normal_means(random_state=1)
    one = SoUNormalMeans().fit(data.Y)
    two = SoUNormalMeans().fit(1e6 * data.Y[::-1])
    # the prior is not multiplied by sigma^2, but a confidence of 1e-9 in it leaves no trace
    np.testing.assert_allclose(two.coef_[::-1] / 1e6, one.coef_, rtol=1e-6)
    np.testing.assert_array_equal(two.selected_[::-1], one.selected_)


def test_mean_and_shrinkage_are_the_models():
    data = normal_means(random_state=2)
    model = SoUNormalMeans(confidence_coef=2.0).fit(data.Y)
    on = model.selected_
    np.testing.assert_allclose(
        model.coef_[on], (1 - model.shrinkage_[on]) * data.Y.mean(axis=1)[on], rtol=1e-8
    )
    variance = 2.0 * model.noise_variance_ / 5 * (1 - model.shrinkage_)
    np.testing.assert_allclose(model.coef_sd_[on] ** 2, variance[on], rtol=1e-6)


@pytest.mark.parametrize("prior", ["exponential", "horseshoe"])
def test_gl_model_shrinks_without_selecting(prior):
    data = normal_means(random_state=3)
    model = SoUNormalMeans(confidence_coef=1.0, confidence_local=1.0, prior=prior).fit(data.Y)
    assert model.solver_ == "coordinate"
    assert model.converged_
    assert model.selected_.all()
    assert np.all(np.diff(model.objective_) < 1e-9)
    null = data.coef == 0
    assert model.shrinkage_[null].mean() > 2 * model.shrinkage_[~null].mean()


def test_reports():
    data = normal_means(random_state=4)
    model = SoUNormalMeans().fit(data.Y)
    assert model.summary().index[0] == "unit0"
    assert model.sample(9, random_state=0)["coef"].shape == (9, 100)
    assert set(model.kl_) == {"coef", "local", "global", "noise"}
    with pytest.raises(ValueError, match="NaN"):
        SoUNormalMeans().fit([[np.nan, 1.0], [0.0, 1.0]])


def test_one_replicate_is_enough():
    """As many observations as units: at confidence 1 the noise would vanish, so begin above."""
    for seed in range(4):
        Y = 3.0 * np.random.default_rng(seed).standard_normal((100, 1))
        assert not SoUNormalMeans().fit(Y).selected_.any()
        Y[:8] += 30.0
        model = SoUNormalMeans().fit(Y)
        assert model.selected_[:8].all()
        assert model.selected_[8:].sum() <= 3
        assert 5.0 < model.noise_variance_ < 14.0  # 9 with a standard error of 1.3
